package pgbroker

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
	"github.com/onceq/onceq/internal/tablequeue"
)

// TestRowsByHand: a row that a program or an operator has written, whatever stands in its columns,
// neither keeps the others from being received, nor hides them from a look.
func TestRowsByHand(t *testing.T) {
	pool := openPool(t)
	for name, c := range map[string]struct {
		columns, values string
		hidden          bool
	}{
		"parked for ever":             {"due", "'infinity'", true},
		"due for ever":                {"due", "'-infinity'", false},
		"due before Christ":           {"due", "'4713-01-01 BC'", false},
		"due at the calendar's end":   {"due", "'294276-12-31'", true},
		"published never":             {"published", "'infinity'", false},
		"published for ever":          {"published", "'-infinity'", false},
		"published before Christ":     {"published", "'4713-01-01 BC'", false},
		"counted down":                {"attempts", "-5", false},
		"counted to the end":          {"attempts", "2147483647", false},
		"attributes null":             {"attributes", "'null'", false},
		"attributes that nest":        {"attributes", "'{\"a\": {\"b\": [null]}, \"c\": null}'", false},
		"attributes twice":            {"attributes", "'{\"a\": \"1\", \"a\": \"2\"}'", false},
		"attributes not of UTF-8":     {"attributes", `'{"a": "\ud800"}'`, false},
		"metadata that is empty":      {"meta", "''", false},
		"metadata that is none":       {"meta", "'x'", false},
		"metadata of another version": {"meta", `'{"v":99}'`, false},
		"a group without a name":      {"grp, waits, fresh", "'', true, true", false},
		"a group's, and not told":     {"grp", "'g'", false},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(t, pool, newName(), nil)
			send(t, q, bodies("", "before")...)
			exec(t, pool, `INSERT INTO onceq_messages (queue, body, `+c.columns+`) VALUES ('`+q.name+`', 'odd', `+c.values+`)`)
			send(t, q, bodies("", "behind")...)
			want := 3
			if c.hidden {
				want = 2
			}
			if d, err := q.Depth(t.Context()); err != nil || d.Visible != int64(want) {
				t.Errorf("Depth: %+v, %v; want %d visible", d, err, want)
			}
			for m, err := range q.Peek(t.Context(), 10) {
				if err != nil {
					t.Fatalf("Peek: %v", err)
				}
				if m.Published.IsZero() {
					t.Errorf("%s has no time", m.Body)
				}
			}
			var got []string
			for _, m := range take(t, q, want) {
				if m.Attempt < 1 {
					t.Errorf("%s is delivery %d", m.Body, m.Attempt)
				}
				got = append(got, string(m.Body))
				if err := q.Extend(t.Context(), []broker.Hold{{Receipt: m.Receipt, For: tablequeue.MaxHold}}); err != nil {
					t.Errorf("Extend of %s: %v", m.Body, err)
				}
				if err := q.Nack(t.Context(), []broker.Hold{{Receipt: m.Receipt}}); err != nil {
					t.Errorf("Nack of %s: %v", m.Body, err)
				}
			}
			if slices.Sort(got); slices.Contains(got, "odd") == c.hidden || !slices.Contains(got, "before") || !slices.Contains(got, "behind") {
				t.Errorf("%q came", got)
			}
			ack(t, q, take(t, q, want)...)
			if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq_messages WHERE queue = $1`, q.name); n != 3-want {
				t.Errorf("%d rows are left", n)
			}
		})
	}
}

// TestParkedByHand: what an operator puts aside with due 'infinity' stays away, and comes when the
// operator makes it due, in the group's order.
func TestParkedByHand(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	send(t, q, bodies("g", "g1", "g2")...)
	ids := send(t, q, bodies("", "x")...)
	exec(t, pool, `UPDATE onceq_messages SET due = 'infinity' WHERE seq = $1`, ids[0])
	m := next(t, q, "g1")
	exec(t, pool, `UPDATE onceq_messages SET due = '-infinity', held = false WHERE seq = $1`, m.ID)
	if err := q.Ack(t.Context(), []broker.Receipt{m.Receipt}); err == nil {
		t.Error("the receipt of a message that was taken away is not void")
	}
	ack(t, q, next(t, q, "g1"))
	ack(t, q, next(t, q, "g2"))
	none(t, q, "parked")
	exec(t, pool, `UPDATE onceq_messages SET due = '-infinity' WHERE seq = $1`, ids[0])
	ack(t, q, next(t, q, "x"))
}

// TestTxOfAReleasedConnection: a pool's connection that was given back is refused, as a transaction
// that is over.
func TestTxOfAReleasedConnection(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "BEGIN")
	send(t, q.Tx(conn), bodies("", "rolled back")...)
	exec(t, conn, "ROLLBACK")
	conn.Release()
	if _, err := q.Tx(conn).Send(t.Context(), bodies("", "x")); err == nil {
		t.Error("a connection that was released has sent something")
	}
	var wrapped struct{ pgx.Tx }
	if _, err := q.Tx(wrapped).Send(t.Context(), bodies("", "x")); err == nil {
		t.Error("a struct without its transaction has sent something")
	}
	none(t, q, "what nobody committed")
}
