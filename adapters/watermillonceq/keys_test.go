package watermillonceq_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/watermillonceq"
	"github.com/onceq/onceq/dedupe"
)

// A KeyFunc that answers the empty key has found none: with a handler's name before it, all such
// messages would be one job, and all but the first would be dropped.
func TestEmptyKey(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		pubsub := channel(t)
		o := watermillonceq.Options{
			Key: func(msg *message.Message) (dedupe.Key, error) { return dedupe.Key{Key: msg.Metadata.Get("order")}, nil },
		}
		var mu sync.Mutex
		var refused []string
		o.OnFinal = func(msg *message.Message, e *watermillonceq.FinalError) error {
			if !errors.Is(e, watermillonceq.ErrNoKey) || e.ErrorClass() != onceq.ClassNoKey {
				t.Errorf("the error is %v", e)
			}
			if text := e.Error(); !strings.HasPrefix(text, "watermillonceq: no delivery will run this message: ") {
				t.Errorf("the text of an error without a key is %q", text)
			}
			mu.Lock()
			defer mu.Unlock()
			refused = append(refused, msg.UUID)
			return nil
		}
		stop := w.router(0, func(r *message.Router) {
			r.AddMiddleware(w.once(o))
			r.AddConsumerHandler("h", "orders", pubsub, func(*message.Message) error {
				t.Error("it ran")
				return nil
			})
		})
		for _, uuid := range []string{"a", "b"} {
			w.publish(pubsub, "orders", message.NewMessage(uuid, nil))
			takes(time.Second)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(refused, []string{"a", "b"}) {
			t.Errorf("refused: %q", refused)
		}
	})
}

// What a handler learns of another key, and returns, is not the end of its own.
func TestFinalOfAnotherKey(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		other := dedupe.Key{Scope: "others", Key: "payment-1"}
		p := w.processor(nil)
		inner := func(policy dedupe.Policy, f func() error) error {
			_, err := onceq.Do(context.Background(), p, other, &onceq.DoOptions{Interrupted: policy}, func(context.Context, *onceq.Job) (int, error) {
				return 0, f()
			})
			return err
		}
		for range 2 { // it parks, and then it is parked
			h := w.once(watermillonceq.Options{})(func(*message.Message) ([]*message.Message, error) {
				return nil, inner(dedupe.Park, func() error { return onceq.Unknown(errBoom) })
			})
			_, err := h(keyed("order-7"))
			var parked *onceq.ParkedError
			if !errors.As(err, &parked) || watermillonceq.IsFinal(err) {
				t.Errorf("got %v, want the handler's error, which is not final", err)
			}
			w.wantStatus("order-7", dedupe.Released)
		}
		for _, e := range []error{
			&onceq.FailedError{Key: other}, &onceq.MismatchError{Key: other}, &onceq.NotRunError{Key: other, Err: dedupe.ErrBadKey},
		} {
			_, err := w.once(watermillonceq.Options{})(func(*message.Message) ([]*message.Message, error) { return nil, e })(keyed("order-7"))
			if !errors.Is(err, e) || watermillonceq.IsFinal(err) {
				t.Errorf("got %v, want the handler's error, which is not final", err)
			}
			w.wantStatus("order-7", dedupe.Released)
		}
		if _, err := w.once(watermillonceq.Options{})(func(*message.Message) ([]*message.Message, error) {
			return nil, onceq.Permanent(&onceq.UnsettledError{Key: other, Err: errBoom})
		})(keyed("order-7")); !watermillonceq.IsFinal(err) {
			t.Errorf("got %v, want a final error: it is recorded", err)
		}
		w.wantStatus("order-7", dedupe.Failed)
	})
}

// A produced message has the same key at each publish, also where the handler has written into the
// message that it got.
func TestProducedKeysStay(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := w.once(watermillonceq.Options{Key: watermillonceq.KeyFromUUID})(func(msg *message.Message) ([]*message.Message, error) {
			msg.Metadata.Set(watermillonceq.KeyMetadata, "chosen")
			return []*message.Message{msg}, nil
		})
		var keys []string
		for range 2 {
			msg := message.NewMessage("uuid-1", nil)
			msg.Metadata.Set(watermillonceq.FenceMetadata, "7") // of the job that is received, if at all
			ms, err := h(msg)
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, ms[0].Metadata.Get(watermillonceq.KeyMetadata))
			if fence := ms[0].Metadata.Get(watermillonceq.FenceMetadata); fence != "" {
				t.Errorf("it has the fence %q of another job", fence)
			}
		}
		if !slices.Equal(keys, []string{"chosen", "chosen"}) {
			t.Errorf("published with the keys %q", keys)
		}
	})
}

// A produced message may carry the context of the message that the handler got, as Watermill's
// CopyWithContext makes it. That one ends with the run, and the publish comes after it.
func TestProducedContext(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		type name struct{}
		h := w.once(watermillonceq.Options{Timeout: time.Minute})(func(msg *message.Message) ([]*message.Message, error) {
			return []*message.Message{message.NewMessageWithContext(msg.Context(), watermill.NewUUID(), nil)}, nil
		})
		msg := keyed("order-7")
		msg.SetContext(context.WithValue(context.Background(), name{}, "value"))
		ms, err := h(msg)
		if err != nil {
			t.Fatal(err)
		}
		takes(time.Hour)
		if ctx := ms[0].Context(); ctx.Err() != nil || ctx.Value(name{}) != "value" {
			t.Errorf("the context of the produced message: %v, value %v", context.Cause(ctx), ctx.Value(name{}))
		}
	})
}
