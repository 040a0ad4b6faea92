package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
)

// file writes an input of reconcile.
func (r *rig) input(name, text string) string {
	r.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
	return path
}

// planted is a queue after a bad night: of its ten orders four never ran, two lost their letters.
func (r *rig) planted() (expect, effects string) {
	r.Helper()
	due := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	var e, l strings.Builder
	e.WriteString("key,due,ref,body,type\n")
	l.WriteString("key,id,at,fence,type\n")
	line := func(key, due string) {
		fmt.Fprintf(&e, "%s,%s,order %s,\"{\"\"order\"\":\"\"%s\"\"}\",charge\n", key, due, key, key)
	}
	effect := func(key, id string, fence uint64) {
		fmt.Fprintf(&l, "%s,%s,%s,%d,charge\n", key, id, time.Now().UTC().Format(time.RFC3339Nano), fence)
	}
	done := func(key string) uint64 {
		c := r.claim(charge(key), time.Minute, dedupe.Rerun)
		r.settle(c, dedupe.Done, "", "")
		return c.Lease.Fence
	}
	for _, k := range []string{"M-1", "M-2", "M-3", "M-4"} {
		line(k, due)
	}
	for _, k := range []string{"L-1", "L-2"} {
		r.settle(r.claim(charge(k), time.Minute, dedupe.Rerun), dedupe.Failed, "timeout", "no answer")
		line(k, due)
	}
	r.died("F-1", "timeout", "no answer")
	line("F-1", due)
	line("OK-1", soon)
	effect("OK-1", "e1", done("OK-1"))
	line("LATE-1", due)
	effect("LATE-1", "e2", done("LATE-1"))
	line("D-1", soon)
	f := done("D-1")
	effect("D-1", "e3", f)
	effect("D-1", "e4", f)
	return r.input("expect.csv", e.String()), r.input("effects.csv", l.String())
}

// TestReconcile: what is missing is found, sent after a question, and the evidence tells.
func TestReconcile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	expect, effects := r.planted()
	args := []string{"reconcile", "orders", "--expect", expect, "--effects", effects, "--letters", "--grace", "0"}
	var v evidenceView
	a := r.run(append(args, "-o", "json")...).want(1).json(&v)
	want := map[string]int{"missing": 4, "lost failure": 2, "failed": 1, "late": 1, "duplicate": 1}
	if len(v.Counts) != len(want) || v.Expected != 10 || v.OK != 1 || v.ToSend != 6 || len(v.Findings) != 9 || !strings.HasPrefix(v.Expect, "sha256:") || v.Reads == 0 {
		t.Errorf("%+v", v)
	}
	for kind, n := range want {
		if v.Counts[kind] != n {
			t.Errorf("%s: %d, want %d", kind, v.Counts[kind], n)
		}
	}
	if n := strings.Count(r.run(append(args, "-o", "ndjson")...).want(1, `"finding":"lost failure","scope":"orders:charge","key":"L-1","ref":"order L-1"`).out, "\n"); n != 9 {
		t.Errorf("%d lines", n)
	}
	r.run(append(args, "-q")...).want(1, "D-1\nF-1\nL-1\nL-2\nLATE-1\nM-1\n")
	before := r.input("before.json", a.out)
	r.run(args...).want(1, "10 expected, 1 done once and in time, 1 duplicate, 4 missing, 2 lost failure", "order M-1", "the queue holds no message",
		"one claim did it twice: attempt 1 of w-3/1, fence ", "--resend --max 6 --reason TEXT")
	send := append(args, "--resend", "--reason", "INC-311")
	r.run(send...).want(5, "4 missing and 2 lost failures to send to orders", "not confirmed")
	r.run(append(send, "--yes", "--max", "5")...).want(5, "6 jobs would be sent, and at most 5 may be")
	r.depths(1, 0)
	r.terminal, r.typed = true, "6\n"
	r.run(send...).want(1, "Type 6 to send 6 jobs", "6 jobs sent, 0 left because they have begun since, 0 failed   audit ")
	r.terminal = false
	r.depths(1, 6)
	ms, err := r.queue.Receive(t.Context(), broker.ReceiveOptions{Max: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		lost := strings.HasPrefix(m.Meta.Key, "L-")
		if lost != (m.Meta.Dead != nil) || m.Meta.Type != "charge" || string(m.Body) != `{"order":"`+m.Meta.Key+`"}` || lost && m.Meta.Dead.Fence != r.get(charge(m.Meta.Key)).Fence {
			t.Errorf("%+v %s", m.Meta, m.Body)
		}
		// A worker takes it.
		q := dedupe.ClaimRequest{Key: charge(m.Meta.Key), Token: token(), TTL: time.Minute, Owner: "w-1/1"}
		if lost {
			q.Reopen = m.Meta.Dead.Fence
		}
		cs, err := r.store.Claim(t.Context(), []dedupe.ClaimRequest{q})
		if err != nil || cs[0].Outcome != dedupe.Won {
			t.Fatal(err, cs)
		}
		r.settle(dedupe.Claim{Lease: cs[0].Lease}, dedupe.Done, "", "")
	}
	r.run(append(args[:4:4], "--letters", "--grace", "2h", "--baseline", before, "-o", "md")...).want(1, "**Signature**\n\n| WHAT", "| effects | – |\n\n**Baseline", "| store | sqlite://", "**Baseline: ", "| missing | 4 | 0 |",
		"**Change applied**", "| ana | resend | – | failed 0, left 0, sent 6 | INC-311 |", "**Validation: orders: 10 expected, 9 done once and in time, 1 failed**")
	r.run("audit").want(0, "resend", "sent 6")
	// What workers call orders is another queue now, so the act was not this one's.
	r.config(strings.Replace(r.file, "        scopes:", "        known: orders-2\n        scopes:", 1))
	r.run(append(args[:4:4], "--letters", "--grace", "2h", "--baseline", before)...).want(1, "no act is in the audit")
}

// TestReconcileCost: the price is in read units and dollars, with what a missing key adds.
func TestReconcileCost(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]ops.ReconcileCost{
		"reads 100,000 keys and the audit: 200,000 read units, 0.0250 $; a key without a record costs 2 units more": {Keys: 100_000, Scopes: 2, Units: 200_000, Dollars: 0.025},
		"reads 100,000 keys and the audit: 100,000 billed reads; a key without a record costs 1 unit more":          {Keys: 100_000, Scopes: 1, Units: 100_000, Dollars: -1},
	} {
		if got := costLine(c); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestReconcileInput: a bad line is answered with its number and the column's name, and nothing is
// read of the store.
func TestReconcileInput(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, c := range []struct{ in, want string }{
		{"", "--expect: it is empty; a list that has no line has a header (key)"},
		{"\n \n", "--expect: it is empty"},
		{"due,ref\n", "--expect line 1: key: the header has no such column; it has due, ref"},
		{"key,dueat\n", `--expect line 1: there is no column "dueat"; there are key, due, ref, body, type, scope, group`},
		{"key,key\n", "--expect line 1: key: the column is there twice"},
		{"key,due\nA-1,yesterday\n", `--expect line 2: due: "yesterday" is no time; want 2026-11-22T03:00:00Z`},
		{"key,body\n\"A\n-1\",x\n,x\n", "--expect line 4: key: it is empty"},
		{"key,due\nA-1\n", "--expect: record on line 2: wrong number of fields"},
		{"{\"key\":\"A-1\"}\n{\"key\":7}\n", "--expect line 2: key: 7 is not a string"},
		{"{\"key\":\"A-1\"}\n\n{\"key\"\n", "--expect line 3: unexpected end of JSON input"},
		{"{\"key\":\"A-1\",\"dew\":\"x\"}\n", `--expect line 1: there is no column "dew"`},
		{"key,type\nA-1,refund\n", `--expect line 2: type: no scope of the queue is of the type "refund"; it has orders:charge`},
		{"key,type\nA-1,refund\n", "--expect line 2: type: the queue has several scopes (orders:charge, orders:mail): give --scope, or a column type or scope"},
	} {
		r.typed = c.in
		if strings.Contains(c.want, "several") {
			r.config(strings.Replace(r.file, `"orders:charge"`, `"orders:charge", "orders:mail"`, 1))
		}
		r.run("reconcile", "orders", "--expect", "-").want(2, c.want)
	}
	r.run("reconcile", "orders").want(2, "--expect is missing")
	r.run("reconcile", "orders", "--expect", "-", "--effects", "-").want(2, "cannot both be the input")
	r.run("reconcile", "orders", "--expect", "-", "--max", "-1").want(2, "--max: -1 is negative")
	r.run("reconcile", "orders", "--expect", "-", "--rate", "5/s").want(2, "--rate wants --resend")
	r.run("reconcile", "orders", "--expect", "-", "--baseline", r.input("b", "{}")).want(2, "not what reconcile prints")
	bad := r.input("e.csv", "key,fence,type\nA-1,x,charge\n")
	r.typed = "key,type\nA-1,charge\n"
	r.run("reconcile", "orders", "--expect", "-", "--effects", bad).want(2, `--effects line 2: fence: "x" is no number`)
	r.typed = "key,type\n"
	r.run("reconcile", "orders", "--expect", "-").want(0, "0 expected")
	r.run("reconcile", "orders", "--expect", "-", "--effects", r.input("none.csv", "")).want(2, "--effects: it is empty")
	r.typed = "\ufeffkey,due,type\r\nA-1,2026-11-22 03:00:00.25+00,charge\r\n"
	r.run("reconcile", "orders", "--expect", "-").want(1, "missing", "A-1", "2026-11-22 ").not("yes")
}

// TestReconcileNDJSON: lines of JSON are read as those of CSV are. A body that is an object is sent
// with its bytes, and one that is a text with the text.
func TestReconcileNDJSON(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.settle(r.claim(charge("N-3"), time.Minute, dedupe.Rerun), dedupe.Done, "", "")
	fence := r.get(charge("N-3")).Fence
	line := func(key string, ago time.Duration, body string) string {
		due := time.Now().Add(-ago).UTC().Format(time.RFC3339)
		return fmt.Sprintf(`{"key": %q, "due": %q, "type": "charge", "ref": null, "body": %s}`+"\n", key, due, body)
	}
	r.typed = line("N-1", time.Hour, `{"cents": 7,  "to": ["b"]}`) + "\n" + line("N-2", time.Hour, `"{\u0022cents\u0022:8}"`) + line("N-3", 0, `7`) + line("N-4", time.Hour, `null`)
	effects := fmt.Sprintf(`{"key": "N-3", "id": "pay-1", "type": "charge", "fence": %d}`+"\n"+`{"key": "N-4", "id": "pay-2", "type": "charge"}`, fence)
	r.run("reconcile", "orders", "--expect", "-", "--effects", r.input("effects.ndjson", effects), "--resend", "--reason", "x", "--yes", "--max", "2").
		want(1, "4 expected, 1 done once and in time, 1 effect without a key, 2 missing", "2 jobs sent")
	ms, err := r.queue.Receive(t.Context(), broker.ReceiveOptions{Max: 10})
	if err != nil || len(ms) != 2 {
		t.Fatal(ms, err)
	}
	for _, m := range ms {
		if want := map[string]string{"N-1": `{"cents": 7,  "to": ["b"]}`, "N-2": `{"cents":8}`}[m.Meta.Key]; string(m.Body) != want {
			t.Errorf("%s: %s, want %s", m.Meta.Key, m.Body, want)
		}
	}
}

// TestReconcileKeepsBodies: a body that has the line ends of Windows is sent with them, from a file
// that has them as well, because a fingerprint is of each byte.
func TestReconcileKeepsBodies(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"\n", "\r\n"} {
		r := newRig(t)
		body := strings.Repeat("a\r\nb\n\r\n\"c\r", 1000) + "\r\n"
		due := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
		text := "key,due,type,body" + end + "A-1," + due + `,charge,"` + strings.ReplaceAll(body, `"`, `""`) + `"` + end + "A-2," + due + ",charge,x" + end
		r.run("reconcile", "orders", "--expect", r.input("e.csv", text), "--resend", "--reason", "x", "--yes", "--max", "5").want(1, "2 jobs sent")
		ms, err := r.queue.Receive(t.Context(), broker.ReceiveOptions{Max: 10})
		if err != nil || len(ms) != 2 {
			t.Fatal(ms, err)
		}
		for _, m := range ms {
			if want := map[string]string{"A-1": body, "A-2": "x"}[m.Meta.Key]; string(m.Body) != want {
				t.Errorf("%s: %.40q, want %.40q", m.Meta.Key, m.Body, want)
			}
		}
	}
}

// TestReconcileTypesScope: a line's type leads to the scope that the worker's card has for it.
func TestReconcileTypesScope(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.seat("w-1", func(c *control.WorkerStatus) {
		c.Types, c.Scopes = append(c.Types, "mail"), map[string]string{"mail": "mails"}
	})
	r.typed = "key,due,type\nA-1,2026-11-22T03:00:00Z,mail\nA-2,2026-11-22T03:00:00Z,charge\n"
	r.run("reconcile", "orders", "--expect", "-").want(1, "key show mails A-1")
	r.run("workers", "orders", "-o", "json").want(0, `"mail": "mails"`)
	r.run("reconcile", "orders", "--expect", r.input("e.csv", "key,type\nA-1,mail\n"), "--send-lost").want(2, "--send-lost wants --letters")
}
