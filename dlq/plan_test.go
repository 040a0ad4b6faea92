package dlq_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
)

var named = &dlq.Options{Name: "orders-dead"}

// plan plans a replay to the rig's queue, and sends the plan through a file.
func (r *rig) plan(o dlq.ReplayOptions) *dlq.Plan {
	r.t.Helper()
	o.To = r.queue
	p, err := r.dlq.PlanReplay(context.Background(), o)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.filed(p)
}

func (r *rig) filed(p *dlq.Plan) *dlq.Plan {
	r.t.Helper()
	b, err := json.MarshalIndent(p, "", "\t")
	if err != nil {
		r.t.Fatal(err)
	}
	var back dlq.Plan
	if err := json.Unmarshal(b, &back); err != nil {
		r.t.Fatal(err)
	}
	if len(p.Skipped) == 0 {
		p.Skipped, back.Skipped = nil, nil
	}
	if !reflect.DeepEqual(*p, back) {
		r.t.Errorf("the file gives\n%+v, want\n%+v", back, *p)
	}
	return &back
}

func refs(p *dlq.Plan) (ks []string) {
	for _, l := range p.Letters {
		ks = append(ks, fmt.Sprint(l.Key, " ", l.Fence, " +", len(l.Copies)))
	}
	slices.Sort(ks)
	return ks
}

func group(name string) func(*broker.Outgoing) { return func(o *broker.Outgoing) { o.Group = name } }

func record(scope string) func(*broker.Outgoing) {
	return func(o *broker.Outgoing) { o.Meta.Dead.Scope, o.Meta.Dead.Key = scope, o.Meta.Key }
}

// A group grows between the look and the replay. What came after the plan stays.
func TestPlanFreezesTheSet(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.dlq = open(t, r.dead, named)
		a := letterOf("a", 1, record("payments:charge"))
		r.put(a, letterOf("b", 2), letterOf("c", 3), letterOf("mail", 4, class("timeout")), letterOf("none", 0))
		pass(time.Second)
		r.put(a) // a copy
		bank := dlq.Filter{Group: dlq.Fingerprint("permanent", "no such account")}
		p := r.plan(dlq.ReplayOptions{Filter: bank})
		equal(t, "planned", refs(p), []string{"a 1 +1", "b 2 +0", "c 3 +0"})
		if p.Act != dlq.ActReplay || p.Queue != "orders-dead" || len(p.ID) != 4 || p.Seen != 6 || p.Unchosen != 2 || p.Count(dlq.Take) != 3 {
			t.Errorf("%+v", p)
		}
		i := slices.IndexFunc(p.Letters, func(l dlq.Planned) bool { return l.Key == "a" })
		if got, want := p.Letters[i].Record, (dlq.RecordKey{Scope: "payments:charge", Key: "a"}); got != want {
			t.Errorf("the record is %+v, want %+v", got, want)
		}
		r.depths(6, 0)
		pass(time.Minute)
		r.put(letterOf("d", 5), letterOf("e", 6), a) // of the same group; the third is a copy more
		var fates []string
		rep := r.mustReplay(dlq.ReplayOptions{Plan: p, Each: func(s dlq.Step) {
			fates = append(fates, s.Entry.Ref().Key+" "+s.Result.String())
		}})
		if rep.Replayed != 3 || rep.Copies != 1 || rep.Missing != 0 || len(rep.Skipped)+len(rep.Failed) > 0 {
			t.Errorf("%v\n%v", rep, fates)
		}
		equal(t, "sent", keys(r.drain(r.queue)), []string{"a", "b", "c"})
		equal(t, "left", keys(r.drain(r.dead)), []string{"a", "d", "e", "mail", "none"})
	})
}

// What the filter chooses and a replay would not send is counted by its reason, and stays.
func TestPlanTellsWhatIsNotSent(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.dlq = open(t, r.dead, named)
		r.put(letterOf("a", 1), letterOf("none", 0), letterOf("none 2", 0), letterOf("old", 0, class("expired")))
		p := r.plan(dlq.ReplayOptions{})
		if len(p.Letters) != 1 || len(p.Skipped) != 2 || p.Seen != 4 {
			t.Errorf("%+v", p)
		}
		// Nor are they sent by options that the plan was not made with.
		r.report(r.mustReplay(dlq.ReplayOptions{Plan: p, Expired: true}), 4, 1, 0, 0, 0, 3)
		r.depths(3, 1)
	})
}

// A job of the plan that failed anew stays, whichever of its letters is met first.
func TestPlanLeavesWhatFailedAnew(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.dlq = open(t, r.dead, named)
		r.put(letterOf("a", 1, record("s")), letterOf("b", 2), letterOf("c", 3))
		p := r.plan(dlq.ReplayOptions{})
		// Somebody replays all, and two of the jobs fail once more.
		r.mustReplay(dlq.ReplayOptions{})
		r.drain(r.queue)
		pass(10 * time.Minute) // FIFO forgets the deduplication ids
		r.put(letterOf("a", 11, record("s")), letterOf("b", 12), letterOf("d", 4))
		rep := r.mustReplay(dlq.ReplayOptions{Plan: p})
		if rep.Replayed != 0 || len(rep.Skipped) != 2 || rep.Unchosen != 1 || rep.Missing != 3 || !strings.Contains(rep.Skipped[0].Reason, "failed anew after the plan") {
			t.Errorf("%v", rep)
		}
		if !strings.Contains(rep.String(), "3 of the plan gone") {
			t.Errorf("%v", rep)
		}
		r.depths(3, 0)
	})
	// The old letter is there, too: it can reopen nothing any more.
	in(t, func(t *testing.T, r *rig) {
		r.dlq = open(t, r.dead, &dlq.Options{Name: "orders-dead", Wait: 20 * time.Second})
		r.put(letterOf("x", 9), letterOf("a", 1))
		p := r.plan(dlq.ReplayOptions{Filter: dlq.Filter{Key: "a"}})
		all, err := r.dead.Receive(context.Background(), broker.ReceiveOptions{Max: 2, Visibility: time.Minute})
		if err != nil || len(all) != 2 {
			t.Fatal(all, err)
		}
		// One is met with the old letter, the other before it.
		r.put(letterOf("a", 7), letterOf("a", 8, group("another")))
		pass(50 * time.Second)
		if rep := r.mustReplay(dlq.ReplayOptions{Plan: p}); rep.Replayed != 0 || len(rep.Skipped) != 3 {
			t.Errorf("%v", rep)
		}
		r.depths(4, 0)
	})
}

// The holder of a plan says of single letters what is to become of them, as whoever has asked the
// store can.
func TestPlanIsJudged(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.dlq = open(t, r.dead, named)
		done := letterOf("done", 2)
		r.put(letterOf("a", 1), done, done, letterOf("moved", 3), letterOf("b", 4))
		p := r.plan(dlq.ReplayOptions{})
		for i := range p.Letters {
			switch l := &p.Letters[i]; l.Key {
			case "done":
				l.Decision = dlq.Remove
			case "moved":
				l.Decision, l.Why = dlq.Leave, "its record has fence 9"
			}
		}
		p.Note = "looked"
		if p = r.filed(p); p.Count(dlq.Take) != 2 || p.Count(dlq.Remove) != 1 || p.Count(dlq.Leave) != 1 {
			t.Errorf("%+v", p)
		}
		dry := r.mustReplay(dlq.ReplayOptions{Plan: p, DryRun: true})
		r.depths(5, 0)
		rep := r.mustReplay(dlq.ReplayOptions{Plan: p})
		if rep.Replayed != 2 || rep.Removed != 2 || len(rep.Skipped) != 1 || rep.Skipped[0].Reason != "its record has fence 9" || rep.Missing != 0 {
			t.Errorf("%v", rep)
		}
		if dry.DryRun = false; !reflect.DeepEqual(sorted(dry), sorted(rep)) {
			t.Errorf("the dry run says\n%v\nand the replay\n%v", dry, rep)
		}
		r.depths(1, 2)
		equal(t, "sent", keys(r.drain(r.queue)), []string{"a", "b"})
	})
}

func sorted(r dlq.Report) dlq.Report {
	for i := range r.Skipped {
		r.Skipped[i].Ref.MessageID = ""
	}
	return r
}

func TestPlanOfAPurge(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.dlq = open(t, r.dead, named)
		r.put(letterOf("a", 1), letterOf("a", 1), letterOf("b", 2), letterOf("keep", 3), letterOf("mail", 4, class("timeout")))
		p, err := r.dlq.PlanPurge(context.Background(), dlq.PurgeOptions{Filter: dlq.Filter{Class: "permanent"}, NoExport: true})
		if err != nil || len(p.Letters) != 4 || p.Act != dlq.ActPurge {
			t.Fatal(p, err)
		}
		r.depths(5, 0)
		for i := range p.Letters {
			if p.Letters[i].Key == "keep" {
				p.Letters[i].Decision = dlq.Leave
			}
		}
		r.put(letterOf("late", 5))
		var exported []string
		rep, err := r.purge(dlq.PurgeOptions{Plan: r.filed(p), Export: func(e dlq.Entry) error {
			exported = append(exported, e.Ref().Key)
			return nil
		}})
		slices.Sort(exported)
		equal(t, "exported", exported, []string{"a", "a", "b"})
		if err != nil || rep.Purged != 3 || len(rep.Skipped) != 1 {
			t.Errorf("%v, %v", err, rep)
		}
		equal(t, "left", keys(r.drain(r.dead)), []string{"keep", "late", "mail"})
	})
}

// A plan that does not hold is refused with the reason, before anything is received.
func TestPlanIsRefused(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.dlq = open(t, r.dead, named)
		r.putN(3)
		p := r.plan(dlq.ReplayOptions{})
		purge, err := r.dlq.PlanPurge(context.Background(), dlq.PurgeOptions{All: true, NoExport: true})
		if err != nil {
			t.Fatal(err)
		}
		refused := func(what string, err error, want string, typed bool) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, dlq.ErrPlan) != typed {
				t.Errorf("%s: %v, want %s (ErrPlan: %v)", what, err, want, typed)
			}
			r.depths(3, 0)
		}
		name := "dlq: the plan is refused: plan " + p.ID + " is for orders-dead, "
		replay := func(q *dlq.Queue, p *dlq.Plan) error {
			_, err := q.Replay(context.Background(), dlq.ReplayOptions{Plan: p, To: r.queue})
			return err
		}
		refused("another queue", replay(open(t, r.dead, &dlq.Options{Name: "mails-dead"}), p), name+"not for mails-dead: make it again", true)
		refused("no name", replay(open(t, broker.Receiver(nameless{r.dead}), nil), p), "Options.Name: is empty", false)
		refused("another act", replay(r.dlq, purge), "to purge, not to replay: make it again", true)
		_, err = r.purge(dlq.PurgeOptions{Plan: p, NoExport: true})
		refused("another act", err, name+"to replay, not to purge: make it again", true)

		for what, change := range map[string]func(p *dlq.Plan){
			"a letter more":      func(p *dlq.Plan) { p.Letters = append(p.Letters, p.Letters[0]) },
			"a letter less":      func(p *dlq.Plan) { p.Letters = p.Letters[1:] },
			"another letter":     func(p *dlq.Plan) { p.Letters[0].MessageID = "m" },
			"another fence":      func(p *dlq.Plan) { p.Letters[0].Fence++ },
			"a copy":             func(p *dlq.Plan) { p.Letters[0].Copies = []string{"m"} },
			"made younger":       func(p *dlq.Plan) { p.Made = p.Made.Add(time.Second) },
			"for another queue":  func(p *dlq.Plan) { p.Queue = "mails-dead" },
			"of another name":    func(p *dlq.Plan) { p.ID = "0000" },
			"the zero plan":      func(p *dlq.Plan) { *p = dlq.Plan{} },
			"for the other act":  func(p *dlq.Plan) { p.Act = dlq.ActPurge },
			"for no act":         func(p *dlq.Plan) { p.Act = "" },
			"to be made younger": func(p *dlq.Plan) { p.Made = time.Time{} },
		} {
			c := *p
			c.Letters = slices.Clone(p.Letters)
			change(&c)
			refused(what, replay(r.dlq, &c), "its letters are not those that it was made of: make it again", true)
		}

		for what, o := range map[string]dlq.ReplayOptions{
			"ReplayOptions.Plan: is set, and so is a filter":                                   {Filter: dlq.Filter{Class: "x"}},
			"ReplayOptions.Canary: 3 leaves nothing to go on with: ReplayOptions.Plan sends 3": {Canary: 3},
		} {
			o.Plan = p
			_, err := r.replay(o)
			refused(what, err, what, false)
		}
		_, err = r.purge(dlq.PurgeOptions{Plan: purge, NoExport: true, All: true})
		refused("All", err, "PurgeOptions.Plan: is set, and so is a filter or All", false)
		_, err = r.dlq.PlanReplay(context.Background(), dlq.ReplayOptions{To: r.queue, Plan: p})
		refused("a plan of a plan", err, "PlanReplay makes one", false)
		_, err = r.dlq.PlanPurge(context.Background(), dlq.PurgeOptions{NoExport: true, Plan: purge})
		refused("a plan of a plan", err, "PlanPurge makes one", false)
		_, err = open(t, broker.Receiver(nameless{r.dead}), nil).PlanReplay(context.Background(), dlq.ReplayOptions{To: r.queue})
		refused("a plan without a name", err, "Options.Name: is empty", false)

		pass(dlq.PlanTTL - time.Since(p.Made))
		r.report(r.mustReplay(dlq.ReplayOptions{Plan: p, DryRun: true}), 3, 3)
		pass(time.Minute)
		refused("too old", replay(r.dlq, p), name+"made 16 min ago: make it again", true)
		pass(2 * time.Hour)
		refused("older", replay(r.dlq, p), name+"made 2 h ago: make it again", true)
		pass(72 * time.Hour)
		refused("oldest", replay(r.dlq, p), name+"made 3 d ago: make it again", true)
	})
}

// nameless hides all powers of a broker.
type nameless struct{ broker.Receiver }

// A file that was edited, cut off, or is something else is no plan.
func TestPlanFileIsRefused(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.dlq = open(t, r.dead, named)
		r.putN(3)
		b, err := json.Marshal(r.plan(dlq.ReplayOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range [][2]string{
			{`"queue":"orders-dead"`, `"queue":"mails-dead"`},
			{`"f":2`, `"f":3`},
			{`"k":"k-1"`, `"k":"k-2"`},
			{`"seen":3`, `"seen":4`},
			{`"f":2`, `"f":2,"j":1`},
			{`"act":"replay"`, `"act":"purge"`},
			{`"v":1`, `"v":1,"note":"x"`},
			{`"v":1`, `"v":1,"new":1`},
			{`"sum":"`, `"sum":"0`},
			{`"id":"`, `"id":"0`},
			{`"letters":[`, `"letters":[{"m":"more"},`},
			{`"v":1`, `"v":0`},
			{`"t":"charge"`, `"t":"refund"`},
			{`{"v"`, `[{"v"`},
			{`"made":"2`, `"made":"3`},
			{`"c":"permanent"`, `"c":"timeout"`},
		} {
			edited := strings.Replace(string(b), c[0], c[1], 1)
			var p dlq.Plan
			if err := json.Unmarshal([]byte(edited), &p); edited == string(b) || err == nil || len(p.Letters) > 0 {
				t.Errorf("%s for %s: %v", c[1], c[0], err)
			} else if c[1] != `[{"v"` && (!errors.Is(err, dlq.ErrPlan) || !strings.Contains(err.Error(), "edited: make it again")) {
				t.Errorf("%s for %s: %v", c[1], c[0], err)
			}
		}
		for _, text := range []string{"", "null", "{}", "[]", "7", string(b[:len(b)/2]), `{"v":1}`} {
			if err := new(dlq.Plan).UnmarshalJSON([]byte(text)); !errors.Is(err, dlq.ErrPlan) {
				t.Errorf("%.40q: %v", text, err)
			}
		}
		newer := bytes.Replace(b, []byte(`"v":1`), []byte(`"v":3,"lanes":[]`), 1)
		if err := json.Unmarshal(newer, new(dlq.Plan)); !errors.Is(err, dlq.ErrPlan) || !strings.Contains(err.Error(), "version 3") {
			t.Error(err)
		}
	})
}

// Keys may hold anything; the file of a plan with them is read as it was written.
func TestPlanFileOfOddKeys(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.dlq = open(t, r.dead, named)
		for i, k := range []string{"<&>\u2028", "\x00\x1b[2J", strings.Repeat("k", 1000), "é😀"} {
			r.put(letterOf(k, uint64(i+1), record("s:"+k)))
		}
		p := r.plan(dlq.ReplayOptions{})
		p.Letters[0].Why = "not \xff UTF-8"
		b, err := json.Marshal(*p) // of the value, too
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, p); err != nil || len(p.Letters) != 4 {
			t.Errorf("%v: %+v", err, p)
		}
	})
}

// Two operators replay the same plan at once: they share its letters, and each is sent once.
func TestPlanOfTwoReplays(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.dlq = open(t, r.dead, named)
		r.putN(40)
		p := r.plan(dlq.ReplayOptions{Filter: dlq.Filter{Max: 30}})
		var both sync.WaitGroup
		var reps [2]dlq.Report
		for i := range reps {
			both.Go(func() {
				var err error
				if reps[i], err = r.replay(dlq.ReplayOptions{Plan: p, PerSecond: 5}); err != nil && !errors.Is(err, dlq.ErrIncomplete) {
					t.Error(err)
				}
			})
		}
		both.Wait()
		sent := keys(r.drain(r.queue))
		if n := reps[0].Replayed + reps[1].Replayed; n != len(sent) || len(sent) != len(slices.Compact(slices.Clone(sent))) || n > 30 {
			t.Errorf("%v\n%v\n%v", sent, reps[0], reps[1])
		}
		// What each held from the other is met by the next one.
		if rep := r.mustReplay(dlq.ReplayOptions{Plan: p}); rep.Replayed+len(sent) != 30 {
			t.Errorf("%d sent, then %v", len(sent), rep)
		}
		r.depth(r.dead, "dead-letter queue", 10)
	})
}

// With letters that were not looked at comes a plan of the others, and the error says so.
func TestPlanOfAQueueThatIsTooLong(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.dlq = open(t, r.dead, &dlq.Options{Name: "orders-dead", MaxHeld: 10})
		r.putN(20)
		p, err := r.dlq.PlanReplay(context.Background(), dlq.ReplayOptions{To: r.queue})
		if !errors.Is(err, dlq.ErrIncomplete) || len(p.Letters) != 10 {
			t.Fatal(p, err)
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errFault)
		if p, err := r.dlq.PlanReplay(ctx, dlq.ReplayOptions{To: r.queue}); !errors.Is(err, errFault) || p != nil {
			t.Error(p, err)
		}
		r.depths(20, 0)
	})
}

// A plan of a large outage fits into memory and a file.
func TestPlanSize(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		const n = 10_000
		r.dlq = open(t, r.dead, &dlq.Options{Name: "orders-dead", MaxHeld: n + 1})
		for i := range n {
			r.put(letterOf(fmt.Sprintf("0198c1f2-%012d", i), uint64(i+1), record("payments:charge")))
		}
		b, err := json.Marshal(r.plan(dlq.ReplayOptions{}))
		if err != nil || len(b) > 3<<20 {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		t.Logf("%d letters are %d bytes", n, len(b))
	})
}
