package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/must"
)

// died puts the letter of a job that failed, as a worker does.
func (r *rig) died(key, class, text string) uint64 {
	r.Helper()
	c := r.claim(charge(key), time.Minute, dedupe.Rerun)
	r.settle(c, dedupe.Failed, class, text)
	r.letter(key, class, text, c.Lease.Fence)
	return c.Lease.Fence
}

func (r *rig) letter(key, class, text string, fence uint64) {
	r.Helper()
	m := broker.Outgoing{Body: []byte(`{"cents":-500,"order":"` + key + `"}`), Meta: &broker.Meta{
		ID: "j-" + key, Key: key, Type: "charge", Dead: &broker.Letter{
			Fence: fence, Class: class, FirstErr: text, LastErr: text, Attempts: 3, Source: "orders", Scope: "orders:charge", Key: key,
			At: time.Now().Add(-time.Minute),
		},
	}}
	if _, err := r.dead.Send(r.Context(), []broker.Outgoing{m}); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) depths(dead, queue int64) {
	r.Helper()
	for _, q := range []struct {
		b    broker.Broker
		name string
		want int64
	}{{r.dead, "orders-dead", dead}, {r.queue, "orders", queue}} {
		tells, ok := broker.As[broker.Depther](q.b)
		if !ok {
			r.Fatalf("%s does not tell its depth", q.name)
		}
		d, err := tells.Depth(r.Context())
		if err != nil || d.Visible+d.InFlight != q.want {
			r.Errorf("%s: %+v %v, want %d", q.name, d, err, q.want)
		}
	}
}

var bank = dlq.Fingerprint("timeout", "no answer from 10.0.0.1:443")

// outage is a bank that was down for three jobs, and a card that had expired.
func outage(t *testing.T) *rig {
	r := newRig(t)
	for i := range 3 {
		r.died(fmt.Sprint("A-", i), "timeout", fmt.Sprintf("no answer from 10.0.0.%d:443", i))
	}
	r.died("B-1", "permanent", "402 card expired at 2026-11-22")
	return r
}

// TestLetters: what died, by what went wrong, and one of them whole.
func TestLetters(t *testing.T) {
	t.Parallel()
	r := outage(t)
	r.run("dlq", "group", "orders").want(0, "4 letters, ", "all looked at", bank+"  timeout    charge        3", "no answer from #", "402 card expired at #",
		"next: onceq dlq replay orders --group "+bank+" --dry-run")
	var gs []groupView
	r.run("-o", "json", "dlq", "group", "orders").want(0).json(&gs)
	if len(gs) != 2 || gs[0].Group != bank || gs[0].Letters != 3 || gs[0].Types["charge"] != 3 {
		t.Errorf("%+v", gs)
	}
	r.run("dlq", "ls", "orders", "--group", bank).want(0, "A-0", "A-2").not("B-1")
	r.run("-q", "dlq", "ls", "orders", "--match", `"order":"B-\d"`).want(0, "B-1\n").not("A-")
	r.run("dlq", "ls", "orders", "--since", "10s").want(0, "no such letter")
	r.run("dlq", "ls", "orders", "--max", "2").want(0)
	r.run("dlq", "show", "orders", "A-1").want(0, "group        "+bank, `body         {"cents":-500,"order":"A-1"}`, "next: onceq key show orders:charge A-1")
	r.run("dlq", "show", "orders", "Z-9").want(1, "no such letter")
	r.run("dlq", "export", "orders", "-f", "-", "--class", "permanent").want(0, `"body":"{\"cents\":-500,\"order\":\"B-1\"}"`, "1 letter exported")
	r.depths(4, 0)
}

// TestReplayCommand: plan, numbers, confirmation, act, audit.
func TestReplayCommand(t *testing.T) {
	t.Parallel()
	r := outage(t)
	r.settle(r.claimAgain("A-1"), dedupe.Done, "", "") // somebody has done it meanwhile
	r.run("dlq", "replay", "orders", "--group", bank, "--dry-run").want(0, "3 letters → orders", "2 reopen their failure", "1 are done already (removed, nothing sent)",
		"nothing was sent", "next: onceq dlq replay orders --group "+bank+" --reason TEXT")
	r.depths(4, 0)
	args := []string{"dlq", "replay", "orders", "--group", bank, "--reason", "bank back, INC-311"}
	r.run(args...).want(5, "not confirmed")
	r.run(append(args, "--yes")...).want(5, "--yes wants a bound")
	r.terminal, r.typed = true, "3\n"
	r.run(args...).want(5, "Type 2 to replay 2 letters", `"3" is not 2; nothing was done`)
	r.depths(4, 0)
	r.typed = "2\n"
	r.run(args...).want(0, "2 sent, 1 removed · 0 came back so far", "audit ")
	r.depths(1, 2)
	r.run("audit").want(0, "replay", "bank back, INC-311")
	var acts []actView
	r.run("audit", "-o", "json").want(0).json(&acts)
	a := acts[len(acts)-1]
	if a.Act != "replay" || !strings.HasPrefix(a.Object, "plan ") || a.Result["sent"] != "2" || a.Detail["letters"] != "2" || a.Ended == nil {
		t.Errorf("%+v", a)
	}
	r.terminal = false
	r.run(append(args, "--yes", "--max", "9")...).want(0, "no letter to replay")
}

// claimAgain is a claim of a failed key, as a replay's.
func (r *rig) claimAgain(key string) dedupe.Claim {
	r.Helper()
	rec := r.get(charge(key))
	as, err := r.store.Claim(r.Context(), []dedupe.ClaimRequest{{Key: rec.Key, Token: token(), TTL: time.Minute, Owner: "w", Reopen: rec.Fence}})
	if err != nil || as[0].Outcome != dedupe.Won {
		r.Fatal(err, as)
	}
	return as[0]
}

// TestReplayPlanFile: a plan is a file; what came since stays; what was edited, is old, or is of
// another queue is refused.
func TestReplayPlanFile(t *testing.T) {
	t.Parallel()
	r := outage(t)
	file := filepath.Join(t.TempDir(), "plan.json")
	var v planView
	r.run("-o", "json", "dlq", "replay", "orders", "--class", "timeout", "--dry-run", "--plan", file).want(0).json(&v)
	if v.Letters != 3 || *v.Reopen != 3 || v.Queue != "orders" || v.Dead != "orders-dead" || v.File != file {
		t.Errorf("%+v", v)
	}
	r.run("dlq", "replay", "orders", "--dry-run", "--plan", file).want(2, "file exists")
	r.died("A-9", "timeout", "no answer from 10.0.0.9:443") // of the same group
	good := must.Get(os.ReadFile(file))
	replay := []string{"--yes", "dlq", "replay", "orders", "--plan", file, "--reason", "bank back"}
	write := func(b string) {
		if err := os.WriteFile(file, []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Replace(string(good), `"A-1"`, `"A-9"`, 1))
	r.run(replay...).want(5, "and was edited: make it again")
	write("{}")
	r.run(replay...).want(5, "it is no plan, or was edited")
	var old dlq.Plan
	if err := json.Unmarshal(good, &old); err != nil {
		t.Fatal(err)
	}
	write(string(good))
	r.run(append(replay, "--class", "timeout")...).want(2, "--plan has chosen the letters already")
	r.run(append(replay, "--canary", "3")...).want(2, "--canary: 3 leaves nothing to go on with: the plan sends 3")
	r.run(append(replay, "--edit", "cat")...).want(5, "made with --edit")
	r.depths(5, 0)
	r.run(replay...).want(0, "3 sent")
	r.depths(2, 3)
	r.run(replay...).want(0, "0 sent, 3 of the plan gone")
	r.run("dlq", "replay", "orders", "--plan", "/nowhere/at/all", "--reason", "x").want(2, "--plan: open /nowhere/at/all")
}

// TestLettersTakeTheirTime: a pass through many letters takes as long as it takes; only a --timeout
// that somebody gave ends it.
func TestLettersTakeTheirTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.letter("A-1", "timeout", "no answer", 1)
	for _, args := range [][]string{{"dlq", "ls", "orders"}, {"dlq", "group", "orders"}, {"dlq", "show", "orders", "A-1"}} {
		for _, given := range []time.Duration{0, time.Hour} {
			on := r.io(&bytes.Buffer{}, &bytes.Buffer{})
			a := &app{io: on, out: &out.Printer{Out: on.Out, Err: on.Err, Now: on.Now}}
			root := a.root()
			if root.SetArgs(args); given > 0 {
				root.SetArgs(append(args, "--timeout", given.String()))
			}
			if err := root.ExecuteContext(t.Context()); err != nil || a.timeout != given {
				t.Errorf("%v: %v, bounded by %v", args, err, a.timeout)
			}
		}
	}
}

// TestPlanFileHostile: a file that is cut off, of a later version, of another queue or for another
// act sends nothing, and is told apart from a plan.
func TestPlanFileHostile(t *testing.T) {
	t.Parallel()
	r := outage(t)
	dir := t.TempDir()
	plan, purge := filepath.Join(dir, "plan.json"), filepath.Join(dir, "purge.json")
	r.run("dlq", "replay", "orders", "--dry-run", "--plan", plan).want(0)
	r.run("dlq", "purge", "orders", "--all", "--plan", purge).want(0)
	good := must.Get(os.ReadFile(plan))
	file := filepath.Join(dir, "odd.json")
	args := []string{"--yes", "dlq", "replay", "orders", "--reason", "x", "--plan"}
	refused := func(code int, text string, b []byte) {
		t.Helper()
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		r.run(append(args, file)...).want(code, text)
	}
	for n := 0; n < len(good)-2; n += 41 {
		refused(5, "it is no plan, or was edited", good[:n])
	}
	refused(5, "it is no plan, or was edited", append(bytes.Clone(good), '{'))
	refused(5, "it is no plan, or was edited", []byte("null"))
	refused(5, "it is no plan, or was edited", []byte{0xff, 0, 0xfe})
	refused(5, "it is of version 3, and this program reads version 2", bytes.Replace(good, []byte(`"v": 1`), []byte(`"v": 3, "lanes": []`), 1))
	refused(5, "and was edited", bytes.Replace(good, []byte(`"orders-dead"`), []byte(`"mails-dead"`), 1))
	refused(5, "and was edited", bytes.Replace(good, []byte(`"act": "replay"`), []byte(`"act": "purge"`), 1))
	r.run(append(args, purge)...).want(5, "to purge, not to replay")
	r.run(append(args, dir)...).want(2, "is a directory")
	if filepath.Separator == '/' {
		r.run(append(args, "/dev/zero")...).want(2, "so it is no plan")
	}
	r.open("mails-dead", nil)
	r.open("mails", nil)
	r.config(strings.Replace(r.file, "      orders:\n", "      mails: {url: 'sqs+"+r.server.URL+"/mails', dead: 'sqs+"+r.server.URL+"/mails-dead'}\n      orders:\n", 1))
	r.run("--yes", "dlq", "replay", "mails", "--reason", "x", "--plan", plan).want(5, "is for orders-dead, not for mails-dead")
	r.depths(4, 0)
	if n := len(r.audit()); n != 0 {
		t.Errorf("%d acts", n)
	}
	r.run(append(args, plan)...).want(0, "4 sent")
}

// TestReplayBeside: who replays the same letters is named; beside him it goes on.
func TestReplayBeside(t *testing.T) {
	t.Parallel()
	r := outage(t)
	args := []string{"--yes", "dlq", "replay", "orders", "--max", "9", "--reason", "bank back"}
	dead, err := controlstore.Begin(r.Context(), r.store, control.AuditEntry{Act: "replay", By: "eve", Reason: "x", Queue: "orders", Object: "plan 1111"})
	if err != nil {
		t.Fatal(err) // eve has died
	}
	err = control.WithLock(r.Context(), r.store, "letters/orders", func(context.Context) error {
		if _, err := controlstore.Begin(r.Context(), r.store, control.AuditEntry{Act: "replay", By: "bob", Reason: "x", Queue: "orders", Object: "plan 8d2c"}); err != nil {
			t.Fatal(err)
		}
		r.run(args...).want(5, "bob began a replay of the letters of orders at ", "plan 8d2c", "--beside goes on at once").not("eve")
		r.depths(4, 0)
		r.run("audit").want(0, dead.ID(), "its end is not known")
		r.run(append(args, "--beside", "--max", "1")...).want(0, "1 sent")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.run(args...).want(0, "3 sent")
}

// TestReplayStops: letters that come back end a ramp; an end of the context hands letters back.
func TestReplayStops(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 30 {
		r.died(fmt.Sprint("A-", i), "timeout", "no answer")
	}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(r.Context())
	go func() { // the worker's part: the first one fails again
		defer close(done)
		for ctx.Err() == nil {
			ms, err := r.queue.Receive(ctx, broker.ReceiveOptions{Max: 1, Wait: time.Second, Visibility: time.Minute})
			if err != nil || len(ms) == 0 {
				continue
			}
			d := *ms[0].Meta.Dead
			d.Fence, d.At = d.Fence+100_000, time.Now()
			ms[0].Meta.Dead = &d
			_, _ = r.dead.Send(ctx, []broker.Outgoing{{Body: ms[0].Body, Meta: ms[0].Meta}})
			return
		}
	}()
	a := r.run("--yes", "dlq", "replay", "orders", "--max", "30", "--canary", "2", "--canary-wait", "20s", "--ramp", "--reason", "bank back")
	cancel()
	<-done
	a.want(1, "2 sent", "1 came back", "of 2 letters sent 1 came back: charge A-")
	r.depths(29, 2)
	c, interrupt := context.WithCancel(r.Context())
	defer interrupt()
	orders, ok := broker.As[broker.Depther](r.queue)
	if !ok {
		t.Fatal("the queue does not tell its depth")
	}
	go func() { // 28 letters take 14 s: it is interrupted as soon as one was sent
		defer interrupt()
		for tick := time.NewTicker(20 * time.Millisecond); c.Err() == nil; <-tick.C {
			if d, err := orders.Depth(c); err == nil && d.Visible+d.InFlight > 2 {
				return
			}
		}
	}()
	r.runIn(c, "--yes", "dlq", "replay", "orders", "--max", "28", "--rate", "2/s", "--reason", "bank back").want(130, " sent", "audit ")
}

// TestReplayEdit: bodies go through a command; the plan shows what changes, and the fence stays.
func TestReplayEdit(t *testing.T) {
	t.Parallel()
	r := outage(t)
	edit := []string{"--edit", `sed s/-500/500/`}
	r.run(append([]string{"dlq", "replay", "orders", "--key", "A-1", "--dry-run"}, edit...)...).want(0, `- {"cents":-500,"order":"A-1"}`, `+ {"cents":500,"order":"A-1"}`, "--edit 'sed s/-500/500/'")
	r.run("dlq", "replay", "orders", "--dry-run", "--edit", "exit 3").want(0, "4 left: --edit: exit status 3")
	r.run(append([]string{"--yes", "dlq", "replay", "orders", "--key", "A-1", "--max", "1", "--reason", "sign"}, edit...)...).want(0, "1 sent")
	ms, err := r.queue.Receive(r.Context(), broker.ReceiveOptions{Max: 1, Visibility: time.Minute})
	if err != nil || len(ms) != 1 || string(ms[0].Body) != `{"cents":500,"order":"A-1"}` || ms[0].Meta.Dead.Fence == 0 {
		t.Errorf("%v %+v", err, ms)
	}
}

func TestPurgeCommand(t *testing.T) {
	t.Parallel()
	r := outage(t)
	file := filepath.Join(t.TempDir(), "kept.ndjson")
	r.run("dlq", "purge", "orders").want(2, "give a filter")
	r.run("dlq", "purge", "orders", "--class", "permanent").want(0, "1 letter of orders-dead would be removed; 3 stay", "nothing was removed")
	r.run("dlq", "purge", "orders", "--class", "permanent", "--dry-run=false").want(2, "-f is missing")
	r.run("dlq", "purge", "orders", "--class", "permanent", "--dry-run=false", "-f", file).want(2, "--reason is missing")
	args := []string{"--yes", "dlq", "purge", "orders", "--class", "permanent", "--dry-run=false", "-f", file, "--reason", "refunded by hand"}
	r.run(args...).want(5, "--yes wants a bound")
	r.depths(4, 0)
	r.run(append(args, "--max", "5")...).want(0, "1 purged", "kept in "+file, "audit ")
	r.depths(3, 0)
	if b, err := os.ReadFile(file); err != nil || strings.Count(string(b), "\n") != 1 || !strings.Contains(string(b), "B-1") {
		t.Errorf("%s %v", b, err)
	}
	r.run("audit").want(0, "purge", "refunded by hand")
}

// moved has SQS move so many messages to the dead-letter queue by itself, so that it knows where
// they came from.
func (r *rig) moved(n int) {
	r.Helper()
	source := r.open("source", map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:orders-dead","maxReceiveCount":1}`})
	for i := range n {
		if _, err := source.Send(r.Context(), []broker.Outgoing{{Body: fmt.Append(nil, i)}}); err != nil {
			r.Fatal(err)
		}
	}
	for left := int64(n); left > 0; {
		ms, err := source.Receive(r.Context(), broker.ReceiveOptions{Max: 10, Visibility: time.Minute})
		if err != nil {
			r.Fatal(err)
		}
		hs := make([]broker.Hold, len(ms))
		for i, m := range ms {
			hs[i] = broker.Hold{Receipt: m.Receipt}
		}
		if len(hs) > 0 {
			err = source.Nack(r.Context(), hs)
		}
		d, failed := source.Depth(r.Context())
		if err := errors.Join(err, failed); err != nil {
			r.Fatal(err)
		}
		left = d.Visible + d.InFlight
	}
}

// TestRedriveCommand: the task lasts for a minute, so that a busy machine does not see its end.
func TestRedriveCommand(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.moved(60)
	r.run("dlq", "redrive", "orders", "--status").want(0, "no redrive")
	r.run("dlq", "redrive", "orders", "--cancel", "--reason", "x").want(1, "no redrive of the letters of orders runs")
	r.run("dlq", "redrive", "orders", "--reason", "x").want(5, "not confirmed")
	r.run("--yes", "dlq", "redrive", "orders", "--per-second", "1", "--reason", "all of them").want(0, "SQS moves the letters of orders back", "audit ")
	r.run("--yes", "dlq", "redrive", "orders", "--reason", "x").want(5, "a redrive of these letters runs")
	r.run("dlq", "redrive", "orders", "--status").want(0, "RUNNING")
	r.run("dlq", "redrive", "orders", "--cancel", "--reason", "enough").want(0, "the redrive ends")
}

// TestBadLetters: what cannot be meant is answered with the flag's name.
func TestBadLetters(t *testing.T) {
	t.Parallel()
	r := outage(t)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"dlq frob", 2, `unknown command "frob"`},
		{"dlq ls orders --match (", 2, "--match: missing closing )\n  (\n  ^"},
		{"dlq ls orders --match ab[z-a]", 2, "    ^"},
		{"dlq ls orders --group timeout", 2, `--group: "timeout" is not a group`},
		{"dlq ls orders --since soon", 2, "--since: "},
		{"dlq ls orders --since 1h --until 2h", 2, "--since: "},
		{"dlq ls orders --max -1", 2, "--max: -1 is negative"},
		{"dlq replay orders --rate 0 --reason x", 2, "--rate: 0 is not a rate; want 50/s"},
		{"dlq replay orders --rate -1 --reason x", 2, "--rate: -1 is not a rate"},
		{"dlq replay orders --rate NaN --reason x", 2, "--rate: NaN is not a rate"},
		{"dlq replay orders --rate 5/d --reason x", 2, "--rate: 5/d is not a rate"},
		{"dlq replay orders --rate 1e400 --reason x", 2, "--rate: 1e400 is not a rate"},
		{"dlq replay orders --rate Inf/s --reason x", 2, "--rate: Inf/s is not a rate"},
		{"--yes dlq replay orders --max 9 --rate 1e-320 --reason x", 2, "--rate: 1e-320 is below"},
		{"--yes dlq replay orders --max 9 --canary 9223372036854775807 --reason x", 2, "--canary: 9223372036854775807 leaves nothing to go on with"},
		{"dlq replay orders --canary 99999999999999999999 --reason x", 2, "--canary: "},
		{"dlq replay orders --ramp --canary-wait -1s --reason x", 2, "--canary-wait: -1s is negative"},
		{"dlq replay orders --ramp --canary-wait 36500d2000000h --reason x", 2, "--canary-wait: "},
		{"--yes dlq replay orders --max 9 --canary-wait 1s --reason x", 2, "--canary-wait: is 1s, but --canary is 0"},
		{"dlq replay orders --max 99999999999999999999 --reason x", 2, "--max: "},
		{"queue send orders --delay 2562047h", 2, "elay"},
		{"dlq replay orders --canary -1 --reason x", 2, "--canary: -1 is negative"},
		{"dlq replay orders --canary-wait 10 --reason x", 2, "--canary-wait: 10 has no unit"},
		{"--yes dlq replay orders --max 9 --canary 4 --reason x", 2, "--canary: 4 leaves nothing to go on with"},
		{"--yes dlq replay orders --max 9 --rate 0.5/h --reason x", 2, "--rate: "},
		{"dlq replay orders", 2, "--reason is missing"},
		{"dlq replay orders --to kafka://x --reason x", 2, "want sqs://NAME"},
		{"dlq replay orders --to nobody --reason x", 2, "--to: profile test has no queue"},
		{"dlq purge orders --all --class x", 2, "give a filter"},
		{"dlq export orders", 2, "-f is missing"},
		{"dlq redrive orders --per-second 501", 2, "--per-second: 501, want 1 to 500"},
	} {
		t.Run(c.args, func(t *testing.T) {
			r := *r
			r.T = t
			r.run(strings.Split(c.args, " ")...).want(c.code, c.want)
		})
	}
	r.depths(4, 0)
}
