package cli

import (
	"testing"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
)

func TestSmoke(t *testing.T) {
	r := newRig(t)
	r.send("A-1", "A-2")
	r.seat("w-1/1", nil)
	dead := r.seat("w-5/1", nil)
	_ = dead
	c := r.claim(charge("A-1"), time.Minute, dedupe.Rerun)
	r.settle(c, dedupe.Released, "timeout", errBank.Error())
	c = r.claim(charge("A-1"), time.Minute, dedupe.Rerun)
	r.settle(c, dedupe.Failed, "timeout", "the bank \x1b]52;c;aGk=\x07 is down")
	_ = control.Pause
	for _, args := range [][]string{
		{"queue", "ls"},
		{"queue", "show", "orders"},
		{"queue", "peek", "orders"},
		{"workers", "orders"},
		{"jobs", "running", "orders"},
		{"jobs", "stalled", "orders"},
		{"key", "show", "A-1"},
		{"key", "ls"},
		{"key", "ls", "--status", "all"},
		{"--yes", "queue", "pause", "orders", "--for", "1h", "--reason", "bank down", "--timeout", "3s"},
		{"queue", "ls"},
		{"queue", "show", "orders"},
		{"audit"},
		{"-o", "json", "queue", "ls"},
		{"-o", "md", "key", "ls"},
		{"-o", "ndjson", "key", "show", "A-1"},
		{"queue", "pause", "orders", "--for", "10", "--reason", "x"},
		{"queue", "pause", "orders", "--for", "24h", "--type", "charge", "--reason", "x"},
		{"queue", "send", "orders", "--delay", "10"},
	} {
		a := r.run(args...)
		t.Logf("$ onceq %s   -> %d\n%s--\n%s", a.args, a.code, a.out, a.err)
	}
}
