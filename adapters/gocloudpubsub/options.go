package gocloudpubsub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/batcher"

	"github.com/onceq/onceq/internal/durations"
)

// This file owns what a user sets, and how it is checked. New calls complete once. Nothing is
// locked, because the answer is a copy.

const (
	defaultGrace       = time.Second
	maxGrace           = time.Minute
	defaultCallTimeout = 10 * time.Second
	maxCallTimeout     = 5 * time.Minute
	longestVisibility  = 12 * time.Hour
)

// NoPrefetch, as ReceiveBatcherOptions of a gocloud driver's SubscriptionOptions, keeps gocloud
// from receiving ahead: it then holds one message at most. Each message costs a receive.
func NoPrefetch() batcher.Options { return batcher.Options{MaxBatchSize: 1, MaxHandlers: 1} }

// Options set up a Broker.
type Options struct {
	// Reopen opens the subscription again, after it failed for good. Required where there is a
	// subscription. It is called by Receive, once at a time, with a context that CallTimeout
	// bounds. The answer must be another subscription of the same queue. The Broker shuts down the
	// old one when its last delivery is settled.
	Reopen func(ctx context.Context) (*pubsub.Subscription, error)
	// Queue is what gocloud does not tell: the URL of the SQS queue, or the full name of the
	// Pub/Sub subscription, projects/PROJECT/subscriptions/NAME. With it, deliveries are settled
	// and extended with the driver's own client. Other drivers have none. Default none.
	Queue string
	// Extender extends the deliveries of a driver that the Broker does not know. Default none.
	Extender *Extender
	// Visibility is the queue's own visibility timeout, or ack deadline: how long a message stays
	// hidden that is not settled. At most 12 h. Required without Queue. With it the default is what
	// the service says; where asking is not allowed, 30 s for SQS and 10 s for Pub/Sub.
	Visibility time.Duration
	// Ordered says that the queue keeps the order of a group: SQS FIFO, where each message then
	// needs a group, or Pub/Sub with message ordering. gocloud's other drivers have no groups.
	// Default false; a Queue that ends with .fifo sets it.
	Ordered bool
	// Attempts says that a Pub/Sub subscription has a dead-letter policy. Pub/Sub counts deliveries
	// only there. Default false; SQS always counts.
	Attempts bool
	// ReceiveGrace is how long a Receive whose context has ended waits for what gocloud is just
	// receiving. A drain takes so much longer. Default 1 s; 1 ms to 1 min. Below 0: not at all.
	ReceiveGrace time.Duration
	// CallTimeout bounds each call other than a receive, beside its context, and the shutdown of a
	// subscription. Default 10 s; 1 ms to 5 min.
	CallTimeout time.Duration
}

// Extender extends deliveries past gocloud, with what As gives of them.
type Extender struct {
	// Extend hides each delivery for d from now. Its answer is that of
	// [github.com/onceq/onceq/broker.Receiver].Extend. It may be called from many goroutines.
	// Required.
	Extend func(ctx context.Context, ms []*pubsub.Message, d time.Duration) error
	// MinHold and MaxHold bound one extension, and MaxTotal a delivery in all, counted from its
	// receive. 0 = no bound.
	MinHold, MaxHold, MaxTotal time.Duration
}

// complete fills in the defaults and checks the rest.
func (o Options) complete(receives, known bool) (Options, error) {
	o.ReceiveGrace = max(cmp.Or(o.ReceiveGrace, defaultGrace), 0)
	o.CallTimeout = cmp.Or(o.CallTimeout, defaultCallTimeout)
	switch {
	case receives && o.Reopen == nil:
		return o, errors.New("gocloudpubsub: Options.Reopen: is nil; give the function that opens the subscription, because one failed ack ends it for good")
	case o.Queue != "" && !known:
		return o, fmt.Errorf("gocloudpubsub: Options.Queue: %q, but neither the topic nor the subscription is of awssnssqs's SQS or of gcppubsub", o.Queue)
	case o.Queue != "" && o.Extender != nil:
		return o, errors.New("gocloudpubsub: Options.Extender: there is a Queue, which the Broker extends itself")
	case o.Extender != nil && o.Extender.Extend == nil:
		return o, errors.New("gocloudpubsub: Options.Extender: its Extend is nil")
	case o.Extender != nil && (o.Extender.MinHold < 0 || o.Extender.MaxHold < 0 || o.Extender.MaxTotal < 0):
		return o, fmt.Errorf("gocloudpubsub: Options.Extender: a bound is negative: MinHold %v, MaxHold %v, MaxTotal %v", o.Extender.MinHold, o.Extender.MaxHold, o.Extender.MaxTotal)
	case o.Extender != nil && o.Extender.MaxHold > 0 && o.Extender.MinHold > o.Extender.MaxHold:
		return o, fmt.Errorf("gocloudpubsub: Options.Extender: MinHold %v is above MaxHold %v", o.Extender.MinHold, o.Extender.MaxHold)
	case receives && o.Queue == "" && o.Visibility == 0:
		return o, fmt.Errorf("gocloudpubsub: Options.Visibility: 0; give the queue's own timeout, at most %v, because without Options.Queue it cannot be read", longestVisibility)
	case o.Visibility != 0 && durations.IsBare(o.Visibility):
		return o, fmt.Errorf("gocloudpubsub: Options.Visibility: %s", durations.AskUnit(o.Visibility))
	case o.Visibility < 0 || o.Visibility > longestVisibility:
		return o, fmt.Errorf("gocloudpubsub: Options.Visibility: %v is not within %v and %v", o.Visibility, durations.Least, longestVisibility)
	case durations.IsBare(o.ReceiveGrace):
		return o, fmt.Errorf("gocloudpubsub: Options.ReceiveGrace: %s", durations.AskUnit(o.ReceiveGrace))
	case o.ReceiveGrace > maxGrace:
		return o, fmt.Errorf("gocloudpubsub: Options.ReceiveGrace: %v is above %v", o.ReceiveGrace, maxGrace)
	case o.CallTimeout < 0:
		return o, fmt.Errorf("gocloudpubsub: Options.CallTimeout: %v is negative", o.CallTimeout)
	case durations.IsBare(o.CallTimeout):
		return o, fmt.Errorf("gocloudpubsub: Options.CallTimeout: %s", durations.AskUnit(o.CallTimeout))
	case o.CallTimeout > maxCallTimeout:
		return o, fmt.Errorf("gocloudpubsub: Options.CallTimeout: %v is above %v", o.CallTimeout, maxCallTimeout)
	}
	o.Ordered = o.Ordered || strings.HasSuffix(o.Queue, ".fifo")
	return o, nil
}
