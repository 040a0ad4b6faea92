package cli

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/ops"
)

// This file owns what a screen must not hide: who is paused and by whom, who is dead, whose keys
// are elsewhere, and what a word of an operator does not do.

// TestWhoIsPaused: nothing that is paused looks healthy, whoever has paused it, and each part is
// named.
func TestWhoIsPaused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, p := range [][2]string{{"ana", "charge"}, {"ben", "refund"}} {
		r.run("--yes", "--by", p[0], "queue", "pause", "orders", "--type", p[1], "--for", "5m", "--reason", "x").want(0)
	}
	for _, words := range [][]string{{"queue", "ls"}, {"queue", "show", "orders"}, {"top"}} {
		r.run(words...).want(0, "part paused: type charge by ana, until ", "; part paused: type refund by ben, until ")
	}
	r.died("A-1", "timeout", "x")
	r.run("dlq", "replay", "orders", "--dry-run").want(0, "type charge PAUSED until", "type refund PAUSED until")
	r = newRig(t)
	r.seat("w-1/1", func(c *control.WorkerStatus) { c.State, c.Paused = "paused", []string{"local"} })
	r.run("queue", "ls").want(0, "1 worker is paused by the program itself").not(" ok")
	r.run("top").want(0, "1 worker is paused by the program itself")
}

// TestNobodyWorks: a queue that nobody works on says so beside whatever else there is to say.
func TestNobodyWorks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.run("--yes", "queue", "limit", "orders", "--slots", "3", "--for", "1h", "--reason", "x").want(0)
	r.run("queue", "ls").want(0, "limited to 3 a worker by ana", "no worker has a seat here")
	r.run("top").want(0, "limited to 3 a worker by ana", "no worker has a seat here")
	s := must.Get(controlstore.NewSeat(r.store, controlstore.SeatOptions{Queue: "orders", Owner: "w-9/1", TTL: time.Second}))
	r.beat(s, nil)
	r.beat(r.seat("w-1/1", nil), nil)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(r.run("queue", "ls").want(0).out, "1 worker dead") {
		<-tick.C
	}
	r.run("queue", "ls").not("no worker lives")
	states := fleet(1, 1)
	a, f := newFrame(r, states)
	for _, text := range []string{a.stateOf(&states[0]), f.lines(a, 300, 40)[1].text} {
		if !strings.Contains(text, "no worker lives; 1 worker dead") {
			t.Error(text)
		}
	}
}

// TestStandstillComesFirst: where nothing ends, the next thing to look at is what runs, and not the
// letters.
func TestStandstillComesFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.died("A-1", "timeout", "x")
	r.run("queue", "ls").want(0, "next: onceq dlq group orders")
	r.seat("w-1/1", func(c *control.WorkerStatus) {
		c.Busy, c.FullSince, c.Durations = c.Slots, c.At.Add(-45*time.Second), nil
	})
	r.run("queue", "ls").want(0, "next: onceq jobs running orders")
}

// TestScopesOfTypesDiffer: workers of one Scope whose types have their keys elsewhere do these jobs
// once for each place, and the screens say so.
func TestScopesOfTypesDiffer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.seat("w-1/1", nil)
	r.seat("w-2/1", func(c *control.WorkerStatus) { c.Types = []string{"charge", "mail"} })
	r.run("queue", "ls").want(0, " ok")
	r.seat("w-3/1", func(c *control.WorkerStatus) {
		c.Scopes, c.Jobs[0].Key = map[string]string{"charge": "payments"}, "B-13"
	})
	const scopes = "2 SCOPES, so jobs may be done twice: orders (2), orders with charge in payments (1: w-3/1)"
	for _, words := range [][]string{{"queue", "ls"}, {"queue", "show", "orders"}, {"workers", "orders"}, {"top"}} {
		r.run(words...).want(0, scopes)
	}
	if text := r.run("workers", "orders").want(0, "SCOPE").out; strings.Count(text, "orders with charge in payments") != 1 {
		t.Errorf("whose scope it is:\n%s", text)
	}
	var js []jobView
	r.run("-o", "json", "jobs", "running", "orders").want(0).json(&js)
	for _, j := range js {
		if want := map[string]string{"B-12": "orders:charge", "B-13": "payments"}[j.Key]; j.Scope != want {
			t.Errorf("%s: %q, want %q", j.Key, j.Scope, want)
		}
	}
}

// TestScopesOfAsMany: where as many workers have one scope as the other, both are named, because
// nobody can tell which is wrong.
func TestScopesOfAsMany(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.seat("w-1", nil)
	r.seat("w-8", func(c *control.WorkerStatus) { c.Scope = "order" })
	r.run("queue", "ls").want(0, "order (1: w-8), orders (1: w-1)")
}

// TestHangsForEver: a job whose type has no timeout hangs for ever, and who looks at what runs is
// told.
func TestHangsForEver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const none = "no timeout is set for charge: nothing but its own end ends such a job (JobOptions.Timeout)"
	r.seat("w-0/1", nil) // of a version that does not say
	r.run("jobs", "running", "orders").want(0, "B-12").not("no timeout")
	r.seat("w-1/1", func(c *control.WorkerStatus) { c.DrainTimeout = time.Minute })
	r.run("jobs", "running", "orders").want(0, none)
	for _, set := range []func(c *control.WorkerStatus){
		func(c *control.WorkerStatus) { c.Timeout = time.Minute },
		func(c *control.WorkerStatus) { c.Timeouts = map[string]time.Duration{"charge": time.Minute} },
	} {
		r := newRig(t)
		r.seat("w-1/1", func(c *control.WorkerStatus) { c.DrainTimeout = time.Minute; set(c) })
		r.run("jobs", "running", "orders").want(0, "B-12").not("no timeout")
	}
}

// TestStillPaused: who ends one pause of several, or adds one that ends earlier, is told what
// holds.
func TestStillPaused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := func(a *answer) string {
		return regexp.MustCompile(`rule (\S+)`).FindStringSubmatch(a.want(0).out)[1]
	}
	act := func(words ...string) *answer {
		return r.run(append([]string{"--yes", "--utc", "--reason", "x"}, words...)...)
	}
	long := id(act("queue", "pause", "orders", "--for", "1h"))
	short := act("--by", "ben", "queue", "pause", "orders", "--for", "5m").
		want(0, "a pause until ", " goes on longer ("+long+", by ana; end it: onceq queue resume orders "+long+" --reason TEXT)")
	act("queue", "resume", "orders", id(short)).want(0, "1 rule ended", "orders STAYS paused until ", "rule "+long+" by ana").not("orders resumed")
	act("queue", "limit", "orders", "--slots", "2", "--for", "1h").want(0, "orders is PAUSED until ", "rule "+long+" by ana")
	of := control.Rule{Do: control.Pause, Until: time.Now().Add(time.Hour), By: "eve", Reason: "all of it"}
	all := must.Get(controlstore.Change(t.Context(), r.store, func(rs *controlstore.Rules) error {
		rs.Rules = append(rs.Rules, of)
		return nil
	}))
	act("queue", "resume", "orders").want(0, "orders STAYS paused until ", "by eve").not("orders resumed")
	act("queue", "resume", "orders", all.Rules[len(all.Rules)-1].ID).want(0, "pause ALL queues until ", "orders resumed at")
	top := &top{app: &app{io: r.io(&bytes.Buffer{}, &bytes.Buffer{}), out: &out.Printer{Now: time.Now}}, w: &world{Ops: must.Get(ops.New([]ops.Target{{Name: "queue-0", Store: r.store}}, nil))}, frame: frame{states: fleet(1, 1), history: map[string]*history{}}}
	q := &top.states[0]
	q.Rules = []control.Rule{{ID: "cfjjc", Do: control.Pause, Queue: "queue-0", Type: "charge", Until: time.Now().Add(time.Hour), By: "ben", Reason: "the bank is down"}}
	top.press(t.Context(), key{r: 'r'})
	text := func() (all string) {
		for _, l := range top.lines(top.app, 200, 40) {
			all += l.text + "\n"
		}
		return all
	}
	if got := text(); !strings.Contains(got, `cfjjc: pause type charge until`) || !strings.Contains(got, `by ben: "the bank is down"`) {
		t.Errorf("top does not say what r ends:\n%s", got)
	}
	top.press(t.Context(), key{name: "esc"})
	if got := text(); strings.Contains(got, "cfjjc") {
		t.Errorf("it stays:\n%s", got)
	}
}

// TestForgottenDoesNotRun: to forget a record runs nothing, because the message of a job that ended
// was acked. The words say what does.
func TestForgottenDoesNotRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	fence := r.died("A-1", "timeout", "x")
	forget := func(key string, fence uint64) *answer {
		return r.run("--yes", "key", "forget", key, "--fence", fmt.Sprint(fence), "--reason", "x")
	}
	forget("A-1", fence).want(0, "is none now", "where its message was acked, this runs nothing: its letter does (onceq dlq replay orders --key A-1)")
	done := r.claim(charge("A-2"), time.Minute, dedupe.Rerun)
	r.settle(done, dedupe.Done, "", "")
	forget("A-2", done.Lease.Fence).want(0, "where its message was acked, this runs nothing: send it again").not("its letter does")
	waits := r.claim(charge("A-3"), time.Minute, dedupe.Rerun)
	r.settle(waits, dedupe.Released, "timeout", "x")
	forget("A-3", waits.Lease.Fence).want(0, "is none now").not("acked")
}

// TestPerhapsTwiceAnyEnd: an attempt whose worker went silent may have had its effect, whatever
// became of the job afterwards.
func TestPerhapsTwiceAnyEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i, to := range []dedupe.Status{dedupe.Failed, dedupe.Released, dedupe.Parked} {
		k := charge(fmt.Sprint("A-", i))
		r.claim(k, 50*time.Millisecond, dedupe.Rerun)
		r.lapsed(k)
		r.settle(r.claim(k, time.Minute, dedupe.Rerun), to, "timeout", "x")
		r.run("key", "show", k.Key).want(0, "not known: whether attempt 1 had its effect, too: w-3/1 went silent")
	}
}

// TestClocksHaveZones: each clock that people read has its zone, or stands below a headline with
// one.
func TestClocksHaveZones(t *testing.T) {
	t.Parallel()
	r := outage(t)
	frozen := regexp.MustCompile(`plan \S+ \(frozen \d\d:\d\d:\d\d UTC\)`)
	for _, words := range [][]string{
		{"dlq", "replay", "orders", "--dry-run"}, {"dlq", "purge", "orders", "--all"},
	} {
		if a := r.run(append([]string{"--utc"}, words...)...).want(0); !frozen.MatchString(a.out) {
			t.Errorf("%s:\n%s", a.args, a.out)
		}
	}
	rest := regexp.MustCompile(`that failed before \d\d:\d\d:\d\d UTC, are replayed too`)
	if a := r.run("--utc", "dlq", "replay", "orders", "--hold", "2", "--dry-run").want(0); !rest.MatchString(a.out) {
		t.Error(a.out)
	}
	r.run("--yes", "queue", "pause", "orders", "--for", "1h", "--reason", "x").want(0)
	if a := r.run("--utc", "dlq", "replay", "orders", "--dry-run").want(0); !regexp.MustCompile(`PAUSED until \d\d:\d\d:\d\d UTC`).MatchString(a.out) {
		t.Error(a.out)
	}
	if a := r.run("--utc", "top").want(0); !regexp.MustCompile(`onceq top · test · \d\d:\d\d:\d\d UTC`).MatchString(a.out) {
		t.Error(a.out)
	}
}

// TestNextHasAllFlags: the command that a dry run proposes does what the dry run has shown.
func TestNextHasAllFlags(t *testing.T) {
	t.Parallel()
	r := outage(t)
	r.run("dlq", "replay", "orders", "--class", "timeout", "--rate", "50/s", "--expired", "--unproven", "--hold", "1000", "--dry-run").
		want(0, "next: onceq dlq replay orders --class timeout --rate 50/s --expired --unproven --hold 1000 --reason TEXT")
	r.run("dlq", "purge", "orders", "--class", "timeout", "--key", "A 1").
		want(0, "next: onceq dlq purge orders --class timeout --key 'A 1' --dry-run=false -f FILE --reason TEXT")
	r.run("dlq", "purge", "orders", "--all").want(0, "next: onceq dlq purge orders --all --dry-run=false -f FILE --reason TEXT")
}

// TestLongKeys: a long key leaves the columns of each list as they are, and a parked job says who
// went silent amid it.
func TestLongKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	long := strings.Repeat("k", 300)
	r.settle(r.claim(charge(long), time.Minute, dedupe.Rerun), dedupe.Failed, strings.Repeat("c", 60), "x")
	r.settle(r.claim(charge("A-1"), time.Minute, dedupe.Park), dedupe.Parked, "interrupted", "")
	a := r.run("key", "ls").want(0, long[:shownKey-1]+"…", "w-3/1 went silent amid it")
	if i := strings.Index(a.out, long[:shownKey]); i >= 0 {
		t.Errorf("uncut:\n%s", a.out)
	}
	r.run("--yes", "key", "forget", long, "--fence", fence(r.get(charge(long))), "--reason", "x").want(0)
	r.run("--yes", "queue", "send", "orders", "--key", "a b").want(0, "next: onceq key show 'a b'")
	r.send(long)
	r.seat("w-1/1", func(c *control.WorkerStatus) { c.Jobs[0].Key = long })
	for _, words := range [][]string{{"queue", "peek", "orders"}, {"jobs", "running", "orders"}, {"workers", "orders"}, {"audit"}} {
		for line := range strings.Lines(r.run(words...).want(0).out) {
			if len(line) > 250 {
				t.Errorf("%v: a line of %d", words, len(line))
			}
		}
	}
}

// TestImportInterrupted: ctrl-C ends a command that waits for its input.
func TestImportInterrupted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, words := range [][]string{{"dlq", "import", "orders", "-f", "-"}, {"queue", "send", "orders", "--from", "-"}, {"doctor", "orders", "--card", "-"}} {
		var errs bytes.Buffer
		on := r.io(&bytes.Buffer{}, &errs)
		ctx, cancel := context.WithCancel(t.Context())
		on.In = reading{cancel, t.Context().Done()}
		code := Main(ctx, words, on)
		cancel()
		if code != 130 {
			t.Errorf("%v: %d %s", words, code, errs.String())
		}
	}
	r.depths(0, 0)
}
