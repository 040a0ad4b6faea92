package batches

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/onceqtest"
)

// batchesSeen keeps the batches that a Bulk handler's function got.
type batchesSeen struct {
	mu   sync.Mutex
	rows []string
	at   []time.Duration // since begin
	zero time.Time
}

func newBatchesSeen() *batchesSeen { return &batchesSeen{zero: time.Now()} }

func (b *batchesSeen) note(js []*onceq.Job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var keys []string
	for _, j := range js {
		keys = append(keys, j.Key().Key)
	}
	b.rows = append(b.rows, strings.Join(keys, " "))
	b.at = append(b.at, time.Since(b.zero))
}

func (b *batchesSeen) want(t *testing.T, rows ...string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.rows, rows) {
		t.Errorf("the batches were %q, want %q", b.rows, rows)
	}
}

// sizes are the numbers of jobs, largest first.
func (b *batchesSeen) sizes() (ns []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.rows {
		ns = append(ns, len(strings.Fields(r)))
	}
	slices.Sort(ns)
	slices.Reverse(ns)
	return ns
}

// inBatches is the option of a Worker with a Bulk handler and so many slots.
func inBatches(concurrency int, h onceq.Handler) rig.Option {
	return rig.With(func(c *rig.Setup) { c.Handler, c.Concurrency = h, concurrency })
}

func TestBulkRunsWhenItIsFullOrHasLingered(t *testing.T) {
	var got *batchesSeen
	h := onceq.Bulk(onceq.BulkOptions{Max: 4, Linger: 10 * time.Second}, func(_ context.Context, js []*onceq.Job) []error {
		got.note(js)
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		got = newBatchesSeen()
		r.Start()
		r.Send(rig.Numbered("k", 6)...)
		rig.Pass(9 * time.Second)
		if ns := got.sizes(); !slices.Equal(ns, []int{4}) {
			t.Errorf("after 9 s there were batches of %v, want one of 4", ns)
		}
		rig.Pass(2 * time.Second)
		if ns := got.sizes(); !slices.Equal(ns, []int{4, 2}) {
			t.Errorf("after the linger there were batches of %v, want 4 and 2", ns)
		}
		if got.at[0] != 0 || got.at[1] != 10*time.Second {
			t.Errorf("the batches began at %v", got.at)
		}
		for _, k := range rig.Numbered("k", 6) {
			r.WantStatus(k, dedupe.Done)
		}
		r.WantQueue(0)
	}, inBatches(10, h))
}

// A timer runs a batch although another one runs: that may take long.
func TestBulkDoesNotWaitForTheBatchBefore(t *testing.T) {
	var got *batchesSeen
	h := onceq.Bulk(onceq.BulkOptions{Max: 2, Linger: time.Second}, func(_ context.Context, js []*onceq.Job) []error {
		got.note(js)
		rig.Takes(time.Minute)
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		got = newBatchesSeen()
		r.Start()
		r.Send("a", "b", "c")
		rig.Pass(2 * time.Second)
		if ns := got.sizes(); !slices.Equal(ns, []int{2, 1}) {
			t.Errorf("batches of %v run, want 2 and 1", ns)
		}
		rig.Pass(2 * time.Minute)
	}, inBatches(10, h))
}

func TestBulkErrorsAreByPosition(t *testing.T) {
	h := onceq.Bulk(onceq.BulkOptions{Max: 5}, func(_ context.Context, js []*onceq.Job) []error {
		errs := make([]error, len(js))
		for i, j := range js {
			switch j.Key().Key {
			case "permanent":
				errs[i] = onceq.Permanent(rig.ErrBoom)
			case "later":
				errs[i] = onceq.RetryAfter(time.Hour, rig.ErrBoom)
			case "plain":
				errs[i] = rig.ErrBoom
			case "unknown":
				errs[i] = onceq.Unknown(rig.ErrBoom)
			}
		}
		return errs
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		r.Send("permanent", "later", "plain", "unknown", "done")
		r.RunFor(500 * time.Millisecond)
		r.WantOutcomes("permanent", "failed")
		r.WantOutcomes("later", "retried")
		r.WantOutcomes("plain", "retried")
		r.WantOutcomes("unknown", "parked")
		r.WantOutcomes("done", "done")
		if d := r.Q.Delays("later"); !slices.Equal(d, []time.Duration{time.Hour}) {
			t.Errorf("the job that asked for an hour was given back for %v", d)
		}
		if d := r.Q.Delays("plain"); !slices.Equal(d, []time.Duration{time.Second}) {
			t.Errorf("a plain error was given back for %v, want the backoff", d)
		}
	}, inBatches(5, h), rig.Parks, rig.Steady)
}

// A function that sorts its jobs, as who locks rows must, answers in that order.
func TestBulkThatSorts(t *testing.T) {
	for name, left := range map[string]string{"all": "", "with a job left out": "e"} {
		t.Run(name, func(t *testing.T) {
			h := onceq.Bulk(onceq.BulkOptions{Max: 6}, func(_ context.Context, js []*onceq.Job) []error {
				slices.SortFunc(js, func(a, b *onceq.Job) int { return strings.Compare(a.Key().Key, b.Key().Key) })
				errs := make([]error, len(js))
				for i, j := range js {
					switch j.Key().Key {
					case "b":
						errs[i] = onceq.Permanent(rig.ErrBoom)
					case left:
						t.Errorf("%q is in a batch, and its context has ended", left)
					}
				}
				return errs
			})
			rig.Bubble(t, nil, func(r *rig.Rig) {
				r.Send("e", "b", "d", "a", "c", "f")
				r.RunFor(500 * time.Millisecond)
				for _, k := range []string{"a", "c", "d", "e", "f"} {
					if k != left {
						r.WantOutcomes(k, "done")
					}
				}
				r.WantOutcomes("b", "failed")
			}, inBatches(6, h), rig.Steady, rig.With(func(c *rig.Setup) {
				if left == "" {
					return
				}
				c.Handler = onceq.Chain(c.Handler, func(next onceq.Handler) onceq.Handler {
					return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
						if j.Key().Key == "e" { // its context ends before its batch begins
							ended, end := context.WithCancel(ctx)
							end()
							ctx = ended
						}
						return next.Handle(ctx, j)
					})
				})
			}))
		})
	}
}

// Where nobody knows what the function has done, each job gets an error, and is parked under Park.
func TestBulkThatBreaks(t *testing.T) {
	for name, f := range map[string]func(js []*onceq.Job) []error{
		"panics":       func([]*onceq.Job) []error { panic("no such table") },
		"ends":         func([]*onceq.Job) []error { runtime.Goexit(); return nil },
		"too short":    func(js []*onceq.Job) []error { return make([]error, len(js)-1) },
		"too long":     func(js []*onceq.Job) []error { return make([]error, len(js)+1) },
		"empty":        func([]*onceq.Job) []error { return []error{} },
		"cuts its own": func(js []*onceq.Job) []error { clear(js); return []error{nil} },
		"forgets whose": func(js []*onceq.Job) []error {
			js[0] = js[1] // as slices.Compact does
			return make([]error, len(js))
		},
		"loses one": func(js []*onceq.Job) []error { clear(js[2:]); return make([]error, len(js)) },
	} {
		for _, park := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, park %v", name, park), func(t *testing.T) {
				h := onceq.Bulk(onceq.BulkOptions{Max: 3}, func(_ context.Context, js []*onceq.Job) []error { return f(js) })
				want, class := "retried", onceq.ClassPanic
				options := []rig.Option{inBatches(3, h), rig.Steady}
				if park {
					want, class = "parked", onceq.ClassInterrupted
					options = append(options, rig.Parks)
				}
				rig.Bubble(t, nil, func(r *rig.Rig) {
					r.Send("a", "b", "c")
					r.RunFor(500 * time.Millisecond)
					for _, k := range []string{"a", "b", "c"} {
						r.WantOutcomes(k, want)
						if end := r.Seen.Of(k)[0]; end.ErrClass != class {
							t.Errorf("%s is of class %q, want %q (%s)", k, end.ErrClass, class, end.Err)
						}
					}
				}, options...)
			})
		}
	}
}

func TestBulkPanicNamesItsPlace(t *testing.T) {
	h := onceq.Bulk(onceq.BulkOptions{Max: 2}, func(context.Context, []*onceq.Job) []error { return breaksHere() })
	rig.Bubble(t, nil, func(r *rig.Rig) {
		r.Send("a", "b")
		r.RunFor(500 * time.Millisecond)
		for _, k := range []string{"a", "b"} {
			if end := r.Seen.Of(k)[0]; !strings.Contains(end.Err, "no such table") || !strings.Contains(end.Err, "breaksHere") {
				t.Errorf("%s: the error does not tell where it panicked: %s", k, end.Err)
			}
		}
	}, inBatches(2, h), rig.Steady)
}

func breaksHere() []error { panic("no such table") }

// The earliest timeout must not cut off the others, and the last one ends the batch.
func TestBulkContextEndsWithItsLastJob(t *testing.T) {
	var cause error
	var at time.Duration
	var last time.Time
	h := onceq.Bulk(onceq.BulkOptions{Max: 3}, func(ctx context.Context, js []*onceq.Job) []error {
		began := time.Now()
		last, _ = ctx.Deadline()
		last = last.Add(-time.Since(began))
		<-ctx.Done()
		at, cause = time.Since(began), context.Cause(ctx)
		errs := make([]error, len(js))
		for i, j := range js {
			if j.Message.Meta.Timeout != time.Second { // one was cut off, and is done all the same
				errs[i] = cause
			}
		}
		return errs
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		for i, k := range []string{"a", "b", "c"} {
			m := rig.Message(k)
			m.Meta.Timeout = time.Duration(i+1) * time.Second
			r.Put(m)
		}
		r.RunFor(5 * time.Second)
		if at != 3*time.Second || !errors.Is(cause, onceq.ErrTimeout) {
			t.Errorf("the context ended after %v with %v, want 3s and ErrTimeout", at, cause)
		}
		if d := last.Sub(r.Began); d != 3*time.Second {
			t.Errorf("the deadline was after %v, want 3s", d)
		}
		r.WantOutcomes("a", "done")
		for _, k := range []string{"b", "c"} {
			if end := r.Seen.Of(k)[0]; end.ErrClass != onceq.ClassTimeout {
				t.Errorf("%s ended as %+v", k, end)
			}
		}
	}, inBatches(3, h), rig.With(func(c *rig.Setup) {
		c.Defaults.Backoff = func(int, error) time.Duration { return time.Hour }
	}))
}

// A batch with a job that has no timeout has no deadline.
func TestBulkContextWithoutADeadline(t *testing.T) {
	h := onceq.Bulk(onceq.BulkOptions{Max: 2}, func(ctx context.Context, _ []*onceq.Job) []error {
		if at, ok := ctx.Deadline(); ok {
			t.Errorf("a deadline at %v, and one of the jobs has none", at)
		}
		if err := ctx.Err(); err != nil {
			t.Error(err)
		}
		rig.Takes(2 * time.Second)
		if err := ctx.Err(); err != nil {
			t.Errorf("after the timeout of one of two: %v", err)
		}
		select {
		case <-ctx.Done():
			t.Error("the context has ended with the first of two")
		default:
		}
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		m := rig.Message("a")
		m.Meta.Timeout = time.Second
		r.Put(m, rig.Message("b"))
		r.RunFor(5 * time.Second)
		r.WantOutcomes("b", "done")
	}, inBatches(2, h))
}

func TestBulkContextIsTheFirstJobs(t *testing.T) {
	type name struct{}
	var left context.Context
	h := onceq.Chain(onceq.Bulk(onceq.BulkOptions{Max: 2}, func(ctx context.Context, js []*onceq.Job) []error {
		if got := ctx.Value(name{}); got != js[0].Key().Key {
			t.Errorf("the context's value is %v, and the first job %v", got, js[0].Key())
		}
		left = ctx
		return nil
	}), func(next onceq.Handler) onceq.Handler {
		return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			return next.Handle(context.WithValue(ctx, name{}, j.Key().Key), j)
		})
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		r.Send("a", "b")
		r.RunFor(time.Second)
		if left == nil || left.Err() == nil {
			t.Error("the context goes on when its batch has ended")
		}
	}, inBatches(2, h))
}

// What waits for its batch when its lease is lost must not begin.
func TestBulkLeavesOutWhatIsLost(t *testing.T) {
	var got *batchesSeen
	h := onceq.Bulk(onceq.BulkOptions{Max: 3, Linger: 50 * time.Second}, func(_ context.Context, js []*onceq.Job) []error {
		got.note(js)
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		got = newBatchesSeen()
		r.Start()
		r.Send("a", "b")
		rig.Pass(time.Second)
		r.Store.Steal(t, "a")
		rig.Pass(45 * time.Second) // a beat finds it
		got.want(t)
		rig.Pass(5 * time.Second)
		got.want(t, "b")
		r.WantOutcomes("b", "done")
		if ends := r.Seen.Outcomes("a"); !slices.Contains(ends, "lease-lost") || slices.Contains(ends, "done") {
			t.Errorf("a ended as %v", ends)
		}
	}, inBatches(3, h))
}

// The store has said that a claim is lost, and has not said yet whether its job was cancelled. The
// handler's context goes on meanwhile. What waits for its batch must not begin all the same.
func TestBulkLeavesOutWhatIsAboutToEnd(t *testing.T) {
	var got *batchesSeen
	h := onceq.Bulk(onceq.BulkOptions{Max: 2, Linger: time.Minute}, func(_ context.Context, js []*onceq.Job) []error {
		got.note(js)
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		got = newBatchesSeen()
		r.Start()
		r.Send("a")
		rig.Pass(time.Second)
		r.Store.Steal(t, "a")
		asked := make(chan struct{})
		r.Store.FailsAs(func(op onceqtest.Op) error {
			if op == onceqtest.Get {
				close(asked)
				<-time.After(100 * time.Millisecond)
			}
			return nil
		})
		<-asked
		r.Send("b") // which fills the batch
		rig.Pass(50 * time.Millisecond)
		got.want(t, "b")
		rig.Pass(time.Second)
		r.WantOutcomes("a", "lease-lost")
	}, inBatches(2, h))
}

// What waits for its batch while its claim cannot be renewed must not begin either.
func TestBulkLeavesOutWhatIsNotConfirmed(t *testing.T) {
	var got *batchesSeen
	h := onceq.Bulk(onceq.BulkOptions{Max: 3, Linger: 48 * time.Second}, func(_ context.Context, js []*onceq.Job) []error {
		got.note(js)
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		got = newBatchesSeen()
		r.Start()
		r.Send("a")
		rig.Pass(21 * time.Second) // two beats: its lease ends 50 s after the start
		r.Store.Fails(rig.ErrBoom, onceqtest.Renew)
		rig.Pass(28 * time.Second)
		got.want(t)
		if ends := r.Seen.Outcomes("a"); len(ends) == 0 || ends[0] != "handed-back" {
			t.Errorf("what has not begun ended as %v", ends)
		}
		r.Store.Heals()
		rig.Pass(2 * time.Minute)
		got.want(t, "a")
		r.WantStatus("a", dedupe.Done)
	}, inBatches(3, h))
}

// A drain hands back what has not begun, and lets the batch that runs end.
func TestBulkInADrain(t *testing.T) {
	var got *batchesSeen
	h := onceq.Bulk(onceq.BulkOptions{Max: 2, Linger: 5 * time.Second}, func(_ context.Context, js []*onceq.Job) []error {
		got.note(js)
		rig.Takes(7 * time.Second)
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		got = newBatchesSeen()
		r.Start()
		r.Send("a", "b")
		rig.Pass(time.Second)
		r.Send("c")
		rig.Pass(time.Second)
		began := time.Now()
		if err := r.Stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the drain took %v, want 5 s", took)
		}
		if ns := got.sizes(); !slices.Equal(ns, []int{2}) {
			t.Errorf("batches of %v", ns)
		}
		r.WantOutcomes("a", "done")
		r.WantOutcomes("c", "handed-back")
		if n := r.Record("c").Attempt; n != 0 {
			t.Errorf("what was handed back counts %d attempts", n)
		}
	}, inBatches(4, h))
}

// At the end of DrainTimeout the batch's context ends, and its jobs are given back uncounted.
func TestBulkIsCutOffByADrain(t *testing.T) {
	h := onceq.Bulk(onceq.BulkOptions{Max: 2}, func(ctx context.Context, js []*onceq.Job) []error {
		<-ctx.Done()
		if c := context.Cause(ctx); !errors.Is(c, onceq.ErrDraining) {
			t.Errorf("the cause is %v", c)
		}
		return slices.Repeat([]error{context.Cause(ctx)}, len(js))
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		r.Start()
		r.Send("a", "b")
		rig.Pass(time.Second)
		if err := r.Stop(); err != nil {
			t.Fatal(err)
		}
		for _, k := range []string{"a", "b"} {
			r.WantOutcomes(k, "handed-back")
		}
	}, inBatches(2, h), rig.With(func(c *rig.Setup) { c.DrainTimeout = 3 * time.Second }))
}

// A function that ignores its context holds up its own jobs, and Run's hard end no longer than any
// other handler.
func TestBulkThatIgnoresItsContext(t *testing.T) {
	h := onceq.Bulk(onceq.BulkOptions{Max: 2}, func(context.Context, []*onceq.Job) []error {
		rig.Takes(time.Hour)
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		r.Start()
		r.Send("a", "b")
		rig.Pass(time.Second)
		began := time.Now()
		var undone *onceq.DrainError
		if err := r.Stop(); !errors.As(err, &undone) || len(undone.Jobs) != 2 {
			t.Errorf("Run answered %v", err)
		}
		if took := time.Since(began); took != 8*time.Second {
			t.Errorf("the drain took %v, want DrainTimeout and SettleTimeout", took)
		}
		rig.Pass(2 * time.Hour)
	}, inBatches(2, h), rig.With(func(c *rig.Setup) { c.DrainTimeout = 3 * time.Second }))
}

// A job whose own time is short does not wait for all of the linger.
func TestBulkDoesNotUseUpATimeout(t *testing.T) {
	var got *batchesSeen
	h := onceq.Bulk(onceq.BulkOptions{Max: 9, Linger: 30 * time.Second}, func(_ context.Context, js []*onceq.Job) []error {
		got.note(js)
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		got = newBatchesSeen()
		r.Start()
		r.Send("a")
		rig.Pass(time.Second)
		m := rig.Message("b")
		m.Meta.Timeout = 4 * time.Second
		r.Put(m)
		rig.Pass(time.Minute)
		got.want(t, "a b")
		if got.at[0] != 3*time.Second {
			t.Errorf("the batch began after %v, want 3s", got.at[0])
		}
	}, inBatches(9, h))
}

// A group has one job in a batch, and its order.
func TestBulkKeepsTheOrderOfGroups(t *testing.T) {
	for _, p := range rig.Ordered {
		var d rig.Diary
		var mu sync.Mutex
		most := 0
		failed := make(map[string]bool)
		h := onceq.Bulk(onceq.BulkOptions{Max: 4, Linger: 100 * time.Millisecond}, func(_ context.Context, js []*onceq.Job) []error {
			mu.Lock()
			most = max(most, len(js))
			mu.Unlock()
			errs := make([]error, len(js))
			for i, j := range js {
				d.Write(t, j)
				mu.Lock()
				if k := j.Key().Key; strings.HasSuffix(k, "3") && !failed[k] {
					failed[k], errs[i] = true, rig.ErrBoom
				}
				mu.Unlock()
			}
			rig.Takes(time.Second)
			for _, j := range js {
				d.Left(j)
			}
			return errs
		})
		rig.Bubble(t, nil, func(r *rig.Rig) {
			r.Send(rig.Grouped(4, 6)...)
			r.RunFor(5 * time.Minute)
			for g := range 4 {
				name := string(rune('a' + g))
				var want []string
				for i := range 6 {
					want = append(want, fmt.Sprintf("%s%02d", name, i))
					if i == 3 {
						want = append(want, fmt.Sprintf("%s%02d", name, i))
					}
				}
				if got := d.Keys(name); !slices.Equal(got, want) {
					t.Errorf("%v: group %s ran as %v", p, name, got)
				}
			}
			if most < 2 {
				t.Errorf("%v: the largest batch had %d jobs", p, most)
			}
		}, rig.Preset(p), inBatches(4, h), rig.Steady)
	}
}

// Copies of one job that are there together are one job: one of them is in a batch, and the others
// find it done.
func TestBulkWithCopiesOfAJob(t *testing.T) {
	seen := newBatchesSeen()
	fails := 2
	h := onceq.Bulk(onceq.BulkOptions{Max: 10}, func(_ context.Context, js []*onceq.Job) []error {
		if seen.note(js); fails > 0 {
			fails--
			panic("once more")
		}
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		r.Send("a", "a", "b", "a", "b", "c")
		r.RunFor(10 * time.Minute)
		if ns := seen.sizes(); !slices.Equal(ns, []int{3, 3, 3}) {
			t.Errorf("the batches had %v jobs, want three of 3", ns)
		}
		for _, k := range []string{"a", "b", "c"} {
			r.WantStatus(k, dedupe.Done)
		}
		r.WantQueue(0)
		r.NoLetters()
	}, inBatches(10, h), rig.Steady)
}
