package pgbroker

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgkit"
)

// This file owns the notifications of Options.Notify: what is sent after a commit, and the one
// connection on which a waiting receive listens. Sends, Wake and receives call it. mu guards the
// fields; the connection belongs to who has taken it out of them.

const (
	// apart keeps notifications at 20 a second: each takes a lock over all commits of the server.
	// It also keeps the looks at 20 a second that others' notifications bring: whoever may connect
	// to the database may notify.
	apart = 50 * time.Millisecond
	// callTimeout bounds what nobody waits for.
	callTimeout = 5 * time.Second
)

type notice struct {
	mu sync.Mutex
	// sent is when the last notification went, or will go: then timer is set.
	sent  time.Time
	timer *time.Timer
	// conn listens; nil while a receive has it, or none was opened. taken: a receive has it.
	conn  *pgx.Conn
	taken bool
	// heard is when the last look went that a notification has brought; who has taken conn
	// writes it.
	heard time.Time
	// interrupt lets the receive that listens go.
	interrupt context.CancelFunc
	closed    bool
}

// channel is that of all queues of a table; the queue's name is what it carries.
func (q *Queue) channel() string { return q.table + "_sent" }

// notify tells other processes, now or a little later. It does not wait.
func (q *Queue) notify() {
	n := &q.notice
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.interrupt != nil { // our own, who cannot wait for two things
		n.interrupt()
	}
	if !q.notifies || n.closed || n.timer != nil {
		return
	}
	n.timer = time.AfterFunc(max(0, apart-time.Since(n.sent)), q.sendNotice)
}

func (q *Queue) sendNotice() {
	n := &q.notice
	n.mu.Lock()
	n.timer, n.sent = nil, time.Now()
	closed := n.closed
	n.mu.Unlock()
	if closed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	var b pgx.Batch
	b.Queue(`SELECT pg_catalog.pg_notify($1::pg_catalog.text, pg_catalog.convert_from($2::pg_catalog.bytea, 'UTF8'))`, q.channel(), blobText(q.name))
	// Where it fails the others look at their next Poll.
	_ = pgkit.SendBatch(ctx, ctx, q.db, &b, isBusy)
}

// listen waits for a notification, for d at most. It is false where another receive listens, or
// listening is not possible now.
func (q *Queue) listen(ctx context.Context, d time.Duration) bool {
	n := &q.notice
	n.mu.Lock()
	if n.closed || n.taken {
		n.mu.Unlock()
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	conn := n.conn
	n.conn, n.taken, n.interrupt = nil, true, cancel
	n.mu.Unlock()

	conn, heard, ok := q.hear(ctx, conn)

	n.mu.Lock()
	n.taken, n.interrupt = false, nil
	closed := n.closed
	if !closed {
		n.conn = conn
	}
	n.mu.Unlock()
	if closed && conn != nil {
		_ = closeConn(conn)
	}
	if heard {
		q.groups.hint.Store(true)
		q.wakes.Wake()
	}
	return ok
}

// hear waits on conn, or on a new one where conn is nil, and answers the connection for the next
// time.
func (q *Queue) hear(ctx context.Context, conn *pgx.Conn) (next *pgx.Conn, heard, ok bool) {
	if conn == nil {
		var err error
		if conn, err = q.newListener(ctx); err != nil {
			return nil, false, false
		}
		return conn, true, true // something may have been sent before
	}
	for {
		got, err := conn.WaitForNotification(ctx)
		switch {
		case err == nil && got.Payload != q.name:
			continue // another queue's
		case err == nil:
			q.pause(ctx, conn)
			return conn, true, true
		case conn.IsClosed():
			return nil, true, false // something may have been missed
		default: // ctx has ended
			return conn, false, true
		}
	}
}

// pause waits until the last look that a notification has brought is long enough ago, and takes
// what else comes meanwhile: the server keeps it for all until it was read.
func (q *Queue) pause(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithDeadline(ctx, q.notice.heard.Add(apart))
	defer cancel()
	for ctx.Err() == nil {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			break
		}
	}
	q.notice.heard = time.Now()
}

// newListener takes a connection out of the pool for good: a pool that is closed waits for those
// that were only borrowed.
func (q *Queue) newListener(ctx context.Context) (*pgx.Conn, error) {
	pool := q.db.(*pgxpool.Pool) // New has checked it
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	c, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	conn := c.Hijack()
	if _, err = conn.Exec(ctx, `LISTEN `+pgx.Identifier{q.channel()}.Sanitize()); err != nil {
		_ = closeConn(conn)
		return nil, err
	}
	return conn, nil
}

func closeConn(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return conn.Close(ctx)
}

// close ends the listening; a receive that listens closes the connection itself.
func (n *notice) close() error {
	n.mu.Lock()
	n.closed = true
	if n.timer != nil {
		n.timer.Stop()
	}
	if n.interrupt != nil {
		n.interrupt()
	}
	conn := n.conn
	n.conn = nil
	n.mu.Unlock()
	if conn == nil {
		return nil
	}
	return closeConn(conn)
}
