package onceqpubsub

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/batcher"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/safelog"
)

// This file owns what OpenTopic and OpenSubscription may be told, their defaults and their bounds.
// Both ask once. Nothing changes options after that, so nothing is locked.

// TopicOptions set up OpenTopic. The zero value, and nil, mean the defaults.
type TopicOptions struct {
	// Key finds the idempotency key of a message: two messages with one key are one job to a
	// onceq Worker. It may read Body and Metadata, and must change neither. The goroutine of a
	// batch calls it, several at once. Its error fails the send, and with it the batch. It is not
	// asked where the metadata has KeyMetadata. Default nil: each send is a job of its own.
	Key func(*pubsub.Message) (string, error)
	// GoCloudSQS writes messages as gocloud's awssnssqs driver does: values are percent-encoded,
	// and a body that is not UTF-8 travels as base64 with the attribute "base64encoded". Set it
	// while subscribers with that driver read the queue. A onceq Worker sees values and bodies in
	// that form. Only for SQS. Default false: both travel as they are.
	GoCloudSQS bool
	// BatcherOptions narrow how sends are gathered. Default: batches as large as the broker takes,
	// 10 at once. All senders of a batch get its error; a MaxBatchSize of 1 gives each its own.
	BatcherOptions batcher.Options
	// Close is called once, when the Topic is shut down. Default nil: the Sender stays open,
	// because whoever made it may use it elsewhere.
	Close func() error
}

// SubscriptionOptions set up OpenSubscription. The zero value, and nil, mean the defaults.
type SubscriptionOptions struct {
	// Visibility is how long a received message stays hidden without a heartbeat. Default 30 s, or
	// the broker's nearest. At least 100 ms, and within the broker's limits.
	Visibility time.Duration
	// MaxHold is for how long heartbeats keep a received message hidden, counted from its receive,
	// with the time that it waits in gocloud's own queue. Then it is delivered again, though its
	// receiver may still work on it. Default 1 h, else at least Visibility; where the broker's
	// longest total hold is shorter, that less Visibility. < 0 = no heartbeats.
	MaxHold time.Duration
	// Wait is how long one receive waits for the first message. A longer one makes fewer requests
	// while the queue is empty, and Shutdown waits for its end. Default 1 s; at least 1 ms, and at
	// most the broker's longest.
	Wait time.Duration
	// NackDelay is for how long a nacked message stays hidden. Default 0: it is delivered again at
	// once. At most the broker's longest.
	NackDelay time.Duration
	// GoCloudSQS reads messages as gocloud's awssnssqs driver does: values are percent-decoded, and
	// a body with the attribute "base64encoded" is decoded. Set it while publishers with that
	// driver write to the queue. Only for SQS. Default false: both are taken as they come.
	GoCloudSQS bool
	// ReceiveBatcherOptions narrow how receives are made. Default: batches as large as the broker
	// brings, 10 at once.
	ReceiveBatcherOptions batcher.Options
	// AckBatcherOptions narrow how acks and nacks are gathered. Default: batches as large as the
	// broker takes, 10 at once.
	AckBatcherOptions batcher.Options
	// Logger is told of calls that are tried again, of leases that were lost, and of acks that were
	// given up. nil = slog.Default. One that panics loses its line.
	Logger *slog.Logger
	// Close is called once, when the Subscription is shut down. Default nil: the Receiver stays
	// open, because whoever made it may use it elsewhere.
	Close func() error
}

const (
	defaultMaxHold = time.Hour
	defaultPoll    = time.Second
	minVisibility  = 100 * time.Millisecond
	handlers       = 10 // calls at once, of each kind
	// ackPatience is for how long an ack is offered again that the broker did not take. The message
	// stays hidden meanwhile, because its work is done.
	ackPatience = 5 * time.Minute
	// closing bounds each of the two things that Shutdown does beyond its context: the receive in
	// flight ends, and messages are given back.
	closing = 10 * time.Second
)

func badOption(field, format string, args ...any) error {
	return fmt.Errorf("onceqpubsub: %s: %s", field, fmt.Sprintf(format, args...))
}

func checkTopic(o TopicOptions, l broker.Limits) error {
	if err := checkBatcher("TopicOptions.BatcherOptions", o.BatcherOptions); err != nil {
		return err
	}
	return checkPeer("TopicOptions.GoCloudSQS", o.GoCloudSQS, l)
}

func checkPeer(field string, set bool, l broker.Limits) error {
	if set && !formOf(l, true).sqs {
		return badOption(field, "the broker is none of SQS: it takes %d attributes", l.MaxAttributes)
	}
	return nil
}

func checkBatcher(field string, o batcher.Options) error {
	if o.MaxHandlers < 0 || o.MinBatchSize < 0 || o.MaxBatchSize < 0 || o.MaxBatchByteSize < 0 {
		return badOption(field, "a number is negative")
	}
	return nil
}

// finish fills in the defaults that suit a broker with these limits, and checks the rest.
func (o SubscriptionOptions) finish(l broker.Limits) (SubscriptionOptions, error) {
	o.Logger = safelog.New(o.Logger)
	if o.Visibility == 0 {
		o.Visibility = max(onceq.DefaultVisibility, l.MinHold)
		if l.MaxHold > 0 {
			o.Visibility = min(o.Visibility, l.MaxHold)
		}
	}
	if o.Wait == 0 {
		o.Wait = defaultPoll
		if l.MaxWait > 0 {
			o.Wait = min(o.Wait, l.MaxWait)
		}
	}
	if o.MaxHold == 0 {
		o.MaxHold = max(defaultMaxHold, o.Visibility)
	}
	err := cmp.Or(checkSubscription(&o, l),
		checkBatcher("SubscriptionOptions.ReceiveBatcherOptions", o.ReceiveBatcherOptions),
		checkBatcher("SubscriptionOptions.AckBatcherOptions", o.AckBatcherOptions),
		checkPeer("SubscriptionOptions.GoCloudSQS", o.GoCloudSQS, l))
	if l.MaxTotal > 0 {
		// The last extension must end within the total, too.
		o.MaxHold = min(o.MaxHold, l.MaxTotal-o.Visibility)
	}
	return o, err
}

func checkSubscription(o *SubscriptionOptions, l broker.Limits) error {
	const visibility, hold, wait, nack = "SubscriptionOptions.Visibility", "SubscriptionOptions.MaxHold", "SubscriptionOptions.Wait", "SubscriptionOptions.NackDelay"
	switch {
	case o.Visibility < minVisibility:
		return badOption(visibility, "%v is below %v", o.Visibility, minVisibility)
	case l.MinHold > 0 && o.Visibility < l.MinHold:
		return badOption(visibility, "%v is below the broker's shortest extension, %v", o.Visibility, l.MinHold)
	case l.MaxHold > 0 && o.Visibility > l.MaxHold:
		return badOption(visibility, "%v is above the broker's longest extension, %v", o.Visibility, l.MaxHold)
	case o.MaxHold > 0 && o.MaxHold < o.Visibility:
		return badOption(hold, "%v is below Visibility, %v", o.MaxHold, o.Visibility)
	case o.Wait < 0:
		return badOption(wait, "%v is negative", o.Wait)
	case durations.IsBare(o.Wait):
		return badOption(wait, "%s", durations.AskUnit(o.Wait))
	case l.MaxWait > 0 && o.Wait > l.MaxWait:
		return badOption(wait, "%v is above the broker's longest, %v", o.Wait, l.MaxWait)
	case o.NackDelay < 0:
		return badOption(nack, "%v is negative", o.NackDelay)
	case durations.IsBare(o.NackDelay):
		return badOption(nack, "%s", durations.AskUnit(o.NackDelay))
	case o.NackDelay > l.MaxNack:
		return badOption(nack, "%v is above the broker's longest, %v", o.NackDelay, l.MaxNack)
	}
	return nil
}
