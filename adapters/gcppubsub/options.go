package gcppubsub

import (
	"cmp"
	"fmt"
	"time"

	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/pubsubwire"
)

// What Pub/Sub itself allows; see the package comment for the sources.
const (
	maxBatch    = 1000             // messages of a pull and of a publish, ack ids of a call
	maxIDBytes  = 512 << 10        // bytes of a call with ack ids
	minDeadline = 10 * time.Second // the shortest ack deadline of a subscription
	maxDeadline = 10 * time.Minute // the longest one, and the longest extension
	second      = time.Second      // all of Pub/Sub's times are whole seconds
)

const (
	// longestPull is the deadline of a pull that travels to the server. A pull is never cut off
	// before, because what it finds would be delivered to nobody.
	longestPull = 10 * time.Second
	// pullMargin is how much of a pull's deadline is left to its answer: the server answers with
	// nothing before the deadline, and a message that comes last must still travel.
	pullMargin = second
	maxWait    = longestPull - pullMargin
	// immediately is the deadline of a pull that asks for an answer at once.
	immediately = 5 * second
	// firstTimeout bounds the extension that follows a pull. The messages wait for it, while their
	// first ack deadline passes. It also bounds the question that may precede a pull.
	firstTimeout = 3 * second
	// mostSlack is the most that a Deadline is earlier than it may be, as broker's doc says.
	mostSlack = 5 * second
	// coarse is from where on the delay of a nack is rounded up to tens of seconds: each delay is a
	// call of its own, and a batch of retries has many.
	coarse             = time.Minute
	defaultCallTimeout = 10 * time.Second
	maxCallTimeout     = 5 * time.Minute
	// framing is what a call with ack ids has beside them, and what each id has beside its bytes.
	framing, perID = 1 << 10, 4
	// perMessage and perAttribute are what frames a message and an attribute in a publish.
	perMessage, perAttribute = 32, 12
	maxPublish               = pubsubwire.MaxRequest - framing
)

// Options set up a Broker. The zero value, and nil, mean the defaults.
type Options struct {
	// Ordered says that the subscription was made with message ordering. Then a worker runs the
	// messages of one group, which is the ordering key, one after the other. It must be what the
	// subscription is set to; Check compares. Default false.
	Ordered bool
	// Attempts says that the subscription has a dead-letter policy. Pub/Sub counts deliveries only
	// there. It must be what the subscription is set to; Check compares. Default false.
	Attempts bool
	// Visibility is how long a received message stays hidden when the receive does not say (a
	// [github.com/onceq/onceq.Worker] always does). Whole seconds, 10 s to 10 min. Default 0: the
	// subscription's own ack deadline. The driver asks for that once, with
	// pubsub.subscriptions.get. If it is not allowed to ask, it takes 10 s, the shortest one.
	Visibility time.Duration
	// LongPoll is the longest wait of one receive, and Limits.MaxWait. Whole seconds, 1 s to 9 s.
	// Default 9 s. A worker that stops waits for the pull in flight, up to a second longer than
	// this.
	LongPoll time.Duration
	// CallTimeout bounds each call other than a pull, beside its context. The core sets shorter
	// ones itself. Default 10 s; 1 ms to 5 min.
	CallTimeout time.Duration
}

// complete fills in the defaults and checks the rest.
func (o Options) complete() (Options, error) {
	o.LongPoll = cmp.Or(o.LongPoll, maxWait)
	o.CallTimeout = cmp.Or(o.CallTimeout, defaultCallTimeout)
	switch {
	case o.Visibility != 0 && (o.Visibility < minDeadline || o.Visibility > maxDeadline):
		return o, fmt.Errorf("gcppubsub: Options.Visibility: %v is not within %v and %v", o.Visibility, minDeadline, maxDeadline)
	case o.Visibility%second != 0:
		return o, fmt.Errorf("gcppubsub: Options.Visibility: %v is not in whole seconds", o.Visibility)
	case o.LongPoll < second || o.LongPoll > maxWait:
		return o, fmt.Errorf("gcppubsub: Options.LongPoll: %v is not within %v and %v", o.LongPoll, second, maxWait)
	case o.LongPoll%second != 0:
		return o, fmt.Errorf("gcppubsub: Options.LongPoll: %v is not in whole seconds", o.LongPoll)
	case o.CallTimeout < 0:
		return o, fmt.Errorf("gcppubsub: Options.CallTimeout: %v is negative", o.CallTimeout)
	case durations.IsBare(o.CallTimeout):
		return o, fmt.Errorf("gcppubsub: Options.CallTimeout: %s", durations.AskUnit(o.CallTimeout))
	case o.CallTimeout > maxCallTimeout:
		return o, fmt.Errorf("gcppubsub: Options.CallTimeout: %v is above %v", o.CallTimeout, maxCallTimeout)
	}
	return o, nil
}
