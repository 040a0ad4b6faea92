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
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
	rigs "github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/ops"
)

// counted is a store with the powers of what it wraps.
type counted struct{ *rigs.Store }

func (c counted) Unwrap() any { return c.Store.Store }

type rig struct {
	*testing.T
	queue, dead *membroker.Broker
	store       counted
	ops         *ops.Ops
}

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, o ops.Options, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, store: counted{rigs.NewStore(t)}}
		r.dead = must(membroker.New(&membroker.Options{Name: "orders-dead", Preset: membroker.SQSStandard}))
		r.queue = must(membroker.New(&membroker.Options{Name: "orders", Preset: membroker.SQSStandard, Redrive: &membroker.Redrive{MaxReceives: 40, To: r.dead}}))
		if o.By == "" {
			o.By = "ana"
		}
		r.ops = must(ops.New([]ops.Target{{Name: "orders", Queue: r.queue, DeadLetters: r.dead, Store: r.store, Scopes: []string{"orders"}}}, &o))
		f(r)
	})
}

var tokens struct {
	sync.Mutex
	n uint16
}

func token() (t dedupe.Token) {
	tokens.Lock()
	defer tokens.Unlock()
	tokens.n++
	t[0], t[1], t[2] = byte(tokens.n), byte(tokens.n>>8), 1
	return t
}

var key = dedupe.Key{Scope: "orders", Key: "A-1"}

func (r *rig) claim(ttl time.Duration, owner string) dedupe.Lease {
	r.Helper()
	cs, err := r.store.Store.Store.Claim(r.Context(), []dedupe.ClaimRequest{{Key: key, Token: token(), TTL: ttl, Owner: owner, Sent: time.Now().Add(-time.Second)}})
	if err != nil || cs[0].Outcome != dedupe.Won {
		r.Fatal(err, cs)
	}
	return cs[0].Lease
}

func (r *rig) settle(l dedupe.Lease, to dedupe.Status, class string) {
	r.Helper()
	as, err := r.store.Store.Store.Settle(r.Context(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: to, ErrClass: class, ErrText: class}})
	if err != nil || as[0].Err != nil {
		r.Fatal(err, as)
	}
}

// wait passes virtual time.
func (r *rig) wait(d time.Duration) { <-time.After(d) }

func (r *rig) acts() (es []ops.AuditEntry) {
	r.Helper()
	for e, err := range r.ops.Audit(r.Context(), time.Now().Add(-24*time.Hour), time.Now()) {
		if err != nil {
			r.Fatal(err)
		}
		es = append(es, e)
	}
	return es
}

func TestNew(t *testing.T) {
	b := must(membroker.New(nil))
	for _, c := range []struct {
		ts   []ops.Target
		o    *ops.Options
		want string
	}{
		{nil, nil, "there is no Target"},
		{[]ops.Target{{Queue: b}}, nil, "Target 0 has a Queue and no Name"},
		{[]ops.Target{{Name: "a"}, {Name: "a"}}, nil, `two Targets are named "a"`},
		{[]ops.Target{{Name: "a", MaxAttempts: -1}}, nil, "MaxAttempts is -1"},
		{[]ops.Target{{Name: "a", Retention: -1}}, nil, "Retention is -1ns"},
		{[]ops.Target{{Name: "a"}}, &ops.Options{By: strings.Repeat("x", 257)}, "Options.By has 257 bytes, the limit is 256"},
	} {
		if _, err := ops.New(c.ts, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	o := must(ops.New([]ops.Target{{Name: "a", Queue: b}}, nil))
	if _, err := o.Workers(t.Context(), "b"); !errors.Is(err, ops.ErrUnknownQueue) {
		t.Error(err)
	}
	if _, err := o.Workers(t.Context(), "a"); !errors.Is(err, ops.ErrMissing) {
		t.Error(err)
	}
}

// TestActs: the audit has the intent before, and the result after.
func TestActs(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		l := r.claim(time.Minute, "w")
		r.settle(l, dedupe.Parked, "interrupted")
		during := 0
		r.store.FailsAs(func(call onceqtest.Op) error {
			if call == "settle" && during == 0 {
				r.store.Heals()
				if es := r.acts(); len(es) == 1 && es[0].Act == "resolve" && es[0].Ended.IsZero() && es[0].Object == "orders/A-1" && es[0].Detail["to"] == "done" {
					during++
				}
			}
			return nil
		})
		id, err := r.ops.Resolve(r.Context(), ops.ResolveSpec{Key: key, Fence: l.Fence, To: dedupe.Done, Reason: "the bank has it"})
		if err != nil || during != 1 {
			r.Fatal(err, during)
		}
		if es := r.acts(); len(es) != 1 || es[0].ID != id || es[0].Ended.IsZero() || es[0].By != "ana" || es[0].Reason != "the bank has it" || es[0].Result["status"] != "done" {
			r.Errorf("%+v", es)
		}
		if _, err := r.ops.Resolve(r.Context(), ops.ResolveSpec{Key: key, Fence: l.Fence + 1, To: dedupe.Failed, Reason: "x"}); !errors.Is(err, dedupe.ErrLeaseLost) {
			r.Error(err)
		}
		if es := r.acts(); len(es) != 2 || es[1].Err == "" {
			r.Errorf("%+v", es)
		}
	})
}

// TestNoAudit: where no record can be written nothing is done, unless somebody has said so.
func TestNoAudit(t *testing.T) {
	for _, without := range []bool{false, true} {
		bubble(t, ops.Options{NoAudit: without}, func(r *rig) {
			l := r.claim(time.Minute, "w")
			r.settle(l, dedupe.Failed, "timeout")
			r.store.FailsAs(func(call onceqtest.Op) error {
				if call == "claim" {
					return errors.New("read only")
				}
				return nil
			})
			id, err := r.ops.Forget(r.Context(), ops.ForgetSpec{Key: key, Fence: l.Fence, Reason: "again"})
			gone := must(r.store.Get(r.Context(), []dedupe.Key{key}))[0] == nil
			if gone != without || (err == nil) != without || id != "" || !without && !errors.Is(err, ops.ErrNoAudit) {
				r.Errorf("gone %v, %v", gone, err)
			}
		})
	}
}

// TestLostEnd: an act whose end could not be written is told so, and stays done.
func TestLostEnd(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		l := r.claim(time.Minute, "w")
		r.settle(l, dedupe.Failed, "timeout")
		r.store.FailsAs(func(call onceqtest.Op) error {
			if call == "settle" {
				return errors.New("gone")
			}
			return nil
		})
		_, err := r.ops.Forget(r.Context(), ops.ForgetSpec{Key: key, Fence: l.Fence, Reason: "again"})
		if err == nil || !strings.Contains(err.Error(), "what was done is not in the audit") {
			r.Error(err)
		}
		r.store.Heals()
		if es := r.acts(); len(es) != 1 || !es[0].Ended.IsZero() {
			r.Errorf("%+v", es)
		}
	})
}

// TestPause: a real worker starts nothing once Pause has returned, and goes on after Resume.
func TestPause(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		var ran atomic.Int64
		p := must(onceq.NewProcessor(onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { ran.Add(1); return nil }),
			Store:   r.store, Scope: "orders", Control: onceq.ControlOptions{Every: 2 * time.Second},
		}))
		w := must(p.Worker(r.queue, onceq.WorkerConfig{DeadLetter: r.dead}))
		ctx, stop := context.WithCancel(r.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		send := func(k string) {
			m := broker.Outgoing{Body: []byte("x"), Meta: &broker.Meta{Key: k}}
			if err := onceq.SendOne(r.Context(), r.queue, &m); err != nil {
				r.Fatal(err)
			}
		}
		send("a")
		r.wait(5 * time.Second)
		if ran.Load() != 1 {
			r.Fatalf("%d ran", ran.Load())
		}
		f, err := r.ops.Pause(r.Context(), control.Rule{Queue: "orders", Until: time.Now().Add(time.Hour), Reason: "SMTP"}, nil)
		if err != nil || f.Live != 1 || len(f.Behind) != 0 || f.Took > 15*time.Second || f.Rules[0].By != "ana" || f.Audit == "" {
			r.Fatalf("%+v %v", f, err)
		}
		send("b")
		r.wait(10 * time.Minute)
		if ran.Load() != 1 {
			r.Errorf("%d ran while paused", ran.Load())
		}
		states := must(r.ops.Overview(r.Context()))
		if q := &states[0]; q.Paused == nil || q.Paused.Reason != "SMTP" || q.Totals().Live != 1 || q.Totals().HeadWait != nil || q.Workers[0].State != "paused" {
			r.Errorf("%+v", states)
		}
		f, err = r.ops.Resume(r.Context(), ops.ResumeSpec{Queue: "orders", Reason: "over"}, nil)
		if err != nil || len(f.Behind) != 0 {
			r.Errorf("%+v %v", f, err)
		}
		r.wait(20 * time.Second)
		if ran.Load() != 2 {
			r.Errorf("%d ran after all", ran.Load())
		}
		stop()
		if err := <-ended; err != nil {
			r.Error(err)
		}
	})
}

// TestPrice: the pause of a type that the receives do not pay for is refused, and makes no rule.
func TestPrice(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		rule := control.Rule{Queue: "orders", Type: "charge", Until: time.Now().Add(24 * time.Hour), Reason: "x"}
		if _, err := r.ops.Pause(r.Context(), rule, nil); !errors.Is(err, ops.ErrRefused) || !strings.Contains(err.Error(), "about 100") {
			r.Error(err)
		}
		if rules := must(controlstore.Read(r.Context(), r.store)); rules.Version != 0 || len(r.acts()) != 0 {
			r.Errorf("%+v", rules)
		}
		if f, err := r.ops.Pause(r.Context(), rule, &ops.RuleOptions{Force: true}); err != nil || len(f.Rules) != 1 || f.Live != 0 {
			r.Errorf("%+v %v", f, err)
		}
	})
}

// TestRivals: many operators at once lose no rule, and each gets his own.
func TestRivals(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		var all sync.WaitGroup
		var mu sync.Mutex
		ids := map[string]string{}
		for n := range 8 {
			all.Go(func() {
				reason := fmt.Sprint("reason ", n)
				f, err := r.ops.Limit(r.Context(), control.Rule{Queue: "orders", Slots: n + 1, Until: time.Now().Add(time.Hour), Reason: reason}, &ops.RuleOptions{Follow: -1})
				mu.Lock()
				defer mu.Unlock()
				if err != nil || len(f.Rules) != 1 || f.Rules[0].Reason != reason {
					r.Errorf("%+v %v", f, err)
					return
				}
				ids[f.Rules[0].ID] = reason
			})
		}
		all.Wait()
		if rules := must(controlstore.Read(r.Context(), r.store)); len(rules.Rules) != 8 || len(ids) != 8 || len(r.acts()) != 8 {
			r.Errorf("%d rules, %d ids, %d acts", len(rules.Rules), len(ids), len(r.acts()))
		}
	})
}

// TestKeyReads: a time line costs 12 reads of the store at most, with the seats and the audit.
func TestKeyReads(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		for n := range 40 {
			r.settle(r.claim(time.Minute, "w-1"), dedupe.Released, "timeout")
			if n%10 == 0 {
				r.wait(24 * time.Hour)
			}
		}
		l := r.claim(time.Hour, "w-2")
		s := must(controlstore.NewSeat(r.store, controlstore.SeatOptions{Queue: "orders", Owner: "w-2"}))
		if err := s.Beat(r.Context(), &control.WorkerStatus{At: time.Now(), Scope: "orders", State: "running", Jobs: []control.RunningJob{{Key: "A-1", Fence: l.Fence, At: time.Now()}}}); err != nil {
			r.Fatal(err)
		}
		r.store.Gets.Store(0)
		line := must(r.ops.Key(r.Context(), "orders", key, ops.KeyOptions{}))
		if n := r.store.Gets.Load(); n > 12 {
			r.Errorf("%d reads", n)
		}
		if line.Worker == nil || line.Job == nil || line.Steps[len(line.Steps)-1].What != ops.StepRunning {
			r.Errorf("%+v", line)
		}
		if len(line.Gaps) != 1 || !strings.Contains(line.Gaps[0], "were dropped from the record") {
			r.Errorf("%q", line.Gaps)
		}
		for i := 1; i < len(line.Steps); i++ {
			if line.Steps[i].At.Before(line.Steps[i-1].At) {
				r.Errorf("step %d is out of order", i)
			}
		}
	})
}

// TestReplayStep: a claim that reopened a failure is told with the act that made it.
func TestReplayStep(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		l := r.claim(time.Minute, "w-1")
		r.settle(l, dedupe.Failed, "timeout")
		r.wait(time.Hour)
		a := must(controlstore.Begin(r.Context(), r.store, control.AuditEntry{Act: string(dlq.ActReplay), By: "ana", Reason: "bank back", Queue: "orders"}))
		r.wait(time.Second)
		if err := a.End(r.Context(), nil, nil); err != nil {
			r.Fatal(err)
		}
		cs := must(r.store.Claim(r.Context(), []dedupe.ClaimRequest{{Key: key, Token: token(), TTL: time.Minute, Reopen: l.Fence, Owner: "w-2"}}))
		r.settle(cs[0].Lease, dedupe.Done, "")
		other := must(controlstore.Begin(r.Context(), r.store, control.AuditEntry{Act: string(dlq.ActReplay), By: "bob", Reason: "another", Queue: "mails"}))
		if err := other.End(r.Context(), nil, nil); err != nil {
			r.Fatal(err)
		}
		var words []string
		for _, s := range must(r.ops.Key(r.Context(), "orders", key, ops.KeyOptions{})).Steps {
			words = append(words, s.What)
		}
		if got := strings.Join(words, ", "); got != "sent, claimed, failed, act, claimed, done" {
			r.Error(got)
		}
	})
}

// TestParts: what cannot be asked hides nothing else.
func TestParts(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		r.store.FailsAs(func(call onceqtest.Op) error { return errors.New("the store is away") })
		q := must(r.ops.Overview(r.Context()))[0]
		if q.Depth == nil || q.Letters == nil || q.WorkersErr == nil || q.RulesErr == nil || q.Err() == nil {
			r.Errorf("%+v", q)
		}
		if _, err := r.ops.Overview(r.Context(), "mails"); !errors.Is(err, ops.ErrUnknownQueue) {
			r.Error(err)
		}
	})
	o := must(ops.New([]ops.Target{{Name: "mute", Queue: mute{must(membroker.New(nil))}}}, nil))
	if q := must(o.Overview(t.Context()))[0]; q.Depth != nil || q.Letters != nil || q.Err() != nil || q.Totals().PerMinute != nil {
		t.Errorf("what a service does not tell is not known: %+v", q)
	}
}

// mute is a queue that tells no depth, as Pub/Sub.
type mute struct{ broker.Broker }

// priced is a store that bills reads, such as DynamoDB.
type priced struct {
	dedupe.Store
	index bool
}

func (p priced) Indexed(q dedupe.Query) bool { return p.index && q.Status == dedupe.Failed }

func (p priced) Size(context.Context) (dedupe.TableSize, error) {
	return dedupe.TableSize{Records: 1000, Bytes: 400_000}, nil
}

// TestScanPrice: what no index answers is priced, and not read.
func TestScanPrice(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		r.settle(r.claim(time.Minute, "w"), dedupe.Failed, "timeout")
		list := func(o *ops.Ops, q dedupe.Query, scan bool) (n int, err error) {
			for _, err := range o.Keys(r.Context(), "", ops.KeysQuery{Query: q, Scan: scan}) {
				if err != nil {
					return n, err
				}
				n++
			}
			return n, nil
		}
		e := (*ops.ScanError)(nil)
		failed := dedupe.Query{Status: dedupe.Failed}
		for _, index := range []bool{false, true} {
			o := must(ops.New([]ops.Target{{Store: priced{r.store, index}}}, nil))
			n, err := list(o, failed, false)
			if index && (err != nil || n != 1) || !index && (!errors.As(err, &e) || e.Units != 98 || e.Records != 1000 || e.Dollars <= 0) {
				r.Errorf("index %v: %d %v", index, n, err)
			}
			if n, err := list(o, failed, true); err != nil || n != 1 {
				r.Errorf("%d %v", n, err)
			}
		}
		if n, err := list(r.ops, failed, false); err != nil || n != 1 {
			r.Errorf("%d %v", n, err)
		}
		if _, err := list(r.ops, dedupe.Query{}, false); !errors.As(err, &e) || e.Units != 0 {
			r.Error(err)
		}
	})
}

// TestPeek: messages are given back at once, and people see a copy.
func TestPeek(t *testing.T) {
	redact := func(m *broker.Message) { m.Body = []byte("***"); m.Attributes["card"] = "***" }
	bubble(t, ops.Options{Redact: redact}, func(r *rig) {
		for n := range 3 {
			m := broker.Outgoing{Body: []byte("secret"), Attributes: map[string]string{"card": "4711"}, Meta: &broker.Meta{Key: fmt.Sprint(n)}}
			if _, err := r.ops.Send(r.Context(), "orders", &m, ""); err != nil {
				r.Fatal(err)
			}
		}
		ms := must(r.ops.Peek(r.Context(), "orders", ops.PeekOptions{Max: 2}))
		if len(ms) != 2 || string(ms[0].Body) != "***" || ms[0].Attributes["card"] != "***" || ms[0].Receipt != "" {
			r.Errorf("%+v", ms)
		}
		if d := must(r.queue.Depth(r.Context())); d.Visible != 3 || d.InFlight != 0 {
			r.Errorf("%+v", d)
		}
		if got := must(r.queue.Receive(r.Context(), broker.ReceiveOptions{Max: 1, Visibility: time.Minute})); string(got[0].Body) != "secret" || got[0].Attributes["card"] != "4711" {
			r.Errorf("%+v", got[0])
		}
		if _, err := r.ops.Peek(r.Context(), "orders", ops.PeekOptions{Max: ops.MaxPeek + 1}); !errors.Is(err, ops.ErrRefused) {
			r.Error(err)
		}
		if es := r.acts(); len(es) != 3 || es[0].Act != "send" {
			r.Errorf("%+v", es)
		}
	})
}

// TestEmpty: what the caller could not keep stays in the queue.
func TestEmpty(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		for n := range 10 {
			m := broker.Outgoing{Body: []byte("x"), Meta: &broker.Meta{Key: fmt.Sprint(n)}}
			if err := onceq.SendOne(r.Context(), r.queue, &m); err != nil {
				r.Fatal(err)
			}
		}
		kept := 0
		each := func(*broker.Message) error {
			if kept == 4 {
				return errors.New("disk full")
			}
			kept++
			return nil
		}
		n, _, err := r.ops.Empty(r.Context(), "orders", ops.EmptyOptions{Max: 10, Each: each, Reason: "made twice"})
		if err == nil || n != 4 {
			r.Errorf("%d %v", n, err)
		}
		if d := must(r.queue.Depth(r.Context())); d.Visible != 6 || d.InFlight != 0 {
			r.Errorf("%+v", d)
		}
		if es := r.acts(); len(es) != 1 || es[0].Result["removed"] != "4" || es[0].Err == "" {
			r.Errorf("%+v", es)
		}
	})
}

// TestStalled: the jobs of a dead worker are found by its card.
func TestStalled(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		l := r.claim(30*time.Second, "w-9")
		s := must(controlstore.NewSeat(r.store, controlstore.SeatOptions{Queue: "orders", Owner: "w-9"}))
		if err := s.Beat(r.Context(), &control.WorkerStatus{At: time.Now(), Scope: "orders", State: "running", Jobs: []control.RunningJob{{Key: "A-1", Fence: l.Fence, At: time.Now()}}}); err != nil {
			r.Fatal(err)
		}
		for _, scan := range []bool{false, true} {
			if found := must(r.ops.Stalled(r.Context(), "orders", ops.StalledOptions{Scan: scan})); len(found) != 0 {
				r.Errorf("%+v", found)
			}
		}
		r.wait(time.Minute)
		for _, scan := range []bool{false, true} {
			if found := must(r.ops.Stalled(r.Context(), "orders", ops.StalledOptions{Scan: scan})); len(found) != 1 || found[0].Record.Key != key || found[0].DeadFor != 30*time.Second {
				r.Errorf("scan %v: %+v", scan, found)
			}
		}
		line := must(r.ops.Key(r.Context(), "orders", key, ops.KeyOptions{}))
		if last := line.Steps[len(line.Steps)-1]; last.What != ops.StepLeaseDied || !strings.Contains(last.Text, "its seat is dead") {
			r.Errorf("%+v", last)
		}
	})
}

// TestTargetByName: a target's own name goes before the name that another's workers have for it.
func TestTargetByName(t *testing.T) {
	o := must(ops.New([]ops.Target{{Name: "eu", Known: "orders"}, {Name: "orders", Known: "orders-us"}}, nil))
	for name, want := range map[string]string{"orders": "orders", "eu": "eu", "orders-us": "orders"} {
		if got := must(o.Target(name)); got.Name != want {
			t.Errorf("%s is %s, want %s", name, got.Name, want)
		}
	}
}

// TestSeated: queues are found by their workers, for a day; a store that bills the list says so.
func TestSeated(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		sit := func(queue string) {
			t.Helper()
			seat := must(controlstore.NewSeat(r.store, controlstore.SeatOptions{Queue: queue, Owner: "w-1/1"}))
			if err := seat.Beat(r.Context(), &control.WorkerStatus{At: time.Now(), State: "running"}); err != nil {
				t.Fatal(err)
			}
		}
		sit("eu/mails")
		r.wait(20 * time.Hour)
		sit("orders")
		sit("orders")
		if got := must(r.ops.QueuesWithWorkers(r.Context())); fmt.Sprint(got) != "[eu/mails orders]" {
			t.Error(got)
		}
		r.wait(5 * time.Hour)
		if got := must(r.ops.QueuesWithWorkers(r.Context())); fmt.Sprint(got) != "[orders]" {
			t.Error(got)
		}
		rules, err := r.ops.Rules(r.Context(), "orders")
		if len(rules) > 0 || err != nil {
			t.Error(rules, err)
		}
		must(r.ops.Pause(r.Context(), control.Rule{Queue: "orders", Until: time.Now().Add(time.Hour), Reason: "x"}, &ops.RuleOptions{Follow: -1}))
		if rules := must(r.ops.Rules(r.Context(), "orders")); len(rules) != 1 || rules[0].By != "ana" {
			t.Error(rules)
		}
		if _, err := r.ops.Rules(r.Context(), "mails"); !errors.Is(err, ops.ErrUnknownQueue) {
			t.Error(err)
		}
		bills := must(ops.New([]ops.Target{{Name: "orders", Store: priced{Store: r.store}}}, nil))
		price := (*ops.ScanError)(nil)
		if got, err := bills.QueuesWithWorkers(r.Context()); !errors.As(err, &price) || price.Records != 1000 {
			t.Error(got, err)
		}
	})
}
