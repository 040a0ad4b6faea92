package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/must"
)

// TestRuleWords: what is paused, limited or resumed is said as it is: a type is not the queue, a
// limit above another one changes nothing, and a resume names what it ends.
func TestRuleWords(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	act := func(words ...string) *answer {
		r.Helper()
		return r.run(append([]string{"--yes", "--utc", "--reason", "x"}, words...)...)
	}
	act("queue", "pause", "orders", "--type", "charge", "--for", "5m").want(0, "type charge of orders paused until", " UTC, rule ").not("\norders paused")
	act("queue", "limit", "orders", "--slots", "3", "--for", "1h").want(0, "orders limited to 3 a worker until")
	act("queue", "limit", "orders", "--slots", "9", "--for", "1h").want(0, "a limit of 3 is lower and holds until", "by ana; end it: onceq queue resume orders ", "orders not changed").not("orders limited")
	act("--by", "ben", "queue", "pause", "orders", "--for", "5m").want(0, "orders paused until")
	a := act("queue", "resume", "orders").want(0, "pause type charge until", "pause the queue until", `by ana: "x"`, `by ben: "x"`, "2 rules ended", "messages that were given back meanwhile come again within 15m")
	if strings.Contains(a.err, "limit to 3") {
		t.Errorf("a resume ends no limit:\n%s", a.err)
	}
	r.run("--version").want(0, "onceq ")
}

// TestStalledMore: a dead worker's card names some of its jobs, and the others are counted.
func TestStalledMore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.claim(charge("S-1"), 50*time.Millisecond, dedupe.Rerun)
	r.lapsed(charge("S-1"))
	s := must.Get(controlstore.NewSeat(r.store, controlstore.SeatOptions{Queue: "orders", Owner: "w-3/1", TTL: time.Second}))
	r.beat(s, func(c *control.WorkerStatus) {
		c.Jobs, c.More = []control.RunningJob{{Key: "S-1", Type: "charge", At: time.Now()}}, 12
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(r.run("workers", "orders").want(0).out, "DEAD") {
		<-tick.C
	}
	r.run("jobs", "stalled", "orders").want(0, "S-1", "12 more jobs of dead workers that no card names", "--scan looks")
	r.run("jobs", "stalled", "orders", "--scan").want(0, "S-1").not("12 more")
}

// TestReplayedAndWaits: a failed job whose letter may have been sent since is not said to want
// another replay.
func TestReplayedAndWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.died("A-1", "timeout", "no answer")
	r.died("A-2", "timeout", "no answer")
	r.run("key", "show", "A-1").want(0, "next: onceq dlq replay orders --key A-1 --dry-run")
	r.run("--yes", "--reason", "x", "dlq", "replay", "orders", "--key", "A-1", "--max", "1").want(0, "1 sent")
	r.run("key", "show", "A-1").want(0, "FAILED", "not known: ana replayed letters of the queue since (plan ", "next: onceq key show orders:charge A-1 --letters --queue orders")
	r.run("key", "show", "A-1", "--letters").want(0, "Its letter is not there any more", "next: onceq queue show orders")
	r.run("key", "show", "A-2", "--letters").want(0, "next: onceq dlq replay orders --key A-2 --dry-run").not("replayed letters of the queue since")
}

// TestPerhapsTwice: a job that is done, and that another worker may have done before it went
// silent, says so.
func TestPerhapsTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.claim(charge("A-1"), 50*time.Millisecond, dedupe.Rerun)
	r.lapsed(charge("A-1"))
	r.settle(r.claim(charge("A-1"), time.Minute, dedupe.Rerun), dedupe.Done, "", "")
	r.run("key", "show", "A-1").want(0, "DONE", "not known: whether attempt 1 had its effect, too: w-3/1 went silent", "onceq reconcile --effects")
	r.settle(r.claim(charge("A-2"), time.Minute, dedupe.Rerun), dedupe.Done, "", "")
	r.run("key", "show", "A-2").want(0, "DONE").not("had its effect")
}

// TestGapsForReconcile: what no record can tell, and a reconciliation can, says so: whether a key
// ever ran, and who brings back a failed job whose letter is gone.
func TestGapsForReconcile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.run("key", "show", "orders:charge", "A-9").want(1, "no record", "onceq reconcile --expect")
	r.settle(r.claim(charge("A-1"), time.Minute, dedupe.Rerun), dedupe.Failed, "timeout", "no answer")
	r.run("key", "show", "A-1", "--letters").want(0, "FAILED", "onceq reconcile --expect --effects --letters --resend")
	r.died("A-2", "timeout", "no answer")
	r.run("key", "show", "A-2", "--letters").want(0, "FAILED").not("onceq reconcile")
}

// refusal is how PostgreSQL's driver answers.
type refusal struct{ text, state string }

func (e *refusal) Error() string    { return e.text }
func (e *refusal) SQLState() string { return e.state }

// TestGrant: an operator without a right is told the statement that gives it.
func TestGrant(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, state, want string }{
		{"ERROR: permission denied for table onceq_dedupe (SQLSTATE 42501)", "42501", "GRANT SELECT, INSERT, UPDATE, DELETE ON onceq_dedupe TO ROLE;"},
		{"permission denied for sequence onceq_fence", "42501", "GRANT USAGE ON SEQUENCE onceq_fence TO ROLE;"},
		{"permission denied for schema jobs", "42501", "GRANT USAGE ON SCHEMA jobs TO ROLE;"},
		{"permission denied for table x", "42000", ""},
		{"must be owner of table x", "42501", ""},
	} {
		code, text := classify(t.Context(), fmt.Errorf("store prod: %w", &refusal{c.text, c.state}))
		if code != exitReach || strings.Contains(text, "GRANT") != (c.want != "") || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d, %s", c.text, code, text)
		}
	}
}
