package awssqs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/sqswire"
)

// This file owns the Broker: what New makes of the user's client, and how Close ends it. Workers,
// Send and dlq call a Broker's methods from many goroutines. b.mu guards the fields below it and is
// held during no request. New sets all other fields, and only the counts change after it, which are
// atomic. The calls to SQS are in files of their own.

// Broker is one SQS queue. Its methods may be called from many goroutines. It has no goroutine of
// its own.
type Broker struct {
	url, name string
	at        arn // a part is empty if neither the URL nor the client tells it
	fifo      bool
	limits    broker.Limits
	o         Options
	checks    bool // whether bodies are checked against their checksums
	opener    *sqswire.Opener

	// Each has a client of its own: a client's connections and the tokens of its retryer are shared
	// by its calls, and polls that wait or fail must not hold up a renewal or an ack.
	receives calls
	leases   calls
	sends    calls       // retries as the user's client does
	rest     *sqs.Client // administration; retries as the user's client does

	closing context.Context // ends with Close
	close   context.CancelFunc
	counts  counts

	mu         sync.Mutex
	visibility time.Duration // of receives that name none; 0 = not asked for yet
	arn        string        // empty = not asked for yet
	attempts   []attempt     // FIFO: receives without an answer
}

var (
	_ broker.Broker    = (*Broker)(nil)
	_ broker.Depther   = (*Broker)(nil)
	_ broker.Redriver  = (*Broker)(nil)
	_ broker.Describer = (*Broker)(nil)
)

// New makes the driver of the queue with that URL; it does no I/O. A name that ends in ".fifo" is a
// FIFO queue, as SQS has it. nil options mean the defaults. Find gives the URL of a name.
//
// The client is copied, not kept: its region, credentials, endpoint and middleware hold. Receives
// and lease calls (acks, nacks, extensions) get a copy each, with connections of their own where
// the HTTP client is the SDK's own or an http.Client on an http.Transport. The copies do not retry,
// because the core repeats these calls itself.
func New(client *sqs.Client, queueURL string, o *Options) (*Broker, error) {
	if client == nil {
		return nil, errors.New("awssqs: New: the client is nil")
	}
	if o == nil {
		o = &Options{}
	}
	c, err := o.complete()
	if err != nil {
		return nil, err
	}
	opener, err := sqswire.NewOpener(sqswire.Envelope(c.Unwrap), c.TrustTopics)
	if err != nil {
		return nil, fmt.Errorf("awssqs: %w", err)
	}
	at, err := checkURL(queueURL, client.Options())
	if err != nil {
		return nil, err
	}
	if err := checkTimeouts(client.Options().HTTPClient, c.LongPoll); err != nil {
		return nil, err
	}
	b := &Broker{url: queueURL, name: at.name, at: at, fifo: strings.HasSuffix(at.name, ".fifo"), o: c, opener: opener, visibility: c.Visibility}
	b.checks = !client.Options().DisableMessageChecksumValidation
	b.limits = limits(b.fifo, c.LongPoll)
	if err := b.connect(client); err != nil {
		return nil, err
	}
	b.closing, b.close = context.WithCancel(context.Background())
	return b, nil
}

func limits(fifo bool, wait time.Duration) broker.Limits {
	l := broker.Limits{
		ReceiveBatch: maxBatch, SettleBatch: maxBatch, SendBatch: maxBatch,
		MinHold: second, MaxHold: maxTotal, MaxTotal: maxTotal,
		MaxNack: maxTotal, MaxDelay: maxDelay, MaxWait: wait,
		MaxBody: maxBytes, MaxAttributes: maxAttributes,
		Attempts: true, Extends: true, PerRequestCost: true, Durable: true,
	}
	if fifo {
		l.MaxDelay = 0
		l.OrderedGroups, l.RequireGroup = true, true
	}
	return l
}

// Limits are those of SQS for the kind of queue. The last 30 s of a delivery's 12 h are left out,
// because SQS counts the 12 h from within the poll. A queue may be set to take smaller messages.
// What it refuses is answered ErrTooLarge.
func (b *Broker) Limits() broker.Limits {
	if b == nil {
		return broker.Limits{}
	}
	return b.limits
}

// URL is the queue's.
func (b *Broker) URL() string {
	if b == nil {
		return ""
	}
	return b.url
}

// Name is the last part of the queue's URL.
func (b *Broker) Name() string {
	if b == nil {
		return ""
	}
	return b.name
}

// Describe is the queue's name and URL.
func (b *Broker) Describe() broker.Description {
	if b == nil {
		return broker.Description{}
	}
	return broker.Description{System: "aws_sqs", Name: b.name, Address: b.url}
}

// Close ends the driver. Polls that wait are cut off. They and all later calls are answered
// ErrClosed. The queue stays as it is. Close never fails. It is needed only to end polls at once,
// because idle connections close by themselves.
func (b *Broker) Close() error {
	if !b.closed() {
		b.close()
	}
	return nil
}

// closed is also true of a Broker that New did not make.
func (b *Broker) closed() bool { return b == nil || b.closing == nil || b.closing.Err() != nil }

// call bounds one call other than a receive, and ends it with Close.
func (b *Broker) call(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, b.o.CallTimeout)
	stop := context.AfterFunc(b.closing, cancel)
	return ctx, func() { stop(); cancel() }
}

// seconds rounds up: what SQS is asked for is never shorter than what was promised.
func seconds(d time.Duration) int32 { return int32((d + second - 1) / second) }

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", broker.ErrUnsupported, fmt.Sprintf(format, args...))
}

func (b *Broker) checkBatch(call string, n int) error {
	if n > maxBatch {
		return b.wrap(call, unsupported("%d entries; a batch has at most %d", n, maxBatch))
	}
	return nil
}
