package pgbroker

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// A receive finds the rows that it has locked at their places.

// TestReceiveAmidChange: a row that another call changes between a receive's snapshot and its lock
// waits for the next look, and is not lost, though looks begin behind it by then.
func TestReceiveAmidChange(t *testing.T) {
	admin := openPool(t)
	work, role := newRole(t, admin, "", "")
	for name, change := range map[string]func(t *testing.T, q *Queue, m *broker.Message){
		"an operator's update": func(t *testing.T, q *Queue, _ *broker.Message) {
			exec(t, admin, "UPDATE onceq_messages SET meta = meta WHERE queue = $1 AND body = 'x'", q.name)
		},
		"a late nack": func(t *testing.T, q *Queue, m *broker.Message) {
			if err := q.Nack(t.Context(), []broker.Hold{{Receipt: m.Receipt}}); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			other := newQueue(t, admin, newName(), nil)
			// A policy's function runs behind the snapshot, and before the lock of a row.
			exec(t, admin, `GRANT SELECT, INSERT, UPDATE, DELETE ON onceq_messages TO `+role+`; ALTER TABLE onceq_messages ENABLE ROW LEVEL SECURITY;
				CREATE OR REPLACE FUNCTION gate() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN true; END $$;
				DROP POLICY IF EXISTS slow ON onceq_messages; CREATE POLICY slow ON onceq_messages TO `+role+` USING (gate())`)
			send(t, other, bodies("", "x")...)
			m := next(t, other, "x")
			exec(t, admin, "UPDATE onceq_messages SET due = clock_timestamp() - interval '1 hour' WHERE queue = $1", other.name)
			send(t, other, bodies("", "y")...)
			q := must.Get(New(work, other.name, nil))
			gate := begin(t, admin, pgx.TxOptions{})
			exec(t, gate, "SELECT pg_advisory_xact_lock(1)")
			got := make(chan []*broker.Message, 1)
			go func() {
				ms, err := q.Receive(t.Context(), broker.ReceiveOptions{Max: 10})
				if err != nil {
					t.Error(err)
				}
				got <- ms
			}()
			until(t, "the receive to have its snapshot", func() bool {
				return pgtest.Scan[bool](t, admin, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))")
			})
			change(t, other, m)
			commit(t, gate)
			if ms := <-got; len(ms) != 1 || body(ms[0]) != "y" {
				t.Fatalf("%d messages came, want the one that nobody changed", len(ms))
			}
			noFullLook(q)
			ms, err := q.Receive(t.Context(), broker.ReceiveOptions{Max: 10})
			if err != nil || len(ms) != 1 || ms[0].ID != m.ID || ms[0].Attempt != 2 {
				t.Errorf("the next look brought %v, %v, want %s for the second time", ms, err, m.ID)
			}
		})
	}
}

// TestReceiveOfPartitions: partitions of one table have rows at the same places. A receive takes
// its own, and nothing of another partition.
func TestReceiveOfPartitions(t *testing.T) {
	pool := openPool(t)
	newQueue(t, pool, "a", nil)
	exec(t, pool, `CREATE SEQUENCE numbers; ALTER TABLE onceq_messages RENAME TO plain;
		CREATE TABLE onceq_messages (LIKE plain INCLUDING DEFAULTS, PRIMARY KEY (seq, queue)) PARTITION BY LIST (queue);
		ALTER TABLE onceq_messages ALTER seq SET DEFAULT nextval('numbers'); DROP TABLE plain;
		CREATE TABLE messages_a PARTITION OF onceq_messages FOR VALUES IN ('a'); CREATE TABLE messages_b PARTITION OF onceq_messages FOR VALUES IN ('b')`)
	a, b := newQueue(t, pool, "a", nil), newQueue(t, pool, "b", nil)
	send(t, a, bodies("", "a1", "a2")...)
	send(t, b, bodies("", "b1", "b2")...)
	if n := pgtest.Scan[int](t, pool, "SELECT count(*) FROM messages_a JOIN messages_b ON messages_a.ctid = messages_b.ctid"); n != 2 {
		t.Fatalf("%d rows are at equal places, so this cannot fail", n)
	}
	ms := take(t, a, 2)
	none(t, a, "and b's are not a's")
	ack(t, b, take(t, b, 2)...)
	ack(t, a, ms...)
	if n := pgtest.Scan[int](t, pool, "SELECT count(*) FROM onceq_messages"); n > 0 {
		t.Errorf("%d rows are left", n)
	}
}
