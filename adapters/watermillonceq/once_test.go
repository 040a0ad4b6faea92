package watermillonceq_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/watermillonceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/onceqtest"
)

var errBoom = errors.New("boom")

// world is what outlives a process: the records.
type world struct {
	*testing.T
	store dedupe.Store
	real  bool // time is
}

// inTime runs f in real time, with short leases: Router.Close waits with a mutex locked, which
// keeps a bubble's time from going on.
func inTime(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	store, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	f(t, &world{t, store, true})
}

// bubble runs f in virtual time.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, err := memstore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		f(t, &world{t, store, false})
		<-time.After(time.Minute) // what is under way in the background ends
	})
}

// processor is that of a new process; wrap may be nil.
func (w *world) processor(wrap func(dedupe.Store) dedupe.Store) *onceq.Processor {
	w.Helper()
	s := w.store
	if wrap != nil {
		s = wrap(s)
	}
	c := onceq.ProcessorConfig{Store: s, Scope: "orders", Logger: slog.New(slog.DiscardHandler)}
	if w.real {
		c.Lease, c.SettleTimeout, c.CallTimeout = 2*time.Second, 300*time.Millisecond, 200*time.Millisecond
	}
	p, err := onceq.NewProcessor(c)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

func (w *world) once(o watermillonceq.Options) message.HandlerMiddleware {
	w.Helper()
	return w.onceAs(w.processor(nil), o)
}

func (w *world) onceAs(p *onceq.Processor, o watermillonceq.Options) message.HandlerMiddleware {
	w.Helper()
	m, err := watermillonceq.NewMiddleware(p, &o)
	if err != nil {
		w.Fatal(err)
	}
	return m
}

// record is that of a key in the Processor's scope.
func (w *world) record(key string) *dedupe.Record {
	w.Helper()
	rs, err := w.store.Get(context.Background(), []dedupe.Key{{Scope: "orders", Key: key}})
	if err != nil {
		w.Fatal(err)
	}
	return rs[0]
}

func (w *world) wantStatus(key string, want dedupe.Status) {
	w.Helper()
	if r := w.record(key); r == nil || r.Status != want {
		w.Errorf("the record of %q is %+v, want %v", key, r, want)
	}
}

// keyed is a new message with a key.
func keyed(key string) *message.Message {
	m := message.NewMessage(watermill.NewUUID(), []byte("body"))
	m.Metadata.Set(watermillonceq.KeyMetadata, key)
	return m
}

func takes(d time.Duration) { <-time.After(d) }

// mustNot is a handler that may not run.
func mustNot(t *testing.T) message.HandlerFunc {
	return func(*message.Message) ([]*message.Message, error) {
		t.Error("it ran")
		return nil, nil
	}
}

// router is a Router of Watermill's that runs; stop closes it.
func (w *world) router(closeTimeout time.Duration, setUp func(*message.Router)) (stop func() error) {
	w.Helper()
	r, err := message.NewRouter(message.RouterConfig{CloseTimeout: closeTimeout}, watermill.NopLogger{})
	if err != nil {
		w.Fatal(err)
	}
	setUp(r)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(w.Context()) }()
	<-r.Running()
	return func() error {
		err := r.Close()
		if e := <-ended; e != nil {
			w.Error("Run ended with", e)
		}
		return err
	}
}

func (w *world) publish(p message.Publisher, topic string, ms ...*message.Message) {
	w.Helper()
	if err := p.Publish(topic, ms...); err != nil {
		w.Fatal(err)
	}
}

func channel(t *testing.T) *gochannel.GoChannel {
	c := gochannel.NewGoChannel(gochannel.Config{}, nil)
	t.Cleanup(func() { c.Close() })
	return c
}

// A hundred deliveries of one job at once, in two processes: one effect, and all are acked.
func TestOneEffectOfManyDeliveries(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var effects, acked atomic.Int64
		var all sync.WaitGroup
		for i := range 2 {
			once := w.once(watermillonceq.Options{Wait: time.Minute})
			h := once(func(msg *message.Message) ([]*message.Message, error) {
				effects.Add(1)
				takes(10 * time.Second)
				return nil, nil
			})
			for range 50 {
				all.Go(func() {
					if _, err := h(keyed("order-7")); err != nil {
						t.Errorf("process %d: %v", i, err)
						return
					}
					acked.Add(1)
				})
			}
		}
		all.Wait()
		if effects.Load() != 1 || acked.Load() != 100 {
			t.Errorf("%d effects, %d acks", effects.Load(), acked.Load())
		}
		w.wantStatus("order-7", dedupe.Done)
	})
}

// The same through a Router, on a Pub/Sub that delivers at once and again after each nack.
func TestRouterRunsOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		pubsub := channel(t)
		var effects, twice atomic.Int64
		stop := w.router(0, func(r *message.Router) {
			r.AddMiddleware(w.once(watermillonceq.Options{}))
			r.AddConsumerHandler("mail", "orders", pubsub, func(msg *message.Message) error {
				if watermillonceq.Job(msg.Context()) == nil {
					t.Error("the context has no job")
				}
				effects.Add(1)
				takes(time.Minute) // longer than a duplicate waits
				return nil
			})
			r.AddConsumerHandler("statistics", "orders", pubsub, func(*message.Message) error {
				twice.Add(1)
				return nil
			})
		})
		for range 100 {
			w.publish(pubsub, "orders", keyed("order-7"))
		}
		takes(3 * time.Minute)
		if effects.Load() != 1 || twice.Load() != 1 {
			t.Errorf("%d mails, %d counted; each handler has the job once", effects.Load(), twice.Load())
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		w.wantStatus(`"mail"order-7`, dedupe.Done)
		w.wantStatus(`"statistics"order-7`, dedupe.Done)
	})
}

// With a scope that is said, handlers share keys, and a Worker of that scope has them, too.
func TestInScope(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		pubsub := channel(t)
		var effects atomic.Int64
		stop := w.router(0, func(r *message.Router) {
			r.AddMiddleware(w.once(watermillonceq.Options{Key: watermillonceq.InScope("orders", watermillonceq.KeyFromMetadata)}))
			for i := range 2 {
				r.AddConsumerHandler(fmt.Sprint(i), "orders", pubsub, func(*message.Message) error { effects.Add(1); return nil })
			}
		})
		w.publish(pubsub, "orders", keyed("order-7"))
		takes(time.Minute)
		if err := stop(); err != nil || effects.Load() != 1 {
			t.Errorf("%d effects, %v", effects.Load(), err)
		}
		w.wantStatus("order-7", dedupe.Done)
	})
}

// What a handler produced is published again by a later delivery: the same messages, and the
// handler does not run.
func TestProducedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		odd := string([]byte{0xff, 0, 'x'})
		h := func(msg *message.Message) ([]*message.Message, error) {
			made := message.NewMessage("made-\xff", []byte{0, 1, 0xff})
			made.Metadata.Set("who", "Zoë")
			made.Metadata.Set(odd, odd)
			own := message.NewMessage("own", nil)
			own.Metadata.Set(watermillonceq.KeyMetadata, "mine")
			return []*message.Message{made, own, msg, msg.Copy()}, nil
		}
		in := keyed("order-7")
		first, err := w.once(watermillonceq.Options{})(h)(in)
		if err != nil || len(first) != 4 {
			t.Fatal(first, err)
		}
		if in.Metadata.Get(watermillonceq.KeyMetadata) != "order-7" {
			t.Error("the message itself was changed:", in.Metadata)
		}
		again, err := w.once(watermillonceq.Options{})(mustNot(t))(keyed("order-7"))
		if err != nil || len(again) != len(first) {
			t.Fatal(again, err)
		}
		keys := map[string]bool{}
		for i := range first {
			if !again[i].Equals(first[i]) {
				t.Errorf("message %d is %+v, and was %+v", i, again[i], first[i])
			}
			keys[first[i].Metadata.Get(watermillonceq.KeyMetadata)] = true
		}
		if len(keys) != 4 || !keys["mine"] || keys["order-7"] || keys[""] {
			t.Errorf("the keys are %v", keys)
		}
	})
}

// The process dies at each of its calls of the store. The next one does the job, or gives what the
// first has produced, and the effect at an API that takes a key is one.
func TestCrash(t *testing.T) {
	for _, at := range []onceqtest.Fault{
		{Op: onceqtest.Claim, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Claim, Kind: onceqtest.CrashAfter},
		{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Settle, Kind: onceqtest.CrashAfter},
	} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				var process onceqtest.Process
				process.At(at)
				charged, runs := map[string]bool{}, 0
				h := func(msg *message.Message) ([]*message.Message, error) {
					runs++
					charged[watermillonceq.Job(msg.Context()).EffectKey("charge")] = true
					return []*message.Message{message.NewMessage("m", nil)}, nil
				}
				first := w.onceAs(w.processor(process.Store), watermillonceq.Options{})(h)
				go first(keyed("order-7")) // nobody sees its answer
				<-process.Dead()
				takes(20 * time.Second)
				next := w.once(watermillonceq.Options{})(h)
				ms, err := next(keyed("order-7"))
				for tries := 0; err != nil && tries < 10; tries++ {
					ms, err = next(keyed("order-7"))
				}
				if err != nil || len(ms) != 1 || ms[0].UUID != "m" {
					t.Error("in the end:", ms, err)
				}
				want := 1
				if at.Op == onceqtest.Settle && at.Kind == onceqtest.CrashBefore {
					want = 2 // the effect was not recorded
				}
				if len(charged) != 1 || runs != want {
					t.Errorf("%d charges by %d runs, want 1 by %d", len(charged), runs, want)
				}
			})
		})
	}
}

// Of a job that takes longer than a duplicate waits, the duplicate is told so, and repeating is
// what to do.
func TestInProgress(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		go w.once(watermillonceq.Options{})(func(*message.Message) ([]*message.Message, error) {
			takes(10 * time.Minute)
			return nil, nil
		})(keyed("order-7"))
		takes(time.Second)
		for _, wait := range []time.Duration{0, time.Second} {
			begin := time.Now()
			_, err := w.once(watermillonceq.Options{Wait: wait})(mustNot(t))(keyed("order-7"))
			var busy *onceq.InProgressError
			if !errors.As(err, &busy) || watermillonceq.IsFinal(err) {
				t.Error("answered", err)
			}
			if wait == 0 {
				wait = watermillonceq.DefaultWait
			}
			if took := time.Since(begin); took != wait {
				t.Errorf("it waited %v, want %v", took, wait)
			}
		}
		takes(10 * time.Minute)
	})
}

// Which answers are final, so that a poison queue takes them, and which are not.
func TestFinal(t *testing.T) {
	fails := func(err error) message.HandlerFunc {
		return func(*message.Message) ([]*message.Message, error) { return nil, err }
	}
	for name, c := range map[string]struct {
		o      watermillonceq.Options
		h      message.HandlerFunc
		msg    *message.Message
		first  bool // whether the first delivery is final
		second bool // whether the second one is
		class  string
		text   string
	}{
		"an error":    {h: fails(errBoom), text: "boom"},
		"permanent":   {h: fails(onceq.Permanent(errBoom)), first: true, second: true, class: onceq.ClassPermanent, text: "boom"},
		"attempts":    {o: watermillonceq.Options{MaxAttempts: 2}, h: fails(errBoom), second: true, class: onceq.ClassAttempts, text: "boom"},
		"one attempt": {o: watermillonceq.Options{MaxAttempts: 1}, h: fails(errBoom), first: true, second: true, class: onceq.ClassAttempts, text: "boom"},
		"parked": {
			o: watermillonceq.Options{Interrupted: dedupe.Park}, h: fails(onceq.Unknown(errBoom)), first: true, second: true,
			class: onceq.ClassInterrupted, text: "parked",
		},
		"no key":  {msg: message.NewMessage("u", nil), first: true, second: true, class: onceq.ClassNoKey, text: "no idempotency key"},
		"bad key": {msg: keyed(strings.Repeat("k", 1025)), first: true, second: true, class: onceq.ClassBadKey, text: "1025"},
		"meta": {
			msg:   &message.Message{Metadata: message.Metadata{"onceq": "{"}},
			first: true, second: true, class: onceq.ClassNoKey, text: "bad metadata",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				if c.h == nil {
					c.h = mustNot(t)
				}
				for i, want := range []bool{c.first, c.second} {
					msg := c.msg
					if msg == nil {
						msg = keyed("order-7")
					}
					_, err := w.once(c.o)(c.h)(msg)
					if err == nil || !strings.Contains(err.Error(), c.text) {
						t.Fatalf("delivery %d: %v, want %q", i+1, err, c.text)
					}
					if watermillonceq.IsFinal(err) != want {
						t.Errorf("delivery %d: final is %v: %v", i+1, !want, err)
					}
					if want && onceq.ClassOf(err) != c.class {
						t.Errorf("delivery %d is of class %q, want %q", i+1, onceq.ClassOf(err), c.class)
					}
				}
			})
		})
	}
}

// The process died in its last attempt: the next delivery runs nothing, and is final.
func TestLastAttemptCutOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var process onceqtest.Process
		process.At(onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore})
		o := watermillonceq.Options{MaxAttempts: 1}
		go w.onceAs(w.processor(process.Store), o)(func(*message.Message) ([]*message.Message, error) { return nil, nil })(keyed("k"))
		<-process.Dead()
		takes(time.Minute)
		_, err := w.once(o)(mustNot(t))(keyed("k"))
		if !watermillonceq.IsFinal(err) || onceq.ClassOf(err) != onceq.ClassAttempts {
			t.Error("answered", err)
		}
	})
}

// A poison queue outside takes final errors alone; a message that an operator takes from it runs
// again, once for its failure.
func TestPoisonAndReopen(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		pubsub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
		defer pubsub.Close()
		poison, err := middleware.PoisonQueueWithFilter(pubsub, "poison", watermillonceq.IsFinal)
		if err != nil {
			t.Fatal(err)
		}
		var runs atomic.Int64
		var mended atomic.Bool
		stop := w.router(0, func(r *message.Router) {
			r.AddMiddleware(poison, w.once(watermillonceq.Options{Reopen: watermillonceq.ReopenFromMetadata}))
			r.AddConsumerHandler("h", "orders", pubsub, func(*message.Message) error {
				if runs.Add(1); !mended.Load() {
					return onceq.Permanent(errBoom)
				}
				return nil
			})
		})
		letters, err := pubsub.Subscribe(t.Context(), "poison")
		if err != nil {
			t.Fatal(err)
		}
		w.publish(pubsub, "orders", keyed("order-7"))
		letter := <-letters
		letter.Ack()
		if letter.Metadata.Get(middleware.ReasonForPoisonedKey) == "" || letter.Metadata.Get(watermillonceq.FenceMetadata) == "" {
			t.Error("the letter says", letter.Metadata)
		}
		w.publish(pubsub, "orders", keyed("order-7")) // a duplicate without the operator's word
		duplicate := <-letters
		duplicate.Ack()
		if runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
		mended.Store(true)
		w.publish(pubsub, "orders", letter.Copy())
		w.publish(pubsub, "orders", letter.Copy())
		takes(time.Minute)
		if runs.Load() != 2 {
			t.Errorf("%d runs after the replay", runs.Load())
		}
		w.wantStatus(`"h"order-7`, dedupe.Done)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// OnFinal deals with a message, so that it is acked, or says why not.
func TestOnFinal(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for _, says := range []error{nil, io.EOF} {
			var got *watermillonceq.FinalError
			once := w.once(watermillonceq.Options{OnFinal: func(msg *message.Message, e *watermillonceq.FinalError) error {
				got = e
				return says
			}})
			_, err := once(func(*message.Message) ([]*message.Message, error) { return nil, onceq.Permanent(errBoom) })(keyed("k"))
			if err != says || got == nil || got.Fence == 0 || !errors.Is(got, errBoom) && says == nil || got.Key != (dedupe.Key{Scope: "orders", Key: "k"}) {
				t.Errorf("answered %v, and OnFinal got %+v", err, got)
			}
		}
	})
}
