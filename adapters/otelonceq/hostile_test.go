package otelonceq_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/otelonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

// Whoever may send chooses the attributes of a message. A context that is none is as if there were
// none: the job runs, in a trace of its own, and what comes along is bounded.
func TestContextsOfStrangers(t *testing.T) {
	good := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, attributes := range map[string]map[string]string{
		"no context":        {"traceparent": "hello"},
		"empty":             {"traceparent": ""},
		"zero ids":          {"traceparent": "00-00000000000000000000000000000000-0000000000000000-01"},
		"upper case":        {"traceparent": strings.ToUpper(good)},
		"version ff":        {"traceparent": "ff" + good[2:]},
		"more in version 0": {"traceparent": good + "-more"},
		"unknown flags":     {"traceparent": good[:len(good)-2] + "ff"},
		"no UTF-8":          {"traceparent": "\xff\xfe" + good},
		"lines":             {"traceparent": good + "\r\nx: y"},
		"a megabyte":        {"traceparent": strings.Repeat(good, 20_000)},
		"state alone":       {"tracestate": "a=b", "baggage": "k=v"},
		"bad baggage":       {"baggage": strings.Repeat("k=v,", 100_000)},
	} {
		t.Run(name, func(t *testing.T) {
			both := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
			bubble(t, rigOptions{Options: otelonceq.Options{Parent: true, Propagator: both}}, func(t *testing.T, r *rig) {
				carried := -1
				h := onceq.HandlerFunc(func(ctx context.Context, _ *onceq.Job) error {
					carried = baggage.FromContext(ctx).Len()
					return nil
				})
				m := message("charge", "A-1")
				m.Attributes = attributes
				if err := onceq.SendOne(t.Context(), r.raw, &m); err != nil { // a sender without telemetry
					t.Fatal(err)
				}
				r.runFor(r.worker(r.config(h), onceq.WorkerConfig{}), time.Minute)
				if r.done("A-1") != 1 || carried < 0 || carried > 200 {
					t.Errorf("the job is %s, with %d members of baggage", statusOf(r, "A-1"), carried)
				}
				s := r.spans.one(t, "process orders")
				if s.Parent.IsValid() || len(s.Links) != 0 {
					t.Errorf("parent %v, links %v", s.Parent, s.Links)
				}
				r.spans.wantEnded(t)
			})
		})
	}
	t.Run("huge state", func(t *testing.T) { // the context is good, and stands without the state
		bubble(t, rigOptions{}, func(t *testing.T, r *rig) {
			m := message("charge", "A-1")
			m.Attributes = map[string]string{"traceparent": good, "tracestate": strings.Repeat("a=b,", 100_000)}
			if err := onceq.SendOne(t.Context(), r.raw, &m); err != nil {
				t.Fatal(err)
			}
			r.runFor(r.worker(r.config(succeed), onceq.WorkerConfig{}), time.Minute)
			s := r.spans.one(t, "process orders")
			if len(s.Links) != 1 || s.Links[0].SpanContext.TraceID().String() != good[3:35] || s.Links[0].SpanContext.TraceState().Len() != 0 {
				t.Errorf("links %v", s.Links)
			}
		})
	})
}

// A message that came with an attribute of the name, whatever is in it, keeps it: it is the user's.
func TestContextThatIsNone(t *testing.T) {
	r := newRig(t, rigOptions{})
	for i, n := range []int{1, 2} {
		to := &answers{Broker: r.raw}
		var ms []broker.Outgoing
		for k := range n {
			m := message("charge", fmt.Sprint(i, k))
			m.Attributes = map[string]string{"traceparent": "mine"}
			ms = append(ms, m)
		}
		if err := onceq.Send(t.Context(), r.tel.Sender(to), ms); err != nil {
			t.Fatal(err)
		}
		for _, m := range to.sent[0] {
			if m.Attributes["traceparent"] != "mine" || len(m.Attributes) != 1 {
				t.Errorf("the message has %v", m.Attributes)
			}
		}
	}
	r.spans.wantEnded(t)
}

// byBaggage makes a header of each member of a caller's baggage, as some propagators do.
type byBaggage struct{ propagation.TraceContext }

func (p byBaggage) Inject(ctx context.Context, c propagation.TextMapCarrier) {
	p.TraceContext.Inject(ctx, c)
	for _, m := range baggage.FromContext(ctx).Members() {
		c.Set("baggage-"+m.Key(), m.Value())
	}
}

// The names of headers that a caller has chosen become no labels.
func TestLostPartsAreBounded(t *testing.T) {
	r := newRig(t, rigOptions{Options: otelonceq.Options{Propagator: byBaggage{}}})
	full := &answers{Broker: &oneAttribute{r.raw}}
	for i := range 100 {
		member := must.Get(baggage.NewMemberRaw(fmt.Sprint("key", i), "v"))
		b := must.Get(baggage.New(member))
		m := message("charge", fmt.Sprint(i))
		if err := onceq.SendOne(baggage.ContextWithBaggage(t.Context(), b), r.tel.Sender(full), &m); err != nil {
			t.Fatal(err)
		}
	}
	fs := r.scrape()
	r.want(fs, 100, "trace_context_dropped_total", "part=_other")
	r.want(fs, 100, "trace_context_dropped_total", "part=traceparent")
	if n := len(distinct(fs, "part")); n != 2 {
		t.Errorf("%d parts", n)
	}
}

// oneAttribute has room for our own attribute alone.
type oneAttribute struct{ broker.Broker }

func (o *oneAttribute) Unwrap() any { return o.Broker }

func (o *oneAttribute) Limits() broker.Limits {
	l := o.Broker.Limits()
	l.MaxAttributes = 1
	return l
}

// A span that is around the batch, such as that of a serverless function's call, is linked. Each
// job has a trace of its own in it, or the sender's under Parent.
func TestAmbientSpan(t *testing.T) {
	sent := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, parent := range []bool{false, true} {
		t.Run(fmt.Sprint("parent ", parent), func(t *testing.T) {
			bubble(t, rigOptions{Options: otelonceq.Options{Parent: parent}}, func(t *testing.T, r *rig) {
				p := must.Get(onceq.NewProcessor(r.config(succeed)))
				batches := must.Get(p.Batches(onceq.BatchConfig{DeadLetter: r.dead}))
				m := message("charge", "A-1")
				if err := onceq.Fill([]broker.Outgoing{m}); err != nil {
					t.Fatal(err)
				}
				ctx, call := r.tracers.Tracer("function").Start(t.Context(), "invocation")
				batches.Process(ctx, []onceq.Delivery{{
					Message: &broker.Message{ID: "1", Body: m.Body, Meta: m.Meta, Attributes: map[string]string{"traceparent": sent}},
					Until:   time.Now().Add(time.Minute),
				}}, nil, func(int, onceq.Disposition) {})
				call.End()
				s := r.spans.one(t, "process orders")
				linked := make(map[trace.SpanID]bool)
				for _, l := range s.Links {
					linked[l.SpanContext.SpanID()] = true
				}
				if !linked[call.SpanContext().SpanID()] || s.SpanContext.TraceID() == call.SpanContext().TraceID() {
					t.Errorf("the call's span %v is no link of %+v", call.SpanContext().SpanID(), s)
				}
				if inSent := s.SpanContext.TraceID().String() == sent[3:35]; inSent != parent || s.Parent.IsValid() != parent || len(linked) == 2 == parent {
					t.Errorf("trace %v, parent %v, links %v", s.SpanContext.TraceID(), s.Parent, s.Links)
				}
				r.spans.wantEnded(t)
			})
		})
	}
}
