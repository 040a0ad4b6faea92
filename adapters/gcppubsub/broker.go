package gcppubsub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pubsubwire"
	"github.com/onceq/onceq/internal/values"
)

// This file owns the Broker: what New makes of an API and two names, and how Close ends it.
// Workers, Send and dlq call a Broker's methods from many goroutines. b.mu guards what is known of
// the ack deadline, and is held during no call. New sets all other fields, and only the counts
// change after it, which are atomic. The calls to Pub/Sub are in files of their own.

// Broker is a topic and a pull subscription of Pub/Sub. Its methods may be called from many
// goroutines. It has no goroutine of its own.
type Broker struct {
	api                 API
	topic, subscription string // one of them may be empty
	limits              broker.Limits
	o                   Options
	pulls               puller

	closing context.Context // ends with Close
	close   context.CancelFunc
	counts  counts
	// silent is how many pulls in a row had no answer.
	silent atomic.Int64

	mu    sync.Mutex
	known ackDeadline
}

var (
	_ broker.Broker    = (*Broker)(nil)
	_ broker.Redriver  = (*Broker)(nil)
	_ broker.Describer = (*Broker)(nil)
)

// New makes the driver of a topic and a pull subscription; it does no I/O. The names are full:
// projects/PROJECT/topics/NAME and projects/PROJECT/subscriptions/NAME. The subscription need not
// be of this topic, though mostly it is.
//
// Where nothing is sent the topic may be empty, and where nothing is received the subscription may.
// The calls that then have no target are answered ErrUnsupported. nil options mean the defaults.
//
// api is mostly a [Clients], which several Brokers may share. Close does not close it.
func New(api API, topic, subscription string, o *Options) (*Broker, error) {
	if values.IsNil(api) {
		return nil, errors.New("gcppubsub: New: the API is nil; Dial makes one")
	}
	if o == nil {
		o = &Options{}
	}
	c, err := o.complete()
	if err != nil {
		return nil, err
	}
	if topic == "" && subscription == "" {
		return nil, errors.New("gcppubsub: New: neither a topic nor a subscription is named")
	}
	if topic != "" {
		if err := checkName("topics", topic); err != nil {
			return nil, err
		}
	}
	if subscription != "" {
		if err := checkName("subscriptions", subscription); err != nil {
			return nil, err
		}
	}
	b := &Broker{api: api, topic: topic, subscription: subscription, limits: limits(&c), o: c}
	b.pulls = unary{b}
	b.closing, b.close = context.WithCancel(context.Background())
	return b, nil
}

func limits(o *Options) broker.Limits {
	return broker.Limits{
		ReceiveBatch: maxBatch, SettleBatch: maxBatch, SendBatch: maxBatch,
		MinHold: minDeadline, MaxHold: maxDeadline, MaxNack: maxDeadline, MaxWait: o.LongPoll,
		MaxBody: pubsubwire.MaxMessage, MaxAttributes: pubsubwire.MaxAttributes,
		Attempts: o.Attempts, OrderedGroups: o.Ordered,
		Extends: true, PerRequestCost: true, Durable: true,
	}
}

// Limits are those of Pub/Sub. Whether groups are ordered and deliveries counted is what the
// Options say. The last 2,000 bytes of a request's 10,000,000 are left out of MaxBody, because
// Pub/Sub counts what frames the message, too. Longer metadata takes more than one of the 100
// attributes. A send cannot be delayed.
func (b *Broker) Limits() broker.Limits {
	if b == nil {
		return broker.Limits{}
	}
	return b.limits
}

// Topic is the topic's full name; empty where nothing can be sent.
func (b *Broker) Topic() string {
	if b == nil {
		return ""
	}
	return b.topic
}

// Subscription is the subscription's full name; empty where nothing can be received.
func (b *Broker) Subscription() string {
	if b == nil {
		return ""
	}
	return b.subscription
}

// Describe is the subscription's name, or the topic's where nothing is received.
func (b *Broker) Describe() broker.Description {
	if b == nil {
		return broker.Description{}
	}
	full := cmp.Or(b.subscription, b.topic)
	return broker.Description{System: "gcp_pubsub", Name: last(full), Address: full}
}

// Close ends the driver. Pulls that wait are cut off: what such a pull has just found is delivered
// to nobody, and comes again after the subscription's ack deadline. So stop the workers first. All
// later calls are answered ErrClosed. Topic, subscription and API stay as they are. Close never
// fails.
func (b *Broker) Close() error {
	if !b.closed() {
		b.close()
	}
	return nil
}

// closed is also true of a Broker that New did not make.
func (b *Broker) closed() bool { return b == nil || b.closing == nil || b.closing.Err() != nil }

// begin bounds a call other than a pull, and ends it with Close, unless there is none to make.
func (b *Broker) begin(ctx context.Context, call string) (context.Context, context.CancelFunc, error) {
	if b.closed() {
		return nil, nil, b.wrap(call, broker.ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, b.wrap(call, err)
	}
	ctx, cancel := context.WithTimeout(ctx, b.o.CallTimeout)
	stop := context.AfterFunc(b.closing, cancel)
	return ctx, func() { stop(); cancel() }, nil
}

// check refuses a call that has no target, or too many entries.
func (b *Broker) check(call string, n int) error {
	switch {
	case b.closed():
		return b.wrap(call, broker.ErrClosed)
	case call == callSend && b.topic == "":
		return b.wrap(call, unsupported("New was given no topic"))
	case call != callSend && b.subscription == "":
		return b.wrap(call, unsupported("New was given no subscription"))
	case n > maxBatch:
		return b.wrap(call, unsupported("%d entries; a batch has at most %d", n, maxBatch))
	}
	return nil
}

// Stats counts what a Broker has asked of Pub/Sub since it was made.
type Stats struct {
	// Pulls, Acks, Holds, Publishes and Others are calls. Holds are nacks and extensions, Others is
	// administration. Pub/Sub bills the bytes of pulls and publishes, 1,000 for each at least, and
	// nothing for the others.
	Pulls, Acks, Holds, Publishes, Others int64
	// Empty is how many of the Pulls brought nothing; Unanswered is how many of these had no
	// answer.
	Empty, Unanswered int64
	// Received, Acked and Sent are messages. Without exactly-once delivery, an ack that Pub/Sub
	// answered may have done nothing.
	Received, Acked, Sent int64
}

// PerMessage is how many calls an acked message has cost on the receiving side, 0 when there is
// none.
func (s Stats) PerMessage() float64 {
	if s.Acked == 0 {
		return 0
	}
	return float64(s.Pulls+s.Acks+s.Holds) / float64(s.Acked)
}

// Stats tells the counts so far.
func (b *Broker) Stats() Stats {
	if b == nil {
		return Stats{}
	}
	c := &b.counts
	return Stats{
		Pulls: c.pulls.Load(), Acks: c.acks.Load(), Holds: c.holds.Load(), Publishes: c.publishes.Load(), Others: c.others.Load(),
		Empty: c.empty.Load(), Unanswered: c.unanswered.Load(),
		Received: c.received.Load(), Acked: c.acked.Load(), Sent: c.sent.Load(),
	}
}

type counts struct {
	pulls, acks, holds, publishes, others    atomic.Int64
	empty, unanswered, received, acked, sent atomic.Int64
}

// seconds rounds up: what Pub/Sub is asked for is never shorter than what was promised.
func seconds(d time.Duration) int32 { return int32((d + second - 1) / second) }

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", broker.ErrUnsupported, fmt.Sprintf(format, args...))
}
