package otelonceq_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/otelonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/sqsfake"
)

// onSQS gives the rig queues of SQS in place of those in memory.
func (r *rig) onSQS() {
	r.Helper()
	s := sqsfake.New(nil)
	r.Cleanup(s.Close)
	client := sqs.New(sqs.Options{
		BaseEndpoint: &s.URL, HTTPClient: s.Client(), Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
	open := func(name string) broker.Broker {
		if _, err := s.CreateQueue(name, nil); err != nil {
			r.Fatal(err)
		}
		url, err := awssqs.Find(r.Context(), client, name)
		if err != nil {
			r.Fatal(err)
		}
		b, err := awssqs.New(client, url, nil)
		if err != nil {
			r.Fatal(err)
		}
		return r.tel.Broker(b)
	}
	r.queue, r.dead = open("orders"), open("orders-dead")
}

// A job is sent through SQS, fails, is tried again, becomes a letter, is replayed, and is done: one
// trace under Parent, and else traces that are linked to the send.
func TestTraceOverTheQueue(t *testing.T) {
	for _, parent := range []bool{false, true} {
		t.Run(fmt.Sprint("parent ", parent), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigOptions{Options: otelonceq.Options{Parent: parent}})
				r.onSQS()
				mended := false
				c := r.config(onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
					if mended {
						return nil
					}
					return errBoom
				}))
				c.Defaults.MaxAttempts = 2
				w := r.worker(c, onceq.WorkerConfig{})
				r.send(message("charge", "A-1"))
				r.runFor(w, time.Hour)
				mended = true
				r.replay()
				r.runFor(w, time.Hour)

				send, letter := r.spans.named("send orders"), r.spans.one(t, "send orders-dead")
				runs := r.spans.named("process orders")
				if len(send) != 2 || len(runs) != 3 || attributeOf(runs[2], "onceq.outcome") != "done" {
					t.Fatalf("%d sends, %d runs", len(send), len(runs))
				}
				origin := send[0].SpanContext
				all := append(tracetest.SpanStubs{send[0], letter, send[1]}, runs...)
				if parent {
					if ids := traces(all); len(ids) != 1 {
						t.Errorf("%d traces", len(ids))
					}
					for _, s := range all[1:] {
						if s.Parent.SpanID() != origin.SpanID() {
							t.Errorf("the parent of %q is %v, want %v", s.Name, s.Parent.SpanID(), origin.SpanID())
						}
					}
					return
				}
				if ids := traces(all); len(ids) != len(all) {
					t.Errorf("%d traces of %d spans", len(ids), len(all))
				}
				for _, s := range all[1:] {
					if len(s.Links) != 1 || s.Links[0].SpanContext.SpanID() != origin.SpanID() || s.Links[0].SpanContext.TraceID() != origin.TraceID() {
						t.Errorf("the links of %q are %v, want one to %v", s.Name, s.Links, origin.SpanID())
					}
				}
				r.spans.wantEnded(t)
			})
		})
	}
}

// SQS takes ten attributes, ours among them. What there is no room for is left out and counted,
// and the message is sent.
func TestContextWithoutRoom(t *testing.T) {
	state, err := trace.ParseTraceState("vendor=1")
	if err != nil {
		t.Fatal(err)
	}
	from := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state})
	for _, c := range []struct {
		attributes, body int
		has              []string
		lost             map[string]float64
	}{
		{7, 10, []string{"traceparent", "tracestate"}, nil},
		{8, 10, []string{"traceparent"}, map[string]float64{"tracestate": 1}},
		{9, 10, nil, map[string]float64{"tracestate": 1, "traceparent": 1}},
		{0, 1 << 20, nil, map[string]float64{"tracestate": 1, "traceparent": 1}},
	} {
		t.Run(fmt.Sprint(c.attributes, " attributes, ", c.body, " bytes"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigOptions{})
				r.onSQS()
				m := message("charge", "A-1")
				m.Attributes = make(map[string]string)
				for i := range c.attributes {
					m.Attributes[fmt.Sprint("a", i)] = "1"
				}
				if c.body > 10 {
					m.Body = bytes.Repeat([]byte("x"), c.body)
				}
				ctx := trace.ContextWithRemoteSpanContext(t.Context(), from)
				ms := []broker.Outgoing{m}
				if c.body > 10 { // as large as SQS takes it without a context
					if err := onceq.Fill(ms); err != nil {
						t.Fatal(err)
					}
					room := r.queue.Limits().MaxBody - len(broker.EncodeMeta(ms[0].Meta)) - len(broker.MetaAttribute) - len("String")
					ms[0].Body = m.Body[:room]
				}
				if err := onceq.Send(ctx, r.queue, ms); err != nil {
					t.Fatal(err)
				}
				got, err := r.queue.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1})
				if err != nil || len(got) != 1 {
					t.Fatal(len(got), err)
				}
				has := 0
				for _, name := range []string{"traceparent", "tracestate"} {
					if got[0].Attributes[name] != "" {
						has++
					}
				}
				if has != len(c.has) || has > 0 && got[0].Attributes["traceparent"] == "" || len(got[0].Attributes) != c.attributes+has {
					t.Errorf("the message has %v, want %v", got[0].Attributes, c.has)
				}
				fs := r.scrape()
				for part, n := range c.lost {
					r.want(fs, n, "trace_context_dropped_total", "queue=orders", "part="+part)
				}
				if _, there := fs["trace_context_dropped_total"]; there && c.lost == nil {
					t.Error("something was dropped although there was room")
				}
			})
		})
	}
}
