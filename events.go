package onceq

import (
	"context"
	"time"

	"github.com/onceq/onceq/internal/engine"
)

// WorkerObserver is an optional interface of an [Observer]: it gets what happens to a worker as a
// whole, where the log has a line of it. NewProcessor looks for it in ProcessorConfig.Observer, and
// in what that wraps ([github.com/onceq/onceq/broker.As]).
//
// WorkerEvent is called by the goroutine that has met the event, never under a lock of ours, and
// must be quick. It may call the Worker. Its context has the values of Run's and does not end. A
// panic is logged, and does no harm.
type WorkerObserver interface {
	WorkerEvent(ctx context.Context, e *WorkerEvent)
}

// WorkerEvent is something that happened to a worker as a whole.
type WorkerEvent struct {
	Kind WorkerEventKind
	// Queue is the worker's, as in TimingRecord.Queue. The store belongs to all workers of a
	// Processor: its outage is told of once, by the worker that has met it.
	Queue string
	// Reason says more: which pause began or ended (ReasonLocal, ReasonRules), or what is away
	// (ReasonStore, ReasonQueue, ReasonLetters). Empty for the other kinds.
	Reason string
	// Err is the error of an outage or a drain; nil = none.
	Err error
	// Since is when what the event ends, or tells of, began: of an outage its first failure, of
	// resumed the pause, of drained the drain. Otherwise it is the time of the event.
	Since time.Time
}

// WorkerEventKind names what happened. The text of a constant never changes.
type WorkerEventKind string

// The kinds of events.
const (
	// EventStarted: Run begins, and is about to receive unless it is paused.
	EventStarted WorkerEventKind = "started"
	// EventPaused: nothing is received from now on, for the Reason. A worker may be paused for
	// several reasons, and there is an event for each.
	EventPaused WorkerEventKind = "paused"
	// EventResumed: the pause for the Reason is over. Others may still hold: see Stats.Paused.
	EventResumed WorkerEventKind = "resumed"
	// EventOutage: the store, the queue or the dead-letter queue does not answer. While that lasts
	// it is told again every 5 minutes, with the same Since.
	EventOutage WorkerEventKind = "outage"
	// EventOutageOver: it answers again.
	EventOutageOver WorkerEventKind = "outage-over"
	// EventDraining: the context of Run has ended. Nothing is received any more.
	EventDraining WorkerEventKind = "draining"
	// EventDrained: the drain is over. Err is its *DrainError, if jobs were abandoned.
	EventDrained WorkerEventKind = "drained"
	// EventSeatLost: another process has taken the worker's seat; it takes a new one.
	EventSeatLost WorkerEventKind = "seat-lost"
	// EventStoreWentBack: the store gave a fence a second time, or lost rules that were obeyed, as
	// by the restore of a backup. Err says which. Where the Processor obeys operators, the queue is
	// paused next.
	EventStoreWentBack WorkerEventKind = "store-went-back"
	// EventRuleRefused: an operator's rule could not be read or obeyed, and Err says why.
	EventRuleRefused WorkerEventKind = "rule-refused"
)

// The reasons of pauses and outages.
const (
	// ReasonLocal: the program has called Pause.
	ReasonLocal = "local"
	// ReasonRules: an operator's rule holds.
	ReasonRules = "rules"
	// ReasonStore: the store does not answer.
	ReasonStore = "store"
	// ReasonQueue: the queue does not answer a receive.
	ReasonQueue = "queue"
	// ReasonLetters: the dead-letter queue takes nothing.
	ReasonLetters = "letters"
)

// reasons are the words for why a flow is paused. A batch that has too little time left, or no
// store, is no worker's pause.
func reasons(why engine.Pauses) (rs []string) {
	if why&engine.ByHand != 0 {
		rs = append(rs, ReasonLocal)
	}
	if why&engine.ByRules != 0 {
		rs = append(rs, ReasonRules)
	}
	return rs
}
