package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// This file owns the one goroutine that writes, its queue, and when it holds the file's lock. Every
// writing call of the store comes through writer.do. writer.mu guards the queue; it is never held
// during SQL.

const (
	// A process that is never idle frees the lock only for an instant between two transactions, and
	// nobody else would find it free then. So it lets go after each stint, for longer than others
	// wait between two tries.
	stint    = 20 * time.Millisecond
	breather = 300 * time.Microsecond

	firstPause = 100 * time.Microsecond
	lastPause  = 5 * time.Millisecond
)

// pauseAfter is how long to wait before the next try for a lock that another connection holds. It
// grows with the time already waited. The writer waits by Go's timer, because SQLite's busy handler
// would block a thread and knows nothing of virtual time.
func pauseAfter(waited time.Duration) <-chan time.Time {
	return time.After(min(max(waited/200, firstPause), lastPause))
}

// call is the part of one caller in a transaction.
type call struct {
	entries int
	apply   func(*txn) error
	err     error         // set before done is closed
	done    chan struct{} // closed when the call is answered
}

// writer runs calls in IMMEDIATE transactions, all that wait together in one. It has a goroutine
// only while calls wait.
type writer struct {
	db     *sql.DB
	sql    *statements
	busy   time.Duration
	most   int             // entries of one transaction
	life   context.Context // ends with close: nobody else may end a wait for a connection
	cancel context.CancelFunc

	mu      sync.Mutex
	idle    *sync.Cond
	queue   []*call // not yet part of a transaction
	running bool
	closed  bool

	session *session // the running goroutine's, or close's
}

func newWriter(db *sql.DB, st *statements, busy time.Duration) *writer {
	w := &writer{db: db, sql: st, busy: busy, most: maxBatch}
	w.life, w.cancel = context.WithCancel(context.Background())
	w.idle = sync.NewCond(&w.mu)
	return w
}

// do runs apply in a transaction and returns when that is committed. It waits for the lock up to
// wait. After ErrBusy nothing was written. The end of ctx ends this call only, never the
// transaction that others share. Then apply may still be running.
func (w *writer) do(ctx context.Context, wait time.Duration, entries int, apply func(*txn) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sqlitestore: nothing was written: %w", err)
	}
	c := &call{entries: entries, apply: apply, done: make(chan struct{})}
	if !w.add(c) {
		return errClosed
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	case <-timer.C:
		if w.withdraw(c) {
			return errLocked
		}
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		if w.withdraw(c) {
			return fmt.Errorf("sqlitestore: nothing was written: %w", ctx.Err())
		}
		return fmt.Errorf("sqlitestore: the transaction was under way, its outcome is unknown: %w", ctx.Err())
	}
}

func (w *writer) add(c *call) bool {
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
func (w *writer) withdraw(c *call) bool {
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
func (w *writer) run() {
	begun := time.Now()
	since := begun
	for w.waiting() {
		err := w.begin()
		if isBusy(err) {
			<-pauseAfter(time.Since(since))
			begun = time.Now()
			continue
		}
		batch := w.take()
		if err == nil {
			err = w.transact(batch)
		}
		answer(batch, err)
		if since = time.Now(); since.Sub(begun) > stint {
			<-time.After(breather)
			begun = time.Now()
		}
	}
}

// waiting reports whether there are calls to serve. If not, the running goroutine ends.
func (w *writer) waiting() bool {
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
func (w *writer) take() []*call {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, entries := 0, 0
	for n < len(w.queue) && (n == 0 || entries+w.queue[n].entries <= w.most) {
		entries += w.queue[n].entries
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
func (w *writer) begin() error {
	reused := w.session != nil
	for {
		if w.session == nil {
			s, err := connect(w.life, w.db)
			if err != nil {
				return explain("opening the writer's connection", err)
			}
			w.session = s
		}
		_, err := w.session.exec("BEGIN IMMEDIATE")
		if err == nil || isBusy(err) {
			return err
		}
		w.drop()
		if !reused {
			return explain("beginning a transaction", err)
		}
		reused = false
	}
}

// transact runs the batch in the transaction that begin opened, and commits it. Whatever fails in
// between ends with the connection, which rolls back.
func (w *writer) transact(batch []*call) error {
	t := &txn{session: w.session, sql: w.sql, now: time.Now().Round(0).UTC()}
	for _, c := range batch {
		if err := c.apply(t); err != nil {
			return w.abort(err)
		}
	}
	if err := t.writeFence(); err != nil {
		return w.abort(err)
	}
	err := w.commit()
	switch {
	case isBusy(err):
		return w.abort(err)
	case err != nil:
		w.drop()
		return explain("committing; the outcome is unknown", err)
	}
	return nil
}

// commit waits if readers are in the way, as they may be without the write-ahead log. A transaction
// stays open after SQLite has refused its commit as busy.
func (w *writer) commit() error {
	for since := time.Now(); ; {
		_, err := w.session.exec("COMMIT")
		if !isBusy(err) || time.Since(since) >= w.busy {
			return err
		}
		<-pauseAfter(time.Since(since))
	}
}

func (w *writer) abort(err error) error {
	w.drop()
	if isBusy(err) {
		return errLocked
	}
	return explain("nothing was written", err)
}

func (w *writer) drop() {
	if w.session != nil {
		w.session.close()
		w.session = nil
	}
}

func (w *writer) close() error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		w.cancel()
		answer(w.queue, errClosed)
		w.queue = nil
	}
	for w.running {
		w.idle.Wait()
	}
	w.mu.Unlock()
	w.drop()
	return nil
}

func (w *writer) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

var (
	errClosed = fmt.Errorf("sqlitestore: %w", dedupe.ErrClosed)
	errLocked = fmt.Errorf("sqlitestore: another transaction holds the file's write lock: %w", dedupe.ErrBusy)
)
