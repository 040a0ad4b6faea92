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
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
)

// watched is an output that says when a text has come.
type watched struct {
	locked
	text string
	came func()
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.locked.Write(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.text != "" && strings.Contains(w.w.String(), w.text) {
		w.text = ""
		w.came()
	}
	return n, err
}

// interruptedAt runs the command with a person who types the lines, and then ctrl-C at the prompt.
func (r *rig) interruptedAt(prompt, typed string, args ...string) *answer {
	r.Helper()
	var out, errs bytes.Buffer
	on := r.io(&out, &errs)
	on.Terminal = true
	silent, person := io.Pipe() // it never answers
	defer func() { _ = person.Close() }()
	on.In = io.MultiReader(strings.NewReader(typed), silent)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	on.Err = &watched{locked: locked{w: &errs}, text: prompt, came: cancel}
	code := Main(ctx, append([]string{"--by", "ana"}, args...), on)
	return &answer{rig: r, args: strings.Join(args, " "), code: code, out: out.String(), err: errs.String()}
}

// TestInterruptedPrompts: ctrl-C at a prompt ends the command with 130. It says what has been done,
// and nothing was.
func TestInterruptedPrompts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.died("A-0", "timeout", "no answer")
	parked := r.claim(charge("P-1"), time.Minute, dedupe.Park)
	r.settle(parked, dedupe.Parked, "interrupted", "w-1/1 died")
	fence := fmt.Sprint(parked.Lease.Fence)
	failed := fmt.Sprint(r.get(charge("A-0")).Fence)
	r.run("--yes", "queue", "limit", "orders", "--slots", "9", "--for", "1h", "--reason", "gently").want(0)
	before := len(r.audit())
	kept, removed := filepath.Join(t.TempDir(), "kept"), filepath.Join(t.TempDir(), "removed")
	r.send("A-9")
	const why = "Why? (others read it): "
	type prompt struct{ at, typed, said, args string }
	t.Run("prompts", func(t *testing.T) { // parallel ones end before the look that follows
		interrupted := func(t *testing.T, ps ...prompt) {
			t.Helper()
			t.Parallel()
			r := *r
			r.T = t
			for _, p := range ps {
				r.interruptedAt(p.at, p.typed, strings.Split(p.args, " ")...).want(130, "onceq: interrupted; nothing was done", p.said)
			}
		}
		t.Run("letters", func(t *testing.T) { // one after the other, because each holds the letter while it looks
			interrupted(
				t,
				prompt{why, "", "", "dlq replay orders"},
				prompt{"Type 1 to replay 1 letter: ", "", "has one receive more", "dlq replay orders --reason x"},
				prompt{"Type 1 to remove 1 letter: ", "", "has one receive more", "dlq purge orders --all --dry-run=false --reason x -f " + kept},
				prompt{"Type orders to redrive all of them: ", "", "", "dlq redrive orders --reason x"},
			)
		})
		for _, p := range []prompt{
			{why, "", "", "queue pause orders --for 1h"},
			{"Type orders to pause it: ", "the bank is down\n", "", "queue pause orders --for 1h"},
			{"Type orders to limit it: ", "", "", "queue limit orders --slots 5 --for 1h --reason x"},
			{why, "", "", "queue resume orders"},
			{"Type orders to go on: ", "", "", "queue resume orders --reason x"},
			{"Type 5 to remove up to 5 messages: ", "", "", "queue purge orders --dry-run=false --max 5 --reason x -f " + removed},
			{why, "", "", "key resolve orders:charge P-1 --to done --fence " + fence},
			{"Type P-1 to resolve it to done: ", "", "", "key resolve orders:charge P-1 --to done --reason x --fence " + fence},
			{"Type A-0 to forget it", "", "", "key forget orders:charge A-0 --reason x --fence " + failed},
		} {
			t.Run(p.args, func(t *testing.T) { interrupted(t, p) })
		}
	})
	for _, file := range []string{kept, removed} {
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("%s: %v", file, err)
		}
	}
	r.depths(1, 1)
	if n := len(r.audit()); n != before {
		t.Errorf("%d acts, %d before", n, before)
	}
	if s := r.get(charge("P-1")).Status; s != dedupe.Parked {
		t.Error(s)
	}
}

// audit are the acts of the last day.
func (r *rig) audit() (all []control.AuditEntry) {
	r.Helper()
	for e, err := range controlstore.Acts(r.Context(), r.store, time.Now().Add(-24*time.Hour), time.Now().Add(time.Hour)) {
		if err != nil {
			r.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// TestInterruptedProtected: the second prompt of a protected profile.
func TestInterruptedProtected(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config(strings.Replace(r.file, "  test:\n", "  test:\n    protect: true\n", 1))
	const prompt = "Type test to go on in the protected profile test: "
	r.interruptedAt(prompt, "orders\n", "queue", "pause", "orders", "--for", "1h", "--reason", "x").want(130, "interrupted; nothing was done")
	r.interruptedAt(prompt, "", "queue", "send", "orders", "-f", r.env["ONCEQ_CONFIG"]).want(130, "interrupted; nothing was done")
	r.depths(0, 0)
	if n := len(r.audit()); n != 0 {
		t.Errorf("%d acts", n)
	}
}

// reading is an input of which nothing comes; it says when somebody reads it.
type reading struct {
	came func()
	end  <-chan struct{}
}

func (r reading) Read([]byte) (int, error) {
	r.came()
	<-r.end
	return 0, io.EOF
}

// TestInterruptedBody: ctrl-C while the body of a job is typed sends nothing.
func TestInterruptedBody(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var errs bytes.Buffer
	on := r.io(&bytes.Buffer{}, &errs)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	on.In = reading{cancel, t.Context().Done()}
	if code := Main(ctx, []string{"queue", "send", "orders"}, on); code != 130 || !strings.Contains(errs.String(), "interrupted; nothing was done") {
		t.Errorf("%d %s", code, errs.String())
	}
	r.depths(0, 0)
}

// TestPromptRests: --timeout bounds what services take, and not the person who reads the plan.
func TestPromptRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, person := io.Pipe()
		a := &app{io: &IO{In: in, Err: io.Discard}}
		ctx, end := context.WithCancelCause(t.Context())
		a.bound.start(10*time.Second, func() { end(context.DeadlineExceeded) })
		<-time.After(4 * time.Second)
		for range 2 {
			go func() {
				<-time.After(time.Hour)
				_, _ = io.WriteString(person, "orders\n")
			}()
			if got, err := a.line(ctx); got != "orders" || err != nil {
				t.Errorf("%q %v", got, err)
			}
		}
		began := time.Now()
		<-ctx.Done()
		if left := time.Since(began); left != 6*time.Second || isInterrupted(ctx) {
			t.Errorf("%v after the prompts: %v", left, context.Cause(ctx))
		}
		if got, err := a.line(ctx); got != "" || err == nil {
			t.Errorf("%q %v", got, err)
		}
		_ = person.Close()
	})
}

// TestInterruptedFollow: ctrl-C while workers follow says that the rule is made.
func TestInterruptedFollow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.seat("w-1/1", nil) // it does not follow
	r.interruptedAt("0 of 1 workers follow", "", "--yes", "queue", "pause", "orders", "--for", "1h", "--reason", "x").
		want(130, "orders paused until", "w-1/1 shows rules 0 of 1", "interrupted; the rules are changed all the same", "audit ")
}
