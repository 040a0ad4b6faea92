package doing

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

func slow(v int, took time.Duration) func(context.Context, *onceq.Job) (int, error) {
	return func(context.Context, *onceq.Job) (int, error) { rig.Takes(took); return v, nil }
}

func TestDoOnce(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		v, err := d.Do("a", nil, rig.Gives(42, nil))
		d.Wants("the first", v, err, 42, nil)
		v, err = d.Do("a", nil, d.MustNot)
		d.Wants("the second", v, err, 42, nil)
		d.P = d.Processor(d.Store)
		v, err = d.Do("a", nil, d.MustNot)
		d.Wants("another process", v, err, 42, nil)
		if v, st, err := onceq.Result[int](d.Context(), d.Store, rig.Key("a")); v != 42 || st != dedupe.Done || err != nil {
			t.Errorf("Result answers %v, %v, %v", v, st, err)
		}
		d.WantOutcomes("a", "done", "already-done", "already-done")
		r := d.Seen.Of("a")[0]
		if r.JobID != "a" || r.Fence == 0 || r.Attempt != 1 || !r.Heartbeat || string(r.Result) != "42" || d.Seen.Started("a") != 1 {
			t.Errorf("the job report is %+v", r)
		}
		if n := d.Logged.Count("outcome=done"); n != 1 {
			t.Errorf("%d lines in the log", n)
		}
		if n := d.Store.Renews.Load(); n != 0 {
			t.Errorf("%d renewals of a run of no time", n)
		}
		if rec := d.Record("a"); rec.Expires.Sub(rec.Finished) != onceq.DefaultRetention {
			t.Errorf("it is kept for %v", rec.Expires.Sub(rec.Finished))
		}
	})
}

// Zero values, "" and nil are results: JSON can hold each of them.
func TestDoResults(t *testing.T) {
	type pair struct {
		A string
		B *int
	}
	seven := 7
	rig.BubbleDo(t, func(d *rig.Doer) {
		result(d, "zero", 0)
		result(d, "empty", "")
		result(d, "nil", (*pair)(nil))
		result(d, "struct", pair{"x", &seven})
		result(d, "none", struct{}{})
		result(d, "bytes", []byte{0, 1, 255})
		result(d, "slice", []pair(nil))
		result(d, "map", map[string]int{"a": 1})
		result(d, "any", any(nil))
		result(d, "error text", "onceq: ü\x00")
	})
}

func result[R any](d *rig.Doer, k string, want R) {
	d.Helper()
	runs := 0
	for i := range 3 {
		v, err := onceq.Do(d.Context(), d.P, dedupe.Key{Key: k}, nil, func(context.Context, *onceq.Job) (R, error) {
			runs++
			return want, nil
		})
		if err != nil || !reflect.DeepEqual(v, want) || runs != 1 {
			d.Errorf("%s, call %d: %#v, %v after %d runs; want %#v", k, i, v, err, runs, want)
		}
	}
}

func TestDoErrorIsTriedAgain(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		mine := &classy{"quota"}
		for i := range 25 { // beyond any MaxAttempts
			v, err := d.Do("a", nil, rig.Gives(3, mine))
			if err != error(mine) || v != 3 {
				t.Fatalf("call %d: %v, %v", i, v, err)
			}
			if rec := d.Record("a"); rec.Status != dedupe.Released || rec.Attempt != i+1 || rec.ErrClass != "quota" || rec.LastErr != mine.Error() {
				t.Errorf("the record is %+v", rec)
			}
		}
		v, err := d.Do("a", nil, rig.Gives(42, onceq.RetryAfter(time.Hour, rig.ErrBoom)))
		d.Wants("RetryAfter", v, err, 42, rig.ErrBoom)
		v, err = d.Do("a", nil, func(_ context.Context, j *onceq.Job) (int, error) { return j.Attempt, nil })
		d.Wants("the last", v, err, 27, nil)
		d.NoLetters()
	}, rig.Most(2))
}

type classy struct{ class string }

func (c *classy) Error() string      { return "of class " + c.class }
func (c *classy) ErrorClass() string { return c.class }

func TestDoPermanent(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		v, err := d.Do("a", nil, rig.Gives(0, onceq.Permanent(&classy{"card"})))
		if onceq.ClassOf(err) != "card" || v != 0 {
			t.Errorf("the first: %v, %v", v, err)
		}
		begun := time.Now()
		rig.Takes(time.Second)
		_, err = d.Do("a", nil, d.MustNot)
		var failed *onceq.FailedError
		if !errors.As(err, &failed) {
			t.Fatalf("the second: %v", err)
		}
		rec := d.Record("a")
		if failed.Key != rig.Key("a") || failed.Class != "card" || failed.Text != "of class card" || failed.Fence != rec.Fence || !failed.At.Equal(begun) {
			t.Errorf("%+v for %+v", failed, rec)
		}
		if onceq.ClassOf(err) != "card" {
			t.Errorf("its class is %q", onceq.ClassOf(err))
		}
		d.WantOutcomes("a", "failed", "already-failed")
		d.NoLetters()

		// With another fence nothing is reopened; with its own it is, once.
		_, err = d.Do("a", &onceq.DoOptions{Reopen: failed.Fence + 1}, d.MustNot)
		d.Wants("another fence", 0, err, 0, failed)
		_, err = d.Do("a", &onceq.DoOptions{Reopen: failed.Fence}, rig.Gives(0, onceq.Permanent(rig.ErrBoom)))
		d.Wants("reopened", 0, err, 0, rig.ErrBoom)
		_, err = d.Do("a", &onceq.DoOptions{Reopen: failed.Fence}, d.MustNot)
		d.Wants("reopened twice", 0, err, 0, failed)
		errors.As(err, &failed)
		if failed.Fence <= rec.Fence || failed.Text != "boom" {
			t.Errorf("the new failure is %+v", failed)
		}
		v, err = d.Do("a", &onceq.DoOptions{Reopen: failed.Fence}, rig.Gives(7, nil))
		d.Wants("mended", v, err, 7, nil)
		v, err = d.Do("a", &onceq.DoOptions{Reopen: failed.Fence}, d.MustNot)
		d.Wants("done", v, err, 7, nil)
	})
}

// A result that cannot be kept is the caller's, with an error; its effect is not repeated.
func TestDoResultThatIsNotKept(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		d.Store.ChangeLimits = func(l dedupe.Limits) dedupe.Limits { l.MaxResult = 10; return l }
		for name, big := range map[string]any{"large": strings.Repeat("x", 11), "a channel": make(chan int), "a panic": unencodable{}} {
			run := func() (any, error) {
				return onceq.Do(d.Context(), d.P, dedupe.Key{Key: name}, nil, func(context.Context, *onceq.Job) (any, error) { return big, nil })
			}
			v, err := run()
			if v != big || onceq.ClassOf(err) != onceq.ClassResult {
				t.Errorf("%s: %v, %v", name, v, err)
			}
			v, err = run()
			if failed := new(onceq.FailedError); v != nil || !errors.As(err, &failed) || failed.Class != onceq.ClassResult || d.Seen.Started(name) != 1 {
				t.Errorf("%s again: %v, %v after %d runs", name, v, err, d.Seen.Started(name))
			}
		}
	})
}

// A store whose limit is lower than it says refuses the result only when it is to be recorded.
// Later callers must not get a zero in its place.
func TestDoResultThatTheStoreRefuses(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		p := d.Processor(narrow{d.Store})
		v, err := onceq.Do(d.Context(), p, dedupe.Key{Key: "a"}, nil, rig.Gives(7, nil))
		if v != 7 || onceq.ClassOf(err) != onceq.ClassResult {
			t.Errorf("the first: %v, %v", v, err)
		}
		v, err = d.Do("a", nil, d.MustNot)
		d.Wants("the next", v, err, 0, &onceq.FailedError{})
		if rec := d.Record("a"); rec.ErrClass != onceq.ClassResult || rec.Status != dedupe.Failed {
			t.Errorf("the record is %+v", rec)
		}
	})
}

type narrow struct{ dedupe.Store }

func (n narrow) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	if ss[0].Result != nil {
		return []dedupe.Settled{{Err: dedupe.ErrResultSize}}, nil
	}
	return n.Store.Settle(ctx, ss)
}

type unencodable struct{}

func (unencodable) MarshalJSON() ([]byte, error) { panic("marshal") }

// A handler of a queue whose result panics when it is encoded has had its effect, too.
func TestJSONResultThatPanics(t *testing.T) {
	h := onceq.JSONResult(func(context.Context, *onceq.Job, int) (unencodable, error) { return unencodable{}, nil })
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error { return h.Handle(ctx, j) }, func(r *rig.Rig) {
		r.Put(broker.Outgoing{Body: []byte("1"), Meta: &broker.Meta{Key: "a"}})
		r.RunFor(time.Hour)
		r.Letter(onceq.ClassResult)
		if n := r.Seen.Started("a"); n != 1 {
			t.Errorf("%d runs", n)
		}
	}, rig.Steady)
}

func TestDoResultOfAnotherType(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		q := d.Store.Occupy(t, "a", time.Minute, dedupe.Rerun)
		d.Store.EndClaim(t, q, dedupe.Settlement{To: dedupe.Done, Result: []byte(`"text"`)})
		_, err := d.Do("a", nil, d.MustNot)
		if onceq.ClassOf(err) != onceq.ClassResult || !strings.Contains(err.Error(), "int") {
			t.Errorf("answered %v", err)
		}
		q = d.Store.Occupy(t, "none", time.Minute, dedupe.Rerun)
		d.Store.EndClaim(t, q, dedupe.Settlement{To: dedupe.Done})
		v, err := d.Do("none", nil, d.MustNot)
		d.Wants("done without a result", v, err, 0, nil)
	})
}

func TestDoMismatch(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		x, y := &onceq.DoOptions{Fingerprint: []byte("x")}, &onceq.DoOptions{Fingerprint: []byte("y")}
		go d.Do("a", x, slow(1, 10*time.Second))
		rig.Pass(time.Second)
		for _, when := range []string{"in progress", "done"} {
			_, err := d.Do("a", y, d.MustNot)
			d.Wants(when, 0, err, 0, &onceq.MismatchError{})
			if onceq.ClassOf(err) != onceq.ClassMismatch || !strings.Contains(err.Error(), "test/a") {
				t.Errorf("the error is %v", err)
			}
			rig.Pass(10 * time.Second)
		}
		v, err := d.Do("a", x, d.MustNot)
		d.Wants("the same", v, err, 1, nil)
		v, err = d.Do("a", nil, d.MustNot)
		d.Wants("none", v, err, 1, nil)
		d.NoLetters()
	})
}

// The first call gives no fingerprint, and a later one does. The store compares that one with what
// an earlier record holds.
func TestDoMismatchWhereTheFirstGaveNone(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		d.Do("a", &onceq.DoOptions{Fingerprint: []byte("x")}, rig.Gives(0, rig.ErrBoom))
		go d.Do("a", nil, slow(1, 10*time.Second))
		rig.Pass(time.Second)
		_, err := d.Do("a", &onceq.DoOptions{Fingerprint: []byte("y")}, d.MustNot)
		d.Wants("another", 0, err, 0, &onceq.MismatchError{})
		_, err = d.Do("a", &onceq.DoOptions{Fingerprint: []byte("x")}, d.MustNot)
		d.Wants("the same", 0, err, 0, &onceq.InProgressError{})
	})
}

func TestDoRefuses(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		f := d.MustNot
		for _, c := range []struct {
			p     *onceq.Processor
			k     dedupe.Key
			o     *onceq.DoOptions
			f     func(context.Context, *onceq.Job) (int, error)
			field string
		}{
			{nil, rig.Key("a"), nil, f, "Do: the Processor is nil"},
			{d.P, rig.Key("a"), nil, nil, "Do: f is nil"},
			{d.P, rig.Key(""), nil, f, "bad key"},
			{d.P, rig.Key(strings.Repeat("k", 1025)), nil, f, "1024"},
			{d.P, rig.Key("a"), &onceq.DoOptions{Wait: -1}, f, "DoOptions.Wait"},
			{d.P, rig.Key("a"), &onceq.DoOptions{Timeout: -1}, f, "DoOptions.Timeout"},
			{d.P, rig.Key("a"), &onceq.DoOptions{Timeout: 5}, f, "DoOptions.Timeout: 5ns is below 1ms; is its unit missing?"},
			{d.P, rig.Key("a"), &onceq.DoOptions{Wait: 30}, f, "DoOptions.Wait: 30ns is below 1ms; is its unit missing?"},
			{d.P, rig.Key("a"), &onceq.DoOptions{Interrupted: 7}, f, "DoOptions.Interrupted"},
			{d.Processor(onceq.NoStore), rig.Key("a"), nil, f, onceq.ErrNoStore.Error()},
		} {
			if _, err := onceq.Do(d.Context(), c.p, c.k, c.o, c.f); err == nil || !strings.Contains(err.Error(), c.field) {
				t.Errorf("answered %v, want %q", err, c.field)
			}
		}
		if n := d.Store.Claims.Load(); n != 0 {
			t.Errorf("%d claims", n)
		}
	})
}

func TestDoScopes(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		for i, s := range []string{"", "other", "test:type"} {
			v, err := onceq.Do(d.Context(), d.P, dedupe.Key{Scope: s, Key: "a"}, nil, rig.Gives(i, nil))
			d.Wants(s, v, err, i, nil)
			if v, _, err := onceq.Result[int](d.Context(), d.Store, dedupe.Key{Scope: orElse(s, rig.Scope), Key: "a"}); v != i || err != nil {
				t.Errorf("under %q: %v, %v", s, v, err)
			}
		}
		d.Cfg.Defaults.Scope = "default"
		d.P = d.Processor(d.Store)
		d.Do("b", nil, rig.Gives(3, nil))
		if v, _, err := onceq.Result[int](d.Context(), d.Store, dedupe.Key{Scope: "default", Key: "b"}); v != 3 || err != nil {
			t.Errorf("under Defaults.Scope: %v, %v", v, err)
		}
	})
}

func orElse(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// A call of Do uses nothing that a Processor has for deliveries: no letter, no attempts, no key of
// its own.
func TestDoBesideDeliveries(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		c := d.Cfg.ProcessorConfig
		c.Handler = rig.Returns(nil)
		c.Key = func(*broker.Message) (dedupe.Key, error) { t.Error("Key was asked"); return dedupe.Key{}, rig.ErrBoom }
		c.Fingerprint = func(*broker.Message) []byte { t.Error("Fingerprint was asked"); return nil }
		p, err := onceq.NewProcessor(c)
		if err != nil {
			t.Fatal(err)
		}
		_, err = onceq.Do(d.Context(), p, dedupe.Key{Key: "a"}, nil, rig.Gives(0, onceq.Permanent(rig.ErrBoom)))
		d.Wants("permanent", 0, err, 0, rig.ErrBoom)
		d.WantStatus("a", dedupe.Failed)
	}, rig.Most(1))
}

// Many callers of one key, in two processes: one run, one result.
func TestDoConcurrent(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		var runs, inProgress atomic.Int64
		f := func(context.Context, *onceq.Job) (int, error) {
			rig.Takes(7 * time.Second)
			return int(runs.Add(1)), nil
		}
		var all sync.WaitGroup
		for i := range 200 {
			p, o := d.P, &onceq.DoOptions{Wait: time.Minute}
			if i%2 == 0 {
				p = d.Processor(d.Store) // each its own
			}
			if i%10 == 0 {
				o = nil
			}
			all.Go(func() {
				rig.Takes(time.Duration(i) * 20 * time.Millisecond)
				v, err := onceq.Do(d.Context(), p, dedupe.Key{Key: "a"}, o, f)
				if o == nil && isInProgress(err) {
					inProgress.Add(1)
					return
				}
				d.Wants("a call", v, err, 1, nil)
			})
		}
		all.Wait()
		if runs.Load() != 1 || inProgress.Load() < 15 {
			t.Errorf("%d runs, %d were told that it is in progress", runs.Load(), inProgress.Load())
		}
	})
}

// TestDoPostponed: a Postpone is an error like any other. The key is given back, and that is
// recorded, so the caller gets the error itself.
func TestDoPostponed(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		v, err := d.Do("k", nil, rig.Gives(0, onceq.Postpone(time.Minute, rig.ErrBoom)))
		var unsettled *onceq.UnsettledError
		if v != 0 || !errors.Is(err, rig.ErrBoom) || errors.As(err, &unsettled) {
			t.Errorf("%d, %v; want the error of f", v, err)
		}
		v, err = d.Do("k", nil, rig.Gives(7, nil))
		d.Wants("the next call", v, err, 7, nil)
	})
}
