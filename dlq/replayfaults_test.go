package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// Single calls that fail, wholly or in part, before they were applied or after, are repeated within
// one replay.
func TestReplayFaults(t *testing.T) {
	faults := map[string]faulty.Faults{
		"fails":         faulty.Fail(errFault),
		"reply lost":    faulty.Lose(errFault),
		"entries fail":  faulty.Fail(errFault).Only(0).With(faulty.Fail(broker.ErrThrottled).Only(1)), // the third of all
		"entries lost":  faulty.Lose(errFault).Only(0, 1),
		"takes forever": faulty.Slow(time.Hour),
		"answers late":  faulty.SlowReply(time.Hour),
	}
	for name, f := range faults {
		for _, op := range []onceqtest.Op{onceqtest.Receive, onceqtest.Send, onceqtest.Ack, onceqtest.Nack, onceqtest.Extend} {
			t.Run(name+"/"+string(op), func(t *testing.T) {
				onEach(t, func(t *testing.T, r *rig) {
					r.putN(23)
					r.put(letterOf("stays", 99))
					r.dlq = open(t, r.dead, &dlq.Options{Visibility: 20 * time.Second})
					fault := func(_ context.Context, c onceqtest.Call) faulty.Faults {
						if c.Op == op && c.N%3 == 1 && (op != onceqtest.Receive || c.N < 9) {
							return f
						}
						return nil
					}
					r.dead.SetFault(fault)
					r.queue.SetFault(fault)
					rep := r.mustReplay(dlq.ReplayOptions{PerSecond: 2, Filter: dlq.Filter{Match: func(m *broker.Message) bool { return m.Meta.Key != "stays" }}})
					r.queue.SetFault(nil)
					r.dead.SetFault(nil)
					if rep.Replayed != 23 || len(rep.Failed)+len(rep.Skipped) > 0 {
						t.Errorf("%v", rep)
					}
					pass(time.Minute) // what could not be handed back is hidden
					r.depth(r.dead, "dead-letter queue", 1)
					sent := keys(r.drain(r.queue))
					once := slices.Compact(slices.Clone(sent))
					if len(once) != 23 {
						t.Errorf("%d of 23 were sent: %v", len(once), once)
					}
					if len(sent) != 23 && op != onceqtest.Send {
						t.Errorf("%d messages were sent for 23 letters", len(sent))
					}
				})
			})
		}
	}
}

// A letter that is never known to have been sent stays, and so does its copy; the others go on.
func TestReplayLeavesWhatIsInDoubt(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.put(letterOf("a", 1), letterOf("b", 2), letterOf("b", 2), letterOf("c", 3))
		b := refusing{r.queue}
		rep, err := r.replay(dlq.ReplayOptions{To: b})
		if err != nil {
			t.Fatal(err)
		}
		r.report(rep, 4, 2, 0, 1, 1)
		if l := rep.Failed[0]; l.Ref.Key != "b" || !strings.Contains(l.Reason, "may have been sent, or not") {
			t.Errorf("%+v", l)
		}
		r.depths(2, 2)
	})
}

// refusing fails every message with the key b.
type refusing struct{ *faulty.Broker }

func (b refusing) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	ids, errs := make([]string, len(ms)), make([]error, len(ms))
	for i := range ms {
		if ms[i].Meta.Key == "b" {
			errs[i] = errFault
			continue
		}
		one, err := b.Broker.Send(ctx, ms[i:i+1])
		if err != nil {
			return nil, err
		}
		ids[i] = one[0]
	}
	return ids, broker.JoinEntries(errs)
}

// Where nothing is taken at all, a replay ends when patience does, or at once where the queue is
// gone.
func TestReplayGivesUp(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.putN(3)
		r.queue.SetFault(func(context.Context, onceqtest.Call) faulty.Faults { return faulty.Fail(errFault) })
		began := time.Now()
		rep, err := r.replay(dlq.ReplayOptions{})
		if took := time.Since(began); !errors.Is(err, errFault) || took < dlq.DefaultRetryFor || took > dlq.DefaultRetryFor+20*time.Second || rep.Replayed != 0 || len(rep.Failed) == 0 {
			t.Errorf("%v, %v, after %v", err, rep, took)
		}
		r.depth(r.dead, "dead-letter queue", 3)
		r.queue.SetFault(nil)
		r.queue.Close()
		began = time.Now()
		if _, err = r.replay(dlq.ReplayOptions{}); !errors.Is(err, broker.ErrClosed) || time.Since(began) > time.Second {
			t.Error(err)
		}
		r.depth(r.dead, "dead-letter queue", 3)
	})
}

// When its context ends, a replay ends: the send in flight is let end, its letter acked, the others
// are handed back.
func TestReplayIsStopped(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.putN(9)
		why := errors.New("why")
		for _, at := range []string{"while it sends", "while it waits"} {
			ctx, cancel := context.WithCancelCause(context.Background())
			o := dlq.ReplayOptions{To: r.queue, PerSecond: 0.2}
			r.queue.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
				if at == "while it sends" {
					cancel(why)
					return faulty.Slow(2 * time.Second)
				}
				return nil
			})
			if at != "while it sends" {
				time.AfterFunc(11*time.Second, func() { cancel(why) })
			}
			began := time.Now()
			rep, err := r.dlq.Replay(ctx, o)
			r.queue.SetFault(nil)
			want := 1
			if at != "while it sends" {
				want = 3
			}
			if !errors.Is(err, why) || rep.Replayed != want || rep.Unacked != 0 || time.Since(began) > 12*time.Second {
				t.Errorf("%s: %v, %v, after %v", at, err, rep, time.Since(began))
			}
		}
		r.depths(5, 4)
	})
}

// A panic of the caller's own functions is the caller's; nothing stays hidden by it.
func TestReplayPanics(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.putN(5)
		for name, o := range map[string]dlq.ReplayOptions{
			"Edit":  {Edit: func(*broker.Outgoing) error { panic("Edit's") }},
			"Match": {Filter: dlq.Filter{Match: func(*broker.Message) bool { panic("Match's") }}},
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("the panic of %s was swallowed", name)
					}
				}()
				_, _ = r.replay(o)
			}()
			r.depths(5, 0)
		}
	})
}

// A letter whose ack comes too late is acked when it comes again, and not sent a second time.
func TestReplayAcksWhatComesAgain(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.putN(3)
		r.dead.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			switch {
			case c.Op == onceqtest.Extend:
				return faulty.Fail(errFault)
			case c.Op == onceqtest.Ack && c.N < 3:
				return faulty.Fail(errFault)
			}
			return nil
		})
		slow := 0
		r.queue.SetFault(func(context.Context, onceqtest.Call) faulty.Faults {
			slow++
			return faulty.SlowReply(4 * time.Second)
		})
		r.dlq = open(t, r.dead, &dlq.Options{Visibility: max(time.Second, r.dead.Limits().MinHold), Wait: 20 * time.Second})
		rep := r.mustReplay(dlq.ReplayOptions{PerSecond: 0.1})
		if rep.Replayed != 3 || rep.Unacked != 0 {
			t.Errorf("%v", rep)
		}
		r.queue.SetFault(nil)
		r.dead.SetFault(nil)
		r.depths(0, 3)
	})
}

// A plan, and a dry run, take nothing out of the queue, not even what comes again because it could
// not be held: nothing was sent of it.
func TestDryRunsKeepWhatComesAgain(t *testing.T) {
	for name, dry := range map[string]func(*rig) error{
		"a plan of a replay": func(r *rig) error {
			_, err := r.dlq.PlanReplay(r.t.Context(), dlq.ReplayOptions{To: r.queue})
			return err
		},
		"a plan of a purge": func(r *rig) error {
			_, err := r.dlq.PlanPurge(r.t.Context(), dlq.PurgeOptions{All: true, NoExport: true})
			return err
		},
		"a dry replay": func(r *rig) error { _, err := r.replay(dlq.ReplayOptions{DryRun: true}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *rig) {
				r.putN(3)
				receives := 0
				r.dead.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
					switch c.Op {
					case onceqtest.Extend:
						return faulty.Fail(errFault)
					case onceqtest.Receive:
						receives++
						return faulty.SlowReply(4 * time.Second)
					}
					return nil
				})
				r.dlq = open(t, r.dead, &dlq.Options{Name: "dead", Visibility: max(time.Second, r.dead.Limits().MinHold), Wait: 20 * time.Second})
				if err := dry(r); err != nil && !errors.Is(err, dlq.ErrIncomplete) {
					t.Error(err)
				}
				if receives < 2 {
					t.Errorf("%d receives, so nothing can have come again", receives)
				}
				r.dead.SetFault(nil)
				r.depths(3, 0)
			})
		})
	}
}

// An ack that came too late is told: the letter was sent, and is still there.
func TestReplayTellsOfLateAcks(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.putN(2)
		r.dead.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Ack {
				return faulty.Fail(broker.ErrReceiptExpired).Only(0)
			}
			return nil
		})
		rep := r.mustReplay(dlq.ReplayOptions{Filter: dlq.Filter{Max: 1}})
		r.dead.SetFault(nil)
		if rep.Replayed != 1 || rep.Unacked != 1 || rep.Failed != nil {
			t.Errorf("%v", rep)
		}
	})
}

// A replay may last longer than the broker lets a letter be held: what it cannot hold comes again,
// and is not sent twice.
func TestReplayOutlastsTheLongestHold(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		const n = 30
		r.put(letterOf("stays", 99))
		r.putN(n)
		rep := r.mustReplay(dlq.ReplayOptions{
			PerSecond: 1.0 / 1800, // 15 hours
			Filter:    dlq.Filter{Match: func(m *broker.Message) bool { return m.Meta.Key != "stays" }},
		})
		r.report(rep, n+1, n, 0, 0, 0, 1)
		r.depths(1, n)
		if got := keys(r.drain(r.queue)); len(slices.Compact(got)) != n {
			t.Errorf("%v", got)
		}
	})
}

// What others hold is told, where the broker knows.
func TestReplayTellsOfLettersElsewhere(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.putN(4)
		if _, err := r.dead.Receive(context.Background(), broker.ReceiveOptions{Max: 3, Visibility: time.Minute}); err != nil {
			t.Fatal(err)
		}
		rep := r.mustReplay(dlq.ReplayOptions{})
		if rep.Replayed != 1 || rep.Elsewhere != 3 {
			t.Errorf("%v", rep)
		}
	})
}

func TestCanary(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		for _, c := range []struct {
			name  string
			comes func(o broker.Outgoing) broker.Outgoing // what becomes of a canary; none = it does not come back
			stops bool
		}{
			{"none comes back", nil, false},
			{"it fails again", func(o broker.Outgoing) broker.Outgoing { return letterOf(o.Meta.Key, o.Meta.Dead.Fence+100) }, true},
			{"by a clock that is behind", func(o broker.Outgoing) broker.Outgoing {
				return letterOf(o.Meta.Key, o.Meta.Dead.Fence+100, func(o *broker.Outgoing) { o.Meta.Dead.At = time.Now().Add(-time.Hour) })
			}, true},
			{"by the queue's own redrive", func(o broker.Outgoing) broker.Outgoing { o.Meta.Dead = nil; return o }, true},
			{"without metadata", func(o broker.Outgoing) broker.Outgoing { o.Meta = nil; return o }, true},
			{"another job fails", func(broker.Outgoing) broker.Outgoing { return letterOf("somebody else", 999) }, false},
		} {
			r.putN(12)
			began := time.Now()
			var sent []time.Duration
			rep, err := r.replay(dlq.ReplayOptions{Canary: 3, CanaryWait: 30 * time.Second, Each: func(s dlq.Step) {
				if s.Result != dlq.Replayed {
					return
				}
				if sent = append(sent, time.Since(began)); len(sent) == 2 && c.comes != nil {
					time.AfterFunc(20*time.Second, func() {
						m := r.drain(r.queue)[0]
						o := c.comes(broker.Outgoing{Body: m.Body, Meta: m.Meta, Group: m.Group})
						o.DedupID = ""
						if _, err := r.dead.Send(context.Background(), []broker.Outgoing{o}); err != nil {
							t.Error(err)
						}
					})
				}
			}})
			var back *dlq.CanaryError
			if errors.As(err, &back) != c.stops || !c.stops && err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			switch {
			case c.stops && (rep.Replayed != 3 || back.Sent != 3 || len(back.Back) != 1 || time.Since(began) > 25*time.Second):
				t.Errorf("%s: %v, %v, after %v", c.name, rep, err, time.Since(began))
			case !c.stops && (rep.Replayed != 12 || sent[2] > time.Second || sent[3] < 30*time.Second || sent[3] > 31*time.Second):
				t.Errorf("%s: %v, sent at %v", c.name, rep, sent)
			}
			pass(time.Minute)
			left := len(r.drain(r.dead))
			if want := map[bool]int{true: 10, false: 0}[c.stops]; left != want && c.comes != nil && c.name != "another job fails" {
				t.Errorf("%s: %d letters left, want %d", c.name, left, want)
			}
			r.drain(r.queue)
			pass(10 * time.Minute) // FIFO forgets the deduplication ids
		}
	})
}

// Letters without metadata that look alike are not taken for canaries that came back.
func TestCanariesThatLookAlike(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.put(letterOf("a", 0, noMeta), letterOf("a", 0, noMeta), letterOf("a", 0, noMeta))
		r.report(r.mustReplay(dlq.ReplayOptions{Canary: 1}), 3, 3)
		r.depths(0, 3)
	})
}

// A canary that could come back unseen ends the replay, because nobody knows that it has stayed
// away.
func TestCanaryInAQueueThatIsTooLong(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.putN(20)
		r.dlq = open(t, r.dead, &dlq.Options{MaxHeld: 10})
		rep, err := r.replay(dlq.ReplayOptions{Canary: 2})
		if !errors.Is(err, dlq.ErrIncomplete) || rep.Replayed != 2 {
			t.Errorf("%v, %v", err, rep)
		}
		r.depths(18, 2)
	})
}

func TestCanaryErrorIsShort(t *testing.T) {
	e := &dlq.CanaryError{Sent: 9}
	for i := range 7 {
		e.Back = append(e.Back, dlq.Ref{Key: fmt.Sprint("k", i), Class: "timeout"})
	}
	if got := e.Error(); !strings.HasSuffix(got, "of 9 letters sent 7 came back: k0 [timeout], k1 [timeout], k2 [timeout], k3 [timeout], k4 [timeout] and 2 more") {
		t.Error(got)
	}
}
