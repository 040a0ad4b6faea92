package operating

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
)

// spans is an Observer that traces: it keeps what JobStarted returned for each job, and what
// JobEnded got.
type spans struct {
	rig.Seen
	mu     sync.Mutex
	opened map[string]context.Context
	ended  map[string][]context.Context
}

type spanName struct{}

func newSpans() *spans {
	return &spans{opened: make(map[string]context.Context), ended: make(map[string][]context.Context)}
}

func (s *spans) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	s.Seen.JobStarted(ctx, j)
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx = context.WithValue(ctx, spanName{}, j.Key().Key)
	s.opened[j.ID()] = ctx //nolint:fatcontext // each job has its own
	return ctx
}

func (s *spans) JobEnded(ctx context.Context, r *onceq.JobReport) {
	s.Seen.JobEnded(ctx, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[r.JobID] = append(s.ended[r.JobID], ctx)
}

// wantSpan checks that the job's end was told of once, with the context of its start.
func (s *spans) wantSpan(t *testing.T, job string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.ended[job]; len(got) != 1 || s.opened[job] == nil || got[0] != s.opened[job] {
		t.Errorf("JobEnded of %q got %v, want %v once", job, got, s.opened[job])
	}
}

func observedBy(o onceq.Observer) rig.Option { return rig.With(func(c *rig.Setup) { c.Observer = o }) }

func TestJobEndedGetsTheStartedContext(t *testing.T) {
	for name, h := range map[string]onceq.HandlerFunc{
		"done": rig.Returns(nil), "failed": rig.Returns(onceq.Permanent(rig.ErrBoom)),
		"panic":   func(context.Context, *onceq.Job) error { panic("boom") },
		"timeout": func(ctx context.Context, _ *onceq.Job) error { <-ctx.Done(); return onceq.Permanent(ctx.Err()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpans()
			rig.Bubble(t, h, func(r *rig.Rig) {
				m := rig.Message("a")
				m.Meta.ID = "a"
				r.Put(m)
				r.RunFor(20 * time.Second)
				s.wantSpan(t, "a")
			}, observedBy(s), rig.Most(1), rig.With(func(c *rig.Setup) { c.Defaults.Timeout = 10 * time.Second }))
		})
	}
}

// Where no handler has started there is the delivery's own context, which has the values of Run's.
func TestJobEndedWithoutAStart(t *testing.T) {
	s := newSpans()
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		m := rig.Message("a")
		m.Meta.ID, m.Meta.Expires = "a", time.Now().Add(time.Second)
		r.Put(m)
		rig.Pass(time.Minute)
		ctx, stop := context.WithTimeout(context.WithValue(r.Context(), spanName{}, "of Run"), time.Second)
		defer stop()
		if err := r.W.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if got := s.ended["a"]; len(got) != 1 || got[0].Value(spanName{}) != "of Run" {
			t.Errorf("JobEnded got %v", got)
		}
	}, observedBy(s))
}

func TestJobEndedOfDo(t *testing.T) {
	s := newSpans()
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{Store: r.Store, Scope: rig.Scope, Observer: s}))
		if _, err := onceq.Do(r.Context(), p, rig.Key("a"), nil, func(context.Context, *onceq.Job) (int, error) { return 1, nil }); err != nil {
			t.Fatal(err)
		}
		s.wantSpan(t, "a")
	})
}

// A job that Run has abandoned is told of, once, although its handler goes on.
func TestJobEndedOfAbandonedJobs(t *testing.T) {
	s := newSpans()
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error {
		rig.Takes(time.Hour)
		return nil
	}, func(r *rig.Rig) {
		m := rig.Message("a")
		m.Meta.ID = "a"
		r.Put(m)
		r.Start()
		rig.Pass(time.Minute)
		var drain *onceq.DrainError
		if err := r.Stop(); !errors.As(err, &drain) || len(drain.Jobs) != 1 || drain.Jobs[0] != "a" {
			t.Fatalf("Run answered %v", err)
		}
		s.wantSpan(t, "a")
		want := onceq.DefaultDrainTimeout + onceq.DefaultSettleTimeout + time.Minute
		if rec := s.Of("a")[0]; rec.Outcome != "abandoned" || rec.Process != want || rec.Attempt != 1 || rec.Fence == 0 {
			t.Errorf("the record is %+v", rec)
		}
		if n := r.Logged.Count("outcome=abandoned"); n != 1 {
			t.Errorf("%d log records", n)
		}
		rig.Pass(2 * time.Hour)
		s.wantSpan(t, "a")
	}, observedBy(s))
}

// A job is abandoned while its Key goes on, too. Key has seen the attributes that a replayed letter
// had brought in its metadata.
func TestJobEndedOfAbandonedKeys(t *testing.T) {
	s := newSpans()
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		m := rig.Message("a")
		m.Meta.ID = "a"
		m.Meta.Dead = &broker.Letter{Attributes: map[string]string{"tenant": "t-1"}}
		r.Put(m)
		r.Start()
		rig.Pass(time.Minute)
		var drain *onceq.DrainError
		if err := r.Stop(); !errors.As(err, &drain) || len(drain.Jobs) != 1 || drain.Jobs[0] != "a" {
			t.Fatalf("Run answered %v", err)
		}
		rig.Pass(2 * time.Hour)
	}, observedBy(s), rig.With(func(c *rig.Setup) {
		c.Key = func(m *broker.Message) (dedupe.Key, error) {
			if m.Attributes["tenant"] != "t-1" {
				t.Errorf("the attributes are %v", m.Attributes)
			}
			rig.Takes(time.Hour)
			return dedupe.Key{Key: "a"}, nil
		}
	}))
}

// A batch tells of abandoned jobs as well. One of the two has no slot, so nothing was claimed for
// it.
func TestJobEndedOfAbandonedDeliveries(t *testing.T) {
	s := newSpans()
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		rig.Takes(time.Hour)
		return nil
	}, func(r *rig.Rig) {
		ds := rig.Deliveries("a", "b")
		for i := range ds {
			ds[i].Until = time.Now().Add(time.Minute)
		}
		got := r.Process(r.Context(), ds...)
		for i, d := range got {
			if d.Report.Outcome != "abandoned" || d.Report.Key.Key != string(ds[i].Message.Body) {
				t.Errorf("the record is %+v", d.Report)
			}
			s.wantSpan(t, d.Report.JobID)
		}
		rig.Pass(2 * time.Hour)
	}, observedBy(s))
}
