package gocloudpubsub

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/broker"
)

// This file owns the Broker: what New makes of a topic and a subscription, how a subscription
// that failed is replaced, and how a call begins and fails. close.go has Close. Workers, Send and
// dlq call a Broker's methods from many goroutines. b.mu guards the current source, the deliveries
// (ledger.go) and what is known of waiting messages, and is held during no call. Who has b.turn may
// call Reopen.

// Broker is a topic and a subscription of gocloud. Its methods may be called from many goroutines.
type Broker struct {
	topic   *pubsub.Topic
	limits  broker.Limits
	o       Options
	sends   kind
	comes   kind
	service *service // settles past gocloud; nil = gocloud settles
	name    string

	closing context.Context // ends when Close begins
	close   context.CancelFunc
	ended   context.Context // ends with Close
	end     context.CancelFunc
	ending  sync.WaitGroup // the shutdowns of sources that failed

	turn chan struct{} // for one Receive at a time to ask gocloud
	gate chan struct{} // for one Send at a time, where messages of several groups must not mix

	mu        sync.Mutex
	source    *source
	old       map[*source]bool // those that failed, and are not shut down yet
	ledger    ledger
	receiving int       // calls of Receive
	since     time.Time // gocloud held no message then, or later
	took      time.Time // when messages were last taken from gocloud, or it had none
	own       time.Duration
	stats     Stats
}

var (
	_ broker.Broker    = (*Broker)(nil)
	_ broker.Describer = (*Broker)(nil)
)

// New makes the driver of a topic and a subscription; it does no I/O. Where nothing is sent
// the topic may be nil, and where nothing is received the subscription may. The calls that then
// have no target are answered ErrUnsupported. Nobody else may receive from the subscription. Close
// shuts it down, and leaves the topic open.
func New(topic *pubsub.Topic, subscription *pubsub.Subscription, o Options) (*Broker, error) {
	if topic == nil && subscription == nil {
		return nil, errors.New("gocloudpubsub: New: neither a topic nor a subscription is given")
	}
	b := &Broker{topic: topic}
	b.sends, b.comes = kindOfTopic(topic), kindOfSubscription(subscription)
	var err error
	if b.o, err = o.complete(subscription != nil, b.sends != anyDriver || b.comes != anyDriver); err != nil {
		return nil, err
	}
	if b.service, err = newService(subscription, &b.o); err != nil {
		return nil, err
	}
	b.name = b.o.Queue
	b.limits = makeLimits(b.sends, b.comes, b.service, &b.o)
	b.own = b.o.Visibility
	b.closing, b.close = context.WithCancel(context.Background())
	b.ended, b.end = context.WithCancel(context.Background())
	b.ledger.init(rand.Text())
	b.since, b.took = time.Now(), time.Now()
	b.turn = make(chan struct{}, 1)
	if b.sends == onPubSub && b.o.Ordered {
		b.gate = make(chan struct{}, 1)
	}
	if subscription != nil {
		b.source, b.old = &source{sub: subscription}, make(map[*source]bool)
	}
	return b, nil
}

// Limits say what the driver can do, by what its Options and As tell.
func (b *Broker) Limits() broker.Limits {
	if b == nil {
		return broker.Limits{}
	}
	return b.limits
}

// Describe is what Options.Queue names: gocloud tells nothing of its topics and subscriptions.
// Without a Queue the name is empty. Set ProcessorConfig.Queue then, so that rules and metrics have
// one. The System is "aws_sqs" or "gcp_pubsub" where As shows one of these, else "gocloud".
func (b *Broker) Describe() broker.Description {
	if b == nil {
		return broker.Description{}
	}
	d := broker.Description{System: "gocloud", Address: b.o.Queue, Name: b.o.Queue[strings.LastIndexByte(b.o.Queue, '/')+1:]}
	switch {
	case b.comes == onSQS, b.comes == anyDriver && b.sends == onSQS:
		d.System = "aws_sqs"
	case b.comes == onPubSub, b.comes == anyDriver && b.sends == onPubSub:
		d.System = "gcp_pubsub"
	}
	return d
}

// closed is also true of a Broker that New did not make.
func (b *Broker) closed() bool { return b == nil || b.closing == nil || b.closing.Err() != nil }

// shutdown ends a source once.
func (b *Broker) shutdown(s *source) error {
	b.mu.Lock()
	gone, failed := s.gone, s.failed
	s.gone = true
	delete(b.old, s)
	b.mu.Unlock()
	if gone {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.o.CallTimeout)
	defer cancel()
	if err := s.sub.Shutdown(ctx); err != nil && !failed {
		return b.wrap(callClose, classify(callClose, err))
	}
	return nil
}

// current is the source to receive from.
func (b *Broker) current() *source {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.source
}

// replace opens another subscription in place of s, which failed because of cause. The caller has
// b.turn.
func (b *Broker) replace(ctx context.Context, s *source, cause error) error {
	ctx, cancel := context.WithTimeout(ctx, b.o.CallTimeout)
	defer cancel()
	defer context.AfterFunc(b.closing, cancel)()
	sub, err := b.o.Reopen(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("the subscription failed: %w; Options.Reopen: %w", cause, err)
	case sub == nil || sub == s.sub:
		return fmt.Errorf("the subscription failed: %w; Options.Reopen gave no other one", cause)
	}
	next := &source{sub: sub}
	if b.succeed(s, next) {
		return nil
	}
	_ = b.shutdown(next)
	return broker.ErrClosed
}

// succeed puts next in the place of s, unless the Broker was closed meanwhile.
func (b *Broker) succeed(s, next *source) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed() {
		return false
	}
	b.source, b.since = next, time.Now()
	b.stats.Reopened++
	s.failed = true
	b.old[s] = true
	b.endIfIdle(s)
	return true
}

// endIfIdle shuts a source down that failed and has nothing open. b.mu is held.
func (b *Broker) endIfIdle(s *source) {
	if !s.failed || s.open > 0 || s.gone || b.closed() {
		return
	}
	// gocloud's Shutdown waits for acks that hang; no caller shall wait for them, too.
	b.ending.Go(func() { _ = b.shutdown(s) })
}

// begin bounds a call other than a receive, and ends it with Close, unless there is none to make.
func (b *Broker) begin(ctx context.Context, call string) (context.Context, context.CancelFunc, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, b.wrap(call, err)
	}
	ctx, cancel := context.WithTimeout(ctx, b.o.CallTimeout)
	stop := context.AfterFunc(b.ended, cancel)
	return ctx, func() { stop(); cancel() }, nil
}

// check refuses a call that has no target, or too many entries.
func (b *Broker) check(call string, n, most int) error {
	switch {
	case b.closed():
		return b.wrap(call, broker.ErrClosed)
	case call == callSend && b.topic == nil:
		return b.wrap(call, unsupported("New was given no topic"))
	case call != callSend && b.current() == nil:
		return b.wrap(call, unsupported("New was given no subscription"))
	case n > most:
		return b.wrap(call, unsupported("%d entries; a batch has at most %d", n, most))
	}
	return nil
}

// wrap names the call and, where it is known, the queue.
func (b *Broker) wrap(call string, err error) error {
	if b == nil || b.name == "" {
		return fmt.Errorf("gocloudpubsub: %s: %w", call, err)
	}
	return fmt.Errorf("gocloudpubsub: %s %s: %w", call, b.name, err)
}

// failed turns the error of a whole call into the contract's. errors.As still reaches gocloud's and
// the SDK's own.
func (b *Broker) failed(ctx context.Context, call string, err error) error {
	switch {
	case b.closed():
		return b.wrap(call, broker.ErrClosed)
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return b.wrap(call, classify(call, err))
}

// Stats counts what a Broker has done since it was made.
type Stats struct {
	// Received, Acked and Sent are messages. Acks that gocloud sends are counted when it takes
	// them.
	Received, Acked, Sent int64
	// Returned are messages that gocloud had received ahead and that were given back at a drain.
	Returned int64
	// Late are messages that had waited in gocloud for longer than their timeout. They were left
	// alone, because they are somebody else's by then.
	Late int64
	// Reopened is how often the subscription had failed and another one was opened.
	Reopened int64
}

// Stats tells the counts so far.
func (b *Broker) Stats() Stats {
	if b == nil {
		return Stats{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stats
}
