package engine

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/batch"
	"github.com/onceq/onceq/visibility"
)

// What a lease may be.
const (
	MinLease = 100 * time.Millisecond
	MaxLease = 12 * time.Hour
)

// MaxStoreBatch keeps a batch's statement, and so the wait of its first entry, short.
const MaxStoreBatch = 100

// Options are what an Engine goes by. They are complete and checked, because who makes the Engine
// sets the defaults.
type Options struct {
	Store       dedupe.Store
	StoreOutage *Outage                       // of the Store, which is told of once for all engines on it
	Pulse       *StorePulse                   // of the Store, for all engines on it
	Tell        func(context.Context, Notice) // is told of outages; no lock is held
	// Fences is what is known of the fences of the Store, for all engines on it, and WentBack is
	// told that one was not above what was known when its claim was sent. It is called by the
	// carrier of claims, so it is quick. nil where the Store's fences come in no order.
	Fences        *Fences
	WentBack      func(known, got uint64)
	AskedUnit     *atomic.Bool // a line has asked about a RetryAfter without its unit
	DeadLetter    broker.Sender
	LetterKeys    dlq.Keys
	Source        string // of letters
	Owner         string
	Retention     time.Duration
	Lease         time.Duration
	SettleTimeout time.Duration
	CallTimeout   time.Duration
	HoldGroup     bool
	QueueKeeps    func() time.Duration // for how long the queue keeps a message; nil or 0 = unknown
	AnyAge        bool                 // a job's age is somebody else's to judge: it starts however old it is
	Logger        *slog.Logger
	// Backoff is used where a job's own Backoff panics.
	Backoff func(attempt int, err error) time.Duration
	// Visibility is how long a delivery is extended for, and Limits are those of its queue.
	Visibility time.Duration
	Limits     broker.Limits
	// Limited is told of each job that a limiter has postponed, by the handler's goroutine.
	Limited func(limiter string)
	// Slots is how many handlers run at once; 0 = not known.
	Slots int
}

// Engine claims, renews, settles and dead-letters the runs that its flows bring.
//
// Its methods may be called from many goroutines. What is one run's is under that run's lock, or
// belongs to the goroutine that has the run.
type Engine[J any] struct {
	o      Options
	margin time.Duration // the time before a lease's deadline in which nothing starts under it
	epoch  time.Time

	// What an engine takes for signs of life it has seen itself: a store may answer one scope and
	// not another.
	lettersOut   Outage // of the dead-letter queue
	lettersPulse Pulse
	lastClaim    atomic.Int64 // when, since the epoch, the store last answered a claim without an error
	lastEnd      atomic.Int64 // the same of ends
	lastLetter   atomic.Int64 // the same of letters
	nearest      atomic.Int64 // the least time to a deadline at which a beat was answered
	probed       atomic.Int64 // when, since the epoch, probe last asked
	probeKey     string

	Own Roll  // the flows of this engine
	all *Roll // these, and those of others

	leases  *visibility.Manager[*Run[J]]
	claims  *batch.Queue[*Run[J]]
	settles *batch.Queue[*Run[J]]
	joins   *batch.Queue[*Run[J]]
	saves   *batch.Queue[*Run[J]]
	gone    *batch.Queue[*Run[J]] // whose claims are lost, and whose handlers run
	letters *batch.Queue[*Run[J]]
	holds   *batch.Queue[*Run[J]] // of deliveries, to be extended

	// What the slots start. They do not know how it goes on.
	begin       func([]*Run[J])
	beginOne    func(*Run[J])
	giveBack    func(r *Run[J], d time.Duration, outcome Outcome)
	unreachable func(*Run[J])
	release     func(*Run[J])
}
