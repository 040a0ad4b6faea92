package dedupetest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// spoilPast breaks what a claim that was just applied to r has written of the attempts before it.
func (s *shop) spoilPast(r, was *dedupe.Record, q *dedupe.ClaimRequest, c *dedupe.Claim, row string) {
	anew := c.Outcome == dedupe.Won && r.Fence != was.Fence && was.Status != 0
	switch {
	case s.is("past forgotten"):
		r.Past = nil
	case s.is("dead claims not folded") && row == "dead claim of another":
		r.Past = was.Past
	case s.is("takeovers not told"):
		c.From, c.DeadFor = "", 0
	case s.is("dead since the claim") && c.From != "":
		c.DeadFor = r.ClaimedAt.Sub(was.ClaimedAt)
	case s.is("class after the change"):
		c.ErrClass = r.ErrClass
	case s.is("past kept by a new record") && row == "no record":
		r.Past = was.Past
	case s.is("past without bounds") && anew && row != "no record":
		r.Past = append(slices.Clone(was.Past), r.Past[len(r.Past)-1])
	case s.is("past dropped at the newest end") && anew && len(was.Past) >= 10:
		r.Past = was.Past
	case s.is("past dropped at the oldest end") && anew && len(r.Past) > 5:
		r.Past = r.Past[1:]
	case s.is("sent of the last claim"):
		r.Sent = q.Sent
	case s.is("sent of the first claim alone") && row != "no record":
		r.Sent = was.Sent
	}
}

var (
	_ dedupe.Counter = (*shop)(nil)
	_ dedupe.Clock   = (*shop)(nil)
)

func (s *shop) Count(ctx context.Context, q dedupe.Query) ([]dedupe.Count, error) {
	if err := s.enter(ctx); err != nil {
		if s.is("count goes on") {
			return nil, nil
		}
		return nil, err
	}
	defer s.mu.Unlock()
	of := make(map[dedupe.Count]int64)
	n := 0
	for _, r := range s.records {
		if !s.is("expired records counted") || r.Status == 0 {
			r = s.read(r)
		}
		if r == nil || !s.selects(&q, r) {
			continue
		}
		if n++; s.is("count stops at the limit") && q.Limit > 0 && n > q.Limit {
			break
		}
		of[dedupe.Count{Scope: r.Key.Scope, Status: r.Status, Exact: true}]++
	}
	var counts []dedupe.Count
	for c, n := range of {
		c.N = n
		counts = append(counts, c)
	}
	slices.SortFunc(counts, func(a, b dedupe.Count) int {
		if s.is("counts in any order") {
			a, b = b, a
		}
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Status, b.Status))
	})
	return counts, nil
}

func (s *shop) Now(ctx context.Context) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	if s.is("another clock") {
		return s.now().Add(-time.Hour), nil
	}
	return s.now(), nil
}
