package operating

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
	"github.com/onceq/onceq/internal/coretest/rig"
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
		{rig.ErrBoom, onceq.ClassError},
		{onceq.Permanent(rig.ErrBoom), onceq.ClassPermanent},
		{onceq.RetryAfter(time.Second, rig.ErrBoom), onceq.ClassError},
		{ownClass{"mine"}, "mine"},
		{ownClass{""}, onceq.ClassError},
		{onceq.Permanent(ownClass{"mine"}), "mine"},
		{onceq.Permanent(ownClass{""}), onceq.ClassPermanent},
		{fmt.Errorf("wrapped: %w", onceq.RetryAfter(0, ownClass{"mine"})), "mine"},
		{errors.Join(rig.ErrBoom, ownClass{"mine"}), "mine"},
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
	for _, err := range []error{onceq.Permanent(rig.ErrBoom), onceq.RetryAfter(0, rig.ErrBoom)} {
		if !errors.Is(err, rig.ErrBoom) || err.Error() != rig.ErrBoom.Error() {
			t.Errorf("%v does not wrap what it marks", err)
		}
	}
}

func TestOwnClassIsRecorded(t *testing.T) {
	rig.Bubble(t, rig.Returns(onceq.Permanent(ownClass{"mine"})), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		r.Letter("mine")
		if rec := r.Record("a"); rec.ErrClass != "mine" || r.Seen.Of("a")[0].ErrClass != "mine" {
			t.Errorf("the record is %+v", rec)
		}
	})
}

func TestLongErrorsAreCut(t *testing.T) {
	text := strings.Repeat("ü", 5000) + "\x00\xff"
	rig.Bubble(t, rig.Returns(onceq.Permanent(errors.New(text))), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		if n := len(r.Record("a").LastErr); n > 2048 || n < 2000 {
			t.Errorf("%d bytes of the error are recorded", n)
		}
		r.Letter(onceq.ClassPermanent)
	})
}

// panicky is an Observer that panics.
type panicky struct{ seen *rig.Seen }

func (p panicky) JobStarted(context.Context, *onceq.Job) context.Context { panic("JobStarted") }
func (p panicky) JobEnded(ctx context.Context, r *onceq.JobReport) {
	p.seen.JobEnded(ctx, r)
	panic("JobEnded")
}

func TestObserverThatPanics(t *testing.T) {
	rig.Bubble(t, func(ctx context.Context, _ *onceq.Job) error { return ctx.Err() }, func(r *rig.Rig) {
		r.Send(rig.Numbered("k", 20)...)
		r.RunFor(time.Second)
		for _, k := range rig.Numbered("k", 20) {
			r.WantStatus(k, dedupe.Done)
		}
		r.WantQueue(0)
		if n := r.Logged.Count("the Observer panicked"); n != 40 {
			t.Errorf("%d log records, want 40", n)
		}
	}, func(r *rig.Rig) { r.Cfg.Observer = panicky{r.Seen} })
}

// deriving gives the handlers a context of its own.
type deriving struct {
	rig.Seen
	derive func(ctx context.Context) context.Context
}

func (d *deriving) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	d.Seen.JobStarted(ctx, j)
	return d.derive(ctx)
}

func TestObserversContext(t *testing.T) {
	type name struct{}
	for _, derive := range []func(context.Context) context.Context{
		func(ctx context.Context) context.Context { return context.WithValue(ctx, name{}, true) },
		func(context.Context) context.Context { return nil },
	} {
		var value any
		rig.Bubble(t, func(ctx context.Context, _ *onceq.Job) error {
			value = ctx.Value(name{})
			<-ctx.Done()
			return nil
		}, func(r *rig.Rig) {
			r.Send("a")
			r.RunFor(20 * time.Second)
			r.WantStatus("a", dedupe.Done)
			if want := derive(t.Context()) != nil; (value == true) != want {
				t.Errorf("the handler saw %v", value)
			}
		}, rig.With(func(c *rig.Setup) {
			c.Observer = &deriving{derive: derive}
			c.Defaults.Timeout = 10 * time.Second
		}))
	}
}

// One record for every delivery: what the log tells of a job is read from one line.
func TestOneLogRecordForEachDelivery(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		rig.Takes(65 * time.Second)
		switch string(j.Message.Body) {
		case "bad":
			return onceq.Permanent(rig.ErrBoom)
		case "result":
			return j.SetResult([]byte("12345"))
		}
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		m := rig.Message("typed")
		m.Meta.Type = "mail"
		r.Put(m)
		rig.Pass(10 * time.Second)
		r.Send("good", "bad", "result")
		r.RunFor(10 * time.Minute)
		for k, want := range map[string][]string{
			"good":   {"outcome=done", "scope=test", "attempt=1", "queue_wait=0s", "process=1m5s", "visibility=30s", "heartbeat=true", "beats=", "receives=1", "level=INFO"},
			"bad":    {"outcome=failed", "class=permanent", "error=boom", "level=WARN"},
			"result": {"outcome=done", "result_bytes=5"},
			"typed":  {"type=mail", "queue_wait=10s"},
		} {
			if n := r.Logged.Count("key=" + k + " "); n != 1 {
				t.Errorf("%d log records of %q, want 1", n, k)
			}
			for _, text := range want {
				if r.Logged.Count("key="+k+" ", text) == 0 {
					t.Errorf("the log record of %q has no %q", k, text)
				}
			}
		}
		rec := r.Seen.Of("good")[0]
		if rec.Beats < 5 || rec.Beats > 9 {
			t.Errorf("%d beats in 65 s", rec.Beats)
		}
	})
}

func TestHeartbeatOffIsSeen(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		got := r.Process(r.Context(), rig.Deliveries("a")...)
		if rec := got[0].Report; rec.Heartbeat {
			t.Errorf("the job report is %+v, want no heartbeat: there is neither a claim nor a delivery to keep", rec)
		}
	}, rig.NoStore)
}

func TestJobWithoutMetadata(t *testing.T) {
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error {
		if j.Type() != "" || j.ID() != j.Message.ID || j.ID() == "" {
			return onceq.Permanent(rig.ErrBoom)
		}
		return nil
	}, func(r *rig.Rig) {
		if err := r.Q.SendRaw(r.Context(), []byte("a"), nil); err != nil {
			t.Fatal(err)
		}
		r.RunFor(time.Second)
		r.WantStatus("a", dedupe.Done)
	}, rig.With(func(c *rig.Setup) {
		c.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: string(m.Body)}, nil }
	}))
	var none onceq.Job
	if none.ID() != "" || none.Type() != "" {
		t.Error("an empty job has an id or a type")
	}
}
