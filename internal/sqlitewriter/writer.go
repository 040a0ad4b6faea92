// Package sqlitewriter is the one goroutine that writes to a SQLite file, for all who keep
// something in it: a store of records, and the queues beside it.
package sqlitewriter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// This file owns the one goroutine that writes, its queue, and when it holds the file's lock. Every
// writing call of the store and of the queues comes through Writer.Do. Writer.mu guards the queue;
// it is never held during SQL.

const (
	// A process that is never idle frees the lock only for an instant between two transactions, and
	// nobody else would find it free then. So it lets go after each stint, for longer than others
	// wait between two tries.
	stint    = 20 * time.Millisecond
	breather = 300 * time.Microsecond

	firstPause = 100 * time.Microsecond
	lastPause  = 5 * time.Millisecond

	// MostEntries keeps one transaction short enough for its neighbours on the file.
	MostEntries = 256
)

// pauseAfter is how long to wait before the next try for a lock that another connection holds. It
// grows with the time already waited. The writer waits by Go's timer, because SQLite's busy handler
// would block a thread and knows nothing of virtual time.
func pauseAfter(waited time.Duration) <-chan time.Time {
	return time.After(min(max(waited/200, firstPause), lastPause))
}

// Call is what one caller wants of a transaction.
type Call struct {
	// Apply does it. It may run again from the start, in a new transaction, where another call has
	// failed the first one. What it fails with concerns its own call alone.
	Apply func(*Txn) error
	// Wait is how long the call waits for the file's lock before it answers ErrLocked.
	Wait time.Duration
	// Grace is how long the call still waits for a transaction that is under way when the caller's
	// context has ended.
	Grace time.Duration
	// Entries is what the call counts for in a transaction of MostEntries.
	Entries int
}

// call is a Call on its way.
type call struct {
	*Call
	err  error         // set before done is closed
	done chan struct{} // closed when the call is answered
}

// Writer runs calls in IMMEDIATE transactions, all that wait together in one. It has a goroutine
// only while calls wait. Make one with New.
type Writer struct {
	// Most is the most entries of one transaction: MostEntries, unless a benchmark has set it.
	Most int

	db     *sql.DB
	busy   time.Duration
	life   context.Context // ends with Close: nobody else may end a wait for a connection
	cancel context.CancelFunc

	mu      sync.Mutex
	idle    *sync.Cond
	queue   []*call // not yet part of a transaction
	running bool
	closed  bool

	session *session // the running goroutine's, or Close's

	shared sync.Map // what those who write through it share, by name
}

// New returns a writer on db's file, which waits up to busy for a reader that is in the way of a
// commit. It does no I/O.
func New(db *sql.DB, busy time.Duration) *Writer {
	w := &Writer{db: db, busy: busy, Most: MostEntries}
	w.life, w.cancel = context.WithCancel(context.Background())
	w.idle = sync.NewCond(&w.mu)
	return w
}

// DB is the pool, for what reads.
func (w *Writer) DB() *sql.DB { return w.db }

// Busy is how long a call should wait for the file's lock.
func (w *Writer) Busy() time.Duration { return w.busy }

// Shared is the value of that name, which make makes for the first who asks.
func (w *Writer) Shared(name string, make func() any) any {
	if v, ok := w.shared.Load(name); ok {
		return v
	}
	v, _ := w.shared.LoadOrStore(name, make())
	return v
}

// Do runs the call in a transaction and returns when that is committed. After ErrLocked nothing was
// written. The end of ctx ends this call only, never the transaction that others share. Then Apply
// may still be running.
func (w *Writer) Do(ctx context.Context, do *Call) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("nothing was written: %w", err)
	}
	c := &call{Call: do, done: make(chan struct{})}
	if !w.add(c) {
		return ErrClosed
	}
	timer := time.NewTimer(do.Wait)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	case <-timer.C:
		if w.withdraw(c) {
			return ErrLocked
		}
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		if w.withdraw(c) {
			return fmt.Errorf("nothing was written: %w", ctx.Err())
		}
	}
	if do.Grace > 0 {
		timer.Reset(do.Grace)
		select {
		case <-c.done:
			return c.err
		case <-timer.C:
		}
	}
	return fmt.Errorf("the transaction was under way, its outcome is unknown: %w", ctx.Err())
}

func (w *Writer) add(c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.queue = append(w.queue, c)
	if !w.running {
		w.running = true
		go w.run()
	}
	return true
}

// withdraw takes c back, if it is not part of a transaction yet.
func (w *Writer) withdraw(c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.queue, c)
	if i < 0 {
		return false
	}
	w.queue = slices.Delete(w.queue, i, i+1)
	return true
}

// run serves the queue until it is empty. It takes who waits after the lock was won, so the longer
// the wait, the larger the batch.
func (w *Writer) run() {
	begun := time.Now()
	since := begun
	for w.waiting() {
		err := w.begin()
		if IsBusy(err) {
			<-pauseAfter(time.Since(since))
			begun = time.Now()
			continue
		}
		if batch := w.take(); err == nil {
			w.serve(batch)
		} else {
			answer(batch, err)
		}
		if since = time.Now(); since.Sub(begun) > stint {
			<-time.After(breather)
			begun = time.Now()
		}
	}
}

// waiting reports whether there are calls to serve. If not, the running goroutine ends.
func (w *Writer) waiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 {
		return true
	}
	w.running = false
	w.idle.Broadcast()
	return false
}

// take removes a batch from the queue. It takes whole calls, and at least one if there is any.
func (w *Writer) take() []*call {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, entries := 0, 0
	for n < len(w.queue) && (n == 0 || entries+w.queue[n].Entries <= w.Most) {
		entries += w.queue[n].Entries
		n++
	}
	batch := slices.Clone(w.queue[:n])
	w.queue = slices.Delete(w.queue, 0, n)
	return batch
}

func answer(batch []*call, err error) {
	for _, c := range batch {
		c.err = err
		close(c.done)
	}
}

// begin opens a transaction. A connection that has been idle may have gone bad, so a second try
// gets a fresh one. Nothing was written on the first.
func (w *Writer) begin() error {
	reused := w.session != nil
	for {
		if w.session == nil {
			s, err := connect(w.life, w.db)
			if err != nil {
				if w.life.Err() != nil {
					return ErrClosed
				}
				return Explain("opening the writer's connection", err)
			}
			w.session = s
		}
		_, err := w.session.exec("BEGIN IMMEDIATE")
		if err == nil || IsBusy(err) {
			return err
		}
		w.drop()
		if !reused {
			return Explain("beginning a transaction", err)
		}
		reused = false
	}
}

// serve answers the batch, in the transaction that begin opened. A call that fails takes nobody
// along: the others begin again without it. Each round answers one call at least.
func (w *Writer) serve(batch []*call) {
	for {
		failed, err := w.transact(batch)
		if failed < 0 {
			answer(batch, err)
			return
		}
		answer(batch[failed:failed+1], err)
		batch = slices.Delete(batch, failed, failed+1)
		if len(batch) == 0 {
			return
		}
		if err := w.beginAgain(); err != nil {
			answer(batch, err)
			return
		}
	}
}

// beginAgain is begin for a batch that has lost its transaction.
func (w *Writer) beginAgain() error {
	for since := time.Now(); ; {
		err := w.begin()
		switch {
		case !IsBusy(err):
			return err
		case time.Since(since) >= w.busy:
			return ErrLocked
		}
		<-pauseAfter(time.Since(since))
	}
}

// transact runs the batch in the transaction that begin opened, and commits it. Whatever fails in
// between ends with the connection, which rolls back. Where one call has failed it answers which
// one, otherwise a number below 0.
func (w *Writer) transact(batch []*call) (failed int, err error) {
	t := &Txn{Now: time.Now().Round(0).UTC(), session: w.session}
	for i, c := range batch {
		if err := c.Apply(t); err != nil {
			err = w.abort(err)
			if errors.Is(err, ErrLocked) { // it would meet the others, too
				return -1, err
			}
			return i, err
		}
	}
	for _, p := range t.parts {
		if err := p.part.End(); err != nil {
			return -1, w.abort(err)
		}
	}
	err = w.commit()
	switch {
	case IsBusy(err):
		return -1, w.abort(err)
	case err != nil:
		w.drop()
		return -1, Explain("committing; the outcome is unknown", err)
	}
	return -1, nil
}

// commit waits if readers are in the way, as they may be without the write-ahead log. A transaction
// stays open after SQLite has refused its commit as busy.
func (w *Writer) commit() error {
	for since := time.Now(); ; {
		_, err := w.session.exec("COMMIT")
		if !IsBusy(err) || time.Since(since) >= w.busy {
			return err
		}
		<-pauseAfter(time.Since(since))
	}
}

func (w *Writer) abort(err error) error {
	w.drop()
	if IsBusy(err) {
		return ErrLocked
	}
	return Explain("nothing was written", err)
}

func (w *Writer) drop() {
	if w.session != nil {
		w.session.close()
		w.session = nil
	}
}

// Close finishes the calls under way, answers ErrClosed to those that wait, and closes the writing
// connection. The pool stays open. It may be called more than once.
func (w *Writer) Close() {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		w.cancel()
		answer(w.queue, ErrClosed)
		w.queue = nil
	}
	for w.running {
		w.idle.Wait()
	}
	w.mu.Unlock()
	w.drop()
}

// IsClosed reports whether Close was called.
func (w *Writer) IsClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}
