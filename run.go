package onceq

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/verdict"
	"github.com/onceq/onceq/visibility"
)

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

// run is one delivery on its way through the Processor: one allocation for all that a job needs.
//
// The fields in the first block are written by the one goroutine that has the run at that time (the
// poller, the claim, the handler, the settlement, in this order); those below mu by several.
type run struct {
	job     Job
	message *broker.Message // as it was received; the job's is the user's to change
	f       *flow
	ctx     lazyContext

	held    visibility.Held[*run]
	opts    jobOptions
	key     dedupe.Key
	token   dedupe.Token
	fence   uint64
	verdict verdict.Verdict
	known   *known
	later   *later
	began   time.Duration  // when the handler began, since the flow's epoch
	ended   time.Duration  // when it returned, or was found not to start
	ran     bool           // it began
	whole   bool           // it began with at least half of its batch's time left
	missed  missed         // the beats', of which one at most is in flight
	tries   int32          // of the present step
	index   int32          // of the delivery in its batch
	said    dedupe.Outcome // by the claim
	action  Action
	left    uint8 // the phase in which it was abandoned
	outcome Outcome

	// The flow's, under its lock.
	prev, next *run
	lane       *lane // while it is the one of its group that is on its way
	retry      *time.Timer
	follows    bool // it waits behind that one
	inSlot     bool
	unsettled  bool
	troubled   bool // the store could not answer its claim

	phase  atomic.Uint32
	joined atomic.Bool

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
// from then on: beats read it.
type known struct {
	until       time.Time // the delivery cannot be held beyond; zero = none
	fingerprint []byte
	reopens     uint64 // the fence of the failure that the message may reopen
	stales      int
	firstErr    string
	record      *dedupe.Record
}

// later is what the handler makes of few runs, and the steps that are repeated. It belongs to the
// goroutine that has the run; no beat looks at it.
type later struct {
	result  []byte
	timeout *time.Timer // of the job, where the manager does not keep its claim
	dead    broker.Dead
	fit     letter.Fit    // how far the letter has been shrunk
	giveUp  time.Time     // when the present step is no longer repeated
	alone   time.Time     // since when the store errs on its claim alone
	failing time.Duration // since the Processor's epoch: when a call for its claim first failed that had no other entry
}

// jobOptions are what holds for one job, after its Meta, its type's options and the defaults.
type jobOptions struct {
	most    int32
	policy  dedupe.Policy
	timeout time.Duration
	backoff func(int, error) time.Duration
}

// given is the room for a copy of a message. Those of one receive are allocated together.
type given struct {
	message broker.Message
	meta    broker.Meta
}

// give lets the user have a copy of the message, so that the letter is made from what was received whatever becomes of it.
func (r *run) give() {
	m, meta := r.job.Message, r.job.Message.Meta
	*m = *r.message
	m.Attributes = maps.Clone(m.Attributes)
	if m.Meta == nil {
		return
	}
	*meta = *m.Meta
	if meta.Dead != nil {
		meta.Dead = m.Meta.Clone().Dead
	}
	m.Meta = meta
}

// knows makes room for what the claim knows.
func (r *run) knows() *known {
	if r.known == nil {
		r.known = new(known)
	}
	return r.known
}

// makes makes room for what the handler makes.
func (r *run) makes() *later {
	if r.later == nil {
		r.later = new(later)
	}
	return r.later
}

// begun is how often the job's handler has been started.
func (r *run) begun() int {
	if !r.ran {
		return r.job.Attempt - 1
	}
	return r.job.Attempt
}

// result is what is to be kept with the key; nil = nothing.
func (r *run) result() []byte {
	if r.later == nil {
		return nil
	}
	return r.later.result
}

// outOfTime is the cause with which the batch's Deadline ends the handler's context. One that began late is not to blame.
func (r *run) outOfTime() error {
	if r.at() >= running && r.whole {
		return ErrTimeout
	}
	return ErrDraining
}

// again puts the run into the queue after d, unless it has been given up by then.
func (r *run) again(d time.Duration, q func() queueOfRuns) {
	time.AfterFunc(d, func() {
		if !r.isOver() {
			q().Add(r)
		}
	})
}

// repeats counts a failed try of the present step, and tells whether it may be tried again: for d from the first
// failure.
func (r *run) repeats(d time.Duration) bool {
	now := time.Now()
	if r.tries++; r.tries == 1 {
		r.makes().giveUp = now.Add(d)
	}
	return now.Before(r.later.giveUp)
}

// errsAlone is how long the store has erred on the run's claim, and not on the whole call.
func (r *run) errsAlone(alone bool) time.Duration {
	switch {
	case !alone:
		if r.later != nil {
			r.later.alone = time.Time{}
		}
		return 0
	case r.makes().alone.IsZero():
		r.later.alone = time.Now()
	}
	return time.Since(r.later.alone)
}

// advance moves the run to a later phase. It is false when the run is there already, or beyond: somebody
// else has ended it.
func (r *run) advance(to phase) bool {
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

// giveUp ends the run wherever it is, and notes how far it had got. It is false when the run is over.
func (r *run) giveUp() bool {
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

func (r *run) at() phase { return phase(r.phase.Load()) }

func (r *run) isOver() bool { return r.at() == over }

// living are those of a batch that have not been given up while they waited for their turn: a call that hangs may have
// outlasted who wanted them.
func living(rs []*run) []*run { return slices.DeleteFunc(rs, (*run).isOver) }

// grouped tells whether the run's place in its group matters.
func (r *run) grouped() bool {
	return r.f.t.ordered && r.message != nil && r.message.Group != ""
}

// currentReceipt is the newest delivery's: a redelivery hands its own over to the run.
func (r *run) currentReceipt() broker.Receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.receipt
}
