package outages

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/coretest/worlds"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

const episodeLasts = time.Minute

// TestEpisodes lets two workers live through each episode: without a deploy, with one early in it,
// and with one shortly before its end. Nobody crashes, so each handler runs once, unless the
// episode itself says otherwise.
func TestEpisodes(t *testing.T) {
	for e := worlds.StoreAway; e <= worlds.LastEpisode; e++ {
		for name, deploy := range map[string]time.Duration{"quiet": 0, "deploy-early": 10 * time.Second, "deploy-late": episodeLasts - 3*time.Second} {
			for _, p := range []membroker.Preset{membroker.SQSStandard, membroker.SQSFIFO} {
				for _, lease := range []time.Duration{onceq.DefaultLease, 12 * time.Second} {
					t.Run(fmt.Sprintf("%v/%s/%v/%v", e, name, p, lease), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { playEpisode(t, e, deploy, p, lease) })
					})
				}
			}
		}
	}
}

// played is what happened in one worlds.Episode.
type played struct {
	mu      sync.Mutex
	running map[string]int
	starts  map[string]int
	effects map[string]int
	overlap []string
	order   map[string][]string // the first effects of each group's jobs, as they happened
}

func playEpisode(t *testing.T, e worlds.Episode, deploy time.Duration, p membroker.Preset, lease time.Duration) {
	const jobs, takesLong = 60, 45 * time.Second
	var w worlds.Weather
	happened := &played{
		running: make(map[string]int), starts: make(map[string]int), effects: make(map[string]int), order: make(map[string][]string),
	}
	// Where the store answers, no handler is cut off, so a handler may look at its context, and
	// starts once. Where the store does not answer, the handlers do not look, like one in the
	// middle of a payment.
	storeAnswers := e == worlds.ExtendHangs || e == worlds.QueueAway
	st := rig.NewStore(t)
	q := rig.NewBroker(t, membroker.Options{Preset: p})
	q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
		f, _ := w.QueueFault(c)
		return f
	})
	dead := rig.NewBroker(t, membroker.Options{Preset: p})
	host := func(ctx context.Context, m *worlds.Machine) error {
		h := onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			k := j.Key().Key
			happened.mu.Lock()
			if happened.running[k]++; happened.running[k] > 1 && e != worlds.HostStands {
				happened.overlap = append(happened.overlap, k)
			}
			happened.starts[k]++
			happened.mu.Unlock()
			defer func() { happened.mu.Lock(); happened.running[k]--; happened.mu.Unlock() }()
			d := time.Second
			if j.Message.Body[0] == 'l' {
				d = takesLong
			}
			rig.Takes(d)
			if storeAnswers && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			m.Stands()
			happened.mu.Lock()
			defer happened.mu.Unlock()
			if happened.effects[k]++; happened.effects[k] == 1 {
				g := j.Message.Group
				happened.order[g] = append(happened.order[g], k)
			}
			return nil
		})
		worker, err := rig.NewWorker(rig.Setup{
			ProcessorConfig: onceq.ProcessorConfig{
				Handler: h, Store: m.Store, Scope: rig.Scope, Lease: lease,
			},
			WorkerConfig: onceq.WorkerConfig{
				DeadLetter:  dead,
				Concurrency: 40, Visibility: lease, DrainTimeout: 50 * time.Second,
			},
			Broker: m,
		})
		if err != nil {
			return err
		}
		return worker.Run(ctx)
	}
	// hosts runs two of them until the answer is called, which waits for their drain.
	hosts := func() (end func(), first *worlds.Machine) {
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 2 {
			m := worlds.NewMachine(t, q, st.Store, &w, func(onceqtest.Call) faulty.Faults { f, _ := w.StoreFault(); return f })
			if first == nil {
				first = m
			}
			all.Go(func() {
				if err := host(ctx, m); err != nil && !(e == worlds.HostStands && m == first) {
					t.Errorf("Run: %v", err)
				}
			})
		}
		return func() { cancel(); all.Wait() }, first
	}

	var keys []string
	sent := make(map[string][]string) // by group
	for i := range jobs {
		m := rig.Message(fmt.Sprintf("%s %d", []string{"short", "long"}[i%2], i))
		if q.Limits().RequireGroup || i%4 == 0 {
			m.Group = fmt.Sprint("g", i%20)
		}
		keys = append(keys, m.Meta.Key)
		sent[m.Group] = append(sent[m.Group], m.Meta.Key)
		if err := onceq.Send(t.Context(), q, []broker.Outgoing{m}); err != nil {
			t.Fatal(err)
		}
	}
	end, first := hosts()
	rig.Pass(5 * time.Second)
	w.Begin(e, episodeLasts, first)
	if deploy > 0 {
		rig.Pass(deploy)
		old := end
		var drained sync.WaitGroup
		drained.Go(old)
		end, _ = hosts()
		drained.Wait()
	}
	rig.Pass(3 * time.Hour)
	end()
	rig.Pass(time.Hour)

	for _, k := range keys {
		rs, err := st.Store.Get(t.Context(), []dedupe.Key{rig.Key(k)})
		if err != nil || rs[0] == nil || rs[0].Status != dedupe.Done {
			t.Errorf("%s is not done: %+v, %v", k, rs[0], err)
		}
		// A handler that stands still past its lease, and does not look at its context, has its
		// effect beside that of the worker that took over.
		if n := happened.effects[k]; n != 1 && !(e == worlds.HostStands && n == 2) {
			t.Errorf("%s had %d effects, and nobody crashed", k, n)
		}
	}
	for k, n := range happened.starts {
		if storeAnswers && n != 1 {
			t.Errorf("%s was started %d times, and the store answered every call", k, n)
		}
	}
	for g, want := range sent {
		if got := happened.order[g]; q.Limits().OrderedGroups && g != "" && !slices.Equal(got, want) {
			t.Errorf("the effects of group %s came as %q, sent as %q", g, got, want)
		}
	}
	for _, k := range happened.overlap {
		t.Errorf("%s ran twice at once, and nobody stood still", k)
	}
	if n := rig.Depth(t, q); n != 0 {
		t.Errorf("%d messages are still in the queue", n)
	}
	if n := rig.Depth(t, dead); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}
