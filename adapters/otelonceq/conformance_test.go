package otelonceq_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/otelonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/broker/brokertest"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dedupetest"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/must"
)

// A decorated broker keeps the contract, with a span around everything.
func TestBrokerConformance(t *testing.T) {
	for _, p := range []membroker.Preset{membroker.Memory, membroker.SQSFIFO, membroker.PubSub} {
		t.Run(p.String(), func(t *testing.T) {
			h := brokertest.Harness{
				Virtual: true, StaleReceiptsVoid: true,
				Open: func(t testing.TB, o brokertest.QueueOptions) brokertest.Queue {
					r := newRig(t, rigOptions{Options: otelonceq.Options{Spans: otelonceq.SpanOptions{Receive: true}, Propagator: nothing{}}})
					options := membroker.Options{Preset: p, Visibility: o.Visibility}
					var q brokertest.Queue
					if o.MaxReceives > 0 {
						letters := must.Get(membroker.New(&membroker.Options{Preset: p, Visibility: o.Visibility}))
						options.Redrive = &membroker.Redrive{MaxReceives: o.MaxReceives, To: letters}
						q.DeadLetters = r.tel.Broker(letters)
					}
					b := must.Get(membroker.New(&options))
					q.Broker, q.Close, q.SendRaw = r.tel.Broker(b), b.Close, b.SendRaw
					return q
				},
			}
			if p == membroker.SQSFIFO {
				h.DedupWindow = 5 * time.Minute
			}
			brokertest.Run(t, h)
		})
	}
}

// nothing adds no attribute, because the suite compares what comes with what it sent.
type nothing struct{ otelNothing }

func TestStoreConformance(t *testing.T) {
	dedupetest.Run(t, dedupetest.Harness{
		Virtual: true,
		Open: func(t testing.TB) dedupetest.Subject {
			s := must.Get(memstore.New(nil))
			return dedupetest.Subject{Store: newRig(t, rigOptions{noTraces: true}).tel.Store(s)}
		},
	})
}

// Whatever a driver or store can do is found through the decorator, and it is the same queue.
func TestPowersAreFound(t *testing.T) {
	r := newRig(t, rigOptions{noTraces: true})
	for what, found := range map[string]bool{
		"Depther":              has[broker.Depther](r.queue),
		"Redriver":             has[broker.Redriver](r.queue),
		"Describer":            has[broker.Describer](r.queue),
		"Depther of a Sender":  has[broker.Depther](r.tel.Sender(r.raw)),
		"Sweeper":              has[dedupe.Sweeper](r.store),
		"the store itself":     has[*memstore.Store](r.store),
		"the broker itself":    has[*membroker.Broker](r.tel.Broker(r.queue)),
		"the sender's broker":  has[*membroker.Broker](r.tel.Sender(r.queue)),
		"a broker of a Sender": has[broker.Receiver](r.tel.Sender(r.raw)),
	} {
		if !found {
			t.Errorf("%s is not found", what)
		}
	}
	if has[broker.Depther](r.tel.Sender(bareSender{})) {
		t.Error("a power is found that the sender has not")
	}
	if d := r.queue.(broker.Describer).Describe(); d.Name != "orders" || d.System != "onceq_memory" {
		t.Errorf("described as %+v", d)
	}
	if r.tel.Broker(nil) != nil || r.tel.Sender(nil) != nil || r.tel.Store(nil) != nil {
		t.Error("nil is decorated")
	}
	p, err := onceq.NewProcessor(r.config(onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil })))
	if err != nil {
		t.Fatal(err)
	}
	var config *onceq.ConfigError
	if _, err := p.Worker(r.queue, onceq.WorkerConfig{DeadLetter: r.tel.Broker(r.raw)}); !errors.As(err, &config) {
		t.Errorf("a queue that is its own dead-letter queue, decorated: %v", err)
	}
	// NoStore and KeepInQueue keep their meaning.
	c := r.config(onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }))
	c.Store = r.tel.Store(onceq.NoStore)
	if p, err = onceq.NewProcessor(c); err != nil {
		t.Fatal(err)
	}
	if _, err := onceq.Do(t.Context(), p, dedupe.Key{Key: "a"}, nil, func(context.Context, *onceq.Job) (int, error) { return 1, nil }); !errors.Is(err, onceq.ErrNoStore) {
		t.Errorf("Do on a decorated NoStore answers %v", err)
	}
}

func has[T any](v any) bool {
	_, ok := broker.As[T](v)
	return ok
}

type bareSender struct{}

func (bareSender) Send(context.Context, []broker.Outgoing) ([]string, error) { return nil, nil }
func (bareSender) Limits() broker.Limits                                     { return broker.Limits{SendBatch: 1} }

// failing is a store whose calls fail.
type failing struct {
	dedupe.Store
	err, entry error
}

func (f *failing) Claim(context.Context, []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	return []dedupe.Claim{{Err: f.entry}}, f.err
}

func (f *failing) Renew(context.Context, []dedupe.Renewal) ([]dedupe.Renewed, error) {
	return []dedupe.Renewed{{Err: f.entry}}, f.err
}

func TestStoreCalls(t *testing.T) {
	for _, c := range []struct {
		err, entry error
		want       string
	}{
		{nil, nil, "ok"},
		{nil, dedupe.ErrLeaseLost, "ok"}, // an answer, as the contract has it
		{nil, errBoom, "error"},
		{errBoom, nil, "error"},
		{context.DeadlineExceeded, nil, "timeout"},
	} {
		r := newRig(t, rigOptions{noTraces: true})
		s := r.tel.Store(&failing{Store: r.bare, err: c.err, entry: c.entry})
		if as, err := s.Claim(t.Context(), make([]dedupe.ClaimRequest, 1)); len(as) != 1 || !errors.Is(err, c.err) {
			t.Errorf("%v, %v", as, err)
		}
		if _, err := s.Renew(t.Context(), make([]dedupe.Renewal, 1)); !errors.Is(err, c.err) {
			t.Error(err)
		}
		for range s.List(t.Context(), dedupe.Query{}) {
			t.Error("a record")
		}
		fs := r.scrape()
		for _, op := range []string{"claim", "renew"} {
			r.want(fs, 1, "store_call_seconds", "store=otelonceq_test", "operation="+op, "outcome="+c.want)
		}
		r.want(fs, 1, "store_call_seconds", "operation=list", "outcome=ok")
	}
}

func TestStoreName(t *testing.T) {
	r := newRig(t, rigOptions{noTraces: true})
	if _, err := r.tel.Store(r.store).Get(t.Context(), []dedupe.Key{{Scope: "s", Key: "k"}}); err != nil {
		t.Fatal(err)
	}
	r.want(r.scrape(), 2, "store_call_seconds", "store=memstore", "operation=get", "outcome=ok")
}
