package ops_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/ops"
)

const day = 24 * time.Hour

// set is a queue with settings of its own, which hangs or errs where a test says so.
type set struct {
	broker.Broker
	policy broker.RedrivePolicy
	err    error
	away   error // of its depth
	hangs  chan struct{}
}

func (s *set) Unwrap() any { return s.Broker }

func (s *set) Redrive(context.Context) (broker.RedrivePolicy, error) {
	if s.hangs != nil {
		<-s.hangs
	}
	return s.policy, s.err
}

func (s *set) Depth(ctx context.Context) (broker.Depth, error) {
	if s.away != nil {
		return broker.Depth{}, s.away
	}
	return s.Broker.(broker.Depther).Depth(ctx)
}

// checked is a store whose table has faults, and whose clock is off.
type checked struct {
	counted
	fs   []dedupe.Fault
	off  time.Duration
	away error
}

func (c *checked) Check(context.Context) ([]dedupe.Fault, error) { return c.fs, nil }
func (c *checked) Now(context.Context) (time.Time, error)        { return time.Now().Add(c.off), c.away }

// patient is a queue in whose world nothing is to be found.
type patient struct {
	*rig
	queue, dead *set
	table       *checked
	do          ops.DoctorOptions
	own         func(*control.WorkerStatus) // changes the card of w-1, which always sits
}

func newPatient(r *rig) *patient {
	return &patient{
		rig: r, table: &checked{counted: r.store},
		queue: &set{Broker: r.queue, policy: broker.RedrivePolicy{MaxReceives: 40, Target: "arn:aws:sqs:eu:1:orders-dead", Retention: 4 * day}},
		dead:  &set{Broker: r.dead, policy: broker.RedrivePolicy{Retention: 14 * day}},
	}
}

// sit gives a worker a seat with a card that suits, and then is changed.
func (p *patient) sit(owner string, change func(*control.WorkerStatus)) {
	p.Helper()
	c := &control.WorkerStatus{
		At: time.Now(), Started: time.Now().Add(-time.Hour), Host: "h-" + owner, PID: 1, Version: "v1", Scope: "orders", Types: []string{"charge"}, State: "running", Slots: 10,
		Retention: 31 * day, Interrupted: "rerun", MaxAttempts: 10, Timeout: time.Minute, DrainTimeout: 20 * time.Second,
		Durations: map[string]control.Quantiles{"charge": {P50: time.Second, P95: 5 * time.Second, Max: 9 * time.Second}},
	}
	if change != nil {
		change(c)
	}
	s := must(controlstore.NewSeat(p.store, controlstore.SeatOptions{Queue: "orders", Owner: owner}))
	if err := s.Beat(p.Context(), c); err != nil {
		p.Fatal(err)
	}
}

func (p *patient) doctor(ctx context.Context) (found map[string][]ops.Checkup, all []ops.Checkup) {
	p.Helper()
	letters := must(dlq.New(p.rig.dead, &dlq.Options{Wait: 10 * time.Millisecond}))
	o := must(ops.New([]ops.Target{{Name: "orders", Queue: p.queue, DeadLetters: p.dead, Letters: letters, Store: p.table}}, &ops.Options{By: "ana"}))
	found = map[string][]ops.Checkup{}
	for c, err := range o.Doctor(ctx, "orders", &p.do) {
		if err != nil {
			p.Fatal(err)
		}
		if all = append(all, c); c.State == ops.CheckFound {
			found[c.Check] = append(found[c.Check], c)
			if c.Mend == "" {
				p.Errorf("%s says nothing of what mends it: %s", c.Check, c.Text)
			}
		}
	}
	return found, all
}

// slow makes jobs take so long in w-1, whose drain, and Timeout of the type, are these.
func (p *patient) slow(p95, drain time.Duration, timeout ...time.Duration) {
	p.own = func(c *control.WorkerStatus) {
		c.Durations["charge"] = control.Quantiles{P50: p95 / 2, P95: p95, Max: 2 * p95}
		c.DrainTimeout = drain
		if timeout != nil {
			c.Timeouts = map[string]time.Duration{"charge": timeout[0]}
		}
	}
}

// pause pauses the queue, and lets d go by.
func (p *patient) pause(d time.Duration) {
	p.Helper()
	rule := control.Rule{Do: control.Pause, Queue: "orders", Until: time.Now().Add(day), Reason: "bank"}
	if _, err := p.ops.Pause(p.Context(), rule, &ops.RuleOptions{Follow: -1}); err != nil {
		p.Fatal(err)
	}
	p.wait(d)
}

// holds has w-1 run a job whose claim lasts for d more.
func (p *patient) holds(d time.Duration) {
	l := p.claim(d, "w-1")
	p.own = func(c *control.WorkerStatus) {
		c.Jobs = []control.RunningJob{{Key: key.Key, At: time.Now(), Attempt: 1, Fence: l.Fence}}
	}
}

// dies leaves a seat of a worker that had a job, and was not seen for ten minutes.
func (p *patient) dies(owner string) {
	l := p.claim(time.Minute, owner)
	p.sit(owner, func(c *control.WorkerStatus) {
		c.Jobs = []control.RunningJob{{Key: key.Key, At: time.Now(), Attempt: 1, Fence: l.Fence}}
	})
	p.wait(10 * time.Minute)
}

// fails leaves a failed key, ago.
func (p *patient) fails(ago time.Duration) uint64 {
	l := p.claim(time.Minute, "w")
	p.settle(l, dedupe.Failed, "timeout")
	p.wait(ago)
	return l.Fence
}

// bury puts a letter of the key, with the fence of its failure.
func (p *patient) bury(k dedupe.Key, fence uint64) {
	p.Helper()
	if _, err := p.rig.dead.Send(p.Context(), []broker.Outgoing{{Body: []byte("x"), Meta: &broker.Meta{
		ID: "j-" + k.Key, Key: k.Key, Dead: &broker.Letter{Fence: fence, Class: "timeout", Scope: k.Scope, Key: k.Key, At: time.Now()},
	}}}); err != nil {
		p.Fatal(err)
	}
}

// TestDoctorChecks: in a world in which all fits nothing is found, and each change of it sets off
// its own check and no other.
func TestDoctorChecks(t *testing.T) {
	worlds := map[string]struct {
		check  string // "" = none
		want   string
		change func(p *patient)
	}{
		"all fits":                    {},
		"all fits, and letters":       {change: func(p *patient) { p.do.Letters = true }},
		"a job later than it is kept": {"receives", "may be due 10d ahead, and is lost to the dead letters (too-early) above", func(p *patient) { p.do.NotBefore = 10 * day }},
		"a job that is kept":          {change: func(p *patient) { p.do.NotBefore = 3 * day }},
		"few receives":                {"receives", "after 12 receives, and MaxAttempts is 10", func(p *patient) { p.queue.policy.MaxReceives = 12 }},
		"keys forgotten too early":    {"retention", "keys are kept for 31d, and a message may be 20d in the queue and its letter 14d", func(p *patient) { p.queue.policy.Retention = 20 * day }},
		"letters kept for ever":       {"retention", "may be 40d in the queue and its letter for ever", func(p *patient) { p.queue.policy.Retention, p.dead.policy.Retention = 40*day, 0 }},
		"letters given up":            {"redrive", "moves a letter to limbo after 3 receives", func(p *patient) { p.dead.policy.MaxReceives, p.dead.policy.Target = 3, "arn:aws:sqs:eu:1:limbo" }},
		"letters elsewhere":           {"redrive", "moves messages to other after 40 receives, and letters are looked for in orders-dead", func(p *patient) { p.queue.policy.Target = "arn:aws:sqs:eu:1:other" }},
		"the store's clock":           {"clocks", "off this host's", func(p *patient) { p.table.off = 3 * time.Second }},
		"a worker's clock": {"clocks", "the clock of w-2 is +5.0s off", func(p *patient) {
			p.sit("w-2", func(c *control.WorkerStatus) { c.At = time.Now().Add(5 * time.Second) })
		}},
		"another Scope":           {"settings", `workers differ in Scope: "order" (1: w-2), "orders" (1: w-1)`, func(p *patient) { p.sit("w-2", func(c *control.WorkerStatus) { c.Scope = "order" }) }},
		"another Retention":       {"settings", "differ in Retention", func(p *patient) { p.sit("w-2", func(c *control.WorkerStatus) { c.Retention = 40 * day }) }},
		"another Timeout":         {"settings", "differ in MaxAttempts, Timeout and DrainTimeout", func(p *patient) { p.sit("w-2", func(c *control.WorkerStatus) { c.Timeout = time.Hour }) }},
		"another version":         {"settings", `differ in version: "v1" (1: w-1), "v2" (1: w-2)`, func(p *patient) { p.sit("w-2", func(c *control.WorkerStatus) { c.Version = "v2" }) }},
		"another policy":          {"settings", "differ in Defaults.Interrupted", func(p *patient) { p.sit("w-2", func(c *control.WorkerStatus) { c.Interrupted = "park" }) }},
		"a dead worker":           {"seats", "worker w-2 has not been seen for 10m0s, and may have left jobs", func(p *patient) { p.dies("w-2") }},
		"a dead one's job, taken": {change: func(p *patient) { p.dies("w-2"); p.settle(p.claim(time.Minute, "w-1"), dedupe.Done, "") }},
		"a worker in an outage":   {"seats", "the store does not answer", func(p *patient) { p.sit("w-2", func(c *control.WorkerStatus) { c.Outage = "store" }) }},
		"a worker without rules":  {"seats", "cannot read operators' rules", func(p *patient) { p.sit("w-2", func(c *control.WorkerStatus) { c.NoRules = "denied" }) }},
		"the table":               {"table", "no index", func(p *patient) { p.table.fs = []dedupe.Fault{{Text: "it has no index", Mend: "Migrate"}} }},
		"a service": {"sqs", "delays", func(p *patient) {
			p.do.Services = []ops.ServiceCheck{{Check: "sqs", Ask: func(context.Context) ([]dedupe.Fault, error) {
				return []dedupe.Fault{{Text: "it delays", Mend: "do not"}}, nil
			}}}
		}},
		"near the Timeout":             {"times", "95 of 100 jobs of type charge take up to 50s, and Timeout is 1m0s", func(p *patient) { p.slow(50*time.Second, time.Hour) }},
		"a type with its own Timeout":  {change: func(p *patient) { p.slow(50*time.Second, time.Hour, time.Hour) }},
		"longer than a drain":          {"drain", "a deploy would cut", func(p *patient) { p.slow(12*time.Second, 20*time.Second) }},
		"a drain for ever":             {change: func(p *patient) { p.slow(40*time.Second, 1<<62) }},
		"no DrainTimeout at all":       {"drain", "a deploy would cut 100 %", func(p *patient) { p.slow(time.Second, -1) }},
		"a pause":                      {"pauses", "paused for 2h0m0s by ana: bank", func(p *patient) { p.pause(2 * time.Hour) }},
		"the store went back":          {"pauses", "the store went back in time (fence 7 after 9)", func(p *patient) { p.wentBack(time.Hour) }},
		"a fresh pause":                {change: func(p *patient) { p.pause(time.Minute) }},
		"a lease that is nearly over":  {"leases", "1 of 1 claims that live workers hold end within 5s (one in 3s)", func(p *patient) { p.holds(3 * time.Second) }},
		"a lease":                      {change: func(p *patient) { p.holds(25 * time.Second) }},
		"a failure without its letter": {"failed", "1 of 1 failed keys have no dead letter (orders/A-1)", func(p *patient) { p.fails(time.Hour); p.do.Letters = true }},
		"a failure with an old letter": {"failed", "1 of 1 failed keys", func(p *patient) { p.bury(key, p.fails(time.Hour)-1); p.do.Letters = true }},
		"a failure with its letter":    {change: func(p *patient) { p.bury(key, p.fails(time.Hour)); p.do.Letters = true }},
		"a failure, letters not asked": {change: func(p *patient) { p.fails(time.Hour) }},
		"a cancelled job":              {change: func(p *patient) { p.cancel(key); p.wait(time.Hour); p.do.Letters = true }},
		"a failure of a minute ago":    {change: func(p *patient) { p.fails(time.Minute); p.do.Letters = true }},
		"a letter of a done job": {"obsolete", "1 of 1 letters are of jobs that are done (orders/A-1)", func(p *patient) {
			l := p.claim(time.Minute, "w")
			p.settle(l, dedupe.Done, "")
			p.bury(key, l.Fence)
			p.do.Letters = true
		}},
	}
	set, asked := map[string]bool{}, map[string]bool{"pubsub": true} // TestPubSubPlace asks it
	for name, w := range worlds {
		set[w.check] = true
		t.Run(name, func(t *testing.T) {
			bubble(t, ops.Options{}, func(r *rig) {
				p := newPatient(r)
				if w.change != nil {
					w.change(p)
				}
				p.sit("w-1", p.own)
				found, all := p.doctor(r.Context())
				if len(found) != min(1, len(w.check)) || len(found[w.check]) != min(1, len(w.check)) || w.check != "" && !strings.Contains(found[w.check][0].Text, w.want) {
					r.Errorf("found %+v, want %s: %s\n%+v", found, w.check, w.want, all)
				}
				for _, c := range all {
					asked[c.Check] = true
					if c.Err != nil {
						r.Errorf("%s: %v", c.Check, c.Err)
					}
				}
			})
		})
	}
	page := must(os.ReadFile("../docs/doctor.md")) // for reach and rights see TestDoctorAway, TestDoctorRights
	for _, row := range regexp.MustCompile("(?m)^\\| (`\\w+`(?:, `\\w+`)*) \\|").FindAllSubmatch(page, -1) {
		for name := range strings.SplitSeq(string(row[1]), ", ") {
			name = strings.Trim(name, "`")
			if !set[name] && !slices.Contains([]string{"reach", "rights", "pubsub"}, name) {
				t.Errorf("no world sets off the check %s of docs/doctor.md", name)
			}
			delete(asked, name)
		}
	}
	if len(asked) > 0 {
		t.Errorf("docs/doctor.md has no row of %v", asked)
	}
}

// TestDoctorHangs: a call that hangs, also one that ignores its context, and one that is refused,
// end their own checks alone. Each says why, and nothing of it counts as a finding.
func TestDoctorHangs(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		p := newPatient(r)
		p.sit("w-1", nil)
		p.queue.hangs = make(chan struct{})
		defer close(p.queue.hangs)
		p.dead.err = errors.New("AccessDenied")
		p.do.Services = []ops.ServiceCheck{{Check: "sqs", Ask: func(ctx context.Context) ([]dedupe.Fault, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}}
		began := time.Now()
		found, all := p.doctor(r.Context())
		if took := time.Since(began); took > 10*time.Second || len(found) > 0 {
			r.Errorf("took %v, found %v", took, found)
		}
		errs := map[string]string{}
		for _, c := range all {
			if c.Err != nil {
				errs[c.Check] += fmt.Sprint(c.State, ": ", c.Err)
			}
		}
		if want := (map[string]string{
			"receives": "not asked: no answer in 5s", "retention": "not asked: no answer in 5s", "redrive": "not asked: AccessDenied", "sqs": "not asked: no answer in 5s",
		}); fmt.Sprint(errs) != fmt.Sprint(want) {
			r.Errorf("%v, want %v", errs, want)
		}
	})
}

// TestDoctorAway: each part that is away is named, and no finding.
func TestDoctorAway(t *testing.T) {
	for part, leave := range map[string]func(p *patient){
		"queue":             func(p *patient) { p.queue.away = errors.New("no route") },
		"dead-letter queue": func(p *patient) { p.dead.away = errors.New("no route") },
		"store": func(p *patient) {
			p.store.FailsAs(func(onceqtest.Op) error { return errors.New("no route") })
			p.table.away = errors.New("no route")
		},
		"": func(*patient) {},
	} {
		bubble(t, ops.Options{}, func(r *rig) {
			p := newPatient(r)
			p.sit("w-1", nil)
			leave(p)
			found, all := p.doctor(r.Context())
			var said, want []string
			for _, c := range all {
				if c.Check == "reach" && c.Err != nil {
					said = append(said, fmt.Sprintln(c.State, c.Text, c.Err))
				}
			}
			if part != "" {
				want = append(want, fmt.Sprintln(ops.CheckNotAsked, "the "+part+" could not be reached", "no route"))
			}
			if !slices.Equal(said, want) || len(found) > 0 {
				r.Errorf("%q, want %q; found %v", said, want, found)
			}
		})
	}
}

// TestDoctorStoreAway: while the store is away what the queue knows is told all the same.
func TestDoctorStoreAway(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		p := newPatient(r)
		p.sit("w-1", nil)
		r.store.FailsAs(func(onceqtest.Op) error { return errors.New("connection refused") })
		p.dead.policy.MaxReceives, p.dead.policy.Target = 3, "limbo"
		found, all := p.doctor(r.Context())
		if len(found) != 1 || len(found["redrive"]) != 1 {
			r.Errorf("found %v", found)
		}
		refused := 0
		for _, c := range all {
			if c.Err != nil {
				refused++
			}
		}
		if refused < 5 {
			r.Errorf("%d checks say that they could not be asked: %+v", refused, all)
		}
	})
}

// TestDoctorCard: the settings of a deployment are checked in place of those of the workers, whose
// times count; and a Scope that is not theirs is found.
func TestDoctorCard(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		p := newPatient(r)
		p.sit("w-1", nil)
		card := control.WorkerStatus{Scope: "orders", Retention: 31 * day, Interrupted: "rerun", MaxAttempts: 10, DrainTimeout: 20 * time.Second}
		p.do.Card = &card
		if found, _ := p.doctor(r.Context()); len(found) > 0 {
			r.Errorf("found %v", found)
		}
		card = control.WorkerStatus{Scope: "order", Retention: 10 * day, Interrupted: "park", MaxAttempts: -1, Timeout: 6 * time.Second, DrainTimeout: 5 * time.Second}
		found, _ := p.doctor(r.Context())
		for check, want := range map[string]string{
			"receives": "attempts are unlimited", "retention": "keys are kept for 10d", "settings": "Scope", "times": "Timeout is 6s", "drain": "5 % of the jobs of type charge, and they are parked",
		} {
			if len(found[check]) == 0 || !strings.Contains(found[check][0].Text, want) {
				r.Errorf("%s: %v, want %s", check, found[check], want)
			}
		}
	})
	bubble(t, ops.Options{}, func(r *rig) { // nobody lives yet
		p := newPatient(r)
		if found, _ := p.doctor(r.Context()); len(found) != 1 || len(found["seats"]) != 1 {
			r.Errorf("found %v", found)
		}
		p.do.Card = &control.WorkerStatus{Scope: "orders", Retention: 31 * day, Interrupted: "rerun", MaxAttempts: 10, DrainTimeout: 20 * time.Second}
		if found, _ := p.doctor(r.Context()); len(found) > 0 {
			r.Errorf("found %v", found)
		}
	})
}

// TestDoctorRights: who may only look is told so, and it is no finding, unless the right to write
// was asked for. Nothing is written without Write, and nothing stays with it.
func TestDoctorRights(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		p := newPatient(r)
		p.sit("w-1", nil)
		writes := map[onceqtest.Op]int{}
		looks := false
		var mu sync.Mutex // questions are asked at once
		r.store.FailsAs(func(op onceqtest.Op) error {
			mu.Lock()
			defer mu.Unlock()
			switch op {
			case "claim", "settle", "forget", "renew":
				if writes[op]++; looks {
					return errors.New("permission denied")
				}
			}
			return nil
		})
		rights := func() (states []string) {
			_, all := p.doctor(r.Context())
			for _, c := range all {
				if c.Check == "rights" {
					states = append(states, fmt.Sprint(c.State, " ", c.Err))
				}
			}
			return states
		}
		if got := rights(); fmt.Sprint(got) != "[ok <nil> not asked <nil>]" || len(writes) > 1 {
			r.Errorf("%v, calls %v", got, writes)
		}
		looks = true
		if got := rights(); fmt.Sprint(got) != "[not asked <nil> not asked <nil>]" {
			r.Errorf("%v", got)
		}
		p.do.Write = true
		if got := rights(); !strings.Contains(fmt.Sprint(got), "a claim: ") {
			r.Errorf("%v", got)
		}
		looks = false
		before := r.store.Store.Store.(*memstore.Store).Len()
		if got := rights(); fmt.Sprint(got) != "[ok <nil> ok <nil>]" || r.store.Store.Store.(*memstore.Store).Len() != before {
			r.Errorf("%v, %d records", got, r.store.Store.Store.(*memstore.Store).Len()-before)
		}
	})
}

// TestDoctorKeepsForEver: a queue that keeps for ever is no queue that keeps nothing: the check
// says what becomes of messages that are older than the keys.
func TestDoctorKeepsForEver(t *testing.T) {
	for _, of := range []string{"queue", "dead", ""} {
		bubble(t, ops.Options{}, func(r *rig) {
			p := newPatient(r)
			switch of {
			case "queue":
				p.queue.policy.Retention = 0
			case "dead":
				p.dead.policy.Retention = 0
			}
			p.sit("w-1", nil)
			_, all := p.doctor(r.Context())
			for _, c := range all {
				if c.Check == "retention" && (c.State != ops.CheckOK || strings.Contains(c.Text, "becomes a letter of class unproven") != (of != "")) {
					r.Errorf("%q: %+v", of, c)
				}
			}
		})
	}
}

// peeked is a dead-letter queue in which somebody replays a letter just before it is looked at.
type peeked struct {
	*set
	before func()
}

func (p *peeked) Peek(context.Context, int) iter.Seq2[*broker.Message, error] {
	p.before()
	return func(func(*broker.Message, error) bool) {}
}

// TestDoctorLetterMoves: a letter that is replayed while doctor looks makes no lost failure of its
// job, also if that fails again meanwhile.
func TestDoctorLetterMoves(t *testing.T) {
	for _, to := range []dedupe.Status{dedupe.Done, dedupe.Failed} {
		bubble(t, ops.Options{}, func(r *rig) {
			p := newPatient(r)
			p.sit("w-1", nil)
			fence := p.fails(time.Hour)
			dead := &peeked{p.dead, func() {
				r.wait(time.Second) // the records could be read by now
				cs, err := r.store.Store.Store.Claim(r.Context(), []dedupe.ClaimRequest{{Key: key, Token: token(), TTL: time.Minute, Reopen: fence}})
				if err != nil || cs[0].Outcome != dedupe.Won {
					r.Fatal(err, cs)
				}
				r.settle(cs[0].Lease, to, "timeout")
			}}
			o := must(ops.New([]ops.Target{{Name: "orders", Queue: p.queue, DeadLetters: dead, Store: p.table}}, nil))
			for c, err := range o.Doctor(r.Context(), "orders", nil) {
				if err != nil {
					r.Fatal(err)
				}
				if c.Check == "failed" && c.State != ops.CheckOK {
					r.Errorf("%v: %+v", to, c)
				}
			}
		})
	}
}
