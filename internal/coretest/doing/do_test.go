package onceq_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// doer is a store, watched, and processors for Do on it.
type doer struct {
	*rig
	p *onceq.Processor
}

// bubbleDo runs f in virtual time, with a Processor that is for Do only.
func bubbleDo(t *testing.T, f func(d *doer), options ...option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &doer{rig: newRig(t, never(t), options...)}
		d.p = d.process(d.store)
		f(d)
		pass(time.Minute)
	})
}

// process is another process on the store.
func (d *doer) process(s dedupe.Store) *onceq.Processor {
	d.Helper()
	c := d.cfg.ProcessorConfig
	c.Handler, c.Store = nil, s
	p, err := onceq.NewProcessor(c)
	if err != nil {
		d.Fatal(err)
	}
	return p
}

func (d *doer) do(k string, o *onceq.DoOptions, f func(context.Context, *onceq.Job) (int, error)) (int, error) {
	return onceq.Do(d.Context(), d.p, dedupe.Key{Key: k}, o, f)
}

// wants checks an answer; want is what errors.Is finds in the error, or a pointer to its type.
func (d *doer) wants(what string, v int, err error, wantV int, want error) {
	d.Helper()
	if v != wantV || (err == nil) != (want == nil) {
		d.Errorf("%s: %v, %v; want %v, %v", what, v, err, wantV, want)
		return
	}
	for e := err; want != nil && e != nil; e = errors.Unwrap(e) {
		if e == want || reflect.TypeOf(e) == reflect.TypeOf(want) && reflect.TypeOf(e) != reflect.TypeOf(errBoom) {
			return
		}
	}
	if want != nil {
		d.Errorf("%s: %T %v, want %T %v", what, err, err, want, want)
	}
}

func gives(v int, err error) func(context.Context, *onceq.Job) (int, error) {
	return func(context.Context, *onceq.Job) (int, error) { return v, err }
}

func (d *doer) mustNot(context.Context, *onceq.Job) (int, error) {
	d.Error("it ran")
	return -1, nil
}

func slow(v int, took time.Duration) func(context.Context, *onceq.Job) (int, error) {
	return func(context.Context, *onceq.Job) (int, error) { takes(took); return v, nil }
}

func TestDoOnce(t *testing.T) {
	bubbleDo(t, func(d *doer) {
		v, err := d.do("a", nil, gives(42, nil))
		d.wants("the first", v, err, 42, nil)
		v, err = d.do("a", nil, d.mustNot)
		d.wants("the second", v, err, 42, nil)
		d.p = d.process(d.store)
		v, err = d.do("a", nil, d.mustNot)
		d.wants("another process", v, err, 42, nil)
		if v, st, err := onceq.Result[int](d.Context(), d.store, key("a")); v != 42 || st != dedupe.Done || err != nil {
			t.Errorf("Result answers %v, %v, %v", v, st, err)
		}
		d.wantOutcomes("a", "done", "already-done", "already-done")
		r := d.seen.of("a")[0]
		if r.JobID != "a" || r.Fence == 0 || r.Attempt != 1 || !r.Heartbeat || string(r.Result) != "42" || d.seen.started("a") != 1 {
			t.Errorf("the timing record is %+v", r)
		}
		if n := d.log.count("outcome=done"); n != 1 {
			t.Errorf("%d lines in the log", n)
		}
		if n := d.store.renews.Load(); n != 0 {
			t.Errorf("%d renewals of a run of no time", n)
		}
		if rec := d.record("a"); rec.Expires.Sub(rec.Finished) != onceq.DefaultRetention {
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
	bubbleDo(t, func(d *doer) {
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

func result[R any](d *doer, k string, want R) {
	d.Helper()
	runs := 0
	for i := range 3 {
		v, err := onceq.Do(d.Context(), d.p, dedupe.Key{Key: k}, nil, func(context.Context, *onceq.Job) (R, error) {
			runs++
			return want, nil
		})
		if err != nil || !reflect.DeepEqual(v, want) || runs != 1 {
			d.Errorf("%s, call %d: %#v, %v after %d runs; want %#v", k, i, v, err, runs, want)
		}
	}
}

func TestDoErrorIsTriedAgain(t *testing.T) {
	bubbleDo(t, func(d *doer) {
		mine := &classy{"quota"}
		for i := range 25 { // beyond any MaxAttempts
			v, err := d.do("a", nil, gives(3, mine))
			if err != error(mine) || v != 3 {
				t.Fatalf("call %d: %v, %v", i, v, err)
			}
			if rec := d.record("a"); rec.Status != dedupe.Released || rec.Attempt != i+1 || rec.ErrClass != "quota" || rec.LastErr != mine.Error() {
				t.Errorf("the record is %+v", rec)
			}
		}
		v, err := d.do("a", nil, gives(42, onceq.RetryAfter(time.Hour, errBoom)))
		d.wants("RetryAfter", v, err, 42, errBoom)
		v, err = d.do("a", nil, func(_ context.Context, j *onceq.Job) (int, error) { return j.Attempt, nil })
		d.wants("the last", v, err, 27, nil)
		d.noLetters()
	}, most(2))
}

type classy struct{ class string }

func (c *classy) Error() string      { return "of class " + c.class }
func (c *classy) ErrorClass() string { return c.class }

func TestDoPermanent(t *testing.T) {
	bubbleDo(t, func(d *doer) {
		v, err := d.do("a", nil, gives(0, onceq.Permanent(&classy{"card"})))
		if onceq.ClassOf(err) != "card" || v != 0 {
			t.Errorf("the first: %v, %v", v, err)
		}
		begun := time.Now()
		takes(time.Second)
		_, err = d.do("a", nil, d.mustNot)
		var failed *onceq.FailedError
		if !errors.As(err, &failed) {
			t.Fatalf("the second: %v", err)
		}
		rec := d.record("a")
		if failed.Key != key("a") || failed.Class != "card" || failed.Text != "of class card" || failed.Fence != rec.Fence || !failed.At.Equal(begun) {
			t.Errorf("%+v for %+v", failed, rec)
		}
		if onceq.ClassOf(err) != "card" {
			t.Errorf("its class is %q", onceq.ClassOf(err))
		}
		d.wantOutcomes("a", "failed", "already-failed")
		d.noLetters()

		// With another fence nothing is reopened; with its own it is, once.
		_, err = d.do("a", &onceq.DoOptions{Reopen: failed.Fence + 1}, d.mustNot)
		d.wants("another fence", 0, err, 0, failed)
		_, err = d.do("a", &onceq.DoOptions{Reopen: failed.Fence}, gives(0, onceq.Permanent(errBoom)))
		d.wants("reopened", 0, err, 0, errBoom)
		_, err = d.do("a", &onceq.DoOptions{Reopen: failed.Fence}, d.mustNot)
		d.wants("reopened twice", 0, err, 0, failed)
		errors.As(err, &failed)
		if failed.Fence <= rec.Fence || failed.Text != "boom" {
			t.Errorf("the new failure is %+v", failed)
		}
		v, err = d.do("a", &onceq.DoOptions{Reopen: failed.Fence}, gives(7, nil))
		d.wants("mended", v, err, 7, nil)
		v, err = d.do("a", &onceq.DoOptions{Reopen: failed.Fence}, d.mustNot)
		d.wants("done", v, err, 7, nil)
	})
}

// A result that cannot be kept is the caller's, with an error; its effect is not repeated.
func TestDoResultThatIsNotKept(t *testing.T) {
	bubbleDo(t, func(d *doer) {
		d.store.limits = func(l dedupe.Limits) dedupe.Limits { l.MaxResult = 10; return l }
		for name, big := range map[string]any{"large": strings.Repeat("x", 11), "a channel": make(chan int), "a panic": unencodable{}} {
			run := func() (any, error) {
				return onceq.Do(d.Context(), d.p, dedupe.Key{Key: name}, nil, func(context.Context, *onceq.Job) (any, error) { return big, nil })
			}
			v, err := run()
			if v != big || onceq.ClassOf(err) != onceq.ClassResult {
				t.Errorf("%s: %v, %v", name, v, err)
			}
			v, err = run()
			if failed := new(onceq.FailedError); v != nil || !errors.As(err, &failed) || failed.Class != onceq.ClassResult || d.seen.started(name) != 1 {
				t.Errorf("%s again: %v, %v after %d runs", name, v, err, d.seen.started(name))
			}
		}
	})
}

// A store whose limit is lower than it says refuses the result only when it is to be recorded.
// Later callers must not get a zero in its place.
func TestDoResultThatTheStoreRefuses(t *testing.T) {
	bubbleDo(t, func(d *doer) {
		p := d.process(narrow{d.store})
		v, err := onceq.Do(d.Context(), p, dedupe.Key{Key: "a"}, nil, gives(7, nil))
		if v != 7 || onceq.ClassOf(err) != onceq.ClassResult {
			t.Errorf("the first: %v, %v", v, err)
		}
		v, err = d.do("a", nil, d.mustNot)
		d.wants("the next", v, err, 0, &onceq.FailedError{})
		if rec := d.record("a"); rec.ErrClass != onceq.ClassResult || rec.Status != dedupe.Failed {
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
	bubble(t, func(ctx context.Context, j *onceq.Job) error { return h.Handle(ctx, j) }, func(r *rig) {
		r.put(broker.Outgoing{Body: []byte("1"), Meta: &broker.Meta{Key: "a"}})
		r.run(time.Hour)
		r.letter(onceq.ClassResult)
		if n := r.seen.started("a"); n != 1 {
			t.Errorf("%d runs", n)
		}
	}, steady)
}

func TestDoResultOfAnotherType(t *testing.T) {
	bubbleDo(t, func(d *doer) {
		q := d.store.occupy(t, "a", time.Minute, dedupe.Rerun)
		d.store.settle(t, q, dedupe.Settlement{To: dedupe.Done, Result: []byte(`"text"`)})
		_, err := d.do("a", nil, d.mustNot)
		if onceq.ClassOf(err) != onceq.ClassResult || !strings.Contains(err.Error(), "int") {
			t.Errorf("answered %v", err)
		}
		q = d.store.occupy(t, "none", time.Minute, dedupe.Rerun)
		d.store.settle(t, q, dedupe.Settlement{To: dedupe.Done})
		v, err := d.do("none", nil, d.mustNot)
		d.wants("done without a result", v, err, 0, nil)
	})
}

func TestDoMismatch(t *testing.T) {
	bubbleDo(t, func(d *doer) {
		x, y := &onceq.DoOptions{Fingerprint: []byte("x")}, &onceq.DoOptions{Fingerprint: []byte("y")}
		go d.do("a", x, slow(1, 10*time.Second))
		pass(time.Second)
		for _, when := range []string{"in progress", "done"} {
			_, err := d.do("a", y, d.mustNot)
			d.wants(when, 0, err, 0, &onceq.MismatchError{})
			if onceq.ClassOf(err) != onceq.ClassMismatch || !strings.Contains(err.Error(), "test/a") {
				t.Errorf("the error is %v", err)
			}
			pass(10 * time.Second)
		}
		v, err := d.do("a", x, d.mustNot)
		d.wants("the same", v, err, 1, nil)
		v, err = d.do("a", nil, d.mustNot)
		d.wants("none", v, err, 1, nil)
		d.noLetters()
	})
}

// The first call gives no fingerprint, and a later one does. The store compares that one with what
// an earlier record holds.
func TestDoMismatchWhereTheFirstGaveNone(t *testing.T) {
	bubbleDo(t, func(d *doer) {
		d.do("a", &onceq.DoOptions{Fingerprint: []byte("x")}, gives(0, errBoom))
		go d.do("a", nil, slow(1, 10*time.Second))
		pass(time.Second)
		_, err := d.do("a", &onceq.DoOptions{Fingerprint: []byte("y")}, d.mustNot)
		d.wants("another", 0, err, 0, &onceq.MismatchError{})
		_, err = d.do("a", &onceq.DoOptions{Fingerprint: []byte("x")}, d.mustNot)
		d.wants("the same", 0, err, 0, &onceq.InProgressError{})
	})
}

func TestDoRefuses(t *testing.T) {
	bubbleDo(t, func(d *doer) {
		f := d.mustNot
		for _, c := range []struct {
			p     *onceq.Processor
			k     dedupe.Key
			o     *onceq.DoOptions
			f     func(context.Context, *onceq.Job) (int, error)
			field string
		}{
			{nil, key("a"), nil, f, "Do: the Processor is nil"},
			{d.p, key("a"), nil, nil, "Do: f is nil"},
			{d.p, key(""), nil, f, "bad key"},
			{d.p, key(strings.Repeat("k", 1025)), nil, f, "1024"},
			{d.p, key("a"), &onceq.DoOptions{Wait: -1}, f, "DoOptions.Wait"},
			{d.p, key("a"), &onceq.DoOptions{Timeout: -1}, f, "DoOptions.Timeout"},
			{d.p, key("a"), &onceq.DoOptions{Timeout: 5}, f, "DoOptions.Timeout: 5ns is below 1ms; is its unit missing?"},
			{d.p, key("a"), &onceq.DoOptions{Wait: 30}, f, "DoOptions.Wait: 30ns is below 1ms; is its unit missing?"},
			{d.p, key("a"), &onceq.DoOptions{Interrupted: 7}, f, "DoOptions.Interrupted"},
			{d.process(onceq.NoStore), key("a"), nil, f, onceq.ErrNoStore.Error()},
		} {
			if _, err := onceq.Do(d.Context(), c.p, c.k, c.o, c.f); err == nil || !strings.Contains(err.Error(), c.field) {
				t.Errorf("answered %v, want %q", err, c.field)
			}
		}
		if n := d.store.claims.Load(); n != 0 {
			t.Errorf("%d claims", n)
		}
	})
}

func TestDoScopes(t *testing.T) {
	bubbleDo(t, func(d *doer) {
		for i, s := range []string{"", "other", "test:type"} {
			v, err := onceq.Do(d.Context(), d.p, dedupe.Key{Scope: s, Key: "a"}, nil, gives(i, nil))
			d.wants(s, v, err, i, nil)
			if v, _, err := onceq.Result[int](d.Context(), d.store, dedupe.Key{Scope: orElse(s, scope), Key: "a"}); v != i || err != nil {
				t.Errorf("under %q: %v, %v", s, v, err)
			}
		}
		d.cfg.Defaults.Scope = "default"
		d.p = d.process(d.store)
		d.do("b", nil, gives(3, nil))
		if v, _, err := onceq.Result[int](d.Context(), d.store, dedupe.Key{Scope: "default", Key: "b"}); v != 3 || err != nil {
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
	bubbleDo(t, func(d *doer) {
		c := d.cfg.ProcessorConfig
		c.Handler = returns(nil)
		c.Key = func(*broker.Message) (dedupe.Key, error) { t.Error("Key was asked"); return dedupe.Key{}, errBoom }
		c.Fingerprint = func(*broker.Message) []byte { t.Error("Fingerprint was asked"); return nil }
		p, err := onceq.NewProcessor(c)
		if err != nil {
			t.Fatal(err)
		}
		_, err = onceq.Do(d.Context(), p, dedupe.Key{Key: "a"}, nil, gives(0, onceq.Permanent(errBoom)))
		d.wants("permanent", 0, err, 0, errBoom)
		d.wantStatus("a", dedupe.Failed)
	}, most(1))
}

// Many callers of one key, in two processes: one run, one result.
func TestDoConcurrent(t *testing.T) {
	bubbleDo(t, func(d *doer) {
		var runs, inProgress atomic.Int64
		f := func(context.Context, *onceq.Job) (int, error) {
			takes(7 * time.Second)
			return int(runs.Add(1)), nil
		}
		var all sync.WaitGroup
		for i := range 200 {
			p, o := d.p, &onceq.DoOptions{Wait: time.Minute}
			if i%2 == 0 {
				p = d.process(d.store) // each its own
			}
			if i%10 == 0 {
				o = nil
			}
			all.Go(func() {
				takes(time.Duration(i) * 20 * time.Millisecond)
				v, err := onceq.Do(d.Context(), p, dedupe.Key{Key: "a"}, o, f)
				if o == nil && isInProgress(err) {
					inProgress.Add(1)
					return
				}
				d.wants("a call", v, err, 1, nil)
			})
		}
		all.Wait()
		if runs.Load() != 1 || inProgress.Load() < 15 {
			t.Errorf("%d runs, %d were told that it is in progress", runs.Load(), inProgress.Load())
		}
	})
}
