package ops_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	rigs "github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/ops"
)

// cancel is ana's word on a job.
func (r *rig) cancel(k dedupe.Key) {
	r.Helper()
	must(r.ops.Cancel(r.Context(), ops.CancelSpec{Key: k, Reason: "withdrawn"}))
}

func (r *rig) record(k dedupe.Key) *dedupe.Record {
	r.Helper()
	return must(r.store.Store.Store.Get(r.Context(), []dedupe.Key{k}))[0]
}

// TestCancel: whatever the record was, a cancelled one says so, for longer than the job may be due
// ahead, and what had the key before has it no more. What is done, or in doubt, is refused.
func TestCancel(t *testing.T) {
	for name, c := range map[string]struct {
		plant   func(r *rig) dedupe.Lease
		was     string
		fence   uint64 // above the lease's
		refused string
	}{
		"no record": {func(*rig) dedupe.Lease { return dedupe.Lease{} }, "none", 0, ""},
		"expired": {func(r *rig) dedupe.Lease {
			l := r.claim(time.Minute, "w")
			r.settle(l, dedupe.Done, "")
			r.wait(dedupe.DefaultRetention + time.Hour)
			return l
		}, "none", 1, ""},
		"running": {func(r *rig) dedupe.Lease { return r.claim(time.Minute, "w") }, "claimed", 0, ""},
		"dead": {func(r *rig) dedupe.Lease {
			l := r.claim(time.Minute, "w")
			r.wait(time.Hour)
			return l
		}, "claimed", 0, ""},
		"released": {func(r *rig) dedupe.Lease {
			l := r.claim(time.Minute, "w")
			r.settle(l, dedupe.Released, "timeout")
			return l
		}, "released", 1, ""},
		"failed": {func(r *rig) dedupe.Lease {
			l := r.claim(time.Minute, "w")
			r.settle(l, dedupe.Failed, "timeout")
			return l
		}, "failed", 1, ""},
		"cancelled": {func(r *rig) dedupe.Lease {
			l := r.claim(time.Minute, "w")
			r.cancel(key)
			return l
		}, "failed", 0, ""},
		"done": {func(r *rig) dedupe.Lease {
			l := r.claim(time.Minute, "w")
			r.settle(l, dedupe.Done, "")
			return l
		}, "", 0, "is done since"},
		"parked": {func(r *rig) dedupe.Lease {
			l := r.claim(time.Minute, "w")
			r.settle(l, dedupe.Parked, "interrupted")
			return l
		}, "", 0, "resolve it to done or failed"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ops.Options{}, func(r *rig) {
				l := c.plant(r)
				audit, err := r.ops.Cancel(r.Context(), ops.CancelSpec{Key: key, Reason: "withdrawn"})
				if c.refused != "" {
					if !errors.Is(err, ops.ErrRefused) || !strings.Contains(err.Error(), c.refused) || ops.IsCancelled(r.record(key)) {
						t.Errorf("%v", err)
					}
					return
				}
				rec := r.record(key)
				if err != nil || audit == "" || !ops.IsCancelled(rec) || rec.LastErr != "cancelled by ana: withdrawn" {
					t.Fatalf("%v; the record is %+v", err, rec)
				}
				if rec.Fence < l.Fence+c.fence || c.fence == 0 && l.Fence != 0 && rec.Fence != l.Fence {
					t.Errorf("the fence is %d after %d", rec.Fence, l.Fence)
				}
				if kept := time.Until(rec.Expires); kept < ops.CancelKept-time.Minute {
					t.Errorf("kept for %v", kept)
				}
				if es := r.acts(); es[len(es)-1].Act != "cancel" || es[len(es)-1].Result["was"] != c.was || es[len(es)-1].Result["fence"] != fmt.Sprint(rec.Fence) {
					t.Errorf("%+v", es)
				}
				if l.Fence == 0 {
					return
				}
				as := must(r.store.Store.Store.Renew(r.Context(), []dedupe.Renewal{{Key: key, Token: l.Token, TTL: time.Minute}}))
				ss := must(r.store.Store.Store.Settle(r.Context(), []dedupe.Settlement{{Key: key, Token: l.Token, To: dedupe.Done}}))
				cs := must(r.store.Store.Store.Claim(r.Context(), []dedupe.ClaimRequest{{Key: key, Token: token(), TTL: time.Minute, Reopen: l.Fence - 1}}))
				if !errors.Is(as[0].Err, dedupe.ErrLeaseLost) || ss[0].Status == dedupe.Done || cs[0].Outcome != dedupe.AlreadyFailed {
					t.Errorf("its owner is answered %v, %v, and a message %v", as[0], ss[0], cs[0].Outcome)
				}
			})
		})
	}
}

// TestCancelBadInput: a scope of onceq's own, a key that no store takes, and a time below zero are
// refused, and so is an act without a reason, or by nobody.
func TestCancelBadInput(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		for _, c := range []struct {
			o    *ops.Ops
			spec ops.CancelSpec
			want error
			text string
		}{
			{r.ops, ops.CancelSpec{Key: dedupe.Key{Scope: ":control", Key: "rules"}, Reason: "x"}, dedupe.ErrBadKey, "onceq's own"},
			{r.ops, ops.CancelSpec{Key: dedupe.Key{Scope: "orders"}, Reason: "x"}, dedupe.ErrBadKey, "Key is empty"},
			{r.ops, ops.CancelSpec{Key: key, Keep: -time.Second, Reason: "x"}, ops.ErrRefused, "CancelSpec.Keep is -1s, want 0 or more"},
			{r.ops, ops.CancelSpec{Key: key, Keep: 62, Reason: "x"}, ops.ErrRefused, "CancelSpec.Keep: 62ns is below 1ms"},
			{r.ops, ops.CancelSpec{Key: key}, control.ErrInvalid, "Reason"},
			{r.ops.As(""), ops.CancelSpec{Key: key, Reason: "x"}, control.ErrInvalid, "say who acts"},
			{r.ops, ops.CancelSpec{Queue: "mails", Key: key, Reason: "x"}, ops.ErrUnknownQueue, "mails"},
		} {
			if _, err := c.o.Cancel(r.Context(), c.spec); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%+v: %v", c.spec, err)
			}
		}
		if rec := r.record(key); rec != nil {
			t.Errorf("%+v", rec)
		}
	})
}

// TestCancelRivals: who claims the key, gives it back or fails between a cancel's look and its word
// costs it another look, and one who never ends is told of.
func TestCancelRivals(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		var l dedupe.Lease
		var rival func()
		r.store.Set(func(s *rigs.Store) {
			s.OnGet = func() error {
				if f := rival; f != nil {
					rival = nil
					done := make(chan struct{})
					time.AfterFunc(0, func() { f(); close(done) }) // after the answer
					<-done
				}
				return nil
			}
		})
		for name, f := range map[string]func(){
			"claims": func() { l = r.claim(time.Minute, "rival") },
			"fails":  func() { l = r.claim(time.Minute, "rival"); r.settle(l, dedupe.Failed, "timeout") },
		} {
			rival = f
			r.cancel(key)
			if rec := r.record(key); !ops.IsCancelled(rec) || rec.Fence < l.Fence {
				t.Errorf("%s: %+v", name, rec)
			}
			must(r.ops.Forget(r.Context(), ops.ForgetSpec{Key: key, Fence: r.record(key).Fence, Reason: "again"}))
		}
	})
}

// TestCancelAnswersLost: an answer that was lost, and a record that is locked for a while, are
// asked for again. A store that never answers ends the act with its error.
func TestCancelAnswersLost(t *testing.T) {
	lost := errors.New("no answer")
	for _, op := range []onceqtest.Op{onceqtest.Claim, onceqtest.Settle} {
		bubble(t, ops.Options{}, func(r *rig) {
			n := 0
			r.store.Set(func(s *rigs.Store) {
				s.OnClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
					if n++; op == onceqtest.Claim && rs[0].Key == key && n < 5 {
						cs[0] = dedupe.Claim{Err: lost}
					}
					return cs
				}
				s.OnSettle = func(ss []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled {
					if n++; op == onceqtest.Settle && ss[0].Key == key && n < 8 {
						as[0] = dedupe.Settled{Err: dedupe.ErrBusy}
					}
					return as
				}
			})
			r.cancel(key)
			if rec := r.record(key); !ops.IsCancelled(rec) {
				t.Errorf("%v: %+v", op, rec)
			}
		})
	}
	bubble(t, ops.Options{}, func(r *rig) {
		r.store.FailsAs(func(op onceqtest.Op) error {
			if op == "get" {
				return lost
			}
			return nil
		})
		began := time.Now()
		if _, err := r.ops.Cancel(r.Context(), ops.CancelSpec{Key: key, Reason: "x"}); !errors.Is(err, lost) || time.Since(began) > 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestCancelledLetters: the letter of a job that was cancelled after it had failed reopens nothing,
// and a replay leaves the letters of cancelled jobs where they are, also one under the record's own
// fence, as an older worker puts it.
func TestCancelledLetters(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		failed := r.died("failed")
		r.cancel(failed.Key)
		own := dedupe.Key{Scope: "orders:charge", Key: "own"}
		r.cancel(own)
		must(r.dead.Send(r.Context(), []broker.Outgoing{{Body: []byte("x"), Meta: &broker.Meta{ID: "j-own", Key: "own", Type: "charge", Dead: &broker.Letter{
			Fence: r.record(own).Fence, Class: onceq.ClassCancelled, Source: "orders", Scope: own.Scope, Key: own.Key, At: time.Now(),
		}}}}))
		r.wait(time.Second)
		p := must(r.ops.PlanReplay(r.Context(), ops.ReplaySpec{Queue: "orders", Reason: "all of them"}))
		if p.Moved != 2 || p.Count(dlq.Take) != 0 {
			t.Errorf("%+v", p)
		}
		l := must(r.ops.Key(r.Context(), "orders", own, ops.KeyOptions{Letters: true}))
		last := l.Steps[len(l.Steps)-1]
		for _, s := range l.Steps {
			if s.What == ops.StepFailed {
				last = s
			}
		}
		if last.Class != onceq.ClassCancelled || last.Text != "cancelled by ana: withdrawn" {
			t.Errorf("%+v", l.Steps)
		}
	})
}

// TestCancelledIsNotResent: a job that is cancelled after a reconciliation has found it missing, or
// lost, is not sent.
func TestCancelledIsNotResent(t *testing.T) {
	for name, plant := range map[string]func(r *rig){
		"missing": func(*rig) {},
		"lost":    func(r *rig) { r.settle(r.claim(time.Minute, "w"), dedupe.Failed, "timeout"); r.wait(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ops.Options{}, func(r *rig) {
				plant(r)
				expected := func(yield func(ops.Expected, error) bool) {
					yield(ops.Expected{Key: key, Due: time.Now().Add(-2 * time.Hour), Send: &broker.Outgoing{Body: []byte("x")}}, nil)
				}
				e := must(r.ops.Reconcile(r.Context(), ops.ReconcileOptions{Queue: "orders", Expected: expected, Letters: true, SendLost: true}))
				if e.ToSend() != 1 {
					t.Fatalf("%+v", e.Findings)
				}
				r.cancel(key)
				got, _, err := r.ops.Resend(r.Context(), ops.ResendSpec{Evidence: e, Reason: "lost"})
				if err != nil || got.Sent != 0 || got.Moved != 1 {
					t.Errorf("%+v, %v", got, err)
				}
			})
		})
	}
}
