package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/ops"
)

// fleet is a made-up state of some queues with some workers each.
func fleet(queues, workers int) []ops.QueueState {
	now := time.Now()
	states := make([]ops.QueueState, queues)
	for i := range states {
		q := &states[i]
		q.Queue, q.At = fmt.Sprintf("queue-%d", i), now
		q.Depth = &broker.Depth{Visible: 1204}
		q.Letters = new(int64(146))
		for n := range workers {
			skew := 20 * time.Millisecond
			c := &control.WorkerStatus{
				Host: "host-1", Scope: "orders", Slots: 100, Busy: 80, State: "running", Rate: 601, At: now, HeadWait: 900 * time.Millisecond, Rules: 4,
				Outcomes:  map[string]uint64{"done": 996, "retried": 4},
				Durations: map[string]control.Quantiles{"charge": {P95: 800 * time.Millisecond}},
				Jobs:      []control.RunningJob{{Key: "日本-" + strings.Repeat("x", 60), Type: "charge", At: now.Add(-time.Minute), Attempt: 2}},
			}
			s := ops.WorkerState{State: "running", Skew: &skew, Ago: 4 * time.Second}
			s.Owner, s.Seen, s.Status = fmt.Sprintf("w-%d/%d", i, n), now, c
			if n == workers-1 {
				s.State = ops.StateDead
			}
			q.Workers = append(q.Workers, s)
		}
	}
	if queues > 1 {
		states[1].Paused = &control.Verdict{Do: control.Pause, By: "ana", Reason: "SMTP migration", Until: now.Add(time.Hour)}
	}
	return states
}

func newFrame(r *rig, states []ops.QueueState) (*app, *frame) {
	a := &app{io: r.io(&bytes.Buffer{}, &bytes.Buffer{}), out: &out.Printer{Now: time.Now}}
	f := &frame{place: "prod", at: time.Now(), every: 2 * time.Second, states: states, history: map[string]*history{}}
	for i := range states {
		f.history[states[i].Queue] = &history{}
		f.history[states[i].Queue].add(&states[i])
	}
	return a, f
}

// TestFrames: no line is wider than the terminal, no frame higher, from small ones to very large.
func TestFrames(t *testing.T) {
	r := &rig{T: t, now: time.Now}
	for _, size := range [][2]int{{20, 5}, {80, 24}, {120, 40}, {300, 80}} {
		for _, message := range []string{"", "a message"} {
			a, f := newFrame(r, fleet(5, 40))
			f.message = message
			ls := f.lines(a, size[0], size[1])
			if len(ls) > size[1] {
				t.Errorf("%v: %d lines", size, len(ls))
			}
			for _, l := range ls {
				if w := out.Width(l.text); w > size[0] {
					t.Errorf("%v: %d columns: %s", size, w, l.text)
				}
			}
			if message != "" && ls[len(ls)-1].text != message {
				t.Errorf("%v: the last line is %q", size, ls[len(ls)-1].text)
			}
		}
	}
	a, f := newFrame(r, fleet(5, 40))
	var all []string
	for _, l := range f.lines(a, 300, 80) {
		all = append(all, l.text)
	}
	text := strings.Join(all, "\n")
	for _, want := range []string{"onceq top · prod", "queue-4", "PAUSED until", `by ana: "SMTP migration"`, "letters 146", "1 worker dead", "DEAD", "more workers", "attempt 2"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if !strings.Contains(all[8], "DEAD") {
		t.Errorf("who is dead stands first:\n%s", text)
	}
}

// TestOddCards: numbers that no worker means, as of a broken one, or of whoever can write the
// store, end no screen.
func TestOddCards(t *testing.T) {
	r := &rig{T: t, now: time.Now}
	for name, change := range map[string]func(*control.WorkerStatus){
		"negative": func(c *control.WorkerStatus) {
			c.Busy, c.Slots, c.Held, c.Rate, c.HeadWait, c.Jobs[0].Attempt = -5, 10, -1, -1e9, -time.Hour, -1
			c.Durations = map[string]control.Quantiles{"charge": {P95: -1}}
		},
		"huge": func(c *control.WorkerStatus) {
			c.Busy, c.Slots, c.Rate, c.HeadWait = math.MaxInt, math.MaxInt/2, math.MaxFloat64, math.MaxInt64
			c.Outcomes = map[string]uint64{"done": math.MaxUint64, "failed": math.MaxUint64}
			c.Durations = map[string]control.Quantiles{strings.Repeat("t", 5000): {P95: math.MaxInt64}}
		},
		"empty":  func(c *control.WorkerStatus) { *c = control.WorkerStatus{} },
		"screen": func(c *control.WorkerStatus) { c.State, c.Outage = "\x1b[2J", "\x1b]52;c;aGk=\x07" },
	} {
		a, f := newFrame(r, fleet(2, 3))
		for range 2 {
			for i := range f.states {
				q := &f.states[i]
				q.Workers[1].State = ops.StateDead // one lives
				f.history[q.Queue].add(q)          // as it was, and as it is
				change(q.Workers[0].Status)
				f.history[q.Queue].add(q)
				a.queueRow(q)
				a.queueLines(q)
			}
		}
		for _, l := range f.lines(a, 120, 40) {
			if out.Width(l.text) > 120 || strings.ContainsAny(l.text, "\x1b\x07") {
				t.Errorf("%s: %q", name, l.text)
			}
		}
	}
}

// TestTrends: what the two last looks have in common.
func TestTrends(t *testing.T) {
	h := &history{}
	q := &fleet(1, 2)[0]
	h.add(q)
	if h.failed != nil || h.trend() != "" {
		t.Errorf("%+v", h)
	}
	q.Workers[0].Status.Outcomes = map[string]uint64{"done": 1005, "retried": 5}
	q.Letters = new(int64(140))
	h.add(q)
	if h.failed == nil || *h.failed != 0.1 || h.trend() != " ↓" {
		t.Errorf("%+v %v", h, h.failed)
	}
	for range 20 {
		h.add(q)
	}
	if out.Width(h.spark()) != looks {
		t.Errorf("%q", h.spark())
	}
}

// TestOneFrame: into a pipe, and on a dumb terminal, top prints one frame and ends.
func TestOneFrame(t *testing.T) {
	r := newRig(t)
	r.seat("w-1/1", func(c *control.WorkerStatus) {
		c.Durations["refund"] = control.Quantiles{P50: time.Second, P95: 14 * time.Minute, Max: time.Hour}
	})
	r.at("orders", "w-2/1", "charge")
	r.run("top").want(0, "onceq top · test", "orders", "w-1/1", "B-12").not("\x1b")
	// of each worker the slowest type, of its 95 in a hundred
	text := r.run("top").want(0, "P95").out
	for owner, p95 := range map[string]string{"w-1/1": "14m", "w-2/1": "800ms"} {
		if !regexp.MustCompile(`(?m)^` + owner + ` +orders +80/100 +601 +– +` + p95 + ` +running`).MatchString(text) {
			t.Errorf("%s has no %s in\n%s", owner, p95, text)
		}
	}
	r.screen, r.terminal, r.env["TERM"] = true, true, "dumb"
	r.run("top").want(0, "w-1/1").not("\x1b")
	var v []queueView
	r.run("top", "-o", "json").want(0).json(&v)
	if len(v) != 1 || v[0].Queue != "orders" || *v[0].Busy != 160 {
		t.Errorf("%+v", v)
	}
}

// TestScreen: keys do what the first line says, and only lines that changed are written.
func TestScreen(t *testing.T) {
	r := newRig(t)
	r.seat("w-1/1", nil)
	r.settle(r.claim(charge("A-1"), time.Minute, dedupe.Rerun), dedupe.Done, "", "")
	r.screen, r.terminal, r.env["TERM"] = true, true, "xterm"
	var screen, errs bytes.Buffer
	on := r.io(&screen, &errs)
	view := on.Out.(*locked)
	in, keyboard := io.Pipe()
	on.In = in
	ended := make(chan int)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { ended <- Main(ctx, []string{"--by", "ana", "top"}, on) }()
	shown := func() string {
		view.mu.Lock()
		defer view.mu.Unlock()
		return screen.String()
	}
	from := 0
	wait := func(text string) {
		t.Helper()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for !strings.Contains(shown()[from:], text) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("no %q in %q", text, shown()[from:])
			}
		}
	}
	press := func(keys string) {
		t.Helper()
		from = len(shown())
		if _, err := io.WriteString(keyboard, keys); err != nil {
			t.Fatal(err)
		}
	}
	wait(enter)
	wait("w-1/1")
	press("\r")
	wait("oldest job")
	press("x")
	wait("busy 80/100")
	press("k")
	wait("key, or scope and key: ")
	press("A-2\x7f1\r")
	wait("DONE")
	press("x")
	press("/")
	wait("filter: ")
	press("zzz\r")
	wait(`no queue fits "zzz"`)
	press("/\r")
	wait("busy 80/100")
	press("\x1b[B\x1b[A")
	press("p")
	wait("pause orders for (30m, 2h): ")
	press("2h\rSMTP migration\rorder\r")
	wait("not confirmed; nothing was done")
	press("p")
	wait("pause orders for")
	press("2h\rSMTP migration\rorders\r")
	wait("asking …")
	if rules := r.rules(1); rules.Rules[0].Reason != "SMTP migration" || rules.Rules[0].By != "ana" {
		t.Errorf("%+v", rules)
	}
	before := len(shown())
	press("q")
	_ = keyboard.Close()
	if code := <-ended; code != 0 {
		t.Errorf("%d %s", code, errs.String())
	}
	if after := shown(); !strings.HasSuffix(after, leave) || len(after)-before > 20_000 {
		t.Errorf("%d bytes after %d", len(after), before)
	}
}

// rules waits for a version of the rules.
func (r *rig) rules(version uint64) controlstore.Rules {
	r.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		rules, err := controlstore.Read(r.Context(), r.store)
		if err != nil {
			r.Fatal(err)
		}
		if rules.Version >= version {
			return rules
		}
		<-tick.C
	}
}

// TestRepaint: a frame that is as the last one writes nothing; a worker that changed is one line.
func TestRepaint(t *testing.T) {
	r := &rig{T: t, now: time.Now, size: [2]int{120, 40}}
	a, f := newFrame(r, fleet(2, 5))
	var b bytes.Buffer
	a.io.Out = &b
	s := &top{app: a, frame: *f}
	paint := func() int {
		b.Reset()
		if err := s.paint(); err != nil {
			t.Fatal(err)
		}
		return b.Len()
	}
	whole := paint()
	if again := paint(); again != 0 {
		t.Errorf("%d bytes for nothing", again)
	}
	s.states[0].Workers[0].Status.Busy = 7
	paint()
	if n := strings.Count(b.String(), "\x1b[K"); n != 2 { // the queue's line and the worker's
		t.Errorf("%d lines", n)
	}
	r.size = [2]int{60, 20}
	if n := paint(); n == 0 || n >= whole {
		t.Errorf("%d bytes after a resize, %d before", n, whole)
	}
}

func BenchmarkFrame(b *testing.B) {
	r := &rig{now: time.Now}
	a, f := newFrame(r, fleet(5, 40))
	for b.Loop() {
		f.lines(a, 300, 80)
	}
}
