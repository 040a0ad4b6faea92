package outages

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
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

func TestOutageBurnsNoReceives(t *testing.T) {
	const jobs = 25
	for name, fault := range rig.Outages {
		t.Run(name, func(t *testing.T) {
			rig.Ways(fault)(t, rig.Returns(nil), func(r *rig.Rig) {
				r.Store.Set(func(s *rig.Store) { s.Fault = func(onceqtest.Call) faulty.Faults { return fault } })
				keys := rig.Numbered("k", jobs)
				r.Send(keys...)
				r.Start()
				rig.Pass(time.Minute)
				received := 0
				for _, k := range keys {
					received += r.Q.Received(k)
				}
				rig.Pass(time.Hour)
				for _, k := range keys {
					if n := r.Q.Received(k); n > 1 {
						t.Errorf("%q was received %d times", k, n)
					}
					received -= r.Q.Received(k)
					if n := len(r.Q.Delays(k)); n != 0 {
						t.Errorf("%q was nacked %d times", k, n)
					}
					if r.Seen.Started(k) != 0 {
						t.Errorf("%q ran unclaimed", k)
					}
				}
				if received != 0 {
					t.Errorf("%d more messages were received while the store was away", -received)
				}
				if n := r.Logged.Count("the store does not answer"); n < 1 || n > jobs {
					t.Errorf("%d warnings", n)
				}
				r.Store.Heals()
				rig.Pass(time.Minute)
				for _, k := range keys {
					r.WantStatus(k, dedupe.Done)
					if n := r.Q.Received(k); n != 1 {
						t.Errorf("%q was received %d times", k, n)
					}
				}
				r.WantQueue(0)
			})
		})
	}
}

// Each outage is told of once.
func TestOutagesAreLogged(t *testing.T) {
	rig.BothWays(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Start()
		for i := range 3 {
			r.Store.Fails(rig.ErrBoom, onceqtest.Claim)
			for j := range 5 {
				r.Send(strconv.Itoa(10*i + j))
			}
			rig.Pass(time.Minute)
			if n := r.Logged.Count("the store does not answer; claims"); n != i+1 {
				t.Errorf("%d warnings in the %d. outage", n, i+1)
			}
			r.Store.Heals()
			rig.Pass(time.Minute)
			r.WantQueue(0)
		}
	})
}

func TestOutageStopsReceiving(t *testing.T) {
	for name, fault := range rig.Outages {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
				r.Store.Set(func(s *rig.Store) { s.Fault = func(onceqtest.Call) faulty.Faults { return fault } })
				r.Send("a")
				r.Start()
				rig.Pass(10 * time.Second) // the receive that waits is still to come back
				r.Send("b")
				rig.Pass(time.Minute)
				r.Send(rig.Numbered("k", 50)...)
				rig.Pass(time.Hour)
				for _, k := range rig.Numbered("k", 50) {
					if n := r.Q.Received(k); n != 0 {
						t.Errorf("%q was received during the outage", k)
					}
				}
				r.Store.Heals()
				rig.Pass(time.Minute)
				r.WantQueue(0)
			}, rig.With(func(c *rig.Setup) { c.Concurrency = 100 }))
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
			rig.Bubble(t, h, func(r *rig.Rig) {
				keys := rig.Numbered("k", 60) // more than run at once: the others wait, held
				r.Send(keys...)
				r.Start()
				rig.Pass(time.Second)
				r.Store.Set(func(s *rig.Store) { s.Fault = func(onceqtest.Call) faulty.Faults { return rig.Outages[name] } })
				rig.Pass(12 * time.Second)
				r.Store.Heals()
				rig.Pass(10 * time.Minute)
				for _, k := range keys {
					r.WantStatus(k, dedupe.Done)
					if n := r.Seen.Started(k); n != 1 {
						t.Errorf("%q ran %d times", k, n)
					}
					if n := r.Q.Received(k); n != 1 {
						t.Errorf("%q was received %d times", k, n)
					}
				}
				r.WantQueue(0)
			})
		})
	}
}

func TestWaitingMessagesOutlastAHangingStore(t *testing.T) {
	h := func(ctx context.Context, _ *onceq.Job) error { <-ctx.Done(); return context.Cause(ctx) }
	rig.Bubble(t, h, func(r *rig.Rig) {
		keys := rig.Numbered("k", 100)
		r.Send(keys...)
		r.Start()
		rig.Pass(time.Second)
		r.Store.Set(func(s *rig.Store) { s.Fault = func(onceqtest.Call) faulty.Faults { return faulty.Hang() } })
		rig.Pass(20 * time.Minute)
		for _, k := range keys {
			if n := r.Q.Received(k); n > 1 && r.Seen.Started(k) == 0 {
				t.Errorf("%q was received %d times: it was not held while the store hung", k, n)
			}
		}
		r.Store.Heals()
	})
}

func TestClaimIsRepeatedWithItsToken(t *testing.T) {
	rig.BothWays(t, rig.Returns(nil), func(r *rig.Rig) {
		tokens := make(map[dedupe.Token]int)
		r.Store.Set(func(s *rig.Store) {
			s.OnClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				tokens[rs[0].Token]++
				return cs
			}
			s.Fault = func(c onceqtest.Call) faulty.Faults {
				if c.Op == onceqtest.Claim && c.N <= 6 {
					return faulty.Lose(rig.ErrBoom)
				}
				return nil
			}
		})
		r.Send("a")
		r.RunFor(time.Minute)
		if len(tokens) != 1 {
			t.Errorf("%d tokens for one claim", len(tokens))
		}
		rec := r.Record("a")
		if rec.Status != dedupe.Done || rec.Attempt != 1 || r.Seen.Started("a") != 1 {
			t.Errorf("%d starts, %+v", r.Seen.Started("a"), rec)
		}
		r.WantQueue(0)
	}, rig.Most(1))
}

func TestDrainDuringAnOutageHandsBack(t *testing.T) {
	for name, fault := range rig.Outages {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
				r.Store.Set(func(s *rig.Store) { s.Fault = func(onceqtest.Call) faulty.Faults { return fault } })
				keys := rig.Numbered("k", 15)
				r.Send(keys...)
				r.Start()
				rig.Pass(time.Minute)
				begin := time.Now()
				if err := r.Stop(); err != nil {
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
					if got := r.Q.Delays(k); len(got) == 0 || len(got) > 2 || slices.Max(got) > 0 {
						t.Errorf("%q was nacked with %v, want 0s", k, got)
					}
				}
			})
		})
	}
}

// stolen runs a job whose claim is taken away after ten seconds.
func stolen(t *testing.T, h onceq.HandlerFunc, f func(r *rig.Rig), options ...rig.Option) {
	rig.BothWays(t, h, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(10 * time.Second)
		r.Store.Steal(t, "a")
		f(r)
	}, options...)
}

func TestLostClaimCancelsAndIsLeft(t *testing.T) {
	for _, err := range []error{nil, rig.ErrBoom, onceq.Permanent(rig.ErrBoom), onceq.RetryAfter(0, rig.ErrBoom)} {
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
		stolen(t, h, func(r *rig.Rig) {
			rig.Pass(15 * time.Second)
			settles := r.Store.Settles.Load()
			r.WantOutcomes("a", "lease-lost")
			if took > 30*time.Second {
				t.Errorf("cancelled after %v, want before the lease's deadline", took)
			}
			if rec := r.Record("a"); rec.Owner != "another" || rec.Status != dedupe.Claimed || settles != 0 {
				t.Errorf("%d settlements; the record is %+v", settles, rec)
			}
			extends := r.Q.Extended("a")
			if r.Q.Acked("a") != 0 || len(r.Q.Delays("a")) != 0 {
				t.Errorf("acks %d, nacks %v", r.Q.Acked("a"), r.Q.Delays("a"))
			}
			rig.Pass(25 * time.Second)
			if r.Q.Received("a") == 1 && r.Q.Extended("a") > extends {
				t.Errorf("the delivery was extended after the claim was lost")
			}
			r.NoLetters()
		})
	}
}

func TestLostClaimFoundAtSettle(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(11 * time.Second); return nil }
	stolen(t, h, func(r *rig.Rig) {
		rig.Pass(2 * time.Second)
		r.WantOutcomes("a", "lease-lost")
		if rec := r.Record("a"); rec.Owner != "another" || rec.Status != dedupe.Claimed {
			t.Errorf("the record is %+v", rec)
		}
		if r.Q.Acked("a") != 0 || len(r.Q.Delays("a")) != 0 {
			t.Errorf("acks %d, nacks %v", r.Q.Acked("a"), r.Q.Delays("a"))
		}
	}, rig.With(func(c *rig.Setup) { c.Lease = time.Minute; c.Visibility = time.Minute }))
}

func TestUnansweredLeaseCancelsBeforeItsDeadlineAndIsSettled(t *testing.T) {
	for _, err := range []error{nil, rig.ErrBoom} {
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
			rig.Bubble(t, h, func(r *rig.Rig) {
				r.Store.Set(func(s *rig.Store) {
					s.Fault = func(c onceqtest.Call) faulty.Faults {
						if c.Op == onceqtest.Renew {
							return rig.Outages[name]
						}
						return nil
					}
				})
				r.Send("a")
				r.Start()
				rig.Pass(40 * time.Second)
				if took < 20*time.Second || took >= 30*time.Second {
					t.Errorf("cancelled after %v, want a little before 30s", took)
				}
				rec := r.Record("a")
				if err == nil && rec.Status != dedupe.Done {
					t.Errorf("the record is %+v", rec)
				}
				if err != nil && (rec.Status != dedupe.Released || rec.ErrClass != onceq.ClassLease) {
					t.Errorf("the record is %+v", rec)
				}
			}, rig.With(func(c *rig.Setup) {
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
		"unknown outcome":  rig.Each(func(c *dedupe.Claim) { *c = dedupe.Claim{Outcome: 99} }),
		"another's key":    rig.Each(func(c *dedupe.Claim) { c.Lease.Key.Key = "other" }),
		"another's token":  rig.Each(func(c *dedupe.Claim) { c.Lease.Token[0]++ }),
		"no failed record": rig.Each(func(c *dedupe.Claim) { *c = dedupe.Claim{Outcome: dedupe.AlreadyFailed} }),
		"no parked record": rig.Each(func(c *dedupe.Claim) { *c = dedupe.Claim{Outcome: dedupe.IsParked} }),
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
				r.Store.Set(func(s *rig.Store) { s.OnClaim = nonsense })
				keys := rig.Numbered("k", 5)
				r.Send(keys...)
				r.Start()
				rig.Pass(10 * time.Minute)
				for _, k := range keys {
					if r.Seen.Started(k) != 0 || r.Q.Received(k) != 1 {
						t.Errorf("%q: %d starts, %d receives", k, r.Seen.Started(k), r.Q.Received(k))
					}
				}
				r.NoLetters()
				r.WantQueue(5)
				r.Store.Set(func(s *rig.Store) { s.OnClaim = nil })
				rig.Pass(time.Minute)
				for _, k := range keys {
					r.WantStatus(k, dedupe.Done)
				}
				r.WantQueue(0)
			})
		})
	}
}

func TestStaleTwiceIsHandedBack(t *testing.T) {
	rig.BothWays(t, rig.Returns(nil), func(r *rig.Rig) {
		var tokens []dedupe.Token
		r.Store.Set(func(s *rig.Store) {
			s.OnClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				if tokens = append(tokens, rs[0].Token); len(tokens) <= 2 {
					return []dedupe.Claim{{Outcome: dedupe.Stale}}
				}
				return cs
			}
		})
		r.Send("a")
		r.Start()
		synctest.Wait()
		rig.Pass(10 * time.Minute)
		if got := r.Q.Delays("a"); len(got) == 0 || got[0] != 0 || tokens[0] == tokens[1] || tokens[1] == tokens[2] {
			t.Errorf("nacked with %v; the claims' tokens were %v", got, tokens)
		}
		if got := strings.Join(r.Seen.Outcomes("a"), " "); !strings.HasPrefix(got, "stale") || !strings.HasSuffix(got, "done") {
			t.Errorf("the deliveries ended as %s", got)
		}
	})
}

// erring makes the store err on the claims of these keys alone.
func erring(r *rig.Rig, err error, is func(key string) bool) {
	r.Store.Set(func(s *rig.Store) {
		s.OnClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
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
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		bad := rig.Numbered("bad", 6) // fewer than there are slots: else nothing tells it from an outage
		erring(r, rig.ErrBoom, func(key string) bool { return strings.HasPrefix(key, "bad") })
		r.Send(bad[:3]...)
		r.Start()
		rig.Pass(time.Minute)
		r.WantStatus("good-1", 0)
		if n := r.Q.Received(bad[0]); n != 1 {
			t.Errorf("%d receives while nothing told that the store is there", n)
		}
		r.Send("good-1")
		rig.Pass(time.Minute)
		r.WantStatus("good-1", dedupe.Done)
		r.Send(bad[3:]...)
		for n := range 20 {
			r.Send("later-" + strconv.Itoa(n))
			rig.Pass(time.Minute)
		}
		for n := range 20 {
			r.WantStatus("later-"+strconv.Itoa(n), dedupe.Done)
		}
		for _, k := range bad {
			if n := r.Q.Received(k); n < 1 || n > 5 {
				t.Errorf("%q was received %d times", k, n)
			}
			if r.Seen.Started(k) != 0 {
				t.Errorf("%q ran unclaimed", k)
			}
		}
		r.WantOutcomes(bad[0], "claim-refused", "claim-refused", "claim-refused", "claim-refused")
		if n := r.Logged.Count("the store refuses a claim"); n < len(bad) {
			t.Errorf("%d log records", n)
		}
		r.Store.Set(func(s *rig.Store) { s.OnClaim = nil })
		rig.Pass(10 * time.Minute)
		for _, k := range bad {
			r.WantStatus(k, dedupe.Done)
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
		"all":               {rig.ErrBoom, func(string) bool { return true }},
		"locked, but known": {dedupe.ErrBusy, func(k string) bool { return !strings.HasPrefix(k, "known") }},
		"full, but known":   {dedupe.ErrFull, func(k string) bool { return !strings.HasPrefix(k, "known") }},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
				erring(r, c.err, c.is)
				keys := rig.Numbered("k", 5)
				r.Send(keys...)
				r.Start()
				for n := range 60 {
					r.Send("known-" + strconv.Itoa(n))
					rig.Pass(time.Minute)
				}
				for _, k := range keys {
					if n := r.Q.Received(k); n > 1 {
						t.Errorf("%q was received %d times", k, n)
					}
					if n := len(r.Q.Delays(k)); n != 0 {
						t.Errorf("%q was nacked %d times", k, n)
					}
				}
				r.Store.Set(func(s *rig.Store) { s.OnClaim = nil })
				rig.Pass(time.Minute)
				for _, k := range keys {
					r.WantStatus(k, dedupe.Done)
				}
			})
		})
	}
}
