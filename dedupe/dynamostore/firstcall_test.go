package dynamostore

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// expectTimes reports whether a claim's item has the service's time, now, in all its times, its
// fence among them.
func expectTimes(t *testing.T, what string, it object, q dedupe.ClaimRequest, l dedupe.Lease, now time.Time) {
	t.Helper()
	const most = margin / 2
	for _, attr := range []string{"created", "claimed_at", "updated"} {
		if d := timeOf(t, it, attr).Sub(now); d.Abs() > most {
			t.Errorf("%s: %s is %v beside the service's time", what, attr, d)
		}
	}
	// That of a guess is kept half a margin longer.
	if d := timeOf(t, it, "lease_until").Sub(now.Add(q.TTL + margin)); d < -most || d > most+margin/2 {
		t.Errorf("%s: the lease ends %v beside its end", what, d)
	}
	fence := numberOf(t, it, "fence")
	if d := time.UnixMilli(fence).Sub(now); d.Abs() > most || l.Fence != uint64(fence) {
		t.Errorf("%s: the fence is %v beside the service's time, and %d in the answer, %d in the item", what, d, l.Fence, fence)
	}
}

// TestFirstClaim: a process's first claim is one write and no read, with the host's time. Where
// that proves wrong, by any answer, the same claim is written again before it is answered.
func TestFirstClaim(t *testing.T) {
	for name, c := range map[string]struct {
		ahead   time.Duration // the service's clock
		late    time.Duration // its first answer
		suspend time.Duration // while that is on its way, with both of the host's clocks
		lost    bool          // the first answer
		writes  int
	}{
		"the host's clock is right":              {writes: 1},
		"the host is half a second slow":         {ahead: 500 * time.Millisecond, writes: 1},
		"the host is half a second fast":         {ahead: -500 * time.Millisecond, writes: 1},
		"the host is ten minutes slow":           {ahead: 10 * time.Minute, writes: 2},
		"the host is ten minutes fast":           {ahead: -10 * time.Minute, writes: 2},
		"the host is years slow":                 {ahead: 20 * 365 * 24 * time.Hour, writes: 2},
		"the host is years fast":                 {ahead: -20 * 365 * 24 * time.Hour, writes: 2},
		"the first answer is slow":               {late: 8 * time.Second, writes: 3},
		"slow, and the host 6.5 s slow":          {ahead: 6500 * time.Millisecond, late: 8 * time.Second, writes: 3}, // which that answer leaves open
		"slow, and the host ten minutes slow":    {ahead: 10 * time.Minute, late: 8 * time.Second, writes: 3},
		"slow, and the host ten minutes fast":    {ahead: -10 * time.Minute, late: 8 * time.Second, writes: 3},
		"suspended on the way":                   {suspend: 10 * time.Minute, writes: 2},
		"the answer is lost":                     {lost: true, writes: 3},
		"lost, and the host ten minutes slow":    {ahead: 10 * time.Minute, lost: true, writes: 3},
		"lost, and the host ten minutes fast":    {ahead: -10 * time.Minute, lost: true, writes: 3},
		"all of it, and the host fast":           {ahead: -10 * time.Minute, late: 8 * time.Second, lost: true, writes: 3},
		"all of it, suspended and the host slow": {ahead: 10 * time.Minute, late: 3 * time.Second, suspend: time.Minute, lost: true, writes: 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			table := &oneItem{tb: t}
			later := false
			var st *stub
			s, st := stubbed(t, func(q stubCall) stubAnswer {
				a := table.answer(q)
				if len(st.calls) == 1 && !later {
					a.late = c.late
					st.ahead += c.suspend
					if c.lost {
						a.lost = errReset
					}
				}
				return a
			})
			st.ahead = c.ahead
			q := request("k")
			began := time.Now()
			got := claimAll(t, s, q)[0]
			if got.Outcome != dedupe.Won || !got.Fresh || got.Lease.Attempt != 1 || got.Lease.Token != q.Token || got.Lease.Deadline.Before(began.Add(q.TTL)) {
				t.Errorf("%s: answered %+v", name, got)
			}
			expectTimes(t, name, table.item, q, got.Lease, time.Now().Add(st.ahead))
			if !got.Created.Equal(timeOf(t, table.item, "created")) {
				t.Errorf("%s: created %v, and in the item %v", name, got.Created, timeOf(t, table.item, "created"))
			}
			if len(st.calls) != c.writes || len(st.of("UpdateItem"))+len(st.of("PutItem")) != c.writes {
				t.Errorf("%s: %d calls, %d of them reads; want %d writes", name, len(st.calls), len(st.of("GetItem")), c.writes)
			}
			// From now on the time is known.
			table.item, st.calls, later = nil, nil, true
			got = claimAll(t, s, q)[0]
			expectTimes(t, name+", the next claim", table.item, q, got.Lease, time.Now().Add(st.ahead))
			if len(st.of("PutItem")) != 1 || len(st.calls) != 1 {
				t.Errorf("%s: the next claim takes %v", name, st.calls)
			}
		})
	}
}

// TestFirstKey: until DynamoDB has taken a request with the key apart, insertions are such; what
// they write is the same.
func TestFirstKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &oneItem{tb: t}
		s, st := stubbed(t, table.answer)
		q := request("k")
		q.Fingerprint = []byte("print")
		claimAll(t, s, q)
		first := table.item
		table.item = nil
		claimAll(t, s, q)
		if len(st.of("UpdateItem")) != 1 || len(st.of("PutItem")) != 1 {
			t.Errorf("the calls are %v", st.calls)
		}
		for _, it := range []object{first, table.item} {
			for _, attr := range []string{"fence", "created", "claimed_at", "updated", "lease_until"} {
				delete(it, attr)
			}
		}
		if !maps.EqualFunc(first, table.item, func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
			t.Errorf("the first insertion writes %v, the others %v", first, table.item)
		}
		for name, do := range map[string]func(s *Store) error{
			"Claim, refused": func(s *Store) error {
				_, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request("k")})
				return err
			},
			"Renew": func(s *Store) error {
				_, err := s.Renew(t.Context(), []dedupe.Renewal{{Key: q.Key, Token: newToken(), TTL: time.Minute}})
				return err
			},
			"Get": func(s *Store) error {
				_, err := s.Get(t.Context(), []dedupe.Key{q.Key})
				return err
			},
		} {
			table.item = written(st.of("PutItem")[0])
			table.item["fence"], table.item["lease_until"] = object{"N": "7"}, object{"N": strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10)}
			s, st := stubbed(t, func(c stubCall) stubAnswer {
				if c.op == "GetItem" {
					return stubAnswer{out: object{"Item": table.item}}
				}
				return table.answer(c)
			})
			if err := do(s); err != nil || !s.keySeen.Load() {
				t.Errorf("after %s the key is known: %v; %v", name, s.keySeen.Load(), err)
			}
			st.calls, table.item = nil, nil
			claimAll(t, s, request("k"))
			if len(st.of("PutItem")) != 1 {
				t.Errorf("after %s a claim is %v", name, st.calls)
			}
		}
		s, _ = stubbed(t, func(c stubCall) stubAnswer {
			return stubAnswer{code: "ValidationException", out: object{"message": "The provided key element does not match the schema"}}
		})
		if _, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request("k")}); err == nil || s.keySeen.Load() || !strings.Contains(err.Error(), "another library") {
			t.Errorf("a table with another key: %v", err)
		}
	})
}

// rivalItem is what another worker's process has left.
func rivalItem(status string, more map[string]time.Time) object {
	it := object{
		"key": object{"S": "k"}, "scope": object{"S": "orders"}, "status": object{"S": status}, "fence": object{"N": "7"}, "version": object{"N": "1"},
		"token": object{"S": newToken().Hex()}, "attempt": object{"N": "1"}, "policy": object{"S": "rerun"},
	}
	for attr, at := range more {
		n := at.UnixMicro()
		if attr == "expires_at" {
			n = at.Unix()
		}
		it[attr] = object{"N": strconv.FormatInt(n, 10)}
	}
	return it
}

// TestFirstRefusal: the first answer of a process is a refusal, or its clock was set, or its host
// suspended, just before it or on the way. What has ended by such a time has not ended: it is asked
// again, and decided by the service's time, as close as the answers tell it.
func TestFirstRefusal(t *testing.T) {
	type moments = map[string]time.Time
	for name, c := range map[string]struct {
		item   func(now time.Time) object
		reopen uint64
		want   dedupe.Outcome
		fresh  bool
	}{
		"a live lease": {item: func(now time.Time) object {
			return rivalItem("claimed", moments{"lease_until": now.Add(20 * time.Second), "created": now, "claimed_at": now})
		}, want: dedupe.InProgress},
		"a dead lease": {item: func(now time.Time) object {
			return rivalItem("claimed", moments{"lease_until": now.Add(-20 * time.Second), "created": now, "claimed_at": now})
		}, want: dedupe.Won},
		"done": {item: func(now time.Time) object {
			return rivalItem("done", moments{"expires_at": now.Add(20 * time.Second)})
		}, want: dedupe.AlreadyDone},
		"done, expired": {item: func(now time.Time) object {
			return rivalItem("done", moments{"expires_at": now.Add(-20 * time.Second)})
		}, want: dedupe.Won, fresh: true},
		"failed, to be reopened": {reopen: 7, item: func(now time.Time) object {
			return rivalItem("failed", moments{"expires_at": now.Add(20 * time.Second)})
		}, want: dedupe.Won},
	} {
		for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
			for _, slow := range []bool{false, true} {
				for event, begin := range map[string]func(t *testing.T, s *Store, st *stub, step *time.Duration){
					"a new process": func(*testing.T, *Store, *stub, *time.Duration) {},
					"the host's clock was set": func(t *testing.T, s *Store, st *stub, step *time.Duration) {
						*step = 3 * time.Minute
						claimAll(t, s, request("before"))
						*step = 0
					},
					"the host's clock is set on the way": func(t *testing.T, s *Store, st *stub, step *time.Duration) {
						claimAll(t, s, request("before"))
						answer := st.answer
						st.answer = func(c stubCall) stubAnswer {
							*step, st.answer = -3*time.Minute, answer
							return answer(c)
						}
					},
					"the host was suspended": func(t *testing.T, s *Store, st *stub, step *time.Duration) {
						claimAll(t, s, request("before"))
						st.ahead += 3 * time.Minute
					},
				} {
					synctest.Test(t, func(t *testing.T) {
						what := fmt.Sprintf("%s, %s, the service %v ahead, slow %v", name, event, ahead, slow)
						table := &oneItem{tb: t}
						var step time.Duration
						s, st := stubbed(t, table.answer)
						s.clock.wall = func() time.Time { return time.Now().Add(step) }
						st.ahead = ahead
						begin(t, s, st, &step)
						table.item, st.calls = c.item(time.Now().Add(st.ahead)), nil
						if slow {
							answer := st.answer
							st.answer = func(c stubCall) stubAnswer {
								a := answer(c)
								a.late = 3 * time.Second
								return a
							}
						}
						q := request("k")
						q.Reopen = c.reopen
						got := claimAll(t, s, q)[0]
						now := time.Now().Add(st.ahead)
						if got.Outcome != c.want || got.Fresh != c.fresh || len(st.of("GetItem")) > 0 || len(st.calls) > 4 {
							t.Errorf("%s: answered %+v after %d calls", what, got, len(st.calls))
						}
						if c.want != dedupe.Won && c.want != dedupe.InProgress {
							return
						}
						left := timeOf(t, table.item, "lease_until").Sub(now)
						if c.want == dedupe.InProgress {
							if d := got.Left - left; d < -margin/2 || d > margin/2 && !slow {
								t.Errorf("%s: left %v, want %v", what, got.Left, left)
							}
							return
						}
						if left < time.Until(got.Lease.Deadline)+margin/2 || left > q.TTL+4*margin {
							t.Errorf("%s: the lease ends in %v, and for its owner in %v", what, left, time.Until(got.Lease.Deadline))
						}
						if d := time.UnixMilli(int64(got.Lease.Fence)).Sub(now); d > margin/2 {
							t.Errorf("%s: the fence is %v ahead", what, d)
						}
					})
				}
			}
		}
	}
}

// TestVagueTime: an answer that took 8 s leaves the service's time open by as much. A lease that
// may be alive by it is alive.
func TestVagueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
			for _, left := range []time.Duration{2 * time.Second, -10 * time.Second} {
				table := &oneItem{tb: t}
				s, st := stubbed(t, nil)
				st.ahead = ahead
				st.answer = func(c stubCall) stubAnswer {
					a := table.answer(c)
					<-time.After(8 * time.Second) // and has the Date of its end
					return a
				}
				end := time.Now().Add(ahead + 8*time.Second + left)
				table.item = rivalItem("claimed", map[string]time.Time{"lease_until": end, "created": end, "claimed_at": end})
				want := dedupe.InProgress
				if left < 0 {
					want = dedupe.Won
				}
				if c := claimAll(t, s, request("k"))[0]; c.Outcome != want || left > 0 && c.Left < left-margin/2 {
					t.Errorf("%v ahead: a lease with %v left was answered %v, left %v", ahead, left, c.Outcome, c.Left)
				}
			}
		}
	})
}

// TestNextFence: above the last one, and above the clock.
func TestNextFence(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	for last, want := range map[uint64]uint64{0: 1_800_000_000_001, 7: 1_800_000_000_001, 1_800_000_000_000: 1_800_000_000_001, 1_800_000_600_000: 1_800_000_600_001} {
		if n := nextFence(&stored{last: last}, now); n != want {
			t.Errorf("after %d it is %d, want %d", last, n, want)
		}
	}
	if n := nextFence(nil, now); n != 1_800_000_000_001 {
		t.Errorf("the first one is %d", n)
	}
	if n := nextFence(nil, time.Time{}); n != 1 {
		t.Errorf("on a host without a clock it is %d", n)
	}
}
