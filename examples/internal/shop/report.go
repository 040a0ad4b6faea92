package shop

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// This file owns the report at a run's end. The demo fills a Result and prints it, in one
// goroutine, so nothing is locked. ledger.go has the figures of the audit, and screen.go shows what
// happens before.

// Result is what came of a run.
type Result struct {
	Settings *Settings
	Took     time.Duration
	Orders   int

	Sent, Receives, Beats, Attempts, AlreadyDone, InProgress int // seen from outside the workers

	Crashes       func(Table) // tells of them
	Before, After *Audit
	Classes       map[string]string // of the dead letters, by order
	Letters       int
	Mending       *Mending          // nil without the library
	Left          map[string]string // as Classes, after the mending
}

// NewCharges are those of this run.
func (r *Result) NewCharges() int { return r.After.Charges - r.Before.Charges }

// Print writes the report.
func (r *Result) Print(w io.Writer) {
	r.happened(w)
	if r.Settings.Naive {
		r.naive(w)
	} else {
		r.repaired(w)
		r.proof(w)
	}
}

// Table aligns its lines: a name, a number, a remark.
type Table struct{ w io.Writer }

// Line writes one.
func (t Table) Line(name string, n int, remark string, args ...any) {
	hang(t.w, fmt.Sprintf("  %-26s %7s   ", name, Group(n)), fmt.Sprintf(remark, args...))
}

// List writes what was counted, the most frequent first.
func (t Table) List(counted map[string]int) {
	names := slices.SortedFunc(maps.Keys(counted), func(a, b string) int {
		return cmp.Or(counted[b]-counted[a], strings.Compare(a, b))
	})
	for _, name := range names {
		t.Line("  "+name, counted[name], "")
	}
}

func (r *Result) happened(w io.Writer) {
	fmt.Fprintf(w, "\nWhat happened in %.1f s\n\n", r.Took.Seconds())
	t := Table{w}
	t.Line("messages sent", r.Sent, "%s of them duplicates", Group(r.Sent-r.Orders))
	t.Line("receives", r.Receives, "%s more than messages", Group(r.Receives-r.Sent))
	r.Crashes(t)
	t.Line("attempts", r.Attempts, "runs of the handler")
	if !r.Settings.Naive {
		t.Line("heartbeats", r.Beats, "times a message was kept hidden for longer")
		t.Line("found done already", r.AlreadyDone, "deliveries acked without a run")
		t.Line("found in progress", r.InProgress, "deliveries put off while another ran")
	}
	t.Line("dead letters", r.Letters, "of %s orders", Group(len(r.Classes)))
	t.Line("charged before this run", r.Before.Charges, "")
	t.Line("new charges", r.NewCharges(), "")
	fmt.Fprintln(w)
}

// repaired tells what was done about the dead letters.
func (r *Result) repaired(w io.Writer) {
	m := r.Mending
	if len(m.Groups) == 0 {
		return
	}
	fmt.Fprintf(w, "What had died, and how it was mended\n\n")
	t := Table{w}
	for _, g := range m.Groups {
		sample, _, _ := strings.Cut(g.Sample, "\n")
		t.Line(g.Class, g.Count, "%s", clip(sample, 72))
	}
	t.Line("replayed", m.First, "mistyped ones corrected on their way; the handler that panicked is mended")
	if m.InDoubt > 0 {
		t.Line("  sent, and not sure of it", m.InDoubt, "for the replay was killed before the queue's answer")
	}
	if m.Killed {
		t.Line("replayed by a second one", m.Again, "%d of them for the second time", m.First+m.InDoubt+m.Again-m.Sent)
	}
	t.Line("copies dropped", m.Copies, "further letters of a failure that was sent")
	t.Line("left in the queue", len(r.Left), "%s", m.Why)
	fmt.Fprintln(w)
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Tallied counts what is equal.
func Tallied[S ~string](all []S) map[string]int {
	n := make(map[string]int)
	for _, s := range all {
		n[string(s)]++
	}
	return n
}

func (r *Result) proof(w io.Writer) {
	a := r.After
	fmt.Fprintf(w, "The proof, asked of the ledger in SQL\n\n")
	t := Table{w}
	check := func(name string, n int) {
		verdict := "ok"
		if n != 0 {
			verdict = "FAILED"
		}
		t.Line(name, n, "%s", verdict)
	}
	t.Line("good orders", a.Good, "")
	check("not charged", a.Missing)
	check("charged more than once", a.Doubled)
	check("charged another amount", a.Amounts)
	check("among the dead letters", a.GoodDead)
	t.Line("mended orders", a.Mended, "checked with the good ones")
	t.Line("beyond mending", a.Poison, "")
	check("charged", a.PoisonPaid)
	check("not in the dead letters", a.PoisonLost)
	fmt.Fprintln(w)
	switch {
	case !a.Holds():
		paragraph(w, fmt.Sprintf("The promise was broken. This is a bug: please report it with -seed %d.", r.Settings.Seed))
	case r.Before.Charges > 0 && r.NewCharges() == 0:
		paragraph(w, fmt.Sprintf("All %s orders had been charged before; nobody was charged again.", Group(a.Good+a.Mended)))
	default:
		paragraph(w, "Each good order was charged exactly once, although messages came twice and workers died. So was each "+
			"mended one, although letters were replayed twice: the charge and the record of the order's key are one "+
			"transaction, and the key is asked before every run.")
		paragraph(w, "Next: run it again (no new charge), or with -no-onceq to see what a plain loop does.")
	}
	fmt.Fprintln(w)
}

func (r *Result) naive(w io.Writer) {
	a := r.After
	fmt.Fprintf(w, "What the ledger says\n\n")
	t := Table{w}
	check := func(name string, n int, more string) {
		verdict := "ok"
		if n != 0 {
			verdict = "WRONG" + more
		}
		t.Line(name, n, "%s", verdict)
	}
	t.Line("good orders", a.Good, "")
	check("not charged", a.Missing, "")
	check("charged more than once", a.Doubled, fmt.Sprintf(", up to %d times", a.Most))
	check("charges too many", a.Surplus, "")
	check("among the dead letters", a.GoodDead, "")
	t.Line("poison orders", a.Poison, "")
	check("charged", a.PoisonPaid, "")
	fmt.Fprintln(w)
	paragraph(w, fmt.Sprintf("A plain loop charges again whenever a message comes again: sent twice, still being worked on when its "+
		"visibility timeout ends, or left behind by a crash. Poison comes back until the queue gives up after "+
		"%d receives, and says nothing of why; slow orders are taken for poison, though they were charged.", NaiveReceives))
	fmt.Fprintln(w)
}
