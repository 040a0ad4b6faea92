package onceq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// A class of the user's own.
type ownClass struct{ class string }

func (e ownClass) Error() string      { return "own" }
func (e ownClass) ErrorClass() string { return e.class }

func TestClassOf(t *testing.T) {
	long := strings.Repeat("ü", 100)
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errBoom, onceq.ClassError},
		{onceq.Permanent(errBoom), onceq.ClassPermanent},
		{onceq.RetryAfter(time.Second, errBoom), onceq.ClassError},
		{ownClass{"mine"}, "mine"},
		{ownClass{""}, onceq.ClassError},
		{onceq.Permanent(ownClass{"mine"}), "mine"},
		{onceq.Permanent(ownClass{""}), onceq.ClassPermanent},
		{fmt.Errorf("wrapped: %w", onceq.RetryAfter(0, ownClass{"mine"})), "mine"},
		{errors.Join(errBoom, ownClass{"mine"}), "mine"},
		{ownClass{long}, long[:64]},
		{ownClass{"a\x00b\xff"}, "a\uFFFDb\uFFFD"},
	} {
		if got := onceq.ClassOf(c.err); got != c.want {
			t.Errorf("ClassOf(%v) is %q, want %q", c.err, got, c.want)
		}
	}
	if onceq.Permanent(nil) != nil || onceq.RetryAfter(time.Second, nil) != nil {
		t.Error("the marks of nil are not nil")
	}
	for _, err := range []error{onceq.Permanent(errBoom), onceq.RetryAfter(0, errBoom)} {
		if !errors.Is(err, errBoom) || err.Error() != errBoom.Error() {
			t.Errorf("%v does not wrap what it marks", err)
		}
	}
}

func TestOwnClassIsRecorded(t *testing.T) {
	bubble(t, returns(onceq.Permanent(ownClass{"mine"})), func(r *rig) {
		r.send("a")
		r.run(time.Second)
		r.letter("mine")
		if rec := r.record("a"); rec.ErrClass != "mine" || r.seen.of("a")[0].ErrClass != "mine" {
			t.Errorf("the record is %+v", rec)
		}
	})
}

func TestLongErrorsAreCut(t *testing.T) {
	text := strings.Repeat("ü", 5000) + "\x00\xff"
	bubble(t, returns(onceq.Permanent(errors.New(text))), func(r *rig) {
		r.send("a")
		r.run(time.Second)
		if n := len(r.record("a").LastErr); n > 2048 || n < 2000 {
			t.Errorf("%d bytes of the error are recorded", n)
		}
		r.letter(onceq.ClassPermanent)
	})
}

// panicky is an Observer that panics.
type panicky struct{ seen *seen }

func (p panicky) JobStarted(context.Context, *onceq.Job) context.Context { panic("JobStarted") }
func (p panicky) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	p.seen.JobEnded(ctx, r)
	panic("JobEnded")
}

func TestObserverThatPanics(t *testing.T) {
	bubble(t, func(ctx context.Context, _ *onceq.Job) error { return ctx.Err() }, func(r *rig) {
		r.send(numbered("k", 20)...)
		r.run(time.Second)
		for _, k := range numbered("k", 20) {
			r.wantStatus(k, dedupe.Done)
		}
		r.wantQueue(0)
		if n := r.log.count("the Observer panicked"); n != 40 {
			t.Errorf("%d log records, want 40", n)
		}
	}, func(r *rig) { r.cfg.Observer = panicky{r.seen} })
}

// deriving gives the handlers a context of its own.
type deriving struct {
	seen
	derive func(ctx context.Context) context.Context
}

func (d *deriving) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	d.seen.JobStarted(ctx, j)
	return d.derive(ctx)
}

func TestObserversContext(t *testing.T) {
	type name struct{}
	for _, derive := range []func(context.Context) context.Context{
		func(ctx context.Context) context.Context { return context.WithValue(ctx, name{}, true) },
		func(context.Context) context.Context { return nil },
	} {
		var value any
		bubble(t, func(ctx context.Context, _ *onceq.Job) error {
			value = ctx.Value(name{})
			<-ctx.Done()
			return nil
		}, func(r *rig) {
			r.send("a")
			r.run(20 * time.Second)
			r.wantStatus("a", dedupe.Done)
			if want := derive(t.Context()) != nil; (value == true) != want {
				t.Errorf("the handler saw %v", value)
			}
		}, with(func(c *setup) {
			c.Observer = &deriving{derive: derive}
			c.Defaults.Timeout = 10 * time.Second
		}))
	}
}

// One record for every delivery: what the log tells of a job is read from one line.
func TestOneLogRecordForEachDelivery(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		takes(65 * time.Second)
		switch string(j.Message.Body) {
		case "bad":
			return onceq.Permanent(errBoom)
		case "result":
			return j.SetResult([]byte("12345"))
		}
		return nil
	}
	bubble(t, h, func(r *rig) {
		m := message("typed")
		m.Meta.Type = "mail"
		r.put(m)
		pass(10 * time.Second)
		r.send("good", "bad", "result")
		r.run(10 * time.Minute)
		for k, want := range map[string][]string{
			"good":   {"outcome=done", "scope=test", "attempt=1", "queue_wait=0s", "process=1m5s", "visibility=30s", "heartbeat=true", "beats=", "receives=1", "level=INFO"},
			"bad":    {"outcome=failed", "class=permanent", "error=boom", "level=WARN"},
			"result": {"outcome=done", "result_bytes=5"},
			"typed":  {"type=mail", "queue_wait=10s"},
		} {
			if n := r.log.count("key=" + k + " "); n != 1 {
				t.Errorf("%d log records of %q, want 1", n, k)
			}
			for _, text := range want {
				if !r.log.has("key="+k+" ", text) {
					t.Errorf("the log record of %q has no %q", k, text)
				}
			}
		}
		rec := r.seen.of("good")[0]
		if rec.Beats < 5 || rec.Beats > 9 {
			t.Errorf("%d beats in 65 s", rec.Beats)
		}
	})
}

// has tells whether a line holds both texts.
func (l *logged) has(one, two string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, one) && strings.Contains(line, two) {
			return true
		}
	}
	return false
}

func TestHeartbeatOffIsSeen(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		got := r.process(r.Context(), deliveries("a")...)
		if rec := got[0].Record; rec.Heartbeat {
			t.Errorf("the timing record is %+v, want no heartbeat: there is neither a claim nor a delivery to keep", rec)
		}
	}, noStore)
}

func TestJobWithoutMetadata(t *testing.T) {
	bubble(t, func(_ context.Context, j *onceq.Job) error {
		if j.Type() != "" || j.ID() != j.Message.ID || j.ID() == "" {
			return onceq.Permanent(errBoom)
		}
		return nil
	}, func(r *rig) {
		if err := r.q.SendRaw(r.Context(), []byte("a"), nil); err != nil {
			t.Fatal(err)
		}
		r.run(time.Second)
		r.wantStatus("a", dedupe.Done)
	}, with(func(c *setup) {
		c.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: string(m.Body)}, nil }
	}))
	var none onceq.Job
	if none.ID() != "" || none.Type() != "" {
		t.Error("an empty job has an id or a type")
	}
}
