package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/records"
)

// renewOwn prolongs the claims that are still the caller's and whose rows nobody holds. What it
// reads and [machine.RenewTable] tell why it left out a claim. The first 8 bytes of a state are its
// number.
const renewOwn = `WITH given AS MATERIALIZED (
	SELECT ` + inScope + ` AS scope, g.key, g.token, coalesce(g.ttl, ($4::bigint[])[1]) AS ttl, g.started, g.state, g.ord, pg_catalog.clock_timestamp() AS at
	FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::pg_catalog.uuid[], $4::bigint[], $5::boolean[], $6::pg_catalog.bytea[])
	WITH ORDINALITY AS g (scope, key, token, ttl, started, state, ord)
), locked AS MATERIALIZED (
	SELECT g.*, t.place, t.part FROM given g CROSS JOIN LATERAL (
		SELECT ` + placed + ` FROM {table} t WHERE t.scope {=} g.scope AND t.key {=} g.key AND t.token {=} g.token AND t.status {=} 'claimed'
		FOR NO KEY UPDATE SKIP LOCKED) t
), written AS (
	UPDATE {table} t SET lease_until = greatest(t.lease_until, g.at {+} (g.ttl::float {*} interval '1 microsecond')), updated = g.at,
		started = t.started OR g.started IS TRUE,
		state = CASE WHEN g.state IS NULL THEN t.state
			WHEN pg_catalog.substr(g.state, 1, 8) {>} coalesce(pg_catalog.substr(t.state, 1, 8), ''::pg_catalog.bytea) THEN g.state ELSE t.state END
	FROM locked g WHERE ` + atPlace + `
	RETURNING g.ord
)` + writtenOrNot

// writtenOrNot gives the numbers of the entries that a statement has written. Where those are not
// all, token and status of each entry follow, as they were when the statement began. Each key was
// looked up once: a row that was locked is found by its place, and nothing is read where all was
// written. A row that has changed since the statement began is at another place: it counts as
// locked.
const writtenOrNot = `
SELECT w.ord, NULL, NULL FROM written w
UNION ALL
SELECT g.ord, t.token, t.status FROM given g
CROSS JOIN LATERAL (SELECT t.token, t.status FROM {table} t WHERE t.scope {=} g.scope AND t.key {=} g.key OFFSET 0) t
WHERE (SELECT pg_catalog.count(w.ord) FROM written w) {<} (SELECT pg_catalog.count(g.ord) FROM given g)`

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
	shared(a, at, func(i int) int64 { return pgkit.Micros(ns[i].TTL) }, (*array).int)
	column(a, at, func(i int) bool { return ns[i].Started }, (*array).bool)
	column(a, at, func(i int) []byte { return records.EncodeState(ns[i].StateNo, ns[i].State) }, (*array).blob)
	done, errs := make([]bool, len(at)), make([]error, len(at))
	p := newPipeline()
	s.decide(p, s.sql().renew, a.args(), at, key, done, func(n int, r dedupe.Record, err error) {
		if err == nil {
			// It may be renewed and was not: the row is locked, or was during the update.
			if err = machine.ApplyRenew(&r, &ns[at[n]], time.Time{}); err == nil {
				err = dedupe.ErrBusy
			}
		}
		errs[n] = fmt.Errorf("pgstore: Renew: %w", err)
	})
	if err := p.Run(ctx, s.db); err != nil {
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

// readState reads what decides a settlement, and writes nothing.
const readState = `SELECT g.ord, t.token, t.status
FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[]) WITH ORDINALITY AS g (scope, key, ord)
CROSS JOIN LATERAL (SELECT t.token, t.status FROM {table} t WHERE t.scope {=} ` + inScope + ` AND t.key {=} g.key OFFSET 0) t`

// decide adds a statement that ends with writtenOrNot, or readState. It marks in done what was
// written. read is given token and status of records that are there, with their places in at. Some
// of them may be done.
func (s *Store) decide(p *pgkit.Pipeline, sql string, args []any, at []int, key func(i int) *dedupe.Key, done []bool, read func(n int, r dedupe.Record, err error)) {
	var (
		ord    int64
		r      dedupe.Record
		status string
	)
	written, left := []any{&ord, nil, nil}, []any{&ord, (*[16]byte)(&r.Token), &status}
	p.Query(sql, args, func(rows pgx.Rows) error {
		if rows.RawValues()[2] == nil {
			if err := rows.Scan(written...); err != nil {
				return err
			}
			done[ord-1] = true
			return nil
		}
		if err := rows.Scan(left...); err != nil {
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
