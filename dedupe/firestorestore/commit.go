package firestorestore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/records"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns the completion of a job in a transaction with the user's own writes. Handlers call
// Commit, each in its own goroutine. Nothing here is locked.

// MaxCommitWrites is how many writes of the user's own go into one transaction. Firestore takes
// 500, and a write with a transform counts twice.
const MaxCommitWrites = 498

// CommitError says that Firestore has refused the transaction for a write of the user's own, such
// as a Create of a document that is there. Nothing was written. Unwrap is the service's error.
type CommitError struct{ err error }

// Error has the service's words.
func (e *CommitError) Error() string {
	return "firestorestore: Commit: nothing was written: one of the writes was refused: " + e.err.Error()
}

// Unwrap is the service's error.
func (e *CommitError) Unwrap() error { return e.err }

// Commit makes the writes of f and completes job in one transaction: both or neither, whatever
// crashes, so that there is exactly one effect. f reads and writes through tx, on other documents
// of the client's database than the job's record, with up to [MaxCommitWrites] writes. It may be
// called more than once, as in [firestore.Client.RunTransaction], and must have no other effect. f
// nil writes nothing. From Commit on the worker never writes done itself.
//
// A result that is a []byte is stored as it is, any other as JSON, and nil stores none.
//
// Nil says that f's writes are made and the job is done, also where the answer to an earlier try of
// the same call was lost. The errors:
//
//   - f's own error, as it is: nothing was written.
//   - [dedupe.ErrLeaseLost]: another claim has taken the key, this one is settled already, or
//     another Commit has completed it. Nothing was written.
//   - [*CommitError]: a write of f's is the reason. Nothing was written.
//   - [dedupe.ErrResultSize]: result is larger than [dedupe.Limits] say. Nothing was written.
//   - Any other, such as ctx's own or [dedupe.ErrBusy]: the transaction may have been written.
//     Return the error, and the worker finds out.
//
// Commit repeats what conflicts, and what Firestore throttles, until ctx ends. The handler's
// context ends when its lease is lost.
func (s *Store) Commit(ctx context.Context, job dedupe.Owned, result any, f func(ctx context.Context, tx *firestore.Transaction) error) error {
	fail := func(err error) error { return fmt.Errorf("firestorestore: Commit: %w", err) }
	lease, err := records.Join(job)
	if err != nil {
		return fail(err)
	}
	if err := lease.Key.Validate(); err != nil {
		return fail(err)
	}
	b, err := records.Encode(result, maxResult)
	if err != nil {
		return fail(err)
	}
	if err := s.ready(ctx, 1); err != nil {
		return err
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	c := &commit{s: s, job: job, lease: lease, result: b, f: f, id: hex.EncodeToString(id[:])}
	return c.carryOut(ctx)
}

// commit is a Commit on its way.
type commit struct {
	s      *Store
	job    dedupe.Owned
	lease  dedupe.Lease
	result []byte
	f      func(context.Context, *firestore.Transaction) error
	id     string // names this call, so that it knows its own transaction again
	runs   int    // of f
}

// userError is f's own error.
type userError struct{ error }

func (e userError) Unwrap() error { return e.error }

func (c *commit) carryOut(ctx context.Context) error {
	found := c.s.claims.recall(c.lease.Token)
	if !isOf(found, c.lease.Key) {
		found = nil
	}
	var last error // of the try before
	for n := 1; ; n++ {
		was := found
		if found == nil || last != nil {
			var err error
			if found, err = c.look(ctx); err != nil {
				return err
			}
		}
		at, err := c.s.time(ctx, "Commit")
		if err != nil {
			return err
		}
		next, err := c.complete(found, at)
		if err != nil || next == nil { // nil is done: by an earlier try, whose answer was lost
			return err
		}
		if last != nil {
			if err := c.goOn(last, was != nil && was.at.AsTime().Equal(found.at.AsTime())); err != nil {
				return err
			}
			if n > patientTries || !retry.Rest(ctx, conflictPause(n-1)) {
				return fmt.Errorf("firestorestore: Commit: %w: %w", dedupe.ErrBusy, last)
			}
		}
		last = c.transact(ctx, found, next)
		var own userError
		switch {
		case last == nil:
			if at.isMisled(next.at.AsTime()) {
				next = c.redate(ctx, next)
			}
			c.s.claims.remember(c.lease.Token, next)
			return nil
		case errors.As(last, &own):
			return c.refused(ctx, own.error)
		case ctx.Err() != nil:
			return c.s.explain(ctx, "Commit", last)
		}
	}
}

// refused is what f's own error comes to. If f ran before, that transaction's answer may be lost,
// and f has met its own writes.
func (c *commit) refused(ctx context.Context, own error) error {
	if c.runs < 2 {
		return own
	}
	found, err := c.look(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", own, err)
	case found != nil && found.rec.Token == c.lease.Token && found.commit == c.id:
		c.s.claims.remember(c.lease.Token, found)
		return nil
	}
	return own
}

// redate puts the times of a completion right that was written by the time of a host that stood
// still. If that fails, the job is done all the same.
func (c *commit) redate(ctx context.Context, was *stored) *stored {
	ch := &change{key: c.lease.Key, found: was, sure: true}
	ch.decide = func(found *stored, at reading) (*stored, error) {
		if found != was {
			return nil, nil
		}
		return c.s.redated(was, max(0, c.job.Retain()), at), nil
	}
	if err := c.s.run(ctx, "Commit", []*change{ch}); err != nil || ch.err != nil || ch.next == nil {
		return was
	}
	return ch.next
}

func (c *commit) look(ctx context.Context) (*stored, error) {
	name := c.s.name(c.lease.Key)
	docs, err := c.s.fetch(ctx, "Commit", []string{name})
	if err != nil {
		return nil, err
	}
	found, err := c.s.decode(c.lease.Key, docs[name])
	if err != nil {
		return nil, fmt.Errorf("firestorestore: Commit: %w", err)
	}
	return found, nil
}

// complete is the document as the transaction writes it; nil where it is written already. Unlike
// Settle it refuses a job that is done already, because another transaction's effects would then
// stand beside the first one's.
func (c *commit) complete(found *stored, at reading) (*stored, error) {
	lost := func(why string) error {
		return fmt.Errorf("firestorestore: Commit: nothing was written: %s: %w", why, dedupe.ErrLeaseLost)
	}
	if found == nil || found.rec.Token != c.lease.Token {
		return nil, lost("the key was claimed anew, its record is gone, or this is not the worker's store")
	}
	r := found.rec
	_, changed := machine.ApplySettle(&r, &dedupe.Settlement{
		Key: c.lease.Key, Token: c.lease.Token, To: dedupe.Done, Result: c.result, Retain: max(0, c.job.Retain()),
	}, at.now)
	switch {
	case !changed && found.commit == c.id:
		return nil, nil
	case !changed && found.rec.Status == dedupe.Done:
		return nil, lost("this claim was completed before, and not by this call")
	case !changed:
		return nil, lost("this claim is " + found.rec.Status.String() + " already")
	}
	ch := &change{key: c.lease.Key, name: c.s.name(c.lease.Key), found: found, next: c.s.encode(&r, found, c.id)}
	if err := c.s.fit(ch); err != nil {
		return nil, fmt.Errorf("firestorestore: Commit: nothing was written: %w", err)
	}
	return ch.next, nil
}

// transact makes f's writes, and puts next in the place of found.
func (c *commit) transact(ctx context.Context, found, next *stored) error {
	ref := c.s.client.DocFromFullPath(c.s.name(c.lease.Key))
	set, drop := c.s.differ(found, next)
	updates := make([]firestore.Update, 0, len(set)+len(drop))
	for _, f := range set {
		updates = append(updates, firestore.Update{Path: f, Value: fromValue(next.fields[f])})
	}
	for _, f := range drop {
		updates = append(updates, firestore.Update{Path: f, Value: firestore.Delete})
	}
	var done firestore.CommitResponse
	var sent asked
	err := c.s.client.RunTransaction(ctx, func(ctx context.Context, tx *firestore.Transaction) error {
		if c.f != nil {
			c.runs++
			if err := c.f(ctx, tx); err != nil {
				return userError{err}
			}
		}
		sent = c.s.clock.ask()
		return tx.Update(ref, updates, firestore.LastUpdateTime(found.at.AsTime()))
	}, firestore.WithCommitResponseTo(&done))
	if err == nil {
		next.at = timestamppb.New(done.CommitTime())
		c.s.clock.observe(done.CommitTime(), sent)
	}
	return err
}

// goOn tells whether a transaction that was not made is to be tried again. untouched: the record
// stands as the transaction wanted it, so it was not the reason.
func (c *commit) goOn(err error, untouched bool) error {
	if _, told := status.FromError(err); !told { // by the client, such as a read behind a write
		return fmt.Errorf("firestorestore: Commit: nothing was written: %w", err)
	}
	switch code := status.Code(err); {
	case code == codes.Aborted || passes(code):
		return nil
	case code == codes.AlreadyExists || code == codes.NotFound || code == codes.FailedPrecondition:
		if untouched {
			return &CommitError{err: err}
		}
		return nil
	}
	if why := c.s.hint(err); why != "" {
		err = fmt.Errorf("%w (%s)", err, why)
	}
	return fmt.Errorf("firestorestore: Commit: nothing was written: %w", err)
}
