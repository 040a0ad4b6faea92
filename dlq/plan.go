package dlq

import (
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/internal/digest"
)

// This file owns plans: which letters a replay or a purge is to take, frozen while somebody reads
// the numbers and says yes. PlanReplay (replay.go) and PlanPurge (purge.go) make one in the
// goroutine of their caller; Replay and Purge look into it (pass.go, planned.go). planfile.go is
// its form as a file. A plan belongs to whoever holds it, and there is no lock.

// PlanTTL is how long a plan can be used. What it says of the letters is older than that then.
const PlanTTL = 15 * time.Minute

// ErrPlan is wrapped by the errors that refuse a plan: it is of another queue or for another act,
// older than [PlanTTL], or was edited. Nothing was done then.
var ErrPlan = errors.New("dlq: the plan is refused")

// Plan is a frozen set of letters, with what a replay or a purge of them would do. A call that gets
// it takes these letters and no others, whatever has come into the queue since. As JSON it has a
// checksum, so that a file that was edited is refused.
//
// A queue may have more letters than one call can hold (Options.MaxHeld). A plan that did not see
// all of them has a Rest: a rule that was frozen beside the list.
//
// The holder of a plan may set its Note, the Decision and the Why of its letters, and the Match of
// its Rest. A plan whose letters were changed otherwise is refused.
type Plan struct {
	// ID is the plan's name for people: four hex digits, such as "8d2c".
	ID string
	// Act is what the plan is for; the other act refuses it.
	Act Act
	// Queue is the name of the dead-letter queue: Options.Name.
	Queue string
	// Made is when the set was frozen. PlanTTL counts from then.
	Made time.Time
	// Note is the holder's own, such as the command that edits the bodies. It travels in the file.
	Note string
	// Letters are those that the act would take, in the order in which they were met.
	Letters []Planned
	// Seen is how many letters were looked at, copies among them. Unchosen is how many the filter
	// did not choose, and Elsewhere about how many others hold. They are as in [Report].
	Seen, Unchosen, Elsewhere int
	// Unsigned is how many of the letters would go without their fence; see [Report].
	Unsigned int
	// Skipped counts, by reason, the letters that are not to be sent and so are not in the plan.
	Skipped map[string]int
	// Rest speaks of the letters that were not looked at; nil = all were.
	Rest *Rest
}

// Rest is the rule of a plan for letters that it does not list, because the call that made it ended
// before it had seen the whole queue.
//
// It is used only where it must be: when a call with the plan has met as many other letters as it
// can hold, or when the broker tells that there are as many. The call then also takes a letter that
// the plan does not list, if all of these are true:
//
//   - the Filter chooses it;
//   - its job failed before the plan was made, and the broker took the letter before that;
//   - fewer letters than Filter.Max were taken so far, where that is set. Each call counts for
//     itself: one that died and is run again may take so many once more.
type Rest struct {
	// Filter is the one by which the plan was made. Its Match does not travel in a file: whoever
	// reads the plan sets it again, or only the listed letters are taken.
	Filter Filter
	// Match is the holder's word for Filter.Match, such as the regular expression. It travels in
	// the file, and nothing here reads it.
	Match string
	// About is how many letters were not looked at, approximately. 0 = the broker does not tell.
	About int

	matched bool // Filter.Match was set
}

// isUsable reports whether the filter is complete.
func (r *Rest) isUsable() bool { return r != nil && (r.Filter.Match != nil || !r.matched) }

// digest is what the plan's name takes of the rule.
func (r *Rest) digest(b []byte) []byte {
	f := &r.Filter
	b = digest.Texts(b, "rest", f.Class, f.Group, f.Type, f.Key, f.Source)
	return digest.Numbers(b, millis(f.Since), millis(f.Until), int64(f.Max))
}

// Act is what a plan is for.
type Act string

// The acts.
const (
	ActReplay Act = "replay"
	ActPurge  Act = "purge"
)

// Planned is a letter of a plan.
type Planned struct {
	Ref
	// Copies are the ids of the messages that are copies of the letter.
	Copies []string
	// Decision is what is to become of the letter. The holder of the plan sets it, who may have
	// asked the store for Ref.Record. Default: what the plan is for.
	Decision Decision
	// Why is the reason for the decision, in a few words. It is the reason in the report.
	Why string
}

// Decision is a word on a letter of a plan.
type Decision uint8

// The decisions.
const (
	Take   Decision = iota // it is sent, or purged, as the plan says
	Remove                 // it is removed without being sent, because its job is done already
	Leave                  // it stays, because its job has failed anew, for example
)

// Count is how many letters of the plan have the decision.
func (p *Plan) Count(j Decision) (n int) {
	for i := range p.Letters {
		if p.Letters[i].Decision == j {
			n++
		}
	}
	return n
}

// most is how many letters an act takes at most: what its caller says, and no more than what the
// plan was made for.
func (p *Plan) most(of int) int {
	if p == nil || p.Rest == nil || p.Rest.Filter.Max == 0 {
		return of
	}
	if of == 0 {
		return p.Rest.Filter.Max
	}
	return min(of, p.Rest.Filter.Max)
}

var errNoName = bad("Options.Name", "is empty, and the broker does not say its name; a plan needs one, so that no other queue takes it")

// draft is a plan that is being made.
type draft struct {
	plan Plan
	at   map[identity]int // by failure: its place among the letters
}

// add puts a letter into the plan that its pass would take.
func (d *draft) add(l *item, f Result) {
	switch f {
	case Replayed:
		d.at[l.id] = len(d.plan.Letters)
		fallthrough
	case Purged:
		d.plan.Letters = append(d.plan.Letters, Planned{Ref: refOf(l.m)})
	case Copied:
		if i, ok := d.at[l.id]; ok {
			d.plan.Letters[i].Copies = append(d.plan.Letters[i].Copies, l.m.ID)
		}
	}
}

// name is made of the frozen set.
func (p *Plan) name() string {
	b := digest.Texts(nil, "onceq plan 1", string(p.Act), p.Queue)
	b = digest.Numbers(b, p.Made.UnixMilli(), int64(len(p.Letters)))
	for i := range p.Letters {
		l := &p.Letters[i]
		b = digest.Numbers(b, l.Fence, uint64(len(l.Copies)))
		b = digest.Texts(digest.Texts(b, l.MessageID), l.Copies...)
	}
	if p.Rest != nil {
		b = p.Rest.digest(b)
	}
	return digest.Hex(b)[:4]
}

// check refuses a plan that this queue may not act on.
func (p *Plan) check(q *Queue, act Act) error {
	if q.o.Name == "" {
		return errNoName
	}
	why := ""
	switch age := time.Since(p.Made); {
	case p.ID != p.name():
		why = "its letters are not those that it was made of"
	case p.Act != act:
		why = fmt.Sprintf("to %s, not to %s", p.Act, act)
	case p.Queue != q.o.Name:
		why = "not for " + Printable(q.o.Name)
	case age > PlanTTL:
		why = "made " + ago(age) + " ago"
	case age < -time.Minute:
		why = "made " + ago(-age) + " from now, by this machine's clock"
	default:
		return nil
	}
	return p.refuse(why)
}

func (p *Plan) refuse(why string) error {
	return fmt.Errorf("%w: plan %s is for %s, %s: make it again", ErrPlan, Printable(p.ID), Printable(p.Queue), why)
}

func ago(d time.Duration) string {
	switch {
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d d", d/(24*time.Hour))
}
