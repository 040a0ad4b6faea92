package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/batch"
	"github.com/onceq/onceq/internal/digest"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/verdict"
	"github.com/onceq/onceq/visibility"
)

// This file owns a Run: its fields, its phases, and what a host may read and set. The package
// comment says who may write which field in which phase. r.mu guards what beats, extensions and
// redeliveries share. While it is held, nothing but the visibility manager is called.

// phase is how far a run has come. It only rises.
type phase uint32

const (
	waiting  phase = iota // held, unclaimed
	claiming              // the claim is on its way
	claimed               // won; the handler has not begun
	running               // the handler runs
	settling              // the handler has returned
	settled               // the end is known; letter, ack or nack to come
	over                  // its disposition is given
)

// Run is one delivery on its way through the engine: one allocation for all that a job needs.
//
// One goroutine at a time has the run, and writes the fields of the first block. The poller has it
// first, then the claim, the handler and the settlement. Several goroutines write the fields below
// mu.
type Run[J any] struct {
	Job     J
	Message *broker.Message // nobody changes it after the offer, because letters are made of it
	f       *Flow[J]
	ctx     LazyContext

	held    visibility.Held[*Run[J]]
	Opts    JobOptions
	Key     dedupe.Key
	Token   dedupe.Token
	Fence   uint64
	Verdict verdict.Verdict
	known   *known
	later   atomic.Pointer[later] // what the handler makes of few runs; nil = nothing
	began   time.Duration         // when the handler began, since the flow's epoch
	ended   time.Duration         // when it returned, or was found not to start
	came    time.Duration         // when its delivery came; a later one may have been handed over since
	Ran     bool                  // it began
	whole   bool                  // it began with at least half of its batch's time left
	asked   bool                  // the store was asked with the token, so a fence may be of another try
	missed  missed                // belongs to the beats, and at most one beat is in flight
	tries   int32                 // of the present step
	Index   int32                 // of the delivery in its batch
	Said    dedupe.Outcome        // by the claim
	Action  Action
	left    uint8 // the phase in which it was abandoned
	Outcome Outcome

	// The flow's, under its lock.
	prev, next *Run[J]
	lane       *lane[J] // while it is the one of its group that is on its way
	retry      *time.Timer
	follows    bool // it waits behind that one
	inSlot     bool
	unsettled  bool
	troubled   bool // the store could not answer its claim

	phase   atomic.Uint32
	Joined  atomic.Bool
	Attempt int32 // how often the job has been claimed for a run, this one included

	mu           sync.Mutex
	receipt      broker.Receipt
	received     time.Duration // since the flow's epoch
	deliveryEnds time.Time     // when the broker will deliver it again
	extending    chan struct{} // closed when the extension in flight has its answer; nil = there is none
	deliveryLost bool
	totalWarned  bool
	claimHeld    bool // the claim is to be renewed
	keeping      keeping
	beats        int32
}

// known is what the claim knows of few runs. It is written before the claim is held, and only read
// from then on, because beats read it.
type known struct {
	until       time.Time // the delivery cannot be held beyond; zero = none
	fingerprint []byte
	reopens     uint64 // the fence of the failure that the message may reopen
	stales      int
	firstErr    string
	prevClass   string        // of the failure before this attempt
	from        string        // whose dead lease the claim has taken over
	deadFor     time.Duration // how long that was dead
	lastEnd     time.Time     // of the attempt before this one
	state       []byte        // what earlier attempts saved, and its number
	stateNo     int
	record      *dedupe.Record
	parked      bool // by this claim: whoever had it before is dead, or silent
}

// later is what the handler makes of few runs, and what steps need that are repeated. It belongs to
// the goroutine that has the run; no beat looks at it.
type later struct {
	result  []byte
	saved   atomic.Pointer[saved]
	due     time.Time   // when a job that was postponed goes on
	why     string      // it was postponed, for people
	limiter string      // that has postponed it; "" = none has
	timeout *time.Timer // of the job, where the manager does not keep its claim
	carryOr *Refusal    // its message comes for the last time: what follows if no copy can be sent
	dead    broker.Letter
	fit     letter.Fit    // how far the letter has been shrunk
	carried bool          // its message was sent anew
	giveUp  time.Time     // when the present step is no longer repeated
	alone   time.Time     // since when the store errs on this run alone
	failing time.Duration // since the engine's epoch: when a call first failed that had no entry but this run
	others  time.Duration // since the engine's epoch: the answer to another claim that this run's last error found
}

// JobOptions are what holds for one job, after its Meta, its type's options and the defaults.
type JobOptions struct {
	Most   int32
	Policy dedupe.Policy
	// StartsLater says that the handler waits before it does anything. It has the start recorded
	// then, under Park, by ConfirmStarts.
	StartsLater bool
	Timeout     time.Duration
	Backoff     func(int, error) time.Duration
}

// ensureKnown makes room for what the claim knows.
func (r *Run[J]) ensureKnown() *known {
	if r.known == nil {
		r.known = new(known)
	}
	return r.known
}

// ensureLater makes room for what the handler makes. The handler may have goroutines of its own, so
// two may call it at once.
func (r *Run[J]) ensureLater() *later {
	if l := r.later.Load(); l != nil {
		return l
	}
	r.later.CompareAndSwap(nil, new(later))
	return r.later.Load()
}

// begun is how often the job's handler has been started.
func (r *Run[J]) begun() int {
	if !r.Ran {
		return int(r.Attempt) - 1
	}
	return int(r.Attempt)
}

// Result is what is to be kept with the key; nil = nothing.
func (r *Run[J]) Result() []byte {
	if r.later.Load() == nil {
		return nil
	}
	return r.later.Load().result
}

// LastSaved is the name under which the job has saved last; "" = it has not. Who settles the run
// calls it.
func (r *Run[J]) LastSaved() string {
	if l := r.later.Load(); l != nil && l.saved.Load() != nil {
		s := l.saved.Load()
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.last
	}
	if r.known == nil {
		return ""
	}
	return lastIn(r.known.state) // of earlier attempts: this one has not asked
}

// Due is when a job that was postponed goes on; zero = it was not.
func (r *Run[J]) Due() time.Time {
	l := r.later.Load()
	if l == nil {
		return time.Time{}
	}
	return l.due
}

// Why is the text of the error that postponed the job; "" = none did.
func (r *Run[J]) Why() string {
	l := r.later.Load()
	if l == nil {
		return ""
	}
	return l.why
}

// Limiter is the name of the limiter that has postponed the job; "" = none has.
func (r *Run[J]) Limiter() string {
	l := r.later.Load()
	if l == nil {
		return ""
	}
	return l.limiter
}

// SetCarryOr says that the run's message comes for the last time, and can be sent anew: no follows
// where that fails. The handler's goroutine calls it, or who admits the run.
func (r *Run[J]) SetCarryOr(no *Refusal) { r.ensureLater().carryOr = no }

// CarryOr is what SetCarryOr was told; nil = nothing.
func (r *Run[J]) CarryOr() *Refusal {
	if l := r.later.Load(); l != nil {
		return l.carryOr
	}
	return nil
}

// IsCarried reports whether the run's message was sent anew before its end was known.
func (r *Run[J]) IsCarried() bool {
	l := r.later.Load()
	return l != nil && l.carried
}

// Anew begins another step of a run that is over, with its own tries.
func (r *Run[J]) Anew() { r.tries = 0 }

// outOfTime is the cause with which the batch's Deadline ends the handler's context. A handler that
// began with less than half of the batch's time left is not to blame.
func (r *Run[J]) outOfTime() error {
	if r.at() >= running && r.whole {
		return verdict.ErrTimeout
	}
	return verdict.ErrDraining
}

// again puts the run into the queue after d, unless it has been given up by then.
func (r *Run[J]) again(d time.Duration, q func() *batch.Queue[*Run[J]]) {
	time.AfterFunc(d, func() {
		if !r.IsOver() {
			q().Add(r)
		}
	})
}

// Repeats counts a failed try of the present step, and reports whether the step may be tried again.
// It may for d from the first failure on.
func (r *Run[J]) Repeats(d time.Duration) bool {
	now := time.Now()
	if r.tries++; r.tries == 1 {
		r.ensureLater().giveUp = now.Add(d)
	}
	return now.Before(r.later.Load().giveUp)
}

// erringAlone is how long the store has erred on this run's claim or settlement alone, and not on
// the whole call.
func (r *Run[J]) erringAlone(alone bool) time.Duration {
	switch {
	case !alone:
		if r.later.Load() != nil {
			r.later.Load().alone = time.Time{}
		}
		return 0
	case r.ensureLater().alone.IsZero():
		r.later.Load().alone = time.Now()
	}
	return time.Since(r.later.Load().alone)
}

// advance moves the run to a later phase. It is false when the run is there already, or beyond,
// because somebody else has ended it.
func (r *Run[J]) advance(to phase) bool {
	for {
		at := r.phase.Load()
		if at >= uint32(to) {
			return false
		}
		if r.phase.CompareAndSwap(at, uint32(to)) {
			return true
		}
	}
}

// giveUp ends the run wherever it is, and notes how far it had got. It is false when the run is
// over already.
func (r *Run[J]) giveUp() bool {
	for {
		at := r.at()
		if at == over {
			return false
		}
		if r.phase.CompareAndSwap(uint32(at), uint32(over)) {
			r.left = uint8(at)
			return true
		}
	}
}

func (r *Run[J]) at() phase { return phase(r.phase.Load()) }

// IsOver reports whether the run has its disposition, or was given up.
func (r *Run[J]) IsOver() bool { return r.at() == over }

// living are the runs of a batch that nobody has given up while they waited for their turn. A call
// that hangs may outlast those who wanted them.
func living[J any](rs []*Run[J]) []*Run[J] { return slices.DeleteFunc(rs, (*Run[J]).IsOver) }

// grouped reports whether the run's place in its group matters.
func (r *Run[J]) grouped() bool {
	return r.f.Terms.Ordered && r.Message != nil && r.Message.Group != ""
}

// Receipt is the newest delivery's, because a redelivery hands its own over to the run.
func (r *Run[J]) Receipt() broker.Receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.receipt
}

// MaxLogged is how much of an id or a type a log line holds, in bytes. A message may bring any
// length.
const MaxLogged = 256

// Name is the job's id for logs.
func (r *Run[J]) Name() string { return verdict.Clip(r.ID(), MaxLogged) }

// ID is the job's id: Meta.ID, or the broker's message id for a foreign producer.
func (r *Run[J]) ID() string { return IDOf(r.Message) }

// Type is Meta.Type; empty for a foreign producer.
func (r *Run[J]) Type() string { return TypeOf(r.Message) }

// IDOf is the id of a message's job; "" of nil.
func IDOf(m *broker.Message) string {
	switch {
	case m == nil:
		return ""
	case m.Meta != nil && m.Meta.ID != "":
		return m.Meta.ID
	}
	return m.ID
}

// TypeOf is the type of a message's job; "" of nil.
func TypeOf(m *broker.Message) string {
	if m == nil || m.Meta == nil {
		return ""
	}
	return m.Meta.Type
}

// EffectKey is an idempotency key for one step of the job with the key k. It is used elsewhere, as
// with an API.
func EffectKey(k dedupe.Key, step string) string {
	return digest.Of("onceq effect 1", k.Scope, k.Key, step)
}

func heldOf[J any](rs []*Run[J]) []*visibility.Held[*Run[J]] {
	hs := make([]*visibility.Held[*Run[J]], len(rs))
	for i, r := range rs {
		hs[i] = &r.held
	}
	return hs
}

// NewRun makes the run of a delivery that came now.
func (f *Flow[J]) NewRun(m *broker.Message, now time.Time) *Run[J] {
	r := &Run[J]{f: f, Message: m, received: now.Sub(f.epoch)}
	r.came = r.received
	r.ctx.base = f.Terms.Base //nolint:fatcontext // one level deep: every run has its own
	r.held.Lease = r
	if m != nil {
		r.receipt, r.deliveryEnds = m.Receipt, m.Deadline
	}
	return r
}

// Flow is where the run came in.
func (r *Run[J]) Flow() *Flow[J] { return r.f }

// Context is the handler's.
func (r *Run[J]) Context() *LazyContext { return &r.ctx }

// SetDelivery says when the broker will deliver the message again, before the run is offered.
func (r *Run[J]) SetDelivery(ends time.Time) { r.held.Deadline, r.deliveryEnds = ends, ends }

// SetUntil says that the delivery cannot be held beyond t, before the run is offered.
func (r *Run[J]) SetUntil(t time.Time) { r.ensureKnown().until = t }

// SetFingerprint says what the claim compares, before it is made.
func (r *Run[J]) SetFingerprint(b []byte) { r.ensureKnown().fingerprint = b }

// SetReopens says which failure the claim may reopen, before it is made; 0 = none.
func (r *Run[J]) SetReopens(fence uint64) {
	if fence != 0 {
		r.ensureKnown().reopens = fence
	}
}

// SetResult gives what is to be kept with the key. The handler's goroutine calls it.
func (r *Run[J]) SetResult(b []byte) { r.ensureLater().result = b }

// Record is what the claim has found; nil = nothing, or it has won.
func (r *Run[J]) Record() *dedupe.Record {
	if r.known == nil {
		return nil
	}
	return r.known.record
}

// Tries is how often the present step has failed.
func (r *Run[J]) Tries() int { return int(r.tries) }

// Unclaimed reports whether no claim has been won yet.
func (r *Run[J]) Unclaimed() bool { return r.at() < claimed }

// inDoubt reports whether the run is given back without an answer to its claim.
func (r *Run[J]) inDoubt() bool { return r.Said == 0 && r.Outcome != "" }

// missed is how often in a row a run's renewal has failed with its whole call.
type missed uint8

// keeping says how far the care for a run's delivery has got. The run's lock guards it.
type keeping uint8

const (
	keepQueued  keeping = 1 << iota // it waits for its call, or for another after one that failed
	keepStopped                     // it is not extended any more
)
