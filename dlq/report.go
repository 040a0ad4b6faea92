package dlq

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// This file owns what a replay or a purge tells of its letters. pass.go fills a report, in the
// goroutine of the call; afterwards it is a value of the caller's. No lock is held.

// Result is what became of a letter in a replay or a purge.
type Result uint8

// The results.
const (
	Replayed Result = iota + 1 // it was sent; under DryRun: it would be
	Purged                     // it was exported; under DryRun: it would be
	Copied                     // a copy of one that was sent: removed without being sent
	Skipped                    // it stays, for the reason that is given
	Failed                     // it could not be sent or exported, or may have been sent, or not; it stays
	Unchosen                   // the filter, or the plan, does not choose it; it stays
	Newer                      // its job failed after the call had begun; it stays
	Removed                    // removed without being sent, because the plan says so
)

// String is the result in a word.
func (f Result) String() string {
	switch f {
	case Replayed:
		return "replayed"
	case Purged:
		return "purged"
	case Copied:
		return "copy"
	case Skipped:
		return "skipped"
	case Failed:
		return "failed"
	case Unchosen:
		return "unchosen"
	case Newer:
		return "newer"
	case Removed:
		return "removed"
	}
	return fmt.Sprintf("Result(%d)", uint8(f))
}

// takes reports whether a letter with this result may be acked.
func (f Result) takes() bool { return f == Replayed || f == Purged || f == Copied || f == Removed }

// Step is what a replay or a purge did with one letter.
type Step struct {
	Entry  Entry
	Result Result
	Reason string // why it was skipped or failed
}

// Left is a letter that stays in the queue, and why.
type Left struct {
	Ref    Ref
	Reason string
}

// Report counts what became of the letters. A call that ends early leaves the others as they were,
// so it may be run again.
type Report struct {
	// DryRun says that nothing was sent, exported or removed: the numbers are what would be.
	DryRun bool
	// Seen is how many letters were looked at, copies among them.
	Seen int
	// Replayed is how many were sent, and Purged how many were exported; under DryRun, how many
	// would be.
	Replayed, Purged int
	// Copies is how many copies were removed because their twin was sent.
	Copies int
	// Removed is how many were removed without being sent, because the plan says so ([Remove]).
	// Missing is how many letters of the plan, and copies of them, were not met: somebody has
	// taken them since, or holds them. It is 0 where the call ended before it had seen the whole
	// queue.
	Removed, Missing int
	// Unchosen is how many the filter, or the plan, did not choose. Newer is how many are of jobs
	// that failed after the call had begun.
	Unchosen, Newer int
	// Unacked is how many of those that were sent or exported are not known to have left the
	// dead-letter queue. The next run sends or exports again what is still there, and the claim
	// answers it.
	Unacked int
	// Unsigned is how many of those that were sent went without their fence, because no key of
	// Options.LetterKeys had signed them.
	Unsigned int
	// Skipped are the letters that were not to be sent. Failed are those that could not be sent or
	// exported, and those that may have been sent, or not.
	Skipped, Failed []Left
	// Elsewhere is about how many letters others hold, such as another replay, or one that died.
	// The letters of one that died come back when their visibility ends. 0 where the broker does
	// not tell.
	Elsewhere int
}

// String is the report for people: a line of numbers, and one for each reason.
func (r Report) String() string {
	var b strings.Builder
	part := func(n int, what string) {
		if n > 0 {
			fmt.Fprintf(&b, ", %d %s", n, what)
		}
	}
	would := ""
	if r.DryRun {
		would = "would be "
	}
	fmt.Fprintf(&b, "%d seen", r.Seen)
	part(r.Replayed, would+"replayed")
	part(r.Purged, would+"purged")
	part(r.Unsigned, "of these not signed, which reopen nothing")
	copies := "copies "
	if r.Copies == 1 {
		copies = "copy "
	}
	part(r.Copies, copies+would+"dropped")
	part(r.Removed, would+"removed without being sent")
	part(len(r.Skipped), would+"skipped")
	part(len(r.Failed), "failed")
	part(r.Unchosen, "not chosen")
	part(r.Newer, "newer")
	part(r.Missing, "of the plan gone")
	part(r.Unacked, "perhaps still there")
	part(r.Elsewhere, "in other hands")
	list := func(what string, ls []Left) {
		n := make(map[string]int)
		for _, l := range ls {
			n[l.Reason]++
		}
		for _, reason := range slices.SortedFunc(maps.Keys(n), func(a, b string) int {
			return cmp.Or(n[b]-n[a], strings.Compare(a, b))
		}) {
			fmt.Fprintf(&b, "\n%d %s: %s", n[reason], what, Printable(reason))
		}
	}
	list(would+"skipped", r.Skipped)
	list("failed", r.Failed)
	return b.String()
}

// add counts a step.
func (r *Report) add(s *Step) {
	switch s.Result {
	case Replayed:
		r.Replayed++
	case Purged:
		r.Purged++
	case Copied:
		r.Copies++
	case Skipped:
		r.Skipped = append(r.Skipped, Left{s.Entry.Ref(), s.Reason})
	case Failed:
		r.Failed = append(r.Failed, Left{s.Entry.Ref(), s.Reason})
	case Unchosen:
		r.Unchosen++
	case Newer:
		r.Newer++
	case Removed:
		r.Removed++
	}
}
