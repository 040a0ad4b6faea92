package ops_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// died fails a job, and puts its letter. change may make the letter one of another form.
func (r *rig) died(k string, change ...func(*broker.Letter)) dedupe.Lease {
	r.Helper()
	of := dedupe.Key{Scope: "orders:charge", Key: k}
	l := r.reclaim(of, 0)
	r.settle(l, dedupe.Failed, "timeout")
	d := &broker.Letter{
		Fence: l.Fence, Class: "timeout", LastErr: "no answer", Attempts: 1, Source: "orders", Scope: of.Scope, Key: k, At: time.Now(),
	}
	for _, c := range change {
		c(d)
	}
	m := broker.Outgoing{Body: []byte(k), Meta: &broker.Meta{ID: "j-" + k, Key: k, Type: "charge", Dead: d}}
	must(r.dead.Send(r.Context(), []broker.Outgoing{m}))
	<-time.After(time.Millisecond)
	return l
}

// reclaim claims a key; fence names the failure that it reopens.
func (r *rig) reclaim(k dedupe.Key, fence uint64) dedupe.Lease {
	r.Helper()
	cs := must(r.store.Store.Store.Claim(r.Context(), []dedupe.ClaimRequest{{Key: k, Token: token(), TTL: time.Minute, Owner: "w", Reopen: fence}}))
	if cs[0].Outcome != dedupe.Won {
		r.Fatal(cs)
	}
	return cs[0].Lease
}

func (r *rig) wantDepths(dead, queue int64) {
	r.Helper()
	if d, q := must(r.dead.Depth(r.Context())), must(r.queue.Depth(r.Context())); d.Visible != dead || q.Visible != queue {
		r.Errorf("letters %+v, queue %+v; want %d and %d", d, q, dead, queue)
	}
}

// TestReplayJudges: the store says of each letter what became of its job. Done ones are removed,
// those that failed anew or run stay, and each of the others is sent.
func TestReplayJudges(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		r.died("reopens")
		done := r.died("done")
		r.settle(r.reclaim(done.Key, done.Fence), dedupe.Done, "")
		anew := r.died("anew")
		r.settle(r.reclaim(anew.Key, anew.Fence), dedupe.Failed, "timeout")
		runs := r.died("runs")
		r.reclaim(runs.Key, runs.Fence)
		gone := r.died("forgotten")
		must(r.store.Store.Store.Forget(r.Context(), []dedupe.Forgotten{{Key: gone.Key, Fence: gone.Fence}}))
		r.died("old", func(d *broker.Letter) { d.Scope, d.Key = "", "" })
		r.died("early", func(d *broker.Letter) { d.Fence, d.Class = 0, onceq.ClassTooEarly })

		spec := ops.ReplaySpec{Queue: "orders", Reason: "bank back", Note: "none"}
		p := must(r.ops.PlanReplay(r.Context(), spec))
		if p.Reopen != 1 || p.Done != 1 || p.Moved != 2 || p.Ordinary != 2 || p.Unknown != 1 || len(p.Letters) != 7 || p.Count(dlq.Take) != 4 || p.Queue != "orders-dead" {
			t.Errorf("%+v", p)
		}
		r.wantDepths(7, 0)
		var fates []string
		p.Spec.Each = func(s dlq.Step) { fates = append(fates, s.Entry.Ref().Key+" "+s.Result.String()) }
		rep, audit, err := r.ops.Replay(r.Context(), p)
		if err != nil || rep.Replayed != 4 || rep.Removed != 1 || len(rep.Skipped) != 2 || audit == "" {
			t.Errorf("%v, %v, %v", err, rep, fates)
		}
		r.wantDepths(2, 4)
		for e, err := range r.ops.Audit(r.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)) {
			if err != nil || e.Act != string(dlq.ActReplay) || e.By != "ana" || e.Reason != "bank back" || e.Object != "plan "+p.ID || e.Queue != "orders" ||
				e.Result["sent"] != "4" || e.Result["removed"] != "1" || e.Detail["leave"] != "2" || e.Ended.IsZero() {
				t.Errorf("%+v, %v", e, err)
			}
		}
		// An edited body may be another job's, so the record of this one removes nothing.
		spec.Edit = func(*broker.Outgoing) error { return nil }
		again := r.died("done 2")
		r.settle(r.reclaim(again.Key, again.Fence), dedupe.Done, "")
		if p := must(r.ops.PlanReplay(r.Context(), spec)); p.Done != 0 || p.Moved != 2 || p.Ordinary != 1 {
			t.Errorf("%+v", p)
		}
	})
}

// TestReplayIsRefused: without a reason, a name or an audit nothing is done. Neither is it while
// somebody else does it, or by a plan that does not hold.
func TestReplayIsRefused(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		r.died("a")
		r.died("b")
		p := must(r.ops.PlanReplay(r.Context(), ops.ReplaySpec{Queue: "orders"}))
		act := func(change func(s *ops.ReplaySpec)) error {
			t.Helper()
			c := *p
			c.Spec.Reason = "bank back"
			change(&c.Spec)
			_, audit, err := r.ops.Replay(r.Context(), &c)
			r.wantDepths(2, 0)
			if err == nil || audit != "" {
				t.Errorf("%v, audit %q", err, audit)
			}
			return err
		}
		if err := act(func(s *ops.ReplaySpec) { s.Reason = "" }); !errors.Is(err, control.ErrInvalid) {
			t.Error(err)
		}
		if err := act(func(s *ops.ReplaySpec) { s.Canary = 2 }); !strings.Contains(err.Error(), "leaves nothing to go on with") {
			t.Error(err)
		}
		if err := act(func(s *ops.ReplaySpec) { s.Queue = "mails" }); !errors.Is(err, ops.ErrUnknownQueue) {
			t.Error(err)
		}
		r.store.FailsAs(func(call onceqtest.Op) error {
			if call == "claim" {
				return errors.New("no")
			}
			return nil
		})
		if err := act(func(*ops.ReplaySpec) {}); !errors.Is(err, ops.ErrNoAudit) {
			t.Error(err)
		}
		r.store.Heals()
		// While Bob is at it others are refused.
		bob, dies := context.WithCancel(r.Context())
		defer dies()
		at := r.actAs(bob, "bob")
		beside := *p
		beside.Spec.Reason = "x"
		_, _, err := r.ops.Replay(r.Context(), &beside)
		b, ok := errors.AsType[*ops.ConflictError](err)
		if !ok || b.Entry.By != "bob" || b.Left <= 0 || b.Left > 30*time.Second || !strings.Contains(err.Error(), "bob began a purge of the letters of orders at ") {
			t.Error(err)
		}
		<-time.After(time.Minute) // he lives, so he is still at it
		if _, _, err := r.ops.Replay(r.Context(), &beside); !errors.As(err, &b) {
			t.Error(err)
		}
		dies()
		<-at
		<-time.After(dlq.PlanTTL)
		if err := act(func(*ops.ReplaySpec) {}); !errors.Is(err, dlq.ErrPlan) {
			t.Error(err)
		}
	})
}

// TestReplayWatchesTheStore: a batch whose jobs are done is not watched any longer.
func TestReplayWatchesTheStore(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		for i := range 13 {
			r.died(fmt.Sprint("k-", i))
		}
		p := must(r.ops.PlanReplay(r.Context(), ops.ReplaySpec{Queue: "orders", Reason: "x", ReplayOptions: dlq.ReplayOptions{Canary: 2, Ramp: true}}))
		var batches []dlq.Progress
		p.Spec.EachBatch = func(b dlq.Progress) { batches = append(batches, b) }
		began := time.Now()
		p.Spec.Each = func(s dlq.Step) {
			if s.Result == dlq.Replayed { // the worker's part
				ref := s.Entry.Ref()
				r.settle(r.reclaim(dedupe.Key(ref.Record), ref.Fence), dedupe.Done, "")
			}
		}
		rep, _, err := r.ops.Replay(r.Context(), p)
		if err != nil || rep.Replayed != 13 || len(batches) != 2 || batches[0].Done != 2 || batches[1].Done != 10 || time.Since(began) > 10*time.Second {
			t.Errorf("%v, %v, %+v after %v", err, rep, batches, time.Since(began))
		}
	})
}

// TestPurgeOfLetters: the plan's letters are removed, and no others; the audit has the numbers.
func TestPurgeOfLetters(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		r.died("a")
		spec := ops.PurgeSpec{Queue: "orders", Reason: "refunded", PurgeOptions: dlq.PurgeOptions{Filter: dlq.Filter{Class: "timeout"}}}
		p := must(r.ops.PlanPurge(r.Context(), spec))
		r.died("b")
		if _, audit, err := r.ops.Purge(r.Context(), p, spec); err == nil || audit != "" {
			t.Errorf("without an Export: %v %q", err, audit)
		}
		r.wantDepths(2, 0)
		kept := 0
		spec.Export = func(dlq.Entry) error { kept++; return nil }
		rep, audit, err := r.ops.Purge(r.Context(), p, spec)
		if err != nil || rep.Purged != 1 || kept != 1 {
			t.Errorf("%v, %v", err, rep)
		}
		r.wantDepths(1, 0)
		e := must(controlstore.ReadAct(r.Context(), r.store, audit))
		if e.Act != string(dlq.ActPurge) || e.Result["purged"] != "1" || e.Reason != "refunded" {
			t.Errorf("%+v", e)
		}
	})
}

// TestLettersAreRedacted: nobody sees what Redact hides.
func TestLettersAreRedacted(t *testing.T) {
	hide := func(m *broker.Message) {
		m.Body = []byte("hidden")
		m.Meta.Key, m.Meta.Dead.LastErr = "hidden key", "hidden error"
	}
	bubble(t, ops.Options{Redact: hide}, func(r *rig) {
		r.died("a")
		for e, err := range r.ops.Letters(r.Context(), "orders", dlq.Filter{}) {
			if err != nil || string(e.Message.Body) != "hidden" {
				t.Errorf("%v %s", err, e.Message.Body)
			}
		}
		if es := must(r.ops.Letter(r.Context(), ops.LetterQuery{Queue: "orders", Job: "a"})); string(es[0].Message.Body) != "hidden" {
			t.Errorf("%s", es[0].Message.Body)
		}
		if gs := must(r.ops.Groups(r.Context(), "orders", dlq.Filter{})); len(gs) != 1 || gs[0].Group != dlq.Fingerprint("timeout", "no answer") ||
			gs[0].Key != "hidden key" || gs[0].Sample != "hidden error" || gs[0].Error != "hidden error" || gs[0].Class != "timeout" {
			t.Errorf("%+v", gs)
		}
		if l := must(r.ops.Key(r.Context(), "orders", dedupe.Key{Scope: "orders:charge", Key: "a"}, ops.KeyOptions{Letters: true})); l.Letter == nil || string(l.Letter.Message.Body) != "hidden" {
			t.Errorf("%+v", l.Letter)
		}
		// What is replayed is what came.
		p := must(r.ops.PlanReplay(r.Context(), ops.ReplaySpec{Queue: "orders", Reason: "x"}))
		if _, _, err := r.ops.Replay(r.Context(), p); err != nil {
			t.Fatal(err)
		}
		if ms := must(r.queue.Receive(r.Context(), broker.ReceiveOptions{Max: 1})); len(ms) != 1 || string(ms[0].Body) != "a" {
			t.Errorf("%+v", ms)
		}
	})
}

// actAs is a purge by somebody who says nothing more once ctx has ended, as if he had been killed.
func (r *rig) actAs(ctx context.Context, by string) (done <-chan struct{}) {
	r.Helper()
	began, ended := make(chan struct{}), make(chan struct{})
	store := &silenced{Store: r.store.Store.Store}
	his := must(ops.New([]ops.Target{{Name: "orders", Queue: r.queue, DeadLetters: r.dead, Store: store}}, &ops.Options{By: by}))
	p := must(his.PlanPurge(ctx, ops.PurgeSpec{Queue: "orders", PurgeOptions: dlq.PurgeOptions{All: true}}))
	go func() {
		defer close(ended)
		_, _, _ = his.Purge(ctx, p, ops.PurgeSpec{Queue: "orders", Reason: "x", PurgeOptions: dlq.PurgeOptions{All: true, Export: func(dlq.Entry) error {
			close(began)
			<-ctx.Done()
			store.dead.Store(true)
			return errors.New("killed")
		}}})
	}()
	<-began
	synctest.Wait()
	return ended
}

// silenced is the store of a process that was killed: nothing that it says arrives any more.
type silenced struct {
	dedupe.Store
	dead atomic.Bool
}

var errSilenced = fmt.Errorf("%w: killed", dedupe.ErrBadRequest)

func (m *silenced) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	if m.dead.Load() {
		return nil, errSilenced
	}
	return m.Store.Renew(ctx, rs)
}

func (m *silenced) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	if m.dead.Load() {
		return nil, errSilenced
	}
	return m.Store.Settle(ctx, ss)
}

// TestReplayAfterADeadOperator: an operator who was killed in his act leaves an audit record
// without an end. The next one waits for half a minute at most, and does not have to say that he
// goes on beside somebody.
func TestReplayAfterADeadOperator(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		r.died("a")
		bob, dies := context.WithCancel(r.Context())
		at := r.actAs(bob, "bob")
		dies()
		<-at
		spec := ops.ReplaySpec{Queue: "orders", Reason: "bob is gone"}
		p := must(r.ops.PlanReplay(r.Context(), spec))
		_, _, err := r.ops.Replay(r.Context(), p)
		b, ok := errors.AsType[*ops.ConflictError](err)
		if !ok || b.Entry.By != "bob" {
			t.Fatal(err)
		}
		<-time.After(b.Left + time.Second)
		rep, audit, err := r.ops.Replay(r.Context(), p)
		if err != nil || rep.Replayed != 1 || audit == "" {
			t.Error(rep, audit, err)
		}
		r.wantDepths(0, 1)
	})
}

// TestOptionsOfOps: what ops sets by itself is refused, so that nobody takes an act for a dry run.
func TestOptionsOfOps(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		r.died("a")
		purge := ops.PurgeSpec{Queue: "orders", Reason: "x", PurgeOptions: dlq.PurgeOptions{All: true, NoExport: true}}
		p := must(r.ops.PlanReplay(r.Context(), ops.ReplaySpec{Queue: "orders", Reason: "x"}))
		purged := must(r.ops.PlanPurge(r.Context(), purge))
		for name, o := range map[string]dlq.ReplayOptions{
			"DryRun": {DryRun: true}, "Plan": {Plan: p.Plan},
			"Judge": {Judge: func(context.Context, []dlq.Planned) error { return nil }},
			"Done":  {Done: func(context.Context, []dlq.Ref) (dlq.Became, error) { return dlq.Became{}, nil }},
		} {
			spec := ops.ReplaySpec{Queue: "orders", Reason: "x", ReplayOptions: o}
			if _, err := r.ops.PlanReplay(r.Context(), spec); !errors.Is(err, ops.ErrRefused) {
				t.Errorf("%s: %v", name, err)
			}
			act := *p
			act.Spec = spec
			if _, _, err := r.ops.Replay(r.Context(), &act); !errors.Is(err, ops.ErrRefused) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, change := range map[string]func(*ops.PurgeSpec){
			"DryRun": func(s *ops.PurgeSpec) { s.DryRun = true }, "Plan": func(s *ops.PurgeSpec) { s.Plan = purged },
		} {
			spec := purge
			change(&spec)
			if _, err := r.ops.PlanPurge(r.Context(), spec); !errors.Is(err, ops.ErrRefused) {
				t.Errorf("%s: %v", name, err)
			}
			if _, _, err := r.ops.Purge(r.Context(), purged, spec); !errors.Is(err, ops.ErrRefused) {
				t.Errorf("%s: %v", name, err)
			}
		}
		r.wantDepths(1, 0)
	})
}

// TestReplayByTwoAtOnce: of two who begin together one goes on, and the other hears of him.
func TestReplayByTwoAtOnce(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		for i := range 20 {
			r.died(fmt.Sprint("k-", i))
		}
		p := must(r.ops.PlanReplay(r.Context(), ops.ReplaySpec{Queue: "orders", Reason: "x", ReplayOptions: dlq.ReplayOptions{PerSecond: 1}}))
		var wg sync.WaitGroup
		var done, refused atomic.Int32
		for range 8 {
			wg.Go(func() {
				mine := *p
				switch _, _, err := r.ops.Replay(r.Context(), &mine); {
				case err == nil:
					done.Add(1)
				case errors.As(err, new(*ops.ConflictError)):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if done.Load() != 1 || refused.Load() != 7 {
			t.Errorf("%d went on, %d were refused", done.Load(), refused.Load())
		}
		r.wantDepths(0, 20)
	})
}
