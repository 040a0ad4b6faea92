//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/fan"
	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/onceqtest"
)

// This file owns the chaos of a fan: parents and children are worked by processes that kill
// themselves at a call that is drawn, before it or after it, or are killed at any instant. The
// ledger has one line for each child and for each parent all the same.

// fanVariable makes the test binary a worker of parents and children.
const fanVariable = "ONCEQ_CHAOS_FAN"

// clan is what such a worker is told.
type clan struct {
	place
	Name            string
	Store, Database string
	Children        int
	Dies            *onceqtest.Fault // nil = it lives
}

const (
	typeParent = "parent"
	typeChild  = "child"
)

// workFan is a worker process.
func workFan(ctx context.Context, a clan) error {
	books, err := openBooks(ctx, a.Store, a.Database)
	if err != nil {
		return err
	}
	defer books.close()
	queue, dead, err := a.open(ctx)
	if err != nil {
		return err
	}
	p := new(onceqtest.Process)
	p.OnDeath(func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) })
	if a.Dies != nil {
		p.At(*a.Dies)
	}
	store, to := p.Store(books.store()), p.Producer(queue)
	var mux onceq.Mux
	mux.OneScope()
	mux.On(typeChild, onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error { return books.pay(ctx, j) }), nil)
	mux.On(typeParent, onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
		err := fan.Out(ctx, j, store, "parts", fan.Children{
			To: to, Scope: scope, N: a.Children,
			Message: func(int) (broker.Outgoing, error) { return onceq.Message(typeChild, "", nil), nil },
		})
		if err != nil {
			return err
		}
		n := 0
		for _, err := range fan.Results[any](ctx, j, store, "parts") {
			if err != nil {
				return err
			}
			n++
		}
		if n != a.Children {
			return onceq.Permanent(fmt.Errorf("%d results of %d children", n, a.Children))
		}
		return books.pay(ctx, j)
	}), nil)
	jobs, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: &mux, Store: store, Scope: scope, Owner: a.Name, Lease: hold, Logger: slog.New(slog.DiscardHandler),
		Defaults: onceq.JobOptions{MaxAttempts: -1, Backoff: func(int, error) time.Duration { return 0 }},
	})
	if err != nil {
		return err
	}
	child.Tell(lineReady)
	w, err := jobs.Worker(p.Receiver(queue), onceq.WorkerConfig{DeadLetter: p.Sender(dead), Concurrency: 8, Visibility: a.Service.visibility()})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// walkFan lets two workers at a time live and die, with a new parent for each two, and two more
// work to the end.
func walkFan(t *testing.T, store string, rng *rand.Rand) {
	t.Helper()
	const lives = 12
	a := clan{Store: store, Database: database(t, store), Children: 505} // a part and a bit
	if !proof.Asked() {
		a.Children = 120
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), roundLimit, errors.New("the fans take too long"))
	defer cancel()
	var depth, letters func(context.Context) (broker.Depth, error)
	a.place, depth, letters = onSQS.serve(t, rng.Uint64())
	queue, _, err := a.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	books := must.Get(openBooks(ctx, store, a.Database))
	defer books.close()
	if err := books.migrate(ctx); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	send := func(i int) {
		m := onceq.Message(typeParent, fmt.Sprint("parent-", i), nil)
		if err := onceq.SendOne(ctx, queue, &m); err != nil {
			t.Fatal(err)
		}
		want[m.Meta.Key] = true
		for n := range a.Children {
			want[fan.Key(dedupe.Key{Scope: scope, Key: m.Meta.Key}, "parts", n)] = true
		}
	}
	start := func(n int, dies *onceqtest.Fault, ready func()) *child.Child {
		a := a
		a.Name, a.Dies = fmt.Sprint("worker ", n), dies
		return begin(t, self(fanVariable, a), func(string) { ready() })
	}
	killed := 0
	for n := 0; n < lives; n += 2 {
		send(n)
		var ready sync.WaitGroup // a machine that is busy takes a second to start a process
		ready.Add(2)
		crew := []*child.Child{start(n, death(rng, a.Children), ready.Done), start(n+1, death(rng, a.Children), ready.Done)}
		ready.Wait()
		end := time.After(hold + rand.N(hold/2)) // each life sees the lease of the one before end
		for _, c := range crew {
			select {
			case <-c.Done():
				killed++
			case <-end:
				end = time.After(0)
				c.Kill()
				<-c.Done()
			}
		}
	}
	start(lives, nil, func() {})
	start(lives+1, nil, func() {})
	for {
		d, err := depth(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if d == (broker.Depth{}) {
			break
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("in the queue: %+v: %v", d, context.Cause(ctx))
		}
	}
	if d, err := letters(ctx); err != nil || d != (broker.Depth{}) {
		t.Errorf("letters: %+v, %v", d, err)
	}
	paid, err := books.paid(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for key := range want {
		if fences := paid[key]; len(fences) != 1 {
			t.Errorf("%s has %d lines in the ledger: %v", key, len(fences), fences)
		}
	}
	if len(paid) != len(want) {
		t.Errorf("the ledger has %d jobs, want %d", len(paid), len(want))
	}
	if killed == 0 {
		t.Error("no worker died at a call")
	}
	t.Logf("%d of %d workers died at a call", killed, lives)
}

// death draws a call of a parent's, mostly.
func death(rng *rand.Rand, children int) *onceqtest.Fault {
	f := &onceqtest.Fault{Kind: onceqtest.CrashBefore}
	if rng.IntN(2) == 0 {
		f.Kind = onceqtest.CrashAfter
	}
	switch rng.IntN(5) {
	case 0:
		f.Op, f.N = onceqtest.Get, 1+rng.IntN(4)
	case 1:
		f.Op, f.N = onceqtest.Renew, 1+rng.IntN(3)
	case 2:
		f.Op, f.N = onceqtest.Settle, 1+rng.IntN(8)
	case 3:
		f.Op, f.N = onceqtest.Send, 1+rng.IntN(children/10)
	default:
		f.N = 1 + rng.IntN(60)
	}
	return f
}
