package model

import (
	"strings"
	"testing"
)

// playWindows, playInstants and playFans look for a broken promise, without some rules.
func playWindows(t *testing.T, without ...TimedRule) string {
	t.Helper()
	return told(t)(search(windowed{}, windowMoves(setOfTimed(without))))
}

func playInstants(t *testing.T, ahead tick, without ...TimedRule) string {
	t.Helper()
	for _, newer := range []uint8{0, 1} {
		// Two may die, and one where the schedules differ, which is a larger world.
		begin := instants{dead: newer, p: [workers]scheduler{1: {newer: newer}}}
		if broken := told(t)(search(begin, instantMoves(ahead, setOfTimed(without)))); broken != "" {
			return broken
		}
	}
	return ""
}

func playFans(t *testing.T, without ...TimedRule) string {
	t.Helper()
	return told(t)(search(fanned{}, fanMoves(setOfTimed(without))))
}

func setOfTimed(rules []TimedRule) map[TimedRule]bool {
	set := map[TimedRule]bool{}
	for _, r := range rules {
		set[r] = true
	}
	return set
}

func told(t *testing.T) func(states int, broken string, trace []string) string {
	t.Helper()
	return func(states int, broken string, trace []string) string {
		t.Helper()
		t.Logf("%d states %s\n  %s", states, broken, strings.Join(trace, "\n  "))
		return broken
	}
}

// TestTimedWorlds: what limiters, schedulers and parents in many processes agree on holds, whoever
// dies, stands still, or has no answer.
func TestTimedWorlds(t *testing.T) {
	if broken := playWindows(t); broken != "" {
		t.Error(broken)
	}
	if broken := playInstants(t, 0); broken != "" {
		t.Error(broken)
	}
	if broken := playFans(t); broken != "" {
		t.Error(broken)
	}
}

// TestEachTimedRuleIsNeeded: without a rule a promise breaks.
func TestEachTimedRuleIsNeeded(t *testing.T) {
	breaks := map[TimedRule]string{
		KeptBeyondUse: neverAbove, UseEnds: neverAbove, UseFromAsking: neverAbove, SettledIsHad: neverAbove,
		AnsweredIsHad: neverAbove, AwayStartsNothing: neverAbove, DeadTakerEnds: blockFree,
		KeyOfInstant: instantOnce, CreatedIsInstant: instantOnce, CatchUpInRetention: sentMayRun,
		RecordedAfterSend: instantOpen, LooksBack: instantOpen, BornBound: instantBound, ChangedIsNew: instantBound,
		KeyOfChild: childOnce, CreatedIsBegin: childOnce, BeginSavedFirst: childOnce, SavedAfterSend: eachSent,
		SavedUnderClaim: seenDone, FrontierStops: allDone, FrontierKept: seenDone, GoneFails: parentEnds,
	}
	for rule := range timedRuleCount {
		t.Run(rule.String(), func(t *testing.T) {
			broken := ""
			switch {
			case rule < KeyOfInstant:
				broken = playWindows(t, rule)
			case rule < KeyOfChild:
				broken = playInstants(t, 0, rule)
			default:
				broken = playFans(t, rule)
			}
			if broken != breaks[rule] || broken == "" {
				t.Errorf("breaks %q, want %q", broken, breaks[rule])
			}
		})
	}
}

// TestClockAheadOfAnInstant is a known limit. A clock that is ahead sends an instant before its
// time, so its key is forgotten before a second message of it is too old.
func TestClockAheadOfAnInstant(t *testing.T) {
	if broken := playInstants(t, 1); broken != instantOnce {
		t.Errorf("the limit is none any more: %q", broken)
	}
}
