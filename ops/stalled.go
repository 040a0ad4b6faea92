package ops

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// Stalled is a claim whose lease has ended, and that nobody has taken over yet.
type Stalled struct {
	Record  *dedupe.Record
	DeadFor time.Duration
}

// StalledOptions say where [Ops.Stalled] looks.
type StalledOptions struct {
	// Scan reads the store's table, for every claimed record whose lease has ended. Without it some
	// may be missing, because a card names a worker's oldest jobs only.
	Scan bool
}

// Stalled finds the jobs of dead workers: those that their cards name, or what a scan finds. Those
// that are dead longest come first.
//
// Nothing needs to be done about them: the queue delivers their messages again, and whoever gets
// one takes the job over.
func (o *Ops) Stalled(ctx context.Context, queue string, so StalledOptions) ([]Stalled, error) {
	t, err := o.target(queue)
	if err != nil {
		return nil, err
	}
	s, err := t.store()
	if err != nil {
		return nil, err
	}
	now := clock(ctx, s)
	var found []Stalled
	add := func(r *dedupe.Record) {
		if r != nil && r.Status == dedupe.Claimed && !now.Before(r.LeaseUntil) {
			found = append(found, Stalled{r, now.Sub(r.LeaseUntil)})
		}
	}
	if so.Scan {
		for r, err := range s.List(ctx, dedupe.Query{Status: dedupe.Claimed, LeaseBefore: now}) {
			if err != nil {
				return nil, err
			}
			if !strings.HasPrefix(r.Key.Scope, ":") && t.covers(r.Key.Scope) {
				add(r)
			}
		}
	} else {
		ks, err := t.left(ctx)
		if err != nil {
			return nil, err
		}
		for part := range slices.Chunk(ks, max(1, s.Limits().MaxBatch)) {
			rs, err := s.Get(ctx, part)
			if err != nil {
				return nil, err
			}
			for _, r := range rs {
				add(r)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Stalled) int { return cmp.Compare(b.DeadFor, a.DeadFor) })
	return found, nil
}

// covers reports whether a scope is one of the target's; without Scopes every one is.
func (t *target) covers(scope string) bool {
	return len(t.Scopes) == 0 || slices.ContainsFunc(t.Scopes, func(own string) bool {
		return scope == own || strings.HasPrefix(scope, own+":")
	})
}

// left are the keys that the cards of dead workers name.
func (t *target) left(ctx context.Context) (ks []dedupe.Key, err error) {
	seats, err := t.seats(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[dedupe.Key]bool{}
	for i := range seats {
		s := &seats[i]
		if s.State != StateDead || s.Status == nil {
			continue
		}
		for _, k := range jobKeys(s) {
			if !seen[k] {
				seen[k] = true
				ks = append(ks, k)
			}
		}
	}
	return ks, nil
}
