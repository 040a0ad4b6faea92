package dedupe

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// This file owns what a store keeps: keys, tokens, statuses and the record, and the errors of
// stores. These are values: whoever holds one may read it, and nothing is locked.

// Bounds of the parts of a [Key], in bytes. They are what every supported database can hold in
// an index (DynamoDB: 1,024 bytes of sort key).
const (
	MaxScope = 255
	MaxKey   = 1024
)

// Key names a job within a scope. The two are stored as two values and never joined, so that
// no choice of one can collide with another pair.
type Key struct{ Scope, Key string }

// String is for people and logs; it is not an encoding.
func (k Key) String() string { return k.Scope + "/" + k.Key }

// Validate reports whether every store can hold the key: both parts present, within [MaxScope] and
// [MaxKey], UTF-8, without NUL. The error wraps [ErrBadKey].
func (k Key) Validate() error {
	if err := validText("Scope", k.Scope, MaxScope); err != nil {
		return err
	}
	return validText("Key", k.Key, MaxKey)
}

func validText(field, s string, most int) error {
	switch {
	case s == "":
		return fmt.Errorf("%w: %s is empty", ErrBadKey, field)
	case len(s) > most:
		return fmt.Errorf("%w: %s has %d bytes, the limit is %d", ErrBadKey, field, len(s), most)
	case strings.IndexByte(s, 0) >= 0:
		return fmt.Errorf("%w: %s holds a NUL byte", ErrBadKey, field)
	case !utf8.ValidString(s):
		return fmt.Errorf("%w: %s is not valid UTF-8", ErrBadKey, field)
	}
	return nil
}

// Token names one claim. The caller draws it before the claim, at random and new for every
// claim, so that a claim whose answer was lost can be repeated and is recognised.
type Token [16]byte

// String is the beginning of the token, for people: a log must not hold one that could be used.
func (t Token) String() string { return hex.EncodeToString(t[:2]) + "…" }

// Hex is the whole token in hexadecimal, for stores. Who has it can end the claim.
func (t Token) Hex() string { return hex.EncodeToString(t[:]) }

// Status is the state of a record. The zero Status stands for "no record".
type Status uint8

// The states of a record.
const (
	Claimed  Status = iota + 1 // somebody works on it, or died doing so
	Released                   // given back; the next claim tries again
	Done                       // the effect happened; the result is stored
	Failed                     // given up; a dead letter may reopen it
	Parked                     // interrupted under Park; an operator decides
)

// String is the status in lower case, as stores write it.
func (s Status) String() string {
	switch s {
	case 0:
		return "none"
	case Claimed:
		return "claimed"
	case Released:
		return "released"
	case Done:
		return "done"
	case Failed:
		return "failed"
	case Parked:
		return "parked"
	}
	return fmt.Sprintf("Status(%d)", uint8(s))
}

// ParseStatus is the reverse of [Status.String], for stores that keep the word.
func ParseStatus(s string) (Status, error) {
	for st := Claimed; st <= Parked; st++ {
		if st.String() == s {
			return st, nil
		}
	}
	return 0, fmt.Errorf("dedupe: unknown status %q", s)
}

// Policy says what becomes of a started claim whose owner died.
type Policy uint8

// The policies.
const (
	Rerun Policy = iota // the next claim runs it again: at least once
	Park                // it is parked until an operator decides: at most once
)

// String is the policy in lower case, as stores write it.
func (p Policy) String() string {
	switch p {
	case Rerun:
		return "rerun"
	case Park:
		return "park"
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// Record is what a store keeps for a key. The zero Record stands for "no record".
type Record struct {
	Key     Key
	Status  Status
	Fence   uint64
	Token   Token  // of the last claim
	Attempt int    // how often the key was claimed for a run, uncounted releases given back
	Started bool   // the handler may have begun; written under Park only
	Policy  Policy // of the last claim
	// Owner tells people who holds or held the claim, and MessageID for which message: a worker
	// writes the broker's id, a '#' and a sum of the content.
	Owner, MessageID string
	LeaseUntil       time.Time // while claimed
	Fingerprint      []byte    // of the payload; nil = not given
	Result           []byte    // when done; may be empty
	State            []byte    // steps that a run has saved
	StateNo          int       // the number of State, which only rises; 0 = there is none
	ErrClass         string    // of the last failure
	FirstErr         string    // text of the first failure
	LastErr          string    // text of the last failure
	// Past are the earlier attempts, the oldest first; see [Attempt]. A first attempt has none. A
	// finished record keeps them, and a new record under its key begins without.
	Past []Attempt
	// Sent is when the job was sent, as the claim that made the record knew it. A later claim fills
	// it in where it is zero: not known. For people.
	Sent      time.Time
	Created   time.Time // when the record was made
	ClaimedAt time.Time // when the last claim was won
	Updated   time.Time // last change
	Finished  time.Time // when it became done, failed or parked
	Expires   time.Time // zero while claimed or parked
}

// Attempt is an earlier claim of a key, as the claim after it found it.
type Attempt struct {
	// Number is the attempt's, from 1; one less where the attempt was given back.
	Number int
	Fence  uint64
	Owner  string // at most 64 bytes of it
	// Claimed is when the attempt began, and Ended when the record was last changed under it; of a
	// dead lease, when that ended. Both in microseconds.
	Claimed, Ended time.Time
	End            Status // Released, Failed or Parked; Claimed = its lease died
	// Class is that of the record when the attempt ended, at most 64 bytes of it; "" where its
	// lease died.
	Class string
	// Err is at most 60 bytes of the error's text. Where the room of a record's Past is short, the
	// texts go first, and then attempts from the middle: the first one and the newest stay.
	Err      string
	Reopened bool // the next claim was a replay's
}

// Expired reports whether the record's retention has ended: to claims, Get and List it then
// counts as absent, removed or not.
func (r *Record) Expired(now time.Time) bool {
	switch r.Status {
	case Done, Failed, Released:
		return !now.Before(r.Expires)
	case Claimed, Parked: // their retention has not begun
	}
	return false
}

// Clone is a deep copy. An empty result stays empty and an absent one absent.
func (r *Record) Clone() *Record {
	c := *r
	c.Fingerprint = bytes.Clone(r.Fingerprint)
	c.Result = bytes.Clone(r.Result)
	c.State = bytes.Clone(r.State)
	c.Past = slices.Clone(r.Past)
	return &c
}

// ClassInterrupted is the error class of a record that a takeover parked: its owner died, or
// went silent, after the handler had begun.
const ClassInterrupted = "interrupted"

// Errors that stores answer, for one entry or for a whole call.
var (
	// ErrLeaseLost: the token is not the key's present one any more, or what it held has
	// ended. Nothing was written. Repeating cannot help.
	ErrLeaseLost = errors.New("dedupe: lease lost")
	// ErrBusy: the record is locked by a transaction, or the database is. Nothing was written and
	// nothing is lost; repeat.
	ErrBusy = errors.New("dedupe: record locked by a transaction")
	// ErrResultSize: the result is larger than Limits.MaxResult. Nothing was written.
	ErrResultSize = errors.New("dedupe: result too large")
	// ErrFull: a bounded store has no room and nothing it may evict.
	ErrFull = errors.New("dedupe: store full")
	// ErrBadKey: the key cannot be stored; see [Key.Validate].
	ErrBadKey = errors.New("dedupe: bad key")
	// ErrBadRequest: an entry's other fields make no sense. A fault of the caller.
	ErrBadRequest = errors.New("dedupe: bad request")
	// ErrClosed: the store was closed by its owner.
	ErrClosed = errors.New("dedupe: store closed")
)
