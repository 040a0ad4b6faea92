package onceq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/values"
)

// This file owns two questions that callers ask of a key's record: how its job ends (Wait), and
// whether it need be sent at all (SendOnce). The caller's goroutine runs all of it, and nothing is
// locked.

// How long Wait pauses between two looks, and for how long it asks a store that gives no answer.
const (
	leastWait = 100 * time.Millisecond
	mostWait  = 2 * time.Second
	storeAway = time.Minute
)

// Wait waits until the job under k is done, and answers its result, as [Result] does. It reads the
// record again and again, after pauses of 50 ms that grow to 2 s: one read each, strongly
// consistent. So it is for a caller that waits for seconds or minutes, such as an HTTP handler. A
// handler of a job would hold its slot, and is postponed instead: see package fan.
//
// k names the record, so k.Scope is that of the job's worker. A key without a record is waited for,
// because its message may not have come yet: give ctx a deadline. The errors say how it ended:
//
//   - a *[FailedError]: the job has failed for good; a *[ParkedError]: it was interrupted, and an
//     operator decides. A replay of its letter may still finish it. Wait again then.
//   - one that wraps the cause of ctx: ctx has ended first. It says what the record was last.
//   - the store's: it gave no answer for a minute, or never will.
//
// The job goes on, whatever Wait answers.
func Wait[R any](ctx context.Context, s dedupe.Store, k dedupe.Key) (v R, err error) {
	rec, err := await(ctx, s, k)
	if err != nil {
		return v, err
	}
	return decodeResult[R](k, rec.Result)
}

// await is the record of k once it is done.
func await(ctx context.Context, s dedupe.Store, k dedupe.Key) (*dedupe.Record, error) {
	if err := checkLook("Wait", s, k); err != nil {
		return nil, err
	}
	begun, last := time.Now(), "was not read"
	heard := begun // when the store answered last
	for n := 1; ; n++ {
		rec, err := lookUp(ctx, s, k)
		switch {
		case err == nil && rec == nil:
			last = "has no record"
		case err == nil && rec.Status == dedupe.Done:
			return rec, nil
		case err == nil:
			if err := endOf(k, rec); err != nil {
				return nil, err
			}
			last = "is " + rec.Status.String()
		case ctx.Err() != nil: // and that is why the store did not answer
		case isFinal(err) || time.Since(heard) >= storeAway:
			return nil, fmt.Errorf("onceq: Wait: %v %s, and cannot be read: %w", k, last, err)
		}
		if err == nil {
			heard = time.Now()
		}
		if !retry.Rest(ctx, retry.Within(leastWait, mostWait, n)) {
			return nil, fmt.Errorf("onceq: Wait: after %v %v %s: %w", time.Since(begun).Round(time.Millisecond), k, last, context.Cause(ctx))
		}
	}
}

// SendOnce is [SendOne] for a job that may have been sent before: it looks for the record of k
// first, and sends nothing where that says that the job need not be sent. It sets m.Meta.Key to
// k.Key. A record that is answered says that nothing was sent, and why:
//
//   - done: the job is over; see [Result].
//   - claimed under a living lease, for a message: it runs now, and that message comes again where
//     it fails.
//   - failed or parked, beside a *[FailedError] or *[ParkedError]: another message would not run,
//     and become a dead letter. Replay the one that there is. Of a job that was cancelled there is
//     none, and another message would be acked.
//
// Otherwise the message is sent, and the record is nil: there is none, the job waits to be tried
// again, its lease is dead, a call of [Do] has it, or the store did not answer within
// DefaultCallTimeout. So a message that is lost is replaced.
//
// The look saves sends, and nothing else: two callers may both send, and the key absorbs the second
// message. k names the record, so k.Scope is that of the job's worker. Under another scope nothing
// is found, and everything is sent.
//
// to may be an outbox. The look is no part of its transaction.
func SendOnce(ctx context.Context, s dedupe.Store, to broker.Sender, k dedupe.Key, m *broker.Outgoing) (*dedupe.Record, error) {
	if err := checkLook("SendOnce", s, k); err != nil {
		return nil, err
	}
	switch {
	case m == nil:
		return nil, errors.New("onceq: SendOnce: the message is nil")
	case m.Meta != nil && m.Meta.Key != "" && m.Meta.Key != k.Key:
		return nil, fmt.Errorf("onceq: SendOnce: the field Meta.Key is %q, and the key is %q", m.Meta.Key, k.Key)
	case m.Meta != nil && m.Meta.Dead != nil:
		return nil, errors.New("onceq: SendOnce: the message is a dead letter: replay it")
	}
	rec, err := lookUp(ctx, s, k)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("onceq: SendOnce: nothing was sent: %w", context.Cause(ctx))
	case err != nil || rec == nil:
	case rec.Status == dedupe.Done, rec.Status == dedupe.Claimed && rec.MessageID != "" && time.Now().Before(rec.LeaseUntil):
		return rec, nil
	default:
		if err := endOf(k, rec); err != nil {
			return rec, err
		}
	}
	if m.Meta = m.Meta.Clone(); m.Meta == nil {
		m.Meta = new(broker.Meta)
	}
	m.Meta.Key = k.Key
	return nil, SendOne(ctx, to, m)
}

func checkLook(fn string, s dedupe.Store, k dedupe.Key) error {
	switch {
	case values.IsNil(s):
		return fmt.Errorf("onceq: %s: the store is nil", fn)
	case isNoStore(s):
		return fmt.Errorf("onceq: %s: %w", fn, ErrNoStore)
	}
	return checkKey(k)
}

// lookUp is one call of Get for one key. A store that hangs is given up.
func lookUp(ctx context.Context, s dedupe.Store, k dedupe.Key) (*dedupe.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, DefaultCallTimeout)
	defer cancel()
	rs, err := engine.Guard(func() ([]*dedupe.Record, error) { return s.Get(ctx, []dedupe.Key{k}) })
	switch {
	case err != nil:
		return nil, err
	case len(rs) != 1:
		return nil, fmt.Errorf("onceq: the store answered %d of 1 keys", len(rs))
	}
	return rs[0], nil
}

// isFinal reports whether a store will answer the same again.
func isFinal(err error) bool {
	return errors.Is(err, dedupe.ErrBadKey) || errors.Is(err, dedupe.ErrBadRequest) || errors.Is(err, dedupe.ErrClosed)
}

// endOf is the error of a job that did not end well; nil = it is done, or goes on.
func endOf(k dedupe.Key, r *dedupe.Record) error {
	switch r.Status {
	case dedupe.Failed:
		return failedError(k, r)
	case dedupe.Parked:
		return parkedError(k, r)
	case dedupe.Claimed, dedupe.Released, dedupe.Done:
	}
	return nil
}

func failedError(k dedupe.Key, r *dedupe.Record) error {
	return &FailedError{Key: k, Fence: r.Fence, Class: r.ErrClass, Text: r.LastErr, At: r.Finished}
}

func parkedError(k dedupe.Key, r *dedupe.Record) error {
	return &ParkedError{Key: k, Fence: r.Fence, Class: r.ErrClass, Text: r.LastErr, At: r.Finished}
}
