package sqsfake_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// TestModel does random things to a queue and its dead-letter queue, and keeps the simplest
// account of them that there is: a slice, searched from its beginning. After each step the
// server must agree with it.
func TestModel(t *testing.T) {
	for _, suffix := range []string{"", ".fifo"} {
		for seed := range uint64(8) {
			t.Run(fmt.Sprintf("q%s/%d", suffix, seed), func(t *testing.T) {
				// Of a FIFO queue an old handle is refused, whatever the option.
				works := seed%2 == 0
				o := staleIgnored
				if works {
					o = staleWork
				}
				inBubble(t, o, func(r *rig) {
					dlq := r.queue("dlq" + suffix)
					m := &model{
						rig: r, rnd: rand.New(rand.NewPCG(seed, 1)), fifo: suffix != "", works: works, dlq: dlq,
						q: r.queue("q"+suffix, "VisibilityTimeout", "30", "RedrivePolicy", r.policy(dlq, maxReceives)),
					}
					for range 120 {
						m.step()
					}
				})
			})
		}
	}
}

const maxReceives = 3

// modelled is a message as the account has it.
type modelled struct {
	body, group string
	handle      types.Message // of the last receive
	receives    int
	received    time.Time
	hidden      time.Time // until then
	flying      bool
}

type model struct {
	*rig
	rnd      *rand.Rand
	fifo     bool
	works    bool // old handles, on a standard queue
	q, dlq   *string
	n        int
	messages []*modelled // in the order of their sending
	past     []pastHandle
}

// pastHandle is a receipt handle that was given out, and for which message and receive.
type pastHandle struct {
	m       *modelled
	receive int
	handle  types.Message
}

func (m *model) step() {
	switch m.rnd.IntN(8) {
	case 0, 1:
		m.sendSome()
	case 2, 3:
		m.receiveSome()
	case 4:
		m.changeOne()
	case 5, 6:
		m.removeOne()
	case 7:
		after(time.Duration(m.rnd.IntN(20)) * time.Second)
	}
	visible, flying, delayed := 0, 0, 0
	for _, x := range m.messages {
		switch {
		case m.visible(x):
			visible++
		case x.flying:
			flying++
		default:
			delayed++
		}
	}
	m.wantCounts(m.q, visible, flying, delayed)
	m.wantCounts(m.dlq, 0, 0, 0)
}

func (m *model) visible(x *modelled) bool { return !time.Now().Before(x.hidden) }

func (m *model) sendSome() {
	for range 1 + m.rnd.IntN(3) {
		m.n++
		x := &modelled{body: fmt.Sprint(m.n), group: fmt.Sprint("g", m.rnd.IntN(3))}
		in := &sqs.SendMessageInput{QueueUrl: m.q, MessageBody: &x.body}
		if m.fifo {
			in.MessageGroupId, in.MessageDeduplicationId = &x.group, &x.body
		} else if m.rnd.IntN(4) == 0 {
			in.DelaySeconds = int32(1 + m.rnd.IntN(20))
			x.hidden = time.Now().Add(time.Duration(in.DelaySeconds) * time.Second)
		}
		m.sendWith(in)
		m.messages = append(m.messages, x)
	}
}

// receiveSome checks what came against what could come. Which of many the server picks is
// its own choice, but it must pick as many as it can, and a group's in their order.
func (m *model) receiveSome() {
	limit := 1 + m.rnd.IntN(10)
	may := map[string]*modelled{}
	held := map[string]bool{}
	for _, x := range m.messages {
		if !m.visible(x) {
			held[x.group] = true
		}
		if m.visible(x) && (!m.fifo || !held[x.group]) {
			may[x.body] = x
		}
	}
	got := m.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: m.q, MaxNumberOfMessages: int32(limit)})
	m.takeDead()
	alive := 0
	for _, x := range may {
		if x.receives < maxReceives {
			alive++
		}
	}
	if len(got) != min(limit, alive) {
		m.Fatalf("received %q of %d that could come, asked for %d", bodies(got), alive, limit)
	}
	last := map[string]int{}
	for _, g := range got {
		x := may[*g.Body]
		if x == nil || x.receives >= maxReceives {
			m.Fatalf("received %q, which could not come", *g.Body)
		}
		delete(may, *g.Body)
		if i := slices.Index(m.messages, x); m.fifo && i < last[x.group] {
			m.Fatalf("received %q out of order", bodies(got))
		} else {
			last[x.group] = i
		}
		x.receives++
		if n := g.Attributes["ApproximateReceiveCount"]; n != fmt.Sprint(x.receives) {
			m.Fatalf("%s was received %s times, by the account %d", x.body, n, x.receives)
		}
		x.handle, x.flying, x.received, x.hidden = g, true, time.Now(), time.Now().Add(30*time.Second)
		m.past = append(m.past, pastHandle{x, x.receives, g})
	}
	// In a group, nothing that was passed over comes before something that was taken.
	if m.fifo {
		for _, x := range may {
			if i := slices.Index(m.messages, x); x.receives < maxReceives && i < last[x.group] {
				m.Fatalf("received %q and passed over %s", bodies(got), x.body)
			}
		}
	}
}

// takeDead takes out of the account what has gone to the dead-letter queue.
func (m *model) takeDead() {
	for {
		letters := m.receive(m.dlq)
		if len(letters) == 0 {
			return
		}
		for _, g := range letters {
			m.wantCode(m.remove(m.dlq, g), "")
			i := slices.IndexFunc(m.messages, func(x *modelled) bool { return x.body == *g.Body })
			if i < 0 {
				m.Fatalf("the dead letter %q is not in the account", *g.Body)
			}
			if x := m.messages[i]; x.receives < maxReceives || !m.visible(x) {
				m.Fatalf("%q is a dead letter after %d receives", x.body, x.receives)
			}
			m.messages = slices.Delete(m.messages, i, i+1)
		}
	}
}

func (m *model) changeOne() {
	if len(m.past) == 0 {
		return
	}
	p := m.past[m.rnd.IntN(len(m.past))]
	seconds := []int32{0, 1, 10, 60, 43_200}[m.rnd.IntN(5)]
	err := m.change(m.q, p.handle, seconds)
	current := p.receive == p.m.receives
	switch {
	case !slices.Contains(m.messages, p.m):
		m.wantCode(err, codeParameter)
	case !current && m.fifo:
		m.wantCode(err, codeParameter)
	case !current && !m.works || m.visible(p.m):
		m.wantCode(err, "")
	case time.Now().Add(time.Duration(seconds) * time.Second).After(p.m.received.Add(12 * time.Hour)):
		m.wantCode(err, codeParameter)
	default:
		m.wantCode(err, "")
		p.m.hidden = time.Now().Add(time.Duration(seconds) * time.Second)
	}
}

func (m *model) removeOne() {
	if len(m.past) == 0 {
		return
	}
	p := m.past[m.rnd.IntN(len(m.past))]
	err := m.remove(m.q, p.handle)
	current := p.receive == p.m.receives
	i := slices.Index(m.messages, p.m)
	switch {
	case i < 0:
		m.wantCode(err, "")
	case m.fifo && (!current || m.visible(p.m)):
		m.wantCode(err, codeParameter)
	default:
		m.wantCode(err, "")
		if current || m.works {
			m.messages = slices.Delete(m.messages, i, i+1)
		}
	}
}
