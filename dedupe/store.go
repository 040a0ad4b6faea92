package dedupe

import (
	"context"
	"fmt"
	"iter"
	"time"
)

// This file owns the contract of a store: the calls, what they take, and what they answer. Workers
// call them from many goroutines. The package comment has the rules that every store keeps.

// DefaultRetention is how long a finished record is kept when nothing else is said. It is
// longer than any queue and dead-letter queue keep a message together on default settings (SQS: 14
// days each), so that a replay finds the record.
const DefaultRetention = 31 * 24 * time.Hour

// Store records idempotency keys. Its methods may be called from many goroutines.
//
// Answers are by position: answer i belongs to entry i, and an entry fails alone, by its Err. When
// the second result is not nil, nothing is known of any entry: each may or may not have been
// applied, and the caller repeats the call.
//
// A batch has at most Limits.MaxBatch entries. A Claim batch holds each key once and is sorted by
// key, so that two batches never wait for each other in opposite orders; the caller sees to both.
type Store interface {
	// Claim tries to win each key, as the claim's table says. What another call, or a user's
	// transaction, is just writing may be answered InProgress, or [ErrBusy], in place of the
	// table's answer; nothing is written then.
	Claim(ctx context.Context, rs []ClaimRequest) ([]Claim, error)
	// Renew prolongs leases, as the renewal's table says; it never shortens one.
	Renew(ctx context.Context, rs []Renewal) ([]Renewed, error)
	// Settle ends claims, as the settlement's table says. It answers the status that is now
	// stored under the token, so repeating it is safe.
	Settle(ctx context.Context, ss []Settlement) ([]Settled, error)
	// Get reads records, strongly consistent; nil = no record, or an expired one. It never decides
	// anything: see the package comment. One record that cannot be read, because something else
	// wrote it, fails the whole call: nil would say that there is none.
	Get(ctx context.Context, ks []Key) ([]*Record, error)
	// List goes through records in the order of their keys. A record may be changed meanwhile; each
	// is seen at most once. The sequence ends after the first error, also one of a single record
	// that cannot be read.
	List(ctx context.Context, q Query) iter.Seq2[*Record, error]
	// Forget removes records. Nil by position where the record is gone, or was not there.
	Forget(ctx context.Context, fs []Forgotten) ([]error, error)
	// Limits says what the store can hold. It does no I/O and its answer never changes.
	Limits() Limits
}

// Limits states what a store can do.
type Limits struct {
	MaxResult int  // bytes of Settlement.Result and of Renewal.State
	MaxBatch  int  // entries of one call, at least 1
	Durable   bool // records outlive the process
	// OrderedFences: a claim that is sent after another one was answered gets the higher fence,
	// whatever their keys and whoever sends them. A Processor then notices a store that went back
	// in time, as by the restore of a backup.
	OrderedFences bool
}

// ClaimRequest asks for a key.
type ClaimRequest struct {
	Key Key
	// Token is drawn by the caller, new for every claim; a repeat of the same claim keeps it.
	Token Token
	// TTL is the lease's length, counted by the store's clock from when it grants it. > 0.
	TTL time.Duration
	// Fingerprint is compared with the record's where both are given, unless Reopen is granted.
	Fingerprint []byte
	// Policy is stored with the claim. A dead, started claim is parked when the record or
	// the request says Park.
	Policy Policy
	// Reopen is the fence of the failure, or park, whose dead letter this message is; 0 = none.
	Reopen uint64
	// Owner is for people. MessageID names the message that claims: the worker tells by it, later,
	// whether a message is the one that failed. Stores keep both as they come.
	Owner, MessageID string
	// Sent is when the job was sent: Meta.Created, else when the broker took the message. Zero
	// where neither is known, as for a call of Do. Stores keep it for people, see [Record].Sent; a
	// time outside the years 1 to 9999 counts as not known.
	Sent time.Time
}

// Validate checks the entry; the error wraps [ErrBadKey] or [ErrBadRequest].
func (q *ClaimRequest) Validate() error {
	if err := q.Key.Validate(); err != nil {
		return err
	}
	if q.Token == (Token{}) {
		return fmt.Errorf("%w: ClaimRequest.Token is zero", ErrBadRequest)
	}
	if q.TTL <= 0 {
		return fmt.Errorf("%w: ClaimRequest.TTL is %v, want more than 0", ErrBadRequest, q.TTL)
	}
	if q.Policy > Park {
		return fmt.Errorf("%w: ClaimRequest.Policy is %v", ErrBadRequest, q.Policy)
	}
	return nil
}

// Outcome is the answer to a claim.
type Outcome uint8

// The outcomes of a claim.
const (
	Won           Outcome = iota + 1
	InProgress            // another claim is live: Left, Age, Term
	AlreadyDone           // Record
	AlreadyFailed         // Record
	IsParked              // Record
	Mismatch              // the payload differs from the record's: Record
	Stale                 // the token belongs to an earlier, finished claim: a late packet
)

// String is the outcome in lower case with hyphens, as logs write it.
func (o Outcome) String() string {
	switch o {
	case 0:
		return "none"
	case Won:
		return "won"
	case InProgress:
		return "in-progress"
	case AlreadyDone:
		return "already-done"
	case AlreadyFailed:
		return "already-failed"
	case IsParked:
		return "parked"
	case Mismatch:
		return "mismatch"
	case Stale:
		return "stale"
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Claim is the answer to one ClaimRequest.
type Claim struct {
	Outcome  Outcome   // zero when Err is set
	Fresh    bool      // Won: there was no record, or an expired one; IsParked: this claim has parked it
	Lease    Lease     // Won
	Created  time.Time // Won: when the record was made; an older message may have had another
	FirstErr string    // Won: the text of the first failure of an earlier attempt
	State    []byte    // Won: what earlier attempts saved
	StateNo  int       // Won: the number of State; 0 = there is none
	// ErrClass is the class of the last failure before this attempt, which a replay's reopening
	// takes from the failure that it reopens; "" where there was none. Won.
	ErrClass string
	// LastEnd is when the attempt before this one ended, by the store's clock: for one that was
	// taken over, when its lease was over. Zero where there was none. Won.
	LastEnd time.Time
	// From is the owner whose dead lease this claim took over, cut as in [Attempt], and DeadFor is
	// how long the lease had been dead. "" and 0 where the claim took none over. Won.
	From    string
	DeadFor time.Duration
	Left    time.Duration // InProgress: until the lease is dead
	Age     time.Duration // InProgress: since the claim was won
	Term    time.Duration // InProgress: the lease's length when its owner last spoke; 0 = unknown
	Record  *Record       // AlreadyDone, AlreadyFailed, IsParked, Mismatch: a copy
	Err     error
}

// Lease is a claim's hold on a key.
type Lease struct {
	Key     Key
	Token   Token
	Fence   uint64
	Attempt int // from 1
	// Deadline is the owner's view of when the lease dies: counted from before the request was
	// sent, so early, never late.
	Deadline time.Time
}

// Renewal prolongs a claim.
type Renewal struct {
	Key   Key
	Token Token
	TTL   time.Duration
	// Started records that the handler is about to run. It matters under Park only.
	Started bool
	// State replaces what the run has saved; nil = unchanged.
	State []byte
	// StateNo is the number of State: 1 or more, and above that of the state before it, which an
	// earlier attempt may have saved ([Claim].StateNo). A Renew that its caller has given up may be
	// executed after the next one; a State whose number is not above the stored one's is left out,
	// and the lease prolonged all the same.
	StateNo int
}

// Validate checks the entry; the error wraps [ErrBadKey] or [ErrBadRequest].
func (n *Renewal) Validate() error {
	if err := n.Key.Validate(); err != nil {
		return err
	}
	if n.TTL <= 0 {
		return fmt.Errorf("%w: Renewal.TTL is %v, want more than 0", ErrBadRequest, n.TTL)
	}
	if n.State != nil && n.StateNo < 1 {
		return fmt.Errorf("%w: Renewal.StateNo is %d, want 1 or more beside a State", ErrBadRequest, n.StateNo)
	}
	return nil
}

// Renewed is the answer to one Renewal.
type Renewed struct {
	Deadline time.Time // the owner's view, as in Lease
	Err      error     // ErrLeaseLost, ErrBusy, …
}

// Settlement ends a claim.
type Settlement struct {
	Key   Key
	Token Token
	// To is Done, Failed, Released or Parked.
	To Status
	// Result is kept when To is Done.
	Result []byte
	// ErrClass and ErrText tell why To is not Done.
	ErrClass, ErrText string
	// Uncounted gives the attempt back when To is Released: a drain or a pause is nobody's
	// failure.
	Uncounted bool
	// Joined says that the claim may be completed by the user's own transaction. A settlement
	// then never turns claimed into done; it only reports whether that has happened.
	Joined bool
	// Unparks lets Released take a parked record: it is an operator's word, see [Resolve], that of
	// a call of onceq.Do, whose caller comes again, or that of a worker whose queue keeps the
	// message of a parked job. Any other release that comes when the claim was parked already
	// leaves the record parked, with the error as a note: the message is gone, and only its letter
	// brings the job.
	Unparks bool
	// Retain is how long the record is kept; 0 = DefaultRetention.
	Retain time.Duration
}

// LateText is the last error of a record that stays parked although t, its own claim's word, gave
// the claim back late. Nothing has happened under that claim, so that a replay of the dead letter
// repeats nothing. Stores write it.
func (t *Settlement) LateText() string {
	const text = "given back late by its worker, so its letter may be replayed"
	if t.ErrText == "" {
		return text
	}
	return text + ": " + t.ErrText
}

// Validate checks the entry; the error wraps [ErrBadKey] or [ErrBadRequest].
func (t *Settlement) Validate() error {
	if err := t.Key.Validate(); err != nil {
		return err
	}
	switch t.To {
	case Done, Failed, Released, Parked:
	default:
		return fmt.Errorf("%w: Settlement.To is %v, want done, failed, released or parked", ErrBadRequest, t.To)
	}
	if t.Retain < 0 {
		return fmt.Errorf("%w: Settlement.Retain is %v, want 0 or more", ErrBadRequest, t.Retain)
	}
	return nil
}

// Settled is the answer to one Settlement.
type Settled struct {
	Status Status // now stored under the token
	Err    error  // ErrLeaseLost, ErrBusy, ErrResultSize, …
}

// Query selects records; zero fields select all.
//
// With Status Failed, Parked or Released a store in a database reads as many records as there are
// of these, however many others it holds. dynamostore does so where Options.AttentionIndex names
// its index. Every other query may read all records of the scope, or of the table.
type Query struct {
	Scope, Prefix string    // the scope, and how the key begins
	Status        Status    // the status
	Before        time.Time // last changed before
	// LeaseBefore selects claimed records alone: those whose lease ended before it. Their owners
	// died, or went silent.
	LeaseBefore time.Time
	// After gives the records behind this key alone, in the order of List: the last one of a page
	// gives the next page, also where it has been removed since. Zero = from the beginning; else a
	// valid key, or the error wraps [ErrBadKey]. Of what the whole list reads, the stores in SQL
	// leave out what is before it.
	After Key
	Limit int // at most so many
}

// Forgotten names a record to remove.
type Forgotten struct {
	Key   Key
	Fence uint64 // must be the record's, else ErrLeaseLost
	Force bool   // also a live claim, which is otherwise ErrBusy
}

// Owned is what a running job shows to a store that completes it in the user's transaction.
type Owned interface {
	// Lease is the job's claim.
	Lease() Lease
	// Retain is how long the completed record is to be kept.
	Retain() time.Duration
	// Join tells the worker that a transaction may complete the job: from now on it never writes
	// done itself. The store calls it before it touches the transaction.
	Join()
}
