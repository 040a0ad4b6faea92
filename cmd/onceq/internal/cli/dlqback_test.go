package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
)

// TestImportCommand: what a purge wrote is put back, twice without harm, and a torn line is named.
func TestImportCommand(t *testing.T) {
	t.Parallel()
	r := outage(t)
	file := filepath.Join(t.TempDir(), "letters.ndjson")
	r.run("--yes", "dlq", "purge", "orders", "--all", "--max", "9", "--dry-run=false", "-f", file, "--reason", "x").want(0, "4 purged")
	r.depths(0, 0)
	r.run("dlq", "import", "orders").want(2, "-f is missing")
	r.run("dlq", "import", "orders", "-f", file).want(0, "4 letters sent back", "audit ", "next: onceq dlq group orders")
	r.depths(4, 0)
	r.run("-o", "json", "dlq", "import", "orders", "-f", file).want(0, `"sent": 4`, `"completed": true`)
	r.run("dlq", "ls", "orders").want(0, "4 copies more of these are in the queue, and queue ls counts them too")
	r.run("dlq", "group", "orders").want(0, "4 copies more of these are in the queue")
	if err := os.WriteFile(file, []byte(`{"message":"m`), 0o600); err != nil {
		t.Fatal(err)
	}
	r.run("dlq", "import", "orders", "-f", file).want(4, "0 letters sent back", "line 1: it is torn", "1 line could not be read")
}

// TestSendFrom: the messages that queue purge wrote are sent again as they were.
func TestSendFrom(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sent := &broker.Meta{
		ID: "j-1", Key: "A-1", Type: "charge", MaxAttempts: 7, Timeout: 3 * time.Second, Expires: time.Now().Add(time.Hour).UTC().Truncate(time.Second),
		Dead: &broker.Letter{Fence: 77, Class: "timeout", Scope: "orders:charge", Key: "A-1"},
	}
	if _, err := r.queue.Send(t.Context(), []broker.Outgoing{{Body: []byte("\xff"), Meta: sent, Attributes: map[string]string{"tenant": "t"}}}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "messages.ndjson")
	r.run("--yes", "queue", "purge", "orders", "--max", "9", "--dry-run=false", "-f", file, "--reason", "x").want(0, "removed 1 message")
	r.depths(0, 0)
	r.run("queue", "send", "orders", "--from", file, "--key", "x").want(2, "--from has whole messages")
	r.run("queue", "send", "orders", "--from", file).want(0, "1 message sent back")
	ms, err := r.queue.Receive(t.Context(), broker.ReceiveOptions{Max: 1})
	if err != nil || len(ms) != 1 || string(ms[0].Body) != "\xff" || ms[0].Attributes["tenant"] != "t" || broker.EncodeMeta(ms[0].Meta) != broker.EncodeMeta(sent) {
		t.Errorf("%+v %v", ms, err)
	}
}

// TestPurgeKeepsInOwnFile: letters go into a file of the user's own that nobody else reads, and
// through no link.
func TestPurgeKeepsInOwnFile(t *testing.T) {
	t.Parallel()
	r := outage(t)
	dir := t.TempDir()
	purge := func(file string) *answer {
		return r.run("--yes", "dlq", "purge", "orders", "--all", "--max", "1", "--dry-run=false", "-f", file, "--reason", "x")
	}
	at := func(name string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, nil, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	own := at("own", 0o600)
	link, twin := filepath.Join(dir, "link"), filepath.Join(dir, "twin")
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	purge(link).want(2, "is a link")
	purge(at("open", 0o644)).want(2, "may be read or written by others")
	purge(dir).want(2, "-f: ")
	if err := os.Link(at("named", 0o600), twin); err != nil {
		t.Fatal(err)
	}
	purge(twin).want(2, "has a second name")
	r.depths(4, 0)
	purge(own).want(0, "1 purged")
	purge(own).want(0, "1 purged") // it is appended to
	if b, _ := os.ReadFile(own); strings.Count(string(b), "\n") != 2 {
		t.Errorf("%s", b)
	}
}

// TestEditRunsOnce: the plan and the act share the answers of the command.
func TestEditRunsOnce(t *testing.T) {
	t.Parallel()
	r := outage(t)
	log := filepath.Join(t.TempDir(), "log")
	edit := fmt.Sprintf("echo x >> %s; sed s/-500/500/", log)
	r.run("--yes", "dlq", "replay", "orders", "--group", bank, "--max", "9", "--edit", edit, "--reason", "x").want(0, "3 sent", `+ {"cents":500,`)
	b, err := os.ReadFile(log)
	if n := strings.Count(string(b), "x"); n != 3 || err != nil {
		t.Errorf("the command ran %d times for 3 letters, %v", n, err)
	}
}

// TestCanaryCommand: canaries pass by being done. What is not done in time ends the replay with 4,
// what fails again with 1, and what nobody would run is refused before anything is sent.
func TestCanaryCommand(t *testing.T) {
	t.Parallel()
	r := outage(t)
	args := []string{"--yes", "dlq", "replay", "orders", "--group", bank, "--max", "9", "--canary", "1", "--canary-wait", "1s", "--reason", "x"}
	r.run(args...).want(4, "batch 1: 1 sent, watched 1", "0 done, 1 not begun, none came back", "(timeout after 1", "--canary-wait")
	r.depths(3, 1)
	r.run(append(args, "--canary-any")...).want(0, "2 sent")
	r.depths(1, 3)
	for _, c := range [][]string{
		{"--canary", "9", "--max", "9"}, {"--canary", "1", "--key", "A-1"}, {"--canary-any"},
	} {
		r.run(append([]string{"dlq", "replay", "orders", "--dry-run"}, c...)...).want(2, "--canary")
	}
	r.died("A-7", "timeout", "no answer from 10.0.0.1:443")
	r.died("A-8", "timeout", "no answer from 10.0.0.1:443")
	r.run("--yes", "queue", "pause", "orders", "--type", "charge", "--for", "10m", "--reason", "bank down").want(0)
	r.run(append(args, "--dry-run")...).want(0, "type charge PAUSED until")
	r.run(args...).want(5, "is paused until", "so the canaries would not run", "--canary-any")
	r.depths(3, 3)
}

// TestDryRunProposes: canaries are proposed where they leave something to go on with.
func TestDryRunProposes(t *testing.T) {
	t.Parallel()
	r := outage(t)
	r.run("dlq", "replay", "orders", "--key", "A-1", "--dry-run").want(0, "next: onceq dlq replay orders --key A-1 --reason TEXT")
	for i := range 4 {
		r.died(fmt.Sprint("A-1", i), "timeout", "no answer from 10.0.0.1:443")
	}
	r.run("dlq", "replay", "orders", "--group", bank, "--dry-run").want(0, "--canary 5 --ramp --reason TEXT")
}

// TestLettersOfAnyKey: characters that show nothing are seen, and a long key leaves the columns as
// they are.
func TestLettersOfAnyKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.died("A\u200b-1", "timeout", "no\u202ean")
	r.died(strings.Repeat("k", 300), "timeout", "x")
	r.run("dlq", "ls", "orders").want(0, `A\u200b-1`, strings.Repeat("k", shownKey-1)+"…").not(strings.Repeat("k", shownKey))
	r.run("dlq", "export", "orders", "-f", "-").want(0, `no\u202ean`).not("\u202e")
}

// TestPlanRemembers: a replay that died and is run again sends what its plan's --max leaves, also
// where the plan has not listed all of that.
func TestPlanRemembers(t *testing.T) {
	t.Parallel()
	r := outage(t)
	file := filepath.Join(t.TempDir(), "plan.json")
	r.run("dlq", "replay", "orders", "--match", "A-|B-", "--max", "3", "--hold", "2", "--dry-run", "--plan", file).want(0, "are replayed too, up to 3 in all").not("--max is reached")
	if err := os.WriteFile(file+".sent", []byte("."), 0o600); err != nil { // by the one that died
		t.Fatal(err)
	}
	again := []string{"--yes", "dlq", "replay", "orders", "--plan", file, "--hold", "2", "--reason", "x"}
	r.run(again...).want(0, "2 sent")
	r.run(again...).want(5, "has sent what its --max allows, 3 letters")
}

// TestHold: --hold bounds what a look holds, and what lies beyond is said, with the flag.
func TestHold(t *testing.T) {
	t.Parallel()
	r := outage(t)
	r.run("dlq", "group", "orders", "--hold", "2").want(4, "2 letters are held, which is --hold: raise it", "NOT all looked at")
	r.run("dlq", "group", "orders", "--hold", "-2").want(2, "--hold: -2 is negative")
	file := filepath.Join(t.TempDir(), "plan.json")
	r.run("dlq", "replay", "orders", "--match", "A-|B-", "--hold", "2", "--dry-run", "--plan", file).want(0, "2 letters → orders", "more were not looked at: those that the filters choose")
	r.run("--yes", "dlq", "replay", "orders", "--plan", file, "--hold", "2", "--reason", "x").want(0, "4 sent")
	r.depths(0, 4)
}

// TestLookIsTold: a person sees how far a look has come, and nothing of it is left behind; a pipe
// gets none of it. One who interrupts a look gets what was seen.
func TestLookIsTold(t *testing.T) {
	t.Parallel()
	r := outage(t)
	r.run("dlq", "group", "orders").want(0, "4 letters").not("looked at\x1b", "of about")
	r.terminal = true
	a := r.run("dlq", "group", "orders").want(0, " of about 4 looked at\r\x1b[K")
	if strings.LastIndex(a.err, "looked at") > strings.LastIndex(a.err, "\r\x1b[K") {
		t.Errorf("%q", a.err)
	}
	if _, err := r.dead.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Visibility: time.Minute}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var text, errs bytes.Buffer
	on := r.io(&text, &errs)
	on.LetterWait = time.Minute // others hold a letter, so the look waits for it
	on.Err = &cancels{on.Err, cancel}
	code := Main(ctx, []string{"dlq", "group", "orders"}, on)
	(&answer{rig: r, args: "dlq group", code: code, out: text.String(), err: errs.String()}).want(130, " letter", "NOT all looked at")
}

// cancels ends a command as soon as it tells how far a look has come.
type cancels struct {
	io.Writer
	cancel func()
}

func (c *cancels) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "looked at") {
		c.cancel()
	}
	return c.Writer.Write(b)
}
