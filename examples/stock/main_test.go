package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/onceqtest"
)

// TestMain runs the program itself when a test asks for it, so that the tests need no go command.
func TestMain(m *testing.M) {
	if os.Getenv("ONCEQ_STOCK") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program runs the program.
func program(t *testing.T, url string) (out string, err error) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), "ONCEQ_STOCK=1", "DATABASE_URL="+url)
	b, err := cmd.CombinedOutput()
	return string(b), err
}

func TestProgramWithoutDatabase(t *testing.T) {
	out, err := program(t, "")
	exit, ok := errors.AsType[*exec.ExitError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, 2, exit.ExitCode())
	require.Contains(t, out, "DATABASE_URL is not set")
}

func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// The program deducts order-2 twice where the record is apart, and once where it is in the
// transaction; and it leaves nothing behind.
func TestProgram(t *testing.T) {
	t.Parallel()
	url := localstack.Postgres(t).URL
	out, err := program(t, url)
	require.NoError(t, err, "%s", out)
	require.Contains(t, out, "7 bolts of 20 are left: WRONG, 11 are on the shelf", "the trap is gone")
	require.Contains(t, out, "11 bolts of 20 are left: right")
	require.Equal(t, 2, strings.Count(out, "order-1 already-done"), "%s", out)
	require.Equal(t, 2, strings.Count(out, "order-4 failed       order-4: not 50 of bolt left"), "%s", out)
	var schemas int
	require.NoError(t, open(t, url).QueryRow(t.Context(),
		`SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'onceq%'`).Scan(&schemas))
	require.Zero(t, schemas)
}

// lease is short, for PostgreSQL's clock is a real one: it is what a test waits after a death.
const lease = time.Second

// shop is a rig with the storeman on PostgreSQL.
type shop struct {
	*onceqtest.Rig
	pool *pgxpool.Pool
	s    *storeman
}

func newShop(t *testing.T, together bool) *shop {
	t.Helper()
	s := &shop{pool: open(t, localstack.Postgres(t).URL)}
	store, err := pgstore.New(s.pool, nil)
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	_, err = s.pool.Exec(t.Context(), schema)
	require.NoError(t, err)
	_, err = s.pool.Exec(t.Context(), `INSERT INTO stock VALUES ('bolt', 20)`)
	require.NoError(t, err)
	s.s = &storeman{
		pool: s.pool,
		complete: func(ctx context.Context, tx pgx.Tx, j *onceq.Job, result any) error {
			if !together {
				return nil
			}
			return store.CompleteTx(ctx, tx, j, result)
		},
		commit: func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
	}
	// Time is real here, and the rig waits for dead workers too, which drain in vain.
	s.Rig = onceqtest.New(t, onceq.ProcessorConfig{Handler: onceq.JSON(s.s.deduct), Store: store, Lease: lease, SettleTimeout: lease}, &onceq.WorkerConfig{Visibility: lease, DrainTimeout: -1})
	return s
}

func (s *shop) order(t *testing.T, id string, pieces int) {
	t.Helper()
	s.Send(message(t, order{id, "bolt", pieces}))
}

func message(t *testing.T, o order) broker.Outgoing {
	t.Helper()
	body, err := json.Marshal(o)
	require.NoError(t, err)
	return broker.Outgoing{Body: body, Meta: &broker.Meta{Key: o.ID}}
}

func (s *shop) left(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT n FROM stock WHERE sku = 'bolt'`).Scan(&n))
	return n
}

// finish delivers until the order has ended, and answers how.
func (s *shop) finish(t *testing.T) string {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		s.Advance(lease / 4)
		d, err := s.Queue.Depth(t.Context())
		require.NoError(t, err)
		if d.Visible == 0 {
			continue
		}
		if got := s.Deliver(); got.Action == onceq.Ack {
			return string(got.Outcome)
		}
	}
	t.Fatal("the order did not end")
	return ""
}

// A worker dies at any point; another takes over; the message comes once more: deducted once.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, at := range []onceqtest.Fault{
		{Op: onceqtest.Claim, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Claim, Kind: onceqtest.CrashAfter},
		{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Settle, Kind: onceqtest.CrashAfter},
		{Op: onceqtest.Ack, Kind: onceqtest.CrashBefore},
	} {
		t.Run(at.String(), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, true)
			s.At(at)
			s.order(t, "order-1", 3)
			require.True(t, s.Deliver().Crashed)
			s.finish(t)
			require.Equal(t, onceq.OutcomeAlreadyDone, s.Redeliver().Outcome)
			require.Equal(t, 17, s.left(t))
		})
	}
}

// The same crash with the record apart: deducted twice. TestCrash can fail.
func TestApartDoubles(t *testing.T) {
	t.Parallel()
	s := newShop(t, false)
	s.At(onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore})
	s.order(t, "order-1", 3)
	require.True(t, s.Deliver().Crashed)
	require.Equal(t, "done", s.finish(t))
	require.Equal(t, 14, s.left(t))
}

// The worker dies between CompleteTx and COMMIT: neither is there, and the next worker does both.
func TestKilledBeforeCommit(t *testing.T) {
	t.Parallel()
	s := newShop(t, true)
	commit := s.s.commit
	s.s.commit = func(context.Context, pgx.Tx) error {
		s.Kill()
		s.s.commit = commit
		return errors.New("killed") // and the connection is closed: rolled back
	}
	s.order(t, "order-1", 3)
	require.True(t, s.Deliver().Crashed)
	require.Equal(t, "done", s.finish(t))
	require.Equal(t, 17, s.left(t))
}

// The server ends the connection in mid-transaction: the order is tried again, and deducted once.
func TestConnectionLost(t *testing.T) {
	t.Parallel()
	s := newShop(t, true)
	commit := s.s.commit
	s.s.commit = func(ctx context.Context, tx pgx.Tx) error {
		s.s.commit = commit
		_, err := s.pool.Exec(ctx, `SELECT pg_terminate_backend($1, 5000)`, tx.Conn().PgConn().PID())
		require.NoError(t, err)
		return tx.Commit(ctx)
	}
	s.order(t, "order-1", 3)
	got := s.Deliver()
	require.Equal(t, onceq.OutcomeRetried, got.Outcome)
	require.Equal(t, 20, s.left(t))
	require.Equal(t, "done", s.finish(t))
	require.Equal(t, 17, s.left(t))
}

// The answer to COMMIT is lost: the store knows that the order is done, whatever the handler says.
func TestCommitInDoubt(t *testing.T) {
	t.Parallel()
	s := newShop(t, true)
	s.s.commit = func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(t, tx.Commit(ctx))
		return errors.New("unexpected EOF")
	}
	s.order(t, "order-1", 3)
	got := s.Deliver()
	require.Equal(t, onceq.OutcomeDone, got.Outcome)
	require.Equal(t, onceq.Ack, got.Action)
	require.Equal(t, onceq.OutcomeAlreadyDone, s.Redeliver().Outcome)
	require.Equal(t, 17, s.left(t))
}

// Forty orders, each twice, want a stock of twenty: as many get a piece as there are, and the
// others a dead letter.
func TestSoldOut(t *testing.T) {
	t.Parallel()
	s := newShop(t, true)
	var ms []broker.Outgoing
	for n := range 80 {
		ms = append(ms, message(t, order{fmt.Sprint("order-", n%40), "bolt", 1}))
	}
	queue, dead := must(membroker.New(nil)), must(membroker.New(nil))
	require.NoError(t, onceq.Send(t.Context(), queue, ms))
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	n := &tally{want: 40, last: stop, outcomes: make(map[string]int)}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.JSON(s.s.deduct), Store: s.Store, Scope: "orders", Observer: n,
	})
	require.NoError(t, err)
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, Concurrency: 16})
	require.NoError(t, err)
	require.NoError(t, w.Run(ctx))
	require.Zero(t, s.left(t))
	require.Equal(t, 20, n.outcomes["done"], "%v", n.outcomes)
	require.Equal(t, 20, n.outcomes["failed"], "%v", n.outcomes)
	letters, err := dead.Receive(t.Context(), broker.ReceiveOptions{Max: 100})
	require.NoError(t, err)
	for _, l := range letters {
		require.Equal(t, "sold-out", l.Meta.Dead.Class)
	}
}

// tally counts outcomes and waits for as many that are done or failed.
type tally struct {
	last func()
	want int

	mu       sync.Mutex
	outcomes map[string]int
}

func (s *tally) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }

func (s *tally) JobEnded(_ context.Context, r *onceq.JobReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcomes[string(r.Outcome)]++
	if s.outcomes["done"]+s.outcomes["failed"] == s.want {
		s.last()
	}
}
