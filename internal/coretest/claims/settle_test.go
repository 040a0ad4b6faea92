package onceq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// bads are the first n calls of the op, each with the fault.
func bads(op onceqtest.Op, n int, f faulty.Faults) func(onceqtest.Call) faulty.Faults {
	return func(c onceqtest.Call) faulty.Faults {
		if c.Op == op && c.N <= n {
			return f
		}
		return nil
	}
}

func TestSettleIsRepeated(t *testing.T) {
	for name, fault := range map[string]faulty.Faults{
		"error": faulty.Fail(errBoom), "reply lost": faulty.Lose(errBoom), "busy": faulty.Fail(dedupe.ErrBusy), "panic": faulty.Panic("store"),
		"one hangs": faulty.Hang(), "full": faulty.Fail(dedupe.ErrFull),
	} {
		for _, result := range []error{nil, errBoom, onceq.Permanent(errBoom)} {
			t.Run(name, func(t *testing.T) {
				bubble(t, returns(result), func(r *rig) {
					tries := 5
					if name == "one hangs" {
						tries = 1
					}
					r.store.set(func(s *store) { s.fault = bads(onceqtest.Settle, tries, fault) })
					r.send("a")
					r.run(20 * time.Second)
					want := dedupe.Done
					switch result {
					case nil:
						r.wantQueue(0)
					case errBoom:
						want = dedupe.Released
						r.wantQueue(1)
					default:
						want = dedupe.Failed
						r.letter(onceq.ClassPermanent)
						r.wantQueue(0)
					}
					if rec := r.record("a"); rec.Status != want || rec.Attempt != 1 {
						t.Errorf("the record is %v, attempt %d, want %v, 1", rec.Status, rec.Attempt, want)
					}
					if n := r.seen.started("a"); n != 1 {
						t.Errorf("%d runs", n)
					}
				}, with(func(c *setup) { c.Defaults.Backoff = func(int, error) time.Duration { return time.Hour } }))
			})
		}
	}
}

// A store that is away for far longer than SettleTimeout, as in a failover: nobody waits for the
// ends, so none is given up, and no job runs again.
func TestSettleOutlastsAFailover(t *testing.T) {
	for name, fault := range map[string]faulty.Faults{"error": faulty.Fail(errBoom), "reply lost": faulty.Lose(errBoom), "hangs": faulty.Hang()} {
		t.Run(name, func(t *testing.T) {
			bubble(t, returns(nil), func(r *rig) {
				r.store.set(func(s *store) {
					s.fault = func(c onceqtest.Call) faulty.Faults {
						if c.Op == onceqtest.Claim && c.N == 1 {
							return nil
						}
						return fault
					}
				})
				r.send("a")
				r.start()
				pass(5 * time.Minute)
				if n := r.log.count("the store does not answer"); n != 1 {
					t.Errorf("%d log records", n)
				}
				r.store.heals()
				pass(time.Minute)
				r.wantOutcomes("a", "done")
				r.wantQueue(0)
				if n := r.seen.started("a"); n != 1 || r.q.received("a") != 1 {
					t.Errorf("%d runs, %d receives", n, r.q.received("a"))
				}
			})
		})
	}
}

// A drain amid an outage: the worker tries to write ends of long ago until the hard end, because
// only then those jobs have their effect once.
func TestDrainInAnOutageOfSettlements(t *testing.T) {
	for name, fault := range map[string]faulty.Faults{"error": faulty.Fail(errBoom), "reply lost": faulty.Lose(errBoom), "hangs": faulty.Hang()} {
		for _, back := range []time.Duration{3 * time.Second, hardEnd - 6*time.Second} {
			t.Run(name, func(t *testing.T) {
				bubble(t, returns(nil), func(r *rig) {
					r.store.set(func(s *store) {
						s.fault = func(c onceqtest.Call) faulty.Faults {
							if c.Op == onceqtest.Settle || c.Op == onceqtest.Renew {
								return fault
							}
							return nil
						}
					})
					keys := numbered("k", 10)
					r.send(keys...)
					r.start()
					pass(time.Minute)
					time.AfterFunc(back, r.store.heals)
					if err := r.ends(back, back+6*time.Second); err != nil {
						t.Errorf("Run: %v", err)
					}
					for _, k := range keys {
						r.wantOutcomes(k, "done")
					}
					r.wantQueue(0)
				})
			})
		}
	}
}

// A batch without an end has no hard end either. It tries to write ends of long ago for
// SettleTimeout, from its stop on.
func TestStoppedBatchInAnOutageOfSettlements(t *testing.T) {
	for away, want := range map[time.Duration]onceq.Action{63 * time.Second: onceq.Ack, time.Hour: onceq.Leave} {
		bubble(t, returns(nil), func(r *rig) {
			r.store.fails(errBoom, onceqtest.Settle, onceqtest.Renew)
			heal := time.AfterFunc(away, r.store.heals)
			defer heal.Stop()
			ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
			defer cancel()
			begin := time.Now()
			got := r.process(ctx, deliveries("a")...)
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
	bubble(t, returns(nil), func(r *rig) {
		r.store.fails(errBoom, onceqtest.Settle, onceqtest.Renew)
		heal := time.AfterFunc(time.Minute+3*onceq.DefaultSettleTimeout, r.store.heals)
		defer heal.Stop()
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		if got := r.process(ctx, lasting(3*time.Minute, "a")...); got[0].Action != onceq.Ack {
			t.Errorf("%+v", got[0])
		}
	})
}

// A store that is away for longer than the whole drain: the jobs are named, and delivered again.
func TestDrainThatEndsBeforeAnOutage(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.store.fails(errBoom, onceqtest.Settle)
		r.send("a")
		r.start()
		pass(time.Minute)
		var abandoned *onceq.DrainError
		if err := r.ends(hardEnd, hardEnd); !errors.As(err, &abandoned) || len(abandoned.Jobs) != 1 {
			t.Errorf("Run: %v", err)
		}
		if r.q.acked("a") != 0 || len(r.q.delays("a")) != 0 {
			t.Errorf("%d acks, nacks %v", r.q.acked("a"), r.q.delays("a"))
		}
		r.store.heals()
		r.run(5 * time.Minute)
		r.wantStatus("a", dedupe.Done)
		r.wantQueue(0)
	})
}

// A store answers other ends, and refuses one again and again. Its job is delivered again when its
// lease has ended, not earlier, and does not keep its place.
func TestSettlementThatIsRefused(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.store.set(func(s *store) {
			s.onSettle = func(ts []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled {
				for i := range ts {
					if ts[i].Key.Key == "a" {
						as[i] = dedupe.Settled{Err: errBoom}
					}
				}
				return as
			}
		})
		r.send("a")
		r.start()
		pass(2 * time.Second)
		r.send("b")
		pass(10 * time.Second)
		r.wantOutcomes("a", "unsettled")
		if r.q.acked("a") != 0 || len(r.q.delays("a")) != 0 {
			t.Errorf("%d acks, nacks %v", r.q.acked("a"), r.q.delays("a"))
		}
		if n := r.log.count("could not be recorded"); n != 1 {
			t.Errorf("%d log records", n)
		}
		r.store.set(func(s *store) { s.onSettle = nil })
		pass(5 * time.Minute)
		r.wantStatus("a", dedupe.Done)
		r.wantQueue(0)
	})
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
		bubble(t, returns(nil), func(r *rig) {
			r.store.Store = locked{r.store.Store, "a", time.Now().Add(2 * time.Minute), err}
			r.send("a")
			r.start()
			for range 20 { // others end before, beside and after each try
				r.send("b" + r.since().String())
				pass(5 * time.Second)
			}
			pass(10 * time.Minute)
			r.wantStatus("a", dedupe.Done)
			r.wantOutcomes("a", "done")
			if n := r.seen.started("a"); n != 1 {
				t.Errorf("%v: %d runs", err, n)
			}
			r.wantQueue(0)
		})
	}
}

// Settling goes on after the contexts of Run and of the handler have ended.
func TestSettleAfterTheContextsHaveEnded(t *testing.T) {
	bubble(t, whenCut(nil), func(r *rig) {
		r.store.set(func(s *store) { s.fault = bads(onceqtest.Settle, 4, faulty.Fail(errBoom)) })
		r.send("a")
		r.start()
		pass(time.Second)
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.wantStatus("a", dedupe.Done)
		r.wantQueue(0)
	})
}

// The settlement is applied, but its answer takes a minute. A beat that finds the claim ended
// meanwhile has not lost it.
func TestSettledWithoutAnAnswer(t *testing.T) {
	bubble(t, failing, func(r *rig) {
		r.store.set(func(s *store) { s.fault = bads(onceqtest.Settle, 20, faulty.Lose(errBoom)) })
		r.send("a")
		r.start()
		pass(3 * time.Minute)
		r.wantOutcomes("a", "failed")
		r.letter(onceq.ClassPermanent)
		r.wantQueue(0)
		if n := r.q.received("a"); n != 1 {
			t.Errorf("%d receives: the delivery was not held to the end", n)
		}
	}, with(func(c *setup) { c.SettleTimeout = 2 * time.Minute }))
}

// While ends cannot be recorded, nothing new begins, because its end could not be recorded either.
func TestUnsettledJobsAreBounded(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.store.set(func(s *store) { s.fault = bads(onceqtest.Settle, 1<<62, faulty.Fail(errBoom)) })
		keys := numbered("k", 100)
		r.send(keys...)
		r.start()
		pass(30 * time.Second)
		started := 0
		for _, k := range keys {
			started += r.seen.started(k)
		}
		if started > 2*5 {
			t.Errorf("%d jobs were started, and none of them recorded", started)
		}
		r.store.heals()
		pass(10 * time.Minute)
		r.wantQueue(0)
	}, with(func(c *setup) { c.Concurrency, c.SettleTimeout = 5, 2*time.Minute }))
}

func TestWhatIsRecorded(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.send("a")
		r.run(time.Second)
		rec := r.record("a")
		if got := rec.Expires.Sub(rec.Finished); got != 48*time.Hour || rec.Owner != "me" || rec.MessageID != "" {
			t.Errorf("kept for %v, owner %q, message %q, want none", got, rec.Owner, rec.MessageID)
		}
	}, with(func(c *setup) { c.Retention, c.Owner = 48*time.Hour, "me" }))
	bubble(t, returns(onceq.Permanent(errBoom)), func(r *rig) {
		r.send("a")
		r.run(time.Second)
		if rec := r.record("a"); rec.Status != dedupe.Failed || rec.MessageID == "" {
			t.Errorf("%v, message %q: a failed record knows its message", rec.Status, rec.MessageID)
		}
	})
	bubble(t, returns(nil), func(r *rig) {
		r.send("a")
		r.run(time.Second)
		if rec := r.record("a"); rec.Owner == "" || rec.Expires.Sub(rec.Finished) != onceq.DefaultRetention {
			t.Errorf("the record is %+v", rec)
		}
	})
}

// The lease is kept while its settlement is repeated: nobody else may begin meanwhile.
func TestLeaseIsKeptWhileSettling(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.store.set(func(s *store) { s.fault = bads(onceqtest.Settle, 20, faulty.Fail(errBoom)) })
		r.send("a")
		r.start()
		pass(time.Minute)
		if n := r.store.renews.Load(); n < 4 {
			t.Errorf("%d renewals in a minute", n)
		}
		pass(2 * time.Minute)
		r.wantStatus("a", dedupe.Done)
		if n := r.seen.started("a"); n != 1 || r.q.received("a") != 1 {
			t.Errorf("%d runs, %d receives", n, r.q.received("a"))
		}
	}, with(func(c *setup) { c.SettleTimeout = 2 * time.Minute }))
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
			bubble(t, returns(nil), func(r *rig) {
				r.store.set(func(s *store) {
					s.onSettle = func(_ []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled { return nonsense(slices.Clone(as)) }
				})
				r.send("a")
				r.start()
				pass(15 * time.Second)
				if r.q.acked("a") != 0 {
					t.Error("acked on an answer that says nothing")
				}
				r.store.set(func(s *store) { s.onSettle = nil })
				pass(5 * time.Minute)
				r.wantStatus("a", dedupe.Done)
				r.wantQueue(0)
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
	small := func(r *rig) {
		r.store.limits = func(l dedupe.Limits) dedupe.Limits { l.MaxResult = 1000; return l }
	}
	bubble(t, h, func(r *rig) {
		r.send("a")
		r.run(time.Second)
		if set == nil || r.record("a").Result != nil {
			t.Errorf("SetResult answered %v; the record is %+v", set, r.record("a"))
		}
		r.wantStatus("a", dedupe.Done)
	}, small)
	// The store's limit is not the one that it has told. The effect has happened, and it is better
	// to lose its result than to repeat it.
	bubble(t, h, func(r *rig) {
		r.store.set(func(s *store) {
			s.onSettle = func(ss []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled {
				if len(ss[0].Result) > 0 {
					return []dedupe.Settled{{Err: fmt.Errorf("wrapped: %w", dedupe.ErrResultSize)}}
				}
				return as
			}
		})
		r.send("a")
		r.run(time.Second)
		if set != nil {
			t.Errorf("SetResult answered %v", set)
		}
		r.wantStatus("a", dedupe.Done)
		r.wantQueue(0)
		if n := r.log.count("too large"); n != 1 {
			t.Errorf("%d log records", n)
		}
	})
}

func TestUncountedReleasesGiveTheAttemptBack(t *testing.T) {
	bubble(t, whenCut(errBoom), func(r *rig) {
		r.send("a")
		for i := range 5 {
			r.start()
			pass(time.Second)
			if err := r.stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
			if rec := r.record("a"); rec.Status != dedupe.Released || rec.Attempt != 0 {
				t.Fatalf("after drain %d the record is %v, attempt %d", i, rec.Status, rec.Attempt)
			}
		}
		r.noLetters()
	}, most(1))
}

func TestAttemptsAreCountedOverWorkers(t *testing.T) {
	bubble(t, returns(errBoom), func(r *rig) {
		r.send("a")
		for range 5 {
			r.run(1500 * time.Millisecond)
		}
		rec := r.record("a")
		r.letter(onceq.ClassError)
		if n := r.seen.started("a"); n != 4 || rec.Attempt != 4 || rec.Status != dedupe.Failed {
			t.Errorf("%d runs, %+v", n, rec)
		}
	}, most(4), steady)
}

func TestMetaWinsOverTypeWinsOverDefaults(t *testing.T) {
	mux := new(onceq.Mux)
	mux.On("typed", returns(errBoom), &onceq.JobOptions{MaxAttempts: 3, Backoff: func(int, error) time.Duration { return time.Second }})
	mux.On("plain", returns(errBoom), nil)
	synctestMux(t, mux, func(r *rig) {
		for _, c := range []struct {
			typ  string
			meta int
			want int
		}{{"typed", 0, 3}, {"typed", 1, 1}, {"typed", 4, 4}, {"plain", 0, 2}, {"plain", 5, 5}} {
			m := message(fmt.Sprint(c.typ, c.meta))
			m.Meta.Type, m.Meta.MaxAttempts = c.typ, c.meta
			r.put(m)
			r.run(time.Minute)
			if n := r.seen.started(m.Meta.Key); n != c.want {
				t.Errorf("%+v: %d runs", c, n)
			}
		}
		m := message("unlimited")
		m.Meta.Type, m.Meta.MaxAttempts = "typed", -1
		r.put(m)
		r.run(time.Minute)
		if n := r.seen.started("unlimited"); n < 50 {
			t.Errorf("%d runs, want one a second", n)
		}
	}, most(2), steady)
}

// A store may answer an outage entry by entry, as one that is locked does. No end is given up for
// that: it would repeat the effect.
func TestOutageByEntries(t *testing.T) {
	for name, err := range map[string]error{"error": errBoom, "busy": dedupe.ErrBusy, "full": dedupe.ErrFull} {
		t.Run(name, func(t *testing.T) {
			bubble(t, returns(nil), func(r *rig) {
				r.store.set(func(s *store) {
					s.onSettle = func(ts []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled {
						for i := range as {
							as[i] = dedupe.Settled{Err: err}
						}
						return as
					}
				})
				keys := numbered("k", 5)
				r.send(keys...)
				r.start()
				pass(2 * time.Minute)
				r.store.set(func(s *store) { s.onSettle = nil })
				pass(5 * time.Minute)
				for _, k := range keys {
					r.wantStatus(k, dedupe.Done)
					r.wantOutcomes(k, "done")
					if n := r.seen.started(k); n != 1 {
						t.Errorf("%q has run %d times", k, n)
					}
				}
				r.wantQueue(0)
			})
		})
	}
}
