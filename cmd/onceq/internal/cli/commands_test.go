package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/ops"
	"github.com/onceq/onceq/sqsfake"
)

// follower is a worker as far as the rules go: it reads them, and says so in its card.
func (r *rig) follower(owner string) {
	r.Helper()
	s := r.seat(owner, nil)
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			rules, err := controlstore.Read(ctx, r.store)
			if err != nil {
				continue
			}
			now := time.Now()
			_ = s.Beat(ctx, &control.WorkerStatus{Slots: 100, State: "running", Scope: "orders", Types: []string{"charge"}, Started: now, At: now, Rules: rules.Version})
		}
	}()
	r.Cleanup(func() { cancel(); <-done })
}

// TestFollow: a pause waits for the workers, and says who has not followed.
func TestFollow(t *testing.T) {
	r := newRig(t)
	r.follower("w-1/1")
	r.run("--yes", "queue", "pause", "orders", "--for", "2h", "--reason", "SMTP migration").want(0, "all 1 workers follow", "next: onceq queue resume orders ")
	r.run("queue", "show", "orders").want(0, `pause the queue until`, "next: onceq queue resume orders --reason TEXT")
	r.seat("w-2/1", nil)
	var v followedView
	r.run("--yes", "-o", "json", "queue", "limit", "orders", "--slots", "10", "--for", "30m", "--reason", "gently", "--timeout", "2s").
		want(4).json(&v)
	if v.Live != 2 || len(v.Behind) != 1 || v.Behind[0] != "w-2/1" || *v.Rules[0].Slots != 10 || v.Audit == "" {
		t.Errorf("%+v", v)
	}
	r.run("--yes", "queue", "resume", "orders", "--reason", "over", "--timeout", "2s").want(4, "1 rule ended", "w-2/1 shows rules 0 of 3")
	r.run("--yes", "queue", "resume", "orders", "--reason", "over").want(1, "orders is not paused")
	r.run("--yes", "queue", "resume", "orders", "zzzzz", "--reason", "over").want(1, `no rule "zzzzz" in force`)
	r.run("queue", "ls").want(0, "limited to 10 a worker by ana")
	r.run("--yes", "queue", "resume", "orders", v.Rules[0].ID, "--reason", "over", "--timeout", "2s").want(4)
	r.run("queue", "ls").not("limited")
	var acts []actView
	r.run("audit", "-o", "json").want(0).json(&acts)
	var done []string
	for _, a := range acts {
		if a.By != "ana" || a.Reason == "" || a.Ended == nil {
			t.Errorf("%+v", a)
		}
		done = append(done, a.Act)
	}
	if got := strings.Join(done, " "); got != "pause limit resume resume" {
		t.Errorf("the audit has %s", got)
	}
}

// TestFollowUnknown: a rule that is written is told with its name, also where the store then does
// not say who follows it.
func TestFollowUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var text, errs bytes.Buffer
	on := r.io(&text, &errs)
	a := &app{io: on, out: &out.Printer{Out: on.Out, Err: on.Err, Format: out.Table, Now: on.Now}}
	away := errors.New("the store is away")
	f := ops.Followed{Rules: []control.Rule{{ID: "gme57"}}, Version: 1, Audit: "2026-11-24/1"}
	err := a.followed(t.Context(), f, away, "orders paused, rule gme57", "")
	if !errors.Is(err, away) || !strings.Contains(text.String(), "rule gme57\nwho follows is not known\naudit 2026-11-24/1\n") {
		t.Errorf("%v %s", err, text.String())
	}
}

// TestPauseType: a pause that the queue's receives do not pay for is refused; force makes it.
func TestPauseType(t *testing.T) {
	r := newRig(t)
	pause := []string{"--yes", "queue", "pause", "orders", "--type", "charge", "--reason", "x", "--for"}
	r.run(append(pause, "1h")...).want(0, "received about 8 times meanwhile; orders lets it be received 40 times")
	r.run(append(pause, "24h")...).want(5, "a pause of 24h costs about 100", "--force")
	r.run(append(pause, "24h", "--force")...).want(0, "careful: ")
	r.run("queue", "ls").want(0, "part paused: type charge by ana")
}

// TestBadReason: what the audit does not take is not done.
func TestBadReason(t *testing.T) {
	r := newRig(t)
	k := r.parked(r.claim(charge("A-1"), time.Minute, dedupe.Park))
	r.run("--yes", "key", "resolve", "A-1", "--fence", fence(k), "--to", "done", "--reason", "x\x1by").want(2, "control character")
	r.run("--yes", "key", "resolve", "A-1", "--fence", fence(k), "--to", "done", "--reason", strings.Repeat("x", 257)).want(2, "257 bytes, the limit is 256")
	if got := r.get(charge("A-1")); got.Status != dedupe.Parked {
		t.Errorf("it is %v", got.Status)
	}
}

func fence(r *dedupe.Record) string { return strconv.FormatUint(r.Fence, 10) }

func (r *rig) get(k dedupe.Key) *dedupe.Record {
	r.Helper()
	rs, err := r.store.Get(r.Context(), []dedupe.Key{k})
	if err != nil {
		r.Fatal(err)
	}
	return rs[0]
}

// parked settles a claim as parked.
func (r *rig) parked(c dedupe.Claim) *dedupe.Record {
	r.Helper()
	r.settle(c, dedupe.Parked, "interrupted", "its owner died")
	return r.get(c.Lease.Key)
}

func TestResolveAndForget(t *testing.T) {
	r := newRig(t)
	k := r.parked(r.claim(charge("A-1"), time.Minute, dedupe.Park))
	r.run("key", "show", "A-1").want(0, "PARKED", "next: onceq key resolve orders:charge A-1 --fence "+fence(k))
	r.run("--yes", "key", "resolve", "A-1", "--fence", "7", "--to", "done", "--reason", "the bank has it").want(5, "not 7: look again")
	r.run("key", "resolve", "A-1", "--fence", fence(k), "--to", "done", "--reason", "the bank has it").want(5, "not confirmed")
	r.terminal, r.typed = true, "A-1\n"
	r.run("key", "resolve", "A-1", "--fence", fence(k), "--to", "done", "--reason", "the bank has it").want(0, "Type A-1 to resolve it to done", "is done now")
	r.terminal = false
	if got := r.get(charge("A-1")); got.Status != dedupe.Done {
		t.Errorf("it is %v", got.Status)
	}
	r.run("key", "show", "A-1").want(0, "DONE", `by ana: "the bank has it"   [audit `)
	r.run("--yes", "key", "forget", "A-1", "--fence", fence(k), "--reason", "again, please").want(0, "is none now")
	r.run("key", "show", "orders:charge", "A-1").want(1, "no record", `by ana: "again, please"`)
	live := r.claim(charge("A-2"), time.Minute, dedupe.Rerun)
	args := []string{"--yes", "key", "forget", "A-2", "--reason", "x", "--fence", strconv.FormatUint(live.Lease.Fence, 10)}
	r.run(args...).want(5, "is claimed with fence")
	r.run(append(args, "--force")...).want(0)
	if r.get(charge("A-2")) != nil {
		t.Error("it is there still")
	}
	r.run("audit").want(0, "resolve", "forget", "FAILED: ")
}

// TestKeyShow: the time line of a key that was tried, lost, and failed.
func TestKeyShow(t *testing.T) {
	r := newRig(t)
	k := charge("A-1")
	for range 6 {
		r.settle(r.claim(k, time.Minute, dedupe.Rerun), dedupe.Released, "timeout", errBank.Error())
	}
	r.claim(k, 50*time.Millisecond, dedupe.Rerun)
	r.lapsed(k)
	r.settle(r.claim(k, time.Minute, dedupe.Rerun), dedupe.Failed, "timeout", errBank.Error())
	a := r.run("key", "show", "A-1").want(0, "orders:charge A-1   FAILED", "attempt 8", "sent", "waited 4", "#1 fence ", "timeout: context deadline exceeded",
		"4 attempts", "#3 to #6, all released, timeout (-v shows each)", "lease died", "took over, dead for", "next: onceq dlq replay orders --key A-1 --dry-run",
		"logs: https://logs.example/?q=A-1")
	if at := strings.Index; !(at(a.out, "sent") < at(a.out, "#1 fence") && at(a.out, "#1 fence") < at(a.out, "4 attempts") && at(a.out, "4 attempts") < at(a.out, "lease died") && at(a.out, "lease died") < at(a.out, "failed  ")) {
		t.Errorf("not in order:\n%s", a.out)
	}
	r.run("key", "show", "A-1", "-v").want(0, "#4 fence").not("4 attempts")
	var v keyView
	r.run("key", "show", "A-1", "-o", "json", "--effect", "charge").want(0).json(&v)
	if v.Status != "failed" || len(v.Steps) != 17 || v.Steps[0].What != "sent" || v.Steps[0].Source != "record" || v.Steps[1].Source != "past" || v.EffectKey == "" {
		t.Errorf("%+v", v)
	}
	running := r.claim(charge("A-2"), time.Minute, dedupe.Rerun)
	r.seat("w-3/1", func(c *control.WorkerStatus) {
		c.Jobs = []control.RunningJob{{Key: "A-2", Type: "charge", At: time.Now(), Attempt: 1, Fence: running.Lease.Fence, Overdue: true}}
	})
	r.run("key", "show", "A-2").want(0, "CLAIMED", "running", "its lease lasts", "its context has ended, and it runs on", "next: onceq jobs running orders")
}

// TestKeyShowSaved: key show names what a job has saved. What cannot be read is said beside the
// rest of the key.
func TestKeyShowSaved(t *testing.T) {
	const charged = `"charge":{"n":1,"at":"2026-01-02T03:04:05Z","v":"ch_1"}`
	var many strings.Builder
	many.WriteString(`"step 00":` + charged[len(`"charge":`):])
	for n := range 25 {
		many.WriteString(fmt.Sprintf(`,"step %02d":{"n":%d,"at":"2026-01-02T03:04:05Z","v":1}`, n+1, n+2))
	}
	for name, c := range map[string]struct {
		state string
		want  []string
		saved int
		gaps  int
	}{
		"a step and a sleep": {
			`{"v":1,"s":{"trial":{"n":2,"at":"2026-01-02T03:04:06.5Z","until":"2026-02-10T03:04:05Z"},` + charged + `},"x":1}`,
			[]string{"2026-01-02 03:04:05.000  saved         charge, 6 bytes\n  2026-01-02 03:04:06.500  saved         trial, asleep until 2026-02-10 03:04:05"},
			2, 0,
		},
		"a name that moves the cursor": {`{"v":1,"s":{"a\u001b[2Jb":{"n":1,"v":1}}}`, []string{`saved         a\x1b[2Jb, 1 byte`}, 1, 0},
		"many":                         {`{"v":1,"s":{` + many.String() + `}}`, []string{"saved: 6 steps before these (-v shows each)", "saved         step 25"}, 26, 0},
		"a later version":              {`{"v":2,"s":{}}`, []string{"not known: its saved steps, 14 bytes: ", "a later version of onceq has written it"}, 0, 1},
		"cut":                          {`{"v":1,"s":{` + charged, []string{"not known: its saved steps", "something else has written it"}, 0, 1},
		"not ours":                     {"\xff\x00", []string{"not known: its saved steps, 2 bytes", "something else has written it"}, 0, 1},
		"a step is broken":             {`{"v":1,"s":{` + charged + `,"mail":[]}}`, []string{"saved         charge, 6 bytes", `not known: what the job has saved cannot be used: the step "mail" cannot be read`}, 1, 1},
		"nothing":                      {`{"v":1,"s":{}}`, nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			k := charge("A-1")
			l := r.claim(k, time.Minute, dedupe.Rerun).Lease
			if errs, err := r.store.Renew(t.Context(), []dedupe.Renewal{{Key: k, Token: l.Token, TTL: time.Minute, State: []byte(c.state), StateNo: 1}}); err != nil || errs[0].Err != nil {
				t.Fatal(errs, err)
			}
			r.run("key", "show", "A-1", "--utc").want(0, append(c.want, "orders:charge A-1   CLAIMED", "#1 fence")...)
			var v keyView
			r.run("key", "show", "A-1", "-o", "json").want(0).json(&v)
			if len(v.Saved) != c.saved || len(v.Gaps) != c.gaps+1 || *v.State != len(c.state) { // its owner has no seat
				t.Errorf("%+v", v)
			}
			for i, s := range v.Saved {
				if i > 0 && *v.Saved[i-1].At > *s.At || (s.Until != nil) != (s.Bytes == nil) {
					t.Errorf("%+v", s)
				}
			}
			if c.saved == 26 {
				r.run("key", "show", "A-1", "-v").want(0, "step 00, 6 bytes").not("before these")
			}
		})
	}
}

// lapsed waits until a claim's lease has ended.
func (r *rig) lapsed(k dedupe.Key) {
	r.Helper()
	for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
		if !time.Now().Before(r.get(k).LeaseUntil) {
			return
		}
	}
}

func TestKeyList(t *testing.T) {
	r := newRig(t)
	for _, k := range []string{"A-1", "A-2", "B-1"} {
		r.settle(r.claim(charge(k), time.Minute, dedupe.Rerun), dedupe.Failed, "timeout", "x")
	}
	r.settle(r.claim(charge("C-1"), time.Minute, dedupe.Rerun), dedupe.Done, "", "")
	r.seat("w-1/1", nil)
	r.run("key", "ls", "-q").want(0, "orders:charge/A-1\norders:charge/A-2\norders:charge/B-1\n").not("C-1", ":worker")
	r.run("key", "ls", "--prefix", "A", "--max", "1").want(0, "there may be more: --max 10").not("A-2")
	r.run("key", "ls", "--before", "1h").want(0, "no such key")
	r.run("key", "ls", "--status", "all", "--scan").want(0, "C-1").not(":worker")
	r.run("key", "ls", "--status", "all").want(5, "it reads about ", "--scan goes on")
	if n := strings.Count(r.run("key", "ls", "-o", "ndjson").want(0).out, "\n"); n != 3 {
		t.Errorf("%d lines", n)
	}
}

func TestJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.run("jobs", "running", "orders").want(0, "no card names a job")
	c := r.claim(charge("S-1"), 50*time.Millisecond, dedupe.Rerun)
	r.lapsed(charge("S-1"))
	// The seat lives longer than a command takes on a busy machine, and is then waited for.
	s := must.Get(controlstore.NewSeat(r.store, controlstore.SeatOptions{Queue: "orders", Owner: "w-9/1", TTL: 5 * time.Second}))
	r.beat(s, func(k *control.WorkerStatus) {
		k.Jobs = []control.RunningJob{{Key: "S-1", Type: "charge", At: time.Now(), Attempt: 1, Fence: c.Lease.Fence}}
	})
	r.run("jobs", "running", "orders").want(0, "S-1", "w-9/1", "next: onceq key show orders:charge S-1")
	for tick := time.NewTicker(10 * time.Millisecond); !strings.Contains(r.run("workers", "orders").want(0).out, "DEAD"); <-tick.C {
	}
	r.run("workers", "orders").want(0, "S-1", "next: onceq jobs stalled orders")
	r.run("queue", "ls").want(0, "1 worker dead", "next: onceq jobs stalled orders")
	r.run("jobs", "stalled", "orders").want(0, "S-1", "w-3/1", "next: onceq key show orders:charge S-1")
	r.run("jobs", "stalled", "orders", "--scan").want(0, "S-1").not("orders/0")
	r.run("key", "show", "S-1").want(0, "lease died", "w-3/1 went silent")
}

func TestMessages(t *testing.T) {
	r := newRig(t)
	r.typed = `{"order":"Z-1"}`
	var v sentView
	r.run("queue", "send", "orders", "--key", "Z-1", "--type", "charge", "-o", "json").want(0).json(&v)
	if v.Key != "Z-1" || v.Audit == "" {
		t.Errorf("%+v", v)
	}
	r.run("queue", "peek", "orders").want(0, "Z-1", `{"order":"Z-1"}`, "received 1 of orders; each has one receive more; given back", "orders counts receives, to 40")
	r.send("Z-2", "Z-3")
	r.run("queue", "purge", "orders").want(0, "about 3 messages that nobody holds; nothing was removed")
	file := r.dir + "/purged.ndjson"
	args := []string{"--yes", "queue", "purge", "orders", "--dry-run=false", "--max", "2", "-f", file, "--reason", "made twice"}
	r.run(args...).want(0, "removed 2 messages into "+file, "audit ")
	r.run(args...).want(2, "-f: ", "file exists")
	r.run("queue", "ls").want(0)
	r.depths(0, 1)
	r.env["ONCEQ_QUEUE"] = "sqs+" + r.server.URL + "/turns.fifo"
	if _, err := r.server.CreateQueue("turns.fifo", nil); err != nil {
		t.Fatal(err)
	}
	r.run("queue", "peek", "turns.fifo").want(5, "keeps the order of groups", "--force looks all the same")
	r.run("queue", "peek", "turns.fifo", "--force").want(0, "nothing came")
}

// TestPurgeCut: messages that could not be removed stay, the report says how many are gone, and the
// exit says that it is not all.
func TestPurgeCut(t *testing.T) {
	r := newRig(t)
	for n := range 20 {
		r.send("P-" + strconv.Itoa(n))
	}
	r.server.SetFaults(sqsfake.Fault{Action: "DeleteMessageBatch", Skip: 1, Status: 403, Code: "AccessDenied", Message: "no"})
	r.run("--yes", "queue", "purge", "orders", "--dry-run=false", "--max", "20", "-f", r.dir+"/p.ndjson", "--reason", "x").want(4, "removed 10 messages")
	r.server.SetFaults()
	r.depths(0, 10)
}

// TestCompletion: names come from the profile, and a store that hangs keeps nobody.
func TestCompletion(t *testing.T) {
	r := newRig(t)
	r.run("__complete", "queue", "show", "").want(0, "orders\n")
	r.run("__complete", "--profile", "").want(0, "test\n")
	r.run("__complete", "key", "ls", "--status", "").want(0, "failed\n")
	r.run("completion", "bash").want(0, "__start_onceq")
	r.env["ONCEQ_STORE"] = "postgres://app@192.0.2.1:5432/x?connect_timeout=30"
	began := time.Now()
	r.run("__complete", "queue", "show", "").want(0, "orders\n")
	if took := time.Since(began); took > 15*time.Second { // the store would take 30 s, a busy machine some
		t.Errorf("a shell waited %v", took)
	}
}

func TestVersionAndHelp(t *testing.T) {
	r := newRig(t)
	r.run("version").want(0, "onceq ")
	r.run().want(0, "Available Commands")
	r.run("help", "exit").want(0, "130  interrupted")
	r.run("help", "profiles").want(0, "ONCEQ_CONFIG")
	r.run("help", "queue", "pause").want(0, "--reason")
	r.run("queue").want(0, "pause")
}
