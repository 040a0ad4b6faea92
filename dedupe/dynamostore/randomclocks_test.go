package dynamostore

import (
	"context"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// TestRandomClocks: three workers, each of them several processes one after the other, claim one
// key. Their hosts' clocks are wrong by up to ten minutes, and are set at any time; answers are
// slow, lost, or failures. A lease is nobody else's before its Deadline, is kept half a margin
// beyond it, and the fence rises.
func TestRandomClocks(t *testing.T) {
	won := 0
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			f := &fleet{tb: t, seed: seed}
			var wg sync.WaitGroup
			for n := range uint64(3) {
				wg.Go(func() { f.work(rand.New(rand.NewPCG(seed, n))) })
			}
			wg.Wait()
			won += f.won
		})
	}
	if won < 200 {
		t.Errorf("%d claims were won", won)
	}
}

// fleet is some workers, and the one record that they are after.
type fleet struct {
	tb   testing.TB
	seed uint64

	mu     sync.Mutex
	item   object
	holder dedupe.Lease // the last claim that was won, and not ended by its owner
	fence  uint64
	won    int
}

func (f *fleet) work(r *rand.Rand) {
	span := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most))) }
	for range 3 {
		off := span(8*time.Second) - 4*time.Second
		if r.IntN(3) == 0 {
			off = span(20*time.Minute) - 10*time.Minute
		}
		// Steps of less than maxStep are not seen, nor two that make up such a one.
		step := func() { off += time.Duration(r.IntN(11)-5) * maxStep * 3 / 2 }
		way := 3 * time.Second
		if r.IntN(2) == 0 {
			way = 60 * time.Millisecond
		}
		s, st := stubbed(f.tb, nil)
		s.clock.wall = func() time.Time { return time.Now().Add(off) }
		st.answer = func(c stubCall) stubAnswer {
			<-time.After(span(way))
			var a stubAnswer
			switch r.IntN(16) {
			case 0:
				return stubAnswer{lost: errReset} // the request
			case 1:
				return failing("ThrottlingException", 400)
			case 2:
				a = f.answer(c)
				a.lost = errReset
			case 3:
				step()
				a = f.answer(c)
			default:
				a = f.answer(c)
			}
			a.late = span(way)
			return a
		}
		for range 3 {
			f.job(r, s, span)
			<-time.After(span(6 * time.Second))
			if r.IntN(4) == 0 {
				step()
			}
		}
	}
}

// job claims, with the same token again where no answer comes, and may renew, and release. Else the
// worker is dead.
func (f *fleet) job(r *rand.Rand, s *Store, span func(time.Duration) time.Duration) {
	call := func(do func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(f.tb.Context(), 500*time.Millisecond+span(8*time.Second))
		defer cancel()
		return do(ctx)
	}
	q := request("k")
	q.TTL = 5*time.Second + span(10*time.Second)
	var l dedupe.Lease
	for range 3 {
		if call(func(ctx context.Context) error {
			cs, err := s.Claim(ctx, []dedupe.ClaimRequest{q})
			if err != nil || cs[0].Err != nil {
				return dedupe.ErrBusy
			}
			l = cs[0].Lease // the zero one where it was not won
			return nil
		}) == nil {
			break
		}
	}
	if l.Fence == 0 {
		return
	}
	f.held(q.Token, l, true)
	if r.IntN(2) == 0 {
		<-time.After(span(3 * time.Second))
		_ = call(func(ctx context.Context) error {
			rs, err := s.Renew(ctx, []dedupe.Renewal{{Key: q.Key, Token: q.Token, TTL: q.TTL + span(8*time.Second) - 4*time.Second}})
			if err == nil && rs[0].Err == nil {
				l.Deadline = rs[0].Deadline
				f.held(q.Token, l, false)
			}
			return err
		})
	}
	if r.IntN(3) == 0 {
		f.mu.Lock()
		if f.holder.Token == q.Token {
			f.holder = dedupe.Lease{}
		}
		f.mu.Unlock()
		_ = call(func(ctx context.Context) error {
			_, err := s.Settle(ctx, []dedupe.Settlement{{Key: q.Key, Token: q.Token, To: dedupe.Released}})
			return err
		})
	}
}

// held looks at a lease that its owner was told of just now.
func (f *fleet) held(token dedupe.Token, l dedupe.Lease, claimed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	own := fieldOf(f.item, "token") == token.Hex()
	switch {
	case claimed && f.holder.Token != token && time.Until(f.holder.Deadline) > 0:
		f.tb.Errorf("seed %d: a lease was taken %v before its deadline", f.seed, time.Until(f.holder.Deadline))
	case claimed && l.Fence <= f.fence:
		f.tb.Errorf("seed %d: the fence is %d after %d", f.seed, l.Fence, f.fence)
	case !own && time.Until(l.Deadline) > 0:
		f.tb.Errorf("seed %d: a lease is another's %v before its deadline", f.seed, time.Until(l.Deadline))
	case own && numberOf(f.tb, f.item, "fence") != int64(l.Fence):
		f.tb.Errorf("seed %d: the fence is %d, and %v in the item", f.seed, l.Fence, f.item)
	}
	if own {
		if d := timeOf(f.tb, f.item, "lease_until").Sub(l.Deadline); d < margin/2 || d > 40*time.Second {
			f.tb.Errorf("seed %d: the lease ends %v after its deadline", f.seed, d)
		}
	}
	if claimed {
		f.won++
		f.fence = l.Fence
	}
	if own {
		f.holder = l
	}
}

// answer is what a table says to this store's claims, renewals and releases.
func (f *fleet) answer(c stubCall) stubAnswer {
	f.mu.Lock()
	defer f.mu.Unlock()
	values, _ := c.in["ExpressionAttributeValues"].(object)
	is := func(attr, name string) bool { return f.item != nil && fieldOf(f.item, attr) == fieldOf(values, name) }
	for clause := range strings.SplitSeq(c.in["ConditionExpression"].(string), " AND ") {
		ok := false
		switch clause {
		case isAbsent.expr:
			ok = f.item == nil
		case sameFence.expr:
			ok = is("fence", ":was_fence")
		case sameVersion.expr:
			ok = is("version", ":was_version")
		case ownToken.expr:
			ok = is("token", ":token")
		case stillClaimed.expr:
			ok = is("status", ":claimed")
		case notSettled.expr:
			ok = is("status", ":claimed") || is("status", ":parked")
		case notLonger.expr:
			ok = f.item["lease_until"] != nil && numberOf(f.tb, f.item, "lease_until") <= numberOf(f.tb, values, ":lease_until")
		default:
			f.tb.Errorf("%s on the condition %v", c.op, clause)
		}
		if !ok {
			return refused(maps.Clone(f.item))
		}
	}
	if f.item == nil || c.op == "PutItem" {
		f.item = written(c)
		return applied
	}
	f.item = maps.Clone(f.item)
	names, _ := c.in["ExpressionAttributeNames"].(object)
	sets, drops, _ := strings.Cut(strings.TrimPrefix(c.in["UpdateExpression"].(string), "SET "), " REMOVE ")
	for set := range strings.SplitSeq(sets, ", ") {
		name, what, _ := strings.Cut(set, " = ")
		attr := names[name].(string)
		if _, plus, is := strings.Cut(what, " + "); is {
			f.item[attr] = object{"N": strconv.FormatInt(numberOf(f.tb, f.item, attr)+numberOf(f.tb, values, plus), 10)}
		} else {
			f.item[attr] = values[what]
		}
	}
	for name := range strings.SplitSeq(drops, ", ") {
		if attr, is := names[name].(string); is {
			delete(f.item, attr)
		}
	}
	return applied
}
