package model

import (
	"strings"
	"testing"

	"github.com/onceq/onceq/dedupe"
)

// without are the worlds in which leaving a rule out breaks a property: one world for each harm
// that it does.
var without = []struct {
	rule   Rule
	breaks Property
	c      Config
}{
	{SettleBeforeLetter, LetterIsTrue, Config{Tx: true, Policies: reruns}},
	{LetterBeforeAck, NothingLost, Config{Tx: true, Policies: reruns}},
	{SettleUntilKnown, NothingLost, Config{External: true, Policies: reruns}},
	{LetterUntilKnown, NothingLost, Config{Tx: true, Policies: reruns}},
	{RepeatNeverRead, LetterIsTrue, Config{Tx: true, Policies: reruns}},
	{SettleOutlivesHandler, OneCalmEffect, Config{External: true, Policies: reruns, Calm: true, Drains: true}},
	{LostLeaseLeaves, NothingLost, Config{Tx: true, Policies: reruns}},
	{AckOnlyDone, NothingLost, Config{Tx: true, Policies: reruns}},
	{LetterAgain, NothingLost, Config{Tx: true, Policies: reruns}},
	{LetterOfRecord, DoneReachable, Config{Tx: true, Policies: reruns, Once: true, MaxAttempts: 1, Items: 1}},
	{ClaimBeforeEffect, OneCalmEffect, Config{External: true, Policies: reruns, Calm: true}},
	{ClaimBeforeEffect, OneParkedEffect, Config{External: true, Policies: parks}},
	{ReleaseAfterReturn, OneCalmEffect, Config{External: true, Policies: reruns, Calm: true}},
	{ReleaseAfterReturn, OneParkedEffect, Config{External: true, Policies: parks}},
	{StartBeforeHandler, OneParkedEffect, Config{External: true, Policies: parks}},
	{InterruptedParks, OneParkedEffect, Config{External: true, Policies: parks}},
	{UncommittedParks, OneParkedEffect, Config{Tx: true, External: true, Policies: parks}},
	{DrainUncounted, NobodysFailure, Config{External: true, Policies: reruns, Calm: true, Drains: true, HandlersSucceed: true, MaxAttempts: 1}},
	{DoubtUncounted, NobodysFailure, Config{External: true, Policies: reruns, Calm: true, Drains: true, HandlersSucceed: true, MaxAttempts: 1}},

	{OwnClaimAgain, NotBlockedByOneself, Config{Tx: true, Policies: reruns}},
	{LatePacketStale, OneLiveClaim, Config{Tx: true, Policies: reruns, LatePackets: true}},
	{SettleByToken, StaleChangesNothing, Config{Tx: true, Policies: reruns}},
	{SettleByToken, FinishedStays, Config{External: true, Policies: reruns}},
	{SettleByToken, OneTxEffect, Config{Tx: true, Policies: reruns}},
	{SettleByToken, OneParkedEffect, Config{External: true, Policies: parks}},
	{CompleteByToken, StaleChangesNothing, Config{Tx: true, Policies: reruns}},
	{CompleteByToken, FinishedStays, Config{Tx: true, Policies: reruns}},
	{CompleteOnce, OneTxEffect, Config{Tx: true, Policies: reruns}},
	{JoinedNeverDone, DoneMeansEffect, Config{Tx: true, Policies: reruns}},
	{ReopenOwnFence, FinishedStays, Config{Tx: true, Policies: reruns}},
	{ReopenOwnFence, OneParkedEffect, Config{External: true, Policies: parks}},
	{ReopenStartsAnew, DoneReachable, Config{Tx: true, Policies: reruns, Once: true, MaxAttempts: 1, Items: 1}},
	{ParkByRecord, OneParkedEffect, Config{External: true, Policies: mixed}},
	{SeenAfterEffect, NothingLost, Config{Tx: true, Policies: reruns}},
	{MismatchFirst, NothingLost, Config{Tx: true, Policies: reruns, Payloads: true}},
	{ReopensOrDiffers, LetterIsTrue, Config{Tx: true, Policies: reruns, Payloads: true, Forgets: true, TellOld: true, MaxAttempts: 1, Items: 2}},
	{MismatchNeverReopens, LetterIsTrue, Config{Tx: true, Policies: reruns, Payloads: true}},
	{FenceOutlivesRecord, FenceRises, Config{Tx: true, Policies: reruns, Forgets: true}},
	{UnprovenFails, OneParkedEffect, Config{External: true, Policies: parks, Retention: true, MaxAttempts: 1}},
	{UnprovenReleases, NobodysFailure, Config{External: true, Policies: reruns, Calm: true, Retention: true, HandlersSucceed: true, MaxAttempts: 1, Items: 2}},
	{UnprovenSticks, OneParkedEffect, Config{External: true, Policies: parks, Retention: true}},
	{UnstartedUncounted, AttemptsCount, Config{External: true, Policies: parks, Drains: true}},
	{UnstartedUncounted, AttemptsCount, Config{External: true, Policies: reruns, HoldsBack: true, MaxAttempts: 1}},
	{DeadClaimsCount, AttemptsCount, Config{External: true, Policies: reruns}},
	{KeptStarts, DoneReachable, Config{Tx: true, Policies: reruns, HoldsBack: true, Redrive: true, Once: true, MaxAttempts: 1}},
	{KeptRests, PoisonRests, Config{External: true, Policies: reruns, HoldsBack: true, MaxAttempts: 1}},
	{SaveBeforeNext, OneStepRepeats, Config{Steps: true, Policies: reruns, Once: true, MaxAttempts: 1, Items: 1}},
	{SaveByToken, StaleChangesNothing, Config{Steps: true, Policies: reruns, Once: true, MaxAttempts: 1, Items: 1}},
	{LateSaveLeftOut, SavedStays, Config{Steps: true, Policies: reruns, LatePackets: true, Once: true, MaxAttempts: 1, Items: 1}},
	{SavedStepsGoOn, StoredStepOnce, Config{Steps: true, Policies: reruns, Once: true, MaxAttempts: 1, Items: 1}},
	{PostponedUncounted, NobodysFailure, Config{Steps: true, Policies: reruns, Calm: true, HandlersSucceed: true, MaxAttempts: 1}},
	{SavedTouches, StepsOfPayload, Config{Steps: true, Policies: reruns, Payloads: true, Drains: true, MaxAttempts: 1, Items: 2}},
	{UnbegunIsNone, UnbegunIsOpen, Config{External: true, Policies: parks, Calm: true, Limits: true, Drains: true, HandlersSucceed: true, MaxAttempts: 1}},
	{UnbegunIsNone, NobodysFailure, Config{External: true, Policies: reruns, Calm: true, Limits: true, HandlersSucceed: true, MaxAttempts: 1}},
	{PostponedUnbegun, UnbegunIsOpen, Config{External: true, Policies: parks, Calm: true, Limits: true, Drains: true, HandlersSucceed: true, MaxAttempts: 1}},
	{CarryBeforeAck, NothingLost, Config{Tx: true, Policies: reruns, Carries: true}},
	{CarryUntilKnown, NothingLost, Config{Tx: true, Policies: reruns, Carries: true}},
	{CancelByToken, OneParkedEffect, Config{External: true, Policies: parks, Cancels: true}},
	{CancelClaimsFirst, CancelledStays, Config{Tx: true, Policies: reruns, Cancels: true}},
	{CancelledAcks, CancelledBare, Config{Tx: true, Policies: reruns, Cancels: true}},
	{CancelledLeaves, CancelledBare, Config{Tx: true, Policies: reruns, Cancels: true}},
	{LateReleaseNoted, ReleasedComes, Config{External: true, Policies: parks}},

	{ReplaySendsFirst, NothingLost, Config{Tx: true, Policies: reruns}},
}

var mixed = [workers]dedupe.Policy{dedupe.Park, dedupe.Rerun}

// needless are the rules without which nothing that the model checks breaks, and what they are for.
var needless = map[Rule]string{
	DeadLeaseRenewed: "it saves the work of an owner that was only slow",
	PostponedTouches: "what has run may have had an effect, although it has saved nothing",
	ParkByClaimer:    "a start is recorded under Park alone, so the record of a started claim says Park already",
}

func TestEachRuleIsNeeded(t *testing.T) {
	covered := map[Rule]bool{}
	for _, w := range without {
		covered[w.rule] = true
		t.Run(w.rule.String()+"/"+w.breaks.String(), func(t *testing.T) {
			c := w.c
			c.Without, c.Watch = []Rule{w.rule}, []Property{w.breaks}
			r := explore(t, c)
			if !r.Found {
				t.Fatalf("nothing breaks without the rule: %v", w.rule)
			}
			t.Logf("without the rule: %v\nbreaks: %v\n  %s", w.rule, r.Broken, strings.Join(r.Trace, "\n  "))
		})
	}
	for _, rule := range Rules() {
		if _, ok := needless[rule]; ok == covered[rule] {
			t.Errorf("rule %q: want a world that breaks without it, or a word on what it is for instead", rule)
		}
	}
}

func TestNeedlessRules(t *testing.T) {
	for rule := range needless {
		for _, policies := range [][workers]dedupe.Policy{reruns, parks, mixed} {
			c := Config{External: true, Policies: policies, Without: []Rule{rule}}.small()
			if r := explore(t, c); r.Found {
				t.Errorf("without the rule %q: %v\n%s", rule, r.Broken, strings.Join(r.Trace, "\n"))
			}
		}
	}
}
