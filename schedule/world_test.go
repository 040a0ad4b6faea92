package schedule

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/onceqtest"
)

// A world is a store, a queue that keeps what is sent to it, and schedulers.
type world struct {
	*testing.T
	store *rig.Store
	log   rig.Log
	queue *outbox
}

// outbox is a queue of which every message runs at once, under its key.
type outbox struct {
	broker.Sender
	p *onceq.Processor

	mu   sync.Mutex
	sent []sentAt
	runs map[string]int // by key
	down error
}

type sentAt struct {
	key string
	due time.Time
	at  time.Time
	m   broker.Outgoing
}

func (o *outbox) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	o.mu.Lock()
	down := o.down
	o.mu.Unlock()
	if down != nil {
		return nil, down
	}
	for _, m := range ms {
		o.mu.Lock()
		o.sent = append(o.sent, sentAt{m.Meta.Key, m.Meta.Created, time.Now(), m})
		o.mu.Unlock()
		if _, err := onceq.Do(ctx, o.p, dedupe.Key{Scope: "jobs", Key: m.Meta.Key}, nil, func(context.Context, *onceq.Job) (bool, error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.runs[m.Meta.Key]++
			return true, nil
		}); err != nil {
			return nil, err
		}
	}
	return make([]string, len(ms)), nil
}

func (o *outbox) fails(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = err
}

// dues are the instants of an entry that were sent, in their order.
func (o *outbox) dues(name string) (all []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.sent {
		if s.key == Key(name, s.due) {
			all = append(all, s.due.UTC().Format(time.DateTime))
		}
	}
	return all
}

// inWorld plays in a bubble, which begins at midnight of 2000-01-01 in UTC.
func inWorld(t *testing.T, play func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: rig.NewStore(t)}
		b := rig.NewBroker(t, membroker.Options{})
		jobs, err := memstore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := onceq.NewProcessor(onceq.ProcessorConfig{Store: jobs, Scope: "jobs", Logger: w.log.Logger()})
		if err != nil {
			t.Fatal(err)
		}
		w.queue = &outbox{Sender: b, p: p, runs: map[string]int{}}
		play(w)
	})
}

// entry is one with the world's queue.
func (w *world) entry(name string, s Schedule) Entry {
	return Entry{Name: name, Schedule: s, To: w.queue, Message: func(at time.Time) (broker.Outgoing, error) {
		return onceq.Message("", "", []byte(at.UTC().String())), nil
	}}
}

func (w *world) cron(expr, zone string) Schedule {
	w.Helper()
	s, err := Cron(expr, zone)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// start runs a scheduler until stop is called, which answers what Run did.
func (w *world) start(s dedupe.Store, es func(context.Context) ([]Entry, error), change ...func(*runner)) (stop func() error) {
	w.Helper()
	r, err := newRunner(s, es, &Options{Logger: w.log.Logger()})
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range change {
		f(r)
	}
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

func list(es ...Entry) func(context.Context) ([]Entry, error) {
	return func(context.Context) ([]Entry, error) { return slices.Clone(es), nil }
}

// goOn lets time go by.
func goOn(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestKilledAtRandom: five schedulers that are killed at random for a year, at any of their calls,
// with clocks that are a minute apart, and a store that is away at times, send each instant, and
// each job runs once.
func TestKilledAtRandom(t *testing.T) {
	for _, seed := range proof.Seeds(t) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { killedAtRandom(t, seed) })
	}
}

func killedAtRandom(t *testing.T, seed uint64) {
	length := 30 * 24 * time.Hour
	if proof.Asked() {
		length = 366 * 24 * time.Hour
	} else {
		proof.Leave(t, "schedule: eleven of twelve months of schedulers that are killed")
	}
	inWorld(t, func(w *world) {
		entries := []Entry{
			w.entry("hourly", Every(time.Hour)),
			w.entry("nightly", w.cron("30 2 * * *", "Europe/Berlin")),
			w.entry("workdays", w.cron("*/30 9-11 * * mon-fri", "America/New_York")),
			w.entry("odd/name @ 3 · ☃", w.cron("7 */6 * * *", "Australia/Lord_Howe")),
		}
		for i := range entries {
			entries[i].CatchUp = 36 * time.Hour
		}
		begin := time.Now()
		end := begin.Add(length)
		var all sync.WaitGroup
		var dead []*onceqtest.Process
		var mu sync.Mutex
		for n := range 5 {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			all.Go(func() {
				for time.Now().Before(end) {
					p := new(onceqtest.Process)
					mine := slices.Clone(entries)
					for i := range mine {
						mine[i].To = p.Producer(w.queue)
					}
					ops := []onceqtest.Op{onceqtest.Claim, onceqtest.Settle, onceqtest.Send, onceqtest.Get, onceqtest.Renew}
					kinds := []onceqtest.FaultKind{onceqtest.CrashBefore, onceqtest.CrashAfter}
					p.At(onceqtest.Fault{Op: ops[r.IntN(len(ops))], N: 1 + r.IntN(60), Kind: kinds[r.IntN(2)]})
					stop := w.start(p.Store(w.store), list(mine...), func(x *runner) {
						x.every = time.Hour
						x.ahead = time.Duration(r.IntN(60)-30) * time.Second
					})
					life, cancel := context.WithTimeout(p.Context(w.Context()), time.Duration(1+r.IntN(200))*time.Hour)
					<-life.Done()
					cancel()
					p.Kill()
					stop()
					mu.Lock()
					dead = append(dead, p)
					mu.Unlock()
					goOn(time.Duration(r.IntN(10*60)) * time.Minute)
				}
			})
		}
		r := rand.New(rand.NewPCG(seed, 99))
		for time.Now().Before(end) { // outages of everything
			goOn(min(time.Until(end), time.Duration(r.IntN(20*24*60))*time.Minute))
			w.store.Fails(errors.New("away"))
			goOn(min(time.Until(end), time.Duration(r.IntN(3*60))*time.Minute))
			w.store.Heals()
		}
		all.Wait()
		stop := w.start(w.store, list(entries...), func(x *runner) { x.every = time.Hour })
		goOn(2 * time.Hour)
		if err := stop(); err != nil {
			t.Error(err)
		}
		want := 0
		for _, e := range entries {
			for at := e.Schedule.Next(begin.Add(time.Minute)); at.Before(end); at = e.Schedule.Next(at) {
				want++
				if n := w.queue.runs[Key(e.Name, at)]; n != 1 {
					t.Errorf("%s of %v ran %d times", e.Name, at, n)
				}
			}
		}
		t.Logf("%d instants, %d messages, %d deaths", want, len(w.queue.sent), len(dead))
		for _, line := range w.log.Lines("missed") {
			t.Error(line)
		}
	})
}
