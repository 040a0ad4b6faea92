package batches

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// What is tested here is BulkOptions.Divide.

// divided is a Bulk of 100 that divides, and counts the calls of f.
func divided(calls *atomic.Int64, f func(ctx context.Context, js []*onceq.Job) []error) onceq.Handler {
	return onceq.Bulk(onceq.BulkOptions{Divide: true, Linger: time.Second}, func(ctx context.Context, js []*onceq.Job) []error {
		calls.Add(1)
		return f(ctx, js)
	})
}

func isPoison(j *onceq.Job) bool { return j.Key().Key == "poison" }

// wholeFailures are the ways in which f fails for all jobs of a call.
var wholeFailures = map[string]func(js []*onceq.Job) []error{
	"answers errors":    func(js []*onceq.Job) []error { return slices.Repeat([]error{rig.ErrBoom}, len(js)) },
	"answers permanent": func(js []*onceq.Job) []error { return slices.Repeat([]error{onceq.Permanent(rig.ErrBoom)}, len(js)) },
	"answers unknown":   func(js []*onceq.Job) []error { return slices.Repeat([]error{onceq.Unknown(rig.ErrBoom)}, len(js)) },
	"panics":            func([]*onceq.Job) []error { panic("no such row") },
	"ends":              func([]*onceq.Job) []error { runtime.Goexit(); return nil },
	"too long":          func(js []*onceq.Job) []error { return make([]error, len(js)+1) },
}

// One bad job makes no dead letter of its 99 neighbours, even where no attempt is left. Under Park
// nobody is called again where nobody knows what happened.
func TestBulkDivides(t *testing.T) {
	for name, fails := range wholeFailures {
		for _, park := range []bool{false, true} {
			test := name + ", rerun"
			if park {
				test = name + ", park"
			}
			t.Run(test, func(t *testing.T) {
				var calls atomic.Int64
				options := []rig.Option{rig.Most(1), inBatches(100, divided(&calls, func(_ context.Context, js []*onceq.Job) []error {
					if slices.ContainsFunc(js, isPoison) {
						return fails(js)
					}
					return nil
				}))}
				sound := !park || name == "answers errors" || name == "answers permanent"
				if park {
					options = append(options, rig.Parks)
				}
				rig.Bubble(t, nil, func(r *rig.Rig) {
					ks := rig.Numbered("k", 99)
					r.Send(append(slices.Clone(ks), "poison")...)
					r.RunFor(10 * time.Second)
					done := 0
					for _, k := range ks {
						if r.Record(k).Status == dedupe.Done {
							done++
						}
						if n := r.Record(k).Attempt; n != 1 {
							t.Errorf("%d attempts of %s", n, k)
						}
					}
					letters := len(r.Letters())
					if sound && (done != 99 || letters != 1 || calls.Load() > 16) {
						t.Errorf("%d of 99 were done, with %d letters and %d calls", done, letters, calls.Load())
					}
					if !sound && (done != 0 || letters != 100 || calls.Load() != 1) {
						t.Errorf("nobody knows what happened, and %d were done, with %d letters and %d calls", done, letters, calls.Load())
					}
				}, options...)
			})
		}
	}
}

// What f needs may be away: then few calls show it, unless a job would be given up.
func TestBulkDividesNoOutage(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		most  int
		calls int64
	}{
		"it errs":                     {rig.ErrBoom, 3, 7},
		"it errs at the last attempt": {rig.ErrBoom, 1, 199},
		"it asks for time":            {onceq.RetryAfter(time.Hour, rig.ErrBoom), 1, 1},
		"it hangs":                    {context.DeadlineExceeded, 1, 1},
		"it was cut off":              {context.Canceled, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			rig.Bubble(t, nil, func(r *rig.Rig) {
				r.Send(rig.Numbered("k", 100)...)
				r.RunFor(10 * time.Second)
				if n := calls.Load(); n != c.calls {
					t.Errorf("%d calls, want %d", n, c.calls)
				}
			}, rig.Most(c.most), inBatches(100, divided(&calls, func(_ context.Context, js []*onceq.Job) []error {
				return slices.Repeat([]error{c.err}, len(js))
			})), rig.With(func(c *rig.Setup) {
				c.Defaults.Backoff = func(int, error) time.Duration { return time.Hour }
			}))
		})
	}
}

// A job whose context ends while its batch is divided is not called again. A drain gives it back
// uncounted, also under Park, because f has said that nothing happened.
func TestBulkDividedInADrain(t *testing.T) {
	for _, park := range []bool{false, true} {
		var calls atomic.Int64
		var mu sync.Mutex
		ended := 0
		options := []rig.Option{rig.Most(1), rig.With(func(c *rig.Setup) { c.DrainTimeout = 5 * time.Second }), inBatches(4, onceq.Bulk(
			onceq.BulkOptions{Max: 4, Divide: true}, func(ctx context.Context, js []*onceq.Job) []error {
				calls.Add(1)
				if ctx.Err() != nil {
					mu.Lock()
					ended++
					mu.Unlock()
				}
				if len(js) == 4 {
					return slices.Repeat([]error{rig.ErrBoom}, len(js))
				}
				rig.Takes(10 * time.Second) // one half, which is complete all the same
				return nil
			}))}
		if park {
			options = append(options, rig.Parks)
		}
		rig.Bubble(t, nil, func(r *rig.Rig) {
			r.Start()
			r.Send("a", "b", "c", "d")
			rig.Pass(3 * time.Second)
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
			done, back := 0, 0
			for _, k := range []string{"a", "b", "c", "d"} {
				switch rec := r.Record(k); {
				case rec.Status == dedupe.Done:
					done++
				case rec.Status == dedupe.Released && rec.Attempt == 0:
					back++
				default:
					t.Errorf("park %v: the record of %s is %+v", park, k, rec)
				}
			}
			if done != 2 || back != 2 || calls.Load() != 2 || ended != 0 {
				t.Errorf("park %v: %d done, %d given back, %d calls, %d of them for ended contexts", park, done, back, calls.Load(), ended)
			}
			r.NoLetters()
		}, options...)
	}
}

// A Timeout ends the division for its job alone.
func TestBulkDividedBeyondATimeout(t *testing.T) {
	var calls atomic.Int64
	h := onceq.Bulk(onceq.BulkOptions{Max: 4, Divide: true}, func(_ context.Context, js []*onceq.Job) []error {
		calls.Add(1)
		if len(js) == 4 {
			rig.Takes(2 * time.Second)
			return slices.Repeat([]error{errors.New("deadlock")}, len(js))
		}
		for _, j := range js {
			if j.Key().Key == "short" {
				t.Error("f is called again for a job whose time is over")
			}
		}
		return nil
	})
	rig.Bubble(t, nil, func(r *rig.Rig) {
		m := rig.Message("short")
		m.Meta.Timeout = time.Second
		r.Put(m)
		r.Send("a", "b", "c")
		r.RunFor(5 * time.Second)
		for _, k := range []string{"a", "b", "c"} {
			r.WantOutcomes(k, "done")
		}
		if end := r.Seen.Of("short")[0]; end.ErrClass != onceq.ClassTimeout {
			t.Errorf("short ended as %+v", end)
		}
	}, inBatches(4, h), rig.With(func(c *rig.Setup) {
		c.Defaults.Backoff = func(int, error) time.Duration { return time.Hour }
	}))
}

// The rule: an error that f answers when its context has ended may be that end in other words, and
// nobody knows what it did. Under Park such a job is parked, whether its batch may be divided or
// not.
func TestBulkDividedWhoseCallIsCut(t *testing.T) {
	for name, c := range map[string]struct {
		whole        bool // the whole batch is cut; else its first half
		divide       bool
		parked, back int
	}{
		"whole, not divided": {whole: true, parked: 4},
		"whole":              {whole: true, divide: true, parked: 4},
		"a half":             {divide: true, parked: 2, back: 2},
	} {
		h := onceq.Bulk(onceq.BulkOptions{Max: 4, Divide: c.divide}, func(ctx context.Context, js []*onceq.Job) []error {
			if c.whole || len(js) < 4 {
				<-ctx.Done()
			}
			return slices.Repeat([]error{rig.ErrBoom}, len(js))
		})
		rig.Bubble(t, nil, func(r *rig.Rig) {
			r.Start()
			r.Send("a", "b", "c", "d")
			rig.Pass(3 * time.Second)
			if err := r.Stop(); err != nil {
				t.Error(name, err)
			}
			parked, back := 0, 0
			for _, k := range []string{"a", "b", "c", "d"} {
				switch r.Record(k).Status {
				case dedupe.Parked:
					parked++
				case dedupe.Released:
					back++
				}
			}
			if parked != c.parked || back != c.back {
				t.Errorf("%s: %d parked, %d given back; want %d, %d", name, parked, back, c.parked, c.back)
			}
		}, rig.Parks, rig.With(func(c *rig.Setup) { c.DrainTimeout = time.Second }), inBatches(4, h))
	}
}
