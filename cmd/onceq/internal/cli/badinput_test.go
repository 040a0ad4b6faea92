package cli

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/sqsfake"
)

// TestBadInput: what cannot be meant is answered in a sentence, with the flag's name or the line.
func TestBadInput(t *testing.T) {
	r := newRig(t)
	c := r.claim(charge("A-1"), time.Minute, dedupe.Rerun)
	r.settle(c, dedupe.Failed, "timeout", "x")
	reason := []string{"--reason", "the bank is down"}
	for _, e := range []struct {
		args string
		code int
		want string
	}{
		{"frob", 2, `unknown command "frob"`},
		{"queue frob", 2, `onceq: queue: unknown command "frob"`},
		{"queue paus orders", 2, "did you mean pause?"},
		{"queue show", 2, "onceq queue show QUEUE: accepts 1 arg(s), received 0"},
		{"workers", 2, "onceq workers QUEUE [WORKER…]: requires at least 1 arg"},
		{"key show", 2, "onceq key show [SCOPE] KEY: accepts between 1 and 2"},
		{"completion frob", 2, `completion: unknown command "frob"`},
		{"queue ls -o yaml", 2, "-o yaml: want table, json, ndjson or md"},
		{"queue ls --frob", 2, "unknown flag: --frob"},
		{"queue ls --timeout 10", 2, "--timeout: 10 has no unit; want 10m, 1h"},
		{"queue ls --timeout -5s", 2, "--timeout: -5s is negative"},
		{"queue show sqs:/orders", 2, `queue "sqs:/orders": want sqs://NAME, https://sqs.…, gcppubsub://PROJECT/SUBSCRIPTION`},
		{"queue show sqs://", 2, "want sqs://NAME"},
		{"queue show kafka://x", 2, "want sqs://NAME"},
		{"queue show order", 2, "profile test has no queue \"order\": did you mean orders?"},
		{"queue ls -p prod", 2, `there is no profile "prod"`},
		{"queue peek orders -n 0", 2, "-n: 0, want 1 to 100"},
		{"queue pause orders", 2, "--for is missing"},
		{"queue pause orders --for 0", 2, "--for: "},
		{"queue pause orders --for 10", 2, "--for: 10 has no unit; want 10m, 1h"},
		{"queue pause orders --for 400d", 2, "--for: "},
		{"queue pause orders --for 1h", 2, "--reason is missing"},
		{"queue limit orders --for 1h --slots 0", 2, "--slots: 0, want 1 or more"},
		{"queue send orders --delay 10", 2, "--delay: 10 has no unit"},
		{"queue send orders -f /nowhere/at/all", 2, "-f: open /nowhere/at/all"},
		{"queue purge orders --dry-run=false", 2, "--max is missing"},
		{"queue purge orders --dry-run=false --max 5", 2, "-f is missing"},
		{"key show :worker orders/0", 1, "no record"},
		{"key show A-9", 1, "no record of A-9 in orders"},
		{"key show orders:charge A-9", 1, "no record"},
		{"key show a\x00b", 2, "dedupe: bad key: Key holds a NUL byte"},
		{"key show " + strings.Repeat("k", 2048), 2, "dedupe: bad key: Key has 2048 bytes, the limit is 1024"},
		{"key show \xff\xfe", 2, "dedupe: bad key: Key is not valid UTF-8"},
		{"key ls --status faild", 2, "did you mean failed?"},
		{"key ls --before soon", 2, "--before: "},
		{"key ls --max 0", 2, "--max: 0, want 1 or more"},
		{"key ls --status done", 5, "no index answers this: it reads about "},
		{"key resolve A-1 --to gone --fence 1", 2, `--to: "gone", want done, failed or released`},
		{"key resolve A-1 --to done", 2, "--fence is missing"},
		{"key resolve orders:charge A-1 --to done --fence 1 --reason x", 5, "look again"},
		{"key forget :control rules --fence 1 --reason x --yes", 1, "no such key"},
		{"audit --since soon", 2, "--since: "},
		{"audit --since 1h --until 2h", 2, "--until is before --since"},
		{"top --every 10ms", 2, "--every: 10ms is below 1s"},
		{"help frob", 2, `no command or topic "frob"`},
	} {
		t.Run(strings.ToValidUTF8(e.args[:min(40, len(e.args))], "?"), func(t *testing.T) {
			r := *r
			r.T = t
			r.run(strings.Split(e.args, " ")...).want(e.code, e.want)
		})
	}
	r.run(append(strings.Split("--yes queue pause orders --for 24h --type charge", " "), reason...)...).want(5,
		"orders moves a message to orders-dead after 40 receives; a pause of 24h costs about 100. Pause the queue, or raise maxReceiveCount")
	if rules, err := controlstore.Read(t.Context(), r.store); err != nil || rules.Version != 0 {
		t.Errorf("nothing of all this made a rule: %+v %v", rules, err)
	}
}

// TestOwnScopes: nobody takes a worker's seat, or the rules, away by hand.
func TestOwnScopes(t *testing.T) {
	r := newRig(t)
	c := r.claim(dedupe.Key{Scope: controlstore.ScopeWorker, Key: "orders/900"}, time.Minute, dedupe.Rerun)
	fence := strconv.FormatUint(c.Lease.Fence, 10)
	r.run("key", "forget", controlstore.ScopeWorker, "orders/900", "--fence", fence, "--force", "--yes", "--reason", "x").want(2, "such scopes are onceq's own")
	r.run("key", "resolve", controlstore.ScopeWorker, "orders/900", "--fence", fence, "--to", "done", "--yes", "--reason", "x").want(2, "such scopes are onceq's own")
}

func TestNoConfiguration(t *testing.T) {
	r := newRig(t)
	r.env = map[string]string{}
	r.run("queue", "ls").want(2, "no queue: name one by its URL")
	r.run("key", "ls").want(2, "no store: name it in ONCEQ_STORE")
	r.run("queue", "show", "orders").want(2, `queue "orders": no profile names it; give its URL, such as sqs://orders`)
	url := "sqs+" + r.server.URL + "/orders"
	r.run("queue", "show", url).want(0, "orders", "workers      –")
	r.env["ONCEQ_QUEUE"], r.env["ONCEQ_STORE"] = url, r.storeURL
	r.run("queue", "ls").want(0, "orders", "no worker has a seat here")
	r.run("workers", "orders").want(0, "no worker has a seat at orders")
	r.env["ONCEQ_STORE"] = "sqlite:///nowhere/keys.db"
	r.run("key", "ls").want(2, "/nowhere/keys.db: no such file")
	r.env["ONCEQ_STORE"] = "sqlite://" + filepath.ToSlash(filepath.Join(t.TempDir(), "empty.db"))
	if err := os.WriteFile(strings.TrimPrefix(r.env["ONCEQ_STORE"], "sqlite://"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.run("key", "ls").want(2, "call Migrate of its store")
}

// TestDenied: the answer names the action and the resource, and the statement to add.
func TestDenied(t *testing.T) {
	r := newRig(t)
	r.server.SetFaults(sqsfake.Fault{
		Action: "GetQueueAttributes", Queue: "orders", Status: 403, Code: "AccessDenied",
		Message: "User: arn:aws:iam::1:user/ana is not authorized to perform: sqs:getqueueattributes on resource: arn:aws:sqs:us-east-1:000000000000:orders",
	})
	r.run("queue", "ls").want(3, "NOT REACHED: depth", `{"Effect": "Allow", "Action": ["sqs:GetQueueAttributes"], "Resource": "arn:aws:sqs:us-east-1:000000000000:orders"}`)
}

// TestUnreachable: a store that does not answer is told, without its password.
func TestUnreachable(t *testing.T) {
	r := newRig(t)
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))
	addr := l.Addr().String()
	_ = l.Close()
	r.env["ONCEQ_STORE"] = "postgres://app:secret@" + addr + "/x?sslmode=disable"
	r.run("key", "ls").want(3, "postgres://app:***@").not("secret", "Migrate")
	r.env["ONCEQ_STORE"] = "postgres://app:secret@" + addr + "," + addr + "/x?sslmode=disable"
	r.run("key", "ls").want(3, "postgres://app:***@", "\n  "+addr, "failed to connect").not("secret", "Migrate", `\x09`, `\x0a`)
	r.run("queue", "ls").want(3, "failed to connect").not("secret", "Migrate", `\x09`, `\x0a`)
}

// TestAwayParts: what does not answer is told beside the rest, because in an outage the rest is
// what one needs. What is named wrongly is refused.
func TestAwayParts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.send("A-1", "A-2")
	stored := r.env["ONCEQ_CONFIG"]
	text := must.Get(os.ReadFile(stored))
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))
	addr := l.Addr().String()
	_ = l.Close()
	r.env["ONCEQ_STORE"] = "postgres://app:secret@" + addr + "/x?sslmode=disable"
	for _, args := range [][]string{{"queue", "ls"}, {"queue", "show", "orders"}, {"top"}} {
		r.run(args...).want(3, "orders", "NOT REACHED", "postgres://app:***@").not("secret")
	}
	var qs []queueView
	r.run("queue", "ls", "-o", "json").want(3).json(&qs)
	if len(qs) != 1 || qs[0].Visible == nil || *qs[0].Visible != 2 || qs[0].Workers != nil || len(qs[0].Errors) == 0 {
		t.Errorf("%+v", qs)
	}
	delete(r.env, "ONCEQ_STORE")
	r.config(strings.Replace(string(text), "      orders:\n", "      mails: sqs+"+r.server.URL+"/mails\n      orders:\n", 1))
	r.seat("w-1/1", nil)
	r.run("queue", "ls").want(3, "mails ", "NOT REACHED: depth", "queue not found", "1 (80/100)")
	r.run("queue", "show", "mails").want(3, "queue not found")
	r.run("queue", "peek", "mails").want(3, "queue not found")
	r.env["ONCEQ_STORE"] = "postgrs://app@x/y"
	r.run("queue", "ls").want(2, "want postgres://…")
}

// TestResumeNamesTheOthers: a limit is no pause; resume says how it is ended.
func TestResumeNamesTheOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var f followedView
	r.run("--yes", "queue", "limit", "orders", "--slots", "5", "--for", "1h", "--reason", "x", "-o", "json").want(0).json(&f)
	id := f.Rules[0].ID
	r.run("--yes", "queue", "resume", "orders", "--reason", "x").want(1, "orders is not paused; in force, and ended by their ids, are "+id+" (limit)").not("ops:")
	r.run("--yes", "queue", "resume", "orders", id, "--reason", "x").want(0, "1 rule ended")
}

// TestSilent: a service that takes calls and never answers is given up after --timeout.
func TestSilent(t *testing.T) {
	r := newRig(t)
	r.server.SetFaults(sqsfake.Fault{Action: "GetQueueUrl", Silence: true})
	r.run("queue", "show", "orders", "--timeout", "300ms").want(3, "--timeout 300ms")
}

// TestInterrupted: 130, and what was done is printed.
func TestInterrupted(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.runIn(ctx, "queue", "ls").want(130, "interrupted")
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// TestTyped: what is typed decides, and nothing is done on a slip.
func TestTyped(t *testing.T) {
	r := newRig(t)
	args := []string{"queue", "pause", "orders", "--for", "1h"}
	r.run(append(args, "--reason", "x")...).want(5, "there is no terminal to ask")
	r.terminal = true
	r.typed = "SMTP migration\norder\n"
	r.run(args...).want(5, "Why? (others read it): ", "Type orders to pause it: ", `"order" is not orders; nothing was done`)
	r.typed = "\n"
	r.run(args...).want(2, "--reason is missing")
	r.typed = "SMTP migration\norders\n"
	r.run(args...).want(0, "orders paused until", "no worker has a seat here", "audit ")
	r.run("queue", "ls").want(0, `PAUSED`, `by ana: "SMTP migration", until `)
	r.run("-q", "audit").want(0, "/0")
}

// TestProtected: under a protected profile --yes alone does not do.
func TestProtected(t *testing.T) {
	r := newRig(t)
	text := must.Get(os.ReadFile(r.env["ONCEQ_CONFIG"]))
	r.config(strings.Replace(string(text), "  test:\n", "  test:\n    protect: true\n", 1))
	args := []string{"--yes", "queue", "pause", "orders", "--for", "1h", "--reason", "x"}
	r.run(args...).want(5, "profile test is protected")
	r.env["ONCEQ_CONFIRM"] = "test"
	r.run(args...).want(0, "orders paused")
	delete(r.env, "ONCEQ_CONFIRM")
	r.run("queue", "send", "orders").want(5, "profile test is protected")
	r.terminal, r.typed = true, "prod\n"
	r.run(args...).want(5, "Type test to go on in the protected profile test: ")
	r.typed = "orders\ntest\n"
	r.run("queue", "resume", "orders", "--reason", "over").want(0, "orders resumed")
}

// TestEscapes: a key, an error and a body that would write to the clipboard do not.
func TestEscapes(t *testing.T) {
	const osc = "\x1b]52;c;aGk=\x07"
	r := newRig(t)
	c := r.claim(charge("A"+osc), time.Minute, dedupe.Rerun)
	r.settle(c, dedupe.Failed, "time"+osc, "bank"+osc)
	r.send("B\u009b2J")
	for _, args := range [][]string{
		{"key", "ls"},
		{"key", "ls", "-o", "md"},
		{"key", "ls", "-o", "json"},
		{"key", "ls", "-o", "ndjson"},
		{"key", "ls", "-q"},
		{"key", "show", "A" + osc},
		{"key", "show", "A" + osc, "-o", "json"},
		{"key", "show", "nobody" + osc},
		{"queue", "peek", "orders"},
		{"queue", "peek", "orders", "-o", "json"},
	} {
		a := r.run(args...)
		if strings.ContainsAny(a.out+a.err, "\x1b\x07") || strings.Contains(a.out+a.err, "\u009b") {
			t.Errorf("onceq %q: %q", args, a.out+a.err)
		}
	}
	r.run("key", "ls").want(0, `A\x1b]52;c;aGk=\x07`)
}

// TestHead: who reads only the beginning ends the command quietly.
func TestHead(t *testing.T) {
	r := newRig(t)
	var errs bytes.Buffer
	on := r.io(&bytes.Buffer{}, &errs)
	on.Out = brokenPipe{}
	if code := Main(t.Context(), []string{"queue", "ls"}, on); code != 0 || errs.Len() > 0 {
		t.Errorf("%d %s", code, errs.String())
	}
}
