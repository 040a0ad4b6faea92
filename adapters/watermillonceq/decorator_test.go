package watermillonceq_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq/adapters/watermillonceq"
	"github.com/onceq/onceq/dedupe"
)

// decorated is a subscriber under claims.
func (w *world) decorated(inner message.Subscriber, o watermillonceq.Options) message.Subscriber {
	w.Helper()
	decorate, err := watermillonceq.NewDecorator(w.processor(nil), &o)
	if err != nil {
		w.Fatal(err)
	}
	sub, err := decorate(inner)
	if err != nil {
		w.Fatal(err)
	}
	return sub
}

// fixed is a subscriber that gives these messages, and leaves them at its Close.
type fixed chan *message.Message

func (f fixed) Subscribe(context.Context, string) (<-chan *message.Message, error) { return f, nil }

func (f fixed) Close() error {
	close(f)
	return nil
}

// What was never handed on has not run: it takes no attempt, and Park has nothing to park. So it is
// handed on later, whatever ended the wait of the first delivery.
func TestDecoratorNotHandedOn(t *testing.T) {
	for _, o := range []watermillonceq.Options{
		{MaxAttempts: 1},
		{Interrupted: dedupe.Park},
		{MaxAttempts: 1, Interrupted: dedupe.Park},
	} {
		for name, ends := range map[string]func(sub message.Subscriber, end context.CancelFunc){
			"Close":                 func(sub message.Subscriber, _ context.CancelFunc) { _ = sub.Close() },
			"the message's context": func(_ message.Subscriber, end context.CancelFunc) { end() },
			"Timeout":               func(message.Subscriber, context.CancelFunc) {},
		} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					o := o
					o.OnFinal = func(_ *message.Message, e *watermillonceq.FinalError) error {
						t.Error("it is final:", e)
						return nil
					}
					if name == "Timeout" {
						o.Timeout = 10 * time.Second
					}
					msg := keyed("a")
					ctx, end := context.WithCancel(t.Context())
					defer end()
					msg.SetContext(ctx)
					inner := make(fixed)
					sub := w.decorated(inner, o)
					if _, err := sub.Subscribe(t.Context(), "orders"); err != nil {
						t.Fatal(err)
					}
					inner <- msg
					takes(time.Second) // nobody takes it
					w.wantStatus("a", dedupe.Claimed)
					ends(sub, end)
					<-msg.Nacked()
					if r := w.record("a"); r != nil && (r.Status != dedupe.Released || r.Attempt != 0) {
						t.Errorf("the record of what was not handed on is %+v", r)
					}

					inner = make(fixed)
					ms, err := w.decorated(inner, o).Subscribe(t.Context(), "orders")
					if err != nil {
						t.Fatal(err)
					}
					again := keyed("a")
					inner <- again
					select {
					case m := <-ms:
						m.Ack()
					case <-time.After(time.Minute):
						t.Fatal("it is never handed on")
					}
					<-again.Acked()
					w.wantStatus("a", dedupe.Done)
					close(inner)
					if name != "Close" {
						_ = sub.Close()
					}
				})
			})
		}
	}
}

// What was handed on, and then cut off, may have had its effect: Park parks it.
func TestDecoratorParks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inner := make(fixed)
		sub := w.decorated(inner, watermillonceq.Options{Interrupted: dedupe.Park})
		ms, err := sub.Subscribe(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		msg := keyed("a")
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		msg.SetContext(ctx)
		inner <- msg
		m := <-ms
		if at, ok := m.Context().Deadline(); !ok || time.Until(at) > time.Minute {
			t.Errorf("the deadline is %v, %v", at, ok)
		}
		<-m.Context().Done()
		m.Nack()
		<-msg.Nacked()
		w.wantStatus("a", dedupe.Parked)
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A function of the user's that panics costs a nack, and not the process.
func TestDecoratorPanics(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		log := new(logged)
		inner := make(fixed)
		sub := w.decorated(inner, watermillonceq.Options{Logger: log, Key: func(msg *message.Message) (dedupe.Key, error) {
			if msg.UUID == "bad" {
				panic("index out of range")
			}
			return dedupe.Key{Key: msg.UUID}, nil
		}})
		ms, err := sub.Subscribe(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		bad, good := message.NewMessage("bad", nil), message.NewMessage("good", nil)
		inner <- bad
		<-bad.Nacked()
		inner <- good
		(<-ms).Ack()
		<-good.Acked()
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
		if log.errors() != 1 {
			t.Errorf("%d errors were logged", log.errors())
		}
	})
}

// After Close a subscription is refused by the inner subscriber or, where that goes on, by us.
func TestDecoratorSubscribeAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		sub := w.decorated(make(fixed), watermillonceq.Options{})
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
		if _, err := sub.Subscribe(t.Context(), "orders"); err != watermillonceq.ErrClosed {
			t.Errorf("got %v", err)
		}
	})
}

// A delivery that waits for another run of its key holds no Close up, and neither does the end of
// the subscription's context, where the inner subscriber lets the messages' contexts live.
func TestDecoratorClosesWhileWaiting(t *testing.T) {
	for _, closes := range []bool{true, false} {
		bubble(t, func(t *testing.T, w *world) {
			go func() {
				_, _ = w.once(watermillonceq.Options{})(func(*message.Message) ([]*message.Message, error) {
					takes(time.Hour)
					return nil, nil
				})(keyed("a"))
			}()
			takes(time.Second)
			inner := make(fixed)
			sub := w.decorated(inner, watermillonceq.Options{Wait: 30 * time.Minute})
			ctx, end := context.WithCancel(t.Context())
			defer end()
			if _, err := sub.Subscribe(ctx, "orders"); err != nil {
				t.Fatal(err)
			}
			msg := keyed("a")
			inner <- msg
			takes(time.Minute)
			begin := time.Now()
			if closes {
				go func() { _ = sub.Close() }()
			} else {
				end()
			}
			<-msg.Nacked()
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("it went back after %v", took)
			}
			if !closes {
				_ = sub.Close()
			}
			takes(2 * time.Hour)
		})
	}
}
