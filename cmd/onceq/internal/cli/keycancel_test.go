package cli

import (
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
)

// TestKeyCancel: the command asks as key resolve does, says who runs the job, and cancels one that
// has no record yet. What is done is refused.
func TestKeyCancel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.claim(charge("A-1"), time.Minute, dedupe.Rerun)
	args := []string{"key", "cancel", "A-1", "--reason", "withdrawn"}
	r.run(args...).want(5, "not confirmed")
	r.terminal, r.typed = true, "A-1\n"
	r.run(args...).want(0, "A-1 is claimed, attempt 1", "runs it, and what it does outside", "Type A-1 to cancel it", "A-1 is cancelled now", "next: onceq key show orders:charge A-1")
	r.terminal = false
	if rec := r.get(charge("A-1")); !ops.IsCancelled(rec) {
		t.Errorf("%+v", rec)
	}
	r.run("key", "show", "A-1").want(0, "FAILED", "cancelled by ana: withdrawn", "next: onceq key forget")
	r.run(append([]string{"--yes"}, args...)...).want(0, "A-1 is cancelled now")

	r.run("--yes", "key", "cancel", "A-2", "--reason", "x").want(1, "no record of A-2")
	var v doneView
	r.run("--yes", "-o", "json", "key", "cancel", "orders:charge", "A-2", "--reason", "x", "--keep", "90d").want(0).json(&v)
	if rec := r.get(charge("A-2")); !ops.IsCancelled(rec) || v.Status != "cancelled" || rec.Expires.Sub(rec.Finished) != 90*24*time.Hour {
		t.Errorf("%+v, %+v", v, rec)
	}
	r.run("--yes", "key", "cancel", "orders:charge", "A-3", "--reason", "x", "--keep", "soon").want(2, `--keep: "soon", want a duration`)
	r.run("--yes", "key", "cancel", "orders:charge", "A-3", "--reason", "").want(2, "--reason")

	done := r.claim(charge("A-4"), time.Minute, dedupe.Rerun)
	r.settle(done, dedupe.Done, "", "")
	r.run("--yes", "key", "cancel", "A-4", "--reason", "x").want(5, "is done since")
	k := r.parkedWith("A-5")
	r.run("--yes", "key", "cancel", "A-5", "--reason", "x").want(5, "resolve it to done or failed")
	if s := r.get(k.Key).Status; s != dedupe.Parked {
		t.Errorf("it is %v", s)
	}
	r.run("--yes", "key", "cancel", ":control", "rules", "--reason", "x").want(2, "such scopes are onceq's own")
	r.run("audit").want(0, "cancel", "FAILED: ")
}

// TestKeyOfAStoreAlone: without a profile a KEY has no scope to be looked for in, and the command
// says so. --queue takes a URL, and a name that is not one is refused with what to do.
func TestKeyOfAStoreAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	delete(r.env, "ONCEQ_CONFIG")
	r.env["ONCEQ_STORE"] = r.storeURL
	r.claim(charge("A-1"), time.Minute, dedupe.Rerun)
	for _, words := range [][]string{{"show", "A-1"}, {"cancel", "A-1", "--reason", "x"}, {"forget", "A-1", "--fence", "1", "--reason", "x"}, {"resolve", "A-1", "--to", "done", "--fence", "1", "--reason", "x"}} {
		words = append([]string{"--yes", "key"}, words...)
		r.run(words...).want(2, "which scope?", "give SCOPE A-1, or --queue").not("not valid")
		r.run(append(words, "--queue", "nope")...).want(2, "no profile names it; give its URL").not("no such queue")
	}
	r.run("--yes", "key", "cancel", "orders:charge", "A-1", "--reason", "x").want(0, "A-1 is cancelled now")
}
