package pgbroker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
	"github.com/onceq/onceq/internal/tablequeue"
)

// TestHeldRowStopsItsGroupAlone: where somebody holds the first row of a group that has more fresh
// rows than a look reads, other groups go on, those of before and of after.
func TestHeldRowStopsItsGroupAlone(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	insert := func(group string, n int) {
		exec(t, pool, `INSERT INTO onceq_messages (queue, grp, waits, fresh, body)
			SELECT $1, $2 || CASE WHEN $2 = 'held' THEN '' ELSE n::text END, true, true, '\x' FROM generate_series(1, $3::int) n`, q.name, group, n)
	}
	insert("held", 2*maxFresh+100)
	insert("other", 10)
	operator := begin(t, pool, pgx.TxOptions{})
	exec(t, operator, "SELECT FROM onceq_messages WHERE seq = (SELECT min(seq) FROM onceq_messages) FOR UPDATE")
	ack(t, q, take(t, q, 10)...)
	none(t, q, "while the operator holds the group's first row")
	insert("later", 10)
	ack(t, q, take(t, q, 10)...)
	if err := operator.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m := take(t, q, 1)[0]; m.Group != "held" || m.ID != pgtest.Scan[string](t, pool, "SELECT min(seq)::text FROM onceq_messages") {
		t.Errorf("%s of %s came, not the first one of the group", m.ID, m.Group)
	}
}

// TestFreshFloor: a look for fresh rows begins behind what was seen when the slack has passed, a
// full one at the front; and what a full look has left is not passed by.
func TestFreshFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g groups
		look := func(full bool, want, last int64, filled bool) {
			t.Helper()
			s := g.beginFresh(full)
			if s.behind != want {
				t.Fatalf("a look begins behind %d, want %d", s.behind, want)
			}
			g.endFresh(s, last, filled)
			if g.hint.Swap(false) != filled {
				t.Errorf("another look goes at once: %v", !filled)
			}
		}
		look(false, 0, 10, false)
		look(false, 0, 20, true)
		<-time.After(slack)
		look(false, 0, 30, false)
		<-time.After(slack)
		look(false, 20, 40, false)
		late := g.beginFresh(false)
		look(true, front, 5, true) // more may have come late behind 5
		g.endFresh(late, 50, false)
		look(false, 5, 20, false)
		look(true, front, 60, true)
		<-time.After(2 * slack)
		look(true, front, 60, false)
		<-time.After(2 * slack)
		look(false, 60, 60, false)
	})
}

// TestLateCommitOfGroup: a message of a group whose transaction is committed when later ones were
// received is found, though looks for fresh rows have passed it.
func TestLateCommitOfGroup(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	tx := begin(t, pool, pgx.TxOptions{})
	send(t, q.Tx(tx), bodies("late", "late")...)
	until(t, "a look that begins behind it", func() bool {
		send(t, q, bodies("g", "x")...)
		ack(t, q, next(t, q, "x"))
		return q.groups.beginFresh(false).behind > 1
	})
	commit(t, tx)
	ack(t, q, next(t, q, "late"))
}

// TestEmptyIsCertainOfGroups: a receive that does not wait finds a group's message that lies before
// where looks begin, also where what it was told of is in somebody's hands.
func TestEmptyIsCertainOfGroups(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	send(t, q, bodies("g", "x")...)
	ack(t, q, next(t, q, "x"))
	q.groups.mu.Lock()
	q.groups.at, q.groups.next, q.groups.latest = 10, 10, 10
	q.groups.mu.Unlock()
	exec(t, pool, "INSERT INTO onceq_messages (queue, grp, waits, fresh, body) VALUES ($1, 'late', true, true, 'late')", q.name)
	exec(t, pool, "ALTER TABLE onceq_messages ALTER COLUMN seq RESTART WITH 20")
	id := send(t, q, bodies("h", "held")...)[0]
	operator := begin(t, pool, pgx.TxOptions{})
	exec(t, operator, "SELECT FROM onceq_messages WHERE seq = $1 FOR UPDATE", id)
	noFullLook(q)
	ms, err := q.Receive(t.Context(), broker.ReceiveOptions{Max: 1})
	if err != nil || len(ms) != 1 || string(ms[0].Body) != "late" {
		t.Fatalf("%d messages, %v, want the late one", len(ms), err)
	}
	ack(t, q, ms[0])
}

// TestFewLocks: no transaction takes more of the server's locks than a connection has room for,
// whatever the number of groups that are ordered or acked at once; all of them are.
func TestFewLocks(t *testing.T) {
	const n = tablequeue.SettleBatch
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	var out []broker.Outgoing
	for i := range 2 * n {
		out = append(out, bodies(fmt.Sprint("g", i%n), fmt.Sprint(i/n))...)
	}
	send(t, q, out...)
	// Who waits for the group whose lock is taken last has all the others.
	const number = "hashtextextended(grp, hashtextextended(queue, 0))"
	last := pgtest.Scan[int64](t, pool, "SELECT max("+number+") FROM onceq_messages")
	waited := func(what string, do func() error) {
		t.Helper()
		other := begin(t, pool, pgx.TxOptions{})
		exec(t, other, "SELECT pg_advisory_xact_lock($1)", last)
		done := make(chan error, 1)
		go func() { done <- do() }()
		var has int
		until(t, what+" to wait", func() bool {
			has = pgtest.Scan[int](t, pool, `SELECT coalesce(max(n), -1) FROM (SELECT count(*) FILTER (WHERE granted) AS n, bool_or(NOT granted) AS waits FROM pg_locks
				WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) GROUP BY pid) p WHERE waits`)
			return has >= 0
		})
		commit(t, other)
		if err := <-done; err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if has > maxLocks {
			t.Errorf("%s has taken %d locks of groups", what, has)
		}
	}
	waited("ordering", func() error {
		var fresh []freshRow
		p := newPipeline()
		q.readFresh(p, front, &fresh)
		if err := p.Run(t.Context(), pool); err != nil {
			return err
		}
		_, err := q.orderGroups(t.Context(), fresh)
		return err
	})
	for _, want := range []string{"0", "1"} {
		var rs []broker.Receipt
		for _, m := range take(t, q, n) {
			if body(m) != want {
				t.Errorf("%s of %s came, want %s", m.Body, m.Group, want)
			}
			rs = append(rs, m.Receipt)
		}
		waited("an ack", func() error { return q.Ack(t.Context(), rs) })
	}
	if n := pgtest.Scan[int](t, pool, "SELECT count(*) FROM onceq_messages"); n > 0 {
		t.Errorf("%d rows are left", n)
	}
}

// TestPortions: where a row of one portion is held, those of the others are settled, and each entry
// has its own answer; and an older receipt of a message does not hide the one that counts.
func TestPortions(t *testing.T) {
	const n = maxLocks + 10
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	for i := range n {
		send(t, q, bodies(fmt.Sprint("g", i), "x")...)
	}
	ms := take(t, q, n)
	slices.SortFunc(ms, func(a, b *broker.Message) int { return cmp.Or(len(a.ID)-len(b.ID), cmp.Compare(a.ID, b.ID)) })
	old := ms[0].Receipt
	if err := q.Nack(t.Context(), []broker.Hold{{Receipt: old}}); err != nil {
		t.Fatal(err)
	}
	ms[0] = take(t, q, 1)[0]
	rs := []broker.Receipt{old}
	for _, m := range ms {
		rs = append(rs, m.Receipt)
	}
	operator := begin(t, pool, pgx.TxOptions{})
	exec(t, operator, "SELECT FROM onceq_messages WHERE seq = $1::bigint FOR UPDATE", ms[n-1].ID)
	err := q.Ack(t.Context(), rs)
	for i := range rs {
		want := error(nil)
		switch i {
		case 0:
			want = broker.ErrReceiptExpired
		case n:
			want = broker.ErrThrottled
		}
		if got := broker.ErrAt(err, i); !errors.Is(got, want) {
			t.Errorf("entry %d is answered %v, want %v", i, got, want)
		}
	}
	if err := operator.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	ack(t, q, ms[n-1])
	if n := pgtest.Scan[int](t, pool, "SELECT count(*) FROM onceq_messages"); n > 0 {
		t.Errorf("%d rows are left", n)
	}
}

// TestSplit: a portion has each row once, and no more groups than a transaction may lock.
func TestSplit(t *testing.T) {
	var es []tablequeue.Entry
	for i := range 120 {
		es = append(es, tablequeue.Entry{Receipt: tablequeue.Receipt{Seq: int64(i / 2), N: int32(i % 2), Grouped: i%3 > 0}, I: i})
	}
	for _, ofGroups := range []bool{true, false} {
		var got []int
		left := slices.Clone(es)
		for portions := 0; len(left) > 0; portions++ {
			var first []tablequeue.Entry
			first, left = split(left, ofGroups)
			if portions == 4 || len(first) == 0 {
				t.Fatalf("%d portions, %d entries are left", portions, len(left))
			}
			locks := 0
			for i, e := range first {
				if e.Grouped {
					locks++
				}
				if i > 0 && first[i-1].Seq >= e.Seq {
					t.Errorf("row %d comes after row %d", e.Seq, first[i-1].Seq)
				}
				got = append(got, e.I)
			}
			if ofGroups && locks > maxLocks {
				t.Errorf("a portion has %d groups", locks)
			}
		}
		slices.Sort(got)
		if len(slices.Compact(got)) != len(es) {
			t.Errorf("of groups %v: %d entries of %d", ofGroups, len(got), len(es))
		}
	}
}

// TestNoRoomForLocks: where the server's table of locks is full, because of others, nothing was
// written, and repeating is right; of the user's transaction, the whole transaction.
func TestNoRoomForLocks(t *testing.T) {
	pool := must.Get(pgxpool.New(t.Context(), "postgres://localhost:1/none"))
	defer pool.Close()
	q := must.Get(New(pool, "q", nil))
	full := &pgconn.PgError{Severity: "ERROR", Message: "out of shared memory", Code: "53200"}
	if err := q.explain(t.Context(), tablequeue.CallAck, full); !errors.Is(err, broker.ErrThrottled) || !errors.Is(err, full) {
		t.Errorf("an ack is answered %v", err)
	}
	wantText(t, q.explainTx(full), "roll back, then try the transaction again")
}
