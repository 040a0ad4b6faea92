package pgbroker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// TestRoleSettings: what a role or a database has set changes no answer, however the statements are
// sent.
func TestRoleSettings(t *testing.T) {
	admin := openPool(t, func(c *pgxpool.Config) { c.MaxConns = 30 })
	newQueue(t, admin, "first", nil)
	busy := func(err error) bool {
		return errors.Is(err, broker.ErrThrottled) || pgkit.State(err) == pgkit.LockNotAvailable
	}
	pgtest.TestSettings(t, admin, wholeLife, busy, "statement_timeout = '20s'", "idle_in_transaction_session_timeout = '5s'")
}

// wholeLife makes every call of a queue, and looks at what the answers say.
func wholeLife(ctx context.Context, pool *pgxpool.Pool, name string) error {
	q, err := New(pool, name, &Options{MaxReceives: 2, DeadLetters: name + "-tot"})
	if err != nil {
		return err
	}
	dead, err := New(pool, name+"-tot", nil)
	if err != nil {
		return err
	}
	if err := errors.Join(q.Migrate(ctx), dead.Migrate(ctx)); err != nil {
		return err
	}
	out := broker.Outgoing{
		Body: []byte{0, 255, '\\', '"', '\''}, Attributes: map[string]string{"grün\x00": "\x00ß☃\"\\", "": "NULL"},
		Meta: &broker.Meta{ID: "j-☃", Key: "ä\x00"}, Group: "größe \\\"",
	}
	two := []broker.Outgoing{out, {Attributes: map[string]string{}}}
	ids, err := q.Send(ctx, two)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		more, err := q.Tx(tx).Send(ctx, []broker.Outgoing{out})
		ids = append(ids, more...)
		return err
	})
	if err != nil {
		return fmt.Errorf("send in a transaction: %w", err)
	}
	receive := func(q *Queue, n int) (ms []*broker.Message, err error) {
		for try := 0; len(ms) < n && err == nil && try < 50; try++ {
			var more []*broker.Message
			more, err = q.Receive(ctx, broker.ReceiveOptions{Max: 10, Wait: 200 * time.Millisecond, Visibility: 10 * time.Minute})
			ms = append(ms, more...)
		}
		if err == nil && len(ms) != n {
			err = fmt.Errorf("%d messages, want %d", len(ms), n)
		}
		return ms, err
	}
	ms, err := receive(q, 2)
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	for _, m := range ms {
		if m.Published.IsZero() || time.Since(m.Published).Abs() > time.Minute {
			return fmt.Errorf("published %v", m.Published)
		}
		if m.Group == "" {
			continue
		}
		if m.ID != ids[0] || string(m.Body) != string(out.Body) || !maps.Equal(m.Attributes, out.Attributes) || m.Meta == nil || m.Meta.Key != "ä\x00" || m.Group != out.Group {
			return fmt.Errorf("%+v came", m)
		}
	}
	d, err := q.Depth(ctx)
	if err != nil || d.InFlight != 2 || d.Visible != 1 {
		return fmt.Errorf("depth %+v, %w", d, err)
	}
	hs := []broker.Hold{{Receipt: ms[0].Receipt, For: time.Minute}, {Receipt: ms[1].Receipt, For: time.Minute}}
	if err := q.Extend(ctx, hs); err != nil {
		return fmt.Errorf("extend: %w", err)
	}
	hs[0].For, hs[1].For = 0, 0
	if err := q.Nack(ctx, hs); err != nil {
		return fmt.Errorf("nack: %w", err)
	}
	if ms, err = receive(q, 2); err != nil {
		return fmt.Errorf("receive again: %w", err)
	}
	for i, m := range ms {
		hs[i].Receipt = m.Receipt
	}
	if err := q.Nack(ctx, hs); err != nil {
		return fmt.Errorf("nack: %w", err)
	}
	if ms, err = receive(q, 1); err != nil || ms[0].ID != ids[2] {
		return fmt.Errorf("the third time: %v, %w", ms, err)
	}
	if err := q.Ack(ctx, []broker.Receipt{ms[0].Receipt}); err != nil {
		return fmt.Errorf("ack: %w", err)
	}
	for m, err := range dead.Peek(ctx, 10) {
		if err != nil || m.Receipt != "" {
			return fmt.Errorf("peek: %v, %w", m, err)
		}
	}
	if ms, err = receive(dead, 2); err != nil {
		return fmt.Errorf("receive dead letters: %w", err)
	}
	return dead.Ack(ctx, []broker.Receipt{ms[0].Receipt, ms[1].Receipt})
}

// TestRights: a worker's role needs four rights on the table and none on the sequence; a producer's
// those that producerRights names; and who lacks one reads which.
func TestRights(t *testing.T) {
	admin := openPool(t)
	first := newQueue(t, admin, "first", &Options{Table: "jobs.messages"})
	as := func(rights string) (*Queue, *pgxpool.Pool) {
		pool, role := newRole(t, admin, "", "")
		exec(t, admin, "GRANT USAGE ON SCHEMA jobs TO "+role)
		if rights != "" {
			exec(t, admin, "GRANT "+rights+" ON jobs.messages TO "+role)
		}
		q := newQueue(t, pool, "first", &Options{Table: "jobs.messages"})
		return q, pool
	}
	worker, _ := as("SELECT, INSERT, UPDATE, DELETE")
	send(t, worker, bodies("g", "x")...)
	ack(t, worker, take(t, worker, 1)...)
	producer, pool := as("SELECT, INSERT")
	send(t, producer, bodies("", "y")...)
	tx := begin(t, pool, pgx.TxOptions{})
	send(t, producer.Tx(tx), bodies("", "z")...)
	commit(t, tx)
	_, err := producer.Receive(t.Context(), broker.ReceiveOptions{Max: 1})
	wantText(t, err, "the role needs SELECT, INSERT, UPDATE and DELETE on table jobs.messages")
	nobody, _ := as("")
	_, err = nobody.Send(t.Context(), bodies("", "x"))
	wantText(t, err, "who only sends needs "+producerRights)
	ack(t, first, take(t, first, 2)...)
	// Who may not create is told by the server.
	pool, _ = newRole(t, admin, "", "")
	exec(t, admin, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	q, err := New(pool, "x", &Options{Table: "other"})
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, q.Migrate(t.Context()), "permission denied")
}

// TestNarrowRights: with the rights that the documentation gives a producer, every way to send
// works, and it reads and changes nothing; with the row policies, it writes its own queue alone.
func TestNarrowRights(t *testing.T) {
	admin := openPool(t)
	mail, dead := newQueue(t, admin, "mail", nil), newQueue(t, admin, "mail-dead", nil)
	pool, role := newRole(t, admin, "", "")
	exec(t, admin, "GRANT "+producerRights+" ON onceq_messages TO "+role)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { db.Close() })
	full := broker.Outgoing{
		Body: []byte("x"), Group: "g", Attributes: map[string]string{"a": "b"}, Meta: &broker.Meta{ID: "j-1"}, Delay: time.Millisecond,
	}
	sendAll := func(t *testing.T) {
		t.Helper()
		for _, migrated := range []bool{false, true} {
			q, err := New(pool, "mail", nil)
			if err == nil && migrated {
				err = q.Migrate(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			send(t, q, full, broker.Outgoing{})
			tx := begin(t, pool, pgx.TxOptions{})
			send(t, q.Tx(tx), full)
			commit(t, tx)
			of, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			send(t, q.TxSQL(of), full)
			if err := of.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	refused := func(t *testing.T, sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); pgkit.State(err) != pgkit.NoPrivilege {
			t.Errorf("%s was answered %v", sql, err)
		}
	}
	sendAll(t)
	send(t, dead, bodies("", "card 4111")...)
	refused(t, "SELECT body FROM onceq_messages")
	refused(t, "SELECT seq FROM onceq_messages WHERE queue = 'mail-dead'")
	refused(t, "INSERT INTO onceq_messages (queue, attempts, body) VALUES ('mail', 7, '')")
	refused(t, "INSERT INTO onceq_messages (queue, body) VALUES ('mail', '') RETURNING body")
	refused(t, "UPDATE onceq_messages SET due = now()")
	refused(t, "DELETE FROM onceq_messages")
	receiver, err := New(pool, "mail", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = receiver.Receive(t.Context(), broker.ReceiveOptions{Max: 1})
	wantText(t, err, "who only sends needs "+producerRights)

	work, worker := newRole(t, admin, "", "")
	exec(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON onceq_messages TO "+worker)
	exec(t, admin, `ALTER TABLE onceq_messages ENABLE ROW LEVEL SECURITY;
		CREATE POLICY workers ON onceq_messages TO `+worker+` USING (true);
		CREATE POLICY shop_writes ON onceq_messages FOR INSERT TO `+role+` WITH CHECK (queue = 'mail');
		CREATE POLICY shop_reads ON onceq_messages FOR SELECT TO `+role+` USING (queue = 'mail')`)
	sendAll(t)
	refused(t, "INSERT INTO onceq_messages (queue, meta, body) VALUES ('mail-dead', '{}', '')")
	other, err := New(pool, "mail-dead", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.Send(t.Context(), bodies("", "forged"))
	wantText(t, err, "a row policy for this queue")
	if n, all := pgtest.Scan[int](t, pool, "SELECT count(seq) FROM onceq_messages"), pgtest.Scan[int](t, admin, "SELECT count(*) FROM onceq_messages"); n != all-1 {
		t.Errorf("the producer sees %d rows of %d", n, all)
	}
	q := newQueue(t, work, "mail", nil)
	for range 16 {
		ack(t, q, take(t, q, 1)...)
	}
	none(t, mail, "after all")
	ack(t, dead, next(t, dead, "card 4111"))
	none(t, dead, "but what the admin has sent")
}

func wantText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("answered %v, want %q", err, want)
	}
}

// TestBusyServer: where the role's statement_timeout has cut a call off, nothing was written, and
// the error says so.
func TestBusyServer(t *testing.T) {
	admin := openPool(t)
	newQueue(t, admin, "first", nil)
	pool, _ := newRole(t, admin, "SUPERUSER", "statement_timeout = '300ms'")
	q := newQueue(t, pool, "first", nil)
	tx := begin(t, admin, pgx.TxOptions{})
	exec(t, tx, "LOCK TABLE onceq_messages")
	_, err := q.Send(t.Context(), bodies("", "x"))
	if !errors.Is(err, broker.ErrThrottled) {
		t.Errorf("Send was answered %v", err)
	}
	if _, err = q.Receive(t.Context(), broker.ReceiveOptions{Max: 1}); !errors.Is(err, broker.ErrThrottled) {
		t.Errorf("Receive was answered %v", err)
	}
	commit(t, tx)
	none(t, q, "after a refused send")
}
