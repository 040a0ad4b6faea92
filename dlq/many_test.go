package dlq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// room is how many letters a call holds in these tests.
const room = 50

func small(r *rig) { r.dlq = open(r.t, r.dead, &dlq.Options{Name: "orders-dead", MaxHeld: room}) }

// outage puts n letters of a timeout, with the keys k-0, k-1, …
func (r *rig) outage(n int) {
	r.t.Helper()
	var ls []broker.Outgoing
	for i := range n {
		ls = append(ls, letterOf(fmt.Sprint("k-", i), uint64(i+1), class("timeout")))
	}
	r.put(ls...)
}

// unfit puts letters that no plan of the outage may take: two of another class from before it, and
// three that come after it was frozen. The clock of the worker of one of these is an hour behind.
func (r *rig) unfit(frozen bool) {
	r.t.Helper()
	if !frozen {
		r.put(letterOf("x-poison", 9001), letterOf("x-mail", 9002))
		return
	}
	pass(time.Second)
	r.put(letterOf("x-new", 9003, class("timeout")), letterOf("x-behind", 9004, class("timeout"), func(o *broker.Outgoing) {
		o.Meta.Dead.At = time.Now().Add(-time.Hour)
	}), letterOf("k-0", 9005, class("timeout")))
}

// last has the letters that match handed out after the others.
func (r *rig) last(match func(*broker.Message) bool) {
	r.t.Helper()
	var first, last []broker.Hold
	for {
		ms, err := r.dead.Receive(context.Background(), broker.ReceiveOptions{Max: r.dead.Limits().ReceiveBatch, Visibility: time.Minute})
		if err != nil {
			r.t.Fatal(err)
		}
		if len(ms) == 0 {
			break
		}
		for _, m := range ms {
			if match(m) {
				last = append(last, broker.Hold{Receipt: m.Receipt})
			} else {
				first = append(first, broker.Hold{Receipt: m.Receipt})
			}
		}
	}
	for _, hs := range [][]broker.Hold{first, last} {
		for chunk := range slices.Chunk(hs, r.dead.Limits().SettleBatch) {
			if err := r.dead.Nack(context.Background(), chunk); err != nil {
				r.t.Fatal(err)
			}
		}
		pass(time.Millisecond)
	}
}

// However many letters there are, a plan takes as many as it says, and none that it is not about:
// neither of another kind, nor one that came after it was frozen, whatever its worker's clock says.
func TestPlanOfMoreThanIsHeld(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		for _, n := range []int{room - 10, room + 10, 2*room + 20, 6 * room} {
			for _, most := range []int{0, 10} {
				small(r)
				if n == 2*room+20 { // its broker tells no number
					r.dlq = open(t, struct{ broker.Broker }{r.dead}, &dlq.Options{Name: "orders-dead", MaxHeld: room})
				}
				r.outage(n)
				r.unfit(false)
				pass(time.Second)
				what := fmt.Sprintf("%d letters, at most %d", n, most)
				p, err := r.dlq.PlanReplay(context.Background(), dlq.ReplayOptions{To: r.queue, Filter: dlq.Filter{Class: "timeout", Max: most}})
				if err != nil && (!errors.Is(err, dlq.ErrIncomplete) || p.Rest == nil) {
					t.Fatal(what, err)
				}
				p = r.filed(p)
				r.unfit(true)
				o := dlq.ReplayOptions{Plan: p}
				if most > 0 && n == 6*room {
					o.Max = most + 5 // the plan's own bound holds
				}
				rep, err := r.replay(o)
				want := n
				if most > 0 {
					want = most
				}
				got := keys(r.drain(r.queue))
				if err != nil || rep.Replayed < want-1 || rep.Replayed > want || len(got) != rep.Replayed {
					t.Errorf("%s: %v, %v", what, err, rep)
				}
				for _, k := range got {
					if strings.HasPrefix(k, "x-") {
						t.Errorf("%s: %s was sent", what, k)
					}
				}
				if len(slices.Compact(got)) != rep.Replayed {
					t.Errorf("%s: sent twice: %v", what, got)
				}
				pass(20 * time.Minute) // what was let go comes again
				if left := len(r.drain(r.dead)); left != n+5-rep.Replayed {
					t.Errorf("%s: %d are left, want %d", what, left, n+5-rep.Replayed)
				}
				pass(20 * time.Minute)
			}
		}
	})
}

// A plan that saw the whole queue takes its letters and no others, also where more than can be held
// came since.
func TestPlanBehindNewerLetters(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		small(r)
		r.many(30)
		p := r.plan(dlq.ReplayOptions{})
		if p.Rest != nil {
			t.Errorf("%+v", p.Rest)
		}
		pass(time.Second)
		var ls []broker.Outgoing
		for i := range 4 * room {
			ls = append(ls, letterOf(fmt.Sprint("new-", i), uint64(1000+i), func(o *broker.Outgoing) { o.Meta.Dead.At = time.Now().Add(-time.Hour) }))
		}
		r.put(ls...)
		r.last(func(m *broker.Message) bool { return strings.HasPrefix(m.Meta.Key, "k-") })
		rep, err := r.replay(dlq.ReplayOptions{Plan: p})
		if err != nil || rep.Replayed != 30 {
			t.Errorf("%v, %v", err, rep)
		}
		for _, k := range keys(r.drain(r.queue)) {
			if strings.HasPrefix(k, "new") {
				t.Errorf("%s was sent", k)
			}
		}
		pass(20 * time.Minute)
		if left := len(r.drain(r.dead)); left != 4*room {
			t.Errorf("%d are left", left)
		}
	})
}

// A purge of many writes each letter before it removes it, and takes none that it is not about.
func TestPurgeOfMoreThanIsHeld(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		for _, most := range []int{0, 2*room + 20, 10} {
			small(r)
			n := 3 * room
			r.outage(n)
			r.unfit(false)
			pass(time.Second)
			p, err := r.dlq.PlanPurge(context.Background(), dlq.PurgeOptions{Filter: dlq.Filter{Class: "timeout", Max: most}, NoExport: true})
			if p == nil {
				t.Fatal(err)
			}
			p = r.filed(p)
			r.unfit(true)
			var kept []string
			rep, err := r.dlq.Purge(context.Background(), dlq.PurgeOptions{Plan: p, Export: func(e dlq.Entry) error {
				kept = append(kept, e.Ref().Key)
				return nil
			}})
			want := n
			if most > 0 {
				want = most
			}
			if err != nil || rep.Purged < want-1 || rep.Purged > want || len(kept) != rep.Purged {
				t.Errorf("at most %d: %v, %v; %d kept", most, err, rep, len(kept))
			}
			pass(20 * time.Minute)
			left := r.drain(r.dead)
			if slices.Sort(kept); len(left)+len(kept) != n+5 || len(slices.Compact(kept)) != rep.Purged || strings.HasPrefix(kept[len(kept)-1], "x-") {
				t.Errorf("at most %d: %d left, kept %v", most, len(left), kept)
			}
			pass(20 * time.Minute)
		}
	})
}

// The letters that a plan does not list are judged when they are met: one whose job is done is
// removed, one that has moved on stays. An error of Judge ends the replay.
func TestRestIsJudged(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		small(r)
		n := 4 * room
		r.outage(n)
		pass(time.Second)
		p, _ := r.dlq.PlanReplay(context.Background(), dlq.ReplayOptions{To: r.queue})
		judged := 0
		r.last(func(m *broker.Message) bool {
			return !slices.ContainsFunc(p.Letters, func(l dlq.Planned) bool { return l.MessageID == m.ID })
		})
		o := dlq.ReplayOptions{Plan: p, Judge: func(_ context.Context, ls []dlq.Planned) error {
			for i := range ls {
				judged++
				switch ls[i].Fence % 3 {
				case 1:
					ls[i].Decision, ls[i].Why = dlq.Remove, "its job is done"
				case 2:
					ls[i].Decision, ls[i].Why = dlq.Leave, "it runs"
				}
			}
			return nil
		}}
		rep := r.mustReplay(o)
		listed := len(p.Letters)
		if judged != n-listed || rep.Replayed != listed+50 || rep.Removed != 50 || len(rep.Skipped) != 50 || rep.Missing != 0 {
			t.Errorf("%d listed, %d judged, %v", listed, judged, rep)
		}
		o.Judge = func(context.Context, []dlq.Planned) error { return errFault }
		r.outage(n)
		pass(time.Second)
		o.Plan, _ = r.dlq.PlanReplay(context.Background(), dlq.ReplayOptions{To: r.queue})
		if _, err := r.replay(o); !errors.Is(err, errFault) || !strings.Contains(err.Error(), "ReplayOptions.Judge") {
			t.Error(err)
		}
	})
}

// A function does not travel in a file. Until the reader of the file has set it again, the plan
// takes what it lists and nothing else.
func TestRestWithMatch(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		small(r)
		r.outage(4 * room)
		pass(time.Second)
		match := func(m *broker.Message) bool { return strings.HasSuffix(m.Meta.Key, "7") }
		p, _ := r.dlq.PlanReplay(context.Background(), dlq.ReplayOptions{To: r.queue, Filter: dlq.Filter{Match: match}})
		p.Rest.Match = "7$"
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		kept := new(dlq.Plan)
		if err := json.Unmarshal(b, kept); err != nil || kept.Rest.Match != "7$" || kept.Rest.About < 3*room-10 {
			t.Fatalf("%v, %+v", err, kept.Rest)
		}
		rep, _ := r.replay(dlq.ReplayOptions{Plan: kept})
		if rep.Replayed > len(p.Letters) {
			t.Errorf("%d listed, %v", len(p.Letters), rep)
		}
		sent := rep.Replayed
		pass(20 * time.Minute)
		p, _ = r.dlq.PlanReplay(context.Background(), dlq.ReplayOptions{To: r.queue, Filter: dlq.Filter{Match: match}})
		rep = r.mustReplay(dlq.ReplayOptions{Plan: p})
		if sent += rep.Replayed; sent != 4*room/10 {
			t.Errorf("%d sent, %v", sent, rep)
		}
		// The rule is a part of what was frozen.
		p, _ = r.dlq.PlanReplay(context.Background(), dlq.ReplayOptions{To: r.queue, Filter: dlq.Filter{Class: "timeout", Max: 3}})
		p.Rest.Filter.Max = 300
		if _, err := r.replay(dlq.ReplayOptions{Plan: p}); !errors.Is(err, dlq.ErrPlan) {
			t.Error(err)
		}
	})
}

// When its context ends, at whatever call, an act on more letters than it can hold has lost none
// and sent none twice, and its plan goes on with the others.
func TestManyIsStopped(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		for _, at := range []int{1, 2, 5, 9, 14, 30, 60} {
			small(r)
			n := 3 * room
			r.outage(n)
			pass(time.Second)
			p, _ := r.dlq.PlanReplay(context.Background(), dlq.ReplayOptions{To: r.queue})
			calls := 0
			ctx, cancel := context.WithCancelCause(context.Background())
			count := func(_ context.Context, c onceqtest.Call) faulty.Faults {
				if c.Op != onceqtest.Extend {
					if calls++; calls == at {
						cancel(errFault)
					}
				}
				return nil
			}
			r.dead.SetFault(count)
			rep, err := r.dlq.Replay(ctx, dlq.ReplayOptions{Plan: p, To: r.queue})
			r.dead.SetFault(nil)
			if err != nil && !errors.Is(err, errFault) {
				t.Errorf("at call %d: %v", at, err)
			}
			again, err := r.replay(dlq.ReplayOptions{Plan: p})
			sent := keys(r.drain(r.queue))
			if err != nil || len(sent) != n || len(slices.Compact(sent)) != n || rep.Replayed+again.Replayed != n {
				t.Errorf("at call %d: %d sent, %v\n%v\n%v", at, len(sent), err, rep, again)
			}
			r.depth(r.dead, "dead-letter queue", 0)
			pass(20 * time.Minute)
		}
	})
}

// extended counts the letters whose deliveries are extended.
type extended struct {
	broker.Broker
	brief, long atomic.Int64
}

func (e *extended) Unwrap() any { return e.Broker }

func (e *extended) Extend(ctx context.Context, hs []broker.Hold) error {
	for _, h := range hs {
		if h.For > time.Minute {
			e.long.Add(1)
		} else {
			e.brief.Add(1)
		}
	}
	return e.Broker.Extend(ctx, hs)
}

// A call that holds many letters extends those that came first for ten minutes at a time. None of
// them comes again meanwhile, and all are handed back at the end.
func TestManyAreHeld(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		const n = 18_000
		r.outage(n)
		dead := &extended{Broker: r.dead}
		r.dlq = open(t, dead, nil)
		r.dead.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Receive {
				return faulty.Slow(time.Second)
			}
			return nil
		})
		gs, err := r.dlq.Group(context.Background(), dlq.Filter{})
		if err != nil || len(gs) != 1 || gs[0].Count != n || gs[0].Copies != 0 {
			t.Errorf("%v, %v", err, gs)
		}
		if brief, long := dead.brief.Load(), dead.long.Load(); long < 2000 || long > 6000 {
			t.Errorf("%d extensions for a minute, and %d for longer", brief, long)
		}
		r.dead.SetFault(nil)
		r.depth(r.dead, "dead-letter queue", n)
		for _, m := range r.drain(r.dead) {
			if m.Attempt > 2 { // once by the call, once just now
				t.Fatalf("letter %s was received %d times", m.Meta.Key, m.Attempt)
			}
		}
	})
}

// A look ends as soon as the broker says that nothing is left, and tells how far it has come. While
// others hold letters it waits, because these may come back.
func TestLookEndsEarly(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		var told []int
		r.dlq = open(t, r.dead, &dlq.Options{Progress: func(seen, about int) {
			told = append(told, seen)
			if about < seen || about > 12 {
				t.Errorf("%d of about %d", seen, about)
			}
		}})
		took := func(want int, soon bool) {
			t.Helper()
			began := time.Now()
			es, err := r.list(dlq.Filter{})
			if took := time.Since(began); err != nil || len(es) != want || took < 2*time.Second != soon {
				t.Errorf("%d letters in %v, want %d; %v", len(es), took, want, err)
			}
		}
		took(0, true)
		if len(told) != 0 {
			t.Error(told)
		}
		r.putN(12)
		took(12, true)
		if !slices.IsSorted(told) || told[len(told)-1] != 12 {
			t.Error(told)
		}
		if _, err := r.dead.Receive(context.Background(), broker.ReceiveOptions{Max: 1, Visibility: time.Minute}); err != nil {
			t.Fatal(err)
		}
		took(11, false)
	})
}
