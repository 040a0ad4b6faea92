package sqlitewriter

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// This file owns what becomes of a batch of calls, on the goroutine that has the connection. All of
// them run in one transaction, and nearly always that is the end of it. Where one fails, it takes
// nobody along: the others run again, each behind a savepoint of its own. Where SQLite has given up
// the whole transaction, as on a full disk or where a trigger says so, those that are left run each
// in a transaction of its own. So a call runs three times at most, whatever the others do.

const (
	firstPause = 100 * time.Microsecond
	lastPause  = 5 * time.Millisecond
)

// pauseAfter is how long to wait before the next try for a lock that another connection holds. It
// grows with the time already waited. The writer waits by Go's timer, because SQLite's busy handler
// would block a thread and knows nothing of virtual time.
func pauseAfter(waited time.Duration) <-chan time.Time {
	return time.After(min(max(waited/200, firstPause), lastPause))
}

// server runs batches of calls in transactions. One goroutine has it at a time: the one that
// Writer.run is on, or Close's.
type server struct {
	db      *sql.DB
	busy    time.Duration   // how long a commit, or a batch that has lost its transaction, waits
	life    context.Context // ends with Close: nobody else may end a wait for a connection
	session *session        // nil = not connected
}

// serve answers the batch, in the transaction that begin opened.
func (s *server) serve(batch []*call) {
	failed, err := s.transact(batch)
	switch failed {
	case everyone:
		answer(batch, err)
		return
	case nobody:
	default:
		answer(batch[failed:failed+1], err)
		batch = append(batch[:failed], batch[failed+1:]...)
	}
	batch = s.serveApart(batch)
	for i := range batch {
		s.serveAlone(batch[i : i+1])
	}
}

// What transact answers in place of the number of a call.
const (
	everyone = -1 // the answer is everyone's
	nobody   = -2 // the failure is of what the calls share: it is not known whose
)

// transact runs the batch in the transaction that begin opened, and commits it. Whatever fails in
// between ends with the connection, which rolls back.
func (s *server) transact(batch []*call) (failed int, err error) {
	t := &Txn{Now: time.Now().Round(0).UTC(), session: s.session}
	for i, c := range batch {
		if err := c.Apply(t); err != nil {
			err = s.abort(err)
			if errors.Is(err, ErrLocked) { // it would meet the others, too
				return everyone, err
			}
			return i, err
		}
	}
	if err := t.end(); err != nil {
		err = s.abort(err)
		if len(batch) == 1 || errors.Is(err, ErrLocked) {
			return everyone, err
		}
		return nobody, err
	}
	return everyone, s.commit()
}

// serveApart answers the calls of one more transaction, in which each has a savepoint and parts of
// its own. It gives back those that have no answer, because SQLite rolled the transaction back.
func (s *server) serveApart(batch []*call) (left []*call) {
	if len(batch) == 0 {
		return nil
	}
	if err := s.beginAgain(); err != nil {
		answer(batch, err)
		return nil
	}
	now := time.Now().Round(0).UTC()
	var written []*call
	for i, c := range batch {
		err, undone := s.applyApart(c, now)
		switch {
		case err == nil:
			written = append(written, c)
		case IsBusy(err):
			answer(append(written, batch[i:]...), s.abort(err))
			return nil
		case undone:
			answer(batch[i:i+1], Explain("nothing was written", err))
		default:
			answer(batch[i:i+1], s.abort(err))
			return append(written, batch[i+1:]...)
		}
	}
	answer(written, s.commit())
	return nil
}

// applyApart runs one call behind a savepoint. Where it fails, undone reports that all of it was
// taken back, and nothing else.
func (s *server) applyApart(c *call, now time.Time) (err error, undone bool) {
	if _, err := s.session.exec("SAVEPOINT onceq_call"); err != nil {
		return fmt.Errorf("beginning a savepoint: %w", err), false
	}
	t := &Txn{Now: now, session: s.session}
	if err = c.Apply(t); err == nil {
		err = t.end()
	}
	if err != nil {
		if _, failed := s.session.exec("ROLLBACK TO onceq_call"); failed != nil {
			return err, false
		}
	}
	if _, failed := s.session.exec("RELEASE onceq_call"); failed != nil {
		return cmp.Or(err, failed), false
	}
	return err, true
}

// serveAlone answers a batch of one call, in a transaction of its own.
func (s *server) serveAlone(batch []*call) {
	err := s.beginAgain()
	if err == nil {
		_, err = s.transact(batch)
	}
	answer(batch, err)
}

// begin opens a transaction. A connection that has been idle may have gone bad, so a second try
// gets a fresh one. Nothing was written on the first.
func (s *server) begin() error {
	reused := s.session != nil
	for {
		if s.session == nil {
			conn, err := connect(s.life, s.db)
			if err != nil {
				if s.life.Err() != nil {
					return ErrClosed
				}
				return Explain("opening the writer's connection", err)
			}
			s.session = conn
		}
		_, err := s.session.exec("BEGIN IMMEDIATE")
		if err == nil || IsBusy(err) {
			return err
		}
		s.drop()
		if !reused {
			return Explain("beginning a transaction", err)
		}
		reused = false
	}
}

// beginAgain is begin for a batch that has lost its transaction.
func (s *server) beginAgain() error {
	for since := time.Now(); ; {
		err := s.begin()
		switch {
		case !IsBusy(err):
			return err
		case time.Since(since) >= s.busy:
			return ErrLocked
		}
		<-pauseAfter(time.Since(since))
	}
}

// commit ends the transaction. It waits if readers are in the way, as they may be without the
// write-ahead log. A transaction stays open after SQLite has refused its commit as busy.
func (s *server) commit() error {
	err := s.tryCommit()
	switch {
	case IsBusy(err), err != nil && isFull(err):
		return s.abort(err)
	case err != nil:
		s.drop()
		return Explain("committing; the outcome is unknown", err)
	}
	return nil
}

// version is another number whenever another connection has written. It is not known where the
// writer has no connection.
func (s *server) version() (v int64, ok bool) {
	if s.session == nil {
		return 0, false
	}
	err := s.session.scan("PRAGMA data_version", nil, &v)
	return v, err == nil
}

func (s *server) tryCommit() error {
	for since := time.Now(); ; {
		_, err := s.session.exec("COMMIT")
		if !IsBusy(err) || time.Since(since) >= s.busy {
			return err
		}
		<-pauseAfter(time.Since(since))
	}
}

func (s *server) abort(err error) error {
	s.drop()
	if IsBusy(err) {
		return ErrLocked
	}
	return Explain("nothing was written", err)
}

func (s *server) drop() {
	if s.session != nil {
		s.session.close()
		s.session = nil
	}
}
