package memstore

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/records"
)

// List goes through records in the order of scope, then key, byte by byte. It first collects the
// keys of the records that match, 32 bytes each. Then it reads each record when its turn comes. A
// record that has ceased to match meanwhile is left out, and a new one is not seen.
func (s *Store) List(ctx context.Context, q dedupe.Query) iter.Seq2[*dedupe.Record, error] {
	return func(yield func(*dedupe.Record, error) bool) {
		if err := records.CheckAfter(&q); err != nil {
			yield(nil, fmt.Errorf("memstore: %w", err))
			return
		}
		left := q.Limit
		for _, k := range s.matching(&q) {
			if ctx.Err() != nil {
				break
			}
			r := s.get(k, time.Now())
			if r == nil || !records.Matches(r, &q) {
				continue
			}
			if !yield(r, nil) {
				return
			}
			if left--; left == 0 {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(nil, fmt.Errorf("memstore: %w", err))
		}
	}
}

func (s *Store) matching(q *dedupe.Query) []dedupe.Key {
	var keys []dedupe.Key
	now := time.Now()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for e := range sh.table.all() {
			if records.Matches(sh.load(e, now), q) {
				keys = append(keys, e.key())
			}
		}
		sh.mu.Unlock()
	}
	return records.Behind(q, keys)
}

var (
	_ dedupe.Counter = (*Store)(nil)
	_ dedupe.Clock   = (*Store)(nil)
)

// Count counts records by scope and status, all of them exactly. It goes through the whole store,
// whatever the query, with one shard locked at a time.
func (s *Store) Count(ctx context.Context, q dedupe.Query) ([]dedupe.Count, error) {
	if err := s.ready(ctx, 0); err != nil {
		return nil, err
	}
	type group struct {
		scope  string
		status dedupe.Status
	}
	of := make(map[group]int64)
	now := time.Now()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for e := range sh.table.all() {
			if r := sh.load(e, now); !r.Expired(now) && records.Matches(r, &q) {
				of[group{r.Key.Scope, r.Status}]++
			}
		}
		sh.mu.Unlock()
	}
	counts := make([]dedupe.Count, 0, len(of))
	for g, n := range of {
		counts = append(counts, dedupe.Count{Scope: g.scope, Status: g.status, N: n, Exact: true})
	}
	slices.SortFunc(counts, func(a, b dedupe.Count) int {
		return cmp.Or(strings.Compare(a.Scope, b.Scope), cmp.Compare(a.Status, b.Status))
	})
	return counts, nil
}

// Now is the process's clock, by which the store judges leases.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	return time.Now(), s.ready(ctx, 0)
}
