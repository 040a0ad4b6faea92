package ops_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/ops"
)

func listed[V any](vs ...V) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		for _, v := range vs {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// due is an order that was due so long ago.
func due(k string, ago time.Duration) ops.Expected {
	return ops.Expected{Key: dedupe.Key{Scope: "orders", Key: k}, Due: time.Now().Add(-ago), Send: &broker.Outgoing{Body: []byte(k)}}
}

// reconcile is the look of a test; what is not set is that of orders that were due an hour ago.
func (r *rig) reconcile(ro ops.ReconcileOptions, es ...ops.Expected) *ops.Evidence {
	r.Helper()
	ro.Expected = listed(es...)
	e, err := r.ops.Reconcile(r.Context(), ro)
	if err != nil {
		r.Fatal(err)
	}
	return e
}

// only is the one finding of an evidence.
func (r *rig) only(e *ops.Evidence, kind ops.FindingKind, why string) {
	r.Helper()
	if len(e.Findings) != 1 || e.Findings[0].Kind != kind || !strings.Contains(e.Findings[0].Why, why) || e.Found() != 1 {
		r.Errorf("%+v\nwant %s, %q", e.Findings, kind, why)
	}
}

func (r *rig) claimKey(k string, ttl time.Duration, owner string) dedupe.Lease {
	r.Helper()
	cs, err := r.store.Store.Store.Claim(r.Context(), []dedupe.ClaimRequest{{Key: dedupe.Key{Scope: "orders", Key: k}, Token: token(), TTL: ttl, Owner: owner}})
	if err != nil || cs[0].Outcome != dedupe.Won {
		r.Fatal(err, cs)
	}
	return cs[0].Lease
}

// TestReconcileTable: each state of a key is the finding that the table in docs/reconcile.md has.
func TestReconcileTable(t *testing.T) {
	hour, played := time.Hour, map[ops.FindingKind]bool{}
	effect := func(f uint64) ops.Effect {
		return ops.Effect{Key: key, ID: fmt.Sprint("e", f), At: time.Now(), Fence: f}
	}
	for _, c := range []struct {
		name  string
		ago   time.Duration
		plant func(r *rig) []ops.Effect // nil = no ledger
		kind  ops.FindingKind           // "" = none
		why   string
		sends bool
	}{
		{name: "no record", ago: hour, kind: ops.FoundMissing, why: "the queue holds no message", sends: true},
		{name: "within grace", ago: 10 * time.Minute},
		{name: "older than the retention", ago: dedupe.DefaultRetention, kind: ops.FoundUnproven, why: "records are kept for 744h0m0s"},
		{name: "running", ago: hour, kind: ops.FoundRunning, why: "attempt 1 runs at w since", plant: func(r *rig) []ops.Effect {
			r.claim(hour, "w")
			return nil
		}},
		{name: "stalled", ago: hour, kind: ops.FoundStalled, why: "w went silent: its lease died at", plant: func(r *rig) []ops.Effect {
			r.claim(time.Second, "w")
			r.wait(time.Minute)
			return nil
		}},
		{name: "retrying", ago: hour, kind: ops.FoundRetrying, why: "attempt 1 ended at", plant: func(r *rig) []ops.Effect {
			r.settle(r.claim(hour, "w"), dedupe.Released, "timeout")
			return nil
		}},
		{name: "postponed", ago: hour, kind: ops.FoundPostponed, why: "nothing brings it", plant: func(r *rig) []ops.Effect {
			r.settle(r.claim(hour, "w"), dedupe.Released, onceq.ClassPostponed)
			return nil
		}},
		{name: "cancelled", ago: hour, kind: ops.FoundCancelled, why: "cancelled by ana: withdrawn", plant: func(r *rig) []ops.Effect {
			r.cancel(key)
			r.wait(2 * time.Minute)
			return nil
		}},
		{name: "parked", ago: hour, kind: ops.FoundParked, why: "key resolve", plant: func(r *rig) []ops.Effect {
			r.settle(r.claim(hour, "w"), dedupe.Parked, "interrupted")
			return nil
		}},
		{name: "parked and young", ago: 0, kind: ops.FoundParked, why: "key resolve", plant: func(r *rig) []ops.Effect {
			r.settle(r.claim(hour, "w"), dedupe.Parked, "interrupted")
			return nil
		}},
		{name: "a letter may still come", ago: hour, kind: ops.FoundFailed, why: "it may still come", plant: func(r *rig) []ops.Effect {
			r.settle(r.claim(hour, "w"), dedupe.Failed, "timeout")
			return nil
		}},
		{name: "no letter", ago: hour, kind: ops.FoundLost, why: "no letter could replay it", sends: true, plant: func(r *rig) []ops.Effect {
			r.settle(r.claim(hour, "w"), dedupe.Failed, "timeout")
			r.wait(2 * time.Minute)
			return nil
		}},
		{name: "the letter of an earlier failure", ago: hour, kind: ops.FoundLost, sends: true, plant: func(r *rig) []ops.Effect {
			l := r.claim(hour, "w")
			r.settle(l, dedupe.Failed, "timeout")
			r.letterOf(l.Fence - 1)
			r.wait(2 * time.Minute)
			return nil
		}},
		{name: "its letter", ago: hour, kind: ops.FoundFailed, why: "its letter is there", plant: func(r *rig) []ops.Effect {
			l := r.claim(hour, "w")
			r.settle(l, dedupe.Failed, "timeout")
			r.letterOf(l.Fence)
			r.wait(2 * time.Minute)
			return nil
		}},
		{name: "a letter without a record", ago: hour, kind: ops.FoundFailed, why: "no worker could begin it", plant: func(r *rig) []ops.Effect {
			r.letterOf(0)
			return nil
		}},
		{name: "done", ago: 0, plant: func(r *rig) []ops.Effect {
			l := r.claim(hour, "w")
			r.settle(l, dedupe.Done, "")
			return []ops.Effect{effect(l.Fence)}
		}},
		{name: "late", ago: hour, kind: ops.FoundLate, why: "1h0m0s after it was due", plant: func(r *rig) []ops.Effect {
			r.settle(r.claim(hour, "w"), dedupe.Done, "")
			return nil
		}},
		{name: "done without an effect", ago: 0, kind: ops.FoundNoEffect, plant: func(r *rig) []ops.Effect {
			r.settle(r.claim(hour, "w"), dedupe.Done, "")
			r.wait(hour)
			return []ops.Effect{}
		}},
		{name: "the ledger is behind", ago: 0, plant: func(r *rig) []ops.Effect {
			r.settle(r.claim(hour, "w"), dedupe.Done, "")
			r.wait(time.Minute)
			return []ops.Effect{}
		}},
		{name: "an effect without a key", ago: hour, kind: ops.FoundNoKey, plant: func(*rig) []ops.Effect { return []ops.Effect{effect(7)} }},
		{name: "an effect, failed", ago: hour, kind: ops.FoundNotDone, why: "the record is failed", plant: func(r *rig) []ops.Effect {
			l := r.claim(hour, "w")
			r.settle(l, dedupe.Failed, "timeout")
			r.wait(2 * time.Minute)
			return []ops.Effect{effect(l.Fence)}
		}},
		{name: "an effect, its record comes", ago: 0, plant: func(r *rig) []ops.Effect { return []ops.Effect{effect(r.claim(hour, "w").Fence)} }},
		{name: "another scope", ago: hour, kind: ops.FoundElsewhere, why: "the scope mails has the key, and it is done there", plant: func(r *rig) []ops.Effect {
			cs, _ := r.store.Store.Store.Claim(r.Context(), []dedupe.ClaimRequest{{Key: dedupe.Key{Scope: "mails", Key: key.Key}, Token: token(), TTL: hour}})
			r.settle(cs[0].Lease, dedupe.Done, "")
			return nil
		}},
		{name: "tried again after its effect", ago: 0, kind: ops.FoundDuplicate, why: "w ended released (timeout) at", plant: func(r *rig) []ops.Effect {
			a := r.claim(hour, "w")
			r.settle(a, dedupe.Released, "timeout")
			b := r.claim(hour, "v")
			r.settle(b, dedupe.Done, "")
			return []ops.Effect{effect(b.Fence), effect(a.Fence)}
		}},
		{name: "twice, without fences", ago: 0, kind: ops.FoundDuplicate, why: "the lease of w died at", plant: func(r *rig) []ops.Effect {
			r.claim(time.Minute, "w")
			first := ops.Effect{Key: key, At: time.Now()}
			r.wait(time.Hour)
			r.settle(r.claim(hour, "v"), dedupe.Done, "")
			return []ops.Effect{first, {Key: key, At: time.Now()}}
		}},
		{name: "a fence from elsewhere", ago: 0, kind: ops.FoundDuplicate, why: "is above the record's", plant: func(r *rig) []ops.Effect {
			l := r.claim(hour, "w")
			r.settle(l, dedupe.Done, "")
			return []ops.Effect{effect(l.Fence), effect(l.Fence + 9)}
		}},
		{name: "a claim that the record lost", ago: 0, kind: ops.FoundDuplicate, why: "does not have all of their claims", plant: func(r *rig) []ops.Effect {
			l := r.claim(hour, "w")
			r.settle(l, dedupe.Done, "")
			return []ops.Effect{effect(l.Fence), effect(l.Fence - 9)}
		}},
	} {
		played[c.kind] = true
		t.Run(c.name, func(t *testing.T) {
			bubble(t, ops.Options{}, func(r *rig) {
				r.ops = must(ops.New([]ops.Target{{Name: "orders", Queue: r.queue, DeadLetters: r.dead, Store: r.store, Scopes: []string{"orders", "mails"}}}, &ops.Options{By: "ana"}))
				x := due(key.Key, c.ago)
				ro := ops.ReconcileOptions{Letters: true, SendLost: true}
				if c.plant != nil {
					if es := c.plant(r); es != nil {
						ro.Effects = listed(es...)
					}
				}
				e := r.reconcile(ro, x)
				if e.Expected != 1 || e.OK+e.Young+e.Found() != 1 {
					r.Errorf("%+v", e)
				}
				if c.kind == "" {
					if e.Found() != 0 {
						r.Errorf("%+v, want nothing", e.Findings)
					}
					return
				}
				r.only(e, c.kind, c.why)
				if f := e.Findings[0]; f.Sends != c.sends || e.ToSend() > 0 != c.sends {
					r.Errorf("%+v: sends %v, want %v", f, f.Sends, c.sends)
				}
			})
		})
	}
	page := string(must(os.ReadFile("../docs/reconcile.md")))
	for _, kind := range ops.FindingKinds() {
		if found := played[kind]; !found || !strings.Contains(page, "`"+string(kind)+"`") {
			t.Errorf("%s: played %v, or docs/reconcile.md has no row of it", kind, found)
		}
	}
}

func (r *rig) letterOf(fence uint64) {
	r.Helper()
	d := &broker.Letter{Fence: fence, Class: "timeout", Source: "orders", Scope: key.Scope, Key: key.Key, At: time.Now()}
	if err := onceq.SendOne(r.Context(), r.dead, &broker.Outgoing{Meta: &broker.Meta{Key: key.Key, Dead: d}}); err != nil {
		r.Fatal(err)
	}
}

// TestReconcileWhileItWaits: a job whose message waits looks missing; the finding says what may
// bring it, and a resend beside it has one effect.
func TestReconcileWhileItWaits(t *testing.T) {
	for _, c := range []struct {
		name, why string
		send      func(r *rig) error
	}{
		{"in the queue", "about 1 messages wait in the queue, and", func(r *rig) error {
			return onceq.SendOne(r.Context(), r.queue, &broker.Outgoing{Meta: &broker.Meta{Key: key.Key}})
		}},
		{"delayed", "about 1 messages wait in the queue, and", func(r *rig) error {
			return onceq.SendOne(r.Context(), r.queue, &broker.Outgoing{Delay: 10 * time.Minute, Meta: &broker.Meta{Key: key.Key}})
		}},
		{"paused", "about 1 messages wait in the queue, which is paused until", func(r *rig) error {
			_, err := r.ops.Pause(r.Context(), control.Rule{Queue: "orders", Until: time.Now().Add(time.Minute), Reason: "the bank is down"}, &ops.RuleOptions{Follow: -1})
			return errors.Join(err, onceq.SendOne(r.Context(), r.queue, &broker.Outgoing{Meta: &broker.Meta{Key: key.Key}}))
		}},
		{"in an outbox", "waits in an outbox", func(*rig) error { return nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, ops.Options{}, func(r *rig) {
				if err := c.send(r); err != nil {
					r.Fatal(err)
				}
				e := r.reconcile(ops.ReconcileOptions{}, due(key.Key, time.Hour))
				r.only(e, ops.FoundMissing, c.why)
				if got, _, err := r.ops.Resend(r.Context(), ops.ResendSpec{Evidence: e, Reason: "x"}); err != nil || got.Sent != 1 {
					r.Fatal(got, err)
				}
				if c.name == "in an outbox" { // whose relay comes back
					_ = onceq.SendOne(r.Context(), r.queue, &broker.Outgoing{Meta: &broker.Meta{Key: key.Key}})
				}
				if ran := r.work(time.Hour); len(ran) != 1 || ran[key.Key] != 1 {
					r.Errorf("%v ran, want one", ran)
				}
			})
		})
	}
}

// work runs a worker for so long, and counts the runs by key.
func (r *rig) work(d time.Duration, keys ...[]byte) map[string]int {
	r.Helper()
	ran := map[string]int{}
	p := must(onceq.NewProcessor(onceq.ProcessorConfig{Scope: "orders", Store: r.store, LetterKeys: keys, Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
		ran[j.Key().Key]++
		return nil
	}), Control: onceq.ControlOptions{Every: 5 * time.Second}}))
	w := must(p.Worker(r.queue, onceq.WorkerConfig{DeadLetter: r.dead, Concurrency: 1}))
	ctx, stop := context.WithCancel(r.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	r.wait(d)
	stop()
	if err := <-ended; err != nil {
		r.Error(err)
	}
	return ran
}

// TestResendRefuses: more than Max, and a store that went back in time without a ledger.
func TestResendRefuses(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		two := []ops.Expected{due("A-1", time.Hour), due("A-2", time.Hour)}
		refused := func(e *ops.Evidence, want string) {
			r.Helper()
			got, audit, err := r.ops.Resend(r.Context(), ops.ResendSpec{Evidence: e, Reason: "x"})
			if !errors.Is(err, ops.ErrRefused) || !strings.Contains(err.Error(), want) || got.Sent != 0 || audit != "" {
				r.Errorf("%+v %q %v, want %s", got, audit, err, want)
			}
			if d := must(r.queue.Depth(r.Context())); d.Visible != 0 {
				r.Errorf("%+v", d)
			}
		}
		refused(r.reconcile(ops.ReconcileOptions{Max: 1}, two...), "2 jobs would be sent, and at most 1 may be")
		refused(nil, "not one of Reconcile")
		reason := controlstore.WentBack + " (fence 7 after 9): reconcile"
		_, err := controlstore.Change(r.Context(), r.store, func(rs *controlstore.Rules) error {
			rs.Rules = append(rs.Rules, control.Rule{Do: control.Pause, Queue: "orders", Until: time.Now().Add(24 * time.Hour), By: "onceq", Reason: reason})
			return nil
		})
		if err != nil {
			r.Fatal(err)
		}
		refused(r.reconcile(ops.ReconcileOptions{}, two...), "give a ledger")
		if _, err := r.ops.Resume(r.Context(), ops.ResumeSpec{Queue: "orders", Reason: "restored"}, &ops.RuleOptions{Follow: -1}); err != nil {
			r.Fatal(err)
		}
		r.wait(20 * 24 * time.Hour)
		two = []ops.Expected{due("A-1", time.Hour), due("A-2", time.Hour)}
		refused(r.reconcile(ops.ReconcileOptions{}, two...), "give a ledger")
		e := r.reconcile(ops.ReconcileOptions{Effects: listed(ops.Effect{Key: two[0].Key, ID: "e"})}, two...)
		if got, _, err := r.ops.Resend(r.Context(), ops.ResendSpec{Evidence: e, Reason: "x"}); err != nil || got.Sent != 1 {
			r.Errorf("%+v %v", got, err)
		}
		if ran := r.work(time.Hour); len(ran) != 1 || ran["A-2"] != 1 {
			r.Errorf("%v ran, want A-2", ran)
		}
		r.wait(15 * 24 * time.Hour)
		e = r.reconcile(ops.ReconcileOptions{}, due("A-3", time.Hour))
		if got, _, err := r.ops.Resend(r.Context(), ops.ResendSpec{Evidence: e, Reason: "x"}); err != nil || got.Sent != 1 {
			r.Errorf("after the retention: %+v %v", got, err)
		}
	})
}

// TestResend: what has begun since is left, the rate is kept, a lost failure is reopened under
// signing keys, and its own fence alone.
func TestResend(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		keys := dlq.Keys{[]byte(strings.Repeat("k", 32))}
		letters := must(dlq.New(r.dead, &dlq.Options{LetterKeys: keys}))
		r.ops = must(ops.New([]ops.Target{{Name: "orders", Queue: r.queue, DeadLetters: r.dead, Letters: letters, Store: r.store, Scopes: []string{"orders"}}}, &ops.Options{By: "ana"}))
		for _, k := range []string{"L-1", "L-2"} {
			r.settle(r.claimKey(k, time.Minute, "w"), dedupe.Failed, "timeout")
		}
		r.wait(time.Hour)
		e := r.reconcile(ops.ReconcileOptions{Letters: true, SendLost: true}, due("L-1", time.Hour), due("L-2", time.Hour), due("M-1", time.Hour), due("M-2", time.Hour), due("M-3", time.Hour))
		if e.ToSend() != 5 {
			r.Fatalf("%+v", e.Findings)
		}
		r.settle(r.claimKey("M-2", time.Minute, "w"), dedupe.Done, "") // its message has come
		f := must(r.store.Get(r.Context(), []dedupe.Key{{Scope: "orders", Key: "L-2"}}))[0].Fence
		cs, _ := r.store.Store.Store.Claim(r.Context(), []dedupe.ClaimRequest{{Key: dedupe.Key{Scope: "orders", Key: "L-2"}, Token: token(), TTL: time.Minute, Reopen: f}})
		r.settle(cs[0].Lease, dedupe.Failed, "timeout") // somebody has replayed it, and it failed anew
		began := time.Now()
		got, audit, err := r.ops.Resend(r.Context(), ops.ResendSpec{Evidence: e, PerSecond: 0.5, Reason: "INC-311"})
		if err != nil || got.Sent != 3 || got.Moved != 2 || audit == "" || time.Since(began) < 4*time.Second {
			r.Errorf("%+v %v after %v", got, err, time.Since(began))
		}
		if es := r.acts(); len(es) != 1 || es[0].Act != "resend" || es[0].Result["sent"] != "3" || es[0].Result["left"] != "2" || !strings.Contains(es[0].Detail["keys"], "orders/M-1") {
			r.Errorf("%+v", es)
		}
		var names []string
		for _, m := range must(r.queue.Receive(r.Context(), broker.ReceiveOptions{Max: 10})) {
			names = append(names, m.Meta.Key)
			if lost := m.Meta.Key == "L-1"; lost != keys.Signed(m) || string(m.Body) != m.Meta.Key || !lost && m.Meta.Created.After(time.Now().Add(-time.Hour)) {
				r.Errorf("%+v %s", m.Meta, m.Body)
			}
		}
		if slices.Sort(names); !slices.Equal(names, []string{"L-1", "M-1", "M-3"}) {
			r.Error(names)
		}
		if ran := r.work(time.Hour, keys...); len(ran) != 3 || ran["L-1"] != 1 {
			r.Errorf("%v ran, want L-1 among them", ran)
		}
		if again, audit, err := r.ops.Resend(r.Context(), ops.ResendSpec{Evidence: r.reconcile(ops.ReconcileOptions{}), Reason: "x"}); err != nil || audit != "" || again.Sent != 0 {
			r.Error("nothing to send was an act", again, audit, err)
		}
	})
}

// TestResendFails: what the queue refuses is told, and the act has it.
func TestResendFails(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		large := due("A-1", time.Hour)
		large.Send.Body = make([]byte, 2<<20)
		e := r.reconcile(ops.ReconcileOptions{}, large, due("A-2", time.Hour))
		got, audit, err := r.ops.Resend(r.Context(), ops.ResendSpec{Evidence: e, Reason: "x"})
		if got.Sent != 1 || len(got.Failed) != 1 || !errors.Is(err, broker.ErrTooLarge) || audit == "" {
			r.Errorf("%d sent, %v, %v", got.Sent, got.Failed, err)
		}
	})
}

// TestReconcileGroups: a queue that needs groups gets one, and one that swallows what it had takes
// the message of a second resend, because the first one may be gone. The key absorbs what comes
// twice.
func TestReconcileGroups(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		fifo := must(membroker.New(&membroker.Options{Name: "orders", Preset: membroker.SQSFIFO}))
		r.ops = must(ops.New([]ops.Target{{Name: "orders", Queue: fifo, Store: r.store, Scopes: []string{"orders"}}}, &ops.Options{By: "ana"}))
		e := r.reconcile(ops.ReconcileOptions{}, due("A-1", time.Hour))
		for range 2 {
			if got, _, err := r.ops.Resend(r.Context(), ops.ResendSpec{Evidence: e, Reason: "x"}); err != nil || got.Sent != 1 {
				r.Error(got, err)
			}
		}
		if d := must(fifo.Depth(r.Context())); d.Visible != 2 {
			r.Errorf("%+v, want two messages", d)
		}
		r.queue = fifo
		if ran := r.work(time.Hour); len(ran) != 1 || ran["A-1"] != 1 {
			r.Errorf("%v ran, want A-1 once", ran)
		}
	})
}

// TestReconcileInputs: what is torn ends the look before the store is asked, and so does a price
// that nobody pays.
func TestReconcileInputs(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		torn, tooMuch := errors.New("line 7 is torn"), errors.New("too much")
		bad := func(yield func(ops.Expected, error) bool) { yield(ops.Expected{}, torn) }
		badEffects := func(yield func(ops.Effect, error) bool) { yield(ops.Effect{}, torn) }
		r.store.FailsAs(func(op onceqtest.Op) error { return errors.New("asked") })
		for _, c := range []struct {
			ro   ops.ReconcileOptions
			want error
		}{
			{ops.ReconcileOptions{Expected: bad}, torn},
			{ops.ReconcileOptions{Expected: listed[ops.Expected](), Effects: badEffects}, torn},
			{ops.ReconcileOptions{Expected: listed(ops.Expected{Key: dedupe.Key{Scope: "orders"}})}, dedupe.ErrBadKey},
			{ops.ReconcileOptions{Expected: listed[ops.Expected](), Effects: listed(ops.Effect{})}, dedupe.ErrBadKey},
			{ops.ReconcileOptions{}, ops.ErrRefused},
			{ops.ReconcileOptions{Expected: listed[ops.Expected](), Max: -1}, ops.ErrRefused},
			{ops.ReconcileOptions{Expected: listed[ops.Expected](), Queue: "mails"}, ops.ErrUnknownQueue},
		} {
			if _, err := r.ops.Reconcile(r.Context(), c.ro); !errors.Is(err, c.want) {
				r.Errorf("%v, want %v", err, c.want)
			}
		}
		r.store.Heals()
		e, err := r.ops.Reconcile(r.Context(), ops.ReconcileOptions{Expected: listed(due("A-1", time.Hour)), Before: func(c ops.ReconcileCost) error {
			if c.Keys != 1 || c.Units != 0 {
				r.Errorf("%+v", c)
			}
			return tooMuch
		}})
		if !errors.Is(err, tooMuch) || e.Reads != 0 {
			r.Error(e, err)
		}
	})
}

// TestReconcileSorts: rows beyond the room of memory come together by key all the same, whatever
// their order was.
func TestReconcileSorts(t *testing.T) {
	room := ops.SetSortRoom(4 << 10)
	defer ops.SetSortRoom(room)
	bubble(t, ops.Options{}, func(r *rig) {
		const n = 1000
		var es []ops.Expected
		var fs []ops.Effect
		for i := range n {
			// One key is the beginning of another, and holds what sorts before everything else.
			x := due(fmt.Sprintf("A-%d%s", i, strings.Repeat("\x01", i%3)), time.Hour)
			x.Ref = strings.Repeat("r", i%200)
			if i%7 == 0 {
				x.Send = nil
			}
			es = append(es, x)
			if i%2 == 0 {
				fs = append(fs, ops.Effect{Key: x.Key, ID: fmt.Sprint(i)}, ops.Effect{Key: x.Key, ID: fmt.Sprint(i)})
			}
		}
		es = append(es, es[5], es[6])
		fs = append(fs, ops.Effect{Key: dedupe.Key{Scope: "orders", Key: "nobody's"}})
		rand.Shuffle(len(es), func(i, j int) { es[i], es[j] = es[j], es[i] })
		rand.Shuffle(len(fs), func(i, j int) { fs[i], fs[j] = fs[j], fs[i] })
		e := r.reconcile(ops.ReconcileOptions{Effects: listed(fs...)}, es...)
		if e.Expected != n || e.Repeated != 2 || e.Others != 1 || e.Effects != n/2 || e.Reads != n || e.Counts[ops.FoundMissing] != n/2 || e.Counts[ops.FoundNoKey] != n/2 {
			r.Errorf("%+v", e)
		}
		seen := map[string]ops.Finding{}
		for _, f := range e.Findings {
			seen[f.Key.Key] = f
		}
		for _, x := range es {
			if f := seen[x.Key.Key]; f.Ref != x.Ref || !f.Due.Equal(x.Due.Truncate(time.Microsecond)) || f.Kind == ops.FoundMissing && f.Sends != (x.Send != nil) {
				r.Fatalf("%+v is %+v", x, f)
			}
		}
	})
}

// TestReconcileOthers: two effects of a key that nobody expects are a duplicate, one is nothing,
// and what is older than Since is left out.
func TestReconcileOthers(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		at := func(k, id string, ago time.Duration) ops.Effect {
			return ops.Effect{Key: dedupe.Key{Scope: "orders", Key: k}, ID: id, At: time.Now().Add(-ago)}
		}
		e := r.reconcile(ops.ReconcileOptions{Since: time.Now().Add(-24 * time.Hour), Effects: listed(
			at("B-1", "1", time.Hour), at("B-1", "2", time.Hour), at("B-2", "1", time.Hour), at("B-3", "1", 48*time.Hour), at("B-3", "2", 48*time.Hour),
		)}, due("A-1", 48*time.Hour))
		r.only(e, ops.FoundDuplicate, "2 effects: no record tells of their claims")
		if e.Older != 1 || e.Expected != 0 || e.Others != 5 || e.Findings[0].Key.Key != "B-1" {
			r.Errorf("%+v", e)
		}
	})
}
