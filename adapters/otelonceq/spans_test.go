package otelonceq_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/otelonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
)

// wantEnded checks that each span that was started has ended once.
func (l *spanLog) wantEnded(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	ends := make(map[string]int)
	for _, s := range l.ended {
		ends[s.SpanContext().SpanID().String()]++
	}
	for id := range l.started {
		if ends[id] != 1 {
			t.Errorf("a span has ended %d times", ends[id])
		}
	}
	if len(l.started) == 0 || len(ends) != len(l.started) {
		t.Errorf("%d spans were started, %d have ended", len(l.started), len(ends))
	}
}

// Whatever becomes of 1,000 jobs, each span ends once, and nobody is active at the end.
func TestSpansEndOnce(t *testing.T) {
	bubble(t, rigOptions{}, func(t *testing.T, r *rig) {
		const jobs = 300
		stuck := make(chan struct{})
		h := onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			var n int
			fmt.Sscan(j.Key().Key, &n)
			switch n % 10 {
			case 0:
				panic("boom")
			case 1:
				return onceq.Permanent(errBoom)
			case 2:
				return errBoom
			case 3: // outlives its Timeout
				<-ctx.Done()
				return ctx.Err()
			case 4: // takes over what another has begun, and loses it
				if j.Attempt == 1 {
					_, err := r.bare.Forget(ctx, []dedupe.Forgotten{{Key: j.Key(), Fence: j.Fence(), Force: true}})
					if err != nil {
						return err
					}
					<-ctx.Done()
				}
				return nil
			case 5:
				if n == jobs-5 { // does not end before the drain is over
					<-stuck
				}
				return nil
			}
			<-time.After(time.Millisecond)
			return nil
		})
		c := r.config(h)
		c.Defaults.MaxAttempts, c.Defaults.Timeout = 2, time.Minute
		w := r.worker(c, onceq.WorkerConfig{Concurrency: 50, DrainTimeout: 5 * time.Second})
		for i := 0; i < jobs; i += 50 {
			var ms []broker.Outgoing
			for n := i; n < i+50; n++ {
				ms = append(ms, message("charge", fmt.Sprint(n)))
			}
			r.send(ms...)
			r.send(ms[7]) // a duplicate
		}
		r.runFor(w, 2*time.Hour)
		fs := r.scrape()
		r.want(fs, 0, "jobs_active", "queue=orders")
		for _, outcome := range []onceq.Outcome{
			onceq.OutcomeDone, onceq.OutcomeRetried, onceq.OutcomeFailed, onceq.OutcomeLeaseLost, onceq.OutcomeAbandoned, onceq.OutcomeAlreadyDone,
		} {
			if n, _ := fs.value("jobs_ended_total", "outcome="+string(outcome)); n == 0 {
				t.Errorf("no job has ended as %s, so the test tests less than it says", outcome)
			}
		}
		r.spans.wantEnded(t)
		if n := len(r.spans.named("process orders")); n < jobs {
			t.Errorf("%d spans of %d jobs", n, jobs)
		}
		close(stuck)
		<-time.After(time.Minute)
		r.spans.wantEnded(t) // also where the handler ends after its span
	})
}

func TestProcessSpan(t *testing.T) {
	bubble(t, rigOptions{}, func(t *testing.T, r *rig) {
		var inside trace.SpanContext
		var fence uint64
		h := onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			inside, fence = trace.SpanContextFromContext(ctx), j.Fence()
			<-time.After(2 * time.Second)
			return nil
		})
		m := message("charge", "A-1")
		m.Meta.CorrelationID = "req-7"
		r.send(m)
		<-time.After(3 * time.Second)
		r.runFor(r.worker(r.config(h), onceq.WorkerConfig{}), time.Minute)
		s := r.spans.one(t, "process orders")
		sent := r.spans.one(t, "send orders")
		if s.SpanKind != trace.SpanKindConsumer || s.SpanContext.SpanID() != inside.SpanID() {
			t.Errorf("the handler had the span %v of kind %v", inside.SpanID(), s.SpanKind)
		}
		if s.SpanContext.TraceID() == sent.SpanContext.TraceID() || s.Parent.IsValid() || len(s.Links) != 1 || s.Links[0].SpanContext.SpanID() != sent.SpanContext.SpanID() {
			t.Errorf("parent %v, links %v; want a trace of its own with a link to %v", s.Parent, s.Links, sent.SpanContext.SpanID())
		}
		if d := s.EndTime.Sub(s.StartTime); d != 2*time.Second || s.Status.Code != codes.Unset {
			t.Errorf("took %v, status %v", d, s.Status)
		}
		if sent.SpanKind != trace.SpanKindProducer {
			t.Errorf("the send has kind %v", sent.SpanKind)
		}
		for name, want := range map[string]string{
			"messaging.system": "onceq_memory", "messaging.destination.name": "orders", "messaging.operation.type": "process",
			"messaging.message.conversation_id": "req-7", "onceq.job.key": "A-1", "onceq.job.type": "charge", "onceq.job.attempt": "1",
			"onceq.receives": "1", "onceq.outcome": "done", "onceq.queue_wait_ms": "3000", "error.type": "",
		} {
			if got := attributeOf(s, name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if got := attributeOf(s, "onceq.fence"); got != fmt.Sprint(fence) {
			t.Errorf("onceq.fence is %q, want %d", got, fence)
		}
	})
}

// A failure that is retried is no error of the trace; the last one is. The fence of a failed job is
// a permission, so no span has it.
func TestFailedSpans(t *testing.T) {
	bubble(t, rigOptions{}, func(t *testing.T, r *rig) {
		h := onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return errBoom })
		c := r.config(h)
		c.Defaults.MaxAttempts = 2
		r.send(message("charge", "A-1"))
		r.runFor(r.worker(c, onceq.WorkerConfig{}), time.Hour)
		ss := r.spans.named("process orders")
		if len(ss) != 2 {
			t.Fatalf("%d spans", len(ss))
		}
		if ss[0].Status.Code != codes.Unset || attributeOf(ss[0], "error.type") != "" || attributeOf(ss[0], "onceq.error_class") != "error" || attributeOf(ss[0], "onceq.fence") == "" {
			t.Errorf("the first run: status %v, attributes %v", ss[0].Status, ss[0].Attributes)
		}
		if ss[1].Status.Code != codes.Error || attributeOf(ss[1], "error.type") != "error" || !strings.Contains(ss[1].Status.Description, "boom") || attributeOf(ss[1], "onceq.fence") != "" ||
			attributeOf(ss[1], "onceq.outcome") != "failed" {
			t.Errorf("the last run: status %v, attributes %v", ss[1].Status, ss[1].Attributes)
		}
	})
}

// slowStore answers settlements after a while.
type slowStore struct {
	dedupe.Store
	by  time.Duration
	err error
}

func (s *slowStore) Unwrap() any { return s.Store }

func (s *slowStore) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	<-time.After(s.by)
	if s.err != nil {
		return nil, s.err
	}
	return s.Store.Settle(ctx, ss)
}

func TestSettleSpan(t *testing.T) {
	for by, want := range map[time.Duration]int{99 * time.Millisecond: 0, 150 * time.Millisecond: 1} {
		t.Run(by.String(), func(t *testing.T) {
			bubble(t, rigOptions{}, func(t *testing.T, r *rig) {
				r.store = &slowStore{Store: r.store, by: by}
				r.send(message("charge", "A-1"))
				h := onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil })
				r.runFor(r.worker(r.config(h), onceq.WorkerConfig{}), time.Minute)
				ss, process := r.spans.named("settle orders"), r.spans.one(t, "process orders")
				if len(ss) != want {
					t.Fatalf("%d spans, want %d", len(ss), want)
				}
				if want == 1 && (ss[0].Parent.SpanID() != process.SpanContext.SpanID() || !ss[0].StartTime.Equal(process.EndTime) ||
					ss[0].EndTime.Sub(ss[0].StartTime) < by || ss[0].SpanKind != trace.SpanKindClient || attributeOf(ss[0], "onceq.outcome") != "done") {
					t.Errorf("%+v", ss[0])
				}
				r.spans.wantEnded(t)
			})
		})
	}
}

// A job within a job: Do's span is inside the handler's, and its end does not end that one.
func TestDoSpan(t *testing.T) {
	bubble(t, rigOptions{}, func(t *testing.T, r *rig) {
		p := must.Get(onceq.NewProcessor(r.config(nil)))
		h := onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			for range 2 { // the second call gets the first one's result, and does not run
				_, err := onceq.Do(ctx, p, dedupe.Key{Key: "inner"}, nil, func(context.Context, *onceq.Job) (int, error) { return 1, nil })
				if err != nil {
					return err
				}
			}
			<-time.After(time.Second)
			return nil
		})
		r.send(message("charge", "A-1"))
		r.runFor(r.worker(r.config(h), onceq.WorkerConfig{}), time.Minute)
		outer, inner := r.spans.one(t, "process orders"), r.spans.one(t, "do orders")
		if inner.Parent.SpanID() != outer.SpanContext.SpanID() || inner.SpanKind != trace.SpanKindInternal ||
			attributeOf(inner, "onceq.job.key") != "inner" || attributeOf(inner, "onceq.outcome") != "done" {
			t.Errorf("%+v", inner)
		}
		if d := outer.EndTime.Sub(outer.StartTime); d != time.Second {
			t.Errorf("the outer span took %v", d)
		}
		r.spans.wantEnded(t)
		r.want(r.scrape(), 1, "messaging_process_duration_seconds") // a call of Do has no message
	})
}

// An Observer around ours may make a context of its own.
func TestObserverThatIsWrapped(t *testing.T) {
	bubble(t, rigOptions{}, func(t *testing.T, r *rig) {
		c := r.config(onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }))
		c.Observer = &wrapping{c.Observer}
		r.send(message("charge", "A-1"))
		r.runFor(r.worker(c, onceq.WorkerConfig{}), time.Minute)
		r.spans.one(t, "process orders")
		r.spans.wantEnded(t)
	})
}

type wrapping struct{ onceq.Observer }

type wrappingKey struct{}

func (w *wrapping) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	return context.WithValue(w.Observer.JobStarted(ctx, j), wrappingKey{}, true)
}

// Without a provider nothing is started, and the message stays as it is.
func TestNoTraces(t *testing.T) {
	bubble(t, rigOptions{noTraces: true, Options: otelonceq.Options{Parent: true}}, func(t *testing.T, r *rig) {
		var got []trace.SpanContext
		attributes := map[string]string{}
		h := onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			got = append(got, trace.SpanContextFromContext(ctx))
			attributes[j.Key().Key] = j.Message.Attributes[broker.TraceAttribute]
			return nil
		})
		r.send(message("charge", "plain"))
		w := r.worker(r.config(h), onceq.WorkerConfig{Concurrency: 1})
		r.runFor(w, time.Minute)
		// A caller's span goes along all the same.
		sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
		if err := onceq.Send(trace.ContextWithSpanContext(t.Context(), sc), r.queue, []broker.Outgoing{message("charge", "traced")}); err != nil {
			t.Fatal(err)
		}
		r.runFor(w, time.Minute)
		if len(got) != 2 || got[0].IsValid() || got[1].TraceID() != sc.TraceID() || attributes["plain"] != "" || attributes["traced"] == "" {
			t.Errorf("the handlers had %v, the messages %v", got, attributes)
		}
	})
}

// The rule: a run that is sent by one message is found by the queue's id and by the job's, on both
// sides.
func TestIDsOfBothSides(t *testing.T) {
	bubble(t, rigOptions{}, func(t *testing.T, r *rig) {
		r.send(message("charge", "A-1"))
		r.runFor(r.worker(r.config(onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil })), onceq.WorkerConfig{}), time.Minute)
		send, process := r.spans.one(t, "send orders"), r.spans.one(t, "process orders")
		for _, name := range []string{"messaging.message.id", "onceq.job.id"} {
			if a, b := attributeOf(send, name), attributeOf(process, name); a != b || a == "" {
				t.Errorf("%s is %q where it was sent, and %q where it ran", name, a, b)
			}
		}
		if attributeOf(send, "messaging.message.id") == attributeOf(send, "onceq.job.id") {
			t.Error("the queue's id is the job's")
		}
	})
}

// A batch has a span for each message, whose context it carries, and one for the call.
func TestSendSpans(t *testing.T) {
	for _, together := range []bool{false, true} {
		t.Run(fmt.Sprint("together ", together), func(t *testing.T) {
			r := newRig(t, rigOptions{Options: otelonceq.Options{NoCreateSpans: together}})
			to := &answers{Broker: r.raw}
			kept := message("charge", "A-3")
			kept.Attributes = map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "mine": "1"}
			ms := []broker.Outgoing{message("charge", "A-1"), message("mail", "A-2"), kept}
			// Two messages may share a caller's map, and two sends at once.
			shared := map[string]string{"mine": "1"}
			ms[0].Attributes, ms[1].Attributes = shared, shared
			if err := onceq.Send(context.Background(), r.tel.Sender(to), ms); err != nil {
				t.Fatal(err)
			}
			send := r.spans.one(t, "send orders")
			creates := r.spans.named("create orders")
			wanted, links := 2, 3
			kind := trace.SpanKindClient
			if together {
				wanted, links, kind = 0, 1, trace.SpanKindProducer
			}
			if len(creates) != wanted || len(send.Links) != links || send.SpanKind != kind || attributeOf(send, "messaging.batch.message_count") != "3" {
				t.Fatalf("%d create spans, send %+v", len(creates), send)
			}
			for i, m := range to.sent[0] {
				id := m.Attributes[broker.TraceAttribute]
				want := send.SpanContext
				switch {
				case i == 2:
					if id != kept.Attributes[broker.TraceAttribute] || m.Attributes["mine"] != "1" {
						t.Errorf("a message that had a context has %v", m.Attributes)
					}
					continue
				case !together:
					want = creates[i].SpanContext
				}
				if !strings.Contains(id, want.TraceID().String()) || !strings.Contains(id, want.SpanID().String()) {
					t.Errorf("message %d has %q, want %v", i, id, want.SpanID())
				}
			}
			for i, m := range ms {
				if i < 2 && len(m.Attributes) != 1 {
					t.Errorf("the caller's message %d was changed: %v", i, m.Attributes)
				}
			}
			if len(creates) > 1 && (attributeOf(creates[1], "onceq.job.key") != "A-2" || attributeOf(creates[1], "onceq.job.type") != "mail" ||
				attributeOf(creates[1], "onceq.job.id") != ms[1].Meta.ID || attributeOf(creates[1], "messaging.message.id") != "") {
				t.Errorf("%+v", creates[1])
			}
			r.spans.wantEnded(t)
		})
	}
}

func TestSendSpanOfAnError(t *testing.T) {
	r := newRig(t, rigOptions{})
	s := r.tel.Sender(&answers{Broker: r.raw, err: broker.ErrThrottled})
	if _, err := s.Send(context.Background(), []broker.Outgoing{message("a", "1")}); err == nil {
		t.Fatal("no error")
	}
	got := r.spans.one(t, "send orders")
	if got.Status.Code != codes.Error || attributeOf(got, "error.type") != "throttled" {
		t.Errorf("%+v", got)
	}
	r.want(r.scrape(), 1, "messaging_client_sent_messages_total", "error_type=throttled", "messaging_destination_name=orders")
}

func TestReceiveSpansAreOptIn(t *testing.T) {
	for _, on := range []bool{false, true} {
		bubble(t, rigOptions{Options: otelonceq.Options{Spans: otelonceq.SpanOptions{Receive: on}}}, func(t *testing.T, r *rig) {
			if _, err := r.queue.Receive(t.Context(), broker.ReceiveOptions{Max: 1}); err != nil {
				t.Fatal(err)
			}
			if n := len(r.spans.named("receive orders")); n == 1 != on {
				t.Errorf("%d spans, with the option %v", n, on)
			}
		})
	}
}

// A sampler sees what it may decide by.
func TestAttributesAtTheStart(t *testing.T) {
	s := &seeing{seen: map[string][]string{}}
	bubble(t, rigOptions{sampler: s}, func(t *testing.T, r *rig) {
		r.send(message("charge", "A-1"))
		r.runFor(r.worker(r.config(onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil })), onceq.WorkerConfig{}), time.Minute)
		for _, want := range []string{"messaging.system", "messaging.destination.name", "messaging.operation.type", "onceq.job.type", "onceq.job.attempt"} {
			if !slices.Contains(s.seen["process orders"], want) {
				t.Errorf("the sampler has not seen %s: %v", want, s.seen)
			}
		}
	})
}

type seeing struct{ seen map[string][]string }

func (s *seeing) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	for _, a := range p.Attributes {
		s.seen[p.Name] = append(s.seen[p.Name], string(a.Key))
	}
	return sdktrace.SamplingResult{Decision: sdktrace.Drop}
}

func (s *seeing) Description() string { return "seeing" }

// traces are the traces of spans.
func traces(ss tracetest.SpanStubs) map[trace.TraceID]int {
	ids := make(map[trace.TraceID]int)
	for _, s := range ss {
		ids[s.SpanContext.TraceID()]++
	}
	return ids
}
