//go:build unix

package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/adapters/sqlitebroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/proof"
)

// This file owns the upgrade of what is stored: tables, messages and letters of an earlier version,
// whose only worker was killed, are migrated, read and worked off by this tree.

// firstTables is the earliest commit whose tables must be readable.
const firstTables = "837e596c3c9d8d80ec00ce116e9878f094027f90"

// TestUpgrade: this version migrates what an earlier one has left in every state of a record and
// of a message, reads each record and letter as it was, and goes on. What was done or failed is not
// run again, what was cut off or waited runs once, in its time and order, and a letter's permission
// holds.
func TestUpgrade(t *testing.T) {
	proof.Only(t, "internal/tests/chaos: tables, messages and letters of an earlier version")
	program := buildOlder(t, firstTables, "before")
	for _, store := range []string{"sqlite", "postgres", "dynamodb"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			u := &upgrade{T: t, runs: map[string][]int{}, at: map[string]time.Time{}}
			db, file := database(t, store), filepath.Join(t.TempDir(), "queue.db")
			u.leave(exec.Command(program, db, file))
			u.open(db, file)
			u.reads()
			u.goesOn()
			u.replays()
		})
	}
}

type upgrade struct {
	*testing.T
	left    time.Time // when the earlier version had left all
	orders  broker.Broker
	letters broker.Broker
	store   dedupe.Store
	migrate []func(context.Context) error

	mu    sync.Mutex
	runs  map[string][]int // the attempts that this version made, by key
	order []string
	at    map[string]time.Time
}

// leave lets the earlier version work, and kills it amid its jobs.
func (u *upgrade) leave(cmd *exec.Cmd) {
	u.Helper()
	var text strings.Builder
	cmd.Stderr = &text
	ready := make(chan struct{})
	var once sync.Once
	c, err := child.Start(cmd, func(string) { once.Do(func() { close(ready) }) })
	if err != nil {
		u.Fatal(err)
	}
	defer func() {
		c.Kill()
		<-c.Done()
	}()
	select {
	case <-ready:
		u.left = time.Now()
	case <-c.Done():
		u.Fatalf("the earlier version ended: %v\n%s", c.Err(), text.String())
	case <-time.After(roundLimit):
		u.Fatal("the earlier version has not come to its states in time")
	}
}

func (u *upgrade) open(database, file string) {
	u.Helper()
	var err error
	if strings.HasPrefix(database, "postgres") {
		pool, err1 := pgxpool.New(u.Context(), database)
		if err1 != nil {
			u.Fatal(err1)
		}
		u.Cleanup(pool.Close)
		s, err1 := pgstore.New(pool, nil)
		o, err2 := pgbroker.New(pool, "orders", nil)
		l, err3 := pgbroker.New(pool, "letters", nil)
		err = errors.Join(err1, err2, err3)
		u.store, u.orders, u.letters, u.migrate = s, o, l, []func(context.Context) error{s.Migrate, o.Migrate}
	} else {
		db, err1 := sql.Open("sqlite", sqlitestore.DSN(file))
		if err1 != nil {
			u.Fatal(err1)
		}
		u.Cleanup(func() { _ = db.Close() })
		s, err1 := sqlitestore.New(db, nil)
		o, err2 := sqlitebroker.New(s, "orders", nil)
		l, err3 := sqlitebroker.New(s, "letters", nil)
		err = errors.Join(err1, err2, err3)
		u.store, u.orders, u.letters, u.migrate = s, o, l, []func(context.Context) error{s.Migrate, o.Migrate}
		if strings.HasPrefix(database, "{") {
			b, err1 := openDynamoDB(database)
			err = errors.Join(err, err1)
			if err == nil {
				u.store = b.store()
				u.migrate = append(u.migrate, b.store().(*dynamostore.Store).CreateTable)
			}
		}
	}
	if err != nil {
		u.Fatal(err)
	}
	for range 2 { // the second one finds all done
		for _, f := range u.migrate {
			if err := f(u.Context()); err != nil {
				u.Fatal(err)
			}
		}
	}
	faults, err := u.store.(dedupe.Checker).Check(u.Context())
	if err != nil || len(faults) > 0 {
		u.Errorf("Check after the upgrade: %v, %v", faults, err)
	}
}

// record is the record of a key.
func (u *upgrade) record(name string) *dedupe.Record {
	u.Helper()
	scope := "up:charge"
	if name == "parks" || name == "lost" {
		scope = "up:careful"
	}
	rs, err := u.store.Get(u.Context(), []dedupe.Key{{Scope: scope, Key: name}})
	if err != nil || rs[0] == nil {
		u.Fatalf("the record of %q: %v, %v", name, rs, err)
	}
	return rs[0]
}

// reads looks at what is there before a worker of this version has run.
func (u *upgrade) reads() {
	u.Helper()
	for name, want := range map[string]struct {
		status             dedupe.Status
		class, text, bytes string
		started            bool
	}{
		"done":    {status: dedupe.Done, bytes: "paid"},
		"fails":   {status: dedupe.Failed, class: onceq.ClassPermanent, text: "no such customer"},
		"parks":   {status: dedupe.Parked, class: onceq.ClassInterrupted, text: "no answer", started: true},
		"retries": {status: dedupe.Released, class: onceq.ClassError, text: "not yet"},
		"hangs":   {status: dedupe.Claimed},
		"lost":    {status: dedupe.Claimed, started: true},
	} {
		r := u.record(name)
		if r.Status != want.status || r.ErrClass != want.class || !strings.Contains(r.LastErr, want.text) || string(r.Result) != want.bytes ||
			r.Started != want.started && want.status == dedupe.Claimed || r.Attempt != 1 || r.Fence == 0 || r.Owner != "before" || r.Created.IsZero() ||
			(r.MessageID == "") != (want.status == dedupe.Done) {
			u.Errorf("%q reads as %+v", name, *r)
		}
	}
	for status, want := range map[dedupe.Status]string{dedupe.Failed: "fails", dedupe.Parked: "parks", dedupe.Released: "retries"} {
		var got []string
		for r, err := range u.store.List(u.Context(), dedupe.Query{Status: status}) {
			if err != nil {
				u.Fatal(err)
			}
			if strings.HasPrefix(r.Key.Scope, "up:") {
				got = append(got, r.Key.Key)
			}
		}
		if !slices.Equal(got, []string{want}) {
			u.Errorf("%v are %q", status, got)
		}
	}
	if got := u.lettered(); !slices.Equal(got, []string{"fails permanent true", "parks interrupted true"}) {
		u.Errorf("letters: %q", got)
	}
}

// lettered are the letters: key, class, and whether they name their failure.
func (u *upgrade) lettered() (all []string) {
	u.Helper()
	q := must.Get(dlq.New(u.letters, nil))
	for e, err := range q.List(u.Context(), dlq.Filter{}) {
		if err != nil {
			u.Fatal(err)
		}
		r := e.Ref()
		if r.Fence != u.record(r.Key).Fence || e.Message.Attributes["tenant"] != "a" || string(e.Message.Body) != "42" {
			u.Errorf("a letter reads as %+v", *e.Message)
		}
		all = append(all, fmt.Sprint(r.Key, " ", r.Class, " ", r.Record.Key == r.Key))
	}
	slices.Sort(all)
	return all
}

func (u *upgrade) handle(_ context.Context, j *onceq.Job) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := j.Key().Key
	u.runs[key] = append(u.runs[key], j.Attempt)
	u.at[key] = time.Now()
	if j.Message.Group != "" {
		u.order = append(u.order, key)
	}
	return j.SetResult([]byte("paid"))
}

// work runs a worker of this version until the queue is empty.
func (u *upgrade) work() {
	u.Helper()
	mux := &onceq.Mux{}
	mux.On("charge", onceq.HandlerFunc(u.handle), nil)
	mux.On("careful", onceq.HandlerFunc(u.handle), &onceq.JobOptions{Interrupted: dedupe.Park})
	p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
		Scope: "up", Owner: "after", Store: u.store, Handler: mux, Logger: slog.New(slog.DiscardHandler), Lease: 10 * time.Second,
		CallTimeout: 2 * time.Second, SettleTimeout: 2 * time.Second,
	}))
	w := must.Get(p.Worker(u.orders, onceq.WorkerConfig{DeadLetter: u.letters, Visibility: 10 * time.Second}))
	ctx, stop := context.WithTimeout(u.Context(), roundLimit)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for {
		depth, err := u.orders.(broker.Depther).Depth(ctx)
		if err != nil {
			u.Fatal(err)
		}
		if depth.Visible+depth.InFlight+depth.Delayed == 0 {
			break
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case err := <-ended:
			u.Fatalf("the worker has ended: %v; the queue has %+v", err, depth)
		}
	}
	stop()
	if err := <-ended; err != nil {
		u.Error(err)
	}
}

func (u *upgrade) goesOn() {
	u.Helper()
	u.work()
	want := map[string][]int{"hangs": {2}, "retries": {2}, "later": {1}}
	for n := range 10 {
		want[fmt.Sprint("waits-", n)] = []int{1}
	}
	for n := range 4 {
		want[fmt.Sprint("group-", n)] = []int{1}
	}
	if !maps.EqualFunc(u.runs, want, slices.Equal[[]int]) {
		u.Errorf("this version ran %v, want %v", u.runs, want)
	}
	if !slices.Equal(u.order, []string{"group-0", "group-1", "group-2", "group-3"}) {
		u.Errorf("the group ran as %q", u.order)
	}
	for name, least := range map[string]time.Duration{"later": 5 * time.Second, "retries": 5 * time.Second} {
		if waited := u.at[name].Sub(u.left); waited < least {
			u.Errorf("%q ran after %v, before it was due", name, waited)
		}
	}
	for name, status := range map[string]dedupe.Status{"fails": dedupe.Failed, "parks": dedupe.Parked, "lost": dedupe.Parked, "done": dedupe.Done, "hangs": dedupe.Done, "later": dedupe.Done} {
		if r := u.record(name); r.Status != status {
			u.Errorf("%q is %v, want %v", name, r.Status, status)
		}
	}
}

// replays sends the letters of both versions back. Each runs once more.
func (u *upgrade) replays() {
	u.Helper()
	u.runs = map[string][]int{}
	if got := slices.Compact(u.lettered()); !slices.Equal(got, []string{"fails permanent true", "lost interrupted true", "parks interrupted true"}) {
		u.Errorf("letters: %q", got)
	}
	q := must.Get(dlq.New(u.letters, nil))
	if report, err := q.Replay(u.Context(), dlq.ReplayOptions{To: u.orders}); err != nil || len(report.Failed)+len(report.Skipped) > 0 {
		u.Fatalf("replay: %v, %v", report, err)
	}
	u.work()
	if want := map[string][]int{"fails": {1}, "parks": {1}, "lost": {1}}; !maps.EqualFunc(u.runs, want, slices.Equal[[]int]) {
		u.Errorf("replays ran %v, want %v", u.runs, want)
	}
	for _, name := range []string{"fails", "parks", "lost"} {
		if r := u.record(name); r.Status != dedupe.Done || string(r.Result) != "paid" {
			u.Errorf("%q after its replay: %+v", name, *r)
		}
	}
}
