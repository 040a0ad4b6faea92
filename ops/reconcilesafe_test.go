package ops_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/ops"
)

// wentBack notes what a worker notes whose store went back in time: a pause, and its act.
func (r *rig) wentBack(until time.Duration) {
	r.Helper()
	rule := control.Rule{
		Do: control.Pause, Queue: "orders", Until: time.Now().Add(until), By: "onceq", Reason: controlstore.WentBack + " (fence 7 after 9): reconcile",
	}
	_, err := controlstore.Change(r.Context(), r.store, func(rs *controlstore.Rules) error {
		rs.Rules = append(rs.Rules, rule)
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	a, err := controlstore.Begin(r.Context(), r.store, control.AuditEntry{Act: "pause", By: "onceq", Reason: rule.Reason, Queue: "orders"})
	if err == nil {
		err = a.End(r.Context(), nil, nil)
	}
	if err != nil {
		r.Fatal(err)
	}
}

// pause makes and drops a rule, as operators do all day: rules that have ended go then.
func (r *rig) pause() {
	r.Helper()
	_, err := r.ops.Pause(r.Context(), control.Rule{Queue: "orders", Until: time.Now().Add(time.Minute), Reason: "the bank is down"}, &ops.RuleOptions{Follow: -1})
	if err != nil {
		r.Fatal(err)
	}
}

// TestResendAfterRestore: what a restored store has forgotten is not sent: whatever became of the
// pause, however old the evidence is, and whatever was given as a ledger.
func TestResendAfterRestore(t *testing.T) {
	stray := listed(ops.Effect{Key: dedupe.Key{Scope: "orders", Key: "another"}, ID: "e"})
	for _, c := range []struct {
		name string
		ro   ops.ReconcileOptions
		play func(r *rig, look func())
		want string
	}{
		{"the pause ended by itself", ops.ReconcileOptions{}, func(r *rig, look func()) {
			r.wentBack(time.Hour)
			r.wait(3 * 24 * time.Hour)
			r.pause()
			look()
		}, "give a ledger"},
		{"the evidence is older", ops.ReconcileOptions{}, func(r *rig, look func()) {
			look()
			r.wait(3 * time.Hour)
			r.wentBack(time.Minute)
			r.wait(3 * 24 * time.Hour)
			r.pause()
		}, "give a ledger"},
		{"the ledger is empty", ops.ReconcileOptions{Effects: listed[ops.Effect]()}, func(r *rig, look func()) {
			r.wentBack(time.Hour)
			look()
		}, "no effect of any key that is expected"},
		{"the ledger is another's", ops.ReconcileOptions{Effects: stray}, func(r *rig, look func()) {
			r.wentBack(time.Hour)
			look()
		}, "no effect of any key that is expected"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, ops.Options{}, func(r *rig) {
				var e *ops.Evidence
				c.play(r, func() { e = r.reconcile(c.ro, due("A-1", time.Hour)) })
				got, _, err := r.ops.Resend(r.Context(), ops.ResendSpec{Evidence: e, Reason: "x"})
				if !errors.Is(err, ops.ErrRefused) || !strings.Contains(err.Error(), c.want) || got.Sent != 0 {
					r.Errorf("%+v %v, want %s", got, err, c.want)
				}
			})
		})
	}
}

// TestResendRetentionEnded: a job whose record may have come and expired between the look and the
// send is left.
func TestResendRetentionEnded(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		e := r.reconcile(ops.ReconcileOptions{}, due("A-1", dedupe.DefaultRetention-time.Hour), due("A-2", time.Hour))
		if e.ToSend() != 2 {
			r.Fatalf("%+v", e.Findings)
		}
		r.wait(2 * time.Hour)
		got, _, err := r.ops.Resend(r.Context(), ops.ResendSpec{Evidence: e, Reason: "x"})
		if err != nil || got.Sent != 1 || got.Moved != 1 {
			r.Errorf("%+v %v, want A-1 left", got, err)
		}
	})
}

// TestReconcileDeadWorkers: where all workers have died, their cards still say how long the records
// are kept, and a profile that says more is not believed.
func TestReconcileDeadWorkers(t *testing.T) {
	for _, profile := range []time.Duration{0, dedupe.DefaultRetention} {
		bubble(t, ops.Options{}, func(r *rig) {
			r.ops = must(ops.New([]ops.Target{{Name: "orders", Queue: r.queue, Store: r.store, Scopes: []string{"orders"}, Retention: profile}}, &ops.Options{By: "ana"}))
			seat := must(controlstore.NewSeat(r.store, controlstore.SeatOptions{Queue: "orders", Owner: "w"}))
			if err := seat.Beat(r.Context(), &control.WorkerStatus{At: time.Now(), State: "running", Scope: "orders", Retention: 24 * time.Hour}); err != nil {
				r.Fatal(err)
			}
			r.wait(2 * time.Hour)
			e := r.reconcile(ops.ReconcileOptions{}, due("A-1", 30*time.Hour))
			r.only(e, ops.FoundUnproven, "records are kept for 24h0m0s")
		})
	}
}

// TestReconcileStrayEffects: an effect of the key in a scope where nobody expects it keeps the job
// from being sent, and one that is expected there does not.
func TestReconcileStrayEffects(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		charge := dedupe.Key{Scope: "orders:charge", Key: "A-1"}
		ledger := func() ops.ReconcileOptions {
			return ops.ReconcileOptions{Letters: true, Effects: listed(ops.Effect{Key: charge, ID: "e"})}
		}
		e := r.reconcile(ledger(), due("A-1", time.Hour))
		r.only(e, ops.FoundElsewhere, "an effect of the key in the scope orders:charge")
		if e.ToSend() != 0 {
			r.Error("it would be sent")
		}
		both := due("A-1", time.Hour)
		both.Key = charge
		if e = r.reconcile(ledger(), due("A-1", time.Hour), both); e.Counts[ops.FoundMissing] != 1 || e.Counts[ops.FoundNoKey] != 1 {
			r.Errorf("%+v", e.Counts)
		}
		r.settle(r.claimKey("A-1", time.Minute, "w"), dedupe.Failed, "timeout")
		r.wait(time.Hour)
		r.only(r.reconcile(ledger(), due("A-1", time.Hour)), ops.FoundElsewhere, "orders:charge")
	})
}

// TestReconcileSince: what is expected again within Since is looked at, and duplicates without a
// time are.
func TestReconcileSince(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		b := dedupe.Key{Scope: "orders", Key: "B-1"}
		e := r.reconcile(ops.ReconcileOptions{Since: time.Now().Add(-24 * time.Hour), Effects: listed(ops.Effect{Key: b, ID: "1"}, ops.Effect{Key: b, ID: "2"})},
			due("A-1", 48*time.Hour), due("A-1", time.Hour))
		if e.Older != 0 || e.Counts[ops.FoundMissing] != 1 || e.Counts[ops.FoundDuplicate] != 1 {
			r.Errorf("%+v", e)
		}
	})
}

// TestDoctorMismatch: the letter of a message whose key another message had done is not obsolete,
// because its own body was never done.
func TestDoctorMismatch(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		r.settle(r.claim(time.Minute, "w"), dedupe.Done, "")
		d := &broker.Letter{Class: onceq.ClassMismatch, Source: "orders", Scope: key.Scope, Key: key.Key, At: time.Now()}
		if err := onceq.SendOne(r.Context(), r.dead, &broker.Outgoing{Body: []byte("another"), Meta: &broker.Meta{Key: key.Key, Dead: d}}); err != nil {
			r.Fatal(err)
		}
		for c, err := range r.ops.Doctor(r.Context(), "orders", &ops.DoctorOptions{Letters: true}) {
			if err != nil {
				r.Fatal(err)
			}
			if c.Check == "obsolete" && (c.State != ops.CheckFound || strings.Contains(c.Mend, "replay")) {
				r.Errorf("%+v", c)
			}
		}
	})
}

// TestReconcilePurged: a failure whose letter somebody has purged is not lost: he may have done the
// job by hand. A ledger tells, and a purge before the failure took nothing of it.
func TestReconcilePurged(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		purge := func() {
			r.Helper()
			spec := ops.PurgeSpec{Queue: "orders", PurgeOptions: dlq.PurgeOptions{All: true, NoExport: true}, Reason: "done by hand"}
			p := must(r.ops.PlanPurge(r.Context(), spec))
			if _, _, err := r.ops.Purge(r.Context(), p, spec); err != nil {
				r.Fatal(err)
			}
		}
		purge()
		r.wait(time.Hour)
		l := r.claim(time.Minute, "w")
		r.settle(l, dedupe.Failed, "timeout")
		r.wait(time.Hour)
		look := func(ro ops.ReconcileOptions) *ops.Evidence {
			ro.Letters = true
			return r.reconcile(ro, due(key.Key, time.Hour))
		}
		lost := look(ops.ReconcileOptions{})
		if r.only(lost, ops.FoundLost, "only with a ledger, or with SendLost"); lost.ToSend() != 0 {
			r.Error("it would be sent, although package dlq purges without an audit")
		}
		if lost = look(ops.ReconcileOptions{SendLost: true}); lost.ToSend() != 1 {
			r.Errorf("%+v, want it sent", lost.Findings)
		}
		r.letterOf(l.Fence)
		r.wait(time.Hour)
		purge()
		e := look(ops.ReconcileOptions{SendLost: true})
		if r.only(e, ops.FoundFailed, "the purge by ana at"); e.ToSend() != 0 {
			r.Error("it would be sent")
		}
		r.only(look(ops.ReconcileOptions{Effects: listed[ops.Effect]()}), ops.FoundLost, "")
	})
}

// TestDoctorOldLetters: a letter of an older version, which names no record, is its failure's.
func TestDoctorOldLetters(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		l := r.claim(time.Minute, "w")
		r.settle(l, dedupe.Failed, "timeout")
		d := &broker.Letter{Fence: l.Fence, Class: "timeout", Source: "orders", At: time.Now()}
		if err := onceq.SendOne(r.Context(), r.dead, &broker.Outgoing{Meta: &broker.Meta{Key: key.Key, Dead: d}}); err != nil {
			r.Fatal(err)
		}
		r.wait(time.Hour)
		for c, err := range r.ops.Doctor(r.Context(), "orders", &ops.DoctorOptions{Letters: true}) {
			if err != nil {
				r.Fatal(err)
			}
			if c.Check == "failed" && c.State != ops.CheckOK {
				r.Errorf("%+v", c)
			}
		}
	})
}

// TestReconcileTwoBodies: of a key that is expected with two bodies nobody knows the right one.
func TestReconcileTwoBodies(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		a, b := due("A-1", time.Hour), due("A-1", time.Hour)
		b.Send.Body = []byte("another")
		e := r.reconcile(ops.ReconcileOptions{}, a, b, due("A-2", time.Hour), due("A-2", time.Hour))
		if e.ToSend() != 1 || e.Repeated != 2 {
			r.Errorf("%d to send: %+v", e.ToSend(), e.Findings)
		}
	})
}

// TestReconcilePurgedUnclaimed: a job that no worker could begin has a letter and no record. Once
// somebody has purged that letter, the job looks missing, and it is not sent either.
func TestReconcilePurgedUnclaimed(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		r.letterOf(0)
		r.wait(time.Hour)
		spec := ops.PurgeSpec{Queue: "orders", PurgeOptions: dlq.PurgeOptions{All: true, NoExport: true}, Reason: "the customer has left"}
		p := must(r.ops.PlanPurge(r.Context(), spec))
		if _, _, err := r.ops.Purge(r.Context(), p, spec); err != nil {
			r.Fatal(err)
		}
		e := r.reconcile(ops.ReconcileOptions{}, due(key.Key, 2*time.Hour), due("A-2", 2*time.Hour))
		if e.Counts[ops.FoundFailed] != 1 || e.Counts[ops.FoundMissing] != 1 || e.ToSend() != 1 || !strings.Contains(e.Findings[0].Why, "the purge by ana at") {
			r.Errorf("%+v", e.Findings)
		}
	})
}

// TestReconcileRekeyed: a failure whose letter was replayed under another key is not lost: its job
// runs there. So it is never sent, whatever a ledger of the old key says.
func TestReconcileRekeyed(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*broker.Outgoing) error
		dies bool // amid the act, so that the audit has no result
		kind ops.FindingKind
		why  string
	}{
		{"another key", func(m *broker.Outgoing) error { m.Meta.Key = "A-1b"; return nil }, false, ops.FoundFailed, `replayed as "A-1b" by ana at`},
		{"nobody knows", func(m *broker.Outgoing) error { m.Meta.Key = "A-1b"; return nil }, true, ops.FoundFailed, "perhaps with the replay by ana at"},
		{"the same key", func(m *broker.Outgoing) error { m.Body = []byte("mended"); return nil }, false, ops.FoundLost, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, ops.Options{}, func(r *rig) {
				l := r.claim(time.Minute, "w")
				r.settle(l, dedupe.Failed, "timeout")
				r.letterOf(l.Fence)
				r.wait(time.Hour)
				spec := ops.ReplaySpec{Queue: "orders", Reason: "mended", ReplayOptions: dlq.ReplayOptions{Edit: c.edit}}
				p := must(r.ops.PlanReplay(r.Context(), spec))
				acting := c.dies
				if acting {
					r.store.FailsAs(func(call onceqtest.Op) error {
						if call == "settle" && acting {
							return errors.New("killed")
						}
						return nil
					})
				}
				if rep, _, err := r.ops.Replay(r.Context(), p); rep.Replayed != 1 || (err != nil) != c.dies {
					r.Fatal(rep, err)
				}
				acting = false
				for _, ro := range []ops.ReconcileOptions{{SendLost: true}, {Effects: listed[ops.Effect]()}} {
					ro.Letters = true
					e := r.reconcile(ro, due(key.Key, time.Hour))
					if r.only(e, c.kind, c.why); e.ToSend() > 0 != (c.kind == ops.FoundLost) {
						r.Errorf("%d to send", e.ToSend())
					}
				}
			})
		})
	}
}

// TestReconcileOwnScope: keys of a type with a scope of its own are where the worker's card says.
func TestReconcileOwnScope(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		r.ops = must(ops.New([]ops.Target{{Name: "orders", Queue: r.queue, DeadLetters: r.dead, Store: r.store}}, &ops.Options{By: "ana"}))
		seat := must(controlstore.NewSeat(r.store, controlstore.SeatOptions{Queue: "orders", Owner: "w"}))
		card := &control.WorkerStatus{At: time.Now(), State: "running", Scope: "orders", Types: []string{"charge", "mail"}, Scopes: map[string]string{"mail": "mails"}, Retention: dedupe.DefaultRetention}
		if err := seat.Beat(r.Context(), card); err != nil {
			r.Fatal(err)
		}
		if got := strings.Join(must(r.ops.Scopes(r.Context(), "orders")), " "); got != "mails orders orders:charge" {
			r.Errorf("the scopes are %s", got)
		}
		cs := must(r.store.Store.Store.Claim(r.Context(), []dedupe.ClaimRequest{{Key: dedupe.Key{Scope: "mails", Key: "A-1"}, Token: token(), TTL: time.Minute, Owner: "w"}}))
		r.settle(cs[0].Lease, dedupe.Failed, "timeout")
		e := r.reconcile(ops.ReconcileOptions{}, due("A-1", time.Hour))
		if r.only(e, ops.FoundElsewhere, "the scope mails has the key"); e.ToSend() != 0 {
			r.Error("it would be sent")
		}
		r.wait(time.Hour)
		for c, err := range r.ops.Doctor(r.Context(), "orders", &ops.DoctorOptions{Letters: true}) {
			if err != nil {
				r.Fatal(err)
			}
			if c.Check == "failed" && !strings.Contains(c.Text, "mails/A-1") {
				r.Errorf("%+v, want the failure of the scope mails", c)
			}
		}
	})
}
