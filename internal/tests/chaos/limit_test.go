//go:build unix

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/limit"
)

// limitedVariable makes the test binary a worker of TestLimits.
const limitedVariable = "ONCEQ_CHAOS_LIMITED"

// The limits of that test's processes.
const (
	limitedStarts = 20
	limitedPer    = 2 * time.Second
	limitedPlaces = 6
)

// limited is what a worker of TestLimits is told. Planted: its limits are its own, as if the store
// kept none, which the test must find.
type limited struct {
	Name, Store, Database string
	Planted               bool
}

// keepLimits is a worker process with a queue of its own that is never empty.
func keepLimits(ctx context.Context, a limited) error {
	books, err := openBooks(ctx, a.Store, a.Database)
	if err != nil {
		return err
	}
	defer books.close()
	queue, err := membroker.New(nil)
	if err != nil {
		return err
	}
	kept := books.store()
	if a.Planted {
		if kept, err = memstore.New(nil); err != nil {
			return err
		}
	}
	rate, err := limit.Shared(kept, "api", limitedStarts, limitedPer)
	if err != nil {
		return err
	}
	places, err := limit.Slots(kept, "db", limitedPlaces)
	if err != nil {
		return err
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Scope: "limited", Owner: a.Name, Store: books.store(), Control: onceq.ControlOptions{Every: -1}, Logger: slog.New(slog.DiscardHandler),
		Handler: onceq.Chain(onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
			child.Tell("began %d", time.Now().UnixNano())
			<-time.After(100 * time.Millisecond)
			child.Tell("ended %d", time.Now().UnixNano())
			return nil
		}), places, limit.Middleware(rate, nil)),
	})
	if err != nil {
		return err
	}
	for range 500 {
		if err := onceq.SendOne(ctx, queue, &broker.Outgoing{Body: []byte("x")}); err != nil {
			return err
		}
	}
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 4})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// limits is what all processes have said. They are heard in any order, so their own times count.
type limits struct {
	mu     sync.Mutex
	starts []time.Time
	turns  []turn
	open   map[string]int // handlers of a process that have not said that they end
}

// turn is a handler that begins (1) or ends (-1).
type turn struct {
	at time.Time
	by int
}

func (l *limits) hear(name, line string) {
	word, text, _ := strings.Cut(line, " ")
	ns, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return
	}
	at, by := time.Unix(0, ns), -1
	l.mu.Lock()
	defer l.mu.Unlock()
	if word == "began" {
		l.starts, by = append(l.starts, at), 1
	}
	l.open[name] += by
	l.turns = append(l.turns, turn{at, by})
}

// kill ends a process. Its handlers end at the latest then.
func (l *limits) kill(c *child.Child, name string) {
	at := time.Now()
	c.Kill()
	<-c.Done() // its last lines are heard
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turns = append(l.turns, turn{at, -l.open[name]})
}

// atOnce is how many ran at once, at most.
func (l *limits) atOnce() (most int) {
	slices.SortFunc(l.turns, func(a, b turn) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	n := 0
	for _, t := range l.turns {
		n += t.by
		most = max(most, n)
	}
	return most
}

func (l *limits) start(t *testing.T, a limited) *child.Child {
	t.Helper()
	return begin(t, self(limitedVariable, a), func(line string) { l.hear(a.Name, line) })
}

// TestLimits: of four processes, of which one after the other is killed, never more than the limit
// begin in a time, and never more than there are places run at once. A machine that is busy may let
// a handler begin a moment after the limiter's word, so half of the time is looked at. A killed
// process's places stay taken for 30 s, so the test is over before all are.
func TestLimits(t *testing.T) {
	seed := proof.Seed(t)
	for i, store := range []string{"sqlite", "postgres", "dynamodb", "firestore"} {
		if i > 0 && uint64(i)%3 != seed%3 && !proof.Asked() {
			proof.Leave(t, "internal/tests/chaos: two of four stores under limits")
			continue
		}
		t.Run(store, func(t *testing.T) {
			for _, wrong := range watchLimits(t, limited{Store: store, Database: database(t, store)}, seed) {
				t.Error(wrong)
			}
		})
		if proof.Asked() {
			t.Run(store+" planted", func(t *testing.T) {
				if len(watchLimits(t, limited{Store: store, Database: database(t, store), Planted: true}, seed)) != 2 {
					t.Error("processes with limits of their own were not found")
				}
			})
		}
	}
}

// watchLimits answers what was above the limits: of the rate, and of the places.
func watchLimits(t *testing.T, a limited, seed uint64) (wrong []string) {
	rng := rand.New(rand.NewPCG(seed, 32))
	books := must.Get(openBooks(t.Context(), a.Store, a.Database))
	defer books.close()
	if err := books.migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := &limits{open: map[string]int{}}
	var crew [4]*child.Child
	var names [4]string
	began := time.Now()
	for n := range 12 {
		i := n % len(crew)
		if n == len(crew) { // places of the dead stay taken, so nobody dies before some have begun
			until(t, "handlers begin", func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return len(l.starts) >= limitedPlaces
			})
		}
		if crew[i] != nil {
			l.kill(crew[i], names[i])
		}
		names[i] = fmt.Sprint("worker-", n)
		a.Name = names[i]
		crew[i] = l.start(t, a)
		if n >= len(crew)-1 {
			<-time.After(time.Duration(100+rng.IntN(200)) * time.Millisecond)
		}
	}
	for i, c := range crew {
		l.kill(c, names[i])
	}
	took := time.Since(began)
	slices.SortFunc(l.starts, time.Time.Compare)
	most, first := 0, 0
	for i := range l.starts {
		for l.starts[i].Sub(l.starts[first]) >= limitedPer/2 {
			first++
		}
		most = max(most, i-first+1)
	}
	t.Logf("%d began in %v, %d in half of the time, %d ran at once", len(l.starts), took.Round(time.Millisecond), most, l.atOnce())
	if all := limitedStarts * (int(took/limitedPer) + 1); most > limitedStarts || len(l.starts) > all {
		wrong = append(wrong, fmt.Sprintf("%d began within %v, and %d in all: more than %d and %d", most, limitedPer/2, len(l.starts), limitedStarts, all))
	}
	if n := l.atOnce(); n > limitedPlaces {
		wrong = append(wrong, fmt.Sprintf("%d ran at once in %d places", n, limitedPlaces))
	}
	if len(l.starts) < limitedPlaces {
		t.Errorf("%d began, which shows nothing", len(l.starts))
	}
	return wrong
}
