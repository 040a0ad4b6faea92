package sqlitestore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/records"
	"github.com/onceq/onceq/internal/sqlitewriter"
)

// This file owns construction, limits and the calls that write. Workers call them from many
// goroutines. Each call is an entry of the next transaction of internal/sqlitewriter; nothing is
// locked here.

const (
	// maxBatch keeps one transaction of the store short enough for its neighbours on the file.
	maxBatch = sqlitewriter.MostEntries
	// maxResult is far below what SQLite holds, because every write copies the row.
	maxResult = 1 << 20

	defaultBusyTimeout = time.Second
)

// Options tune a [Store]. The zero value and nil are usable.
type Options struct {
	// Table is the name of the table of records; its companions are named after it. Letters, digits
	// and underscores, not beginning with a digit, at most 48 bytes. Default "onceq_dedupe".
	Table string
	// BusyTimeout is how long a call waits for the file's write lock before its entries answer
	// [dedupe.ErrBusy]. A claim or a renewal never waits longer than a tenth of its TTL. Default
	// 1 s; at least 1 ms.
	BusyTimeout time.Duration
}

// handle gives the writer to package sqlitebroker, whose queues share it, and to nobody else.
type handle = sqlitewriter.Handle

// Store keeps records in a SQLite file. Make one with [New].
type Store struct {
	db   *sql.DB
	sql  statements
	busy time.Duration
	w    *sqlitewriter.Writer
	handle
}

var _ dedupe.Store = (*Store)(nil)

// New returns a store in db, a pool of two connections or more on one file; see [DSN]. It does no
// I/O. Call [Store.Migrate] before the first use. After the last use call [Store.Close], and only
// then close the pool.
func New(db *sql.DB, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	table := cmp.Or(o.Table, defaultTable)
	if err := checkTable(table); err != nil {
		return nil, err
	}
	switch {
	case db == nil:
		return nil, errors.New("sqlitestore: New: db is nil")
	case o.BusyTimeout < 0:
		return nil, fmt.Errorf("sqlitestore: Options.BusyTimeout is %v, want 0 or more", o.BusyTimeout)
	case durations.IsBare(o.BusyTimeout):
		return nil, fmt.Errorf("sqlitestore: Options.BusyTimeout: %s", durations.AskUnit(o.BusyTimeout))
	}
	if err := sqlitewriter.CheckPool(db); err != nil {
		return nil, fmt.Errorf("sqlitestore: %w", err)
	}
	s := &Store{db: db, sql: newStatements(table), busy: cmp.Or(o.BusyTimeout, defaultBusyTimeout)}
	s.w = sqlitewriter.New(db, s.busy)
	s.handle = sqlitewriter.NewHandle(s.w)
	return s, nil
}

// Close ends the store. Calls under way are finished, waiting ones answer [dedupe.ErrClosed], and
// the writing connection is closed. The pool stays open. Close may be called more than once.
func (s *Store) Close() error {
	s.w.Close()
	return nil
}

// Limits says what the store can hold.
func (s *Store) Limits() dedupe.Limits {
	return dedupe.Limits{MaxResult: maxResult, MaxBatch: maxBatch, Durable: true, OrderedFences: true}
}

// Claim tries to win each key.
func (s *Store) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	sent := time.Now()
	wait := s.busy
	rs = slices.Clone(rs)
	for i := range rs {
		rs[i].Fingerprint = bytes.Clone(rs[i].Fingerprint)
		wait = patience(wait, rs[i].TTL)
	}
	return write(ctx, s, &calls.Claims, rs, wait, func(t *txn, q *dedupe.ClaimRequest) (dedupe.Claim, error) {
		r, err := t.read(q.Key)
		if err != nil {
			return dedupe.Claim{}, err
		}
		c, changed := machine.ApplyClaim(&r, q, t.Now, t.nextFence)
		if c.Outcome == dedupe.Won {
			c.Lease.Deadline = sent.Add(q.TTL)
		}
		if changed {
			err = t.write(&r)
		}
		return c, err
	})
}

// Renew prolongs leases.
func (s *Store) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	sent := time.Now()
	wait := s.busy
	rs = slices.Clone(rs)
	for i := range rs {
		rs[i].State = bytes.Clone(rs[i].State)
		wait = patience(wait, rs[i].TTL)
	}
	return write(ctx, s, &calls.Renewals, rs, wait, func(t *txn, n *dedupe.Renewal) (dedupe.Renewed, error) {
		r, err := t.read(n.Key)
		if err != nil {
			return dedupe.Renewed{}, err
		}
		if err := machine.ApplyRenew(&r, n, t.Now); err != nil {
			return dedupe.Renewed{Err: err}, nil //nolint:nilerr // the others go on
		}
		return dedupe.Renewed{Deadline: sent.Add(n.TTL)}, t.write(&r)
	})
}

// Settle ends claims.
func (s *Store) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	ss = slices.Clone(ss)
	for i := range ss {
		ss[i].Result = bytes.Clone(ss[i].Result)
	}
	return write(ctx, s, &calls.Settlements, ss, s.busy, func(t *txn, e *dedupe.Settlement) (dedupe.Settled, error) {
		r, err := t.read(e.Key)
		if err != nil {
			return dedupe.Settled{}, err
		}
		a, changed := machine.ApplySettle(&r, e, t.Now)
		if changed {
			err = t.write(&r)
		}
		return a, err
	})
}

// Forget removes records. The fence survives them.
func (s *Store) Forget(ctx context.Context, fs []dedupe.Forgotten) ([]error, error) {
	return write(ctx, s, &calls.Removals, slices.Clone(fs), s.busy, func(t *txn, f *dedupe.Forgotten) (error, error) {
		r, err := t.read(f.Key)
		if err != nil {
			return nil, err
		}
		remove, answer := machine.ApplyForget(&r, f, t.Now)
		if remove {
			err = t.remove(f.Key)
		}
		return answer, err
	})
}

// patience is how long a call may wait for the lock. After a tenth of the lease the caller has
// better uses for its time.
func patience(wait, ttl time.Duration) time.Duration {
	if ttl <= 0 {
		return wait
	}
	return min(wait, ttl/10)
}

// do runs apply in a transaction of the writer's and returns when that is committed. It waits for
// the lock up to wait. After ErrBusy nothing was written.
func (s *Store) do(ctx context.Context, wait time.Duration, entries int, apply func(*txn) error) error {
	return wrap(s.w.Do(ctx, &sqlitewriter.Call{Wait: wait, Entries: entries, Apply: func(x *sqlitewriter.Txn) error {
		part := x.Part(s, func() sqlitewriter.Part { return &txn{Txn: x, sql: &s.sql} })
		return apply(part.(*txn))
	}}))
}

var errClosed = fmt.Errorf("sqlitestore: %w", dedupe.ErrClosed)

// wrap puts the contract's sentinels in.
func wrap(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sqlitewriter.ErrClosed):
		return errClosed
	case errors.Is(err, sqlitewriter.ErrLocked):
		return fmt.Errorf("sqlitestore: %w: %w", err, dedupe.ErrBusy)
	}
	return fmt.Errorf("sqlitestore: %w", err)
}

// explain says what was being done.
func explain(what string, err error) error { return wrap(sqlitewriter.Explain(what, err)) }

// calls are how entries are refused, and answered where they fail.
var calls = records.NewCalls("sqlitestore", maxResult)

// write runs the entries of one call in a transaction of the writer's. The entries must be its own,
// because they may be in use after the caller has gone.
func write[Q, A any](ctx context.Context, s *Store, call *records.Batch[Q, A], qs []Q, wait time.Duration, apply func(*txn, *Q) (A, error)) ([]A, error) {
	if len(qs) > maxBatch {
		return nil, fmt.Errorf("%w: a batch of %d entries, the limit is %d", dedupe.ErrBadRequest, len(qs), maxBatch)
	}
	return call.Parts(qs, records.Whole, func(valid []int, as []A) error {
		return s.do(ctx, wait, len(valid), func(t *txn) error {
			for _, i := range valid {
				a, err := apply(t, &qs[i])
				if bad := (*contentError)(nil); errors.As(err, &bad) {
					a, err = call.Failed(err), nil
				}
				if err != nil {
					return err
				}
				as[i] = a
			}
			return nil
		})
	})
}
