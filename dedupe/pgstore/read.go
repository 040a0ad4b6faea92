package pgstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/records"
)

// This file owns what operators and tools call: Get, List and Forget. A worker calls Get alone.
// Nothing here is locked but the rows that Forget removes, by the database.

// listPage is how many rows List reads at a time, each page in a transaction of its own.
const listPage = 500

// Get reads records, in one round trip.
func (s *Store) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	if err := s.ready(ctx, len(ks)); err != nil {
		return nil, err
	}
	found := make([]*dedupe.Record, len(ks))
	at := make([]int, 0, len(ks))
	for i := range ks {
		if ks[i].Validate() == nil { // no other is there
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return found, nil
	}
	keys := keyed(at, func(i int) *dedupe.Key { return &ks[i] }).args()
	var bad error
	p := newPipeline()
	s.readRows(p, keys, func(n int, w *row) {
		r, err := w.record(ks[at[n]])
		switch {
		case err != nil:
			bad = errors.Join(bad, err)
		case !r.Expired(w.now):
			found[at[n]] = &r
		}
	})
	if err := errors.Join(p.Run(ctx, s.db), bad); err != nil {
		return nil, s.explain(ctx, "Get", err)
	}
	return found, nil
}

// List goes through records in the order of scope, then key, byte by byte, a page at a time.
// Expired ones are left out.
func (s *Store) List(ctx context.Context, q dedupe.Query) iter.Seq2[*dedupe.Record, error] {
	return records.Pages(listPage, q, func(last dedupe.Key, n int) ([]*dedupe.Record, error) {
		return s.page(ctx, &q, last, n)
	})
}

// page reads the n records after the key last.
func (s *Store) page(ctx context.Context, q *dedupe.Query, last dedupe.Key, n int) ([]*dedupe.Record, error) {
	if err := s.ready(ctx, 0); err != nil {
		return nil, err
	}
	if !possible(q.Scope) {
		return nil, nil
	}
	sql, args := s.pageQuery(q, last, n)
	var page []*dedupe.Record
	var bad error
	rec := new(row)
	targets := rec.listed()
	p := newPipeline()
	p.Query(sql, args, func(rows pgx.Rows) error {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		r, err := rec.record(rec.key)
		bad = errors.Join(bad, err)
		page = append(page, &r)
		return nil
	})
	if err := errors.Join(p.Run(ctx, s.db), bad); err != nil {
		return nil, s.explain(ctx, "List", err)
	}
	return page, nil
}

func (s *Store) pageQuery(q *dedupe.Query, last dedupe.Key, n int) (sql string, args []any) {
	w := where(q)
	if last != (dedupe.Key{}) {
		w.add("(t.scope, t.key) {>} (?::pg_catalog.text, ?::pg_catalog.text)", last.Scope, last.Key)
	}
	w.add("true ORDER BY t.scope, t.key LIMIT ?::bigint", n)
	return s.sql().fill("SELECT t.scope, t.key, {columns} FROM {table} t WHERE " + w.text.String()), w.args
}

// removeRead deletes records that were read before, if they are still the same and nobody holds
// their rows.
const removeRead = `WITH locked AS MATERIALIZED (
	SELECT g.ord, t.place, t.part FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::bigint[], $4::pg_catalog.text[], $5::pg_catalog.timestamptz[])
		WITH ORDINALITY AS g (scope, key, fence, status, updated, ord)
	CROSS JOIN LATERAL (
		SELECT ` + placed + ` FROM {table} t WHERE t.scope {=} ` + inScope + ` AND t.key {=} g.key
			AND t.fence {=} g.fence AND t.status {=} g.status AND t.updated {=} g.updated
		FOR UPDATE SKIP LOCKED) t
)
DELETE FROM {table} t USING locked g WHERE ` + atPlace + `
RETURNING g.ord`

// Forget removes records. The fence survives them. It waits for no row: if a transaction holds one,
// or somebody changes it meanwhile, the answer is [dedupe.ErrBusy], even with Force.
func (s *Store) Forget(ctx context.Context, fs []dedupe.Forgotten) ([]error, error) {
	if err := s.ready(ctx, len(fs)); err != nil {
		return nil, err
	}
	divide := func(valid []int) [][]int {
		return arrange(valid, func(i int) *dedupe.Key { return &fs[i].Key }, func(int) int { return 0 })
	}
	return calls.Removals.Parts(fs, divide, func(part []int, errs []error) error {
		return s.explain(ctx, "Forget", s.forget(ctx, part, fs, errs))
	})
}

// forget reads the records of the entries at, of different keys, and removes those that it may.
func (s *Store) forget(ctx context.Context, at []int, fs []dedupe.Forgotten, errs []error) error {
	keys := keyed(at, func(i int) *dedupe.Key { return &fs[i].Key }).args()
	type read struct {
		n int
		r dedupe.Record
	}
	var gone []read
	answers := make([]error, len(at))
	p := newPipeline()
	s.readRows(p, keys, func(n int, w *row) {
		f := &fs[at[n]]
		r, err := w.record(f.Key)
		remove := false
		if err == nil {
			remove, err = machine.ApplyForget(&r, f, w.now)
		}
		if err != nil {
			answers[n] = fmt.Errorf("pgstore: Forget: %w", err)
		}
		if remove {
			gone = append(gone, read{n, r})
		}
	})
	if err := p.Run(ctx, s.db); err != nil {
		return err
	}
	if len(gone) > 0 {
		done := make([]bool, len(gone))
		a := keyed(gone, func(g read) *dedupe.Key { return &fs[at[g.n]].Key })
		column(a, gone, func(g read) int64 { return int64(g.r.Fence) }, (*array).int)
		column(a, gone, func(g read) string { return g.r.Status.String() }, (*array).text)
		column(a, gone, func(g read) time.Time { return g.r.Updated }, (*array).time)
		p = newPipeline()
		p.Query(s.sql().remove, a.args(), mark1(done))
		if err := p.Run(ctx, s.db); err != nil {
			return err
		}
		for m, g := range gone {
			if !done[m] {
				answers[g.n] = fmt.Errorf("pgstore: Forget: %w", dedupe.ErrBusy)
			}
		}
	}
	for n, i := range at {
		errs[i] = answers[n]
	}
	return nil
}
