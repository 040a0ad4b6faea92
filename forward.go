package onceq

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/values"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns Forward: what it sends, and what becomes of what its destination refuses. What it
// refuses of a configuration stands in config.go and processor.go, what it admits in intake.go. The
// Bulk below it calls sendOn, from the goroutine of a slot or of a timer. Nothing here changes
// after Forward, so there is no lock.

// Forward is a Handler that sends each message on to another queue as it is: body, attributes,
// group and metadata, with the id and the key of its job. It makes a Worker a relay, as of an
// outbox, in any process and in any number of them:
//
//	onceq.ProcessorConfig{Handler: onceq.Forward(sqs), Store: onceq.NoStore, Scope: "outbox"}
//	onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 1000}
//
// A message is acked when the destination has taken it. A relay that dies between the two sends the
// message again, with the same id and key, so that the destination's workers do the job once.
// Messages that are ready together share a call of to.Send, as many as it takes. At most 1 ms is
// waited for that. A call is bounded by CallTimeout.
//
// Where the queue orders groups, at most one message of a group is on its way, so that a group is
// sent in its order.
//
// What a job asks for is its destination's business. A relay starts a job that expired, and asks
// neither for MaxAttempts nor Timeout of a message's Meta. A message with a Meta.NotBefore stays in
// the queue until the destination's MaxDelay reaches as far, and is sent with what is left as its
// Delay.
//
// No message is given up:
//
//   - After an error it is sent again, after a backoff of up to 1 s, doubled up to 1 min, for as
//     long as it takes. Defaults.Backoff changes that. Defaults.MaxAttempts must be unlimited, and
//     is so by default.
//   - A message that the destination can never take stays in the queue: broker.ErrTooLarge,
//     broker.ErrUnsupported and broker.ErrBadMeta are [Permanent]. It is hidden for an hour at a
//     time, and an ERROR tells of it each time. It holds its group meanwhile. Remove or mend it in
//     the queue, or let a middleware skip it, which returns nil for its id.
//
// A message that has no key of onceq's gets none, because two queues may give one id to two
// messages. The destination's Workers find its key as they do for any foreign producer, by their
// own ProcessorConfig.Key. Where the relay's ProcessorConfig.Key is set, such a message gets the
// key that it answers, in a Meta whose ID is the same.
//
// A middleware of [Chain] may change j.Message, and that is sent. It must change it in the same way
// each time.
//
// A *[ConfigError] refuses what would lose messages, or would send none:
//
//   - a destination that is nil, or the queue itself;
//   - a Store, because its record would tell the destination's workers that the job is done;
//   - a DeadLetter other than KeepInQueue, and a bounded MaxAttempts;
//   - a Forward in a [Mux]. In any other wrapping than Chain's it sends nothing: each job fails,
//     class "config".
func Forward(to broker.Sender) Handler {
	h := &bulk{o: BulkOptions{Max: 1, Linger: forwardLinger}, relay: &relay{to: to}}
	h.f = func(ctx context.Context, js []*Job) []error { return sendOn(ctx, h.relay, js) }
	switch {
	case values.IsNil(to):
		h.err = badConfig("Forward", "the destination is nil")
	case to == KeepInQueue:
		h.err = badConfig("Forward", "KeepInQueue is no destination")
	default:
		h.relay.limits = to.Limits()
		h.o.Max = max(1, min(h.relay.limits.SendBatch, mostBatch))
	}
	return h
}

// forwardLinger is how long a message waits for others that are made ready in the same moment.
const forwardLinger = time.Millisecond

var errHiddenForward = verdict.Classed(ClassConfig, "onceq: the worker's Handler wraps a Forward, and does not know it then; wrap it with Chain, and give it a Processor of its own")

// relaying is what a Forward asks of whoever runs a job: what the Handler there sends to (nil = it
// is no Forward), how long a call may take, and whether a key is the configuration's answer.
type relaying interface {
	relaying() (to *relay, timeout time.Duration, keyed bool)
}

// sendOn sends the messages of a batch in as few calls as it takes.
func sendOn(ctx context.Context, to *relay, js []*Job) []error {
	errs := make([]error, len(js))
	ms, at := make([]broker.Outgoing, 0, len(js)), make([]int, 0, len(js))
	s := relaySender{Sender: to.to, timeout: DefaultCallTimeout}
	for i, j := range js {
		keyed := false
		if j.r != nil { // a test may have made it
			var at *relay
			if h, ok := j.r.Flow().Host.(relaying); ok {
				at, s.timeout, keyed = h.relaying()
			}
			if at != to {
				errs[i] = errHiddenForward
				continue
			}
		}
		s.tried = max(s.tried, j.Attempt)
		ms, at = append(ms, sentOn(j, to.limits.MaxDelay, keyed)), append(at, i)
	}
	on := &sending{s: &s, ordered: to.limits.OrderedGroups}
	answers := make([]error, len(ms))
	if len(ms) > 0 {
		on.batch(ctx, ms, answers)
	}
	for n, i := range at {
		if errs[i] = answers[n]; letter.IsUnfit(errs[i]) {
			errs[i] = Permanent(errs[i])
		}
	}
	return errs
}

// sentOn is the message of a job as it is sent on. keyed: a message without a key gets the job's.
func sentOn(j *Job, mostDelay time.Duration, keyed bool) broker.Outgoing {
	m := j.Message
	o := broker.Outgoing{
		Body: m.Body, Attributes: m.Attributes, Meta: m.Meta, Group: m.Group,
		Delay: min(early(m, true), max(0, mostDelay)),
	}
	if keyed && !hasKey(m.Meta) {
		o.Meta = new(broker.Meta)
		if m.Meta != nil {
			*o.Meta = *m.Meta
		}
		o.Meta.ID, o.Meta.Key = j.r.Key.Key, j.r.Key.Key
		if o.Meta.Created.IsZero() {
			o.Meta.Created = m.Published
		}
	}
	return o
}

// relaySender is the destination for one batch.
type relaySender struct {
	broker.Sender
	timeout time.Duration // of a call
	tried   int           // how often the job of the batch that was tried most has been
}

// wholeFailures is how often a message may have been tried in vain before its batch is divided.
const wholeFailures = 3

// Send bounds a call. Where the call fails for all messages, and one of them was tried often, it
// tries each alone: a message that makes each call fail would otherwise take others with it. Where
// two fail in a row before one was taken, the destination is away, and the rest is not tried.
func (s *relaySender) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	err := s.once(ctx, ms)
	if len(ms) < 2 || s.tried <= wholeFailures || !isWhole(err) || letter.IsTooMuch(err, len(ms)) {
		return nil, err
	}
	errs := make([]error, len(ms))
	first, failed, some := rand.N(len(ms)), 0, false
	for n := range ms {
		i := (first + n) % len(ms)
		if errs[i] = err; failed > 1 && !some || ctx.Err() != nil {
			continue
		}
		if errs[i] = broker.ErrAt(s.once(ctx, ms[i:i+1]), 0); errs[i] != nil {
			failed++
		} else {
			some = true
		}
	}
	return nil, broker.JoinEntries(errs)
}

// isWhole reports whether a call failed in a way that each message alone might not. A call that
// hangs is not divided, because that would take as many timeouts as there are messages.
func isWhole(err error) bool {
	var b *broker.BatchError
	return err != nil && !errors.As(err, &b) && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, broker.ErrThrottled)
}

func (s *relaySender) once(ctx context.Context, ms []broker.Outgoing) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return sendOnce(ctx, s.Sender, ms)
}
