//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/sqsfake"
)

// This file owns the chaos of the outbox: producer processes write orders with their jobs, relay
// processes send the jobs on to a FIFO queue, and all of them are killed. The worker behind the
// queue is the test's own. shop is the test's goroutine's; its fields do not change once it runs.

// outboxVariable makes the test binary a producer or a relay.
const outboxVariable = "ONCEQ_CHAOS_OUTBOX"

const (
	relays, producers = 4, 2
	writersEach       = 16 // goroutines of a producer
	accounts          = 8  // each a group
	outboxHold        = 2 * time.Second
	poisonAccount     = "poison"
	outboxLimit       = 3 * time.Minute
)

// post tells a process what it is and where everything is.
type post struct {
	Relay           bool
	Database, Queue string // Queue is the URL of the destination
	Server          string
}

// outboxOf is the outbox as every process sees it.
func outboxOf(pool *pgxpool.Pool) (*pgbroker.Queue, error) {
	return pgbroker.New(pool, "outbox", &pgbroker.Options{Visibility: outboxHold, Poll: 20 * time.Millisecond, MaxBody: 4 << 20})
}

// serveOutbox is a producer's process, or a relay's.
func serveOutbox(ctx context.Context, p post) error {
	pool, err := pgxpool.New(ctx, p.Database+"&pool_max_conns=8")
	if err != nil {
		return err
	}
	defer pool.Close()
	outbox, err := outboxOf(pool)
	if err == nil {
		err = outbox.Migrate(ctx)
	}
	if err != nil {
		return err
	}
	if p.Relay {
		return relayOrders(ctx, outbox, p)
	}
	var writers sync.WaitGroup
	for range writersEach {
		writers.Go(func() {
			for ctx.Err() == nil {
				_ = placeOrder(ctx, pool, outbox) // its row tells whether it is there
				<-time.After(rand.N(100 * time.Millisecond))
			}
		})
	}
	writers.Wait()
	return nil
}

func relayOrders(ctx context.Context, outbox *pgbroker.Queue, p post) error {
	queue, err := openSQS(p.Server, p.Queue)
	if err != nil {
		return err
	}
	return runWorker(ctx, onceq.ProcessorConfig{
		Handler: onceq.Forward(queue), Store: onceq.NoStore, Scope: "outbox", Logger: slog.New(slog.DiscardHandler), CallTimeout: time.Second,
		Defaults: onceq.JobOptions{Backoff: func(int, error) time.Duration { return rand.N(300 * time.Millisecond) }},
	}, outbox, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 50, Visibility: outboxHold})
}

var errNoStock = errors.New("no stock")

// placeOrder writes an order and its job. Of ten, two are rolled back, one of them by a context
// that ends somewhere in between, and one rolls a first try back to a savepoint.
func placeOrder(ctx context.Context, pool *pgxpool.Pool, outbox *pgbroker.Queue) error {
	way := rand.N(10)
	if way == 0 {
		short, cancel := context.WithTimeout(ctx, rand.N(20*time.Millisecond))
		defer cancel()
		ctx = short
	}
	levels := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.ReadCommitted, pgx.RepeatableRead}
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: levels[rand.N(len(levels))]}, func(tx pgx.Tx) error {
		account := fmt.Sprint("account-", rand.N(accounts))
		if way == 1 {
			_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return errors.Join(orderIn(ctx, tx, outbox, account), errNoStock) })
		}
		if err := orderIn(ctx, tx, outbox, account); err != nil || way != 2 {
			return err
		}
		return errNoStock
	})
}

// orderIn sends behind the statement that lets the account's writers take turns.
func orderIn(ctx context.Context, tx pgx.Tx, outbox *pgbroker.Queue, account string) error {
	var n int64
	if err := tx.QueryRow(ctx, "UPDATE accounts SET n = n + 1 WHERE name = $1 RETURNING n", account).Scan(&n); err != nil {
		return err
	}
	m := onceq.Message("ship", "", nil)
	m.Group = account
	ms := []broker.Outgoing{m}
	if err := onceq.Fill(ms); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO orders (id, account, n) VALUES ($1, $2, $3)", ms[0].Meta.Key, account, n); err != nil {
		return err
	}
	return onceq.Send(ctx, outbox.Tx(tx), ms)
}

// shop is what outlives the processes.
type shop struct {
	*testing.T
	post   post
	server *sqsfake.Server
	pool   *pgxpool.Pool
	outbox *pgbroker.Queue
	rng    *rand.Rand
	crew   []*child.Child
	begun  int
}

// TestOutbox: each committed order is shipped once, none that was rolled back is, and each
// account's are shipped in the order of their commits, whatever becomes of producers, relays and
// the destination. A job that can never be sent holds up its account alone, until it is skipped. A
// transaction that is open all the while keeps vacuum back, and another one commits late.
func TestOutbox(t *testing.T) {
	from := drawn(t)
	t.Logf("-seed %d", from)
	s := openShop(t, from)
	poison := s.putPoison()
	pinned := s.begin(pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if _, err := pinned.Exec(t.Context(), "SELECT count(*) FROM orders"); err != nil {
		t.Fatal(err)
	}
	late := s.begin(pgx.TxOptions{})
	if err := orderIn(t.Context(), late, s.outbox, "late"); err != nil {
		t.Fatal(err)
	}
	stop := s.work()
	for i := range relays + producers {
		s.crew = append(s.crew, s.start(i < relays))
	}
	until(t, "producers and relays are at work", func() bool { // a busy machine takes seconds to start them
		return s.count("SELECT count(*) FROM orders") >= 20 && s.count("SELECT count(*) FROM shipped") > 0
	})
	kills := max(8, *rounds/3)
	for n := range kills {
		s.harm()
		<-time.After(s.pause())
		i := (n + s.rng.IntN(2)) % len(s.crew)
		s.crew[i].Kill()
		<-s.crew[i].Done()
		s.crew[i] = s.start(i < relays)
	}
	s.server.SetFaults()
	for _, p := range s.crew[relays:] { // no producer is under way then
		p.Kill()
		<-p.Done()
	}
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.settle("behind the poison", "SELECT count(*) FROM onceq_messages WHERE queue = 'outbox' AND grp <> '"+poisonAccount+"'")
	if n := s.count("SELECT count(*) FROM shipped WHERE account = '" + poisonAccount + "'"); n != 0 {
		t.Errorf("%d orders behind a poison were shipped before it was skipped", n)
	}
	// as docs/backend-postgres-queue.md tells operators
	s.exec("DELETE FROM onceq_messages WHERE seq = $1::text::bigint", poison)
	s.exec("UPDATE onceq_messages SET fresh = true WHERE queue = 'outbox' AND grp = $1 AND waits", poisonAccount)
	s.settle("the outbox", "SELECT count(*) FROM onceq_messages")
	s.settle("the orders", "SELECT count(*) FROM orders o WHERE NOT EXISTS (SELECT FROM shipped s WHERE s.id = o.id)")
	if err := pinned.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	stop()
	s.audit(kills)
}

func openShop(t *testing.T, from uint64) *shop {
	t.Helper()
	s := &shop{T: t, rng: rand.New(rand.NewPCG(from, 99)), server: sqsfake.Start(t, &sqsfake.Options{StrandCancelled: true, Seed: from})}
	url, err := s.server.CreateQueue("orders.fifo", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.post = post{Database: localstack.Postgres(t).URL, Queue: url, Server: s.server.URL}
	if s.pool, err = pgxpool.New(t.Context(), s.post.Database+"&pool_max_conns=12"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.pool.Close)
	if s.outbox, err = outboxOf(s.pool); err == nil {
		err = s.outbox.Migrate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	// There is no constraint on shipped: it would hide a second one.
	s.exec(`CREATE TABLE accounts (name text PRIMARY KEY, n bigint NOT NULL DEFAULT 0);
		CREATE TABLE orders (id text PRIMARY KEY, account text, n bigint);
		CREATE TABLE shipped (seq bigint GENERATED ALWAYS AS IDENTITY, id text, account text)`)
	s.exec(`INSERT INTO accounts (name) SELECT 'account-' || g FROM generate_series(0, $1 - 1) g UNION SELECT 'late' UNION SELECT $2`, accounts, poisonAccount)
	return s
}

// putPoison puts what no queue of SQS takes, and orders behind it.
func (s *shop) putPoison() (id string) {
	s.Helper()
	ids, err := s.outbox.Send(s.Context(), []broker.Outgoing{{Body: make([]byte, 3<<20), Group: poisonAccount}})
	if err != nil {
		s.Fatal(err)
	}
	for range 3 {
		if err := pgx.BeginFunc(s.Context(), s.pool, func(tx pgx.Tx) error { return orderIn(s.Context(), tx, s.outbox, poisonAccount) }); err != nil {
			s.Fatal(err)
		}
	}
	return ids[0]
}

// work ships what arrives, in one transaction with the job's end.
func (s *shop) work() (stop func()) {
	s.Helper()
	queue := must.Get(openSQS(s.post.Server, s.post.Queue))
	store, err := pgstore.New(s.pool, nil)
	if err == nil {
		err = store.Migrate(s.Context())
	}
	if err != nil {
		s.Fatal(err)
	}
	p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
		Scope: "orders", Store: store, Logger: slog.New(slog.DiscardHandler), Defaults: onceq.JobOptions{MaxAttempts: -1},
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			return store.Commit(ctx, j, func(tx pgx.Tx) (any, error) {
				_, err := tx.Exec(ctx, "INSERT INTO shipped (id, account) VALUES ($1, $2)", j.Key().Key, j.Message.Group)
				return nil, err
			})
		}),
	}))
	w := must.Get(p.Worker(queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 2 * accounts}))
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
	}
}

// harm is what the destination does to its callers until the next kill.
func (s *shop) harm() {
	const send = "SendMessageBatch"
	s.begun++
	switch s.begun % 4 {
	case 0:
		s.server.SetFaults()
	case 1: // away
		s.server.SetFaults(sqsfake.Fault{Action: send, Reset: true})
	case 2: // answers are lost, entries refused, and some calls hang
		s.server.SetFaults(sqsfake.Fault{Action: send, Rate: 0.3, Reset: true, Applied: true}, sqsfake.Fault{Action: send, Rate: 0.1, Silence: true, Applied: true},
			sqsfake.Fault{Action: send, Rate: 0.3, Entries: []int{0, 2, 5}})
	case 3:
		s.server.SetFaults(sqsfake.Fault{Action: send, Rate: 0.5, Code: "RequestThrottled"})
	}
}

// pause is how long the processes are left alone. In a long run the destination is away for as long
// as it takes a relay to wait.
func (s *shop) pause() time.Duration {
	if *rounds >= 100 && s.begun%4 == 1 {
		return 20 * time.Second
	}
	return time.Duration(100+s.rng.IntN(500)) * time.Millisecond
}

// start runs a relay, or a producer.
func (s *shop) start(relay bool) *child.Child {
	s.Helper()
	p := s.post
	p.Relay = relay
	return begin(s.T, self(outboxVariable, p), nil)
}

func (s *shop) begin(o pgx.TxOptions) pgx.Tx {
	s.Helper()
	tx, err := s.pool.BeginTx(s.Context(), o)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (s *shop) exec(sql string, args ...any) {
	s.Helper()
	if _, err := s.pool.Exec(s.Context(), sql, args...); err != nil {
		s.Fatal(err)
	}
}

func (s *shop) count(sql string) (n int) {
	s.Helper()
	if err := s.pool.QueryRow(s.Context(), sql).Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

// settle waits until sql counts nothing.
func (s *shop) settle(what, sql string) {
	s.Helper()
	for end := time.Now().Add(outboxLimit); ; <-time.After(50 * time.Millisecond) {
		n := s.count(sql)
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("%s: %d are left", what, n)
		}
	}
}

// audit compares what was ordered with what was shipped.
func (s *shop) audit(kills int) {
	s.Helper()
	committed := s.count("SELECT count(*) FROM orders")
	if n := s.count("SELECT count(*) FROM (SELECT id FROM shipped GROUP BY id HAVING count(*) > 1) x"); n != 0 {
		s.Errorf("%d of %d orders were shipped more than once", n, committed)
	}
	if n := s.count("SELECT count(*) FROM shipped s WHERE NOT EXISTS (SELECT FROM orders o WHERE o.id = s.id)"); n != 0 {
		s.Errorf("%d orders were shipped that nobody has committed", n)
	}
	if n := s.count("SELECT count(*) FROM orders WHERE account IN ('late', '" + poisonAccount + "')"); n != 4 {
		s.Errorf("%d orders were committed late and behind the poison, want 4", n)
	}
	rows, err := s.pool.Query(s.Context(), "SELECT s.account, o.n FROM shipped s JOIN orders o ON o.id = s.id ORDER BY s.seq")
	if err != nil {
		s.Fatal(err)
	}
	order := map[string][]int64{}
	var account string
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&account, &n}, func() error { order[account] = append(order[account], n); return nil }); err != nil {
		s.Fatal(err)
	}
	for account, ns := range order {
		if !slices.IsSorted(ns) {
			s.Errorf("%s was shipped in the order %v", account, ns)
		}
	}
	if s.Logf("%d orders after %d kills", committed, kills); committed < 50 {
		s.Errorf("%d orders were committed: the rounds prove nothing", committed)
	}
}
