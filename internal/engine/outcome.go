package engine

// Action is what becomes of a delivery.
type Action uint8

// The actions.
const (
	Ack Action = iota + 1
	Nack
	Leave
)

// Outcome names how a run went. Package onceq exports these names, with what each means. TestTexts
// in internal/arch compares the two lists.
type Outcome string

// The outcomes that the engine itself gives. A letter's may be its class instead.
const (
	Done             Outcome = "done"
	Retried          Outcome = "retried"
	Postponed        Outcome = "postponed"
	Failed           Outcome = "failed"
	Parked           Outcome = "parked"
	HandedBack       Outcome = "handed-back"
	LeaseLost        Outcome = "lease-lost"
	Unsettled        Outcome = "unsettled"
	AlreadyDone      Outcome = "already-done"
	AlreadyFailed    Outcome = "already-failed"
	AlreadyParked    Outcome = "already-parked"
	Cancelled        Outcome = "cancelled"
	InProgress       Outcome = "in-progress"
	HandedOver       Outcome = "handed-over"
	Stale            Outcome = "stale"
	BadFingerprint   Outcome = "bad-fingerprint"
	ClaimRefused     Outcome = "claim-refused"
	StoreUnreachable Outcome = "store-unreachable"
	LostBeforeClaim  Outcome = "lost-before-claim"
	NoMessage        Outcome = "no-message"
	Kept             Outcome = "kept"
	Abandoned        Outcome = "abandoned"
)
