package worlds

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// This file owns a world: what is in it, what is drawn, its producer, and how it passes. mu guards
// the draws, and what the handlers note.

// Queue is one that tells how much is in it.
type Queue interface {
	broker.Broker
	broker.Depther
}

// Place is where a world keeps its jobs.
type Place struct {
	// Queue opens an empty queue.
	Queue func(t testing.TB, name string) Queue
	// Store opens an empty store. commit completes a job in one transaction with its effect, and
	// reports whether it has; nil = a settlement is that. It is called under a lock.
	Store func(t testing.TB) (s dedupe.Store, commit func(j *onceq.Job) bool)
}

// Memory is queues of a preset and a store in memory.
func Memory(p membroker.Preset) *Place {
	return &Place{
		Queue: func(t testing.TB, _ string) Queue { return rig.NewBroker(t, membroker.Options{Preset: p}).Broker },
		Store: func(t testing.TB) (dedupe.Store, func(*onceq.Job) bool) { return rig.NewStore(t).Store, nil },
	}
}

const (
	jobs    = 150
	trouble = 20 * time.Minute // from then on nothing goes wrong any more
	skew    = 10 * time.Minute // a wrong clock's, at most
	queue   = "jobs"           // its name in rules
)

var rulesKey = dedupe.Key{Scope: controlstore.ScopeControl, Key: "rules"}

type world struct {
	t              *testing.T
	q, outbox, dlq Queue
	st             dedupe.Store
	completes      func(*onceq.Job) bool
	book           *book
	weather        Weather

	// What there is in this world, beside workers and an operator who cancels and replays.
	functions, relays, carries, ruled, clocks, divides bool

	mu    sync.Mutex
	rnd   *rand.Rand
	calm  bool
	born  int        // machines so far
	hosts []*Machine // those that are up

	commits   map[string]int // effects that were committed with their completion
	outside   map[string]int // effects elsewhere
	starts    map[string]int
	begun     map[string]uint64 // the fence of a key's last start
	charged   map[string]bool   // effects of steps, by effect key
	values    map[string]int    // what steps have saved
	asked     map[string]bool   // keys whose cancel was asked for
	cancelled map[string]bool   // those whose cancel was answered nil
	due       map[string]time.Time
	orders    []order
	bad       map[string]bool // keys that something is wrong with
	done      map[string]int  // what happened, to be told
}

// Play plays one world in the test's bubble.
func Play(t *testing.T, seed uint64, p *Place) {
	w := &world{
		t: t, book: newBook(), rnd: rand.New(rand.NewPCG(seed, 1)),
		q: p.Queue(t, "jobs"), outbox: p.Queue(t, "outbox"), dlq: p.Queue(t, "letters"),
		commits: make(map[string]int), outside: make(map[string]int), starts: make(map[string]int), begun: make(map[string]uint64),
		charged: make(map[string]bool), values: make(map[string]int), asked: make(map[string]bool), cancelled: make(map[string]bool),
		due: make(map[string]time.Time), bad: make(map[string]bool), done: make(map[string]int),
	}
	w.st, w.completes = p.Store(t)
	for _, has := range []*bool{&w.functions, &w.relays, &w.carries, &w.ruled, &w.clocks, &w.divides} {
		*has = w.n(2) == 0
	}
	w.carries = w.carries && !w.q.Limits().RequireGroup // messages of a group are never sent anew
	w.run()
}

// wrong tells what is wrong with a key, whose time line is printed at the end.
func (w *world) wrong(key, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrongLocked(key, format, args...)
}

func (w *world) wrongLocked(key, format string, args ...any) {
	w.bad[key] = true
	w.t.Errorf("%s %s", key, fmt.Sprintf(format, args...))
}

// n draws a number below most.
func (w *world) n(most int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(most)
}

// draw is a time of 1 ms to most.
func (w *world) draw(most time.Duration) time.Duration {
	return time.Duration(1+w.n(int(most/time.Millisecond))) * time.Millisecond
}

// mishap draws whether something goes wrong now.
func (w *world) mishap(percent int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.calm && w.rnd.IntN(100) < percent
}

// count notes what the world has had.
func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[what]++
}

func (w *world) storeFault(onceqtest.Call) faulty.Faults {
	if f, on := w.weather.StoreFault(); on {
		return f
	}
	if !w.mishap(20) {
		return nil
	}
	switch w.n(6) {
	case 0:
		return faulty.Fail(rig.ErrBoom)
	case 1:
		return faulty.Lose(rig.ErrBoom)
	case 2:
		return faulty.Slow(w.draw(8 * time.Second))
	case 3:
		return faulty.Slow(w.draw(8 * time.Second)).With(faulty.Lose(rig.ErrBoom))
	case 4:
		return faulty.Hang()
	}
	return faulty.Panic("store")
}

func (w *world) queueFault(_ context.Context, c onceqtest.Call) faulty.Faults {
	if f, on := w.weather.QueueFault(c); on {
		return f
	}
	if !w.mishap(20) {
		return nil
	}
	switch w.n(6) {
	case 0:
		return faulty.Fail(rig.ErrBoom)
	case 1:
		return faulty.Lose(rig.ErrBoom)
	case 2:
		return faulty.Fail(broker.ErrThrottled)
	case 3:
		return faulty.Slow(w.draw(8 * time.Second))
	case 4:
		return faulty.SlowReply(w.draw(8 * time.Second))
	}
	return faulty.Err(rig.ErrBoom, w.n(2) == 0).Only(w.n(max(1, c.Entries)))
}

// playEpisodes lets one follow the other, with calm in between, beside all that goes wrong call by
// call. In the middle of every other one all hosts are drained: a deploy.
func (w *world) playEpisodes(until time.Time) {
	for {
		rig.Takes(time.Minute + w.draw(2*time.Minute))
		lasts := 30*time.Second + w.draw(time.Minute)
		if time.Until(until) < lasts {
			return
		}
		var still *Machine
		w.mu.Lock()
		if len(w.hosts) > 0 {
			still = w.hosts[0]
		}
		w.mu.Unlock()
		w.weather.Begin(Episode(1+w.n(int(LastEpisode))), lasts, still)
		part := w.draw(lasts)
		rig.Takes(part)
		if w.n(2) == 0 {
			w.deploy()
		}
		rig.Takes(lasts - part)
	}
}

// deploy drains all hosts; others take their places.
func (w *world) deploy() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.hosts {
		m.drain()
	}
}

func (w *world) isCalm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calm
}

// send puts the jobs into the queue, or into the outbox of the relays. Some are sent twice, as by a
// producer whose first answer was lost.
func (w *world) send() (keys []dedupe.Key) {
	for i := range jobs {
		m := rig.Message(fmt.Sprintf("k%03d", i))
		m.Meta.Type = types[i%len(types)]
		if w.q.Limits().RequireGroup || i%5 == 0 {
			m.Group = fmt.Sprint("g", i%20)
		}
		if m.Meta.Type == due {
			m.Meta.NotBefore = time.Now().Add(w.draw(15 * time.Minute)).Truncate(time.Millisecond)
			w.mu.Lock()
			w.due[m.Meta.Key] = m.Meta.NotBefore
			w.mu.Unlock()
		}
		keys = append(keys, dedupe.Key{Scope: rig.Scope + ":" + m.Meta.Type, Key: m.Meta.Key})
		to, name := w.q, "the queue"
		if w.relays && i%20/10 == 0 { // whole groups
			to, name = w.outbox, "the outbox"
		}
		ms := []broker.Outgoing{m}
		for w.n(4) == 0 {
			ms = append(ms, ms[0])
		}
		for n := range ms {
			w.book.note(m.Meta.Key, "the producer sends it to ", name)
			if err := onceq.Send(w.t.Context(), to, ms[n:n+1]); err != nil {
				w.t.Fatal(err)
			}
		}
		if w.n(3) == 0 {
			rig.Takes(w.draw(20 * time.Second))
		}
	}
	return keys
}

func (w *world) run() {
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	hosts := []func(context.Context, *Machine){w.host, w.host, w.host}
	if w.relays {
		hosts = append(hosts, w.relay, w.relay)
	}
	for _, live := range hosts {
		all.Go(func() { w.live(ctx, live) })
	}
	keys := w.send()
	end := time.Now().Add(trouble)
	all.Go(func() { w.playEpisodes(end) })
	all.Go(func() { w.operator(keys, end) })
	rig.Pass(trouble)
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	rig.Pass(time.Hour)
	cancel()
	all.Wait()
	rig.Pass(time.Hour) // for what crashed machines have left behind
	w.check(keys)
}

// up notes a machine that is up.
func (w *world) up(m *Machine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hosts = append(w.hosts, m)
}

func (w *world) down(m *Machine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hosts = slices.DeleteFunc(w.hosts, func(o *Machine) bool { return o == m })
}
