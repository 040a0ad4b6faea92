package onceq

// Outcome names how one delivery, or one call of [Do], went: [TimingRecord].Outcome, and "outcome"
// in the log. The text of a constant never changes, so that alerts may be made of it.
type Outcome string

// The outcomes of a job whose key was claimed by this delivery.
const (
	// OutcomeDone: the handler has returned nil, or its transaction has committed, and that is
	// recorded. The message is acked.
	OutcomeDone Outcome = "done"
	// OutcomeRetried: the handler has failed; the message comes again after the backoff, and the
	// attempt counts.
	OutcomeRetried Outcome = "retried"
	// OutcomePostponed: the handler has given the job back for a time, see [Postpone]. The message
	// comes again then, and the attempt does not count.
	OutcomePostponed Outcome = "postponed"
	// OutcomeFailed: the job has failed for good. Its dead letter is stored, and the message acked.
	OutcomeFailed Outcome = "failed"
	// OutcomeParked: the job was interrupted under dedupe.Park, in this run or in that of a worker
	// that died and whose key this delivery has found; an operator must decide. Its
	// dead letter is stored, and the message acked.
	OutcomeParked Outcome = "parked"
	// OutcomeHandedBack: the handler has not started, or was cut off by a drain. The message comes
	// again at once, and the attempt does not count.
	OutcomeHandedBack Outcome = "handed-back"
	// OutcomeLeaseLost: the store has said that the key is another worker's. Nothing is recorded,
	// acked or given back.
	OutcomeLeaseLost Outcome = "lease-lost"
	// OutcomeUnsettled: the job's end, or its dead letter, could not be stored in time. The message
	// will be delivered again when its lease has run out.
	OutcomeUnsettled Outcome = "unsettled"
	// OutcomeExpired: Meta.Expires had passed. The handler did not start; a dead letter is stored.
	OutcomeExpired Outcome = ClassExpired
	// OutcomeUnproven: the message was older than Retention and had no record, so that the job may
	// have been done. The handler did not start; a dead letter is stored.
	OutcomeUnproven Outcome = ClassUnproven
)

// The outcomes of a delivery whose key was found taken. The handler did not start.
const (
	// OutcomeAlreadyDone: the job was done before. The message is acked.
	OutcomeAlreadyDone Outcome = "already-done"
	// OutcomeAlreadyFailed: the job had failed before. Its dead letter is stored once more, and the
	// message acked.
	OutcomeAlreadyFailed Outcome = "already-failed"
	// OutcomeAlreadyParked: the job is parked. Its dead letter is stored once more, and the message
	// acked.
	OutcomeAlreadyParked Outcome = "already-parked"
	// OutcomeInProgress: another delivery of the job, or a call of Do, holds the key. The message
	// comes again later.
	OutcomeInProgress Outcome = "in-progress"
	// OutcomeHandedOver: the message was delivered again to the worker that runs its job. That run
	// has taken over the new receipt.
	OutcomeHandedOver Outcome = "handed-over"
	// OutcomeDuplicate: another message with the key has failed, or is parked. A dead letter that
	// reopens nothing is stored.
	OutcomeDuplicate Outcome = ClassDuplicate
	// OutcomeMismatch: the key is taken by a message with another payload. A dead letter is stored.
	OutcomeMismatch Outcome = ClassMismatch
	// OutcomeStale: the store has refused two tokens in a row as seen before. The message comes
	// again at once.
	OutcomeStale Outcome = "stale"
)

// The outcomes of a delivery whose key was not claimed. The handler did not start.
const (
	// OutcomeEarly: Meta.NotBefore lies ahead. The message comes again then.
	OutcomeEarly Outcome = "early"
	// OutcomeTooEarly: Meta.NotBefore lies further ahead than MostNotBefore, or than the queue
	// keeps the message. A dead letter is stored.
	OutcomeTooEarly Outcome = ClassTooEarly
	// OutcomeNoKey: the message has no idempotency key, or ProcessorConfig.Key has answered an
	// error. A dead letter is stored.
	OutcomeNoKey Outcome = ClassNoKey
	// OutcomeBadKey: the key cannot be stored. A dead letter is stored.
	OutcomeBadKey Outcome = ClassBadKey
	// OutcomeBadMeta: onceq's metadata could not be read. A dead letter is stored.
	OutcomeBadMeta Outcome = ClassBadMeta
	// OutcomeBadFingerprint: ProcessorConfig.Fingerprint has panicked. A dead letter of class
	// "error" is stored. Replay it once the function is mended.
	OutcomeBadFingerprint Outcome = ClassError
	// OutcomeClaimRefused: the store refuses this claim and answers others. The message comes again
	// after five minutes; after a day it becomes a dead letter.
	OutcomeClaimRefused Outcome = ClassClaimRefused
	// OutcomeStoreUnreachable: the store gave no answer. The message comes again.
	OutcomeStoreUnreachable Outcome = "store-unreachable"
	// OutcomeLostBeforeClaim: the message was delivered again before it was claimed.
	OutcomeLostBeforeClaim Outcome = "lost-before-claim"
	// OutcomeNoHandler: the message has no type, and the Handler is a Mux. A dead letter is stored,
	// but not at once: see [OutcomeKept].
	OutcomeNoHandler Outcome = ClassNoHandler
	// OutcomeConfig: the Handler hides a Mux. A dead letter is stored, but not at once: see
	// [OutcomeKept].
	OutcomeConfig Outcome = ClassConfig
	// OutcomeNoMessage: the Delivery has no Message.
	OutcomeNoMessage Outcome = "no-message"
)

// The outcomes of a delivery with or without a claim.
const (
	// OutcomeKept: what would be a dead letter stays in its queue. The reason is KeepInQueue,
	// HoldGroup, a dead-letter queue that does not take it, or a missing ProcessorConfig.Key. The
	// message comes again. A job that has run, and is kept by KeepInQueue or HoldGroup, is
	// [OutcomeRetried].
	OutcomeKept Outcome = "kept"
	// OutcomePaused: a rule pauses its type or scope. The message comes again, and no attempt
	// counts.
	OutcomePaused Outcome = "paused"
	// OutcomeAbandoned: the time of a drain, or of a batch, was over before the job had ended. The
	// message is left alone.
	OutcomeAbandoned Outcome = "abandoned"
)

// Outcomes are all outcomes, in the order of their constants.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeDone, OutcomeRetried, OutcomePostponed, OutcomeFailed, OutcomeParked, OutcomeHandedBack,
		OutcomeLeaseLost, OutcomeUnsettled, OutcomeExpired, OutcomeUnproven, OutcomeAlreadyDone,
		OutcomeAlreadyFailed, OutcomeAlreadyParked, OutcomeInProgress, OutcomeHandedOver,
		OutcomeDuplicate, OutcomeMismatch, OutcomeStale, OutcomeEarly, OutcomeTooEarly,
		OutcomeNoKey, OutcomeBadKey, OutcomeBadMeta, OutcomeBadFingerprint, OutcomeClaimRefused,
		OutcomeStoreUnreachable, OutcomeLostBeforeClaim, OutcomeNoHandler, OutcomeConfig,
		OutcomeNoMessage, OutcomeKept, OutcomePaused, OutcomeAbandoned,
	}
}
