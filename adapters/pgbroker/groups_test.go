package pgbroker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

func body(m *broker.Message) string { return string(m.Body) }

// next takes one message, which must have that body.
func next(tb testing.TB, q *Queue, want string) *broker.Message {
	tb.Helper()
	m := take(tb, q, 1)[0]
	if body(m) != want {
		tb.Fatalf("%q came where %q was due", body(m), want)
	}
	return m
}

// TestGroupLateCommit: a message whose transaction is committed late goes before those of its group
// that nobody has received, and behind one that somebody has.
func TestGroupLateCommit(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	send(t, q, bodies("", "ahead")...)
	tx := begin(t, pool, pgx.TxOptions{})
	send(t, q.Tx(tx), bodies("g", "first")...)
	send(t, q, bodies("g", "second", "third")...)
	// Somebody's look has made the second one the head, and has taken nothing.
	var fresh []freshRow
	p := newPipeline()
	q.readFresh(p, front, &fresh)
	if err := p.Run(t.Context(), pool); err != nil || len(fresh) != 2 {
		t.Fatal(fresh, err)
	}
	if _, err := q.orderGroups(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
	if n := pgtest.Scan[int](t, pool, "SELECT count(*) FROM onceq_messages WHERE NOT waits AND grp = 'g'"); n != 1 {
		t.Fatalf("%d heads", n)
	}
	commit(t, tx)
	ack(t, q, next(t, q, "ahead")) // and the look gives the group its order
	first := next(t, q, "first")
	none(t, q, "while the first is in flight")
	ack(t, q, first)
	second := next(t, q, "second")
	late := begin(t, pool, pgx.TxOptions{})
	if _, err := late.Exec(t.Context(), `INSERT INTO onceq_messages (seq, queue, grp, fresh, waits, body)
		OVERRIDING SYSTEM VALUE VALUES (0, $1, 'g', true, true, 'later')`, q.name); err != nil {
		t.Fatal(err)
	}
	commit(t, late)
	none(t, q, "while the second is in flight")
	ack(t, q, second)
	for _, want := range []string{"later", "third"} {
		ack(t, q, next(t, q, want))
	}
	none(t, q, "after all")
}

// TestGroupHeldByOperator: where an operator holds the next row of a group, or a fresh one, nothing
// waits for him for long, and no group is left without a head.
func TestGroupHeldByOperator(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	ids := send(t, q, bodies("g", "g1", "g2")...)
	send(t, q, bodies("h", "h1", "h2")...)
	ms := take(t, q, 2)
	operator := begin(t, pool, pgx.TxOptions{})
	if _, err := operator.Exec(t.Context(), "SELECT FROM onceq_messages WHERE seq = $1 FOR UPDATE", ids[1]); err != nil {
		t.Fatal(err)
	}
	err := q.Ack(t.Context(), []broker.Receipt{ms[0].Receipt, ms[1].Receipt})
	for i, m := range ms {
		if got := broker.ErrAt(err, i); (m.Group == "g") != errors.Is(got, broker.ErrThrottled) || m.Group == "h" && got != nil {
			t.Errorf("the ack of %s is answered %v", body(m), got)
		}
	}
	ack(t, q, next(t, q, "h2"))
	none(t, q, "while the operator holds g2")
	if err := operator.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		if m.Group == "g" {
			ack(t, q, m)
		}
	}
	ack(t, q, next(t, q, "g2"))
	// A fresh row.
	ids = send(t, q, bodies("f", "f1", "f2")...)
	operator = begin(t, pool, pgx.TxOptions{})
	if _, err := operator.Exec(t.Context(), "SELECT FROM onceq_messages WHERE seq = $1 FOR UPDATE", ids[0]); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		none(t, q, "while the operator holds f1")
	}
	if err := operator.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	ack(t, q, next(t, q, "f1"))
	ack(t, q, next(t, q, "f2"))
}

// TestGroupRowHeld: the row of a receipt that somebody holds is busy, and its neighbours are not.
func TestGroupRowHeld(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	ids := send(t, q, bodies("", "a", "b", "c")...)
	ms := take(t, q, 3)
	operator := begin(t, pool, pgx.TxOptions{})
	if _, err := operator.Exec(t.Context(), "SELECT FROM onceq_messages WHERE seq = $1 FOR UPDATE", ids[1]); err != nil {
		t.Fatal(err)
	}
	var rs []broker.Receipt
	for _, m := range ms {
		rs = append(rs, m.Receipt)
	}
	err := q.Ack(t.Context(), rs)
	if broker.ErrAt(err, 0) != nil || broker.ErrAt(err, 2) != nil || !errors.Is(broker.ErrAt(err, 1), broker.ErrThrottled) {
		t.Errorf("answered %v", err)
	}
	if err := operator.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	ack(t, q, ms[1])
	if n := pgtest.Scan[int](t, pool, "SELECT count(*) FROM onceq_messages"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// TestGroupRedrive: a head that is moved to the dead letters makes place for the next one, and
// stays in order there.
func TestGroupRedrive(t *testing.T) {
	pool := openPool(t)
	dead := newQueue(t, pool, "dead", nil)
	q := newQueue(t, pool, "live", &Options{MaxReceives: 2, DeadLetters: "dead"})
	send(t, q, append(bodies("g", "g1", "g2", "g3"), bodies("", "u1")...)...)
	for range 2 {
		for _, m := range take(t, q, 2) {
			if err := q.Nack(t.Context(), []broker.Hold{{Receipt: m.Receipt}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	m := next(t, q, "g2")
	for range 1 {
		if err := q.Nack(t.Context(), []broker.Hold{{Receipt: m.Receipt}}); err != nil {
			t.Fatal(err)
		}
		m = next(t, q, "g2")
	}
	if err := q.Nack(t.Context(), []broker.Hold{{Receipt: m.Receipt}}); err != nil {
		t.Fatal(err)
	}
	ack(t, q, next(t, q, "g3"))
	none(t, q, "after all")
	var got []string
	for range 3 {
		m := take(t, dead, 1)[0]
		if m.Attempt != 1 {
			t.Errorf("%s has attempt %d", body(m), m.Attempt)
		}
		got = append(got, body(m))
		ack(t, dead, m)
	}
	if s := strings.Join(got, " "); s != "u1 g1 g2" && s != "g1 u1 g2" && s != "g1 g2 u1" {
		t.Errorf("the dead letters are %s", s)
	}
	none(t, dead, "after all")
	policy, err := q.Redrive(t.Context())
	if policy.MaxReceives != 2 || policy.Target != "dead" || err != nil {
		t.Error(policy, err)
	}
}

// TestGroupsUnderLoad: four readers in two processes' worth of queues, and producers whose
// transactions stay open for a while, some of which roll back: each committed message comes, in the
// order of its group, one of a group at a time.
func TestGroupsUnderLoad(t *testing.T) {
	const producers, groups, rounds, readers = 8, 5, 12, 4
	pool := openPool(t, func(c *pgxpool.Config) { c.MaxConns = producers + readers + 4 })
	name := newName()
	q := newQueue(t, pool, name, &Options{Visibility: time.Minute, Poll: 10 * time.Millisecond})
	other := newQueue(t, pool, name, &Options{Visibility: time.Minute, Poll: 10 * time.Millisecond})
	exec(t, pool, "CREATE TABLE aggregates (name text PRIMARY KEY, n int NOT NULL)")
	for g := range groups {
		exec(t, pool, "INSERT INTO aggregates VALUES ($1, 0)", fmt.Sprint("g", g))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	var producing sync.WaitGroup
	var mu sync.Mutex
	committed := 0
	for p := range producers {
		producing.Go(func() {
			for round := range rounds {
				group := fmt.Sprint("g", (p+round)%groups)
				tx, err := pool.Begin(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				// The row lock of the aggregate is what puts the writers of a group in order.
				var n int
				err = tx.QueryRow(ctx, "UPDATE aggregates SET n = n + 1 WHERE name = $1 RETURNING n", group).Scan(&n)
				if err == nil {
					_, err = q.Tx(tx).Send(ctx, bodies(group, fmt.Sprintf("%s-%d", group, n)))
				}
				if err == nil {
					_, err = tx.Exec(ctx, "SELECT pg_sleep($1)", float64((p*7+round)%5)/200)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if (p+round)%6 == 0 {
					err = tx.Rollback(ctx)
				} else if err = tx.Commit(ctx); err == nil {
					mu.Lock()
					committed++
					mu.Unlock()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	last, inFlight := map[string]int{}, map[string]bool{}
	came := 0
	var reading sync.WaitGroup
	stop, end := context.WithCancel(ctx)
	defer end()
	for r := range readers {
		reading.Go(func() {
			from := []*Queue{q, other}[r%2]
			for stop.Err() == nil {
				ms, err := from.Receive(stop, broker.ReceiveOptions{Max: 3, Wait: time.Second})
				if err != nil {
					if stop.Err() == nil {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				for _, m := range ms {
					var n int
					fmt.Sscanf(body(m), m.Group+"-%d", &n)
					if inFlight[m.Group] {
						t.Errorf("%s came while another of its group was in flight", m.Body)
					}
					if n <= last[m.Group] {
						t.Errorf("%s came after %d", m.Body, last[m.Group])
					}
					last[m.Group], inFlight[m.Group] = n, true
				}
				mu.Unlock()
				for i, m := range ms {
					mu.Lock()
					inFlight[m.Group] = false
					came++
					mu.Unlock()
					err := from.Ack(ctx, []broker.Receipt{m.Receipt})
					for errors.Is(broker.ErrAt(err, 0), broker.ErrThrottled) {
						err = from.Ack(ctx, []broker.Receipt{m.Receipt})
					}
					if err != nil {
						t.Error(i, err)
					}
				}
			}
		})
	}
	producing.Wait()
	until(t, "all messages", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return came >= committed
	})
	end()
	reading.Wait()
	if came != committed {
		t.Errorf("%d messages came, %d were committed", came, committed)
	}
	if n := pgtest.Scan[int](t, pool, "SELECT count(*) FROM onceq_messages"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// TestDeletedHead: what the documentation tells operators to do after they deleted a group's head
// by hand gives the group its next head.
func TestDeletedHead(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	ids := send(t, q, bodies("g", "poison", "next", "last")...)
	next(t, q, "poison")
	exec(t, pool, "DELETE FROM onceq_messages WHERE seq = $1", ids[0])
	none(t, q, "before the group was ordered again")
	exec(t, pool, "UPDATE onceq_messages SET fresh = true WHERE queue = $1 AND grp = $2 AND waits", q.name, "g")
	ack(t, q, next(t, q, "next"))
	ack(t, q, next(t, q, "last"))
}
