package pgstore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/dedupe"
)

// This file owns what people ask about the whole table, and the server's clock. Tools call it, from
// any goroutine. Nothing is locked.

var (
	_ dedupe.Counter = (*Store)(nil)
	_ dedupe.Clock   = (*Store)(nil)
)

// sampleBlocks is how many blocks of 8 KB Count reads of a table that is larger than twice that. A
// sample of that size is right to a few percent for what is frequent.
const (
	sampleBlocks = 4000
	blockSize    = 8 << 10
)

// noticed are the statuses of the attention index, in its own words: those that people look for.
const noticed = "(t.status {=} 'failed' OR t.status {=} 'parked' OR t.status {=} 'released')"

// Count counts records by scope and status. Failed, parked and released ones are counted one by
// one, by their index. Claimed and done ones of a table above 64 MB are estimated from about 32 MB
// of it, taken at random, so a scope that has few of them may be missing.
func (s *Store) Count(ctx context.Context, q dedupe.Query) ([]dedupe.Count, error) {
	if err := s.ready(ctx, 0); err != nil {
		return nil, err
	}
	if !possible(q.Scope) {
		return nil, nil
	}
	exact, rest := isNoticed(q.Status), !isNoticed(q.Status)
	var counts []dedupe.Count
	if exact || q.Status == 0 && q.LeaseBefore.IsZero() {
		of, err := s.count(ctx, &q, noticed, 1)
		if err != nil {
			return nil, s.explain(ctx, "Count", err)
		}
		counts = of
	}
	if rest {
		share, err := s.share(ctx)
		if err == nil {
			var of []dedupe.Count
			of, err = s.count(ctx, &q, "NOT "+noticed, share)
			counts = append(counts, of...)
		}
		if err != nil {
			return nil, s.explain(ctx, "Count", err)
		}
	}
	slices.SortFunc(counts, func(a, b dedupe.Count) int {
		return cmp.Or(strings.Compare(a.Scope, b.Scope), cmp.Compare(a.Status, b.Status))
	})
	return counts, nil
}

func isNoticed(st dedupe.Status) bool {
	return st == dedupe.Failed || st == dedupe.Parked || st == dedupe.Released
}

// share is how much of the table is to be read: 1 = all of it.
func (s *Store) share(ctx context.Context) (share float64, err error) {
	var blocks int64
	p := newPipeline()
	const size = `SELECT pg_catalog.pg_relation_size($1::pg_catalog.text::pg_catalog.regclass)`
	p.Query(size, []any{s.sql().table}, func(rows pgx.Rows) error { return rows.Scan(&blocks) })
	if err := p.Run(ctx, s.db); err != nil {
		return 0, err
	}
	if blocks /= blockSize; blocks <= 2*sampleBlocks {
		return 1, nil
	}
	return sampleBlocks / float64(blocks), nil
}

// count counts what q selects among those, in a share of the table.
func (s *Store) count(ctx context.Context, q *dedupe.Query, those string, share float64) ([]dedupe.Count, error) {
	sql, args := s.countQuery(q, those, share)
	var counts []dedupe.Count
	p := newPipeline()
	p.Query(sql, args, func(rows pgx.Rows) error {
		var c dedupe.Count
		var status string
		if err := rows.Scan(&c.Scope, &status, &c.N); err != nil {
			return err
		}
		var err error
		c.Status, err = dedupe.ParseStatus(status)
		c.N, c.Exact = int64(math.Round(float64(c.N)/share)), share == 1
		counts = append(counts, c)
		return err
	})
	return counts, p.Run(ctx, s.db)
}

func (s *Store) countQuery(q *dedupe.Query, those string, share float64) (sql string, args []any) {
	w := where(q)
	w.add(those)
	from := "{table} t"
	if share < 1 {
		w.args = append(w.args, 100*share)
		from = "{table} t TABLESAMPLE pg_catalog.system($" + strconv.Itoa(len(w.args)) + "::real)"
	}
	return s.sql().fill("SELECT t.scope, t.status, pg_catalog.count(*) FROM " + from + " WHERE " + w.text.String() + " GROUP BY t.scope, t.status"), w.args
}

// Now is the server's clock_timestamp(), by which leases are judged.
func (s *Store) Now(ctx context.Context) (t time.Time, err error) {
	if err := s.ready(ctx, 0); err != nil {
		return time.Time{}, err
	}
	p := newPipeline()
	p.Query(`SELECT pg_catalog.clock_timestamp()`, nil, func(rows pgx.Rows) error { return rows.Scan(&t) })
	if err := p.Run(ctx, s.db); err != nil {
		return time.Time{}, s.explain(ctx, "Now", err)
	}
	return t.UTC(), nil
}
