package firestorestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns how a call's entries are written: which documents are read first, what is sent
// together, and what an answer, or none, means for each. Claims, renewals, settlements and removals
// all go through run. A change belongs to one call, and nothing here is locked.

const (
	// refusals bound the rounds of a change of a record that somebody else changes all the time.
	refusals = 8
	// conflictTries bound how often a write meets a transaction that holds its document before the
	// record counts as locked; patientTries, some twenty seconds, those of a call whose context
	// never ends.
	conflictTries, patientTries = 6, 100
	// maxRequest leaves a MiB of Firestore's limit on a request to what is around the fields.
	maxRequest = 9 << 20
)

// change is one entry of a call on its way.
type change struct {
	key  dedupe.Key
	name string // of the document
	// found is what is stored, as far as is known. It is read first unless sure is set. A wrong
	// belief does no harm, because each write depends on it.
	found *stored
	sure  bool
	// decide tells what is to be written in the place of found, and fills in the answer; nil =
	// nothing is.
	decide func(found *stored, at reading) (*stored, error)
	// lease: the write begins or prolongs one, so it must not be late without anybody's knowledge.
	lease bool
	// dated: what is written may expire, so the time must be right. decide is asked once more, with
	// what it wrote, where it was not.
	dated bool
	// patient waits for whoever holds the document until the context ends.
	patient bool

	over    bool
	err     error
	next    *stored // what the last try has written, or would have
	tried   reading // the time by which the last try was decided
	unknown bool    // a try may have been carried out
	refused int     // tries that were, because another has changed the document
	held    int     // tries that met a transaction
	failed  int     // tries without an answer, or throttled
	cause   error   // of the last failed try
}

func (c *change) finish(err error) { c.over, c.err = true, err }

// run makes changes until each is answered. The error is of the whole call, in which no entry had
// an answer.
func (s *Store) run(ctx context.Context, call string, cs []*change) error {
	for _, c := range cs {
		c.name = s.name(c.key)
	}
	for open := cs; ; {
		open = slices.DeleteFunc(slices.Clone(open), func(c *change) bool { return c.over })
		if len(open) == 0 {
			break
		}
		if err := s.round(ctx, call, open); err != nil {
			for _, c := range open {
				if !c.over {
					c.finish(err)
				}
			}
		}
	}
	for _, c := range cs {
		if _, unheard := c.err.(silent); !unheard { //nolint:errorlint // run itself has put it there
			return nil
		}
	}
	if len(cs) == 0 {
		return nil
	}
	return cs[0].err
}

// round brings each change one step on. Its error ends all that are still open.
func (s *Store) round(ctx context.Context, call string, open []*change) error {
	if err := s.refresh(ctx, call, open); err != nil {
		return err
	}
	at, err := s.time(ctx, call)
	if err != nil {
		return err
	}
	var batch []*change
	named := make(map[dedupe.Key]bool, len(open))
	for _, c := range open {
		// A request may hold a document once. The entry that comes second waits for the next round.
		if c.over || named[c.key] {
			continue
		}
		named[c.key], c.tried = true, at
		if c.next, err = c.decide(c.found, at); err == nil && c.next != nil {
			err = s.fit(c)
		}
		switch {
		case errors.Is(err, dedupe.ErrLeaseLost) && c.unknown:
			// A try may have ended the claim, and another have won the key since. A lost lease
			// would say that nothing was written.
			c.finish(s.explain(ctx, call, c.cause))
		case err != nil:
			c.finish(fmt.Errorf("firestorestore: %s: %w", call, err))
		case c.next == nil:
			c.over = true
		default:
			batch = append(batch, c)
		}
	}
	s.send(ctx, call, batch)
	s.pause(ctx, call, batch)
	return nil
}

// refresh reads what is not known, and tells a write whose answer was lost from one that was never
// made.
func (s *Store) refresh(ctx context.Context, call string, open []*change) error {
	var unread []*change
	var names []string
	for _, c := range open {
		if !c.sure {
			unread, names = append(unread, c), append(names, c.name)
		}
	}
	if len(unread) == 0 {
		return nil
	}
	docs, err := s.fetch(ctx, call, names)
	if err != nil {
		return err
	}
	for i, c := range unread {
		found, err := s.decode(c.key, docs[names[i]])
		switch {
		case err != nil:
			c.finish(fmt.Errorf("firestorestore: %s: %w", call, err))
		case c.unknown && found != nil && s.equals(c.next, found):
			c.sure = true
			c.made(found.at)
		default:
			c.found, c.sure = found, true
		}
	}
	return nil
}

// fit makes a document that is too large smaller by what can best be spared: the history, and long
// errors.
func (s *Store) fit(c *change) error {
	if c.found != nil && isElided(c.next.rec.State) {
		c.next.elided = c.found.elided
	}
	most := maxDocument - len(c.name) - 16
	if c.next.rough() <= most || c.next.weight() <= most {
		return nil
	}
	r := c.next.rec
	r.Past = nil
	r.ErrClass, r.FirstErr, r.LastErr = short(r.ErrClass), short(r.FirstErr), short(r.LastErr)
	elided := c.next.elided
	c.next = s.encode(&r, c.found, c.next.commit)
	c.next.elided = elided
	if n := c.next.weight(); n > most {
		return fmt.Errorf("%w: the record would have %d bytes, the limit is %d", dedupe.ErrResultSize, n, most)
	}
	return nil
}

// send writes a batch, in as many requests as it needs, all at once.
func (s *Store) send(ctx context.Context, call string, batch []*change) {
	var wg sync.WaitGroup
	for len(batch) > 0 {
		n, size := 0, 0
		for n < len(batch) && (n == 0 || size+batch[n].next.rough() <= maxRequest) {
			size += batch[n].next.rough()
			n++
		}
		part := batch[:n]
		if batch = batch[n:]; len(batch) == 0 {
			s.sendPart(ctx, call, part)
			break
		}
		wg.Go(func() { s.sendPart(ctx, call, part) })
	}
	wg.Wait()
}

func (s *Store) sendPart(ctx context.Context, call string, part []*change) {
	in := &firestorepb.BatchWriteRequest{Database: s.database, Writes: make([]*firestorepb.Write, len(part))}
	for i, c := range part {
		in.Writes[i] = s.write(c.name, c.found, c.next)
	}
	try, cancel := s.try(ctx)
	defer cancel()
	asked := s.clock.ask()
	out, err := s.api.BatchWrite(try, in, once)
	if err == nil && (len(out.GetStatus()) != len(part) || len(out.GetWriteResults()) != len(part)) {
		err = status.Errorf(codes.Internal, "%d answers to %d writes", len(out.GetStatus()), len(part))
	}
	if err != nil {
		for _, c := range part {
			c.missed(ctx, s, call, err, false)
		}
		return
	}
	heard := false
	for i, c := range part {
		if st := status.FromProto(out.GetStatus()[i]); st.Code() != codes.OK {
			c.missed(ctx, s, call, st.Err(), true)
			continue
		}
		t := out.GetWriteResults()[i].GetUpdateTime()
		if !heard {
			s.clock.observe(t.AsTime(), asked)
			heard = true
		}
		c.made(t)
	}
}

// made notes that the write was carried out at t. One that came late, because the host slept, is
// made again: to others its lease may end early, or have ended.
func (c *change) made(t *timestamppb.Timestamp) {
	c.next.at = t
	if (c.lease || c.dated) && c.tried.isMisled(t.AsTime()) && c.refused < refusals-1 {
		c.refused++
		c.found, c.unknown = c.next, true
		return
	}
	c.over = true
}

// missed notes what a try came to. own says that the error is the answer to this write, not to its
// request.
func (c *change) missed(ctx context.Context, s *Store, call string, err error, own bool) {
	c.cause = err
	switch code := status.Code(err); {
	case own && (code == codes.AlreadyExists || code == codes.FailedPrecondition || code == codes.NotFound):
		c.refused++
		c.sure = false
		if c.refused == refusals {
			c.finish(fmt.Errorf("firestorestore: %s: the record changes all the time: %w", call, dedupe.ErrBusy))
		}
	case code == codes.Aborted:
		if c.held++; c.held == patientTries || c.held >= conflictTries && !c.patient {
			c.finish(c.busy(call))
		}
	case passes(code) && ctx.Err() == nil:
		if code != codes.ResourceExhausted {
			c.unknown, c.sure = true, false // a read tells, and costs less than a second write
		}
		if c.failed++; c.failed == maxTries {
			c.finish(s.explain(ctx, call, err))
		}
	case own && code == codes.InvalidArgument:
		c.finish(fmt.Errorf("firestorestore: %s: %w", call, err))
	default:
		c.finish(s.explain(ctx, call, err))
	}
}

// busy is the answer where a transaction holds the document. If a try before was not answered,
// nobody knows whether it was carried out.
func (c *change) busy(call string) error {
	err := fmt.Errorf("firestorestore: %s: %w: %w", call, dedupe.ErrBusy, c.cause)
	if c.unknown {
		return silent{fmt.Errorf("firestorestore: %s: the outcome is unknown: %w", call, c.cause)}
	}
	return err
}

// pause waits before the next round, as long as the change with the most failures wants. Where the
// context ends meanwhile, each change has its own answer: busy, or nobody knows.
func (s *Store) pause(ctx context.Context, call string, batch []*change) {
	var d time.Duration
	for _, c := range batch {
		if c.over {
			continue
		}
		if c.failed > 0 {
			d = max(d, retry.Pause(c.failed))
		}
		if n := max(c.held, c.refused-1); n > 0 {
			d = max(d, conflictPause(n))
		}
	}
	if !slices.ContainsFunc(batch, func(c *change) bool { return !c.over }) || retry.Rest(ctx, d) {
		return
	}
	for _, c := range batch {
		switch {
		case c.over:
		case c.held > 0 && !c.unknown:
			c.finish(c.busy(call))
		default:
			c.finish(s.explain(ctx, call, cmp.Or(c.cause, ctx.Err())))
		}
	}
}

// conflictPause is the one before the n-th repeat: 4 ms doubled up to 250 ms, half of it at random.
func conflictPause(n int) time.Duration {
	return retry.Within(4*time.Millisecond, 250*time.Millisecond, n)
}
