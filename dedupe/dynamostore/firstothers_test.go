package dynamostore

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/dedupe"
)

// TestFirstBatch: ten claims at once are a process's first call, and two workers' hosts are 20
// minutes apart. Each claim is one worker's, with the service's times.
func TestFirstBatch(t *testing.T) {
	for _, aheads := range [][2]time.Duration{{10 * time.Minute, -10 * time.Minute}, {-10 * time.Minute, 10 * time.Minute}, {0, 0}} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			tables := make(map[string]*oneItem)
			answer := func(c stubCall) stubAnswer {
				mu.Lock()
				defer mu.Unlock()
				k := fmt.Sprint(fieldOf(written(c), "key"))
				if tables[k] == nil {
					tables[k] = &oneItem{tb: t}
				}
				a := tables[k].answer(c)
				a.late = 10 * time.Millisecond
				return a
			}
			won := make(map[string]dedupe.ClaimRequest)
			leases := make(map[string]dedupe.Lease)
			for _, ahead := range aheads {
				s, st := stubbed(t, answer)
				// The service has one time: each host's is put off.
				s.clock.wall = func() time.Time { return time.Now().Add(-ahead) }
				var qs []dedupe.ClaimRequest
				for n := range 10 {
					qs = append(qs, request(fmt.Sprint(n)))
				}
				for i, c := range claimAll(t, s, qs...) {
					k := qs[i].Key.Key
					switch _, is := won[k]; {
					case !is && c.Outcome == dedupe.Won:
						won[k], leases[k] = qs[i], c.Lease
					case !is || c.Outcome != dedupe.InProgress || (c.Left-qs[i].TTL-margin).Abs() > margin/2 || c.Age > margin/2:
						t.Errorf("%v: %q was answered %+v", aheads, k, c)
					}
				}
				if n := len(st.calls); n != 10 && (ahead == 0 || n != 20) || len(st.of("GetItem")) > 0 {
					t.Errorf("%v: %d calls", aheads, n)
				}
			}
			for k, q := range won {
				expectTimes(t, k, tables[k].item, q, leases[k], time.Now())
			}
		})
	}
}

// TestFirstClaimOvertaken: the host is ten minutes slow, so that to others the lease of its first
// write has ended. One of them takes the key before the second: the first claim is not won, and the
// other's fence is above all that the clock may have given before.
func TestFirstClaimOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &oneItem{tb: t}
		rival, _ := stubbed(t, table.answer)
		slow, st := stubbed(t, nil)
		slow.clock.wall = func() time.Time { return time.Now().Add(-10 * time.Minute) }
		var other dedupe.Lease
		st.answer = func(c stubCall) stubAnswer {
			if len(st.calls) == 2 {
				other = claimOne(t, rival, request("k"))
			}
			return table.answer(c)
		}
		c := claimAll(t, slow, request("k"))[0]
		if c.Outcome != dedupe.InProgress || fieldOf(table.item, "token") != other.Token.Hex() {
			t.Errorf("answered %+v; the item is %v", c, table.item)
		}
		if d := time.Since(time.UnixMilli(int64(other.Fence))); d > margin/2 {
			t.Errorf("the fence that took over is %v behind the service's time", d)
		}
	})
}

// TestFirstClaimTwice: the answer to the first write is lost, and its caller, who has not waited,
// claims with the same token again. What that was told holds for both, the fence as well.
func TestFirstClaimTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, off := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
			table := &oneItem{tb: t}
			again, _ := warmed(t, table.answer)
			s, st := stubbed(t, nil)
			s.clock.wall = func() time.Time { return time.Now().Add(off) }
			q := request("k")
			var told dedupe.Lease
			st.answer = func(c stubCall) stubAnswer {
				a := table.answer(c)
				if len(st.calls) == 1 {
					told = claimOne(t, again, q)
					a.lost = errReset
				}
				return a
			}
			if c := claimAll(t, s, q)[0]; c.Outcome != dedupe.Won || c.Lease.Fence != told.Fence || numberOf(t, table.item, "fence") != int64(told.Fence) {
				t.Errorf("%v: answered %+v; before it was %+v", off, c, told)
			}
		}
	})
}

// TestFirstClaimCrashes: a process dies between the two writes. Where its host is slow the key is
// taken at once; where it is fast, it is held as long as the host's clock is wrong, beside the
// lease, and no longer.
func TestFirstClaimCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, off := range []time.Duration{-4 * time.Minute, 4 * time.Minute} {
			table := &oneItem{tb: t}
			rival, _ := stubbed(t, table.answer)
			s, st := stubbed(t, nil)
			s.clock.wall = func() time.Time { return time.Now().Add(off) }
			st.answer = func(c stubCall) stubAnswer {
				if len(st.calls) > 1 {
					return stubAnswer{silent: true}
				}
				return table.answer(c)
			}
			q := request("k")
			if cs, err := s.Claim(within(t, time.Second), []dedupe.ClaimRequest{q}); err == nil {
				t.Errorf("answered %+v", cs)
			}
			if off > 0 {
				if c := claimAll(t, rival, request("k"))[0]; c.Outcome != dedupe.InProgress || (c.Left-q.TTL-margin-off).Abs() > 2*margin {
					t.Errorf("%v fast: answered %+v", off, c)
				}
				<-time.After(off + q.TTL + margin)
			}
			l := claimOne(t, rival, request("k"))
			if d := time.Since(time.UnixMilli(int64(l.Fence))); d.Abs() > margin/2 || l.Attempt != 2 {
				t.Errorf("%v fast: the fence is %v behind, the attempt %d", off, d, l.Attempt)
			}
		}
	})
}

// TestFirstOthers: other calls that are a process's first, on a host that is ten minutes wrong:
// what they write, and decide, is by the service's time. Only the calls that read do.
func TestFirstOthers(t *testing.T) {
	type moments = map[string]time.Time
	lease := dedupe.Lease{Key: request("k").Key, Token: newToken(), Fence: 7}
	own := func(it object) object {
		it["token"] = object{"S": lease.Token.Hex()}
		return it
	}
	end := func(n string, c stubCall) (d time.Time) {
		if c.op == "TransactWriteItems" {
			c.in = c.in["TransactItems"].([]any)[0].(object)["Update"].(object)
		}
		it := written(c)
		if n == "ttl" {
			return time.Unix(numberOf(t, it, "ttl"), 0)
		}
		return timeOf(t, it, n)
	}
	for _, ahead := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		var now time.Time
		for name, c := range map[string]struct {
			item  func() object
			do    func(t *testing.T, s *Store) error
			calls string
			check func(t *testing.T, st *stub)
		}{
			"Renew": {
				item: func() object { return own(rivalItem("claimed", moments{"lease_until": now.Add(time.Second)})) },
				do: func(t *testing.T, s *Store) error {
					rs, err := s.Renew(t.Context(), []dedupe.Renewal{{Key: lease.Key, Token: lease.Token, TTL: time.Minute}})
					if d := time.Until(rs[0].Deadline); d != time.Minute {
						t.Errorf("renewed until %v", d)
					}
					return errors.Join(err, rs[0].Err)
				},
				calls: "UpdateItem UpdateItem",
				check: func(t *testing.T, st *stub) {
					if d := end("lease_until", st.calls[1]).Sub(now.Add(time.Minute + margin)); d.Abs() > margin/2 {
						t.Errorf("the lease ends %v beside its end", d)
					}
				},
			},
			"Settle": {
				item: func() object { return own(rivalItem("claimed", moments{"lease_until": now.Add(time.Second)})) },
				do: func(t *testing.T, s *Store) error {
					as, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: lease.Key, Token: lease.Token, To: dedupe.Done, Retain: time.Minute}})
					return errors.Join(err, as[0].Err)
				},
				calls: "UpdateItem UpdateItem",
				check: func(t *testing.T, st *stub) {
					if d := end("ttl", st.calls[1]).Sub(now.Add(time.Minute)); d.Abs() > margin {
						t.Errorf("the record expires %v beside its time", d)
					}
				},
			},
			"Settle, joined": {
				item: func() object { return own(rivalItem("done", moments{"expires_at": now.Add(time.Minute)})) },
				do: func(t *testing.T, s *Store) error {
					as, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: lease.Key, Token: lease.Token, To: dedupe.Done, Joined: true}})
					if as[0].Status != dedupe.Done {
						t.Errorf("answered %+v", as[0])
					}
					return errors.Join(err, as[0].Err)
				},
				calls: "UpdateItem",
				check: func(*testing.T, *stub) {},
			},
			"Commit": {
				item: func() object { return own(rivalItem("claimed", moments{"lease_until": now.Add(time.Second)})) },
				do: func(t *testing.T, s *Store) error {
					return s.Commit(t.Context(), &job{Of: lease, Keep: time.Minute}, nil)
				},
				calls: "UpdateItem TransactWriteItems",
				check: func(t *testing.T, st *stub) {
					if d := end("ttl", st.calls[1]).Sub(now.Add(time.Minute)); d.Abs() > margin {
						t.Errorf("the record expires %v beside its time", d)
					}
				},
			},
			"Get": {
				item: func() object {
					return rivalItem("done", moments{"expires_at": now.Add(map[bool]time.Duration{true: -1, false: 1}[ahead > 0] * time.Minute)})
				},
				do: func(t *testing.T, s *Store) error {
					rs, err := s.Get(t.Context(), []dedupe.Key{lease.Key})
					if (rs[0] == nil) != (ahead > 0) {
						t.Errorf("Get gave %+v", rs[0])
					}
					return err
				},
				calls: "GetItem",
				check: func(*testing.T, *stub) {},
			},
			"Forget": { // an expired record may go whatever its fence is, a live one not
				item: func() object {
					return rivalItem("done", moments{"expires_at": now.Add(map[bool]time.Duration{true: -1, false: 1}[ahead > 0] * time.Minute)})
				},
				do: func(t *testing.T, s *Store) error {
					errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: lease.Key, Fence: 1}})
					if ahead < 0 && errors.Is(errs[0], dedupe.ErrLeaseLost) {
						return err
					}
					return errors.Join(err, errs[0])
				},
				calls: map[bool]string{true: "GetItem PutItem", false: "GetItem"}[ahead > 0],
				check: func(t *testing.T, st *stub) {
					if ahead < 0 {
						return
					}
					if d := time.Unix(numberOf(t, written(st.calls[1]), "expires_at"), 0).Sub(now.Add(dedupe.DefaultRetention)); d.Abs() > margin {
						t.Errorf("the fence is kept for %v too long", d)
					}
				},
			},
			"List": {
				item: func() object { return rivalItem("parked", nil) },
				do: func(t *testing.T, s *Store) error {
					for _, err := range s.List(t.Context(), dedupe.Query{}) {
						return err
					}
					return nil
				},
				calls: "GetItem Scan GetItem",
				check: func(t *testing.T, st *stub) {
					if d := time.Unix(numberOf(t, st.calls[1].in["ExpressionAttributeValues"].(object), ":now"), 0).Sub(now); d.Abs() > margin {
						t.Errorf("what expires is left out %v too late", d)
					}
				},
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				now = time.Now().Add(ahead)
				it := c.item()
				s, st := stubbed(t, func(q stubCall) stubAnswer {
					switch {
					case q.op == "GetItem":
						return stubAnswer{out: object{"Item": maps.Clone(it)}}
					case q.op == "Scan":
						return stubAnswer{out: object{"Items": []any{it}}}
					case q.in["ReturnValues"] == string(types.ReturnValueAllNew):
						return stubAnswer{out: object{"Attributes": it}}
					}
					return applied
				})
				st.ahead = ahead
				if err := c.do(t, s); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				var calls []string
				for _, q := range st.calls {
					calls = append(calls, q.op)
				}
				if got := strings.Join(calls, " "); got != c.calls {
					t.Errorf("%s: the calls are %s, want %s", name, got, c.calls)
					return
				}
				c.check(t, st)
			})
		}
	}
}

// TestForgetSteppedInACall: the host's clock is set ahead while Forget reads. A record that has
// expired by that time only stays.
func TestForgetSteppedInACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var off time.Duration
		s, st := warmed(t, nil)
		s.clock.wall = func() time.Time { return time.Now().Add(off) }
		st.answer = func(c stubCall) stubAnswer {
			if c.op != "GetItem" {
				return applied
			}
			off = 10 * time.Minute
			return stubAnswer{out: object{"Item": rivalItem("done", map[string]time.Time{"expires_at": time.Now().Add(5 * time.Minute)})}}
		}
		errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: request("k").Key, Fence: 1}})
		if err != nil || !errors.Is(errs[0], dedupe.ErrLeaseLost) || len(st.of("GetItem")) != 2 || len(st.calls) != 2 {
			t.Errorf("%v, %v after %v", errs, err, st.calls)
		}
	})
}

// TestFirstOthersStale: a stale token learns nothing but that, also where the time is not known.
func TestFirstOthersStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := request("k").Key
		for name, do := range map[string]func(s *Store) error{
			"Renew": func(s *Store) error {
				return renewOne(t, s, dedupe.Renewal{Key: k, Token: newToken(), TTL: time.Minute})
			},
			"Settle": func(s *Store) error { return settleErrOne(t, s, k) },
		} {
			s, st := stubbed(t, func(stubCall) stubAnswer {
				return refused(rivalItem("claimed", map[string]time.Time{"lease_until": time.Now().Add(time.Minute)}))
			})
			if err := do(s); !errors.Is(err, dedupe.ErrLeaseLost) || len(st.calls) != 2 {
				t.Errorf("%s: %v after %d calls", name, err, len(st.calls))
			}
		}
	})
}

func settleErrOne(t *testing.T, s *Store, k dedupe.Key) error {
	t.Helper()
	_, err := settle(t, s, dedupe.Settlement{Key: k, Token: newToken(), To: dedupe.Done})
	return err
}

// TestNoDate: without a Date the host's clock counts from the first answer on; an error is none.
func TestNoDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &oneItem{tb: t}
		s, st := stubbed(t, table.answer)
		st.undated = true
		q := request("k")
		l := claimAll(t, s, q)[0].Lease
		expectTimes(t, "undated", table.item, q, l, time.Now())
		if len(st.calls) != 1 {
			t.Errorf("the calls are %v", st.calls)
		}
		// A refusal is an answer.
		s, st = stubbed(t, table.answer)
		st.undated = true
		if c := claimAll(t, s, request("k"))[0]; c.Outcome != dedupe.InProgress || len(st.calls) != 1 {
			t.Errorf("a live lease was answered %+v after %d calls", c, len(st.calls))
		}
		// One with a Date is believed more.
		s.clock.wall = func() time.Time { return time.Now().Add(-10 * time.Minute) }
		table.item, st.undated = nil, false
		l = claimAll(t, s, q)[0].Lease
		expectTimes(t, "dated again", table.item, q, l, time.Now())
		st.undated = true // an answer without a Date takes nothing away
		claimAll(t, s, request("k"))
		table.item = nil
		l = claimAll(t, s, q)[0].Lease
		expectTimes(t, "undated for once", table.item, q, l, time.Now())
		sick, st := stubbed(t, func(stubCall) stubAnswer { return failing("AccessDeniedException", 400) })
		st.undated = true
		if _, err := sick.Claim(t.Context(), []dedupe.ClaimRequest{request("k")}); err == nil {
			t.Error("no error")
		}
		if _, known := sick.clock.now(); known {
			t.Error("the time is known from an error without a Date")
		}
	})
}

// TestSlowAnswers: where every answer is slow, a claim is not written for ever, and its lease is as
// much longer as its time is open.
func TestSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
			table := &oneItem{tb: t}
			s, st := stubbed(t, func(c stubCall) stubAnswer {
				a := table.answer(c)
				a.late = 8 * time.Second
				return a
			})
			st.ahead = ahead
			for _, want := range []int{2, 1, 1} {
				table.item, st.calls = nil, nil
				began := time.Now()
				l := claimAll(t, s, request("k"))[0].Lease
				check := func(what string, end, deadline time.Time, want int) {
					t.Helper()
					left, own := end.Add(-ahead).Sub(began), deadline.Sub(began)
					if left < own || left > own+20*time.Second || len(st.calls) != want {
						t.Errorf("%s: the lease ends after %v, and for its owner after %v; %d writes, want %d", what, left, own, len(st.calls), want)
					}
				}
				check("a claim", timeOf(t, table.item, "lease_until"), l.Deadline, want)
				st.calls = nil
				rs, err := s.Renew(t.Context(), []dedupe.Renewal{{Key: l.Key, Token: l.Token, TTL: time.Hour}})
				if err != nil || rs[0].Err != nil {
					t.Fatal(rs, err)
				}
				check("a renewal", leaseEnd(t, st.calls), rs[0].Deadline, 1)
			}
		}
	})
}

// TestProxyDate: what a proxy answers in the service's place says nothing of the service's time.
func TestProxyDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &oneItem{tb: t}
		s, st := stubbed(t, func(c stubCall) stubAnswer {
			if c.n == 1 {
				return stubAnswer{code: "BadGateway", status: 502, proxy: true} // its clock is an hour ahead
			}
			return table.answer(c)
		})
		q := request("k")
		expectTimes(t, "after a proxy", table.item, q, claimAll(t, s, q)[0].Lease, time.Now())
		if len(st.calls) != 2 {
			t.Errorf("the calls are %v", st.calls)
		}
	})
}

// TestWrongTimeIsNotRepeated: a clock that is ten minutes wrong spoils the signatures, too; the SDK
// mends them by the answer to the first request. That is not repeated with the wrong time in it,
// nor is what an error has stopped, but written anew.
func TestWrongTimeIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ahead := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
			for name, first := range map[string]stubAnswer{"signed late": applied, "throttled": failing("ThrottlingException", 400), "500": failing("InternalServerError", 500)} {
				table := &oneItem{tb: t}
				s, st := stubbed(t, nil)
				st.ahead, st.strict = ahead, name == "signed late"
				st.answer = func(c stubCall) stubAnswer {
					if len(st.calls) == 1 {
						return first
					}
					return table.answer(c)
				}
				q := request("k")
				c := claimAll(t, s, q)[0]
				expectTimes(t, name, table.item, q, c.Lease, time.Now().Add(ahead))
				if len(st.calls) != 2 || numberOf(t, table.item, "version") != 1 {
					t.Errorf("%s, %v ahead: %d calls, and the item is %v", name, ahead, len(st.calls), table.item)
				}
			}
		}
	})
}
