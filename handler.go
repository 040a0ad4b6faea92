package onceq

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/values"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns what runs a job: Handler and Middleware, the handlers that decode JSON, the
// results that they keep, and Outcome, the names of how a delivery ends. Handlers run in goroutines
// of the engine. Nothing here is locked.

// Handler does a job's work. It may be called from many goroutines.
//
// What Handle returns decides:
//
//   - nil: the job is done. That is recorded with its key, and the job does not run again while the
//     record is kept.
//   - an error: the job is tried again later, after a backoff, unless its attempts are used up.
//     [Permanent] and [RetryAfter] say otherwise. A panic counts as an error.
//
// ctx ends when the job's Timeout is over ([ErrTimeout]), when the worker drains longer than
// DrainTimeout ([ErrDraining]), or when the lease is lost ([ErrLeaseLost]); context.Cause answers
// which. A handler that was cut off may still return nil, if its work is complete.
type Handler interface {
	Handle(ctx context.Context, j *Job) error
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(ctx context.Context, j *Job) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, j *Job) error { return f(ctx, j) }

// Middleware wraps a Handler: for logging, metrics, a transaction, a limit.
type Middleware func(Handler) Handler

// Chain wraps h in mw; the first is the outermost. Where one of mw is nil, NewProcessor answers a
// *[ConfigError].
//
// h may be a [Mux]: a worker knows the scopes and options of its types all the same. mw is then
// called for unknown types too, while [Mux.Use] wraps only the handlers that there are. h may be
// what [Bulk] or [Forward] makes: mw is then called for each job.
func Chain(h Handler, mw ...Middleware) Handler {
	in := innerOf(h)
	for i := len(mw) - 1; i >= 0; i-- {
		if mw[i] == nil {
			return (*misChained)(nil)
		}
		h = mw[i](h)
	}
	_, isMux := in.(*Mux)
	_, isKnown := in.(known)
	if (isMux || isKnown) && len(mw) > 0 && !values.IsNil(h) {
		return &chained{h, in}
	}
	return h
}

// known is a Handler of which a Processor must know more than that it handles jobs: one that
// Bulk or Forward has made.
type known interface {
	Handler
	mistake() error // what is wrong with it
	slots() int     // how many a Worker must have; 0 = any number
	relayTo() *relay
	waits() bool // it waits before it does anything, and has the starts of its jobs recorded itself
}

// relay is where a Forward sends to.
type relay struct {
	to     broker.Sender
	limits broker.Limits
}

// startsLater reports whether h has the starts of its jobs recorded itself. A middleware around it
// is the user's code, and may do anything at once.
func startsLater(h Handler) bool {
	k, bare := h.(known)
	return bare && k.waits()
}

// knownIn is the known Handler that h is, or that Chain has wrapped; nil = none.
func knownIn(h Handler) known {
	k, _ := innerOf(h).(known)
	return k
}

// relayIn is what the Forward sends to that h is, or that Chain has wrapped; nil = it is none.
func relayIn(h Handler) *relay {
	if k := knownIn(h); k != nil {
		return k.relayTo()
	}
	return nil
}

// chained is a Handler that a Processor must know, with middleware around it.
type chained struct {
	Handler
	inner Handler
}

// innerOf is what Chain has wrapped, where a Processor must know it; else h itself.
func innerOf(h Handler) Handler {
	if c, ok := h.(*chained); ok {
		return c.inner
	}
	return h
}

// misChained is what Chain makes with a nil middleware. It is a nil pointer, so that whoever
// refuses a nil Handler refuses it too.
type misChained struct{}

var errMisChained = badConfig("Chain", "a middleware is nil")

func (*misChained) Handle(context.Context, *Job) error { return errMisChained }

// muxIn is the Mux that h is, or that Chain has wrapped; nil = none.
func muxIn(h Handler) *Mux {
	switch h := innerOf(h).(type) {
	case *Mux:
		return h
	case *misChained: // NewProcessor answers a Mux's mistake
		return &Mux{err: errMisChained}
	}
	return nil
}

// JSON is a Handler for bodies that are JSON. A body that does not decode into a T fails the job
// for good, class "decode", because repeating would not change it. The error's text is logged, and
// goes into the letter. It names the place, and quotes no number of the body. A T with an
// UnmarshalJSON of its own may quote what it likes. A nil f makes a nil Handler.
func JSON[T any](f func(ctx context.Context, j *Job, v T) error) Handler {
	if f == nil {
		return nil
	}
	return HandlerFunc(func(ctx context.Context, j *Job) error {
		v, err := decode[T](j)
		if err != nil {
			return err
		}
		return f(ctx, j, v)
	})
}

// JSONResult does what [JSON] does, and keeps what f returns with the key, as JSON: see [Result]. A
// result that cannot be encoded, or is larger than the store takes, fails the job for good, class
// "result". Its effect has happened, and running the job again would repeat that.
func JSONResult[T, R any](f func(ctx context.Context, j *Job, v T) (R, error)) Handler {
	if f == nil {
		return nil
	}
	return HandlerFunc(func(ctx context.Context, j *Job) error {
		v, err := decode[T](j)
		if err != nil {
			return err
		}
		result, err := f(ctx, j, v)
		if err != nil {
			return err
		}
		return keep(j, result)
	})
}

// keep stores v with the key. Its errors are permanent, because the effect has happened.
func keep(j *Job, v any) error {
	b, err := engine.Guard(func() ([]byte, error) { return json.Marshal(v) })
	if err != nil {
		return Permanent(verdict.Classed(ClassResult, "onceq: the result does not encode: %w", err))
	}
	if err := j.SetResult(b); err != nil {
		return Permanent(&verdict.ClassError{Class: ClassResult, Err: err})
	}
	return nil
}

func decodeResult[R any](k dedupe.Key, b []byte) (v R, err error) {
	if b == nil {
		return v, nil
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return v, verdict.Classed(ClassResult, "onceq: the result of %v does not decode into %T: %w", k, v, err)
	}
	return v, nil
}

func decode[T any](j *Job) (v T, err error) {
	if err := json.Unmarshal(j.Message.Body, &v); err != nil {
		return v, Permanent(verdict.Classed(ClassDecode, "onceq: the body of %d bytes does not decode into %T: %w", len(j.Message.Body), v, unquoted(err)))
	}
	return v, nil
}

// unquoted leaves the body's own numbers out of the text of an error, because that is logged and
// put into the letter. One of them may be a card's.
func unquoted(err error) error {
	var t *json.UnmarshalTypeError
	if !errors.As(err, &t) {
		return err
	}
	kind, _, _ := strings.Cut(t.Value, " ")
	return &unquotedError{fmt.Sprintf("json: cannot unmarshal %s at byte %d into %s of type %v", kind, t.Offset, cmp.Or(t.Field, "a value"), t.Type), err}
}

type unquotedError struct {
	text string
	err  error
}

func (e *unquotedError) Error() string { return e.text }
func (e *unquotedError) Unwrap() error { return e.err }

// Result reads what is recorded for a key: its status and, when it is done, the result that
// JSONResult or CompleteTx stored. The status is 0 when there is no record. A done job without a
// result gives the zero R.
func Result[R any](ctx context.Context, s dedupe.Store, k dedupe.Key) (v R, st dedupe.Status, err error) {
	if err := k.Validate(); err != nil {
		return v, 0, err
	}
	rs, err := s.Get(ctx, []dedupe.Key{k})
	switch {
	case err != nil:
		return v, 0, err
	case len(rs) != 1:
		return v, 0, fmt.Errorf("onceq: the store answered %d of 1 keys", len(rs))
	case rs[0] == nil:
		return v, 0, nil
	}
	r := rs[0]
	if r.Status == dedupe.Done {
		v, err = decodeResult[R](k, r.Result)
	}
	return v, r.Status, err
}

// Outcome names how one delivery, or one call of [Do], went: [JobReport].Outcome, and "outcome"
// in the log. The text of a constant never changes, so that alerts may be made of it.
type Outcome string

// The outcomes of a job whose key was claimed by this delivery.
const (
	// OutcomeDone: the handler has returned nil, or its transaction has committed, and that is
	// recorded. The message is acked.
	OutcomeDone Outcome = "done"
	// OutcomeRetried: the handler has failed; the message comes again after the backoff, and the
	// attempt counts.
	OutcomeRetried Outcome = "retried"
	// OutcomePostponed: the handler has given the job back for a time, see [Postpone]. The message
	// comes again then, and the attempt does not count.
	OutcomePostponed Outcome = "postponed"
	// OutcomeFailed: the job has failed for good. Its dead letter is stored, and the message acked.
	OutcomeFailed Outcome = "failed"
	// OutcomeParked: the job was interrupted under dedupe.Park, in this run or in that of a worker
	// that died and whose key this delivery has found; an operator must decide. Its
	// dead letter is stored, and the message acked.
	OutcomeParked Outcome = "parked"
	// OutcomeHandedBack: the handler has not started, or was cut off by a drain. The message comes
	// again at once, and the attempt does not count.
	OutcomeHandedBack Outcome = "handed-back"
	// OutcomeLeaseLost: the store has said that the key is another worker's. Nothing is recorded,
	// acked or given back.
	OutcomeLeaseLost Outcome = "lease-lost"
	// OutcomeUnsettled: the job's end, or its dead letter, could not be stored in time. The message
	// will be delivered again when its lease has run out.
	OutcomeUnsettled Outcome = "unsettled"
	// OutcomeExpired: Meta.Expires had passed. The handler did not start; a dead letter is stored.
	OutcomeExpired Outcome = ClassExpired
	// OutcomeUnproven: the message was older than Retention and had no record, so that the job may
	// have been done. The handler did not start; a dead letter is stored.
	OutcomeUnproven Outcome = ClassUnproven
)

// The outcomes of a delivery whose key was found taken. The handler did not start.
const (
	// OutcomeAlreadyDone: the job was done before. The message is acked.
	OutcomeAlreadyDone Outcome = "already-done"
	// OutcomeAlreadyFailed: the job had failed before. Its dead letter is stored once more, and the
	// message acked.
	OutcomeAlreadyFailed Outcome = "already-failed"
	// OutcomeAlreadyParked: the job is parked. Its dead letter is stored once more, and the message
	// acked.
	OutcomeAlreadyParked Outcome = "already-parked"
	// OutcomeCancelled: an operator has cancelled the job. The message is acked, without a letter.
	OutcomeCancelled Outcome = "cancelled"
	// OutcomeInProgress: another delivery of the job, or a call of Do, holds the key. The message
	// comes again later.
	OutcomeInProgress Outcome = "in-progress"
	// OutcomeHandedOver: the message was delivered again to the worker that runs its job. That run
	// has taken over the new receipt.
	OutcomeHandedOver Outcome = "handed-over"
	// OutcomeDuplicate: another message with the key has failed, or is parked. A dead letter that
	// reopens nothing is stored.
	OutcomeDuplicate Outcome = ClassDuplicate
	// OutcomeMismatch: the key is taken by a message with another payload. A dead letter is stored.
	OutcomeMismatch Outcome = ClassMismatch
	// OutcomeStale: the store has refused two tokens in a row as seen before. The message comes
	// again at once.
	OutcomeStale Outcome = "stale"
)

// The outcomes of a delivery whose key was not claimed. The handler did not start.
const (
	// OutcomeEarly: Meta.NotBefore lies ahead. The message comes again then.
	OutcomeEarly Outcome = "early"
	// OutcomeTooEarly: Meta.NotBefore lies further ahead than Ceilings.NotBefore, or than the queue
	// keeps the message. A dead letter is stored.
	OutcomeTooEarly Outcome = ClassTooEarly
	// OutcomeNoKey: the message has no idempotency key, or ProcessorConfig.Key has answered an
	// error. A dead letter is stored.
	OutcomeNoKey Outcome = ClassNoKey
	// OutcomeBadKey: the key cannot be stored. A dead letter is stored.
	OutcomeBadKey Outcome = ClassBadKey
	// OutcomeBadMeta: onceq's metadata could not be read. A dead letter is stored.
	OutcomeBadMeta Outcome = ClassBadMeta
	// OutcomeBadFingerprint: ProcessorConfig.Fingerprint has panicked. A dead letter of class
	// "error" is stored. Replay it once the function is mended.
	OutcomeBadFingerprint Outcome = "bad-fingerprint"
	// OutcomeClaimRefused: the store refuses this claim and answers others. The message comes again
	// after five minutes; after a day it becomes a dead letter.
	OutcomeClaimRefused Outcome = ClassClaimRefused
	// OutcomeStoreUnreachable: the store gave no answer. The message comes again.
	OutcomeStoreUnreachable Outcome = "store-unreachable"
	// OutcomeLostBeforeClaim: the message was delivered again before it was claimed.
	OutcomeLostBeforeClaim Outcome = "lost-before-claim"
	// OutcomeNoHandler: the message has no type, and the Handler is a Mux. A dead letter is stored,
	// but not at once: see [OutcomeKept].
	OutcomeNoHandler Outcome = ClassNoHandler
	// OutcomeConfig: the Handler hides a Mux. A dead letter is stored, but not at once: see
	// [OutcomeKept].
	OutcomeConfig Outcome = ClassConfig
	// OutcomeNoMessage: the Delivery has no Message.
	OutcomeNoMessage Outcome = "no-message"
)

// The outcomes of a delivery with or without a claim.
const (
	// OutcomeKept: what would be a dead letter stays in its queue. The reason is KeepInQueue,
	// HoldGroup, a dead-letter queue that does not take it, or a missing ProcessorConfig.Key. The
	// message comes again. A job that has run, and is kept by KeepInQueue or HoldGroup, is
	// [OutcomeRetried].
	OutcomeKept Outcome = "kept"
	// OutcomePaused: a rule pauses its type or scope. The message comes again, and no attempt
	// counts.
	OutcomePaused Outcome = "paused"
	// OutcomeAbandoned: the time of a drain, or of a batch, was over before the job had ended. The
	// message is left alone.
	OutcomeAbandoned Outcome = "abandoned"
)

// Outcomes are all outcomes, in the order of their constants.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeDone, OutcomeRetried, OutcomePostponed, OutcomeFailed, OutcomeParked, OutcomeHandedBack,
		OutcomeLeaseLost, OutcomeUnsettled, OutcomeExpired, OutcomeUnproven, OutcomeAlreadyDone,
		OutcomeAlreadyFailed, OutcomeAlreadyParked, OutcomeCancelled, OutcomeInProgress, OutcomeHandedOver,
		OutcomeDuplicate, OutcomeMismatch, OutcomeStale, OutcomeEarly, OutcomeTooEarly,
		OutcomeNoKey, OutcomeBadKey, OutcomeBadMeta, OutcomeBadFingerprint, OutcomeClaimRefused,
		OutcomeStoreUnreachable, OutcomeLostBeforeClaim, OutcomeNoHandler, OutcomeConfig,
		OutcomeNoMessage, OutcomeKept, OutcomePaused, OutcomeAbandoned,
	}
}
