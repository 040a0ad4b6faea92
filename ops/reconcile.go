package ops

import (
	"iter"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// This file owns the words of a reconciliation: what tools give, and what they are answered. All
// are values, and nothing is locked. Reconcile is in reconcilelook.go, the table that chooses a
// finding in reconcilejudge.go, and Resend in reconcilesend.go.

// Expected is a job that should have run.
type Expected struct {
	// Key is the job's record. Required.
	Key dedupe.Key
	// Due is when the job was made, or could begin at the earliest, whichever is later. It is no
	// deadline: records are kept for Retention from the job's end, so a key that could have been
	// done before Due might be forgotten and look missing. Zero = not known: such a job is never
	// late, and never sent.
	Due time.Time
	// Ref is what people call it, such as a row's id. Findings have it.
	Ref string
	// Send is the message that brings the job again: body, type, attributes, group. nil = it is not
	// sent. Resend sets key, times and ids itself.
	Send *broker.Outgoing
}

// Effect is a line of the ledger: an effect that has happened.
type Effect struct {
	// Key is the record of the job that had the effect. Required.
	Key dedupe.Key
	// ID names the effect. Two lines with one ID are one effect. Empty = each line is one.
	ID string
	// At is when it happened, and Fence that of the claim ([onceq.Job.Fence]). Both explain a
	// duplicate; zero = not known.
	At    time.Time
	Fence uint64
}

// ReconcileOptions say what is compared.
type ReconcileOptions struct {
	// Queue is a Target's name. It may be empty where there is one.
	Queue string
	// Expected are the jobs that should have run, in any order. Required. An error of it ends the
	// call before the store is asked.
	Expected iter.Seq2[Expected, error]
	// Effects is the ledger, in any order; nil = there is none. It should have one kind of effect:
	// a job that charges and mails has two ledgers.
	Effects iter.Seq2[Effect, error]
	// Since leaves out what was due before, and effects from before that nobody expects. Zero =
	// nothing is left out.
	Since time.Time
	// Grace is how long after Due a job is late; one that is younger and not done is left out.
	// Default 15 min; < 0 = none.
	Grace time.Duration
	// Letters looks through the dead-letter queue, too: a failure without a letter is a lost one.
	// Each letter there gets a receive more.
	Letters bool
	// SendLost lets Resend send lost failures without a ledger, too. It is the operator's word that
	// nobody removed their letters on purpose: a purge by package dlq, or by a console, is in no
	// audit. Default: without Effects they are found, and not sent.
	SendLost bool
	// Max bounds what Resend may send: where more is missing, it sends nothing. Default 1,000.
	Max int
	// Before is told the price, when the input was read and nothing else; its error ends the call.
	Before func(ReconcileCost) error
	// Each is called with each finding, in the order of the keys. The Evidence keeps some alone.
	Each func(Finding)
}

// ReconcileCost is what the look reads of the store, at most, beside the workers' cards and the
// acts in the audit.
type ReconcileCost struct {
	// Keys are read once each. Scopes is in how many other scopes a key without a record is looked
	// for.
	Keys, Scopes int
	// Units are what the store bills for Keys, and for a look for acts in the audit: read units in
	// DynamoDB, documents in Firestore; 0 = it does not bill reads. Dollars are the price of
	// DynamoDB's on demand in us-east-1; below 0 = the store tells no size, so it is not known.
	Units   int64
	Dollars float64
}

// Evidence is what Reconcile has found.
type Evidence struct {
	// Queue is the Target's name, and At when the look began, by the store's clock.
	Queue string
	At    time.Time
	// Expected counts the keys that were expected, Repeated the rows that named one again, Older
	// those due before Since, and Young those that are not done and not due for Grace yet.
	Expected, Repeated, Older, Young int
	// OK counts the keys that are done, once and in time.
	OK int
	// Effects counts the ledger's effects of expected keys, and Others those of other keys. Ledger
	// says whether there was one.
	Effects, Others int
	Ledger          bool
	// Reads counts the keys that were read.
	Reads int
	// Counts are the findings by kind. Findings has the first [KeptFindings] of each kind.
	Counts   map[FindingKind]int
	Findings []Finding
	// State is the queue's when the look began: what waits there may be what is missing.
	State QueueState
	// LettersErr says that the letters are not all known: a failure without one counts as failed,
	// not as lost. nil where they are, or were not asked for.
	LettersErr error

	t         *target
	retention time.Duration // after which a key without a record is unproven
	max       int
	sendLost  bool
	toSend    []candidate // at most max
	sends     int         // how many there are
}

// KeptFindings is how many findings of each kind an [Evidence] keeps.
const KeptFindings = 1000

// Found is how many findings there are. 0 = each expected job that is due was done, once and in
// time.
func (e *Evidence) Found() (n int) {
	for _, of := range e.Counts {
		n += of
	}
	return n
}

// ToSend is how many jobs Resend would send: missing ones and lost failures that have a message.
func (e *Evidence) ToSend() int { return e.sends }

// FindingKind is what is wrong with a key.
type FindingKind string

// The kinds of findings. A key has one, the first of these that fits.
const (
	// FoundDuplicate: the ledger has two effects or more.
	FoundDuplicate FindingKind = "duplicate"
	// FoundNoKey: the ledger has an effect, and the store no record. It is never sent.
	FoundNoKey FindingKind = "effect without a key"
	// FoundNotDone: the ledger has an effect, and the record is not done. It is never sent.
	FoundNotDone FindingKind = "effect, not done"
	// FoundNoEffect: the record is done, and the ledger has no effect.
	FoundNoEffect FindingKind = "done, no effect"
	// FoundLate: done more than Grace after Due.
	FoundLate FindingKind = "late"
	// FoundElsewhere: no record, or no effect, but one of the same key in another scope: a record
	// in another of the queue's, an effect where nobody expects the key. It is never sent.
	FoundElsewhere FindingKind = "other scope"
	// FoundMissing: no record, so no worker has begun it. Its message may still wait.
	FoundMissing FindingKind = "missing"
	// FoundUnproven: no record, but Due is so long ago, or not known, that an earlier record may be
	// gone. It is never sent.
	FoundUnproven FindingKind = "unproven"
	// FoundLost: failed, and there is no letter that could replay it. It is sent where there is a
	// ledger, or ReconcileOptions.SendLost.
	FoundLost FindingKind = "lost failure"
	// FoundFailed: failed, with a letter; or its letter was not looked for, or is gone by an act
	// that the audit has: a purge, or a replay under another key.
	FoundFailed FindingKind = "failed"
	// FoundCancelled: an operator has cancelled it. It is never sent.
	FoundCancelled FindingKind = "cancelled"
	// FoundParked: interrupted amid its effect; an operator decides.
	FoundParked FindingKind = "parked"
	// FoundStalled: claimed, and the lease is dead. Its message comes again.
	FoundStalled FindingKind = "stalled"
	// FoundRunning: claimed, and the lease lives.
	FoundRunning FindingKind = "running"
	// FoundRetrying: given back after an error. Its message comes again.
	FoundRetrying FindingKind = "retrying"
	// FoundPostponed: given back by its handler until later (onceq.Postpone, Sleep).
	FoundPostponed FindingKind = "postponed"
)

// FindingKinds are all kinds, in the order in which people want to see them.
func FindingKinds() []FindingKind {
	return []FindingKind{
		FoundDuplicate, FoundNoKey, FoundNotDone, FoundNoEffect, FoundMissing, FoundLost, FoundElsewhere, FoundUnproven, FoundFailed, FoundCancelled, FoundParked,
		FoundStalled, FoundLate, FoundRetrying, FoundPostponed, FoundRunning,
	}
}

// A Finding is what is wrong with one key.
type Finding struct {
	Kind FindingKind
	Key  dedupe.Key
	// Ref and Due are the Expected's.
	Ref string
	Due time.Time
	// Why explains it in a sentence.
	Why string
	// Status and Fence are the record's; 0 = there is none.
	Status dedupe.Status
	Fence  uint64
	// Effects are those in the ledger, in the order of time, each ID once; the first 64 of them.
	Effects []Effect
	// Sends says that Resend would send it.
	Sends bool
}

// A candidate is a finding that Resend may send.
type candidate struct {
	Finding
	send   *broker.Outgoing
	record *dedupe.Record // of a lost failure
}
