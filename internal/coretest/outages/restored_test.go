package outages

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// past is a store whose fences come in order, and that can go back in time.
type past struct {
	*rig.Store
	back   atomic.Uint64 // how far
	raised atomic.Int64
	fails  atomic.Bool
	other  atomic.Bool // its fences come in no order
	least  uint64      // that is known when it goes back
}

func (p *past) RaiseFence(_ context.Context, known uint64) (back bool, err error) {
	if p.fails.Load() {
		return false, errors.New("permission denied")
	}
	if p.raised.Add(1); known < p.least {
		return false, fmt.Errorf("the highest fence is given as %d", known)
	}
	p.back.Store(0)
	return !p.other.Load(), nil
}

// inPast runs f on a rig whose store may go back.
func inPast(t *testing.T, f func(r *rig.Rig, p *past), options ...rig.Option) {
	t.Helper()
	idleInPast(t, func(r *rig.Rig, p *past) {
		for i := range 5 {
			r.Send(fmt.Sprint("before ", i))
			rig.Pass(time.Second)
		}
		if r.Logged.Count("level=ERROR") != 0 || p.raised.Load() != 0 {
			r.Error("a store that goes on has gone back")
		}
		p.least = 5
		f(r, p)
	}, options...)
}

// idleInPast is inPast before the first job.
func idleInPast(t *testing.T, f func(r *rig.Rig, p *past), options ...rig.Option) {
	t.Helper()
	p := new(past)
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		r.Start()
		rig.Pass(time.Second)
		f(r, p)
	}, append([]rig.Option{func(r *rig.Rig) {
		p.Store = r.Store
		r.Cfg.Store = p
		r.Store.Set(func(s *rig.Store) {
			s.ChangeLimits = func(l dedupe.Limits) dedupe.Limits { l.OrderedFences = true; return l }
			s.OnClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				for i := range cs {
					if cs[i].Outcome == dedupe.Won {
						cs[i].Lease.Fence -= p.back.Load()
					}
				}
				return cs
			}
		})
	}}, options...)...)
}

const wentBack = "the store went back in time"

// TestStoreWentBack: a fence that comes a second time is told of at once, the store raises its
// fence, and the queue is paused until an operator resumes it.
func TestStoreWentBack(t *testing.T) {
	inPast(t, func(r *rig.Rig, p *past) {
		p.back.Store(3)
		r.Send("after")
		rig.Pass(time.Second)
		if r.Logged.Count("level=ERROR", wentBack, "docs/restore.md") != 1 || p.raised.Load() != 1 {
			r.Errorf("%d lines tell of it, and the fence was raised %d times", r.Logged.Count(wentBack), p.raised.Load())
		}
		r.WantEvents("started", "store-went-back store")
		rig.Pass(rig.Bound)
		h := r.W.Health()
		if h.State != onceq.StatePaused || len(h.Reasons) != 1 || !strings.Contains(h.Reasons[0], wentBack) {
			r.Errorf("the worker is %+v", h)
		}
		acts := audited(r)
		if len(acts) != 1 || acts[0].Act != "pause" || acts[0].By != "onceq" || acts[0].Queue != rig.Scope ||
			acts[0].Result["rule"] == "" || !strings.HasPrefix(acts[0].Reason, wentBack) || acts[0].Ended.IsZero() {
			r.Errorf("the audit is %+v", acts)
		}
		r.Send("paused")
		rig.Pass(time.Hour)
		if r.Seen.Started("paused") != 0 {
			r.Error("a job ran beside a store that went back")
		}
		r.Rules(func(rs *controlstore.Rules) {
			if len(rs.Rules) != 1 || rs.Rules[0].Queue != rig.Scope {
				r.Fatalf("the rules are %+v", rs.Rules)
			}
			rs.Rules = nil
		})
		rig.Pass(rig.Bound + 5*time.Second)
		r.Send("resumed")
		rig.Pass(time.Minute)
		if h := r.W.Health(); h.State != onceq.StateRunning || p.raised.Load() != 1 {
			r.Errorf("after the operator's word the worker is %+v, raised %d", h, p.raised.Load())
		}
	}, rig.Steered, rig.Watched)
}

// audited are the acts of the day.
func audited(r *rig.Rig) (acts []control.AuditEntry) {
	r.Helper()
	for e, err := range controlstore.Acts(r.Context(), r.Store.Store, time.Now().Add(-time.Hour), time.Now()) {
		if err != nil {
			r.Fatal(err)
		}
		acts = append(acts, e)
	}
	return acts
}

// unseat removes the worker's seat.
func unseat(r *rig.Rig) (fence uint64) {
	r.Helper()
	k := dedupe.Key{Scope: controlstore.ScopeWorker, Key: r.W.Health().Seat}
	rs, err := r.Store.Get(r.Context(), []dedupe.Key{k})
	if err != nil || rs[0] == nil {
		r.Fatal(k, rs, err)
	}
	if _, err := r.Store.Forget(r.Context(), []dedupe.Forgotten{{Key: k, Fence: rs[0].Fence, Force: true}}); err != nil {
		r.Fatal(err)
	}
	return rs[0].Fence
}

// TestSeatWentBack: a worker that has run nothing notices by its seat. The backup does not have the
// seat, and the next one gets the same fence again.
func TestSeatWentBack(t *testing.T) {
	for name, option := range map[string]rig.Option{"ordered": func(*rig.Rig) {}, "a fence for each key": func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) { s.ChangeLimits = nil })
	}} {
		t.Run(name, func(t *testing.T) {
			idleInPast(t, func(r *rig.Rig, p *past) {
				p.least = unseat(r)
				p.back.Store(1)
				rig.Pass(2 * rig.Bound)
				if name != "ordered" {
					if r.Logged.Count(wentBack) != 0 || p.raised.Load() != 0 {
						r.Error("fences that come in no order say nothing")
					}
					return
				}
				if r.Logged.Count("level=ERROR", wentBack) != 1 || p.raised.Load() != 1 {
					r.Errorf("%d lines tell of it, raised %d", r.Logged.Count(wentBack), p.raised.Load())
				}
				if h := r.W.Health(); h.State != onceq.StatePaused || len(audited(r)) != 1 {
					r.Errorf("the worker is %+v", h)
				}
			}, rig.Steered, rig.Watched, option)
		})
	}
}

// TestSeatTakenIsNoPast: a worker whose seat was removed takes another one of a store that goes on.
func TestSeatTakenIsNoPast(t *testing.T) {
	inPast(t, func(r *rig.Rig, p *past) {
		unseat(r)
		rig.Pass(2 * rig.Bound)
		if r.Logged.Count("seat was taken") != 1 || r.Logged.Count(wentBack) != 0 || p.raised.Load() != 0 {
			r.Error("a seat that was taken counts as a store that went back")
		}
	}, rig.Steered, rig.Watched)
}

// TestRulesWentBack: rules of an older version than the worker has obeyed are those of a store that
// was restored.
func TestRulesWentBack(t *testing.T) {
	inPast(t, func(r *rig.Rig, p *past) {
		for range 2 {
			r.Rules(func(rs *controlstore.Rules) { rs.Rules = nil })
		}
		rig.Pass(rig.Bound)
		if _, err := r.Store.Forget(r.Context(), []dedupe.Forgotten{{Key: dedupe.Key{Scope: controlstore.ScopeControl, Key: "rules"}, Fence: fenceOfRules(r), Force: true}}); err != nil {
			r.Fatal(err)
		}
		rig.Pass(2 * rig.Bound)
		if r.Logged.Count("level=ERROR", wentBack, "version 0 of operators' rules, and had 2") != 1 || p.raised.Load() != 1 {
			r.Errorf("%d lines tell of it, raised %d", r.Logged.Count(wentBack), p.raised.Load())
		}
		if h := r.W.Health(); h.State != onceq.StatePaused {
			r.Errorf("the worker is %+v", h)
		}
	}, rig.Steered, rig.Watched)
}

func fenceOfRules(r *rig.Rig) uint64 {
	r.Helper()
	rs, err := r.Store.Get(r.Context(), []dedupe.Key{{Scope: controlstore.ScopeControl, Key: "rules"}})
	if err != nil || rs[0] == nil {
		r.Fatal(rs, err)
	}
	return rs[0].Fence
}

// TestStoreWentBackUnsteered: where there are no rules it is told, and the fence is raised.
func TestStoreWentBackUnsteered(t *testing.T) {
	inPast(t, func(r *rig.Rig, p *past) {
		p.fails.Store(true)
		p.back.Store(3)
		for i := range 3 { // the same story
			r.Send(fmt.Sprint("after ", i))
			rig.Pass(5 * time.Second)
		}
		if r.Logged.Count("level=ERROR", wentBack, "permission denied") != 1 {
			r.Errorf("%d lines tell of it", r.Logged.Count(wentBack))
		}
		if h := r.W.Health(); h.State != onceq.StateRunning {
			r.Errorf("the worker is %+v", h)
		}
		r.WantEvents("started", "store-went-back store")
	}, rig.Watched)
}

// TestFencesInNoOrder: a store that knows another reason for a lower fence has not gone back.
func TestFencesInNoOrder(t *testing.T) {
	inPast(t, func(r *rig.Rig, p *past) {
		p.other.Store(true)
		p.back.Store(3)
		r.Send("after")
		rig.Pass(time.Minute)
		if r.Logged.Count(wentBack) != 0 || r.Logged.Count("level=WARN", "CACHE 1") != 1 || r.W.Health().State != onceq.StateRunning {
			r.Error("the queue was stopped")
		}
	}, rig.Steered)
}

// TestRepeatedClaimIsNoPast: a claim whose answer was lost is won again with its first fence, while
// others have got higher ones meanwhile. The store has not gone back.
func TestRepeatedClaimIsNoPast(t *testing.T) {
	inPast(t, func(r *rig.Rig, p *past) {
		lost := true
		r.Store.Set(func(s *rig.Store) {
			s.OnClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				for i := range rs {
					if rs[i].Key.Key == "slow" && lost {
						cs[i] = dedupe.Claim{Err: errors.New("the answer was lost")}
					}
				}
				return cs
			}
		})
		r.Send("slow")
		rig.Pass(100 * time.Millisecond)
		for i := range 3 {
			r.Send(fmt.Sprint("quick ", i))
			rig.Pass(100 * time.Millisecond)
		}
		r.Store.Set(func(*rig.Store) { lost = false })
		rig.Pass(time.Minute)
		if r.Logged.Count(wentBack) != 0 || p.raised.Load() != 0 {
			r.Error("a repeated claim counts as a store that went back")
		}
	})
}
