package onceq

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/values"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns Forward: what a relay refuses of its configuration, what it admits, what it sends,
// and what becomes of what its destination refuses. The Batched below it calls send, from the
// goroutine of a slot or of a timer; the hosts call admitRelayed. Nothing here changes after
// Forward, so there is no lock.

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
//   - After an error it is sent again, after a backoff of up to 1 s, doubled up to 1 min
//     (Defaults.Backoff), for as long as it takes. Defaults.MaxAttempts must be unlimited, and is so
//     by default.
//   - A message that the destination can never take stays in the queue: broker.ErrTooLarge,
//     broker.ErrUnsupported and broker.ErrBadMeta are [Permanent]. It is hidden for an hour at a
//     time, and an ERROR tells of it each time. It holds its group meanwhile. Remove or mend it in
//     the queue, or let a middleware skip it, which returns nil for its id.
//
// A message that has no key of onceq's gets none, because no id that this queue gives it is known to
// be the only one of its kind. The destination's Workers find its key as they do for any foreign
// producer, by their own ProcessorConfig.Key. Where the relay's ProcessorConfig.Key is set, such a
// message gets the key that it answers, in a Meta whose ID is the same.
//
// A middleware of [Chain] may change j.Message, and that is sent. It must change it in the same way
// each time.
//
// A *[ConfigError] refuses what would lose messages: a nil destination, or the queue itself; a Store,
// whose record would tell the destination's workers that the job is done; a DeadLetter other than
// KeepInQueue; a bounded MaxAttempts; a Forward in a [Mux]. A Forward in any other wrapping than
// Chain's sends nothing: each job fails, class "config".
func Forward(to broker.Sender) Handler {
	h := &batched{o: BatchedOptions{Max: 1, Linger: forwardLinger}, relay: &relay{to: to}}
	h.f = h.relay.send
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

// relay is what a Forward sends to.
type relay struct {
	to     broker.Sender
	limits broker.Limits
}

// relayIn is the destination of a Forward; nil = h is none.
func relayIn(h Handler) *relay {
	if b := batchedIn(h); b != nil {
		return b.relay
	}
	return nil
}

// ofRelay are the defaults of a relay, which gives nothing up, and does not wait for long.
func (o JobOptions) ofRelay() JobOptions {
	o.MaxAttempts = cmp.Or(o.MaxAttempts, -1)
	if o.Backoff == nil {
		o.Backoff = func(attempt int, _ error) time.Duration {
			return rand.N(min(time.Minute, time.Second<<min(max(0, attempt-1), 6)) + 1)
		}
	}
	return o
}

// checkRelay refuses what a Forward would lose messages by.
func (c *ProcessorConfig) checkRelay() error {
	switch {
	case relayIn(c.Handler) == nil:
		return nil
	case !isStoreless(c.Store):
		return badConfig("ProcessorConfig.Store", "a Forward needs NoStore: a record that a message was sent on would tell the destination's workers that its job is done")
	case c.Defaults.MaxAttempts > 0:
		return badConfig("ProcessorConfig.Defaults.MaxAttempts", "%d: a message that was not sent after so many tries would never be; a Forward needs -1, unlimited", c.Defaults.MaxAttempts)
	}
	return nil
}

// checkRelayed is checkRelay for what is said of a queue; nil = nobody knows the queue.
func (p *Processor) checkRelayed(of string, letters broker.Sender, queue broker.Receiver) error {
	to := p.relays()
	switch {
	case to == nil:
		return nil
	case letters != KeepInQueue:
		return badConfig(of+".DeadLetter", "a Forward needs KeepInQueue: a letter of a message that was not sent could not be replayed, because no key was claimed")
	case queue != nil && values.Same(to.to, queue):
		return badConfig("Forward", "the destination is the queue itself, which would send its messages to itself for ever")
	}
	return nil
}

// isStoreless also sees a NoStore that a test has wrapped.
func isStoreless(s dedupe.Store) bool {
	n, ok := s.(interface{ Storeless() bool })
	return ok && n.Storeless()
}

// admitRelayed is what a relay asks for: neither what the job's metadata ask of its own worker, nor
// a key, where the message has none.
func (in *intake) admitRelayed(r *run, to *relay) *engine.Refusal {
	m, d := r.Message, &in.c.Defaults
	if m.MetaErr != nil {
		return &engine.Refusal{Class: ClassBadMeta, Err: m.MetaErr}
	}
	if left := early(m) - max(0, to.limits.MaxDelay); left > 0 {
		return &engine.Refusal{Back: engine.Outcome(OutcomeEarly), Delay: left}
	}
	give(r)
	r.Opts = engine.JobOptions{Most: -1, Timeout: d.Timeout, Policy: d.Interrupted, Backoff: d.Backoff}
	key := dedupe.Key{Key: m.ID}
	if in.c.Key != nil || hasKey(m.Meta) {
		var err error
		if key, err = in.keyOf(r.Job.Message); err != nil {
			return &engine.Refusal{Class: ClassNoKey, Err: err}
		}
	}
	key.Scope = cmp.Or(key.Scope, d.Scope, in.c.Scope)
	if err := checkKey(key); err != nil {
		return &engine.Refusal{Class: ClassBadKey, Err: err}
	}
	r.Key = key
	return nil
}

func hasKey(m *broker.Meta) bool { return m != nil && (m.Key != "" || m.ID != "") }

var errHiddenForward = verdict.Classed(ClassConfig, "onceq: the worker's Handler wraps a Forward, and does not know it then; wrap it with Chain, and give it a Processor of its own")

// send sends the messages of a batch in as few calls as it takes.
func (to *relay) send(ctx context.Context, js []*Job) []error {
	errs := make([]error, len(js))
	ms, at := make([]broker.Outgoing, 0, len(js)), make([]int, 0, len(js))
	s := relaySender{Sender: to.to, timeout: DefaultCallTimeout}
	for i, j := range js {
		keyed := false
		if j.r != nil { // a test may have made it
			if j.owner().relays() != to {
				errs[i] = errHiddenForward
				continue
			}
			c := j.owner().config()
			s.timeout, keyed = c.CallTimeout, c.Key != nil
		}
		s.tried = max(s.tried, j.Attempt)
		ms, at = append(ms, to.outgoing(j, keyed)), append(at, i)
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

// outgoing is the message of a job as it is sent on. keyed: a message without a key gets the job's.
func (to *relay) outgoing(j *Job, keyed bool) broker.Outgoing {
	m := j.Message
	o := broker.Outgoing{
		Body: m.Body, Attributes: m.Attributes, Meta: m.Meta, Group: m.Group,
		Delay: min(early(m), max(0, to.limits.MaxDelay)),
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
	return nil, broker.Batch(errs)
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
