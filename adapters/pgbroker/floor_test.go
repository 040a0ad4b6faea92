package pgbroker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// TestFloor: a look begins where the last one took its highest due time, and a full look goes when
// twenty times as long as the last one took has passed.
func TestFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f floor
		due := time.Now().Add(-time.Minute)
		look := func(wantFull bool, wantAt time.Time, took time.Duration, highest time.Time, filled bool) {
			t.Helper()
			s := f.begin()
			if s.full != wantFull || !s.full && !s.at.Equal(wantAt) {
				t.Fatalf("a look begins at %v, full %v; want %v, %v", s.at, s.full, wantAt, wantFull)
			}
			f.end(s, took, highest, filled)
		}
		look(true, time.Time{}, time.Millisecond, due, false)
		look(false, due.Add(-slack), time.Millisecond, due.Add(time.Second), false)
		look(false, due.Add(time.Second-slack), time.Millisecond, time.Time{}, false)
		<-time.After(rarity * time.Millisecond)
		// It was filled with what lies before: the rest of that is next.
		look(true, time.Time{}, 50*time.Millisecond, due.Add(-time.Hour), true)
		look(false, due.Add(-time.Hour-slack), time.Millisecond, due.Add(-time.Hour+time.Second), true)
		// A look that began before the floor was lowered does not raise it.
		s := start{at: due, lowered: f.lowered - 1}
		f.end(s, time.Millisecond, due.Add(time.Minute), true)
		look(false, due.Add(-time.Hour+time.Second-slack), time.Millisecond, time.Time{}, false)
		<-time.After(rarity*50*time.Millisecond - time.Millisecond)
		look(false, due.Add(-time.Hour+time.Second-slack), time.Millisecond, time.Time{}, false)
		<-time.After(time.Millisecond)
		look(true, time.Time{}, time.Hour, time.Time{}, false)
		<-time.After(maxBetween)
		look(true, time.Time{}, 0, time.Time{}, false)
	})
}

// TestLateCommit: a message whose transaction is committed long after others were received comes
// soon, though the floor has passed it.
func TestLateCommit(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	tx := begin(t, pool, pgx.TxOptions{})
	send(t, q.Tx(tx), bodies("", "late")...)
	exec(t, tx, "UPDATE onceq_messages SET due = due - interval '30 seconds'")
	for i := range 5 {
		send(t, q, bodies("", fmt.Sprint(i))...)
		ack(t, q, take(t, q, 1)...)
	}
	if at := q.floor.begin().at; !at.IsZero() && time.Since(at) > 20*time.Second {
		t.Fatalf("the floor is at %v", at)
	}
	commit(t, tx)
	committed := time.Now()
	m := take(t, q, 1)[0]
	if d := time.Since(committed); body(m) != "late" || d > 5*time.Second {
		t.Errorf("%q came %v after its commit", body(m), d)
	}
	ack(t, q, m)
}

// TestPoll: an idle receive looks each Poll, all receives of a queue together; a send through the
// queue wakes it at once; and what another queue sends comes within a Poll.
func TestPoll(t *testing.T) {
	pool := openPool(t)
	name := newName()
	q := newQueue(t, pool, name, &Options{Poll: 10 * time.Second})
	took := func(then func()) time.Duration {
		t.Helper()
		came := make(chan error, 1)
		ready := make(chan struct{})
		go func() {
			close(ready)
			ms, err := q.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: 20 * time.Second})
			if err == nil && len(ms) != 1 {
				err = errors.New("nothing came")
			}
			if err == nil {
				err = q.Ack(t.Context(), []broker.Receipt{ms[0].Receipt})
			}
			came <- err
		}()
		<-ready
		until(t, "the first look", func() bool { return q.wakes.UntilTurn(10*time.Second) > 0 })
		from := time.Now()
		then()
		if err := <-came; err != nil {
			t.Fatal(err)
		}
		return time.Since(from)
	}
	if d := took(func() { send(t, q, bodies("", "x")...) }); d > 3*time.Second {
		t.Errorf("a send was received after %v", d)
	}
	if d := took(func() {
		tx := begin(t, pool, pgx.TxOptions{})
		send(t, q.Tx(tx), bodies("g", "x")...)
		commit(t, tx)
		q.Wake()
	}); d > 3*time.Second {
		t.Errorf("after Wake it took %v", d)
	}
	own := newQueue(t, pool, name, nil)
	q.s.Poll = 20 * time.Millisecond
	if d := took(func() { send(t, own, bodies("", "x")...) }); d > 5*time.Second {
		t.Errorf("from another queue it took %v", d)
	}
}

// TestNotify: with Options.Notify a send of another process wakes a receive whose Poll is long.
func TestNotify(t *testing.T) {
	pool := openPool(t)
	name := newName()
	q := newQueue(t, pool, name, &Options{Poll: 10 * time.Second, Notify: true})
	other := newQueue(t, pool, name, &Options{Notify: true})
	for i := range 3 {
		came := make(chan error, 1)
		go func() {
			ms, err := q.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: 20 * time.Second})
			if err == nil && len(ms) != 1 {
				err = errors.New("nothing came")
			}
			if err == nil {
				err = q.Ack(t.Context(), []broker.Receipt{ms[0].Receipt})
			}
			came <- err
		}()
		until(t, "the listening", func() bool {
			q.notice.mu.Lock()
			defer q.notice.mu.Unlock()
			return q.notice.taken && (i > 0 || pgtest.Scan[int](t, pool, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle' AND datname = current_database()") == 1)
		})
		sent := time.Now()
		send(t, other, bodies("", "x")...)
		if err := <-came; err != nil {
			t.Fatal(err)
		}
		if d := time.Since(sent); d > 5*time.Second {
			t.Errorf("round %d took %v", i, d)
		}
	}
}

// TestNotifiedTooOften: however often others notify, no more than 20 looks a second come of it.
func TestNotifiedTooOften(t *testing.T) {
	const looks = 6
	pool := openPool(t)
	q := newQueue(t, pool, newName(), &Options{Poll: 10 * time.Second, Notify: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var crowd sync.WaitGroup
	defer crowd.Wait()
	defer cancel()
	crowd.Go(func() {
		for ctx.Err() == nil {
			_, _ = pool.Exec(ctx, "SELECT pg_notify('onceq_messages_sent', $1)", q.name)
		}
	})
	q.listen(t.Context(), 10*time.Second) // the connection's first, which looks anyway
	begun := time.Now()
	for range looks {
		q.groups.hint.Store(false)
		if ok := q.listen(t.Context(), 10*time.Second); !ok || !q.groups.hint.Load() {
			t.Fatal("no notification was heard")
		}
	}
	if d := time.Since(begun); d < (looks-1)*apart {
		t.Errorf("%d looks within %v, want at least %v between two", looks, d, apart)
	}
}

// TestClose: a waiting receive ends with ErrClosed, and so do later calls, while the pool stays
// open.
func TestClose(t *testing.T) {
	pool := openPool(t)
	for _, notify := range []bool{false, true} {
		q := newQueue(t, pool, newName(), &Options{Poll: 10 * time.Second, Notify: notify})
		ended := make(chan error, 1)
		go func() {
			_, err := q.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: 20 * time.Second})
			ended <- err
		}()
		until(t, "the first look", func() bool { return q.wakes.UntilTurn(10*time.Second) > 0 })
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, broker.ErrClosed) {
			t.Errorf("Notify %v: Receive was answered %v", notify, err)
		}
		if _, err := q.Send(t.Context(), bodies("", "x")); !errors.Is(err, broker.ErrClosed) {
			t.Errorf("Send was answered %v", err)
		}
		if err := pool.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestCancelledWait: a receive whose context ends answers at once, and not with an empty list.
func TestCancelledWait(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), &Options{Poll: 10 * time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	from := time.Now()
	if _, err := q.Receive(ctx, broker.ReceiveOptions{Max: 1, Wait: 20 * time.Second}); !errors.Is(err, context.Canceled) || time.Since(from) > 8*time.Second {
		t.Errorf("answered %v after %v", err, time.Since(from))
	}
}

// TestEmptyIsCertain: a receive that does not wait, and would look from the floor, finds what lies
// before it: its empty answer means that nothing is there.
func TestEmptyIsCertain(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	send(t, q, bodies("", "x")...)
	ack(t, q, next(t, q, "x"))
	exec(t, pool, "INSERT INTO onceq_messages (queue, due, body) VALUES ($1, clock_timestamp() - interval '1 hour', 'late')", q.name)
	noFullLook(q)
	ms, err := q.Receive(t.Context(), broker.ReceiveOptions{Max: 1})
	if err != nil || len(ms) != 1 || string(ms[0].Body) != "late" {
		t.Fatalf("%d messages, %v, want the one that lies before the floor", len(ms), err)
	}
	ack(t, q, ms[0])
}

// noFullLook lets looks begin at the floor for an hour, unless a receive asks for certainty.
func noFullLook(q *Queue) {
	q.floor.mu.Lock()
	defer q.floor.mu.Unlock()
	q.floor.next = time.Now().Add(time.Hour)
}

// TestNextHeadIsDueNow: the message that becomes its group's head is found from the floor, however
// long it has waited behind the last one.
func TestNextHeadIsDueNow(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	send(t, q, bodies("g", "a", "b")...)
	a := next(t, q, "a")
	exec(t, pool, "UPDATE onceq_messages SET due = due - interval '1 hour' WHERE queue = $1 AND waits", q.name)
	send(t, q, bodies("", "x")...)
	ack(t, q, next(t, q, "x")) // the floor is behind the time of b
	noFullLook(q)
	ack(t, q, a)
	ms, err := q.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: 5 * time.Second})
	if err != nil || len(ms) != 1 || string(ms[0].Body) != "b" {
		t.Fatalf("%d messages, %v, want b", len(ms), err)
	}
	ack(t, q, ms[0])
}

// TestLoweredFloor: a look that began before a full one has set the floor back does not raise it
// again over what is left there.
func TestLoweredFloor(t *testing.T) {
	var f floor
	now := time.Now()
	f.end(f.begin(), time.Minute, now, false) // no full look goes for a while
	began := f.begin()
	f.end(f.beginFull(), time.Millisecond, now.Add(-time.Hour), true)
	if want := now.Add(-time.Hour - slack); !f.at.Equal(want) {
		t.Fatalf("the floor is at %v, want %v: the full look was filled with what lies there", f.at, want)
	}
	f.end(began, time.Millisecond, now.Add(time.Second), true)
	if !f.at.Before(now.Add(-time.Hour)) {
		t.Errorf("a look that began before has raised the floor to %v", f.at)
	}
	f.end(start{lowered: f.lowered}, time.Millisecond, now.Add(time.Second), true)
	if !f.at.After(now) {
		t.Errorf("a look that began after it has left the floor at %v", f.at)
	}
}
