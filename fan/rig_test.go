package fan_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/fan"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
)

// childScope is that of the children's records.
const childScope = "children"

// family is a parent's worker, which is the rig's, and one for its children, on one store. Handlers
// run on many goroutines: mu guards what they note.
type family struct {
	*rig.Rig
	children *faulty.Broker
	letters  *faulty.Broker // the children's
	c        fan.Children
	// work is a child's; nil = it is done at once.
	work func(ctx context.Context, j *onceq.Job, i int) error

	mu   sync.Mutex
	ran  map[int]int // a child's number, and how often it has begun
	sums []int       // what parents have added up
}

// play runs f on a parent's rig, whose worker is not started, and a children's worker, which is.
func play(t *testing.T, n int, f func(w *family), options ...rig.Option) {
	t.Helper()
	w := &family{ran: map[int]int{}}
	rig.Bubble(t, w.total, func(r *rig.Rig) {
		w.Rig = r
		w.children, w.letters = rig.NewBroker(t, membroker.Options{Name: "children"}), rig.NewBroker(t, membroker.Options{Name: "letters"})
		w.c = fan.Children{To: w.children, Scope: childScope, N: n, Message: number}
		stop := r.Beside(func(c *rig.Setup) {
			c.Handler, c.Scope, c.Broker, c.DeadLetter = onceq.JSONResult(w.child), childScope, w.children, w.letters
			c.Observer, c.Defaults, c.Carry = nil, onceq.JobOptions{MaxAttempts: 2}, nil
		})
		f(w)
		stop()
	}, options...)
}

func number(i int) (broker.Outgoing, error) {
	return onceq.Message("child", "", []byte(strconv.Itoa(i))), nil
}

func (w *family) child(ctx context.Context, j *onceq.Job, i int) (int, error) {
	w.mu.Lock()
	w.ran[i]++
	work := w.work
	w.mu.Unlock()
	if work != nil {
		if err := work(ctx, j, i); err != nil {
			return 0, err
		}
	}
	return i + 1, nil
}

// total is the parent's handler: it adds up what its children have left.
func (w *family) total(ctx context.Context, j *onceq.Job) error {
	w.mu.Lock()
	c := w.c
	w.mu.Unlock()
	return w.totalOf(ctx, j, w.Store, c)
}

func (w *family) totalOf(ctx context.Context, j *onceq.Job, s dedupe.Store, c fan.Children) error {
	if err := fan.Out(ctx, j, s, "parts", c); err != nil {
		return err
	}
	sum := 0
	for v, err := range fan.Results[int](ctx, j, s, "parts") {
		if err != nil {
			return err
		}
		sum += v
	}
	w.mu.Lock()
	w.sums = append(w.sums, sum)
	w.mu.Unlock()
	return nil
}

func (w *family) works(f func(ctx context.Context, j *onceq.Job, i int) error) {
	w.mu.Lock()
	w.work = f
	w.mu.Unlock()
}

// wants checks that the parent has added up all of its children, and that each began once. The
// parent's own effect may have happened before it was recorded, and then it happens again.
func (w *family) wants(parent string) {
	w.Helper()
	most := 1
	if w.Record(parent).Attempt > 1 {
		most = 2
	}
	w.WantStatus(parent, dedupe.Done)
	w.NoLetters()
	w.mu.Lock()
	defer w.mu.Unlock()
	if want := w.c.N * (w.c.N + 1) / 2; len(w.sums) < 1 || len(w.sums) > most || w.sums[0] != want || w.sums[len(w.sums)-1] != want {
		w.Errorf("the sums are %v, want %d once", w.sums, want)
	}
	for i := range w.c.N {
		if w.ran[i] != 1 {
			w.Errorf("child %d began %d times, want once", i, w.ran[i])
		}
	}
}

// looks is how often the parent has run.
func (w *family) looks(parent string) int { return len(w.Seen.Of(parent)) }

func after(d time.Duration) func(context.Context, *onceq.Job, int) error {
	return func(ctx context.Context, j *onceq.Job, _ int) error { return rig.Works(d)(ctx, j) }
}

func childKey(i int) dedupe.Key {
	return dedupe.Key{Scope: childScope, Key: fan.Key(rig.Key("p"), "parts", i)}
}

func (w *family) of(i int) *dedupe.Record {
	w.Helper()
	rs, err := w.Store.Store.Get(w.Context(), []dedupe.Key{childKey(i)})
	if err != nil {
		w.Fatal(err)
	}
	return rs[0]
}
