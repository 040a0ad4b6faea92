package pubsubfake_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
)

// TestModel does random things to a subscription and its dead-letter topic, and keeps the simplest
// account of them that there is: a slice, searched from its beginning. After each step the server
// must agree with it.
func TestModel(t *testing.T) {
	for mode := range 8 {
		keys, exact, backs := mode&1 != 0, mode&2 != 0, mode&4 != 0
		for seed := range uint64(12) {
			t.Run(fmt.Sprintf("ordered=%v/once=%v/backoff=%v/%d", keys, exact, backs, seed), func(t *testing.T) {
				stale := pubsubfake.StaleWork
				if seed%2 == 0 {
					stale = pubsubfake.StaleIgnored
				}
				inBubble(t, pubsubfake.Options{StaleAckIDs: stale}, func(r *rig) {
					m := &model{rig: r, rnd: rand.New(rand.NewPCG(seed, uint64(mode))), keys: keys, once: exact, backs: backs, works: seed%2 != 0}
					m.topic, m.sub, m.letters = r.buried(func(s *pubsubpb.Subscription) {
						s.EnableMessageOrdering, s.EnableExactlyOnceDelivery, s.AckDeadlineSeconds = keys, exact, 30
						if backs {
							retries(7, 60)(s)
						}
					})
					for range 150 {
						m.step()
					}
				})
			})
		}
	}
}

// modelled is a message as the account has it.
type modelled struct {
	body, key string
	ids       []string // of its deliveries
	held      time.Time
	until     time.Time // delayed until then
	failures  int
	acked     bool // and not gone, because an earlier one of its key is not acked
	again     bool // of a key whose earlier message failed: an ack counts for nothing
}

type model struct {
	*rig
	rnd                 *rand.Rand
	keys, once, backs   bool
	works               bool // old ack ids
	topic, sub, letters string
	n                   int
	all                 []*modelled
	dead                []string
}

func (m *model) step() {
	switch m.rnd.IntN(8) {
	case 0, 1:
		m.put()
	case 2, 3:
		m.take()
	case 4:
		m.settle("ack")
	case 5:
		m.settle("nack")
	case 6:
		m.settle("extend")
	case 7:
		m.wait(time.Duration(m.rnd.IntN(20_000)) * time.Millisecond)
	}
	m.agree()
}

func (m *model) put() {
	key := ""
	if m.rnd.IntN(4) > 0 {
		key = string(rune('k' + m.rnd.IntN(2)))
	}
	m.n++
	body := fmt.Sprint(m.n)
	m.publish(m.topic, keyed(key, body)...)
	m.all = append(m.all, &modelled{body: body, key: key})
}

// expire ends holds in the order of their ends.
func (m *model) expire() {
	for {
		var first *modelled
		for _, x := range m.all {
			if !x.held.IsZero() && !x.held.After(time.Now()) && (first == nil || x.held.Before(first.held)) {
				first = x
			}
		}
		if first == nil {
			return
		}
		m.fail(first, first.held)
	}
}

func (m *model) ordered(x *modelled) bool { return m.keys && x.key != "" }

// fail ends a delivery without an ack.
func (m *model) fail(x *modelled, at time.Time) {
	x.held = time.Time{}
	if len(x.ids) >= 5 {
		m.dead = append(m.dead, x.body)
		m.drop(x)
		return
	}
	x.failures++
	if m.backs {
		x.until = at.Add(min(7*time.Second<<(x.failures-1), 60*time.Second))
	}
	if m.ordered(x) {
		later := false
		for _, y := range m.all {
			if later && y.key == x.key {
				y.acked, y.again = false, true
			}
			later = later || y == x
		}
	}
}

// drop takes x out, and what was acked behind it.
func (m *model) drop(x *modelled) {
	m.all = slices.DeleteFunc(m.all, func(y *modelled) bool { return y == x })
	if !m.ordered(x) {
		return
	}
	for {
		i := slices.IndexFunc(m.all, func(y *modelled) bool { return y.key == x.key })
		if i < 0 || !m.all[i].acked {
			return
		}
		m.all = slices.Delete(m.all, i, i+1)
	}
}

// due are the messages that may be delivered now.
func (m *model) due() (out []*modelled) {
	m.expire()
	shut := map[string]bool{}
	for _, x := range m.all {
		if m.ordered(x) && !x.held.IsZero() {
			shut[x.key] = true
		}
	}
	for _, x := range m.all {
		free := x.held.IsZero() && !x.acked && !x.until.After(time.Now())
		switch {
		case m.ordered(x) && (shut[x.key] || !free):
			shut[x.key] = true
		case free:
			out = append(out, x)
		}
	}
	return out
}

func (m *model) take() {
	due := m.due()
	n := 1 + m.rnd.IntN(4)
	//lint:ignore SA1019 it does not wait
	in := &pubsubpb.PullRequest{Subscription: m.sub, MaxMessages: int32(n), ReturnImmediately: true}
	out, err := m.Pull(m.Context(), in)
	if err != nil {
		m.Fatal(err)
	}
	if len(out.ReceivedMessages) != min(n, len(due)) {
		m.Fatalf("pulled %q of %d, want %d", bodies(out.ReceivedMessages), len(due), min(n, len(due)))
	}
	last := map[string]int{}
	reset := map[string]bool{}
	for _, got := range out.ReceivedMessages {
		i := slices.IndexFunc(due, func(x *modelled) bool { return x.body == string(got.Message.Data) })
		if i < 0 {
			m.Fatalf("pulled %q, which is not due", got.Message.Data)
		}
		x := due[i]
		if m.ordered(x) {
			// All before it in its key came before it, in this answer.
			for j, y := range due[:i] {
				if y.key == x.key && (last[x.key] == 0 || j+1 > last[x.key]) && j+1 != last[x.key] {
					m.Fatalf("pulled %s of %s before %s", x.body, x.key, y.body)
				}
			}
			last[x.key] = i + 1
			if !reset[x.key] {
				reset[x.key] = true
				for _, y := range m.all {
					if y.key == x.key {
						y.again = false
					}
				}
			}
		}
		x.ids = append(x.ids, got.AckId)
		x.held = time.Now().Add(30 * time.Second)
		if got.DeliveryAttempt != int32(len(x.ids)) {
			m.Fatalf("attempt %d, want %d", got.DeliveryAttempt, len(x.ids))
		}
	}
}

// settle does something with an id, of the last delivery or of an earlier one.
func (m *model) settle(what string) {
	m.expire()
	var had []*modelled
	for _, x := range m.all {
		if len(x.ids) > 0 {
			had = append(had, x)
		}
	}
	if len(had) == 0 {
		return
	}
	x := had[m.rnd.IntN(len(had))]
	i := len(x.ids) - 1
	if m.rnd.IntN(3) == 0 {
		i = m.rnd.IntN(len(x.ids))
	}
	id, current, held := x.ids[i], i == len(x.ids)-1, !x.held.IsZero()
	var err error
	switch what {
	case "ack":
		err = m.tryAck(m.sub, id)
	case "nack":
		err = m.tryExtend(m.sub, 0, id)
	case "extend":
		err = m.tryExtend(m.sub, 25, id)
	}
	front := !m.ordered(x) || slices.IndexFunc(m.all, func(y *modelled) bool { return y.key == x.key }) == slices.Index(m.all, x)
	if m.once {
		switch {
		case !current || !held:
			m.wantFailed(err, permanent, id)
			return
		case what == "ack" && !front:
			m.wantFailed(err, unordered, id)
			return
		}
	}
	if err != nil {
		m.Fatal(err)
	}
	if held && !current && !m.works {
		return
	}
	switch {
	case what == "ack" && front:
		m.drop(x)
	case what == "ack" && held:
		x.held = time.Time{}
		x.acked = !x.again
	case what == "nack" && held:
		m.fail(x, time.Now())
	case what == "extend" && held:
		x.held = time.Now().Add(25 * time.Second)
	}
}

// agree compares what the server has with the account.
func (m *model) agree() {
	due := m.due()
	var want pubsubfake.Stats
	for _, x := range m.all {
		switch {
		case !x.held.IsZero():
			want.Held++
		case x.until.After(time.Now()):
			want.Delayed++
		}
	}
	got := m.srv.Stats(m.sub)
	want.Ready, want.Blocked = len(due), len(m.all)-len(due)-want.Held-want.Delayed
	// A key that may be delivered is ready up to its first delayed message, in the account; in the
	// server all that wait in it.
	if m.keys && m.backs {
		want.Ready, got.Ready = want.Ready+want.Blocked, got.Ready+got.Blocked
		want.Blocked, got.Blocked = 0, 0
	}
	if got != want {
		m.Fatalf("the server has %+v, want %+v", got, want)
	}
	if n := m.srv.Stats(m.letters).Unacked(); n != len(m.dead) {
		m.Fatalf("%d dead letters, want %d", n, len(m.dead))
	}
}
