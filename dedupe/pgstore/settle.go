package pgstore

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/pgkit"
)

// This file owns the settlement: its statements, and what is answered where they wrote nothing. Any
// goroutine calls Settle. The row's lock in the database is the only lock. No statement but that of
// a joined settlement waits for it.

// settleOwn does the rows of [machine.SettleTable] that settle a record: the claim is still the
// caller's, or it is parked and the caller has a late word. What it reads decides the others.
const settleOwn = settleGiven + `t.status {=} 'parked' AND g.status {<>} 'parked' AND g.status {<>} 'released'` + settleWritten

// settleWord is settleOwn for those that may release a parked record.
const settleWord = settleGiven + `t.status {=} 'parked' AND g.status {<>} 'parked'` + settleWritten

// noteLate is the row "late release of the parked claim": the record stays as it is, and keeps the
// error. It answers with a row where it has written.
const noteLate = `WITH locked AS MATERIALIZED (
	SELECT ` + placed + ` FROM {table} t
	WHERE t.scope {=} $1::pg_catalog.text AND t.key {=} $2::pg_catalog.text AND t.token {=} $3::pg_catalog.text::pg_catalog.uuid AND t.status {=} 'parked'
	FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE {table} t SET updated = pg_catalog.clock_timestamp(), last_error = $4::pg_catalog.text,
	first_error = CASE WHEN t.first_error {=} '' THEN $5::pg_catalog.text ELSE t.first_error END
FROM locked g WHERE ` + atPlace + `
RETURNING t.token`

const settleGiven = `WITH given AS MATERIALIZED (
	SELECT ` + inScope + ` AS scope, g.key, g.token, coalesce(g.status, ($4::pg_catalog.text[])[1]) AS status, coalesce(g.retain, ($5::bigint[])[1]) AS retain,
		g.result, g.error_class, g.error_text, g.uncounted, g.ord, pg_catalog.clock_timestamp() AS at
	FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::pg_catalog.uuid[], $4::pg_catalog.text[], $5::bigint[], $6::pg_catalog.bytea[], $7::pg_catalog.text[], $8::pg_catalog.text[], $9::boolean[])
	WITH ORDINALITY AS g (scope, key, token, status, retain, result, error_class, error_text, uncounted, ord)
), locked AS MATERIALIZED (
	SELECT g.*, t.place, t.part FROM given g CROSS JOIN LATERAL (
		SELECT ` + placed + ` FROM {table} t WHERE t.scope {=} g.scope AND t.key {=} g.key AND t.token {=} g.token
			AND (t.status {=} 'claimed' OR `

const settleWritten = `)
		FOR NO KEY UPDATE SKIP LOCKED) t
), written AS (
	UPDATE {table} t SET status = g.status, updated = g.at, lease_until = NULL,
		finished = CASE WHEN g.status {<>} 'released' THEN g.at END,
		expires = CASE WHEN g.status {<>} 'parked' THEN g.at {+} (g.retain::float {*} interval '1 microsecond') END,
		result = CASE WHEN g.status {=} 'done' THEN g.result ELSE t.result END,
		state = CASE WHEN g.status {<>} 'done' THEN t.state END, message_id = CASE WHEN g.status {=} 'done' THEN '' ELSE t.message_id END,
		started = t.started AND g.status {<>} 'released',
		attempt = CASE WHEN g.status {=} 'released' AND g.uncounted THEN greatest(0, t.attempt {-} 1) ELSE t.attempt END,
		error_class = CASE WHEN g.status {=} 'done' THEN '' ELSE coalesce(g.error_class, t.error_class) END,
		last_error = CASE WHEN g.status {=} 'done' THEN '' ELSE coalesce(g.error_text, t.last_error) END,
		first_error = CASE WHEN g.status {=} 'done' THEN '' WHEN t.first_error {=} '' THEN coalesce(g.error_text, '') ELSE t.first_error END
	FROM locked g WHERE ` + atPlace + `
	RETURNING g.ord
)` + writtenOrNot

// lockRow waits for the row, and so for the transaction that holds it.
const lockRow = `SELECT FROM {table} t WHERE t.scope {=} $1::pg_catalog.text AND t.key {=} $2::pg_catalog.text FOR NO KEY UPDATE OF t`

// Settle ends claims, in one round trip. It waits for no row: if a transaction holds one, the
// answer is [dedupe.ErrBusy]. Joined settlements are the exception. They go alone, one after the
// other, and each waits for its row until ctx's deadline, because only the end of the user's
// transaction tells what became of the job. A late release of a claim that was parked takes a
// second round trip.
func (s *Store) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	if err := s.ready(ctx, len(ss)); err != nil {
		return nil, err
	}
	divide := func(valid []int) [][]int {
		var joined [][]int
		var unpark []int
		plain := slices.DeleteFunc(valid, func(i int) bool {
			switch {
			case ss[i].Joined:
				joined = append(joined, []int{i})
			case ss[i].Unparks:
				unpark = append(unpark, i)
			default:
				return false
			}
			return true
		})
		key, size := func(i int) *dedupe.Key { return &ss[i].Key }, func(i int) int { return len(ss[i].Result) }
		parts := arrange(plain, key, size)
		if len(unpark) > 0 {
			parts = append(parts, arrange(unpark, key, size)...)
		}
		return append(parts, joined...)
	}
	return calls.Settlements.Parts(ss, divide, func(part []int, as []dedupe.Settled) error {
		return s.explain(ctx, "Settle", s.settle(ctx, part, ss, as))
	})
}

// settle sends the settlements at: of different keys, all of which may release a parked record or
// none, or one that is joined.
func (s *Store) settle(ctx context.Context, at []int, ss []dedupe.Settlement, as []dedupe.Settled) error {
	key := func(i int) *dedupe.Key { return &ss[i].Key }
	args := settleArgs(at, key, ss)
	done, answers := make([]bool, len(at)), make([]dedupe.Settled, len(at))
	var late []int // places in at
	p := newPipeline()
	first := &ss[at[0]]
	if first.Joined {
		if limit := lockTimeout(ctx); limit != "" {
			p = newHasty(limit) // if the client gave up instead, that would cost the connection
		}
		p.Exec(s.sql().lock, first.Key.Scope, first.Key.Key)
	}
	sql := s.sql().readState // a joined job was completed by the user's transaction, or not at all
	switch {
	case first.Joined && first.To == dedupe.Done:
		args = args[:2]
	case first.Unparks:
		sql = s.sql().word
	default:
		sql = s.sql().settle
	}
	s.decide(p, sql, args, at, key, done, func(n int, r dedupe.Record, err error) {
		t := &ss[at[n]]
		parked := r.Status == dedupe.Parked
		a, changed := machine.ApplySettle(&r, t, time.Time{})
		switch {
		case err != nil:
			a = dedupe.Settled{Err: err}
		case changed && parked && r.Status == dedupe.Parked:
			late = append(late, n)
			return
		case changed: // it could have been written, and was not: the row is locked, or was
			a = dedupe.Settled{Err: dedupe.ErrBusy}
		}
		if a.Err != nil {
			a.Err = fmt.Errorf("pgstore: Settle: %w", a.Err)
		}
		answers[n] = a
	})
	if err := p.Run(ctx, s.db); err != nil {
		return err
	}
	for _, n := range late {
		if err := s.noteLate(ctx, &ss[at[n]], &answers[n]); err != nil {
			return err
		}
	}
	for n, i := range at {
		switch {
		case done[n]:
			as[i] = dedupe.Settled{Status: ss[i].To}
		case answers[n] != dedupe.Settled{}:
			as[i] = answers[n]
		default: // no record
			as[i] = dedupe.Settled{Err: fmt.Errorf("pgstore: Settle: %w", dedupe.ErrLeaseLost)}
		}
	}
	return nil
}

// noteLate keeps the error of a claim that was parked before it was released. Where another call
// holds the record, or has changed it meanwhile, the answer is busy: the settlement is repeated.
func (s *Store) noteLate(ctx context.Context, t *dedupe.Settlement, a *dedupe.Settled) error {
	*a = dedupe.Settled{Err: fmt.Errorf("pgstore: Settle: %w", dedupe.ErrBusy)}
	p := newPipeline()
	args := []any{t.Key.Scope, t.Key.Key, hex.EncodeToString(t.Token[:]), clean(t.LateText()), clean(t.ErrText)}
	written := dedupe.Settled{}
	p.Query(s.sql().note, args, func(rows pgx.Rows) error {
		written.Status = dedupe.Parked
		return rows.Scan(nil)
	})
	err := p.Run(ctx, s.db)
	if err == nil && written.Status != 0 {
		*a = written
	}
	return err
}

func settleArgs(at []int, key func(i int) *dedupe.Key, ss []dedupe.Settlement) []any {
	// Without an error a settlement leaves both parts of the last one as they are.
	text := func(part func(t *dedupe.Settlement) string) func(a *array, t *dedupe.Settlement) {
		return func(a *array, t *dedupe.Settlement) {
			if t.ErrClass == "" && t.ErrText == "" {
				a.null()
			} else {
				a.text(clean(part(t)))
			}
		}
	}
	all := func(i int) *dedupe.Settlement { return &ss[i] }
	a := keyed(at, key)
	column(a, at, func(i int) dedupe.Token { return ss[i].Token }, (*array).token)
	shared(a, at, func(i int) string { return ss[i].To.String() }, (*array).text)
	shared(a, at, func(i int) int64 { return pgkit.Micros(cmp.Or(ss[i].Retain, dedupe.DefaultRetention)) }, (*array).int)
	column(a, at, func(i int) []byte { return ss[i].Result }, (*array).blob)
	column(a, at, all, text(func(t *dedupe.Settlement) string { return t.ErrClass }))
	column(a, at, all, text(func(t *dedupe.Settlement) string { return t.ErrText }))
	column(a, at, func(i int) bool { return ss[i].Uncounted }, (*array).bool)
	return a.args()
}

// lockTimeout is the time until ctx ends, less what the answer needs. It is empty if ctx has no
// end.
func lockTimeout(ctx context.Context) string {
	end, ok := ctx.Deadline()
	if !ok {
		return ""
	}
	left := time.Until(end)
	left -= min(left/5, 250*time.Millisecond)
	return fmt.Sprintf("%dms", min(max(1, left.Milliseconds()), math.MaxInt32)) // the setting holds 24 days
}
