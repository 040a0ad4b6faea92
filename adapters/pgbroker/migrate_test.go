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
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
	"github.com/onceq/onceq/internal/tablequeue"
	"github.com/onceq/onceq/internal/tablequeue/tabletest"
)

// TestMigrateRace: any number of starters at once make one table, and all of them work.
func TestMigrateRace(t *testing.T) {
	pool := openPool(t, func(c *pgxpool.Config) { c.MaxConns = 24 })
	for _, table := range []string{"", "jobs.messages"} {
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				q, err := New(pool, "raced", &Options{Table: table})
				if err == nil {
					err = q.Migrate(t.Context())
				}
				if err == nil {
					_, err = q.Send(t.Context(), bodies("", "x"))
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		ack(t, newQueue(t, pool, "raced", &Options{Table: table}), take(t, newQueue(t, pool, "raced", &Options{Table: table}), 16)...)
	}
	if n := pgtest.Scan[int](t, pool, "SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relname LIKE 'messages\\_%'"); n != 4 {
		t.Errorf("%d indexes, want 4", n)
	}
	if o := pgtest.Scan[string](t, pool, "SELECT reloptions::text FROM pg_class WHERE relname = 'onceq_messages'"); !strings.Contains(o, "autovacuum_vacuum_scale_factor=0.01") {
		t.Errorf("the table has the options %s", o)
	}
}

// TestMigrateRefuses: a table that is not ours, or is of a newer version, is left alone, with a
// sentence; an index that is missing is made again.
func TestMigrateRefuses(t *testing.T) {
	pool := openPool(t)
	nowhere := poolOn(t, pool.Config().ConnString(), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = "nowhere" })
	wantText(t, must.Get(New(nowhere, "x", nil)).Migrate(t.Context()), "GRANT USAGE ON SCHEMA")
	newQueue(t, pool, "x", nil)
	exec(t, pool, "DROP INDEX onceq_messages_group")
	newQueue(t, pool, "x", nil)
	if n := pgtest.Scan[int](t, pool, "SELECT count(*) FROM pg_class WHERE relname = 'onceq_messages_group'"); n != 1 {
		t.Error("the index was not made again")
	}
	for _, c := range []struct{ do, want string }{
		{"COMMENT ON TABLE onceq_messages IS 'onceq messages, version 2'", "is of version 2, made by a newer pgbroker; this one knows up to 1: update this program"},
		{"COMMENT ON TABLE onceq_messages IS 'onceq messages, version x'", "want a number"},
		{"COMMENT ON TABLE onceq_messages IS 'our queue'; ALTER TABLE onceq_messages DROP COLUMN held", "no column held"},
		{"DROP TABLE onceq_messages; CREATE TABLE onceq_messages (seq text, queue text)", "column seq is text, want int8"},
	} {
		exec(t, pool, c.do)
		q, err := New(pool, "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		wantText(t, q.Migrate(t.Context()), c.want)
	}
}

// TestMigrateBesideAWriter: an index that is missing is made when those who have written to the
// table have committed. Meanwhile others go on, and whom it waits for is said.
func TestMigrateBesideAWriter(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, "x", nil)
	exec(t, pool, "DROP INDEX onceq_messages_group")
	writer := begin(t, pool, pgx.TxOptions{})
	send(t, q.Tx(writer), bodies("", "of tx")...)
	pid := pgtest.Scan[int](t, writer, "SELECT pg_backend_pid()")
	starter, err := New(pool, "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	waits := func() bool {
		return pgtest.Scan[bool](t, pool, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'onceq_messages'::regclass)")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { started <- starter.Migrate(ctx) }()
	until(t, "the starter to wait", waits)
	until(t, "the starter to let others go on", func() bool { return !waits() })
	cancel()
	err = <-started
	wantText(t, err, fmt.Sprintf("it is open in process %d,", pid))
	if !errors.Is(err, broker.ErrThrottled) {
		t.Errorf("Migrate is answered %v", err)
	}
	go func() { started <- starter.Migrate(t.Context()) }()
	until(t, "the starter to wait", waits)
	send(t, q, bodies("", "beside")...) // or the starter would wait for the writer, and this one for both
	select {
	case err := <-started:
		t.Errorf("Migrate is answered %v while the writer's transaction is open", err)
	default:
	}
	commit(t, writer)
	if err := <-started; err != nil {
		t.Error(err)
	}
	if n := pgtest.Scan[int](t, pool, "SELECT count(*) FROM pg_class WHERE relname = 'onceq_messages_group'"); n != 1 {
		t.Error("the index was not made")
	}
}

// TestNumbersOfACopy: in a copy of the table without its sequence, Migrate lets the numbers go on
// behind the last row, so that sends go, and a new message of a group comes last. A role that may
// not is told who may.
func TestNumbersOfACopy(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, "copied", nil)
	send(t, q, bodies("g", "1", "2", "3")...)
	for _, fresh := range []bool{true, false} {
		exec(t, pool, "ALTER TABLE onceq_messages ALTER COLUMN seq RESTART WITH 1")
		if !fresh { // it has given out a number that is no row's any more
			pgtest.Scan[int64](t, pool, "SELECT nextval(pg_get_serial_sequence('onceq_messages', 'seq'))")
		}
		clerk, role := newRole(t, pool, "", "")
		exec(t, pool, "GRANT SELECT, INSERT ON onceq_messages TO "+role)
		_, err := newQueue(t, clerk, "copied", nil).Send(t.Context(), bodies("g", "x"))
		wantText(t, err, "Migrate, run as the table's owner")
		if pgkit.State(err) != pgkit.UniqueViolation {
			t.Errorf("answered %v", err)
		}
		newQueue(t, pool, "copied", nil)
		send(t, q, bodies("g", "4")...)
		for _, want := range []string{"1", "2", "3", "4"} {
			ack(t, q, next(t, q, want))
		}
		exec(t, pool, "ALTER TABLE onceq_messages ALTER COLUMN seq RESTART WITH 1")
		send(t, q, bodies("g", "1", "2", "3")...)
	}
	before := pgtest.Scan[int64](t, pool, "SELECT last_value FROM onceq_messages_seq_seq")
	newQueue(t, pool, "copied", nil)
	if after := pgtest.Scan[int64](t, pool, "SELECT last_value FROM onceq_messages_seq_seq"); after != before {
		t.Errorf("Migrate has set the numbers from %d to %d, without need", before, after)
	}
}

// TestSearchPath: a function, an operator or a type that somebody has put into a schema before
// pg_catalog does not take the place of PostgreSQL's own.
func TestSearchPath(t *testing.T) {
	admin := openPool(t)
	exec(t, admin, `CREATE SCHEMA evil;
		CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE 'hijacked'; END $$;
		CREATE FUNCTION evil.convert_from(bytea, name) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'hijacked'; END $$;
		CREATE FUNCTION evil.length(bytea) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE 'hijacked'; END $$;
		CREATE FUNCTION evil.eq(text, text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE 'hijacked'; END $$;
		CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.eq);
		CREATE FUNCTION evil.eq(bigint, bigint) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE 'hijacked'; END $$;
		CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.eq);
		CREATE FUNCTION evil.eq(integer, integer) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE 'hijacked'; END $$;
		CREATE OPERATOR evil.= (LEFTARG = integer, RIGHTARG = integer, FUNCTION = evil.eq);
		CREATE FUNCTION evil.le(timestamptz, timestamptz) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE 'hijacked'; END $$;
		CREATE OPERATOR evil.<= (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = evil.le);
		CREATE OPERATOR evil.>= (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = evil.le);
		CREATE OPERATOR evil.> (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = evil.le);
		CREATE FUNCTION evil.pl(integer, integer) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN RAISE 'hijacked'; END $$;
		CREATE OPERATOR evil.+ (LEFTARG = integer, RIGHTARG = integer, FUNCTION = evil.pl);
		CREATE FUNCTION evil.hashtextextended(text, bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'hijacked'; END $$;
		CREATE FUNCTION evil.pg_advisory_xact_lock(bigint) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'hijacked'; END $$;
		CREATE FUNCTION evil.unnest(bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'hijacked'; END $$`)
	pool, _ := newRole(t, admin, "SUPERUSER", "search_path = evil, pg_catalog, public")
	if _, err := pool.Exec(t.Context(), "SELECT clock_timestamp()"); err == nil {
		t.Error("the twin does not take the call: this test shows nothing")
	}
	newQueue(t, admin, "first", &Options{Table: "public.onceq_messages"})
	q := newQueue(t, pool, "first", &Options{Table: "public.onceq_messages", MaxReceives: 1, DeadLetters: "dead"})
	send(t, q, append(bodies("g", "g1", "g2"), bodies("", "u")...)...)
	ms := take(t, q, 2)
	if err := q.Extend(t.Context(), []broker.Hold{{Receipt: ms[0].Receipt, For: time.Minute}}); err != nil {
		t.Error(err)
	}
	if err := q.Nack(t.Context(), []broker.Hold{{Receipt: ms[0].Receipt}}); err != nil {
		t.Error(err)
	}
	ack(t, q, ms[1])
	if ms, err := q.Receive(t.Context(), broker.ReceiveOptions{Max: 10}); err != nil || len(ms) > 1 {
		t.Error(ms, err)
	}
	if _, err := q.Depth(t.Context()); err != nil {
		t.Error(err)
	}
	for _, err := range q.Peek(t.Context(), 3) {
		if err != nil {
			t.Error(err)
		}
	}
	tx := begin(t, pool, pgx.TxOptions{})
	send(t, q.Tx(tx), bodies("g", "x")...)
	commit(t, tx)
}

// TestNewRefuses: each field is checked, and named with its limit.
func TestNewRefuses(t *testing.T) {
	pool := must.Get(pgxpool.New(t.Context(), "postgres://localhost:1/none"))
	defer pool.Close()
	var none *pgxpool.Pool
	for _, c := range []struct {
		db    DB
		queue string
		o     Options
		want  string
	}{
		{db: nil, queue: "q", want: "db is nil"},
		{db: none, queue: "q", want: "db is a nil *pgxpool.Pool"},
		{db: &pgx.Conn{}, queue: "q", want: "one connection, which calls from many goroutines cannot share"},
		{db: pool, want: "New: the queue's name is empty"},
		{db: pool, queue: strings.Repeat("q", 256), want: "has 256 bytes, the limit is 255"},
		{db: pool, queue: "a\x00b", want: "has a NUL"},
		{db: pool, queue: "a\xff", want: "not UTF-8"},
		{db: pool, queue: "q", o: Options{Table: "a b"}, want: "Options.Table"},
		{db: pool, queue: "q", o: Options{Table: "pg_catalog.x"}, want: "PostgreSQL's own"},
		{db: pool, queue: "q", o: Options{Table: strings.Repeat("t", 49)}, want: "the limit is 48"},
		{db: pool, queue: "q", o: Options{Visibility: 30}, want: "Options.Visibility: 30ns is not within 100ms and 12h0m0s; is its unit missing?"},
		{db: pool, queue: "q", o: Options{Visibility: 13 * time.Hour}, want: "Options.Visibility"},
		{db: pool, queue: "q", o: Options{Poll: time.Millisecond}, want: "Options.Poll: 1ms is not within 5ms and 10s"},
		{db: pool, queue: "q", o: Options{MaxBody: 65 << 20}, want: "Options.MaxBody: 68157440 is not within 1 and 67108864"},
		{db: pool, queue: "q", o: Options{MaxBody: -1}, want: "Options.MaxBody"},
		{db: pool, queue: "q", o: Options{MaxReceives: -1}, want: "Options.MaxReceives: -1"},
		{db: pool, queue: "q", o: Options{MaxReceives: 3}, want: "Options.DeadLetters: empty"},
		{db: pool, queue: "q", o: Options{DeadLetters: "d"}, want: "Options.MaxReceives: 0"},
		{db: pool, queue: "q", o: Options{MaxReceives: 3, DeadLetters: "q"}, want: "is the queue itself"},
		{db: pool, queue: "q", o: Options{MaxReceives: 3, DeadLetters: "\x00"}, want: "Options.DeadLetters"},
		{db: wrapped{pool}, queue: "q", o: Options{Notify: true}, want: "Options.Notify"},
	} {
		_, err := New(c.db, c.queue, &c.o)
		wantText(t, err, c.want)
	}
	if _, err := New(wrapped{pool}, "q", nil); err != nil {
		t.Error(err)
	}
}

// wrapped is a pool in a type of the user's.
type wrapped struct{ pool *pgxpool.Pool }

func (w wrapped) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return w.pool.SendBatch(ctx, b)
}

func (w wrapped) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	return w.pool.BeginTx(ctx, o)
}

// TestSendRefuses: what the table cannot hold is refused by position, and its neighbours are sent.
func TestSendRefuses(t *testing.T) {
	q := newQueue(t, wrapped{openPool(t)}, newName(), &Options{MaxBody: tabletest.MaxBody}) // and a wrapped pool works
	tabletest.SendRefuses(t, q)
}

// TestLongDelays: a delay of years, and a time in metadata, decide when a message is due; a letter
// is due at once.
func TestLongDelays(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	at := time.Now().AddDate(300, 0, 0).Truncate(time.Millisecond)
	send(t, q,
		broker.Outgoing{Body: []byte("delay"), Delay: tablequeue.Longest},
		broker.Outgoing{Body: []byte("not before"), Meta: &broker.Meta{ID: "a", NotBefore: at}},
		broker.Outgoing{Body: []byte("both"), Delay: time.Hour, Meta: &broker.Meta{ID: "b", NotBefore: time.Now()}},
		broker.Outgoing{Body: []byte("the end of time"), Meta: &broker.Meta{ID: "c", NotBefore: time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		broker.Outgoing{Body: []byte("letter"), Meta: &broker.Meta{ID: "d", NotBefore: at, Dead: &broker.Letter{Class: "permanent"}}})
	ack(t, q, next(t, q, "letter"))
	none(t, q, "behind the letter")
	d, err := q.Depth(t.Context())
	if err != nil || d != (broker.Depth{Delayed: 4}) {
		t.Errorf("%+v, %v", d, err)
	}
	var got []string
	for m, err := range q.Peek(t.Context(), 10) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, body(m)); body(m) == "not before" && m.Deadline.Sub(at).Abs() > time.Millisecond {
			t.Errorf("it is due at %v, want %v", m.Deadline, at)
		}
	}
	if s := strings.Join(got, ", "); s != "both, delay, not before, the end of time" {
		t.Errorf("Peek shows %s", s)
	}
}

// TestDepthAndPeek: what is visible, in flight, delayed and waiting is counted and shown, and no
// message is received by it.
func TestDepthAndPeek(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	sent := time.Now()
	send(t, q, append(bodies("", "a", "b", "c"), bodies("g", "g1", "g2")...)...)
	take(t, q, 1)
	take(t, q, 1)
	d1, err := q.Depth(t.Context())
	if err != nil || d1.InFlight != 2 || d1.Visible != 3 || d1.Delayed != 0 || d1.Oldest.Sub(sent).Abs() > time.Minute || d1.Oldest.IsZero() {
		t.Errorf("%+v, %v", d1, err)
	}
	for range 2 {
		n := 0
		for m, err := range q.Peek(t.Context(), 2) {
			if err != nil || m.Receipt != "" || m.Attempt != 0 {
				t.Errorf("%+v, %v", m, err)
			}
			n++
		}
		if n != 2 {
			t.Errorf("%d messages", n)
		}
	}
	for range q.Peek(t.Context(), 1000) {
		break
	}
	for _, err := range q.Peek(t.Context(), 0) {
		if !errors.Is(err, broker.ErrUnsupported) {
			t.Error(err)
		}
	}
	d := q.Describe()
	if d.System != "postgresql" || d.Name != q.name || !strings.HasSuffix(d.Address, "/onceq_messages/"+q.name) || strings.Contains(d.Address, "secret") {
		t.Errorf("%+v", d)
	}
	if d := (*Queue)(nil).Describe(); d != (broker.Description{}) {
		t.Errorf("%+v", d)
	}
}

// TestPlainSQL: what a producer without onceq writes with INSERT alone is received.
func TestPlainSQL(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, "plain", nil)
	exec(t, pool, `INSERT INTO onceq_messages (queue, body) VALUES ('plain', 'a')`)
	exec(t, pool, `INSERT INTO onceq_messages (queue, body, attributes) VALUES ('plain', 'b', '{"n": 1, "s": "x"}'), ('plain', 'c', '[1]')`)
	ms := take(t, q, 3)
	if ms[1].Attributes["n"] != "1" || ms[1].Attributes["s"] != "x" {
		t.Errorf("%v", ms[1].Attributes)
	}
	if !errors.Is(ms[2].MetaErr, broker.ErrBadMeta) {
		t.Errorf("an array for attributes gives %v", ms[2].MetaErr)
	}
	ack(t, q, ms...)
	for _, sql := range []string{
		`INSERT INTO onceq_messages (queue, body, waits) VALUES ('plain', 'a', true)`,
		`INSERT INTO onceq_messages (queue, body, fresh) VALUES ('plain', 'a', true)`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s was taken, and nobody would ever receive it", sql)
		}
	}
}

// TestReceipts: what is no receipt of this queue names nothing.
func TestReceipts(t *testing.T) {
	pool := openPool(t)
	q, other := newQueue(t, pool, "one", nil), newQueue(t, pool, "two", nil)
	send(t, q, bodies("", "x")...)
	m := take(t, q, 1)[0]
	for _, r := range []broker.Receipt{"", "x", "1", "1.", ".1", "1.1.1", "+1.1", "01.1", "1.1gg", "9223372036854775808.1", "1.2147483648", m.Receipt + "g", m.Receipt + "0", "-1.1"} {
		err := q.Ack(t.Context(), []broker.Receipt{r})
		if r == m.Receipt+"g" {
			continue // it names the same delivery
		}
		if !errors.Is(broker.ErrAt(err, 0), broker.ErrReceiptExpired) {
			t.Errorf("%q was answered %v", r, err)
		}
	}
	send(t, q, bodies("", "y")...)
	m = take(t, q, 1)[0]
	if err := other.Ack(t.Context(), []broker.Receipt{m.Receipt}); !errors.Is(broker.ErrAt(err, 0), broker.ErrReceiptExpired) {
		t.Errorf("another queue answered %v", err)
	}
	ack(t, q, m)
}

// TestServers: Migrate tells which servers it cannot work on, and why.
func TestServers(t *testing.T) {
	for _, c := range []struct {
		number                 int
		server, encoding, want string // "" = it works there
	}{
		{130000, "13.0", "UTF8", ""},
		{180000, "18.0", "UTF8", ""},
		{120022, "12.22", "UTF8", "the server is PostgreSQL 12.22; pgbroker needs 13 or later"},
		{150018, "15.18", "LATIN1", "encoding is LATIN1"},
	} {
		err := pgkit.CheckServer("pgbroker", "group", c.number, c.server, c.encoding)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("PostgreSQL %s, %s: %v, want %q", c.server, c.encoding, err, c.want)
		}
	}
}
