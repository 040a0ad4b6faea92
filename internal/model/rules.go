package model

// This file owns the names of the protocol's rules, and what stands in their place where a Config
// leaves them out. The steps ask model.without. Nothing is locked.

// Rule is one rule of the protocol. A Config may leave some out, to see what they are good for.
type Rule uint8

// The rules, each with the one that a careless implementation would follow instead.
const (
	SettleBeforeLetter Rule = iota
	LetterBeforeAck
	SettleUntilKnown
	LetterUntilKnown
	RepeatNeverRead
	SettleOutlivesHandler
	LostLeaseLeaves
	AckOnlyDone
	LetterAgain
	LetterOfRecord
	ClaimBeforeEffect
	ReleaseAfterReturn
	StartBeforeHandler
	InterruptedParks
	UncommittedParks
	DrainUncounted
	DoubtUncounted

	OwnClaimAgain
	LatePacketStale
	SettleByToken
	CompleteByToken
	CompleteOnce
	JoinedNeverDone
	ReopenOwnFence
	ReopenStartsAnew
	ParkByRecord
	ParkByClaimer
	DeadLeaseRenewed
	SeenAfterEffect
	MismatchFirst
	ReopensOrDiffers
	MismatchNeverReopens
	FenceOutlivesRecord
	UnprovenFails
	UnprovenSticks
	UnprovenReleases
	LateReleaseNoted
	UnstartedUncounted
	DeadClaimsCount
	KeptStarts
	KeptRests
	SaveBeforeNext
	SaveByToken
	LateSaveLeftOut
	SavedStepsGoOn
	PostponedUncounted
	PostponedTouches
	SavedTouches
	UnbegunIsNone
	PostponedUnbegun
	CarryBeforeAck
	CarryUntilKnown
	CancelByToken
	CancelClaimsFirst
	CancelledAcks
	CancelledLeaves

	ReplaySendsFirst

	ruleCount
)

// Rules lists all rules.
func Rules() []Rule {
	rs := make([]Rule, ruleCount)
	for i := range rs {
		rs[i] = Rule(i)
	}
	return rs
}

var ruleNames = [ruleCount]string{
	SettleBeforeLetter:    "the failure is recorded before its letter is put (else: after it)",
	LetterBeforeAck:       "the letter is stored before the ack (else: after it)",
	SettleUntilKnown:      "a settlement is repeated until its outcome is known (else: sent once)",
	LetterUntilKnown:      "a letter is put until it is known to be stored (else: sent once)",
	RepeatNeverRead:       "a doubtful settlement is repeated (else: the record is read)",
	SettleOutlivesHandler: "settling goes on when the handler's context has ended (else: not)",
	LostLeaseLeaves:       "a lost lease leaves the message alone (else: acks it)",
	AckOnlyDone:           "a duplicate is acked when done was seen (else: also in progress)",
	LetterAgain:           "who finds a failure recorded puts its letter again (else: acks)",
	LetterOfRecord:        "a letter put again carries the record's fence (else: the message's own)",
	ClaimBeforeEffect:     "no handler runs without a claim (else: it does when the store is away)",
	ReleaseAfterReturn:    "a claim is released when its handler has returned (else: at the drain)",
	StartBeforeHandler:    "under Park the start is confirmed before the handler runs (else: not recorded)",
	InterruptedParks:      "under Park a panic or a cut run is parked (else: retried)",
	UncommittedParks:      "under Park nil without its transaction is parked (else: retried)",
	DrainUncounted:        "a drained run gives its attempt back (else: it counts)",
	DoubtUncounted:        "a drain gives a claim in doubt back by its token (else: leaves it)",

	OwnClaimAgain:        "a claim repeated with its own token is won (else: in progress)",
	LatePacketStale:      "a claim with the token that was released is stale (else: won)",
	SettleByToken:        "a settlement needs the record's token (else: the key is enough)",
	CompleteByToken:      "CompleteTx needs the record's token (else: the key is enough)",
	CompleteOnce:         "CompleteTx refuses a job that is done already (else: lets the transaction commit)",
	JoinedNeverDone:      "after CompleteTx the worker never writes done (else: it does on nil)",
	ReopenOwnFence:       "a letter reopens the failure with its fence (else: any)",
	ReopenStartsAnew:     "a reopened job counts attempts anew (else: goes on)",
	ParkByRecord:         "a started claim that said Park is parked (else: if the claimer says so)",
	ParkByClaimer:        "a started claim is parked if the claimer says Park (else: if the record does)",
	DeadLeaseRenewed:     "a dead lease that nobody took is renewed (else: lost)",
	SeenAfterEffect:      "done is written after the effect (else: with the claim)",
	MismatchFirst:        "another payload is told before done (else: after)",
	ReopensOrDiffers:     "a claim that reopens nothing is compared (else: not if its message names any failure)",
	MismatchNeverReopens: "a mismatch's letter has fence 0 (else: the record's)",
	FenceOutlivesRecord:  "fences go on rising after Forget (else: start again)",
	UnprovenFails:        "a message older than the retention is refused if there is no record (else: runs)",
	UnprovenSticks:       "... also when the first who found that out has died (else: runs)",
	UnstartedUncounted:   "an attempt whose handler was not started is given back (else: it counts)",
	DeadClaimsCount:      "a claim that died counts: nobody knows what it did (else: it is given back)",
	KeptStarts:           "a kept job starts beyond its last attempt, too (else: never again)",
	KeptRests:            "... but not at once after one that died (else: at once)",
	SaveBeforeNext:       "a step is stored before the next begins (else: with the next)",
	SaveByToken:          "a save needs the record's token (else: the key is enough)",
	LateSaveLeftOut:      "a save does not take the place of a later one (else: it does)",
	SavedStepsGoOn:       "what is saved goes to the next claim (else: it ends with its own)",
	PostponedUncounted:   "a postponed run gives its attempt back (else: it counts)",
	PostponedTouches:     "... and is recorded as one that has run (else: as none)",
	SavedTouches:         "what is saved keeps the key for its payload (else: only what has failed does)",
	UnbegunIsNone:        "what its limiter kept from beginning is no attempt, whatever cut it off (else: it ends as a handler that was cut off)",
	PostponedUnbegun:     "... also where the limiter had postponed it (else: it ends as a handler that postpones)",
	CarryBeforeAck:       "a message that is carried is stored anew before the ack (else: after it)",
	CarryUntilKnown:      "... and is sent until it is known to be stored (else: once)",
	CancelByToken:        "a cancel ends a claim by its token (else: forgets it, and claims the key)",
	CancelClaimsFirst:    "... and takes a failure's fence away, so that its letters reopen nothing (else: only its class)",
	CancelledAcks:        "who finds a job cancelled acks (else: puts a letter)",
	CancelledLeaves:      "... and who is told so of its own claim leaves the message (else: puts a letter)",
	LateReleaseNoted:     "a late release leaves a parked record parked (else: released)",
	UnprovenReleases:     "... and leaves the key to others (else: the key has failed)",

	ReplaySendsFirst: "a replay sends the letter, then removes it (else: the other way round)",
}

// String is the rule in a sentence.
func (r Rule) String() string { return ruleNames[r] }

// ruleSet is a set of rules.
type ruleSet uint64

func (s ruleSet) has(r Rule) bool { return s>>r&1 != 0 }

func setOf(rs ...Rule) (s ruleSet) {
	for _, r := range rs {
		s |= 1 << r
	}
	return s
}
