package dlq_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
)

// TestStop: wherever a call is stopped, each letter is in one of the two queues and none is hidden,
// at once; what was sent is not there any more. A second call does the rest.
func TestStop(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		for _, at := range []int{0, 1, 7, 10, 23} {
			pass(6 * time.Minute) // a FIFO queue has forgotten the ids of the last round
			r.many(40)
			stop := make(chan struct{})
			n := 0
			each := func(s dlq.Step) {
				if s.Result == dlq.Replayed {
					if n++; n == at {
						close(stop)
					}
				}
			}
			if at == 0 {
				close(stop)
			}
			rep, err := r.replay(dlq.ReplayOptions{Stop: stop, Each: each, PerSecond: 20})
			if !errors.Is(err, dlq.ErrStopped) || rep.Replayed < at || rep.Replayed > at+1 || rep.Unacked > 0 || len(rep.Failed) > 0 {
				t.Errorf("stopped at %d: %v, %v", at, err, rep)
			}
			r.depths(int64(40-rep.Replayed), int64(rep.Replayed))
			if rest := r.mustReplay(dlq.ReplayOptions{}); rest.Replayed != 40-rep.Replayed {
				t.Errorf("the rest: %v", rest)
			}
			if ks := keys(r.drain(r.queue)); len(ks) != 40 || len(slices.Compact(ks)) != 40 {
				t.Errorf("%d jobs were sent", len(ks))
			}
		}
		// Of a pause of minutes nothing is waited for.
		pass(6 * time.Minute)
		r.many(3)
		stop := make(chan struct{})
		time.AfterFunc(20*time.Second, func() { close(stop) })
		began := time.Now()
		if rep, err := r.replay(dlq.ReplayOptions{Stop: stop, PerSecond: 0.001}); !errors.Is(err, dlq.ErrStopped) || rep.Replayed != 1 || time.Since(began) > 25*time.Second {
			t.Errorf("%v, %v after %v", err, rep, time.Since(began))
		}
		r.depths(2, 1)
		r.drain(r.queue)
		closed := make(chan struct{})
		close(closed)
		if rep, err := r.dlq.Purge(context.Background(), dlq.PurgeOptions{All: true, NoExport: true, Stop: closed}); !errors.Is(err, dlq.ErrStopped) || rep.Purged != 0 {
			t.Errorf("%v, %v", err, rep)
		}
		if gs, err := r.dlq.GroupWith(context.Background(), dlq.GroupOptions{Stop: closed}); !errors.Is(err, dlq.ErrStopped) || len(gs) != 0 {
			t.Errorf("%v, %v", err, gs)
		}
		r.depths(2, 0)
	})
}

// TestWatching: who is told of a batch may keep it watched, its letters hidden, and may let it
// pass. A job that fails ends the replay whatever he says.
func TestWatching(t *testing.T) {
	const goOnAfter = 7 * time.Minute
	for _, fails := range []bool{false, true} {
		onEach(t, func(t *testing.T, r *rig) {
			r.many(12)
			began := time.Now()
			var told []dlq.Progress
			o := dlq.ReplayOptions{Canary: 2, CanaryWait: 10 * time.Second}
			o.Done = func(_ context.Context, batch []dlq.Ref) (dlq.Became, error) {
				if fails && time.Since(began) > goOnAfter/2 {
					return dlq.Became{Running: 1, Failed: batch[:1]}, nil
				}
				return dlq.Became{Done: 1, Running: 1}, nil
			}
			o.Watching = func(b dlq.Progress) dlq.Watch {
				told = append(told, b)
				if b.Watched >= goOnAfter {
					return dlq.GoOn
				}
				return dlq.WatchOn
			}
			rep, err := r.replay(o)
			took := time.Since(began)
			if fails {
				if _, ok := errors.AsType[*dlq.CanaryError](err); !ok || rep.Replayed != 2 || took > goOnAfter*3/4 {
					t.Errorf("%v, %v after %v", err, rep, took)
				}
				r.depths(10, 2)
			} else {
				if err != nil || rep.Replayed != 12 || took < goOnAfter || took > goOnAfter+time.Minute {
					t.Errorf("%v, %v after %v", err, rep, took)
				}
				r.depths(0, 12)
			}
			if first, last := told[0], told[len(told)-1]; first.Number != 1 || first.Sent != 2 || first.Done != 1 || first.Running != 1 || last.Watched < goOnAfter/3 {
				t.Errorf("%+v … %+v", first, last)
			}
		})
	}
}

// TestGroupWith: each failure is told once, when it was counted, as its reader may see it.
func TestGroupWith(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.many(30)
		r.put(letterOf("k-1", 2)) // a copy
		counts := map[*dlq.Group]int{}
		told := 0
		gs, err := r.dlq.GroupWith(context.Background(), dlq.GroupOptions{
			Show: func(m *broker.Message) *broker.Message {
				c := *m
				c.Meta = m.Meta.Clone()
				c.Meta.Dead.LastErr, c.Body = "hidden", nil
				return &c
			},
			Each: func(e dlq.Entry, g *dlq.Group) {
				told++
				if counts[g]++; counts[g] != g.Count || e.Message.Meta.Dead.LastErr != "hidden" || g.Sample != "hidden" || len(e.Message.Body) > 0 {
					t.Errorf("%d told, %+v", counts[g], g)
				}
			},
		})
		if err != nil || told != 30 || len(gs) != 1 || gs[0].Count != 30 || gs[0].Copies != 1 || gs[0].Error != "hidden" {
			t.Errorf("%v, %d told, %+v", err, told, gs)
		}
		r.depths(31, 0)
	})
}
