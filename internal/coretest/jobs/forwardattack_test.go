package jobs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/onceqtest"
)

// wicked is a destination whose calls end in every way that a driver's may, by chance, and that can
// never take what begins with "poison".
type wicked struct {
	broker.Sender
	until time.Time // then it is well again, but for the poison

	mu   sync.Mutex
	rand *rand.Rand
	ways map[int]int
}

func (s *wicked) roll(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.IntN(n)
}

func (s *wicked) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	isPoison := func(m broker.Outgoing) bool { return strings.HasPrefix(string(m.Body), "poison") }
	way := 0
	if time.Now().Before(s.until) {
		way = s.roll(14)
	}
	s.mu.Lock()
	s.ways[way]++
	s.mu.Unlock()
	some := func(takes func(i int) bool, short bool, refusal error) error { // by position
		errs := make([]error, len(ms))
		for i, m := range ms {
			switch {
			case isPoison(m):
				errs[i] = fmt.Errorf("%w: a test", []error{broker.ErrTooLarge, broker.ErrUnsupported, broker.ErrBadMeta}[i%3])
			case !takes(i):
				errs[i] = refusal
			default:
				_, err := s.Sender.Send(ctx, ms[i:i+1])
				errs[i] = broker.ErrAt(err, 0)
			}
		}
		if short { // a driver that forgets its last entries
			return &broker.BatchError{Errs: errs[:len(errs)/2]}
		}
		return broker.JoinEntries(errs)
	}
	all, none := func(int) bool { return true }, func(int) bool { return false }
	half := func(int) bool { return s.roll(2) == 0 }
	switch away := errors.New("connection reset"); way {
	case 1:
		return nil, away
	case 2: // taken, and the answer is lost
		_ = some(all, false, nil)
		return nil, away
	case 3: // half of them taken, and the answer is lost
		_ = some(half, false, away)
		return nil, away
	case 4:
		return nil, some(half, false, away)
	case 5:
		return nil, some(half, false, broker.ErrThrottled)
	case 6:
		return nil, some(half, true, away)
	case 7: // hangs
		<-ctx.Done()
		return nil, ctx.Err()
	case 8: // taken, and hangs
		_ = some(all, false, nil)
		<-ctx.Done()
		return nil, ctx.Err()
	case 9:
		return nil, fmt.Errorf("%w: all", broker.ErrThrottled)
	case 10:
		if len(ms) > 1 {
			return nil, fmt.Errorf("%w: %d messages are too much for one call", broker.ErrTooLarge, len(ms))
		}
	case 11:
		panic("no such encoding")
	case 12: // taken, and then it panics
		_ = some(all, false, nil)
		panic("assignment to entry in nil map")
	case 13: // says that it has taken none, and has taken all
		_ = some(all, false, nil)
		return nil, some(none, false, away)
	}
	return nil, some(all, false, nil)
}

// Whatever the destination does with calls, and wherever relays die: each job has its effect once,
// groups keep their order, a poison stays and holds up its group alone.
func TestForwardToAWickedDestination(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	ways := make(map[int]int)
	for range 25 {
		inOffice(t, func(o *office) {
			w := &wicked{Sender: o.dest, until: time.Now().Add(10 * time.Minute), rand: rand.New(rand.NewPCG(rnd.Uint64(), 2)), ways: ways}
			texts := rig.Grouped(4, 8)
			singles := rig.Numbered("k", 30)
			for i, k := range singles { // a FIFO queue takes nothing without a group
				singles[i] = "of-" + k + "/" + k
			}
			o.put(slices.Concat(singles, texts[:16])...)
			o.put("alone/poison-a", "stuck/poison-b", "stuck/behind-0", "stuck/behind-1")
			o.work(nil)
			relay := func(kinds ...onceqtest.FaultKind) *relayed {
				var fs []onceqtest.Fault
				for range rnd.IntN(3) {
					fs = append(fs, onceqtest.Fault{
						Op: []onceqtest.Op{onceqtest.Receive, onceqtest.Ack, onceqtest.Nack, onceqtest.Extend}[rnd.IntN(4)], N: 1 + rnd.IntN(10),
						Kind: kinds[rnd.IntN(len(kinds))], Delay: time.Minute,
					})
				}
				return o.relay(func(c *rig.Setup) { c.Handler, c.Concurrency = onceq.Forward(w), 1+rnd.IntN(100) }, fs...)
			}
			for range 4 {
				relay(onceqtest.CrashBefore, onceqtest.CrashAfter, onceqtest.LoseReply, onceqtest.Stall)
				rig.Pass(time.Duration(rnd.IntN(90)) * time.Second)
			}
			o.put(texts[16:]...)
			rig.Pass(10 * time.Minute)
			relay(onceqtest.LoseReply, onceqtest.Stall) // all others may be dead
			rig.Pass(2 * time.Hour)
			o.mu.Lock()
			defer o.mu.Unlock()
			for _, text := range slices.Concat(singles, texts) {
				_, k, _ := strings.Cut(text, "/")
				if n := o.effects[k]; n != 1 {
					o.Errorf("%q had %d effects", k, n)
				}
			}
			if n := len(o.effects); n != 30+len(texts) {
				o.Errorf("%d keys had effects, want %d", n, 30+len(texts))
			}
			for g := range 4 {
				if ks := o.order[string(rune('a'+g))]; !slices.IsSorted(ks) {
					o.Errorf("a group was done in the order %v", ks)
				}
			}
			if n := rig.Depth(o.T, o.box.Broker); n != 4 {
				o.Errorf("%d messages are in the outbox, want the two poisons and what stands behind one", n)
			}
		}, []membroker.Preset{membroker.Memory, membroker.SQSFIFO, membroker.PubSub}[rnd.IntN(3)])
		if t.Failed() {
			return
		}
	}
	for way := range 14 {
		if ways[way] == 0 {
			t.Errorf("no call ended in way %d", way)
		}
	}
}

// A message that makes every call fail takes others with it three times at most, though they come
// back together. While all fail, two messages are tried alone, and no more. A call that hangs is
// not divided.
func TestForwardDividesCalls(t *testing.T) {
	for name, c := range map[string]struct {
		err       func(ctx context.Context) error
		poison    string
		most      int // calls in the fourth round, which may be divided; 0 = any, and each is of all
		delivered int
	}{
		"one message": {func(context.Context) error { return errors.New("cannot encode") }, "poison", 21, 19},
		"all":         {func(context.Context) error { return errors.New("connection refused") }, "", 3, 0},
		// It is offered again before its messages go back, so there are more calls; to divide one
		// would make more of what is too much already.
		"throttled": {func(context.Context) error { return broker.ErrThrottled }, "", 0, 0},
		"all hang":  {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inOffice(t, func(o *office) {
				s := &counting{Sender: o.dest, err: c.err, poison: c.poison}
				o.put(append(rig.Numbered("k", 19), "poison")...)
				o.relay(func(w *rig.Setup) {
					w.Handler, w.CallTimeout = onceq.Forward(s), time.Second
					w.Defaults.Backoff = func(int, error) time.Duration { return time.Minute }
				})
				o.work(nil)
				for round := range 6 {
					rig.Pass(30 * time.Second)
					calls := int(s.calls.Swap(0))
					if want := []int{1, 1, 1, c.most}; c.most > 0 && round < len(want) && calls != want[round] {
						t.Errorf("round %d: %d calls, want %d", round, calls, want[round])
					}
					rig.Pass(31 * time.Second)
				}
				if n := s.alone.Load(); c.most == 0 && n > 0 {
					t.Errorf("%d calls were of one message, although all were throttled", n)
				}
				o.mu.Lock()
				defer o.mu.Unlock()
				if n := len(o.effects); n != c.delivered {
					t.Errorf("%d jobs were done, want %d", n, c.delivered)
				}
			})
		})
	}
}

// counting fails each call that has the poison in it; all calls where there is none.
type counting struct {
	broker.Sender
	err    func(ctx context.Context) error
	poison string
	calls  atomic.Int64
	alone  atomic.Int64 // of one message
}

func (s *counting) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	s.calls.Add(1)
	if len(ms) == 1 {
		s.alone.Add(1)
	}
	if s.poison == "" || slices.ContainsFunc(ms, func(m broker.Outgoing) bool { return string(m.Body) == s.poison }) {
		return nil, s.err(ctx)
	}
	return s.Sender.Send(ctx, ms)
}
