package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

func TestSettleIsRepeated(t *testing.T) {
	for name, fault := range map[string]faulty.Faults{
		"error": faulty.Fail(rig.ErrBoom), "reply lost": faulty.Lose(rig.ErrBoom), "busy": faulty.Fail(dedupe.ErrBusy), "panic": faulty.Panic("store"),
		"one hangs": faulty.Hang(), "full": faulty.Fail(dedupe.ErrFull),
	} {
		for _, result := range []error{nil, rig.ErrBoom, onceq.Permanent(rig.ErrBoom)} {
			t.Run(name, func(t *testing.T) {
				rig.Ways(fault)(t, rig.Returns(result), func(r *rig.Rig) {
					tries := 5
					if name == "one hangs" {
						tries = 1
					}
					r.Store.Set(func(s *rig.Store) { s.Fault = rig.Bads(onceqtest.Settle, tries, fault) })
					r.Send("a")
					r.RunFor(20 * time.Second)
					want := dedupe.Done
					switch result {
					case nil:
						r.WantQueue(0)
					case rig.ErrBoom:
						want = dedupe.Released
						r.WantQueue(1)
					default:
						want = dedupe.Failed
						r.Letter(onceq.ClassPermanent)
						r.WantQueue(0)
					}
					if rec := r.Record("a"); rec.Status != want || rec.Attempt != 1 {
						t.Errorf("the record is %v, attempt %d, want %v, 1", rec.Status, rec.Attempt, want)
					}
					if n := r.Seen.Started("a"); n != 1 {
						t.Errorf("%d runs", n)
					}
				}, rig.With(func(c *rig.Setup) { c.Defaults.Backoff = func(int, error) time.Duration { return time.Hour } }))
			})
		}
	}
}

// A store that is away for far longer than SettleTimeout, as in a failover: nobody waits for the
// ends, so none is given up, and no job runs again.
func TestSettleOutlastsAFailover(t *testing.T) {
	for name, fault := range map[string]faulty.Faults{"error": faulty.Fail(rig.ErrBoom), "reply lost": faulty.Lose(rig.ErrBoom), "hangs": faulty.Hang()} {
		t.Run(name, func(t *testing.T) {
			rig.Ways(fault)(t, rig.Returns(nil), func(r *rig.Rig) {
				r.Store.Set(func(s *rig.Store) {
					s.Fault = func(c onceqtest.Call) faulty.Faults {
						if c.Op == onceqtest.Claim && c.N == 1 {
							return nil
						}
						return fault
					}
				})
				r.Send("a")
				r.Start()
				rig.Pass(5 * time.Minute)
				if n := r.Logged.Count("the store does not answer"); n != 1 {
					t.Errorf("%d log records", n)
				}
				r.Store.Heals()
				rig.Pass(time.Minute)
				r.WantOutcomes("a", "done")
				r.WantQueue(0)
				if n := r.Seen.Started("a"); n != 1 || r.Q.Received("a") != 1 {
					t.Errorf("%d runs, %d receives", n, r.Q.Received("a"))
				}
			})
		})
	}
}

// A drain amid an outage: the worker tries to write ends of long ago until the hard end, because
// only then those jobs have their effect once.
func TestDrainInAnOutageOfSettlements(t *testing.T) {
	for name, fault := range map[string]faulty.Faults{"error": faulty.Fail(rig.ErrBoom), "reply lost": faulty.Lose(rig.ErrBoom), "hangs": faulty.Hang()} {
		for _, back := range []time.Duration{3 * time.Second, rig.HardEnd - 6*time.Second} {
			t.Run(name, func(t *testing.T) {
				rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
					r.Store.Set(func(s *rig.Store) {
						s.Fault = func(c onceqtest.Call) faulty.Faults {
							if c.Op == onceqtest.Settle || c.Op == onceqtest.Renew {
								return fault
							}
							return nil
						}
					})
					keys := rig.Numbered("k", 10)
					r.Send(keys...)
					r.Start()
					rig.Pass(time.Minute)
					time.AfterFunc(back, r.Store.Heals)
					if err := r.Ends(back, back+6*time.Second); err != nil {
						t.Errorf("Run: %v", err)
					}
					for _, k := range keys {
						r.WantOutcomes(k, "done")
					}
					r.WantQueue(0)
				})
			})
		}
	}
}

// A batch without an end has no hard end either. It tries to write ends of long ago for
// SettleTimeout, from its stop on.
func TestStoppedBatchInAnOutageOfSettlements(t *testing.T) {
	for away, want := range map[time.Duration]onceq.Action{63 * time.Second: onceq.Ack, time.Hour: onceq.Leave} {
		rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
			r.Store.Fails(rig.ErrBoom, onceqtest.Settle, onceqtest.Renew)
			heal := time.AfterFunc(away, r.Store.Heals)
			defer heal.Stop()
			ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
			defer cancel()
			begin := time.Now()
			got := r.Process(ctx, rig.Deliveries("a")...)
			if took := time.Since(begin); took < time.Minute || took > time.Minute+onceq.DefaultSettleTimeout {
				t.Errorf("%v: it took %v", away, took)
			}
			if got[0].Action != want {
				t.Errorf("%v: %+v", away, got[0])
			}
		})
	}
}

// A batch whose deliveries end has a hard end. After its stop it tries to write ends of long ago
// until then, not only for SettleTimeout.
func TestStoppedBatchWithAnEndInAnOutageOfSettlements(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Fails(rig.ErrBoom, onceqtest.Settle, onceqtest.Renew)
		heal := time.AfterFunc(time.Minute+3*onceq.DefaultSettleTimeout, r.Store.Heals)
		defer heal.Stop()
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		if got := r.Process(ctx, rig.Lasting(3*time.Minute, "a")...); got[0].Action != onceq.Ack {
			t.Errorf("%+v", got[0])
		}
	})
}

// A store that is away for longer than the whole drain: the jobs are named, and delivered again.
func TestDrainThatEndsBeforeAnOutage(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Fails(rig.ErrBoom, onceqtest.Settle)
		r.Send("a")
		r.Start()
		rig.Pass(time.Minute)
		var abandoned *onceq.DrainError
		if err := r.Ends(rig.HardEnd, rig.HardEnd); !errors.As(err, &abandoned) || len(abandoned.Jobs) != 1 {
			t.Errorf("Run: %v", err)
		}
		if r.Q.Acked("a") != 0 || len(r.Q.Delays("a")) != 0 {
			t.Errorf("%d acks, nacks %v", r.Q.Acked("a"), r.Q.Delays("a"))
		}
		r.Store.Heals()
		r.RunFor(5 * time.Minute)
		r.WantStatus("a", dedupe.Done)
		r.WantQueue(0)
	})
}

// A store answers other ends, and refuses one again and again. Its job is delivered again when its
// lease has ended, not earlier, and does not keep its place.
func TestSettlementThatIsRefused(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) {
			s.OnSettle = func(ts []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled {
				for i := range ts {
					if ts[i].Key.Key == "a" {
						as[i] = dedupe.Settled{Err: rig.ErrBoom}
					}
				}
				return as
			}
		})
		r.Send("a")
		r.Start()
		rig.Pass(2 * time.Second)
		r.Send("b")
		rig.Pass(10 * time.Second)
		r.WantOutcomes("a", "unsettled")
		if r.Q.Acked("a") != 0 || len(r.Q.Delays("a")) != 0 {
			t.Errorf("%d acks, nacks %v", r.Q.Acked("a"), r.Q.Delays("a"))
		}
		if n := r.Logged.Count("could not be recorded"); n != 1 {
			t.Errorf("%d log records", n)
		}
		r.Store.Set(func(s *rig.Store) { s.OnSettle = nil })
		rig.Pass(5 * time.Minute)
		r.WantStatus("a", dedupe.Done)
		r.WantQueue(0)
	})
}

// With one handler no other end can come while one is refused. The worker asks for one of its own
// after five minutes, and goes on. Where the store refuses that, too, it is away, and nothing is
// given up.
func TestSettlementThatIsRefusedToOneHandler(t *testing.T) {
	for _, whole := range []bool{false, true} { // an error of the entry, or of its call
		for _, all := range []bool{false, true} {
			t.Run(fmt.Sprintf("whole calls %v, all %v", whole, all), func(t *testing.T) {
				rig.BothWays(t, rig.Returns(nil), func(r *rig.Rig) {
					refused := func(ts []dedupe.Settlement) bool { return all || ts[0].Key.Key == "a" }
					r.Store.Set(func(s *rig.Store) {
						s.OnSettle = func(ts []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled {
							switch {
							case !refused(ts):
							case whole:
								return nil
							default:
								as[0] = dedupe.Settled{Err: rig.ErrBoom}
							}
							return as
						}
					})
					r.Send("a")
					r.Start()
					rig.Pass(2 * time.Second)
					r.Send("b")
					rig.Pass(6 * time.Minute)
					if all {
						r.WantOutcomes("a")
						r.WantOutcomes("b")
					} else {
						r.WantOutcomes("a", "unsettled", "already-done") // it was recorded, and its answer was wrong
						r.WantOutcomes("b", "done")
					}
					r.Store.Set(func(s *rig.Store) { s.OnSettle = nil })
					rig.Pass(10 * time.Minute)
					r.WantStatus("a", dedupe.Done)
					r.WantStatus("b", dedupe.Done)
					r.WantQueue(0)
				}, rig.With(func(c *rig.Setup) { c.Concurrency = 1 }))
			})
		}
	}
}

// locked is a store in which one record is locked until then: its ends are refused entry by entry,
// and nothing is written.
type locked struct {
	dedupe.Store
	key   string
	until time.Time
	err   error
}

func (s locked) Settle(ctx context.Context, ts []dedupe.Settlement) ([]dedupe.Settled, error) {
	as := make([]dedupe.Settled, len(ts))
	for i := range ts {
		if ts[i].Key.Key == s.key && time.Now().Before(s.until) {
			as[i].Err = s.err
			continue
		}
		one, err := s.Store.Settle(ctx, ts[i:i+1])
		if err != nil {
			return nil, err
		}
		as[i] = one[0]
	}
	return as, nil
}

// A lock, or a store that is full, is no error of the entry, also where other ends are answered
// meanwhile. The end is repeated for as long as it takes: given up, the job would run again.
func TestEndOfALockedRecordIsRepeated(t *testing.T) {
	for _, err := range []error{dedupe.ErrBusy, dedupe.ErrFull} {
		rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
			r.Store.Store = locked{r.Store.Store, "a", time.Now().Add(2 * time.Minute), err}
			r.Send("a")
			r.Start()
			for range 20 { // others end before, beside and after each try
				r.Send("b" + r.Since().String())
				rig.Pass(5 * time.Second)
			}
			rig.Pass(10 * time.Minute)
			r.WantStatus("a", dedupe.Done)
			r.WantOutcomes("a", "done")
			if n := r.Seen.Started("a"); n != 1 {
				t.Errorf("%v: %d runs", err, n)
			}
			r.WantQueue(0)
		})
	}
}

// Settling goes on after the contexts of Run and of the handler have ended.
func TestSettleAfterTheContextsHaveEnded(t *testing.T) {
	rig.Bubble(t, rig.WhenCut(nil), func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) { s.Fault = rig.Bads(onceqtest.Settle, 4, faulty.Fail(rig.ErrBoom)) })
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		if err := r.Stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.WantStatus("a", dedupe.Done)
		r.WantQueue(0)
	})
}

// The settlement is applied, but its answer takes a minute. A beat that finds the claim ended
// meanwhile has not lost it.
func TestSettledWithoutAnAnswer(t *testing.T) {
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) { s.Fault = rig.Bads(onceqtest.Settle, 20, faulty.Lose(rig.ErrBoom)) })
		r.Send("a")
		r.Start()
		rig.Pass(3 * time.Minute)
		r.WantOutcomes("a", "failed")
		r.Letter(onceq.ClassPermanent)
		r.WantQueue(0)
		if n := r.Q.Received("a"); n != 1 {
			t.Errorf("%d receives: the delivery was not held to the end", n)
		}
	}, rig.With(func(c *rig.Setup) { c.SettleTimeout = 2 * time.Minute }))
}

// While ends cannot be recorded, nothing new begins, because its end could not be recorded either.
func TestUnsettledJobsAreBounded(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) { s.Fault = rig.Bads(onceqtest.Settle, 1<<62, faulty.Fail(rig.ErrBoom)) })
		keys := rig.Numbered("k", 100)
		r.Send(keys...)
		r.Start()
		rig.Pass(30 * time.Second)
		started := 0
		for _, k := range keys {
			started += r.Seen.Started(k)
		}
		if started > 2*5 {
			t.Errorf("%d jobs were started, and none of them recorded", started)
		}
		r.Store.Heals()
		rig.Pass(10 * time.Minute)
		r.WantQueue(0)
	}, rig.With(func(c *rig.Setup) { c.Concurrency, c.SettleTimeout = 5, 2*time.Minute }))
}

func TestWhatIsRecorded(t *testing.T) {
	rig.BothWays(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		rec := r.Record("a")
		if got := rec.Expires.Sub(rec.Finished); got != 48*time.Hour || rec.Owner != "me" || rec.MessageID != "" {
			t.Errorf("kept for %v, owner %q, message %q, want none", got, rec.Owner, rec.MessageID)
		}
	}, rig.With(func(c *rig.Setup) { c.Retention, c.Owner = 48*time.Hour, "me" }))
	rig.BothWays(t, rig.Returns(onceq.Permanent(rig.ErrBoom)), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		if rec := r.Record("a"); rec.Status != dedupe.Failed || rec.MessageID == "" {
			t.Errorf("%v, message %q: a failed record knows its message", rec.Status, rec.MessageID)
		}
	})
	rig.BothWays(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		if rec := r.Record("a"); rec.Owner == "" || rec.Expires.Sub(rec.Finished) != onceq.DefaultRetention {
			t.Errorf("the record is %+v", rec)
		}
	})
}

// The lease is kept while its settlement is repeated: nobody else may begin meanwhile.
func TestLeaseIsKeptWhileSettling(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) { s.Fault = rig.Bads(onceqtest.Settle, 20, faulty.Fail(rig.ErrBoom)) })
		r.Send("a")
		r.Start()
		rig.Pass(time.Minute)
		if n := r.Store.Renews.Load(); n < 4 {
			t.Errorf("%d renewals in a minute", n)
		}
		rig.Pass(2 * time.Minute)
		r.WantStatus("a", dedupe.Done)
		if n := r.Seen.Started("a"); n != 1 || r.Q.Received("a") != 1 {
			t.Errorf("%d runs, %d receives", n, r.Q.Received("a"))
		}
	}, rig.With(func(c *rig.Setup) { c.SettleTimeout = 2 * time.Minute }))
}

func TestNonsenseAnswersToSettlements(t *testing.T) {
	for name, nonsense := range map[string]func(as []dedupe.Settled) []dedupe.Settled{
		"too few":        func(as []dedupe.Settled) []dedupe.Settled { return as[1:] },
		"too many":       func(as []dedupe.Settled) []dedupe.Settled { return append(as, as...) },
		"none":           func([]dedupe.Settled) []dedupe.Settled { return nil },
		"zero":           func(as []dedupe.Settled) []dedupe.Settled { return make([]dedupe.Settled, len(as)) },
		"claimed":        func(as []dedupe.Settled) []dedupe.Settled { as[0].Status = dedupe.Claimed; return as },
		"unknown status": func(as []dedupe.Settled) []dedupe.Settled { as[0].Status = 99; return as },
	} {
		t.Run(name, func(t *testing.T) {
			rig.BothWays(t, rig.Returns(nil), func(r *rig.Rig) {
				r.Store.Set(func(s *rig.Store) {
					s.OnSettle = func(_ []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled { return nonsense(slices.Clone(as)) }
				})
				r.Send("a")
				r.Start()
				rig.Pass(15 * time.Second)
				if r.Q.Acked("a") != 0 {
					t.Error("acked on an answer that says nothing")
				}
				r.Store.Set(func(s *rig.Store) { s.OnSettle = nil })
				rig.Pass(5 * time.Minute)
				r.WantStatus("a", dedupe.Done)
				r.WantQueue(0)
			})
		})
	}
}

func TestResultTooLarge(t *testing.T) {
	var set error
	h := func(_ context.Context, j *onceq.Job) error {
		set = j.SetResult(make([]byte, 2000))
		return nil
	}
	small := func(r *rig.Rig) {
		r.Store.ChangeLimits = func(l dedupe.Limits) dedupe.Limits { l.MaxResult = 1000; return l }
	}
	rig.BothWays(t, h, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		if set == nil || r.Record("a").Result != nil {
			t.Errorf("SetResult answered %v; the record is %+v", set, r.Record("a"))
		}
		r.WantStatus("a", dedupe.Done)
	}, small)
	// The store's limit is not the one that it has told. The effect has happened, and it is better
	// to lose its result than to repeat it.
	rig.BothWays(t, h, func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) {
			s.OnSettle = func(ss []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled {
				if len(ss[0].Result) > 0 {
					return []dedupe.Settled{{Err: fmt.Errorf("wrapped: %w", dedupe.ErrResultSize)}}
				}
				return as
			}
		})
		r.Send("a")
		r.RunFor(time.Second)
		if set != nil {
			t.Errorf("SetResult answered %v", set)
		}
		r.WantStatus("a", dedupe.Done)
		r.WantQueue(0)
		if n := r.Logged.Count("too large"); n != 1 {
			t.Errorf("%d log records", n)
		}
	})
}

func TestUncountedReleasesGiveTheAttemptBack(t *testing.T) {
	rig.BothWays(t, rig.WhenCut(rig.ErrBoom), func(r *rig.Rig) {
		r.Send("a")
		for i := range 5 {
			r.Start()
			rig.Pass(time.Second)
			if err := r.Stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
			if rec := r.Record("a"); rec.Status != dedupe.Released || rec.Attempt != 0 {
				t.Fatalf("after drain %d the record is %v, attempt %d", i, rec.Status, rec.Attempt)
			}
		}
		r.NoLetters()
	}, rig.Most(1))
}

func TestAttemptsAreCountedOverWorkers(t *testing.T) {
	rig.Bubble(t, rig.Returns(rig.ErrBoom), func(r *rig.Rig) {
		r.Send("a")
		for range 5 {
			r.RunFor(1500 * time.Millisecond)
		}
		rec := r.Record("a")
		r.Letter(onceq.ClassError)
		if n := r.Seen.Started("a"); n != 4 || rec.Attempt != 4 || rec.Status != dedupe.Failed {
			t.Errorf("%d runs, %+v", n, rec)
		}
	}, rig.Most(4), rig.Steady)
}

func TestMetaWinsOverTypeWinsOverDefaults(t *testing.T) {
	mux := new(onceq.Mux)
	mux.On("typed", rig.Returns(rig.ErrBoom), &onceq.JobOptions{MaxAttempts: 3, Backoff: func(int, error) time.Duration { return time.Second }})
	mux.On("plain", rig.Returns(rig.ErrBoom), nil)
	rig.SynctestMux(t, mux, func(r *rig.Rig) {
		for _, c := range []struct {
			typ  string
			meta int
			want int
		}{{"typed", 0, 3}, {"typed", 1, 1}, {"typed", 4, 4}, {"plain", 0, 2}, {"plain", 5, 5}} {
			m := rig.Message(fmt.Sprint(c.typ, c.meta))
			m.Meta.Type, m.Meta.MaxAttempts = c.typ, c.meta
			r.Put(m)
			r.RunFor(time.Minute)
			if n := r.Seen.Started(m.Meta.Key); n != c.want {
				t.Errorf("%+v: %d runs", c, n)
			}
		}
		m := rig.Message("unlimited")
		m.Meta.Type, m.Meta.MaxAttempts = "typed", -1
		r.Put(m)
		r.RunFor(time.Minute)
		if n := r.Seen.Started("unlimited"); n < 50 {
			t.Errorf("%d runs, want one a second", n)
		}
	}, rig.Most(2), rig.Steady)
}

// A store may answer an outage entry by entry, as one that is locked does. No end is given up for
// that: it would repeat the effect.
func TestOutageByEntries(t *testing.T) {
	for name, err := range map[string]error{"error": rig.ErrBoom, "busy": dedupe.ErrBusy, "full": dedupe.ErrFull} {
		t.Run(name, func(t *testing.T) {
			rig.BothWays(t, rig.Returns(nil), func(r *rig.Rig) {
				r.Store.Set(func(s *rig.Store) {
					s.OnSettle = func(ts []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled {
						for i := range as {
							as[i] = dedupe.Settled{Err: err}
						}
						return as
					}
				})
				keys := rig.Numbered("k", 5)
				r.Send(keys...)
				r.Start()
				rig.Pass(2 * time.Minute)
				r.Store.Set(func(s *rig.Store) { s.OnSettle = nil })
				rig.Pass(5 * time.Minute)
				for _, k := range keys {
					r.WantStatus(k, dedupe.Done)
					r.WantOutcomes(k, "done")
					if n := r.Seen.Started(k); n != 1 {
						t.Errorf("%q has run %d times", k, n)
					}
				}
				r.WantQueue(0)
			})
		})
	}
}
