package onceq_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// outages are the ways in which a store does not answer.
var outages = map[string]faulty.Faults{
	"error": faulty.Fail(errBoom),
	"hang":  faulty.Hang(),
	"panic": faulty.Panic("store"),
	"full":  faulty.Fail(dedupe.ErrFull),
}

func TestOutageBurnsNoReceives(t *testing.T) {
	const jobs = 25
	for name, fault := range outages {
		t.Run(name, func(t *testing.T) {
			bubble(t, returns(nil), func(r *rig) {
				r.store.set(func(s *store) { s.fault = func(onceqtest.Call) faulty.Faults { return fault } })
				keys := numbered("k", jobs)
				r.send(keys...)
				r.start()
				pass(time.Minute)
				received := 0
				for _, k := range keys {
					received += r.q.received(k)
				}
				pass(time.Hour)
				for _, k := range keys {
					if n := r.q.received(k); n > 1 {
						t.Errorf("%q was received %d times", k, n)
					}
					received -= r.q.received(k)
					if n := len(r.q.delays(k)); n != 0 {
						t.Errorf("%q was nacked %d times", k, n)
					}
					if r.seen.started(k) != 0 {
						t.Errorf("%q ran unclaimed", k)
					}
				}
				if received != 0 {
					t.Errorf("%d more messages were received while the store was away", -received)
				}
				if n := r.log.count("the store does not answer"); n < 1 || n > jobs {
					t.Errorf("%d warnings", n)
				}
				r.store.heals()
				pass(time.Minute)
				for _, k := range keys {
					r.wantStatus(k, dedupe.Done)
					if n := r.q.received(k); n != 1 {
						t.Errorf("%q was received %d times", k, n)
					}
				}
				r.wantQueue(0)
			})
		})
	}
}

// Each outage is told of once.
func TestOutagesAreLogged(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.start()
		for i := range 3 {
			r.store.fails(errBoom, onceqtest.Claim)
			for j := range 5 {
				r.send(strconv.Itoa(10*i + j))
			}
			pass(time.Minute)
			if n := r.log.count("the store does not answer; claims"); n != i+1 {
				t.Errorf("%d warnings in the %d. outage", n, i+1)
			}
			r.store.heals()
			pass(time.Minute)
			r.wantQueue(0)
		}
	})
}

func TestOutageStopsReceiving(t *testing.T) {
	for name, fault := range outages {
		t.Run(name, func(t *testing.T) {
			bubble(t, returns(nil), func(r *rig) {
				r.store.set(func(s *store) { s.fault = func(onceqtest.Call) faulty.Faults { return fault } })
				r.send("a")
				r.start()
				pass(10 * time.Second) // the receive that waits is still to come back
				r.send("b")
				pass(time.Minute)
				r.send(numbered("k", 50)...)
				pass(time.Hour)
				for _, k := range numbered("k", 50) {
					if n := r.q.received(k); n != 0 {
						t.Errorf("%q was received during the outage", k)
					}
				}
				r.store.heals()
				pass(time.Minute)
				r.wantQueue(0)
			}, with(func(c *setup) { c.Concurrency = 100 }))
		})
	}
}

func TestOutageKeepsRunningJobs(t *testing.T) {
	for _, name := range []string{"error", "hang"} {
		t.Run(name, func(t *testing.T) {
			h := func(ctx context.Context, j *onceq.Job) error {
				select {
				case <-time.After(15 * time.Second):
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			bubble(t, h, func(r *rig) {
				keys := numbered("k", 60) // more than run at once: the others wait, held
				r.send(keys...)
				r.start()
				pass(time.Second)
				r.store.set(func(s *store) { s.fault = func(onceqtest.Call) faulty.Faults { return outages[name] } })
				pass(12 * time.Second)
				r.store.heals()
				pass(10 * time.Minute)
				for _, k := range keys {
					r.wantStatus(k, dedupe.Done)
					if n := r.seen.started(k); n != 1 {
						t.Errorf("%q ran %d times", k, n)
					}
					if n := r.q.received(k); n != 1 {
						t.Errorf("%q was received %d times", k, n)
					}
				}
				r.wantQueue(0)
			})
		})
	}
}

func TestWaitingMessagesOutlastAHangingStore(t *testing.T) {
	h := func(ctx context.Context, _ *onceq.Job) error { <-ctx.Done(); return context.Cause(ctx) }
	bubble(t, h, func(r *rig) {
		keys := numbered("k", 100)
		r.send(keys...)
		r.start()
		pass(time.Second)
		r.store.set(func(s *store) { s.fault = func(onceqtest.Call) faulty.Faults { return faulty.Hang() } })
		pass(20 * time.Minute)
		for _, k := range keys {
			if n := r.q.received(k); n > 1 && r.seen.started(k) == 0 {
				t.Errorf("%q was received %d times: it was not held while the store hung", k, n)
			}
		}
		r.store.heals()
	})
}

func TestClaimIsRepeatedWithItsToken(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		tokens := make(map[dedupe.Token]int)
		r.store.set(func(s *store) {
			s.onClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				tokens[rs[0].Token]++
				return cs
			}
			s.fault = func(c onceqtest.Call) faulty.Faults {
				if c.Op == onceqtest.Claim && c.N <= 6 {
					return faulty.Lose(errBoom)
				}
				return nil
			}
		})
		r.send("a")
		r.run(time.Minute)
		if len(tokens) != 1 {
			t.Errorf("%d tokens for one claim", len(tokens))
		}
		rec := r.record("a")
		if rec.Status != dedupe.Done || rec.Attempt != 1 || r.seen.started("a") != 1 {
			t.Errorf("%d starts, %+v", r.seen.started("a"), rec)
		}
		r.wantQueue(0)
	}, most(1))
}

func TestDrainDuringAnOutageHandsBack(t *testing.T) {
	for name, fault := range outages {
		t.Run(name, func(t *testing.T) {
			bubble(t, never(t), func(r *rig) {
				r.store.set(func(s *store) { s.fault = func(onceqtest.Call) faulty.Faults { return fault } })
				keys := numbered("k", 15)
				r.send(keys...)
				r.start()
				pass(time.Minute)
				begin := time.Now()
				if err := r.stop(); err != nil {
					t.Errorf("Run: %v", err)
				}
				// A claim that may have been won is given back by its token first. A claim that is
				// on its way is awaited.
				longest := onceq.DefaultSettleTimeout
				if name == "hang" {
					longest += onceq.DefaultCallTimeout
				}
				if took := time.Since(begin); took > longest {
					t.Errorf("the drain took %v, want %v", took, longest)
				}
				for _, k := range keys {
					// Twice, where the receive that was under way took it up again.
					if got := r.q.delays(k); len(got) == 0 || len(got) > 2 || slices.Max(got) > 0 {
						t.Errorf("%q was nacked with %v, want 0s", k, got)
					}
				}
			})
		})
	}
}

// stolen runs a job whose claim is taken away after ten seconds.
func stolen(t *testing.T, h onceq.HandlerFunc, f func(r *rig), options ...option) {
	bubble(t, h, func(r *rig) {
		r.send("a")
		r.start()
		pass(10 * time.Second)
		r.store.steal(t, "a")
		f(r)
	}, options...)
}

func TestLostClaimCancelsAndIsLeft(t *testing.T) {
	for _, err := range []error{nil, errBoom, onceq.Permanent(errBoom), onceq.RetryAfter(0, errBoom)} {
		var took time.Duration
		h := func(ctx context.Context, _ *onceq.Job) error {
			begin := time.Now()
			<-ctx.Done()
			took = time.Since(begin)
			if !errors.Is(context.Cause(ctx), onceq.ErrLeaseLost) {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
			return err
		}
		stolen(t, h, func(r *rig) {
			pass(15 * time.Second)
			settles := r.store.settles.Load()
			r.wantOutcomes("a", "lease-lost")
			if took > 30*time.Second {
				t.Errorf("cancelled after %v, want before the lease's deadline", took)
			}
			if rec := r.record("a"); rec.Owner != "another" || rec.Status != dedupe.Claimed || settles != 0 {
				t.Errorf("%d settlements; the record is %+v", settles, rec)
			}
			extends := r.q.extended("a")
			if r.q.acked("a") != 0 || len(r.q.delays("a")) != 0 {
				t.Errorf("acks %d, nacks %v", r.q.acked("a"), r.q.delays("a"))
			}
			pass(25 * time.Second)
			if r.q.received("a") == 1 && r.q.extended("a") > extends {
				t.Errorf("the delivery was extended after the claim was lost")
			}
			r.noLetters()
		})
	}
}

func TestLostClaimFoundAtSettle(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { takes(11 * time.Second); return nil }
	stolen(t, h, func(r *rig) {
		pass(2 * time.Second)
		r.wantOutcomes("a", "lease-lost")
		if rec := r.record("a"); rec.Owner != "another" || rec.Status != dedupe.Claimed {
			t.Errorf("the record is %+v", rec)
		}
		if r.q.acked("a") != 0 || len(r.q.delays("a")) != 0 {
			t.Errorf("acks %d, nacks %v", r.q.acked("a"), r.q.delays("a"))
		}
	}, with(func(c *setup) { c.Lease = time.Minute; c.Visibility = time.Minute }))
}

func TestUnansweredLeaseCancelsBeforeItsDeadlineAndIsSettled(t *testing.T) {
	for _, err := range []error{nil, errBoom} {
		for _, name := range []string{"error", "hang"} {
			var took time.Duration
			h := func(ctx context.Context, _ *onceq.Job) error {
				begin := time.Now()
				<-ctx.Done()
				took = time.Since(begin)
				if !errors.Is(context.Cause(ctx), onceq.ErrLeaseLost) {
					t.Errorf("the cause is %v", context.Cause(ctx))
				}
				return err
			}
			bubble(t, h, func(r *rig) {
				r.store.set(func(s *store) {
					s.fault = func(c onceqtest.Call) faulty.Faults {
						if c.Op == onceqtest.Renew {
							return outages[name]
						}
						return nil
					}
				})
				r.send("a")
				r.start()
				pass(40 * time.Second)
				if took < 20*time.Second || took >= 30*time.Second {
					t.Errorf("cancelled after %v, want a little before 30s", took)
				}
				rec := r.record("a")
				if err == nil && rec.Status != dedupe.Done {
					t.Errorf("the record is %+v", rec)
				}
				if err != nil && (rec.Status != dedupe.Released || rec.ErrClass != onceq.ClassLease) {
					t.Errorf("the record is %+v", rec)
				}
			}, with(func(c *setup) {
				c.Defaults.Backoff = func(int, error) time.Duration { return time.Hour }
			}))
		}
	}
}

// A store that answers nonsense is as good as one that does not answer.
func TestNonsenseAnswersToClaims(t *testing.T) {
	for name, nonsense := range map[string]func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim{
		"too few":          func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim { return cs[1:] },
		"too many":         func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim { return append(cs, cs...) },
		"none":             func([]dedupe.ClaimRequest, []dedupe.Claim) []dedupe.Claim { return nil },
		"zero":             func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim { return make([]dedupe.Claim, len(cs)) },
		"unknown outcome":  each(func(c *dedupe.Claim) { *c = dedupe.Claim{Outcome: 99} }),
		"another's key":    each(func(c *dedupe.Claim) { c.Lease.Key.Key = "other" }),
		"another's token":  each(func(c *dedupe.Claim) { c.Lease.Token[0]++ }),
		"no failed record": each(func(c *dedupe.Claim) { *c = dedupe.Claim{Outcome: dedupe.AlreadyFailed} }),
		"no parked record": each(func(c *dedupe.Claim) { *c = dedupe.Claim{Outcome: dedupe.IsParked} }),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, returns(nil), func(r *rig) {
				r.store.set(func(s *store) { s.onClaim = nonsense })
				keys := numbered("k", 5)
				r.send(keys...)
				r.start()
				pass(10 * time.Minute)
				for _, k := range keys {
					if r.seen.started(k) != 0 || r.q.received(k) != 1 {
						t.Errorf("%q: %d starts, %d receives", k, r.seen.started(k), r.q.received(k))
					}
				}
				r.noLetters()
				r.wantQueue(5)
				r.store.set(func(s *store) { s.onClaim = nil })
				pass(time.Minute)
				for _, k := range keys {
					r.wantStatus(k, dedupe.Done)
				}
				r.wantQueue(0)
			})
		})
	}
}

func each(change func(c *dedupe.Claim)) func([]dedupe.ClaimRequest, []dedupe.Claim) []dedupe.Claim {
	return func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
		for i := range cs {
			change(&cs[i])
		}
		return cs
	}
}

func TestStaleTwiceIsHandedBack(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		var tokens []dedupe.Token
		r.store.set(func(s *store) {
			s.onClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				if tokens = append(tokens, rs[0].Token); len(tokens) <= 2 {
					return []dedupe.Claim{{Outcome: dedupe.Stale}}
				}
				return cs
			}
		})
		r.send("a")
		r.start()
		synctest.Wait()
		pass(10 * time.Minute)
		if got := r.q.delays("a"); len(got) == 0 || got[0] != 0 || tokens[0] == tokens[1] || tokens[1] == tokens[2] {
			t.Errorf("nacked with %v; the claims' tokens were %v", got, tokens)
		}
		if got := strings.Join(r.seen.outcomes("a"), " "); !strings.HasPrefix(got, "stale") || !strings.HasSuffix(got, "done") {
			t.Errorf("the deliveries ended as %s", got)
		}
	})
}

// erring makes the store err on the claims of these keys alone.
func (r *rig) erring(err error, is func(key string) bool) {
	r.store.set(func(s *store) {
		s.onClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
			for i := range rs {
				if is(rs[i].Key.Key) {
					cs[i] = dedupe.Claim{Err: err}
				}
			}
			return cs
		}
	})
}

// A record that something else has written, or a person has mended badly, must not stop the worker
// for the other keys.
func TestRefusedClaimStopsNobody(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		bad := numbered("bad", 6) // fewer than there are slots: else nothing tells it from an outage
		r.erring(errBoom, func(key string) bool { return strings.HasPrefix(key, "bad") })
		r.send(bad[:3]...)
		r.start()
		pass(time.Minute)
		r.wantStatus("good-1", 0)
		if n := r.q.received(bad[0]); n != 1 {
			t.Errorf("%d receives while nothing told that the store is there", n)
		}
		r.send("good-1")
		pass(time.Minute)
		r.wantStatus("good-1", dedupe.Done)
		r.send(bad[3:]...)
		for n := range 20 {
			r.send("later-" + strconv.Itoa(n))
			pass(time.Minute)
		}
		for n := range 20 {
			r.wantStatus("later-"+strconv.Itoa(n), dedupe.Done)
		}
		for _, k := range bad {
			if n := r.q.received(k); n < 1 || n > 5 {
				t.Errorf("%q was received %d times", k, n)
			}
			if r.seen.started(k) != 0 {
				t.Errorf("%q ran unclaimed", k)
			}
		}
		r.wantOutcomes(bad[0], "claim-refused", "claim-refused", "claim-refused", "claim-refused")
		if n := r.log.count("the store refuses a claim"); n < len(bad) {
			t.Errorf("%d log records", n)
		}
		r.store.set(func(s *store) { s.onClaim = nil })
		pass(10 * time.Minute)
		for _, k := range bad {
			r.wantStatus(k, dedupe.Done)
		}
	})
}

// A store that errs on each entry counts as away. A store that is full says nothing about the
// entry.
func TestRefusedClaimsOfAllAreAnOutage(t *testing.T) {
	for name, c := range map[string]struct {
		err error
		is  func(string) bool
	}{
		"all":               {errBoom, func(string) bool { return true }},
		"locked, but known": {dedupe.ErrBusy, func(k string) bool { return !strings.HasPrefix(k, "known") }},
		"full, but known":   {dedupe.ErrFull, func(k string) bool { return !strings.HasPrefix(k, "known") }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, returns(nil), func(r *rig) {
				r.erring(c.err, c.is)
				keys := numbered("k", 5)
				r.send(keys...)
				r.start()
				for n := range 60 {
					r.send("known-" + strconv.Itoa(n))
					pass(time.Minute)
				}
				for _, k := range keys {
					if n := r.q.received(k); n > 1 {
						t.Errorf("%q was received %d times", k, n)
					}
					if n := len(r.q.delays(k)); n != 0 {
						t.Errorf("%q was nacked %d times", k, n)
					}
				}
				r.store.set(func(s *store) { s.onClaim = nil })
				pass(time.Minute)
				for _, k := range keys {
					r.wantStatus(k, dedupe.Done)
				}
			})
		})
	}
}
