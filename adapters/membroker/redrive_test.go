package membroker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
)

const maxReceives = 5

// redriven runs f on a queue with a dead-letter queue, for each preset.
func redriven(t *testing.T, on []membroker.Preset, f func(t *testing.T, q, dead queue)) {
	t.Helper()
	for _, p := range on {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dead := open(t, membroker.Options{Name: "dead", Preset: p})
				q := open(t, membroker.Options{Name: "orders", Preset: p, Redrive: &membroker.Redrive{MaxReceives: maxReceives, To: dead.Broker}})
				f(t, q, dead)
			})
		})
	}
}

func TestRedrive(t *testing.T) {
	redriven(t, presets, func(t *testing.T, q, dead queue) {
		sent := time.Now()
		id := q.send("g/poison")[0]
		if q.Limits().OrderedGroups {
			q.send("g/next")
		}
		for attempt := 1; attempt <= maxReceives; attempt++ {
			m := q.receive(broker.ReceiveOptions{Max: 1})[0]
			if string(m.Body) != "poison" || m.Attempt != attempt {
				t.Fatalf("receive %d: %q, attempt %d", attempt, m.Body, m.Attempt)
			}
			if attempt%2 == 0 {
				pass(visibility)
			} else {
				want(t, q.nack(m, 0), nil)
			}
		}
		// The group goes on without it.
		if q.Limits().OrderedGroups {
			q.ack(q.one("next"))
		}
		q.depth(0, 0, 0)
		letter := dead.one("poison")
		if letter.Group != "g" {
			t.Fatalf("group %q", letter.Group)
		}
		if q.preset == membroker.PubSub {
			if letter.ID == id || letter.Attempt != 0 {
				t.Fatalf("id %q, attempt %d", letter.ID, letter.Attempt)
			}
			const source = "CloudPubSubDeadLetterSource"
			if a := letter.Attributes; a[source+"DeliveryCount"] != "5" || a[source+"Subscription"] != "orders" ||
				a[source+"TopicPublishTime"] != sent.UTC().Format(time.RFC3339Nano) || a[source+"SubscriptionProject"] == "" {
				t.Fatalf("attributes %v", letter.Attributes)
			}
		} else if letter.ID != id || letter.Attempt != 1 || letter.Attributes != nil {
			t.Fatalf("id %q, want %q; attempt %d; attributes %v", letter.ID, id, letter.Attempt, letter.Attributes)
		}
		moved := time.Now()
		published := sent
		if q.preset == membroker.SQSFIFO || q.preset == membroker.PubSub {
			published = moved
		}
		if !letter.Published.Equal(published) {
			t.Fatalf("published %v, want %v", letter.Published, published)
		}
		dead.ack(letter)
		dead.depth(0, 0, 0)
	})
}

// Nobody receives from the source any more; who waits on the dead-letter queue is served.
func TestRedriveNeedsNoReceive(t *testing.T) {
	redriven(t, presets, func(t *testing.T, q, dead queue) {
		q.send("a")
		for range maxReceives - 1 {
			want(t, q.nack(q.one("a"), 0), nil)
		}
		q.one("a")
		start := time.Now()
		for time.Since(start) < visibility {
			if ms := dead.receive(broker.ReceiveOptions{Wait: -1}); len(ms) == 1 {
				break
			}
		}
		if got := time.Since(start); got != visibility {
			t.Fatalf("moved after %v", got)
		}
		q.depth(0, 0, 0)
	})
}

func TestRedriveAfterTheNacksDelay(t *testing.T) {
	redriven(t, presets, func(t *testing.T, q, dead queue) {
		q.send("a")
		for range maxReceives - 1 {
			want(t, q.nack(q.one("a"), 0), nil)
		}
		m := q.one("a")
		want(t, q.nack(m, 5*time.Minute), nil)
		pass(5*time.Minute - 1)
		dead.get()
		pass(time.Nanosecond)
		synctest.Wait() // the alarm rings in a goroutine of its own
		dead.get("a")
		// The old receipt does not reach the letter.
		want(t, q.tryAck(m), nil)
		dead.depth(0, 1, 0)
	})
}

func TestAckInTheLastDelivery(t *testing.T) {
	redriven(t, presets, func(t *testing.T, q, dead queue) {
		q.send("a")
		for range maxReceives - 1 {
			want(t, q.nack(q.one("a"), 0), nil)
		}
		q.ack(q.one("a"))
		pass(time.Hour)
		q.depth(0, 0, 0)
		dead.depth(0, 0, 0)
	})
}

func TestRedriveKeepsWhatItCannotMove(t *testing.T) {
	redriven(t, presets, func(t *testing.T, q, dead queue) {
		q.send("a")
		if err := dead.Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 * maxReceives {
			want(t, q.nack(q.one("a"), 0), nil)
		}
		q.depth(1, 0, 0)
	})
}

func TestRedriveChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := open(t, membroker.Options{Name: "last"})
		middle := open(t, membroker.Options{Name: "middle", Redrive: &membroker.Redrive{MaxReceives: 1, To: last.Broker}})
		first := open(t, membroker.Options{Name: "first", Redrive: &membroker.Redrive{MaxReceives: 1, To: middle.Broker}})
		id := first.send("a")[0]
		want(t, first.nack(first.one("a"), 0), nil)
		want(t, middle.nack(middle.one("a"), 0), nil)
		if m := last.one("a"); m.ID != id {
			t.Fatalf("id %q, want %q", m.ID, id)
		}
	})
}

func TestRedrivePolicy(t *testing.T) {
	redriven(t, presets, func(t *testing.T, q, dead queue) {
		p, err := q.Redrive(t.Context())
		if p != (broker.RedrivePolicy{MaxReceives: maxReceives, Target: "dead"}) || err != nil {
			t.Fatal(p, err)
		}
		p, err = dead.Redrive(t.Context())
		if p != (broker.RedrivePolicy{}) || err != nil {
			t.Fatal(p, err)
		}
	})
}
