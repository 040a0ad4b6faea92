package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// result is what came of a run.
type result struct {
	d             *demo
	before, after *audit
	classes       map[string]string // of the dead letters, by order
	letters       int
	mending       *mending          // nil without the library
	left          map[string]string // as classes, after the mending
	took          time.Duration
}

func (r *result) newCharges() int { return r.after.charges - r.before.charges }

func (r *result) print(w io.Writer) {
	r.happened(w)
	if r.d.o.naive {
		r.naive(w)
	} else {
		r.repaired(w)
		r.proof(w)
	}
}

// table aligns its lines: a name, a number, a remark.
type table struct{ w io.Writer }

func (t table) line(name string, n int, remark string, args ...any) {
	remark = fmt.Sprintf(remark, args...)
	fmt.Fprintln(t.w, strings.TrimRight(fmt.Sprintf("  %-26s %7s   %s", name, group(n), remark), " "))
}

func (t table) list(counted map[string]int) {
	names := slices.SortedFunc(maps.Keys(counted), func(a, b string) int {
		return cmp.Or(counted[b]-counted[a], strings.Compare(a, b))
	})
	for _, name := range names {
		t.line("  "+name, counted[name], "")
	}
}

func (r *result) happened(w io.Writer) {
	d, c := r.d, &r.d.counts
	sent, receives := int(c.sent.Load()), int(c.receives.Load())
	fmt.Fprintf(w, "What happened in %.1f s\n\n", r.took.Seconds())
	t := table{w}
	t.line("messages sent", sent, "%s of them duplicates", group(sent-len(d.rows)))
	t.line("receives", receives, "%s more than messages", group(receives-sent))
	crashes := d.plan.crashes()
	switch missed := d.o.crashes - len(crashes); missed {
	case 0:
		t.line("crashes", len(crashes), "")
	default:
		t.line("crashes", len(crashes), "%d more were planned at points that no worker came to", missed)
	}
	t.list(tallied(crashes))
	t.line("attempts", int(c.attempts.Load()), "runs of the handler")
	if !d.o.naive {
		t.line("heartbeats", int(c.beats.Load()), "times a message was kept hidden for longer")
		t.line("found done already", int(c.alreadyDone.Load()), "deliveries acked without a run")
		t.line("found in progress", int(c.inProgress.Load()), "deliveries put off while another ran")
	}
	t.line("dead letters", r.letters, "of %s orders", group(len(r.classes)))
	t.line("charged before this run", r.before.charges, "")
	t.line("new charges", r.newCharges(), "")
	fmt.Fprintln(w)
}

// repaired tells what was done about the dead letters.
func (r *result) repaired(w io.Writer) {
	m := r.mending
	if len(m.groups) == 0 {
		return
	}
	fmt.Fprintf(w, "What had died, and how it was mended\n\n")
	t := table{w}
	for _, g := range m.groups {
		sample, _, _ := strings.Cut(g.Sample, "\n")
		t.line(g.Class, g.Count, "%s", clip(sample, 72))
	}
	t.line("replayed", m.first.Replayed, "mistyped ones corrected on their way; the handler that panicked is mended")
	if m.killed {
		t.line("  sent, and not sure of it", len(m.first.Failed), "for the replay was killed before the queue's answer")
		t.line("replayed by a second one", m.again.Replayed, "%d of them for the second time", m.first.Replayed+len(m.first.Failed)+m.again.Replayed-m.sent)
	}
	t.line("copies dropped", m.first.Copies+m.again.Copies, "further letters of a failure that was sent")
	t.line("left in the queue", len(r.left), "%s", m.why)
	fmt.Fprintln(w)
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func tallied[S ~string](all []S) map[string]int {
	n := make(map[string]int)
	for _, s := range all {
		n[string(s)]++
	}
	return n
}

func (r *result) proof(w io.Writer) {
	a := r.after
	fmt.Fprintf(w, "The proof, asked of the ledger in SQL\n\n")
	t := table{w}
	check := func(name string, n int) {
		verdict := "ok"
		if n != 0 {
			verdict = "FAILED"
		}
		t.line(name, n, "%s", verdict)
	}
	t.line("good orders", a.good, "")
	check("not charged", a.missing)
	check("charged more than once", a.doubled)
	check("charged another amount", a.amounts)
	check("among the dead letters", a.goodDead)
	t.line("mended orders", a.mended, "checked with the good ones")
	t.line("beyond mending", a.poison, "")
	check("charged", a.poisonPaid)
	check("not in the dead letters", a.poisonLost)
	fmt.Fprintln(w)
	switch {
	case !a.holds():
		fmt.Fprintf(w, "The promise was broken. This is a bug: please report it with -seed %d.\n\n", r.d.o.seed)
	case r.before.charges > 0 && r.newCharges() == 0:
		fmt.Fprintf(w, "All %s orders had been charged before; nobody was charged again.\n\n", group(a.good+a.mended))
	default:
		fmt.Fprint(w, "Each good order was charged exactly once, although messages came twice and workers died, and each mended\n"+
			"one too, although letters were replayed twice: the charge and the record of the order's key are one\n"+
			"transaction, and the key is asked before every run.\n"+
			"Next: run it again (no new charge), or with -no-onceq to see what a plain loop does.\n\n")
	}
}

func (r *result) naive(w io.Writer) {
	a := r.after
	fmt.Fprintf(w, "What the ledger says\n\n")
	t := table{w}
	t.line("good orders", a.good, "")
	t.line("not charged", a.missing, "")
	t.line("charged more than once", a.doubled, "up to %d times", a.most)
	t.line("charges too many", a.surplus, "")
	t.line("among the dead letters", a.goodDead, "")
	t.line("poison orders", a.poison, "")
	t.line("charged", a.poisonPaid, "")
	fmt.Fprintf(w, "\nA plain loop charges again whenever a message comes again: sent twice, still being worked on when its\n"+
		"visibility timeout ends, or left behind by a crash. Poison comes back until the queue gives up after\n"+
		"%d receives, and says nothing of why; slow orders are taken for poison, though they were charged.\n\n", naiveReceives)
}
