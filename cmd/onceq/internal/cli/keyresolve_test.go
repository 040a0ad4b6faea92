package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// parkedWith is a job that was parked, with its letter, as a worker leaves it.
func (r *rig) parkedWith(key string) *dedupe.Record {
	r.Helper()
	k := r.parked(r.claim(charge(key), time.Minute, dedupe.Park))
	r.letter(key, "interrupted", "its owner died", k.Fence)
	return k
}

// TestResolveRuns: what an operator releases runs. Its message was acked when it was parked, so its
// letter is sent; a job without a letter stays parked, unless something else is said to bring it.
func TestResolveRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, b := r.parkedWith("A-1"), r.parked(r.claim(charge("A-2"), time.Minute, dedupe.Park))
	r.letter("A-1", "interrupted", "an earlier one", a.Fence-1) // which is not the one that is decided on
	resolve := func(k *dedupe.Record, to string, more ...string) *answer {
		r.Helper()
		return r.run(append([]string{"--yes", "key", "resolve", k.Key.Key, "--fence", fence(k), "--to", to, "--reason", "the bank has none"}, more...)...)
	}
	resolve(b, "released").want(5, "no letter of it in the dead-letter queue of orders", "nothing would run it", "--no-letter")
	if s := r.get(b.Key).Status; s != dedupe.Parked {
		t.Errorf("refused, and it is %v", s)
	}
	resolve(a, "released").want(0, "1 letter → orders", "A-1 is released now", "its letter was sent, and runs it")
	r.depths(1, 1)
	if s := r.get(a.Key).Status; s != dedupe.Released {
		t.Errorf("it is %v", s)
	}
	resolve(b, "released", "--no-letter").want(0, "A-2 is released now", "its next message runs it")
	r.run("audit").want(0, "resolve", "replay", "sent 1")
	r.depths(1, 1)
}

// TestResolveGoesOn: where the word was recorded and the letter was not sent, the same command
// sends it.
func TestResolveGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k := r.parkedWith("A-1")
	if err := dedupe.Resolve(t.Context(), r.store, k.Key, k.Fence, dedupe.Released, nil); err != nil {
		t.Fatal(err)
	}
	r.run("--yes", "key", "resolve", "A-1", "--fence", fence(k), "--to", "released", "--reason", "x").want(0, "its letter was sent")
	r.depths(0, 1)
}

// TestResolveLetters: a job that is done has no letter any longer, and one that failed keeps its.
func TestResolveLetters(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	done, failed := r.parkedWith("A-1"), r.parkedWith("A-2")
	var v doneView
	r.run("--yes", "-o", "json", "key", "resolve", "A-1", "--fence", fence(done), "--to", "done", "--reason", "x").want(0).json(&v)
	if v.Letter != "removed" || v.Status != "done" {
		t.Errorf("%+v", v)
	}
	r.depths(1, 0)
	r.run("--yes", "key", "resolve", "A-2", "--fence", fence(failed), "--to", "failed", "--reason", "x").want(0, "its letter, if it has one, stays")
	r.depths(1, 0)
	bare := r.parked(r.claim(charge("A-3"), time.Minute, dedupe.Park))
	r.run("--yes", "key", "resolve", "A-3", "--fence", fence(bare), "--to", "done", "--reason", "x").want(0, "A-3 is done now", "no letter of it was found")

	r.config("profiles:\n  p:\n    store: " + r.storeURL + "\n")
	bare = r.parked(r.claim(charge("A-4"), time.Minute, dedupe.Park))
	r.run("--yes", "key", "resolve", "orders:charge", "A-4", "--fence", fence(bare), "--to", "released", "--reason", "x").want(2, "which queue has the letter?", "--no-letter")
	r.run("--yes", "key", "resolve", "orders:charge", "A-4", "--fence", fence(bare), "--to", "done", "--reason", "x").want(0, "A-4 is done now")
}

// TestResolveMany: a file decides on many, each under its fence. What is not as it says is left
// alone, and said.
func TestResolveMany(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, b, c, d := r.parkedWith("A-1"), r.parkedWith("A-2"), r.parkedWith("A-3"), r.parked(r.claim(charge("A-4"), time.Minute, dedupe.Park))
	file := filepath.Join(t.TempDir(), "keys")
	text := fmt.Sprintf("# after a look at the bank\norders:charge A-1 %d\n\n{\"scope\":\"orders:charge\",\"key\":\"A-2\",\"fence\":%d,\"status\":\"parked\"}\n"+
		"orders:charge A-3 %d\norders:charge A-4 %d\norders:charge A-5 7\norders:charge A-1 %d\n", a.Fence, b.Fence, c.Fence+1, d.Fence, a.Fence)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"key", "resolve", "--from", file, "--to", "released", "--reason", "x"}
	r.run(args...).want(5, "not confirmed")
	r.depths(3, 0)
	r.run(append([]string{"--yes"}, args...)...).want(4, "2 parked jobs to be released", "2 letters → orders", "look again", "nothing would run it", "no such key", "3 jobs of 5 not touched")
	r.depths(1, 2)
	for k, want := range map[*dedupe.Record]dedupe.Status{a: dedupe.Released, b: dedupe.Released, c: dedupe.Parked, d: dedupe.Parked} {
		if got := r.get(k.Key).Status; got != want {
			t.Errorf("%v is %v, want %v", k.Key, got, want)
		}
	}
	listed := r.run("key", "ls", "--status", "parked", "-o", "ndjson").want(0).out
	if err := os.WriteFile(file, []byte(listed), 0o600); err != nil {
		t.Fatal(err)
	}
	r.run("--yes", "key", "resolve", "--from", file, "--to", "done", "--reason", "x").want(0, "removed", "none")
	r.depths(0, 2)
	r.run("--yes", "key", "resolve", "A-1", "--from", file, "--to", "done").want(2, "leave KEY and --fence out")
	for text, want := range map[string]string{
		"orders:charge A-1\n":      ":1: want SCOPE KEY FENCE",
		"\norders:charge A-1 -3\n": ":2: want SCOPE KEY FENCE",
		"{\n":                      ":1: ",
		"# none\n":                 ": it names no job",
		"":                         ": it names no job",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r.run("--yes", "key", "resolve", "--from", file, "--to", "done", "--reason", "x").want(2, "--from "+file+want)
	}
}

// TestSuggestions: a command that is suggested names what is meant, and a key that looks like a
// flag is none when it is pasted.
func TestSuggestions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flags, key, want string }{
		{"", "A-1", "onceq key show orders A-1"},
		{"--fence 7", "A-1", "onceq key show orders A-1 --fence 7"},
		{"", "--yes", "onceq key show -- orders --yes"},
		{"--fence 7", "-p=other", "onceq key show --fence 7 -- orders -p=other"},
		{"", "a b'c", `onceq key show orders 'a b'\''c'`},
		{"", "$(id)", "onceq key show orders '$(id)'"},
		{"", "H\x1b[2J'\\é", `onceq key show orders $'H\x1b[2J\'\\\xc3\xa9'`},
		{"", "", "onceq key show orders ''"},
	} {
		if got := suggest("key show", c.flags, "orders", c.key); got != c.want {
			t.Errorf("%q: %s, want %s", c.key, got, c.want)
		}
	}
	if got := flagged("key", "--yes") + " " + flagged("key", "a b"); got != "--key=--yes --key 'a b'" {
		t.Error(got)
	}
	r := newRig(t)
	r.died("--yes", "timeout", "no answer")
	next := func(a *answer) (words []string) {
		_, line, _ := strings.Cut(a.err, "next: onceq ")
		return strings.Fields(strings.TrimSpace(line))
	}
	if words := next(r.run("key", "ls").want(0)); strings.Join(words, " ") != "key show -- orders:charge --yes" {
		t.Error(words)
	} else {
		r.run(words...).want(0, "orders:charge --yes   FAILED", "--key=--yes")
	}
	r.run(next(r.run("dlq", "ls", "orders").want(0))...).want(0, "no answer")
}
