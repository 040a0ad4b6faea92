package watermillonceq_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/watermillonceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/onceqtest"
)

// The Router closes while a handler works. One that looks at its context gives its key back at
// once; one that is deaf keeps it until it ends, also beyond the Router's CloseTimeout, and its end
// is recorded.
func TestRouterCloses(t *testing.T) {
	for name, c := range map[string]struct {
		deaf, deafer bool
		status       dedupe.Status
	}{
		"listens": {status: dedupe.Released},
		"deaf":    {deaf: true, status: dedupe.Done},
		"deafer":  {deaf: true, deafer: true, status: dedupe.Done},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, w *world) {
				pubsub := channel(t)
				begun, may, ended := make(chan bool, 1), make(chan bool), make(chan bool)
				patience := 30 * time.Second
				if c.deafer {
					patience = 100 * time.Millisecond
				}
				tell := func(h message.HandlerFunc) message.HandlerFunc {
					return func(msg *message.Message) ([]*message.Message, error) {
						defer close(ended)
						return h(msg)
					}
				}
				stop := w.router(patience, func(r *message.Router) {
					r.AddMiddleware(tell, w.once(watermillonceq.Options{}))
					r.AddConsumerHandler("h", "orders", pubsub, func(msg *message.Message) error {
						begun <- true
						<-msg.Context().Done()
						if c.deaf {
							<-may
							return nil
						}
						return context.Cause(msg.Context())
					})
				})
				w.publish(pubsub, "orders", keyed("order-7"))
				<-begun
				if c.deaf && !c.deafer {
					time.AfterFunc(3*time.Second, func() { close(may) }) // longer than a lease
				}
				err := stop()
				if c.deafer != (err != nil) {
					t.Error("Close answered", err)
				}
				if c.deafer {
					takes(3 * time.Second)
					if r := w.record(`"h"order-7`); r.Status != dedupe.Claimed || time.Until(r.LeaseUntil) < 0 {
						t.Errorf("while the handler works the record is %+v", r)
					}
					close(may)
				}
				<-ended
				w.wantStatus(`"h"order-7`, c.status)
			})
		})
	}
}

// The store is away while the Router closes and the handler ends: that end is not recorded, the
// message is not acked, and the next process does the job, with the same key for its effect. Under
// Park nothing runs again.
func TestStoreAwayWhileClosing(t *testing.T) {
	for _, policy := range []dedupe.Policy{dedupe.Rerun, dedupe.Park} {
		t.Run(policy.String(), func(t *testing.T) {
			inTime(t, func(t *testing.T, w *world) {
				var process onceqtest.Process
				o := watermillonceq.Options{Interrupted: policy}
				var mu sync.Mutex
				charged, runs := map[string]bool{}, 0
				begun, may := make(chan bool, 2), make(chan bool)
				h := func(msg *message.Message) ([]*message.Message, error) {
					mu.Lock()
					charged[watermillonceq.Job(msg.Context()).EffectKey("charge")] = true
					runs++
					mu.Unlock()
					begun <- true
					<-may
					return nil, nil
				}
				pubsub := channel(t)
				answer := make(chan error, 1)
				tell := func(h message.HandlerFunc) message.HandlerFunc {
					return func(msg *message.Message) ([]*message.Message, error) {
						ms, err := h(msg)
						answer <- err
						return ms, err
					}
				}
				stop := w.router(30*time.Second, func(r *message.Router) {
					r.AddMiddleware(tell, w.onceAs(w.processor(process.Store), o))
					r.AddHandler("h", "orders", pubsub, "", pubsub, h)
				})
				w.publish(pubsub, "orders", keyed("order-7"))
				<-begun
				process.At(onceqtest.Fault{Kind: onceqtest.Fail, For: time.Hour})
				time.AfterFunc(200*time.Millisecond, func() { close(may) })
				if err := stop(); err != nil {
					t.Error(err)
				}
				var unsettled *onceq.UnsettledError
				if err := <-answer; !errors.As(err, &unsettled) || unsettled.RunErr != nil {
					t.Error("the Router was answered", err)
				}
				key := func(*message.Message) (dedupe.Key, error) { return dedupe.Key{Key: `"h"order-7`}, nil }
				_, err := w.once(watermillonceq.Options{Interrupted: policy, Key: key})(h)(keyed("order-7"))
				if policy == dedupe.Park {
					if runs != 1 || !watermillonceq.IsFinal(err) {
						t.Errorf("%d runs, %v", runs, err)
					}
				} else if runs != 2 || len(charged) != 1 || err != nil {
					t.Errorf("%d runs, %d charges, %v", runs, len(charged), err)
				}
			})
		})
	}
}

// A store that does not answer: the handler does not run, the answer comes in bounded time, and
// after the outage the job is done.
func TestStoreAway(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var process onceqtest.Process
		once := w.onceAs(w.processor(process.Store), watermillonceq.Options{})
		process.At(onceqtest.Fault{Kind: onceqtest.Fail, For: time.Minute})
		begin, tries := time.Now(), 0
		for ; time.Since(begin) < time.Minute; tries++ {
			_, err := once(mustNot(t))(keyed("order-7"))
			var notRun *onceq.NotRunError
			if !errors.As(err, &notRun) || watermillonceq.IsFinal(err) {
				t.Fatal("answered", err)
			}
		}
		if tries > 10 {
			t.Errorf("%d tries in a minute", tries)
		}
		if _, err := once(func(*message.Message) ([]*message.Message, error) { return nil, nil })(keyed("order-7")); err != nil {
			t.Error("after the outage:", err)
		}
	})
}

// A permanent error that could not be recorded is not final: nobody else knows of it.
func TestPermanentUnrecorded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var process onceqtest.Process
		once := w.onceAs(w.processor(process.Store), watermillonceq.Options{})
		_, err := once(func(*message.Message) ([]*message.Message, error) {
			process.At(onceqtest.Fault{Kind: onceqtest.Fail, For: time.Minute})
			return nil, onceq.Permanent(errBoom)
		})(keyed("order-7"))
		var unsettled *onceq.UnsettledError
		if !errors.As(err, &unsettled) || watermillonceq.IsFinal(err) {
			t.Error("answered", err)
		}
	})
}

// Another process takes the key from one that was away: its handler's context ends with the reason,
// and what it says is not taken for an end.
func TestLeaseLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var process onceqtest.Process
		once := w.onceAs(w.processor(process.Store), watermillonceq.Options{})
		answered := make(chan error, 1)
		go func() {
			_, err := once(func(msg *message.Message) ([]*message.Message, error) {
				<-msg.Context().Done()
				if !errors.Is(context.Cause(msg.Context()), onceq.ErrLeaseLost) {
					t.Error("the cause is", context.Cause(msg.Context()))
				}
				takes(2 * time.Minute) // deaf from here on
				return nil, nil
			})(keyed("order-7"))
			answered <- err
		}()
		takes(time.Second)
		process.At(onceqtest.Fault{Kind: onceqtest.Fail, For: time.Minute})
		takes(time.Minute)
		ms, err := w.once(watermillonceq.Options{Wait: time.Minute})(func(*message.Message) ([]*message.Message, error) {
			return []*message.Message{message.NewMessage("of the second", nil)}, nil
		})(keyed("order-7"))
		if err != nil || len(ms) != 1 {
			t.Error("the second:", ms, err)
		}
		err = <-answered
		var unsettled *onceq.UnsettledError
		if !errors.As(err, &unsettled) {
			t.Error("the first was answered", err)
		}
	})
}

// A panic passes through: it is recorded as an error, and Recoverer makes one of it outside.
func TestPanics(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		once := w.once(watermillonceq.Options{})
		h := middleware.Recoverer(once(func(*message.Message) ([]*message.Message, error) { panic(errBoom) }))
		msg := keyed("order-7")
		before := msg.Context()
		_, err := h(msg)
		var panicked middleware.RecoveredPanicError
		if !errors.As(err, &panicked) || panicked.V != any(errBoom) {
			t.Error("answered", err)
		}
		if msg.Context() != before {
			t.Error("the message keeps the context of a run that has ended")
		}
		if r := w.record("order-7"); r.Status != dedupe.Released || r.ErrClass != onceq.ClassPanic {
			t.Errorf("the record is %+v", r)
		}
		if _, err := once(func(*message.Message) ([]*message.Message, error) { return nil, nil })(keyed("order-7")); err != nil {
			t.Error("then", err)
		}
	})
}

// Retries inside are one run; retries outside are a claim each. Both end well.
func TestRetries(t *testing.T) {
	for _, outside := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			retry := middleware.Retry{MaxRetries: 3, InitialInterval: time.Second, Multiplier: 1}.Middleware
			once := w.once(watermillonceq.Options{})
			runs, attempts := 0, map[int]bool{}
			h := func(msg *message.Message) ([]*message.Message, error) {
				attempts[watermillonceq.Job(msg.Context()).Attempt] = true
				if msg.Context().Err() != nil {
					t.Error("the context has ended before the run")
				}
				if runs++; runs < 3 {
					return nil, errBoom
				}
				return nil, nil
			}
			chain, want := once(retry(h)), 1
			if outside {
				chain, want = retry(once(h)), 3
			}
			if _, err := chain(keyed("order-7")); err != nil || runs != 3 || len(attempts) != want {
				t.Errorf("outside %v: %d runs, attempts %v, %v", outside, runs, attempts, err)
			}
			w.wantStatus("order-7", dedupe.Done)
		})
	}
}

// Correlation ids go with what is published again, wherever their middleware stands.
func TestCorrelation(t *testing.T) {
	for _, outside := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			for range 2 {
				chain := w.once(watermillonceq.Options{})(middleware.CorrelationID(func(*message.Message) ([]*message.Message, error) {
					return []*message.Message{message.NewMessage("m", nil)}, nil
				}))
				if outside {
					chain = middleware.CorrelationID(w.once(watermillonceq.Options{})(func(*message.Message) ([]*message.Message, error) {
						return []*message.Message{message.NewMessage("m", nil)}, nil
					}))
				}
				msg := keyed("order-7")
				middleware.SetCorrelationID("c-1", msg)
				ms, err := chain(msg)
				if err != nil || len(ms) != 1 || middleware.MessageCorrelationID(ms[0]) != "c-1" {
					t.Errorf("outside %v: %v, %v", outside, ms, err)
				}
			}
		})
	}
}

// Timeout ends the handler's context, and the message's own bounds the run as well.
func TestTimeouts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := func(msg *message.Message) ([]*message.Message, error) {
			<-msg.Context().Done()
			return nil, context.Cause(msg.Context())
		}
		if _, err := w.once(watermillonceq.Options{Timeout: time.Second})(h)(keyed("a")); !errors.Is(err, onceq.ErrTimeout) {
			t.Error("Timeout:", err)
		}
		if _, err := middleware.Timeout(time.Second)(w.once(watermillonceq.Options{})(h))(keyed("b")); !errors.Is(err, context.DeadlineExceeded) {
			t.Error("Watermill's Timeout:", err)
		}
		msg := keyed("c")
		ctx, end := context.WithCancel(t.Context())
		end()
		msg.SetContext(ctx)
		if _, err := w.once(watermillonceq.Options{})(mustNot(t))(msg); !errors.Is(err, context.Canceled) || watermillonceq.IsFinal(err) {
			t.Error("a context that has ended:", err)
		}
	})
}

// What a handler produced is larger than the store takes: it is published once, and later
// deliveries are final, because nobody can give it again.
func TestProducedTooLarge(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		small, err := memstore.New(&memstore.Options{MaxResult: 100})
		if err != nil {
			t.Fatal(err)
		}
		w.store = small
		h := func(*message.Message) ([]*message.Message, error) {
			return []*message.Message{message.NewMessage("m", make([]byte, 1000))}, nil
		}
		once := w.once(watermillonceq.Options{})
		if ms, err := once(h)(keyed("order-7")); err != nil || len(ms) != 1 || ms[0].Metadata.Get(watermillonceq.KeyMetadata) == "" {
			t.Error("the first delivery:", ms, err)
		}
		if _, err := once(mustNot(t))(keyed("order-7")); !watermillonceq.IsFinal(err) || onceq.ClassOf(err) != onceq.ClassResult {
			t.Error("the second delivery:", err)
		}
	})
}

// With a fingerprint, one key for two messages is a mistake of the producer's that is seen.
func TestFingerprint(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		once := w.once(watermillonceq.Options{Fingerprint: func(m *message.Message) []byte { return m.Payload }})
		runs := 0
		h := func(*message.Message) ([]*message.Message, error) { runs++; return nil, nil }
		other := keyed("order-7")
		other.Payload = []byte("other")
		if _, err := once(h)(keyed("order-7")); err != nil {
			t.Error(err)
		}
		_, err := once(h)(other)
		if !watermillonceq.IsFinal(err) || onceq.ClassOf(err) != onceq.ClassMismatch || runs != 1 {
			t.Errorf("%d runs, %v", runs, err)
		}
		if _, err := once(h)(keyed("order-7")); err != nil {
			t.Error(err)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.processor(nil)
		none, err := onceq.NewProcessor(onceq.ProcessorConfig{Store: onceq.NoStore, Scope: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		for want, c := range map[string]struct {
			p *onceq.Processor
			o watermillonceq.Options
		}{
			"the Processor is nil":  {nil, watermillonceq.Options{}},
			"ProcessorConfig.Store": {none, watermillonceq.Options{}},
			"Options.Wait: -1s":     {p, watermillonceq.Options{Wait: -time.Second}},
			"Options.Wait: 5ns":     {p, watermillonceq.Options{Wait: 5}},
			"Options.Timeout: -1s":  {p, watermillonceq.Options{Timeout: -time.Second}},
			"Options.Timeout: 5ns":  {p, watermillonceq.Options{Timeout: 5}},
			"MaxAttempts: -1":       {p, watermillonceq.Options{MaxAttempts: -1}},
			"neither Rerun nor Par": {p, watermillonceq.Options{Interrupted: 9}},
		} {
			_, err := watermillonceq.NewMiddleware(c.p, &c.o)
			_, same := watermillonceq.NewDecorator(c.p, &c.o)
			if err == nil || !strings.Contains(err.Error(), want) || same == nil || same.Error() != err.Error() {
				t.Errorf("want %q: %v; %v", want, err, same)
			}
		}
	})
}

// The decorator: a Router's handler under a claim that ends with the Ack, after the publish.
func TestDecorator(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		decorate, err := watermillonceq.NewDecorator(w.processor(nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		pubsub := channel(t)
		var effects, published atomic.Int64
		made, err := pubsub.Subscribe(t.Context(), "made")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for m := range made {
				if r := w.record(`"h"order-7`); r == nil || r.Status != dedupe.Claimed {
					t.Errorf("when the message is published, the record is %+v", r)
				}
				published.Add(1)
				m.Ack()
			}
		}()
		stop := w.router(0, func(r *message.Router) {
			r.AddSubscriberDecorators(decorate)
			r.AddHandler("h", "orders", pubsub, "made", slowPublisher{pubsub}, func(msg *message.Message) ([]*message.Message, error) {
				if watermillonceq.Job(msg.Context()) == nil {
					t.Error("the context has no job")
				}
				if effects.Add(1) == 1 {
					return nil, errBoom // and again, after the nack
				}
				takes(time.Minute)
				return []*message.Message{message.NewMessage("m", nil)}, nil
			})
		})
		for range 50 {
			w.publish(pubsub, "orders", keyed("order-7"))
		}
		takes(5 * time.Minute)
		if effects.Load() != 2 || published.Load() != 1 {
			t.Errorf("%d runs, want the failed one and one more; %d published", effects.Load(), published.Load())
		}
		w.wantStatus(`"h"order-7`, dedupe.Done)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// slowPublisher lets time pass behind a publish, so that what happens then can be seen.
type slowPublisher struct{ message.Publisher }

func (p slowPublisher) Publish(topic string, ms ...*message.Message) error {
	err := p.Publisher.Publish(topic, ms...)
	takes(time.Second)
	return err
}

// Close, while messages wait to be handed on and others are handed on: the first go back unclaimed,
// the others keep their claims until their Ack.
func TestDecoratorCloses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		decorate, err := watermillonceq.NewDecorator(w.processor(nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		pubsub := channel(t)
		sub, err := decorate(pubsub)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := sub.Subscribe(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		go pubsub.Publish("orders", keyed("a"))
		one := <-ms
		go pubsub.Publish("orders", keyed("b")) // nobody takes it
		takes(time.Second)
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
		if _, open := <-ms; open {
			t.Error("the channel is open")
		}
		if r := w.record("b"); r != nil && r.Status != dedupe.Released {
			t.Errorf("the record of what was not handed on is %+v", r)
		}
		takes(10 * time.Minute)
		w.wantStatus("a", dedupe.Claimed)
		one.Ack()
		takes(time.Second)
		w.wantStatus("a", dedupe.Done)
		if one.Context().Err() == nil {
			t.Error("the context has not ended")
		}
	})
}

// The decorator nacks what is final, or asks OnFinal.
func TestDecoratorFinal(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var seen atomic.Int64
		o := watermillonceq.Options{MaxAttempts: 2, OnFinal: func(_ *message.Message, e *watermillonceq.FinalError) error {
			if seen.Add(1) == 1 {
				return errBoom // the poison queue is away: it comes again
			}
			return nil
		}}
		decorate, err := watermillonceq.NewDecorator(w.processor(nil), &o)
		if err != nil {
			t.Fatal(err)
		}
		pubsub := channel(t)
		sub, err := decorate(pubsub)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := sub.Subscribe(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		w.publish(pubsub, "orders", keyed("a"))
		for range 2 {
			(<-ms).Nack()
		}
		takes(time.Minute)
		if seen.Load() != 2 {
			t.Errorf("OnFinal was called %d times", seen.Load())
		}
		w.wantStatus("a", dedupe.Failed)
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	})
}
