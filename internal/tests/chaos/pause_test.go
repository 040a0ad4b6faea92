//go:build unix

package chaos

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/must"
)

var controlEvery = flag.Duration("control", 2*time.Second, "how often workers read the operators' rules in TestPause; 10s is the default in earnest")

var fleet = flag.Int("fleet", 0, "how many worker processes TestPause has (default: 20 on SQLite, 8 elsewhere, for their servers run beside)")

// pausedVariable makes the test binary a worker of TestPause.
const pausedVariable = "ONCEQ_CHAOS_PAUSED"

// pausedCall is the CallTimeout of those workers.
const pausedCall = 3 * time.Second

// pausing is what a worker of TestPause is told.
type pausing struct {
	Name, Store, Database string
	Every                 time.Duration
}

// obey is a worker process with a queue of its own that is never empty. All processes name it
// alike, so one rule is for all of them.
func obey(ctx context.Context, a pausing) error {
	books, err := openBooks(ctx, a.Store, a.Database)
	if err != nil {
		return err
	}
	defer books.close()
	queue, err := membroker.New(nil)
	if err != nil {
		return err
	}
	for range 4 {
		if err := onceq.SendOne(ctx, queue, &broker.Outgoing{Body: []byte("first")}); err != nil {
			return err
		}
	}
	return runWorker(ctx, onceq.ProcessorConfig{
		Scope: "paused", Queue: "orders", Owner: a.Name, Store: books.store(), CallTimeout: pausedCall,
		Control: onceq.ControlOptions{Every: a.Every},
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			child.Tell("began %d %d", time.Now().UnixNano(), j.Message.Attempt)
			<-time.After(50 * time.Millisecond)
			return onceq.SendOne(ctx, queue, &broker.Outgoing{Body: []byte("next")})
		}),
	}, queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 2})
}

// begun is what the handlers of all processes have said.
type begun struct {
	mu   sync.Mutex
	last time.Time
	n    int
}

func (b *begun) hear(line string) {
	word, rest, _ := strings.Cut(line, " ")
	at, _, _ := strings.Cut(rest, " ")
	ns, err := strconv.ParseInt(at, 10, 64)
	if word != "began" || err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
	if t := time.Unix(0, ns); t.After(b.last) {
		b.last = t
	}
}

func (b *begun) look() (last time.Time, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last, b.n
}

// TestPause: of a fleet of worker processes none starts a handler when the pause's bound is over,
// and one that starts during the pause runs nothing. When the rule is removed all go on.
func TestPause(t *testing.T) {
	for _, store := range []string{"sqlite", "postgres", "dynamodb", "firestore"} {
		t.Run(store, func(t *testing.T) {
			a := pausing{Store: store, Database: database(t, store), Every: *controlEvery}
			testPause(t, a)
		})
	}
}

func testPause(t *testing.T, a pausing) {
	books := must.Get(openBooks(t.Context(), a.Store, a.Database))
	defer books.close()
	if err := books.migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, all := books.store(), new(begun)
	workers := *fleet
	if workers == 0 {
		workers = 8
		if a.Store == "sqlite" {
			workers = 20
		}
	}
	for n := range workers {
		all.start(t, a, n)
	}
	until(t, "all workers sit and work", func() bool {
		_, n := all.look()
		return len(live(t, books)) == workers && n > 10*workers
	})

	rules, err := controlstore.Change(t.Context(), s, func(rs *controlstore.Rules) error {
		rs.Rules = append(rs.Rules, control.Rule{Do: control.Pause, Queue: "orders", Until: time.Now().Add(time.Hour), By: "ana", Reason: "test"})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	paused := time.Now()
	bound := a.Every + pausedCall
	<-time.After(bound)
	newcomer := all.start(t, a, workers)
	until(t, "all workers show the pause", func() bool {
		cs := live(t, books)
		obeying := 0
		for _, c := range cs {
			if c.Rules >= rules.Version && c.State == "paused" && len(c.PausedBy) == 1 {
				obeying++
			}
		}
		return obeying == workers+1
	})
	<-time.After(a.Every)
	last, n := all.look()
	t.Logf("%d handlers; the last one started %v after the pause, the bound is %v", n, last.Sub(paused).Round(time.Millisecond), bound)
	if last.Sub(paused) > bound {
		t.Errorf("a handler started %v after the pause", last.Sub(paused))
	}
	if _, n := newcomer.look(); n != 0 {
		t.Errorf("the worker that started during the pause has run %d jobs", n)
	}

	if _, err := controlstore.Change(t.Context(), s, func(rs *controlstore.Rules) error { rs.Rules = nil; return nil }); err != nil {
		t.Fatal(err)
	}
	until(t, "all workers go on", func() bool {
		running := 0
		for _, c := range live(t, books) {
			if c.State == "running" {
				running++
			}
		}
		return running == workers+1
	})
}

// start starts a worker, whose handlers count alone, and with all others.
func (b *begun) start(t *testing.T, a pausing, n int) *begun {
	t.Helper()
	a.Name = fmt.Sprint("worker-", n)
	own := new(begun)
	begin(t, self(pausedVariable, a), func(line string) { own.hear(line); b.hear(line) })
	return own
}

// live are the cards of the workers that live.
func live(t *testing.T, b books) (cs []*control.WorkerStatus) {
	t.Helper()
	seats, err := controlstore.Seats(t.Context(), b.store(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	for i := range seats {
		if c := seats[i].Status; c != nil && seats[i].Live(time.Now()) {
			cs = append(cs, c)
		}
	}
	return cs
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); <-time.After(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not seen for two minutes: %s", what)
		}
	}
}
