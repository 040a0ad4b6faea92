package ops_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/ops"
)

// canaries replays thirteen letters after two canaries. job is the worker's part of each letter.
func (r *rig) canaries(change func(*ops.ReplaySpec), job func(ref dlq.Ref, k dedupe.Key)) (rep dlq.Report, batches []dlq.Progress, err error) {
	r.Helper()
	for i := range 13 {
		r.died(fmt.Sprint("k-", i))
	}
	spec := ops.ReplaySpec{Queue: "orders", Reason: "bank back", ReplayOptions: dlq.ReplayOptions{
		Canary: 2, CanaryWait: 20 * time.Second, EachBatch: func(b dlq.Progress) { batches = append(batches, b) },
	}}
	if change != nil {
		change(&spec)
	}
	p := must(r.ops.PlanReplay(r.Context(), spec))
	p.Spec.Each = func(s dlq.Step) {
		if s.Result == dlq.Replayed && job != nil {
			ref := s.Entry.Ref()
			job(ref, dedupe.Key(ref.Record))
		}
	}
	rep, _, err = r.ops.Replay(r.Context(), p)
	return rep, batches, err
}

// TestCanariesPassWhenDone: canaries prove something by being done. Jobs that nobody runs, that run
// still, that are to be tried again or that nobody can tell of prove nothing, and the others stay.
func TestCanariesPassWhenDone(t *testing.T) {
	type part struct {
		name string
		job  func(r *rig, ref dlq.Ref, k dedupe.Key)
		back int
		want dlq.Became // without its Failed
		soon bool       // it ends before CanaryWait
	}
	for _, c := range []part{
		{name: "nobody runs them", want: dlq.Became{Waiting: 2}},
		{name: "they run", want: dlq.Became{Running: 2}, job: func(r *rig, ref dlq.Ref, k dedupe.Key) { r.reclaim(k, ref.Fence) }},
		{name: "one is done", want: dlq.Became{Done: 1, Waiting: 1}, job: func(r *rig, ref dlq.Ref, k dedupe.Key) {
			if ref.Key == "k-0" {
				r.settle(r.reclaim(k, ref.Fence), dedupe.Done, "")
			}
		}},
		{name: "they are given back", want: dlq.Became{Waiting: 2}, job: func(r *rig, ref dlq.Ref, k dedupe.Key) {
			r.settle(r.reclaim(k, ref.Fence), dedupe.Released, "")
		}},
		{name: "they are tried again", soon: true, back: 2, job: func(r *rig, ref dlq.Ref, k dedupe.Key) {
			r.settle(r.reclaim(k, ref.Fence), dedupe.Released, "timeout")
		}},
		{name: "they run again after an error", soon: true, back: 2, job: func(r *rig, ref dlq.Ref, k dedupe.Key) {
			r.settle(r.reclaim(k, ref.Fence), dedupe.Released, "timeout")
			r.reclaim(k, 0)
		}},
		{name: "one failed for good", soon: true, back: 1, want: dlq.Became{Done: 1}, job: func(r *rig, ref dlq.Ref, k dedupe.Key) {
			if ref.Key == "k-0" {
				r.settle(r.reclaim(k, ref.Fence), dedupe.Failed, "timeout")
			} else {
				r.settle(r.reclaim(k, ref.Fence), dedupe.Done, "")
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, ops.Options{}, func(r *rig) {
				began := time.Now()
				rep, batches, err := r.canaries(nil, func(ref dlq.Ref, k dedupe.Key) {
					if c.job != nil {
						c.job(r, ref, k)
					}
				})
				e, ok := errors.AsType[*dlq.CanaryError](err)
				if !ok || rep.Replayed != 2 || len(e.Back) != c.back || e.Batch != 2 || len(batches) != 1 {
					t.Fatalf("%v, %v, %+v", err, rep, batches)
				}
				if got := (dlq.Became{Done: e.Became.Done, Running: e.Became.Running, Waiting: e.Became.Waiting, Unknown: e.Became.Unknown}); !equalBecame(got, c.want) {
					t.Errorf("%+v, want %+v", got, c.want)
				}
				if took := time.Since(began); took < 15*time.Second != c.soon {
					t.Errorf("it took %v", took)
				}
				if c.back == 0 && !strings.Contains(err.Error(), "of 2 letters watched for 20s "+e.Became.String()) {
					t.Error(err)
				}
			})
		})
	}
}

func equalBecame(a, b dlq.Became) bool {
	return a.Done == b.Done && a.Running == b.Running && a.Waiting == b.Waiting && a.Unknown == b.Unknown
}

// TestCanariesThatNobodyCanTellOf: a store that does not answer, or a letter that names no record,
// proves nothing.
func TestCanariesThatNobodyCanTellOf(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		_, _, err := r.canaries(nil, func(dlq.Ref, dedupe.Key) {
			r.store.FailsAs(func(call onceqtest.Op) error {
				if call == "get" {
					return errors.New("no")
				}
				return nil
			})
		})
		if e, ok := errors.AsType[*dlq.CanaryError](err); !ok || e.Became.Unknown != 2 {
			t.Error(err)
		}
	})
	bubble(t, ops.Options{}, func(r *rig) {
		for _, k := range []string{"old-1", "old-2", "old-3"} {
			r.died(k, func(d *broker.Letter) { d.Scope, d.Key = "", "" })
		}
		p := must(r.ops.PlanReplay(r.Context(), ops.ReplaySpec{Queue: "orders", Reason: "x", ReplayOptions: dlq.ReplayOptions{Canary: 2, CanaryWait: 20 * time.Second}}))
		_, _, err := r.ops.Replay(r.Context(), p)
		if e, ok := errors.AsType[*dlq.CanaryError](err); !ok || e.Became.Unknown != 2 {
			t.Error(err)
		}
	})
}

// TestCanaryAny: who says so goes on when no letter came back, whatever the store says.
func TestCanaryAny(t *testing.T) {
	for _, end := range []dedupe.Status{dedupe.Claimed, dedupe.Released} {
		bubble(t, ops.Options{}, func(r *rig) {
			rep, batches, err := r.canaries(func(s *ops.ReplaySpec) { s.CanaryAny = true }, func(ref dlq.Ref, k dedupe.Key) {
				l := r.reclaim(k, ref.Fence)
				if end == dedupe.Released {
					r.settle(l, end, "timeout")
				}
			})
			if err != nil || rep.Replayed != 13 || len(batches) != 1 || batches[0].Done != 0 || batches[0].Watched < 20*time.Second {
				t.Errorf("%v, %v, %+v", err, rep, batches)
			}
		})
	}
}

// TestCanariesAreRefused: nothing is sent while nobody would run it: while a rule pauses the queue,
// the letters' type or scope, or while all workers that have a seat are gone.
func TestCanariesAreRefused(t *testing.T) {
	pause := func(change func(*control.Rule)) func(*rig) {
		return func(r *rig) {
			u := control.Rule{Do: control.Pause, Queue: "orders", By: "bob", Reason: "bank down", Until: time.Now().Add(time.Hour)}
			change(&u)
			must(controlstore.Change(r.Context(), r.store, func(rs *controlstore.Rules) error { rs.Rules = append(rs.Rules, u); return nil }))
		}
	}
	for _, c := range []struct {
		name    string
		prepare func(*rig)
		want    string
	}{
		{"queue", pause(func(*control.Rule) {}), "orders is paused until "},
		{"type", pause(func(u *control.Rule) { u.Type = "charge" }), "type charge of orders (scope orders:charge) is paused until "},
		{"scope", pause(func(u *control.Rule) { u.Scope = "orders" }), "is paused until "},
		{"dead workers", func(r *rig) {
			seat := must(controlstore.NewSeat(r.store, controlstore.SeatOptions{Queue: "orders", Owner: "w-1"}))
			if err := seat.Beat(r.Context(), &control.WorkerStatus{At: time.Now(), State: "running"}); err != nil {
				r.Fatal(err)
			}
			r.wait(time.Hour)
		}, "no worker of orders lives"},
		{"another type", pause(func(u *control.Rule) { u.Type = "mail" }), ""},
		{"another queue", pause(func(u *control.Rule) { u.Queue = "mails" }), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, ops.Options{}, func(r *rig) {
				c.prepare(r)
				rep, _, err := r.canaries(nil, func(ref dlq.Ref, k dedupe.Key) { r.settle(r.reclaim(k, ref.Fence), dedupe.Done, "") })
				if c.want == "" {
					if err != nil || rep.Replayed != 13 {
						t.Errorf("%v, %v", err, rep)
					}
					return
				}
				if !errors.Is(err, ops.ErrRefused) || !strings.Contains(err.Error(), c.want) || rep.Replayed != 0 {
					t.Errorf("%v, %v", err, rep)
				}
				r.wantDepths(13, 0)
			})
		})
	}
}
