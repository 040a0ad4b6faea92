package model

import (
	"fmt"
	"slices"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
)

// This file owns what windows.go, instants.go and fans.go have in common: rules about time, which
// the job's own worlds leave out, and the search through them. Time goes by in ticks up to a
// horizon, so a world is finite. A search runs in one goroutine, and nothing is locked.

// TimedRule is one rule of what processes agree on by time: blocks of starts, instants, and how far
// a parent is with its children.
type TimedRule uint8

// The rules, each with the one that a careless implementation would follow instead.
const (
	KeptBeyondUse TimedRule = iota
	UseEnds
	UseFromAsking
	SettledIsHad
	AnsweredIsHad
	DeadTakerEnds
	AwayStartsNothing

	KeyOfInstant
	CreatedIsInstant
	CatchUpInRetention
	RecordedAfterSend
	LooksBack
	BornBound
	ChangedIsNew

	KeyOfChild
	CreatedIsBegin
	BeginSavedFirst
	SavedAfterSend
	SavedUnderClaim
	FrontierStops
	FrontierKept
	GoneFails

	timedRuleCount
)

var timedRuleNames = [timedRuleCount]string{
	KeptBeyondUse:      "a block is kept for the window and its use (else: for the window)",
	UseEnds:            "a block's starts end with its use (else: with the block)",
	UseFromAsking:      "the use is counted from before the store was asked (else: from its answer)",
	SettledIsHad:       "a block is had when it is settled (else: when it is claimed)",
	AnsweredIsHad:      "a block whose settlement was not answered is not had (else: it is)",
	DeadTakerEnds:      "a block whose taker died is free when the claim has ended (else: never)",
	AwayStartsNothing:  "without an answer of the store nothing starts (else: without a limit)",
	KeyOfInstant:       "a job's key is the entry and the instant (else: the schedule, too)",
	CreatedIsInstant:   "a job is created at its instant (else: when it is sent)",
	CatchUpInRetention: "the catch-up is no longer than the workers keep a key (else: longer)",
	RecordedAfterSend:  "an instant is recorded as sent when its message is stored (else: before)",
	LooksBack:          "a scheduler that starts looks back for the catch-up (else: from now on)",
	BornBound:          "nothing is due that came before the entry was known (else: the catch-up reaches it)",
	ChangedIsNew:       "a changed schedule is a new one (else: it goes on as the old one)",
	KeyOfChild:         "a child's key is of its parent and its number (else: of the attempt, too)",
	CreatedIsBegin:     "a child is created when its fan began (else: when it is sent)",
	BeginSavedFirst:    "the begin of a fan is saved before a child is sent (else: with the first part)",
	SavedAfterSend:     "a part is saved as sent when it is sent (else: before)",
	SavedUnderClaim:    "what a parent saves is stored under its claim (else: whoever saves it)",
	FrontierStops:      "the frontier stops at a child that is not done (else: that has no record)",
	FrontierKept:       "the frontier is saved (else: each attempt looks from the first child on)",
	GoneFails:          "a child without a record after its retention fails its parent (else: it waits)",
}

// String is the rule in a sentence.
func (r TimedRule) String() string { return timedRuleNames[r] }

// move is one step of a timed world. breaks is the promise that it breaks, or that does not hold
// behind it; "" = none.
type move[S comparable] struct {
	text, breaks string
	to           S
}

// mostTimed bounds a world.
const mostTimed = 2_000_000

// search makes every step from every state that can be reached, and stops at the first broken
// promise, with the shortest way there.
func search[S comparable](begin S, moves func(S) []move[S]) (states int, broken string, trace []string) {
	type from struct {
		at   int
		text string
	}
	all, ways, seen := []S{begin}, []from{{at: -1}}, map[S]bool{begin: true}
	for at := 0; at < len(all); at++ {
		if at > mostTimed {
			return at, "the world is no larger than expected", nil
		}
		for _, m := range moves(all[at]) {
			if m.breaks != "" {
				trace = append(trace, fmt.Sprint(m.text, "  ", m.to))
				for i := at; i > 0; i = ways[i].at {
					trace = append(trace, fmt.Sprint(ways[i].text, "  ", all[i]))
				}
				slices.Reverse(trace)
				return len(all), m.breaks, trace
			}
			if !seen[m.to] {
				seen[m.to] = true
				all, ways = append(all, m.to), append(ways, from{at, m.text})
			}
		}
	}
	return len(all), "", nil
}

// tick is a time in a timed world.
type tick uint8

func (t tick) real() time.Time { return now.Add(time.Duration(t) * time.Hour) }

// leaseTicks is for how long a claim holds.
const leaseTicks tick = 2

// once is a record of control.RunOnce, which the functions of package machine change, as in a
// store.
type once struct {
	status dedupe.Status
	token  token
	until  tick // of the lease, or of the record
}

func (o *once) real() dedupe.Record {
	if o.status == 0 {
		return dedupe.Record{}
	}
	r := dedupe.Record{Key: key, Status: o.status, Token: o.token.real(), Attempt: 1, Fence: 1, Created: now, ClaimedAt: now}
	if o.status == dedupe.Claimed {
		r.LeaseUntil = o.until.real()
	} else {
		r.Expires = o.until.real()
	}
	return r
}

// claim reports whether the claim is won.
func (o *once) claim(t token, at tick) bool {
	r := o.real()
	q := dedupe.ClaimRequest{Key: key, Token: t.real(), TTL: time.Duration(leaseTicks) * time.Hour}
	c, _ := machine.ApplyClaim(&r, &q, at.real(), func() uint64 { return 1 })
	if c.Outcome == dedupe.Won {
		*o = once{dedupe.Claimed, t, at + leaseTicks}
	}
	return c.Outcome == dedupe.Won
}

// settle reports whether the end is recorded.
func (o *once) settle(t token, to dedupe.Status, at, keep tick) bool {
	r := o.real()
	q := dedupe.Settlement{Key: key, Token: t.real(), To: to, Retain: time.Duration(keep) * time.Hour}
	a, changed := machine.ApplySettle(&r, &q, at.real())
	if changed {
		o.status, o.until = to, at+keep
	}
	return a.Err == nil
}

// disown takes the record from a process that will not use its token again.
func (o *once) disown(t token) {
	if o.token == t {
		o.token = packets
	}
}

// forget clears what cannot matter any more.
func (o *once) forget(at tick) {
	if o.status != 0 && o.status != dedupe.Claimed && o.until <= at {
		*o = once{}
	}
}
