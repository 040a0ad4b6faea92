package matrix

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// audit writes down what the store was asked and answered, whoever asked and whether or not the
// answer arrived.
type audit struct {
	mu     sync.Mutex
	clock  int
	claims []wonClaim
	starts int // that may have been recorded
	saves  []keptState
}

// keptState is an answer that a state is kept.
type keptState struct {
	state []byte
	given int // on the audit's clock
}

// wonClaim is an answer that a claim was won.
type wonClaim struct {
	by           string
	token        dedupe.Token
	fence        uint64
	asked, given int // on the audit's clock, which counts
	at           time.Time
	state        []byte // that came with it
}

func (a *audit) tick() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clock++
	return a.clock
}

// store is s, watched.
func (a *audit) store(s dedupe.Store, by string) dedupe.Store { return &audited{s, a, by} }

type audited struct {
	dedupe.Store
	a  *audit
	by string
}

func (s *audited) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	asked := s.a.tick()
	cs, err := s.Store.Claim(ctx, rs)
	given := s.a.tick()
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	for i, c := range cs {
		if c.Err == nil && c.Outcome == dedupe.Won && !strings.HasPrefix(rs[i].Key.Scope, ":") { // a seat is no job
			s.a.claims = append(s.a.claims, wonClaim{s.by, rs[i].Token, c.Lease.Fence, asked, given, time.Now(), c.State})
		}
	}
	return cs, err
}

func (s *audited) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	// Without an answer it may have been recorded, and the dead get theirs when nobody waits for it
	// any more.
	s.a.count(rs, 1, func(int) bool { return true })
	as, err := s.Store.Renew(ctx, rs)
	s.a.count(rs, -1, func(i int) bool { return err == nil && i < len(as) && as[i].Err != nil })
	s.a.kept(rs, as)
	return as, err
}

// kept notes the states that the store says it keeps.
func (a *audit) kept(rs []dedupe.Renewal, as []dedupe.Renewed) {
	given := a.tick()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range as {
		if as[i].Err == nil && rs[i].State != nil {
			a.saves = append(a.saves, keptState{rs[i].State, given})
		}
	}
}

// count counts starts that may have been recorded.
func (a *audit) count(rs []dedupe.Renewal, n int, is func(i int) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, r := range rs {
		if r.Started && is(i) {
			a.starts += n
		}
	}
}

func (a *audit) started() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.starts > 0
}

// check: a claim has one fence, two claims have two, and a claim that was asked for when another
// had been won has a higher one.
func (a *audit) check(t testing.TB, rec *dedupe.Record) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, c := range a.claims {
		for _, d := range a.claims[i+1:] {
			switch {
			case c.token == d.token && c.fence != d.fence:
				t.Errorf("one claim has two fences: %d and %d", c.fence, d.fence)
			case c.token != d.token && c.fence == d.fence:
				t.Errorf("two claims have the fence %d", c.fence)
			case c.token != d.token && (c.given < d.asked) != (c.fence < d.fence) && (c.given < d.asked || d.given < c.asked):
				t.Errorf("the fence has fallen: %s won %d, then %s won %d", c.by, c.fence, d.by, d.fence)
			}
		}
		if rec != nil && c.fence > rec.Fence {
			t.Errorf("the record's fence is %d, and %s had won %d", rec.Fence, c.by, c.fence)
		}
	}
}

// tokens are those of the claims that were won.
func (a *audit) tokens() (ts []dedupe.Token) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.claims {
		ts = append(ts, c.token)
	}
	slices.SortFunc(ts, func(a, b dedupe.Token) int { return cmp.Compare(a.Hex(), b.Hex()) })
	return slices.Compact(ts)
}

func (a *audit) tell(begun time.Time) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var s strings.Builder
	for _, c := range a.claims {
		fmt.Fprintf(&s, "%9v %s won fence %d with token %v\n", c.at.Sub(begun).Round(time.Millisecond), c.by, c.fence, c.token.Hex())
	}
	return s.String()
}
