//go:build unix

package chaos

import (
	"slices"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/must"
)

// shown tells whether the rounds so far have been what they are there for: a stopped process has
// lost claims to others, a process was killed in its handlers, and in this mode that has been seen
// to matter.
func (s *scene) shown() bool {
	if s.takeovers == 0 || s.cutOff == 0 {
		return false
	}
	effects, repeats := s.api.paid()
	switch s.mode.effect {
	case inTx:
		return s.stale > 0 // the stopped one's transaction was refused
	case byKey:
		return repeats > 0 // the API has seen an effect twice
	case rerun:
		for _, fences := range effects {
			if len(fences) > 1 {
				return true
			}
		}
		return false
	default:
		s.log.mu.Lock()
		defer s.log.mu.Unlock()
		return len(s.log.parkings) > 0
	}
}

// audit asks for what the promise says of the orders, and whether the workers have said what cannot
// be.
func (s *scene) audit(keys []string) {
	s.Helper()
	effects, _ := s.api.paid()
	if s.mode.effect == inTx {
		var err error
		if effects, err = s.books.paid(s.Context()); err != nil {
			s.Fatal(err)
		}
	}
	letters := s.letters()
	for chunk := range slices.Chunk(keys, 50) {
		ks := make([]dedupe.Key, len(chunk))
		for i, k := range chunk {
			ks[i] = dedupe.Key{Scope: scope, Key: k}
		}
		rs, err := s.books.store().Get(s.Context(), ks)
		if err != nil {
			s.Fatal(err)
		}
		for i, k := range chunk {
			s.judge(k, rs[i], effects[k], letters[k])
		}
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	for _, w := range s.log.wrong {
		s.Error(w)
	}
	if want := len(s.sent); len(effects) > want {
		s.Errorf("%d orders have effects, and %d were sent", len(effects), want)
	}
}

// judge is the promise's table.
func (s *scene) judge(key string, r *dedupe.Record, fences []uint64, class string) {
	s.Helper()
	if r == nil {
		s.Errorf("%s is lost: no record, %d effects", key, len(fences))
		return
	}
	park := s.mode.effect == parked
	switch {
	case r.Status == dedupe.Done:
	case park && class == onceq.ClassInterrupted && r.Status == dedupe.Parked:
	default:
		s.Errorf("%s is %v (attempt %d, letter %q, error %q), and its message is gone", key, r.Status, r.Attempt, class, r.LastErr)
	}
	if class != "" && !(park && class == onceq.ClassInterrupted) {
		s.Errorf("%s has a dead letter of class %q", key, class)
	}
	switch n := len(fences); s.mode.effect {
	case inTx, byKey:
		if n != 1 {
			s.Errorf("%s has %d effects, of the claims %v; want 1", key, n, fences)
		}
	case rerun:
		if n < 1 || n > r.Attempt {
			s.Errorf("%s has %d effects, of the claims %v; want 1 to %d", key, n, fences, r.Attempt)
		}
	case parked:
		if n > 1 || r.Status == dedupe.Done && n < 1 {
			s.Errorf("%s is %v with %d effects, of the claims %v", key, r.Status, n, fences)
		}
	}
	if s.mode.effect == inTx && len(fences) == 1 && fences[0] != r.Fence {
		s.Errorf("%s was paid under the fence %d, and done under %d", key, fences[0], r.Fence)
	}
	slices.Sort(fences)
	if len(slices.Compact(slices.Clone(fences))) != len(fences) {
		s.Errorf("%s has two effects of one claim: %v", key, fences)
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	for _, f := range fences {
		if s.log.began[claim{key, f}] == "" {
			s.Errorf("%s has an effect under the fence %d, under which no handler ran", key, f)
		}
	}
}

// letters are the classes of the dead letters, by key. Those of a receive whose answer was lost
// come back when they are no longer hidden.
func (s *scene) letters() map[string]string {
	s.Helper()
	q := must.Get(dlq.New(s.dead, &dlq.Options{Wait: time.Millisecond, Visibility: max(2*time.Second, s.mode.queue.visibility())}))
	for end := time.Now().Add(time.Minute); ; <-time.After(100 * time.Millisecond) {
		depth, err := s.letterDepth(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		all := depth.Visible + depth.InFlight + depth.Delayed
		if all == 0 {
			return nil
		}
		classes, n := map[string]string{}, int64(0)
		for e, err := range q.List(s.Context(), dlq.Filter{Max: 100_000}) {
			if err != nil {
				s.Fatal(err)
			}
			classes[e.Ref().Key] = e.Class()
			n += 1 + int64(e.Copies)
		}
		if n >= all {
			return classes
		}
		if time.Now().After(end) {
			s.Fatalf("%d letters were found, and the queue tells of %d", n, all)
		}
	}
}
