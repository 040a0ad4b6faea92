package model

import "github.com/onceq/onceq/dedupe"

// Property is something that must always hold.
type Property uint8

// The properties.
const (
	OneLiveClaim Property = iota
	FenceRises
	FinishedStays
	StaleChangesNothing
	TxIsDone
	AckHasReason
	NotBlockedByOneself
	EveryCallAnswered
	OneTxEffect
	OneParkedEffect
	OneCalmEffect
	NobodysFailure
	UnbegunIsOpen
	DoneMeansEffect
	NothingLost
	LetterIsTrue
	ReleasedComes
	AttemptsCount
	PoisonRests
	SavedStays
	StoredStepOnce
	OneStepRepeats
	StepsOfPayload
	CancelledStays
	CancelledBare
	DoneReachable

	propertyCount
)

var propertyNames = [propertyCount]string{
	OneLiveClaim:        "I1: at most one live claim of a key, and one fence for a token",
	FenceRises:          "I2: the fence only rises",
	FinishedStays:       "I3: done never changes; failed and parked only by their own letter, or the parked claim's own word",
	StaleChangesNothing: "I4: a stale token changes nothing",
	TxIsDone:            "I5: a transaction commits exactly when its completion commits",
	AckHasReason:        "I6: ack only after done, or an operator's cancel, was observed, or the letter or the job's next message is stored",
	NotBlockedByOneself: "I8: a lost reply never blocks its own live caller: the repeated call is answered",
	EveryCallAnswered:   "every claim finds a row that answers it",
	OneTxEffect:         "no transactional effect twice",
	OneParkedEffect:     "under Park at most one effect, until an operator reopens the job",
	OneCalmEffect:       "where nothing crashes and no lease dies, one effect",
	NobodysFailure:      "a job whose handler never fails does not fail",
	UnbegunIsOpen:       "where nothing crashes and no lease dies, a job that no limiter has let begin is neither failed nor parked",
	DoneMeansEffect:     "done means that the effect has happened",
	NothingLost:         "nothing lost: until a job is done, or cancelled, there is a message or a letter of it",
	LetterIsTrue:        "a letter that names a failure is put only when that failure is recorded",
	ReleasedComes:       "what is released, and was never done, comes: there is a message of it, or a letter of something else",
	AttemptsCount:       "an attempt counts where its handler was started, or nobody knows whether it was",
	PoisonRests:         "what may have killed its worker at its last attempt is not started at once",
	SavedStays:          "a step that is stored stays, until the job is done or its record is gone",
	StoredStepOnce:      "a step that is stored is not run by a claim that is won later",
	OneStepRepeats:      "of the steps that a run has run, all but one are stored",
	StepsOfPayload:      "what was saved for a payload goes to no other, unless an operator decides so",
	CancelledStays:      "a cancelled job commits nothing, and begins under no other claim, unless a letter reopens it",
	CancelledBare:       "a cancelled job has no letter, but that of a failure of its own",
	DoneReachable:       "done, or cancelled, is reachable without a further fault",
}

// String is the property in a sentence.
func (p Property) String() string { return propertyNames[p] }

type propertySet uint32

func (s propertySet) has(p Property) bool { return s>>p&1 != 0 }

func watching(ps ...Property) (s propertySet) {
	for _, p := range ps {
		s |= 1 << p
	}
	return s
}

const everything propertySet = 1<<propertyCount - 1

// markBroken notes that the present step breaks p.
func (m *model) markBroken(p Property) { m.broken |= 1 << p }

// check looks at a state as such; what a step may do is checked where it is done.
func (m *model) check(s *state) (broken propertySet) {
	done := s.rec.status == dedupe.Done && !s.rec.expired
	if done && !s.ghost.acted {
		broken |= watching(DoneMeansEffect)
	}
	if m.c.Tx && !m.c.Retention {
		if done != (s.ghost.txEffects == 1) {
			broken |= watching(TxIsDone)
		}
		if s.ghost.txEffects > 1 {
			broken |= watching(OneTxEffect)
		}
	}
	for payload := range m.payloads() {
		if !s.remains(payload) && !(s.ghost.done>>payload&1 != 0 && s.ghost.acted) && !s.ghost.cancelled {
			broken |= watching(NothingLost)
		}
	}
	if s.rec.status == dedupe.Released && s.ghost.done>>s.rec.payload&1 == 0 && !s.comes() {
		broken |= watching(ReleasedComes)
	}
	if kept := s.rec.status != 0 && s.rec.status != dedupe.Done && !s.rec.expired; kept && s.rec.saved < s.ghost.stored {
		broken |= watching(SavedStays)
	}
	if m.c.HandlersSucceed && s.rec.status == dedupe.Failed {
		broken |= watching(NobodysFailure)
	}
	if m.c.Limits && m.c.Calm && !s.ghost.begun && (s.rec.status == dedupe.Failed || s.rec.status == dedupe.Parked) {
		broken |= watching(UnbegunIsOpen)
	}
	return broken
}

// compare checks I3 on a record that a step has changed. reopens tells that the step was the claim
// of a letter that carries the record's fence; own, that it was the word of the record's own token.
func (m *model) compare(before, after *record, reopens, own bool) {
	if *before == *after || before.expired {
		return
	}
	switch before.status {
	case dedupe.Done:
		m.markBroken(FinishedStays)
	case dedupe.Failed:
		if !reopens {
			m.markBroken(FinishedStays)
		}
	case dedupe.Parked:
		if !reopens && !own {
			m.markBroken(FinishedStays)
		}
	case dedupe.Claimed, dedupe.Released: // not finished
	}
}
