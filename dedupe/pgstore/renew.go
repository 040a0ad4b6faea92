package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/records"
)

// renewOwn prolongs the claims that are still the caller's and whose rows nobody holds. readState
// and [machine.RenewTable] tell why it left out a claim. The first 8 bytes of a state are its
// number.
const renewOwn = `WITH given AS MATERIALIZED (
	SELECT ` + inScope + ` AS scope, g.key, g.token, coalesce(g.ttl, ($4::bigint[])[1]) AS ttl, g.started, g.state, g.ord, pg_catalog.clock_timestamp() AS at
	FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::pg_catalog.uuid[], $4::bigint[], $5::boolean[], $6::pg_catalog.bytea[])
	WITH ORDINALITY AS g (scope, key, token, ttl, started, state, ord)
), locked AS MATERIALIZED (
	SELECT g.* FROM given g JOIN {table} t ON t.scope {=} g.scope AND t.key {=} g.key
	WHERE t.token {=} g.token AND t.status {=} 'claimed'
	FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE {table} t SET lease_until = greatest(t.lease_until, g.at {+} (g.ttl::float {*} interval '1 microsecond')), updated = g.at,
	started = t.started OR g.started IS TRUE,
	state = CASE WHEN g.state IS NULL THEN t.state
		WHEN pg_catalog.substr(g.state, 1, 8) {>} coalesce(pg_catalog.substr(t.state, 1, 8), ''::pg_catalog.bytea) THEN g.state ELSE t.state END
FROM locked g WHERE t.scope {=} g.scope AND t.key {=} g.key
RETURNING g.ord`

// Renew prolongs leases, in one round trip. It waits for no row: if a transaction holds one, the
// answer is [dedupe.ErrBusy].
func (s *Store) Renew(ctx context.Context, ns []dedupe.Renewal) ([]dedupe.Renewed, error) {
	if err := s.ready(ctx, len(ns)); err != nil {
		return nil, err
	}
	divide := func(valid []int) [][]int {
		return arrange(valid, func(i int) *dedupe.Key { return &ns[i].Key }, func(i int) int { return len(ns[i].State) })
	}
	return calls.Renewals.Parts(ns, divide, func(part []int, as []dedupe.Renewed) error {
		return s.explain(ctx, "Renew", s.renew(ctx, part, ns, as))
	})
}

// renew sends the renewals at, of different keys.
func (s *Store) renew(ctx context.Context, at []int, ns []dedupe.Renewal, as []dedupe.Renewed) error {
	sent := time.Now()
	key := func(i int) *dedupe.Key { return &ns[i].Key }
	a := keyed(at, key)
	column(a, at, func(i int) dedupe.Token { return ns[i].Token }, (*array).token)
	shared(a, at, func(i int) int64 { return micros(ns[i].TTL) }, (*array).int)
	column(a, at, func(i int) bool { return ns[i].Started }, (*array).bool)
	column(a, at, func(i int) []byte { return records.EncodeState(ns[i].StateNo, ns[i].State) }, (*array).blob)
	args := a.args()
	done, errs := make([]bool, len(at)), make([]error, len(at))
	p := newPipeline()
	p.query(s.sql().renew, args, mark1(done))
	s.readTokens(p, args[:2], at, key, func(n int, r dedupe.Record, err error) {
		if err == nil {
			// It may be renewed and was not: the row is locked, or was during the update.
			if err = machine.ApplyRenew(&r, &ns[at[n]], time.Time{}); err == nil {
				err = dedupe.ErrBusy
			}
		}
		errs[n] = fmt.Errorf("pgstore: Renew: %w", err)
	})
	if err := p.run(ctx, s.db); err != nil {
		return err
	}
	for n, i := range at {
		switch {
		case done[n]:
			as[i] = dedupe.Renewed{Deadline: sent.Add(ns[i].TTL)}
		case errs[n] != nil:
			as[i] = dedupe.Renewed{Err: errs[n]}
		default: // no record
			as[i] = dedupe.Renewed{Err: fmt.Errorf("pgstore: Renew: %w", dedupe.ErrLeaseLost)}
		}
	}
	return nil
}

// mark1 marks the entries whose numbers, from 1, are read.
func mark1(done []bool) func(pgx.Rows) error {
	var ord int64
	targets := []any{&ord}
	return func(rows pgx.Rows) error {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		done[ord-1] = true
		return nil
	}
}

// readState reads what decides a renewal or a settlement. Rows that the transaction has just
// written are left out.
const readState = `SELECT g.ord, t.token, t.status
FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[]) WITH ORDINALITY AS g (scope, key, ord)
JOIN {table} t ON t.scope {=} ` + inScope + ` AND t.key {=} g.key
WHERE ` + notOurs

// readTokens adds the reading of token and status under the keys of the entries at. read is given
// each with its place in at.
func (s *Store) readTokens(p *pipeline, keys []any, at []int, key func(i int) *dedupe.Key, read func(n int, r dedupe.Record, err error)) {
	var (
		ord    int64
		r      dedupe.Record
		status string
	)
	targets := []any{&ord, (*[16]byte)(&r.Token), &status}
	p.query(s.sql().readState, keys, func(rows pgx.Rows) error {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		n := int(ord) - 1
		r.Key = *key(at[n])
		var err error
		if r.Status, err = dedupe.ParseStatus(status); err != nil {
			err = &contentError{r.Key, fmt.Sprintf("unknown status %q", status)}
		}
		read(n, r, err)
		return nil
	})
}
