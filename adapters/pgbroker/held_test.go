package pgbroker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// TestReceiveWaitsForNobody: a row that somebody holds keeps no receive from those behind it.
func TestReceiveWaitsForNobody(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	ids := send(t, q, bodies("", "held", "free")...)
	operator := begin(t, pool, pgx.TxOptions{})
	exec(t, operator, "SELECT FROM onceq_messages WHERE seq = $1 FOR UPDATE", ids[0])
	from := time.Now()
	ack(t, q, next(t, q, "free"))
	if d := time.Since(from); d > 30*time.Second { // who waits for the operator's lock waits for ever
		t.Errorf("it took %v", d)
	}
	commit(t, operator)
	ack(t, q, next(t, q, "held"))
}

// TestGivenBack: the receipt of a message that was given back is void, before it is delivered again
// as well.
func TestGivenBack(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	send(t, q, bodies("", "x")...)
	m := take(t, q, 1)[0]
	h := []broker.Hold{{Receipt: m.Receipt, For: 200 * time.Millisecond}}
	if err := q.Nack(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	h[0].For = time.Hour
	for name, err := range map[string]error{
		"Ack": q.Ack(t.Context(), []broker.Receipt{m.Receipt}), "Nack": q.Nack(t.Context(), h), "Extend": q.Extend(t.Context(), h),
	} {
		if !errors.Is(broker.ErrAt(err, 0), broker.ErrReceiptExpired) {
			t.Errorf("%s was answered %v", name, err)
		}
	}
	ack(t, q, next(t, q, "x"))
}

// TestGroupsLocked: whoever orders a group, and whoever acks its head, waits for each other.
func TestGroupsLocked(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	send(t, q, bodies("g", "g1", "g2", "g3")...)
	m := next(t, q, "g1")
	for what, do := range map[string]func() error{
		"orderGroups": func() error { _, err := q.orderGroups(t.Context(), []freshRow{{1, "g"}}); return err },
		"Ack":         func() error { return q.Ack(t.Context(), []broker.Receipt{m.Receipt}) },
	} {
		other := begin(t, pool, pgx.TxOptions{})
		// The lock has the number that programs of all versions know.
		exec(t, other, "SELECT pg_advisory_xact_lock(hashtextextended('g', hashtextextended($1, 0)))", q.name)
		done := make(chan error, 1)
		go func() { done <- do() }()
		until(t, what+" to wait", func() bool {
			select {
			case err := <-done:
				t.Fatalf("%s did not wait for the group's lock: %v", what, err)
			default:
			}
			return pgtest.Scan[int](t, pool, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") == 1
		})
		commit(t, other)
		if err := <-done; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	ack(t, q, next(t, q, "g2"))
	ack(t, q, next(t, q, "g3"))
}

// TestFreshWithoutHead: a row of a group that has no head stays fresh, so that the next look gives
// it one.
func TestFreshWithoutHead(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	ids := send(t, q, bodies("g", "g1")...)
	exec(t, pool, q.sql().seen, q.name, "{"+ids[0]+"}")
	if !pgtest.Scan[bool](t, pool, "SELECT fresh FROM onceq_messages") {
		t.Error("it is fresh no longer, and would never come")
	}
	ack(t, q, next(t, q, "g1"))
}

// TestHangingServer: a call whose context ends while the server hangs says that the outcome is
// unknown, and a receive goes on for its grace.
func TestHangingServer(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	send(t, q, bodies("", "x")...)
	lock := begin(t, pool, pgx.TxOptions{})
	exec(t, lock, "LOCK TABLE onceq_messages")
	ctx, cancel := contextFor(t, 200*time.Millisecond)
	defer cancel()
	if _, err := q.Send(ctx, bodies("", "y")); err == nil || !errors.Is(err, ctx.Err()) {
		t.Errorf("Send was answered %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	got := make(chan error, 1)
	go func() {
		ms, err := q.Receive(ctx, broker.ReceiveOptions{Max: 1})
		if err == nil && len(ms) == 1 {
			err = q.Ack(t.Context(), []broker.Receipt{ms[0].Receipt})
		}
		got <- err
	}()
	until(t, "the look to wait for the table", func() bool {
		return pgtest.Scan[int](t, pool, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query NOT LIKE '%INSERT INTO%'") > 0
	})
	cancel()
	commit(t, lock)
	if err := <-got; err != nil {
		t.Errorf("a receive that was cancelled in the middle of its look brought %v", err)
	}
	none(t, q, "after all: what was received was handed over")
}

// TestKilledReceive: where the connection dies amid a receive, nothing is lost: what the server has
// not committed is there at once.
func TestKilledReceive(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	send(t, q, bodies("g", "x")...)
	lock := begin(t, pool, pgx.TxOptions{})
	exec(t, lock, "LOCK TABLE onceq_messages")
	got := make(chan error, 1)
	go func() {
		_, err := q.Receive(t.Context(), broker.ReceiveOptions{Max: 1})
		got <- err
	}()
	until(t, "the end of the waiting process", func() bool {
		return pgtest.Scan[int](t, pool, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") > 0
	})
	if err := <-got; err == nil {
		t.Error("no error")
	}
	commit(t, lock)
	ack(t, q, next(t, q, "x"))
}
