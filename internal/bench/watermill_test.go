package bench

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/watermillonceq"
	"github.com/onceq/onceq/dedupe/memstore"
)

// BenchmarkWatermill compares a Router's handlers over Watermill's gochannel, which costs next to
// nothing, so what shows is what stands around the handler. The handler does nothing but return a
// message, where the name says so.
//
//	bare          the handler alone
//	deduplicator  Watermill's own, in memory; it drops the second message before the first succeeds
//	once          the middleware, on a store in memory
//	decorator     the same claim by a subscriber decorator
func BenchmarkWatermill(b *testing.B) {
	for _, c := range []struct {
		name   string
		blocks bool // a publish waits for the ack, so that messages come one by one
		n      int
	}{{"one-by-one", true, 5_000}, {"at-once", false, 10_000}} {
		b.Run(c.name, func(b *testing.B) {
			vs := []variant{
				{"bare", routed(nil, c.blocks, false)},
				{"deduplicator", routed(deduplicator, c.blocks, false)},
				{"once", routed(onceMiddleware, c.blocks, false)},
				{"decorator", routed(onceDecorator, c.blocks, false)},
				{"bare-produces", routed(nil, c.blocks, true)},
				{"once-produces", routed(onceMiddleware, c.blocks, true)},
			}
			b.ResetTimer()
			cs := compare(b, rounds, c.n, vs, nil)
			b.ReportMetric(0, "ns/op")
			for i, v := range vs {
				b.ReportMetric(cs[i].wall/1e3, v.name+"-µs/msg")
				b.ReportMetric(cs[i].beside, v.name+"-x-bare")
			}
		})
	}
}

func deduplicator(tb testing.TB, _ *message.Router) message.HandlerMiddleware {
	seen, err := middleware.NewMapExpiringKeyRepository(time.Hour)
	if err != nil {
		tb.Fatal(err)
	}
	d := middleware.Deduplicator{
		KeyFactory: func(m *message.Message) (string, error) { return m.UUID, nil }, Repository: seen, Timeout: time.Minute,
	}
	return d.Middleware
}

func onceDecorator(tb testing.TB, r *message.Router) message.HandlerMiddleware {
	d, err := watermillonceq.NewDecorator(watermillProcessor(tb), &watermillonceq.Options{Key: watermillonceq.KeyFromUUID})
	if err != nil {
		tb.Fatal(err)
	}
	r.AddSubscriberDecorators(d)
	return nil
}

func watermillProcessor(tb testing.TB) *onceq.Processor {
	store, err := memstore.New(nil)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "bench", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func onceMiddleware(tb testing.TB, _ *message.Router) message.HandlerMiddleware {
	m, err := watermillonceq.NewMiddleware(watermillProcessor(tb), &watermillonceq.Options{Key: watermillonceq.KeyFromUUID})
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// routed is a Router with a handler, and n messages for it.
func routed(with func(testing.TB, *message.Router) message.HandlerMiddleware, blocks, produces bool) func(context.Context, testing.TB, int) (run, after func()) {
	return func(ctx context.Context, tb testing.TB, n int) (run, after func()) {
		pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: blocks}, nil)
		r, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
		if err != nil {
			tb.Fatal(err)
		}
		w := newWork(n)
		r.AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				ms, err := h(msg)
				w.handle(nil)
				return ms, err
			}
		})
		if with != nil {
			if m := with(tb, r); m != nil {
				r.AddMiddleware(m)
			}
		}
		body := make([]byte, 100)
		r.AddHandler("h", "in", pubsub, "out", pubsub, func(*message.Message) ([]*message.Message, error) {
			if produces {
				return []*message.Message{message.NewMessage("m", body)}, nil
			}
			return nil, nil
		})
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		<-r.Running()
		ms := make([]*message.Message, n)
		for i := range ms {
			ms[i] = message.NewMessage(newKey(), body)
		}
		run = func() {
			for _, m := range ms {
				if err := pubsub.Publish("in", m); err != nil {
					tb.Fatal(err)
				}
			}
			<-w.all
		}
		return run, func() {
			if err := r.Close(); err != nil {
				tb.Error(err)
			}
			if err := <-ended; err != nil {
				tb.Error(err)
			}
		}
	}
}
