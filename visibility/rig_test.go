package visibility

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/retry"
)

// The tests' leases have these times, unless they say otherwise.
const (
	timeout  = 30 * time.Second
	interval = timeout / 3
	margin   = timeout / 6
)

var errTransient = errors.New("no answer today")

type (
	// beat is one lease's part of a call.
	beat struct {
		l  int
		at time.Duration
	}
	// word is what a holder was told; err is nil where its own time had come.
	word struct {
		l   int
		at  time.Duration
		err error
	}
)

// mu guards what the rigs record. Waiting passes it on, so that a test may look at the record
// between two waits.
var mu sync.Mutex

// rig is a manager of ints, and a record of what it did since start.
type rig struct {
	*Manager[int]
	start time.Time

	extender Extender[int] // nil = every beat is answered at once
	calls    []int         // the sizes
	beats    []beat
	words    []word
	now      int
	most     int // calls at once
}

func newRig(t *testing.T, o Options[int], x Extender[int]) *rig {
	t.Helper()
	r := &rig{start: time.Now(), extender: x}
	if o.Timeout == 0 {
		o.Timeout = timeout
	}
	o.OnLost = func(l int, err error) { r.tell(l, err) }
	o.OnTimeout = func(l int) { r.tell(l, nil) }
	r.Manager = must.Get(New(r.extend, o))
	t.Cleanup(func() {
		r.mu.Lock()
		for r.leases.Len() > 0 {
			r.release([]*Held[int]{r.leases.First().Item})
		}
		r.mu.Unlock()
		wait(time.Hour) // for the calls that are in flight
	})
	return r
}

func (r *rig) tell(l int, err error) {
	mu.Lock()
	defer mu.Unlock()
	r.words = append(r.words, word{l, time.Since(r.start), err})
}

func (r *rig) extend(ctx context.Context, ls []int) error {
	mu.Lock()
	for _, l := range ls {
		r.beats = append(r.beats, beat{l, time.Since(r.start)})
	}
	r.calls = append(r.calls, len(ls))
	r.now++
	r.most = max(r.most, r.now)
	x := r.extender
	mu.Unlock()
	defer func() {
		mu.Lock()
		r.now--
		mu.Unlock()
	}()
	if x == nil {
		return nil
	}
	return x(ctx, ls)
}

// answer changes the extender.
func (r *rig) answer(x Extender[int]) {
	mu.Lock()
	defer mu.Unlock()
	r.extender = x
}

// hold holds a new lease, with left until its deadline.
func (r *rig) hold(l int, left time.Duration) *Held[int] {
	h := &Held[int]{Lease: l, Deadline: time.Now().Add(left)}
	r.Hold(h)
	return h
}

// beatsOf is when l was beaten.
func (r *rig) beatsOf(l int) []time.Duration {
	mu.Lock()
	defer mu.Unlock()
	var at []time.Duration
	for _, b := range r.beats {
		if b.l == l {
			at = append(at, b.at)
		}
	}
	return at
}

// told is what has been said since the last call, and when.
func (r *rig) told() []word {
	mu.Lock()
	defer mu.Unlock()
	w := r.words
	r.words = nil
	return w
}

// silent fails if a holder was told anything since the last call.
func (r *rig) silent(t *testing.T) {
	t.Helper()
	if w := r.told(); len(w) > 0 {
		t.Errorf("holders were told %v", w)
	}
}

// want fails unless exactly this was said since the last call.
func (r *rig) want(t *testing.T, want ...word) {
	t.Helper()
	got := r.told()
	if !slices.EqualFunc(got, want, func(a, b word) bool {
		return a.l == b.l && a.at == b.at && (a.err == nil) == (b.err == nil) && errors.Is(a.err, b.err)
	}) {
		t.Errorf("holders were told %v, want %v", got, want)
	}
}

// since is the time since the rig's start.
func (r *rig) since() time.Duration { return time.Since(r.start) }

// deadline is h's, since the rig's start.
func (r *rig) deadline(h *Held[int]) time.Duration { return r.Deadline(h).Sub(r.start) }

// wait lets virtual time pass, and what is due then be done.
func wait(d time.Duration) {
	func() { mu.Lock(); defer mu.Unlock() }()
	<-time.After(d)
	synctest.Wait()
}

func fails(context.Context, []int) error { return errTransient }

// takes answers, with err, after d, whatever its context says.
func takes(d time.Duration, err error) Extender[int] {
	return func(context.Context, []int) error {
		retry.Rest(context.Background(), d)
		return err
	}
}

// only answers the lease l with err, and the others well.
func only(l int, err error) Extender[int] {
	return func(_ context.Context, ls []int) error {
		errs := make([]error, len(ls))
		for i := range ls {
			if ls[i] == l {
				errs[i] = err
			}
		}
		return broker.JoinEntries(errs)
	}
}

func between(t *testing.T, what string, got, least, most time.Duration) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %v, want %v to %v", what, got, least, most)
	}
}

// gaps is the times between beats, the first from 0.
func gaps(at []time.Duration) []time.Duration {
	g, last := make([]time.Duration, len(at)), time.Duration(0)
	for i := range at {
		g[i], last = at[i]-last, at[i]
	}
	return g
}

func (w word) String() string { return fmt.Sprintf("{%d at %v: %v}", w.l, w.at, w.err) }

// goroutines counts those of the caller's bubble.
func goroutines() int {
	buf := make([]byte, 1<<20)
	all := string(buf[:runtime.Stack(buf, true)])
	// The first line is the caller's own: goroutine 7 [running, synctest bubble 3]:
	own, _, _ := strings.Cut(all, "]:\n")
	return strings.Count(all, own[strings.Index(own, ", synctest"):]+"]:\n")
}
