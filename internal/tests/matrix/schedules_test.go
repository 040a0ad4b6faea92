package matrix

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/schedule"
)

// This file owns the cells of schedules: each call of a scheduler gone wrong in each way, beside a
// worker that runs what is sent.

// scheduledEvery are the entry's schedules: before, and after a deployment that changes it.
var scheduledEvery = [2]schedule.Schedule{schedule.Every(10 * time.Second), schedule.Every(15 * time.Second)}

const (
	scheduledName   = "bills"
	scheduledChange = 35 * time.Second // when the deployment comes
	scheduledEnds   = 95 * time.Second
)

// TestSchedules is the crash matrix of schedulers. Each instant of the schedule that holds is sent
// under the one key that its entry and its time give, and runs once. None is left out, none is sent
// that was due before the schedule was known, and what both schedules have is one job.
func TestSchedules(t *testing.T) {
	for _, b := range []*backend{memory(), sqlite()} {
		for _, deploys := range []bool{false, true} {
			t.Run(fmt.Sprint(b.name, "/deploys=", deploys), func(t *testing.T) {
				t.Parallel()
				var calls []onceqtest.Call
				b.in(t, func(t *testing.T) { calls = playScheduled(t, b, deploys, nil) })
				if t.Failed() {
					return
				}
				b.cells(t, rerun, few, calls, func(t *testing.T, fault *onceqtest.Fault) {
					b.in(t, func(t *testing.T) { playScheduled(t, b, deploys, fault) })
				})
			})
		}
	}
}

// scheduler is one process that runs schedule.Run.
type scheduler struct {
	*onceqtest.Process
	stop func()
}

// scheduler starts one.
func (w *world) scheduler(every schedule.Schedule, faults ...onceqtest.Fault) *scheduler {
	w.Helper()
	k := &scheduler{Process: new(onceqtest.Process)}
	k.At(faults...)
	conn, err := w.db.connect(k.Process)
	if err != nil {
		w.Fatal(err)
	}
	list := []schedule.Entry{{
		Name: scheduledName, Schedule: every, To: k.Producer(w.queue), CatchUp: 10 * time.Minute,
		Message: func(at time.Time) (broker.Outgoing, error) {
			return onceq.Message("", "", []byte(at.UTC().String())), nil
		},
	}}
	ctx, cancel := context.WithCancel(k.Context(context.WithoutCancel(w.Context())))
	var run sync.WaitGroup
	run.Go(func() {
		o := &schedule.Options{Logger: slog.New(slog.DiscardHandler)}
		if err := schedule.Run(ctx, k.Store(conn.store), func(context.Context) ([]schedule.Entry, error) { return list, nil }, o); err != nil {
			w.Error(err)
		}
	})
	k.stop = sync.OnceFunc(func() {
		cancel()
		run.Wait()
		conn.close()
	})
	w.Cleanup(k.stop)
	return k
}

// playScheduled plays a cell. Another scheduler starts where the first has died, and a deployment
// stops each and starts one with the changed schedule.
func playScheduled(t *testing.T, b *backend, deploys bool, fault *onceqtest.Fault) []onceqtest.Call {
	w := newWorld(t, b, rerun, scenario{name: "schedules"})
	var mu sync.Mutex
	runs := map[string]int{}
	w.handler = func(_ context.Context, _ *worker, j *onceq.Job) error {
		mu.Lock()
		defer mu.Unlock()
		m := j.Message.Meta
		if runs[m.Key]++; m.Key != "order-1" && m.Key != schedule.Key(scheduledName, m.Created) {
			t.Errorf("%s says that it was created at %v", m.Key, m.Created)
		}
		return nil
	}
	works := w.start("worker")
	var faults []onceqtest.Fault
	if fault != nil {
		faults = append(faults, *fault)
	}
	<-time.After(7 * time.Second) // an instant is not the beginning of the world
	begun := time.Now()
	first := w.scheduler(scheduledEvery[0], faults...)
	now, version, changed := first, 0, time.Time{}
	goOn := func(until time.Duration) {
		for time.Since(begun) < until {
			stands := now == first && fault != nil && fault.Kind == onceqtest.Stall && len(now.Missed()) == 0
			if isClosed(now.Dead()) || stands {
				now = w.scheduler(scheduledEvery[version])
			}
			<-time.After(b.grain())
		}
	}
	goOn(scheduledChange)
	if deploys {
		first.stop()
		now.stop()
		version, changed = 1, time.Now()
		now = w.scheduler(scheduledEvery[1])
	}
	goOn(scheduledEnds)
	end := time.Now()
	wait := b.lease + 2*b.second // for what another process has claimed, and a call that is late
	if fault != nil {
		wait += fault.Delay
	}
	goOn(scheduledEnds + 2*wait)
	first.stop()
	now.stop()
	works.end()
	retry.Rest(context.Background(), b.second)

	mu.Lock()
	defer mu.Unlock()
	ran := maps.Clone(runs)
	delete(ran, "order-1")
	due := map[string]bool{}
	for i, every := range scheduledEvery {
		from, to := begun, end
		switch {
		case !deploys && i > 0:
			continue
		case deploys && i == 0:
			to = changed
		case deploys:
			from = changed
		}
		// A scheduler may find out late since when its entry is known, where its first calls go
		// wrong. What an old schedule has not sent when all have the changed one is not sent.
		sure := from
		if fault != nil && i == 0 {
			sure = from.Add(b.lease + b.second)
		}
		for at := every.Next(from); at.Before(to); at = every.Next(at) {
			key := schedule.Key(scheduledName, at)
			due[key] = true
			if n := ran[key]; n > 1 || n == 0 && at.After(sure) && (i > 0 || !deploys || fault == nil) {
				t.Errorf("the instant %v ran %d times", at.UTC(), n)
			}
		}
	}
	for key, n := range ran {
		if at, err := time.Parse(time.RFC3339, key[len(scheduledName)+1:]); err != nil || !due[key] && at.Before(end) {
			t.Errorf("%s ran %d times, and was not due", key, n)
		}
	}
	for _, m := range w.dead() {
		t.Errorf("a letter: %+v", m.Meta)
	}
	if t.Failed() {
		t.Logf("%v, begun %v, changed %v: %v\n%v", fault, begun.UTC(), changed.UTC(), ran, first.Trace())
	}
	return first.Trace()
}
