package otelonceq

import (
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// QueueOptions say how often depths are read.
type QueueOptions struct {
	// Every is the time between two readings, give or take 10 %. Default 30 s; 1 s to 1 h. On SQS a
	// reading is a request.
	Every time.Duration
	// Timeout bounds one reading. Default 5 s; at least 1 ms.
	Timeout time.Duration
}

// A Queue is one whose depth is to be read.
type Queue struct {
	// Name is the label. Default: what the broker's Describe says.
	Name string
	// Broker tells the depth. Required: the driver itself, or whatever implements it.
	Broker broker.Depther
	// DeadLetterOf makes this a queue of dead letters, and is the name of the queue that they come
	// from. Its size is then dead_letter_queue_size of that queue, and what is sent to it does not
	// count as enqueued jobs.
	DeadLetterOf string
	// Store is that of the queue's workers. It is asked for their seats, which worker_seats counts,
	// and for operators' pauses, which pause_since_seconds shows by scope and type. On DynamoDB
	// that takes 130 read units or more each time, so one program should do it for all. Default
	// nil: neither is read.
	Store dedupe.Store
}

// depths are the queues of one call of Queues.
type depths struct {
	t      *Telemetry
	o      QueueOptions
	gauges []*gauge
}

// staleAfter is for how many rounds a number that could not be read again is still shown.
const staleAfter = 3

// fresh reports whether what was read at that time is still shown.
func (d *depths) fresh(at time.Time) bool {
	return !at.IsZero() && time.Since(at) <= staleAfter*d.o.Every+d.o.Timeout
}

// gauge is what is known of one queue.
type gauge struct {
	Queue
	sets [3]set

	mu      sync.Mutex
	depth   broker.Depth
	at      time.Time // of the last answer; zero = there was none
	reading bool
	failing bool

	seats          int64
	seatsAt        time.Time // as at
	asking, silent bool      // of the store, as reading and failing
}
