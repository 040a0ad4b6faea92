package onceq

import (
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/visibility"
)

// phase is how far a run has come. It only rises.
type phase uint8

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
	job   Job
	p     *Processor
	f     *flow
	index int       // of the delivery in its batch
	until time.Time // the delivery cannot be held beyond; zero = none

	key         dedupe.Key
	fingerprint []byte
	opts        jobOptions
	lease       dedupe.Lease
	token       dedupe.Token
	firstErr    string
	stales      int
	result      []byte
	ctx         lazyContext
	held        visibility.Held[*run]
	verdict     verdict
	settleBy    time.Time
	tries       int // of the present step
	flushing    int // tries of the ack or nack
	dead        broker.Dead
	fit         dlq.Fit // how far the letter has been shrunk
	received    time.Time
	began       time.Time
	took        time.Duration
	outcome     dedupe.Outcome
	record      *dedupe.Record
	disposition Disposition
	class, text string

	// The flow's, under its lock.
	prev, next *run
	lane       *lane // while it is the one of its group that is on its way
	inSlot     bool
	unsettled  bool
	retry      *time.Timer

	mu           sync.Mutex
	phase        phase
	receipt      broker.Receipt
	deliveryEnds time.Time // when the broker will deliver it again
	deliveryLost bool
	totalWarned  bool
	claimHeld    bool // the claim is to be renewed
	joined       bool
	beats        int
}

// jobOptions are what holds for one job, after its Meta, its type's options and the defaults.
type jobOptions struct {
	most    int
	timeout time.Duration
	policy  dedupe.Policy
	backoff func(int, error) time.Duration
}

func (r *run) join() {
	r.mu.Lock()
	r.joined = true
	r.mu.Unlock()
}

func (r *run) isJoined() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.joined
}

// advance moves the run to a later phase. It is false when the run is there already, or beyond: somebody
// else has ended it.
func (r *run) advance(to phase) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase >= to {
		return false
	}
	r.phase = to
	return true
}

func (r *run) at() phase {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.phase
}

func (r *run) isOver() bool { return r.at() == over }

// currentReceipt is the newest delivery's: a redelivery hands its own over to the run.
func (r *run) currentReceipt() broker.Receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.receipt
}
