package sqslambda

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/safelog"
	"github.com/onceq/onceq/internal/sqswire"
	"github.com/onceq/onceq/internal/values"
)

// This file owns the options, and how the time of an invocation is divided. Handler calls complete,
// once, and each invocation calls plan. The options never change after that, so nothing is locked.

// The defaults, and what an Options may ask for.
const (
	// DefaultConcurrency is how many handlers of an invocation run at once.
	DefaultConcurrency = onceq.DefaultConcurrency
	// DefaultReserve is what is kept of an invocation's time for its end, but never more than a
	// quarter of that time.
	DefaultReserve = 5 * time.Second
	// DefaultMinTime is what a handler must have left, but never more than a tenth of the time
	// until the handlers' contexts end.
	DefaultMinTime = time.Second
	// NoDeadline is how long an invocation may last when its context has no deadline, as in a test.
	// It is Lambda's longest.
	NoDeadline = 15 * time.Minute

	maxConcurrency = 1000 // Lambda gives a sandbox 1,024 threads and as many open files
	maxReserve     = 10 * time.Minute
)

// Options set up a Handler. The zero value, and nil, mean the defaults.
type Options struct {
	// Concurrency is how many handlers of one invocation run at once; the rest of the batch waits,
	// unclaimed. Default 10; 1 to 1,000. The handlers of one FIFO group always run one after the
	// other.
	Concurrency int
	// Reserve is what is kept of an invocation's time for its end. The handlers' contexts end that
	// long before the function's deadline. What the handlers did is recorded, given back and
	// reported in the time that is left. Default 5 s; 1 ms to 10 min, and never more than a quarter
	// of what the invocation has.
	Reserve time.Duration
	// MinTime is how much time a handler must have until its context ends. What has not begun by
	// then is reported as failed, unclaimed and uncounted. Default 1 s, or a tenth of the time from
	// the invocation's beginning to the end of the handlers' contexts, if that is less; at least
	// 1 ms. An invocation that has no more than MinTime from the beginning fails as a whole, with
	// an error that says so.
	MinTime time.Duration
	// Queue is the queue that the function is called for, such as an awssqs.Broker; nil = none.
	// With a Queue:
	//
	//   - What is to be tried again comes after the job's own delay, and not at the end of the
	//     queue's visibility timeout.
	//   - An invocation that takes longer than a second holds its messages to its end. So a
	//     visibility timeout that is too short does no harm, and a function that dies gives its
	//     messages back soon.
	//   - The first invocation asks for the queue's visibility timeout, and warns where it is less
	//     than six of the function's timeouts. That needs sqs:GetQueueAttributes.
	//
	// To give back or to hold is one request for up to ten messages each time, and needs
	// sqs:ChangeMessageVisibility. Records of another queue than this one, by account, region and
	// name, are left to their own timeout.
	Queue broker.Receiver
	// FailWhole is for an event source mapping without ReportBatchItemFailures. An invocation with
	// a record that failed ends in an error, so that Lambda deletes none of the batch. With Queue,
	// the records that are done are deleted first, which needs sqs:DeleteMessage. Without Queue
	// they come again with the others, and are found done. FailWhole is safe, and slower, where the
	// mapping has ReportBatchItemFailures, too. Without that setting and without FailWhole, the
	// failed records of an invocation ARE LOST: see the package comment.
	FailWhole bool
	// Unwrap names the envelopes of AWS services that a body is taken out of, or read for its id
	// and type. Default 0: none.
	Unwrap Envelope
	// TrustTopics lists the ARNs of those SNS topics whose notifications may carry metadata of
	// ours. It needs SNS in Unwrap. Default none. List one only where the queue's policy lets
	// nobody but these topics send: see Trust in the documentation of package awssqs.
	TrustTopics []string
	// Logger gets what a person should look at and the Processor does not log itself. nil =
	// slog.Default, as it is when the Handler is made. slog.New(slog.DiscardHandler) silences it.
	// One that panics loses its line.
	Logger *slog.Logger
}

// Envelope names what AWS services put around, or in place of, a producer's own body. The values
// may be added. They are those of package awssqs, which says what becomes of each.
type Envelope uint8

// The envelopes. A body that is none of those asked for comes as it is.
const (
	SNS         = Envelope(sqswire.SNS)         // a notification of a topic, without raw message delivery
	EventBridge = Envelope(sqswire.EventBridge) // what an event bus sends
	S3          = Envelope(sqswire.S3)          // a bucket's notification

	EventBridgeInSNS = Envelope(sqswire.EventBridgeInSNS) // SNS, and what an event bus has sent to the topic
	S3InSNS          = Envelope(sqswire.S3InSNS)          // SNS, and what a bucket has sent to the topic
)

// AllEnvelopes is each of the three by itself, and none within another one.
const AllEnvelopes = SNS | EventBridge | S3

// complete fills in the defaults and checks the rest.
func (o Options) complete(b *onceq.Batches) (Options, error) {
	if o.Concurrency == 0 {
		o.Concurrency = DefaultConcurrency
	}
	o.Logger = safelog.New(o.Logger)
	switch {
	case b == nil:
		return o, errors.New("sqslambda: Handler: the Batches are nil; onceq.Processor.Batches makes them")
	case o.Concurrency < 1 || o.Concurrency > maxConcurrency:
		return o, fmt.Errorf("sqslambda: Options.Concurrency: %d is not within 1 and %d", o.Concurrency, maxConcurrency)
	case o.Reserve < 0 || o.Reserve > maxReserve:
		return o, fmt.Errorf("sqslambda: Options.Reserve: %v is not within 0 and %v", o.Reserve, maxReserve)
	case durations.IsBare(o.Reserve):
		return o, fmt.Errorf("sqslambda: Options.Reserve: %s", durations.AskUnit(o.Reserve))
	case durations.IsBare(o.MinTime):
		return o, fmt.Errorf("sqslambda: Options.MinTime: %s", durations.AskUnit(o.MinTime))
	case o.MinTime < 0 || o.MinTime >= NoDeadline:
		return o, fmt.Errorf("sqslambda: Options.MinTime: %v is not within 0 and the longest invocation, %v", o.MinTime, NoDeadline)
	}
	if values.IsNil(o.Queue) {
		o.Queue = nil
		return o, nil
	}
	if l := o.Queue.Limits(); l.SettleBatch < 1 {
		return o, fmt.Errorf("sqslambda: Options.Queue: its Limits().SettleBatch is %d, want 1 or more", l.SettleBatch)
	}
	return o, nil
}

// times are those of one invocation.
type times struct {
	begin time.Time
	cut   time.Time // the handlers' contexts end
	until time.Time // all is recorded
	last  time.Time // the queue is called no more: the answer goes out
	end   time.Time // Lambda stops the function
	least time.Duration
}

// plan divides the time of an invocation that ends at the deadline.
func (o *Options) plan(begin, end time.Time) (times, error) {
	whole := end.Sub(begin)
	reserve := o.Reserve
	if reserve == 0 {
		reserve = DefaultReserve
	}
	reserve = max(0, min(reserve, whole/4))
	t := times{begin: begin, end: end, cut: end.Add(-reserve), until: end.Add(-reserve / 5), last: end.Add(-reserve / 10), least: o.MinTime}
	usable := t.cut.Sub(begin)
	if t.least == 0 {
		t.least = max(durations.Least, min(DefaultMinTime, usable/10))
	}
	if usable <= 0 || t.least >= usable {
		return t, fmt.Errorf("sqslambda: the invocation has %v, and nothing can begin: %v are kept for its end, and Options.MinTime is %v; raise the function's timeout", whole, reserve, t.least)
	}
	return t, nil
}
