package outages

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/onceqtest"
)

// TestSoak lets workers run, fail, drain and crash. Their queue, store and dead-letter queue fail
// in every way. At the end it checks that no job was lost or done twice. What goes wrong is drawn
// from the seed.
func TestSoak(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5, 6}
	if testing.Short() {
		seeds = seeds[:1]
	}
	for _, seed := range append(seeds, proof.Seeds(t)...) {
		p := membroker.Preset((seed - 1) % 4)
		t.Run(fmt.Sprintf("%v/%d", p, seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newSoak(t, seed, p).run() })
		})
	}
}

const (
	soakJobs    = 150
	soakTrouble = 20 * time.Minute // from then on nothing goes wrong any more
)

type soak struct {
	t   *testing.T
	q   *faulty.Broker
	dlq *faulty.Broker
	st  *rig.Store
	mux *onceq.Mux

	weather weather

	mu      sync.Mutex
	rnd     *rand.Rand
	calm    bool
	hosts   []*machine     // those that are up
	commits map[string]int // effects that were committed with their completion
	outside map[string]int // effects elsewhere
	starts  map[string]int

	charged   map[string]bool // effects of steps, by effect key
	values    map[string]int  // what steps have saved
	cancelled map[string]bool // keys whose cancel was answered nil
}

func newSoak(t *testing.T, seed uint64, p membroker.Preset) *soak {
	s := &soak{
		t: t, st: rig.NewStore(t), rnd: rand.New(rand.NewPCG(seed, 1)), mux: new(onceq.Mux),
		commits: make(map[string]int), outside: make(map[string]int), starts: make(map[string]int),
		charged: make(map[string]bool), values: make(map[string]int), cancelled: make(map[string]bool),
	}
	s.q = rig.NewBroker(t, membroker.Options{Preset: p})
	s.dlq = rig.NewBroker(t, membroker.Options{Preset: p})
	s.dlq.SetFault(s.brokerFault)
	quick := func(int, error) time.Duration { return time.Duration(s.n(3000)) * time.Millisecond }
	for _, park := range []dedupe.Policy{dedupe.Rerun, dedupe.Park} {
		s.mux.On(fmt.Sprint("tx-", park), onceq.HandlerFunc(s.transaction), &onceq.JobOptions{Interrupted: park, Backoff: quick, MaxAttempts: 8})
	}
	s.mux.On("once", onceq.HandlerFunc(s.atMostOnce), &onceq.JobOptions{Interrupted: dedupe.Park, Backoff: quick, Timeout: 20 * time.Second})
	s.mux.On("steps", onceq.HandlerFunc(s.steps), &onceq.JobOptions{Backoff: quick, MaxAttempts: 12})
	return s
}

// n draws a number below most.
func (s *soak) n(most int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rnd.IntN(most)
}

// bad draws whether something goes wrong now.
func (s *soak) bad(percent int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.calm && s.rnd.IntN(100) < percent
}

func (s *soak) storeFault(onceqtest.Call) faulty.Faults {
	if f, on := s.weather.storeFault(); on {
		return f
	}
	if !s.bad(20) {
		return nil
	}
	switch s.n(6) {
	case 0:
		return faulty.Fail(rig.ErrBoom)
	case 1:
		return faulty.Lose(rig.ErrBoom)
	case 2:
		return faulty.Slow(time.Duration(s.n(8000)) * time.Millisecond)
	case 3:
		return faulty.Slow(time.Duration(s.n(8000)) * time.Millisecond).With(faulty.Lose(rig.ErrBoom))
	case 4:
		return faulty.Hang()
	}
	return faulty.Panic("store")
}

func (s *soak) brokerFault(_ context.Context, c onceqtest.Call) faulty.Faults {
	if f, on := s.weather.brokerFault(c); on {
		return f
	}
	if !s.bad(20) {
		return nil
	}
	d := time.Duration(s.n(8000)) * time.Millisecond
	switch s.n(6) {
	case 0:
		return faulty.Fail(rig.ErrBoom)
	case 1:
		return faulty.Lose(rig.ErrBoom)
	case 2:
		return faulty.Fail(broker.ErrThrottled)
	case 3:
		return faulty.Slow(d)
	case 4:
		return faulty.SlowReply(d)
	}
	return faulty.Err(rig.ErrBoom, s.n(2) == 0).Only(s.n(max(1, c.Entries)))
}

// work is how every handler begins. It takes some time, and may end in any way before anything has
// happened.
func (s *soak) work(ctx context.Context, j *onceq.Job) error {
	s.mu.Lock()
	s.starts[j.Key().Key]++
	s.mu.Unlock()
	if d := time.Duration(s.n(20_000)) * time.Millisecond; s.n(4) > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return ctx.Err()
		}
	} else {
		rig.Takes(d) // deaf to its context
	}
	hostOf(ctx).stands()
	switch s.n(12) {
	case 0:
		return rig.ErrBoom
	case 1:
		return onceq.RetryAfter(time.Duration(s.n(5000))*time.Millisecond, rig.ErrBoom)
	case 2:
		panic("before")
	case 3:
		if s.n(4) == 0 {
			return onceq.Permanent(rig.ErrBoom)
		}
	}
	return nil
}

// transaction has its effect in the store's own database, with its completion.
func (s *soak) transaction(ctx context.Context, j *onceq.Job) error {
	if err := s.work(ctx, j); err != nil {
		return err
	}
	j.Join()
	if s.n(10) == 0 {
		return nil // it was rolled back
	}
	s.commit(j)
	switch s.n(6) {
	case 0:
		return rig.ErrBoom
	case 1:
		return onceq.Permanent(rig.ErrBoom)
	case 2:
		panic("after")
	}
	return nil
}

// commit is the transaction: the effect and the completion are one.
func (s *soak) commit(j *onceq.Job) {
	l := j.Lease()
	s.mu.Lock()
	defer s.mu.Unlock()
	as, err := s.st.Store.Settle(context.Background(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Done, Retain: j.Retain()}})
	if err == nil && as[0].Err == nil && as[0].Status == dedupe.Done {
		s.commits[j.Key().Key]++
	}
}

// atMostOnce has its effect elsewhere, without a key. Its owner chose to park the job when nobody
// knows whether the effect happened.
func (s *soak) atMostOnce(ctx context.Context, j *onceq.Job) error {
	if err := s.work(ctx, j); err != nil {
		return err
	}
	s.mu.Lock()
	s.outside[j.Key().Key]++
	s.mu.Unlock()
	if s.n(8) == 0 {
		panic("after")
	}
	return nil
}

// host runs workers one after the other, each on a machine of its own, until ctx ends. Some are
// drained, some crash.
func (s *soak) host(ctx context.Context) {
	for ctx.Err() == nil {
		m := s.machine()
		w, err := rig.NewWorker(rig.Setup{
			ProcessorConfig: onceq.ProcessorConfig{
				Handler: s.mux, Store: m.store, Scope: rig.Scope,
				Lease: 12 * time.Second, SettleTimeout: 4 * time.Second, CallTimeout: 2 * time.Second,
			},
			WorkerConfig: onceq.WorkerConfig{
				DeadLetter:  s.dlq,
				Concurrency: 1 + s.n(12), Visibility: 12 * time.Second, DrainTimeout: time.Duration(s.n(10_000)) * time.Millisecond,
			},
			Broker: m,
		})
		if err != nil {
			s.t.Error(err)
			return
		}
		run, end := context.WithTimeout(m.context(ctx), time.Duration(3+s.n(120))*time.Second)
		if s.isCalm() {
			end()
			run, end = context.WithCancel(m.context(ctx))
		}
		m.drain = end
		s.up(m)
		crash := time.AfterFunc(time.Duration(3+s.n(60))*time.Second, func() {
			if s.bad(60) {
				m.dead.Store(true)
				end()
			}
		})
		if err := w.Run(run); err != nil {
			if _, drained := errors.AsType[*onceq.DrainError](err); !drained {
				s.t.Errorf("Run: %v", err)
			}
		}
		crash.Stop()
		s.down(m)
		end()
	}
}

// up notes a machine that is up.
func (s *soak) up(m *machine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts = append(s.hosts, m)
}

func (s *soak) down(m *machine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts = slices.DeleteFunc(s.hosts, func(o *machine) bool { return o == m })
}

// episodes lets one follow the other, with calm in between, beside all that goes wrong call by
// call. In the middle of every other one all hosts are drained: a deploy.
func (s *soak) episodes(until time.Time) {
	for {
		rig.Takes(time.Duration(60+s.n(120)) * time.Second)
		lasts := time.Duration(30+s.n(60)) * time.Second
		if time.Until(until) < lasts {
			return
		}
		var still *machine
		s.mu.Lock()
		if len(s.hosts) > 0 {
			still = s.hosts[0]
		}
		s.mu.Unlock()
		s.weather.begin(episode(1+s.n(int(lastEpisode))), lasts, still)
		part := time.Duration(s.n(int(lasts)))
		rig.Takes(part)
		if s.n(2) == 0 {
			s.deploy()
		}
		rig.Takes(lasts - part)
	}
}

// deploy drains all hosts; others take their places.
func (s *soak) deploy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.hosts {
		m.drain()
	}
}

func (s *soak) isCalm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calm
}

// send puts the jobs into the queue, some of them twice, as a producer does whose first reply was
// lost.
func (s *soak) send() (keys []string) {
	for i := range soakJobs {
		m := rig.Message(fmt.Sprintf("k%03d", i))
		m.Meta.Type = typeOf(i)
		if s.q.Limits().RequireGroup || i%5 == 0 {
			m.Group = fmt.Sprint("g", i%20)
		}
		keys = append(keys, m.Meta.Key)
		ms := []broker.Outgoing{m}
		for s.n(4) == 0 {
			ms = append(ms, ms[0])
		}
		for n := range ms {
			if err := onceq.Send(s.t.Context(), s.q, ms[n:n+1]); err != nil {
				s.t.Fatal(err)
			}
		}
		if s.n(3) == 0 {
			rig.Takes(time.Duration(s.n(20_000)) * time.Millisecond)
		}
	}
	return keys
}

func (s *soak) run() {
	ctx, cancel := context.WithCancel(s.t.Context())
	var hosts sync.WaitGroup
	for range 3 {
		hosts.Go(func() { s.host(ctx) })
	}
	keys := s.send()
	s.q.SetFault(s.brokerFault)
	hosts.Go(func() { s.episodes(time.Now().Add(soakTrouble)) })
	hosts.Go(func() { s.operator(keys, time.Now().Add(soakTrouble)) })
	rig.Pass(soakTrouble)
	s.mu.Lock()
	s.calm = true
	s.mu.Unlock()
	rig.Pass(3 * time.Hour)
	cancel()
	hosts.Wait()
	rig.Pass(time.Hour) // for what crashed machines have left behind
	s.check(keys)
}

// check is what the soak is for.
func (s *soak) check(keys []string) {
	if n := rig.Depth(s.t, s.q); n != 0 {
		s.t.Errorf("%d messages are still in the queue", n)
	}
	letters := s.letters()
	ends := make(map[string]int)
	for i, k := range keys {
		typ := typeOf(i)
		rs, err := s.st.Store.Get(s.t.Context(), []dedupe.Key{{Scope: rig.Scope + ":" + typ, Key: k}})
		if err != nil || rs[0] == nil {
			s.t.Fatalf("%s is lost: there is no record, %v", k, err)
		}
		rec := rs[0]
		ends[rec.Status.String()]++
		switch rec.Status {
		case dedupe.Done:
			if typ == "steps" {
				s.checkSteps(rec.Key)
			}
		case dedupe.Failed, dedupe.Parked:
			if rec.ErrClass == onceq.ClassCancelled {
				break // without a letter
			}
			if !letters[letterOf{k, rec.Fence}] {
				s.t.Errorf("%s is lost: it is %v with fence %d, and there is no such letter", k, rec.Status, rec.Fence)
			}
		default:
			s.t.Errorf("%s is lost: it is %v, with an empty queue", k, rec.Status)
		}
		if s.cancelled[k] && rec.ErrClass != onceq.ClassCancelled {
			s.t.Errorf("%s was cancelled, and is %v", k, rec.Status)
		}
		want := 0
		if strings.HasPrefix(typ, "tx-") && rec.Status == dedupe.Done {
			want = 1
		}
		if n := s.commits[k]; n != want {
			s.t.Errorf("%s is %v, and its effect was committed %d times", k, rec.Status, n)
		}
		if n := s.outside[k]; n > 1 {
			s.t.Errorf("%s had its effect elsewhere %d times, and its policy is Park", k, n)
		}
		if n := s.outside[k]; typ == "once" && rec.Status == dedupe.Done && n != 1 {
			s.t.Errorf("%s is done, and its effect happened %d times", k, n)
		}
	}
	if s.t.Failed() {
		for i, k := range keys {
			s.t.Logf("%s:%s", k, s.timeLine(dedupe.Key{Scope: rig.Scope + ":" + typeOf(i), Key: k}))
		}
	}
	starts := 0
	for _, n := range s.starts {
		starts += n
	}
	s.t.Logf("%d starts of %d jobs, which are %v; %d letters, %d cancelled", starts, len(keys), ends, len(letters), len(s.cancelled))
}

type letterOf struct {
	key   string
	fence uint64
}

func (s *soak) letters() map[letterOf]bool {
	seen := make(map[letterOf]bool)
	for {
		ms, err := s.dlq.Receive(s.t.Context(), broker.ReceiveOptions{Max: 10})
		if err != nil {
			s.t.Fatal(err)
		}
		if len(ms) == 0 {
			return seen
		}
		for _, m := range ms {
			if m.Meta == nil || m.Meta.Dead == nil {
				s.t.Errorf("a letter has lost its reason: %q", m.Body)
				continue
			}
			seen[letterOf{m.Meta.Key, m.Meta.Dead.Fence}] = true
			if err := s.dlq.Ack(s.t.Context(), []broker.Receipt{m.Receipt}); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}
