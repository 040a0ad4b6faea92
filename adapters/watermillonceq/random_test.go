package watermillonceq_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/watermillonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/onceqtest"
)

// Two processes take one queue through Routers, and any call of theirs may go wrong. The oracle is
// a ledger: each key has one run that succeeded, what it has produced is published with the UUIDs
// of that run alone, and nothing is left in the queue. A third of the worlds has the decorator.
func TestRandomWorlds(t *testing.T) {
	first, seeds := uint64(0), uint64(150)
	switch {
	case testing.Short():
		seeds = 20
	case !proof.Asked():
		proof.Leave(t, "watermillonceq: 110 of 150 random worlds")
		first, seeds = proof.Seed(t), 40
	}
	for seed := first; seed < first+seeds; seed++ {
		bubble(t, func(t *testing.T, w *world) { randomWorld(t, w, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func randomWorld(t *testing.T, w *world, seed uint64) {
	draw := rand.New(rand.NewPCG(seed, 7))
	presets := []membroker.Preset{membroker.Memory, membroker.SQSStandard, membroker.SQSFIFO, membroker.PubSub}
	decorates := seed%3 == 0
	preset := presets[draw.IntN(len(presets))]
	prepare := func(_ string, msg *message.Message, out *broker.Outgoing) error {
		if preset == membroker.SQSFIFO {
			out.Group = msg.Metadata.Get("group")
		}
		return nil
	}
	q := w.queue(membroker.Options{Preset: preset}, watermillonceq.PublisherOptions{Prepare: prepare})
	made := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})

	var mu sync.Mutex
	handlers := rand.New(rand.NewPCG(seed, 8))
	succeeded := make(map[string][]string) // by key: the UUIDs that its runs produced
	handle := func(msg *message.Message) ([]*message.Message, error) {
		key := string(msg.Payload)
		mu.Lock()
		dice, pause := handlers.IntN(10), time.Duration(handlers.IntN(100))*time.Second
		mu.Unlock()
		takes(pause) // it does not look at its context
		switch dice {
		case 0, 1:
			return nil, errBoom
		case 2:
			panic("boom")
		}
		mu.Lock()
		defer mu.Unlock()
		uuid := fmt.Sprintf("%s-run-%d", key, len(succeeded[key]))
		succeeded[key] = append(succeeded[key], uuid)
		out := msg.CopyWithContext()
		out.UUID = uuid
		return []*message.Message{out}, nil
	}

	var stops []func() error
	for range 2 {
		p := new(onceqtest.Process)
		for range 30 {
			ops := []onceqtest.Op{
				onceqtest.Claim, onceqtest.Settle, onceqtest.Renew, onceqtest.Ack, onceqtest.Nack, onceqtest.Extend, onceqtest.Receive, onceqtest.Send,
			}
			kinds := []onceqtest.FaultKind{onceqtest.Fail, onceqtest.LoseReply, onceqtest.Slow, onceqtest.SlowReply}
			p.At(onceqtest.Fault{
				Op: ops[draw.IntN(len(ops))], N: 1 + draw.IntN(20), Kind: kinds[draw.IntN(len(kinds))],
				Delay: time.Duration(1+draw.IntN(3000)) * time.Millisecond,
			})
		}
		away := []onceqtest.Op{onceqtest.Claim, onceqtest.Receive, onceqtest.Ack, onceqtest.Nack, onceqtest.Send}
		time.AfterFunc(time.Duration(1+draw.IntN(300))*time.Second, func() {
			p.At(onceqtest.Fault{Op: away[seed%uint64(len(away))], Kind: onceqtest.Fail, For: time.Minute})
		})
		b := through(p)(q.b)
		s, err := watermillonceq.NewSubscriber(func(string) (broker.Broker, error) { return b, nil }, &watermillonceq.SubscriberOptions{
			Concurrency: 1 + draw.IntN(8), Grace: time.Duration(draw.IntN(2)) * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		to := through(p)(made.b)
		pub, err := watermillonceq.NewPublisher(func(string) (broker.Broker, error) { return to, nil }, nil)
		if err != nil {
			t.Fatal(err)
		}
		o := watermillonceq.Options{Wait: time.Duration(1+draw.IntN(20)) * time.Second}
		stops = append(stops, w.router(time.Hour, func(r *message.Router) {
			if decorates { // a publish that fails would be another run
				decorate, err := watermillonceq.NewDecorator(w.processor(p.Store), &o)
				if err != nil {
					t.Fatal(err)
				}
				r.AddSubscriberDecorators(decorate)
				r.AddConsumerHandler("h", "t", s, func(msg *message.Message) error {
					_, err := handle(msg)
					return err
				})
				return
			}
			r.AddMiddleware(w.onceAs(w.processor(p.Store), o))
			r.AddHandler("h", "t", s, "made", pub, handle)
		}))
	}

	const keys = 8
	for range 3 { // the producer repeats itself
		for k := range keys {
			msg := keyed(fmt.Sprintf("key-%d", k))
			msg.Payload = fmt.Appendf(nil, "key-%d", k)
			msg.Metadata.Set("group", fmt.Sprint(k%3))
			w.publish(q.pub, "t", msg)
		}
		takes(time.Duration(draw.IntN(60)) * time.Second)
	}
	takes(4 * time.Hour)
	for _, stop := range stops {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}

	mu.Lock()
	defer mu.Unlock()
	for k := range keys {
		if key := fmt.Sprintf("key-%d", k); len(succeeded[key]) != 1 {
			t.Errorf("%s succeeded %d times", key, len(succeeded[key]))
		}
	}
	q.wantDepth(0, 0, 0)
	if decorates {
		return
	}
	s, ms := made.subscribe(watermillonceq.SubscriberOptions{}, nil)
	published, ids := make(map[string]int), make(map[string]string)
	for range time.Tick(time.Minute) {
		select {
		case msg := <-ms:
			published[msg.UUID]++
			id, err := watermillonceq.KeyFromMetadata(msg)
			if before, ok := ids[msg.UUID]; err != nil || ok && before != id.Key {
				t.Errorf("%s is published with the keys %q and %q (%v)", msg.UUID, before, id.Key, err)
			}
			ids[msg.UUID] = id.Key
			msg.Ack()
			continue
		default:
		}
		break
	}
	made.closeTimed(s)
	for _, uuids := range succeeded {
		if published[uuids[0]] == 0 {
			t.Errorf("%s was never published", uuids[0])
		}
	}
	if len(published) != keys {
		t.Errorf("published: %v", published)
	}
}
