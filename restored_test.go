package onceq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
)

// past is a store whose fences come in order, and that can go back in time.
type past struct {
	*store
	back   atomic.Uint64 // how far
	raised atomic.Int64
	fails  atomic.Bool
	other  atomic.Bool // its fences come in no order
}

func (p *past) RaiseFence(_ context.Context, known uint64) (back bool, err error) {
	if p.fails.Load() {
		return false, errors.New("permission denied")
	}
	if p.raised.Add(1); known < 5 {
		return false, fmt.Errorf("the highest fence is given as %d", known)
	}
	p.back.Store(0)
	return !p.other.Load(), nil
}

// inPast runs f on a rig whose store may go back.
func inPast(t *testing.T, f func(r *rig, p *past), options ...option) {
	t.Helper()
	p := new(past)
	bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig) {
		r.start()
		for i := range 5 {
			r.send(fmt.Sprint("before ", i))
			pass(time.Second)
		}
		if r.log.count("level=ERROR") != 0 || p.raised.Load() != 0 {
			r.Error("a store that goes on has gone back")
		}
		f(r, p)
	}, append(options, func(r *rig) {
		p.store = r.store
		r.cfg.Store = p
		r.store.set(func(s *store) {
			s.limits = func(l dedupe.Limits) dedupe.Limits { l.OrderedFences = true; return l }
			s.onClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				for i := range cs {
					if cs[i].Outcome == dedupe.Won {
						cs[i].Lease.Fence -= p.back.Load()
					}
				}
				return cs
			}
		})
	})...)
}

const wentBack = "the store went back in time"

// TestStoreWentBack: a fence that comes a second time is told of at once, the store raises its
// fence, and the queue is paused until an operator resumes it.
func TestStoreWentBack(t *testing.T) {
	inPast(t, func(r *rig, p *past) {
		p.back.Store(3)
		r.send("after")
		pass(time.Second)
		if r.log.count("level=ERROR", wentBack, "docs/restore.md") != 1 || p.raised.Load() != 1 {
			r.Errorf("%d lines tell of it, and the fence was raised %d times", r.log.count(wentBack), p.raised.Load())
		}
		r.wantEvents("started", "store-went-back store")
		pass(bound)
		h := r.w.Health()
		if h.State != onceq.StatePaused || len(h.Reasons) != 1 || !strings.Contains(h.Reasons[0], wentBack) {
			r.Errorf("the worker is %+v", h)
		}
		r.send("paused")
		pass(time.Hour)
		if r.seen.started("paused") != 0 {
			r.Error("a job ran beside a store that went back")
		}
		r.rules(func(rs *controlstore.Rules) {
			if len(rs.Rules) != 1 || rs.Rules[0].Queue != scope {
				r.Fatalf("the rules are %+v", rs.Rules)
			}
			rs.Rules = nil
		})
		pass(bound + 5*time.Second)
		r.send("resumed")
		pass(time.Minute)
		if h := r.w.Health(); h.State != onceq.StateRunning || p.raised.Load() != 1 {
			r.Errorf("after the operator's word the worker is %+v, raised %d", h, p.raised.Load())
		}
	}, steered, watched)
}

// TestRulesWentBack: rules of an older version than the worker has obeyed are those of a store that
// was restored.
func TestRulesWentBack(t *testing.T) {
	inPast(t, func(r *rig, p *past) {
		for range 2 {
			r.rules(func(rs *controlstore.Rules) { rs.Rules = nil })
		}
		pass(bound)
		if _, err := r.store.Forget(r.Context(), []dedupe.Forgotten{{Key: dedupe.Key{Scope: controlstore.ScopeControl, Key: "rules"}, Fence: r.fenceOfRules(), Force: true}}); err != nil {
			r.Fatal(err)
		}
		pass(2 * bound)
		if r.log.count("level=ERROR", wentBack, "version 0 of operators' rules, and had 2") != 1 || p.raised.Load() != 1 {
			r.Errorf("%d lines tell of it, raised %d", r.log.count(wentBack), p.raised.Load())
		}
		if h := r.w.Health(); h.State != onceq.StatePaused {
			r.Errorf("the worker is %+v", h)
		}
	}, steered, watched)
}

func (r *rig) fenceOfRules() uint64 {
	r.Helper()
	rs, err := r.store.Get(r.Context(), []dedupe.Key{{Scope: controlstore.ScopeControl, Key: "rules"}})
	if err != nil || rs[0] == nil {
		r.Fatal(rs, err)
	}
	return rs[0].Fence
}

// TestStoreWentBackUnsteered: where there are no rules it is told, and the fence is raised.
func TestStoreWentBackUnsteered(t *testing.T) {
	inPast(t, func(r *rig, p *past) {
		p.fails.Store(true)
		p.back.Store(3)
		for i := range 3 { // the same story
			r.send(fmt.Sprint("after ", i))
			pass(5 * time.Second)
		}
		if r.log.count("level=ERROR", wentBack, "permission denied") != 1 {
			r.Errorf("%d lines tell of it", r.log.count(wentBack))
		}
		if h := r.w.Health(); h.State != onceq.StateRunning {
			r.Errorf("the worker is %+v", h)
		}
		r.wantEvents("started", "store-went-back store")
	}, watched)
}

// TestFencesInNoOrder: a store that knows another reason for a lower fence has not gone back.
func TestFencesInNoOrder(t *testing.T) {
	inPast(t, func(r *rig, p *past) {
		p.other.Store(true)
		p.back.Store(3)
		r.send("after")
		pass(time.Minute)
		if r.log.count(wentBack) != 0 || r.log.count("level=WARN", "CACHE 1") != 1 || r.w.Health().State != onceq.StateRunning {
			r.Error("the queue was stopped")
		}
	}, steered)
}

// TestRepeatedClaimIsNoPast: a claim whose answer was lost is won again with its first fence, while
// others have got higher ones meanwhile. The store has not gone back.
func TestRepeatedClaimIsNoPast(t *testing.T) {
	inPast(t, func(r *rig, p *past) {
		lost := true
		r.store.set(func(s *store) {
			s.onClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				for i := range rs {
					if rs[i].Key.Key == "slow" && lost {
						cs[i] = dedupe.Claim{Err: errors.New("the answer was lost")}
					}
				}
				return cs
			}
		})
		r.send("slow")
		pass(100 * time.Millisecond)
		for i := range 3 {
			r.send(fmt.Sprint("quick ", i))
			pass(100 * time.Millisecond)
		}
		r.store.set(func(*store) { lost = false })
		pass(time.Minute)
		if r.log.count(wentBack) != 0 || p.raised.Load() != 0 {
			r.Error("a repeated claim counts as a store that went back")
		}
	})
}
