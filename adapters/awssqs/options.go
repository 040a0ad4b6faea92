package awssqs

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/sdkhttp"
)

// What SQS itself allows; see the package comment for the sources.
const (
	maxBatch        = 10               // entries of one request
	maxBytes        = 1 << 20          // bytes of one message, and of one request
	maxAttributes   = 10               // message attributes
	maxVisibility   = 12 * time.Hour   // one timeout, and a delivery's whole hold
	maxDelay        = 15 * time.Minute // of a send, standard queues only
	maxWait         = 20 * time.Second // of a long poll
	receiveSlack    = 10 * time.Second // what a poll may take beyond its wait
	defaultTimeout  = 30 * time.Second // SQS's default visibility timeout
	second          = time.Second      // all of SQS's times are whole seconds
	attemptTTL      = 5 * time.Minute  // how long a ReceiveRequestAttemptId is good
	maxGrace        = maxWait + second // of Options.ReceiveGrace
	maxCallTimeout  = 5 * time.Minute  // of Options.CallTimeout
	badBodyDelay    = 1 * time.Second  // until a damaged message is delivered again
	giveBackTimeout = 2 * time.Second  // for giving a damaged message back
	pool            = sdkhttp.Pool(64) // idle connections of each client copy

	// maxTotal is what we use of a delivery's 12 h: SQS counts them from a moment within the poll
	// that we do not know, and refuses what goes beyond by a second.
	maxTotal = maxVisibility - maxWait - receiveSlack
)

// Options set up a Broker. The zero value, and nil, mean the defaults.
type Options struct {
	// Visibility is how long a received message stays hidden when the receive does not say (a
	// [github.com/onceq/onceq.Worker] always does). Whole seconds, 1 s to 12 h. Default 0: the
	// queue's own setting. The driver asks for that once, with sqs:GetQueueAttributes. If it is not
	// allowed to ask, it takes 30 s.
	Visibility time.Duration
	// LongPoll is the longest wait of one receive, and Limits.MaxWait. Whole seconds, 1 s to 20 s.
	// Default 8 s. A longer one is cheaper while the queue is empty (20 s: 0.05 $ a month and
	// poller; 8 s: 0.13 $). But a worker that stops has to wait for its end; see ReceiveGrace.
	LongPoll time.Duration
	// ReceiveGrace is how long the poll in flight may go on after its context has ended, before it
	// is cut off. SQS goes on with a poll whose caller is gone. A message that comes meanwhile is
	// delivered to nobody, counts as received, and stays hidden for the whole visibility timeout.
	// Default LongPoll plus 1 s, so that every poll ends by itself and no message is lost to sight.
	// 1 ms to 21 s. < 0 = none, if stopping at once is worth that.
	ReceiveGrace time.Duration
	// CallTimeout bounds each call other than a receive, beside its context. The core sets shorter
	// ones itself. Default 10 s; 1 ms to 5 m. A receive is bounded by its wait plus 10 s.
	CallTimeout time.Duration
	// Unwrap names the envelopes of AWS services that a received body is taken out of, or read for
	// its id and type. With any of them, attributes that have the names of an envelope's own
	// ("sns-topic", "eventbridge-source" and so on) are dropped unless an envelope set them.
	// Default 0: none, bodies come as they are.
	Unwrap Envelope
	// TrustTopics lists the ARNs of those SNS topics whose notifications may carry metadata of
	// ours: id, key, type, and a letter's permission to reopen a failure. It needs SNS in Unwrap.
	// Default none: metadata comes in the message's own attribute alone. List one only where the
	// queue's policy lets nobody but these topics send, because the ARN in a notification is a text
	// in a body.
	TrustTopics []string
	// Transport is what makes receives, acks, nacks, extensions and sends. Default TransportSDK.
	Transport Transport
	// Logger gets one line at level Debug where TransportAuto falls back to the SDK, with the
	// reason. nil = none.
	Logger *slog.Logger
}

// Transport is the way in which the busy calls are made: receives, acks, nacks, extensions and
// sends. Requests, answers, errors, retries and the correction of the clock are the same in each.
type Transport uint8

// The transports.
const (
	// TransportSDK makes each call with the client's copy, as the SDK does it.
	TransportSDK Transport = iota
	// TransportAuto is TransportLean where the client allows it, else TransportSDK. The SDK is used
	// if the client's HTTPClient is neither an http.Client nor the SDK's own, or if the client
	// carries what only the SDK's middleware heeds: APIOptions, Interceptors, a ClientLogMode, the
	// adaptive retryer, a tracer or meter, an endpoint resolver, signer, protocol or auth scheme of
	// its own, or no credentials. In a Lambda function it is used too, because it passes on the
	// trace's id.
	TransportAuto
	// TransportLean puts the SDK's credentials, retry loop and protocol together once for
	// all calls, and reads the common answers itself. It takes any HTTPClient. Where else
	// TransportAuto would use the SDK, New fails and says why.
	//
	// Experimental: it may change in any minor version. docs/release.md says what that means.
	TransportLean
)

const (
	defaultLongPoll    = 8 * time.Second
	defaultCallTimeout = 10 * time.Second
)

// complete fills in the defaults and checks the rest.
func (o Options) complete() (Options, error) {
	o.LongPoll = cmp.Or(o.LongPoll, defaultLongPoll)
	o.ReceiveGrace = cmp.Or(o.ReceiveGrace, o.LongPoll+second)
	o.CallTimeout = cmp.Or(o.CallTimeout, defaultCallTimeout)
	switch {
	case o.Transport > TransportLean:
		return o, fmt.Errorf("awssqs: Options.Transport: %d is none of TransportSDK, TransportAuto and TransportLean", o.Transport)
	case o.Visibility != 0 && (o.Visibility < second || o.Visibility > maxVisibility):
		return o, fmt.Errorf("awssqs: Options.Visibility: %v is not within %v and %v", o.Visibility, second, maxVisibility)
	case o.Visibility%second != 0:
		return o, fmt.Errorf("awssqs: Options.Visibility: %v is not in whole seconds", o.Visibility)
	case o.LongPoll < second || o.LongPoll > maxWait:
		return o, fmt.Errorf("awssqs: Options.LongPoll: %v is not within %v and %v", o.LongPoll, second, maxWait)
	case o.LongPoll%second != 0:
		return o, fmt.Errorf("awssqs: Options.LongPoll: %v is not in whole seconds", o.LongPoll)
	case o.ReceiveGrace > maxGrace:
		return o, fmt.Errorf("awssqs: Options.ReceiveGrace: %v is above %v", o.ReceiveGrace, maxGrace)
	case durations.IsBare(o.ReceiveGrace):
		return o, fmt.Errorf("awssqs: Options.ReceiveGrace: %s", durations.AskUnit(o.ReceiveGrace))
	case o.CallTimeout < 0:
		return o, fmt.Errorf("awssqs: Options.CallTimeout: %v is negative", o.CallTimeout)
	case durations.IsBare(o.CallTimeout):
		return o, fmt.Errorf("awssqs: Options.CallTimeout: %s", durations.AskUnit(o.CallTimeout))
	case o.CallTimeout > maxCallTimeout:
		return o, fmt.Errorf("awssqs: Options.CallTimeout: %v is above %v", o.CallTimeout, maxCallTimeout)
	}
	o.ReceiveGrace = max(0, o.ReceiveGrace)
	return o, nil
}
