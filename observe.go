package onceq

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns what an Observer is told: the record of each delivery, and the events of a Worker.
// Many goroutines call it. No lock is held meanwhile, and a panic of the user's is caught.

// JobReport tells how one delivery, or one call of [Do], went. There is one for every
// disposition, and it is what the Logger gets. So one line shows, for example, that a job without a
// heartbeat took longer than its message was hidden.
type JobReport struct {
	JobID string
	Type  string
	Key   dedupe.Key
	// Outcome is how the delivery went. For a message that could not be claimed, or was too old to
	// start, it is the class of the dead letter.
	Outcome Outcome
	// ErrClass and Err tell of the failure, if there was one.
	ErrClass, Err string
	// QueueWait is the time from the publishing, or the not-before, to the start of the handler. 0
	// where the broker does not tell, or no handler started.
	QueueWait time.Duration
	// Process is the handler's time.
	Process time.Duration
	// Visibility is how long the delivery, or the claim, is held without a heartbeat.
	Visibility time.Duration
	// Heartbeat reports whether the delivery is extended while the handler runs.
	Heartbeat bool
	// Beats is how often it was extended.
	Beats int
	// Attempt counts the runs of the job, and Receives the broker's deliveries (0 = it does not
	// count).
	Attempt, Receives int
	// Fence is the claim's number; 0 = none was won.
	Fence uint64
	// Result is what is kept with the key, when the job is done.
	Result []byte
	// Queue is ProcessorConfig.Queue, or its default.
	Queue string
	// Ran reports whether the handler was started. Began and Ended are when it was, and when it
	// returned: zero where it was not, and Ended also where the job was abandoned.
	Ran          bool
	Began, Ended time.Time
	// Held is from the receive to the start of the handler: waiting for a slot, and the claim. For
	// Do it is from the call's claim. 0 where no handler started.
	Held time.Duration
	// Settle is from the handler's return to the disposition: the store, and the dead-letter queue.
	// 0 where no handler started, and where the job was abandoned.
	Settle time.Duration
	// Age is from Meta.Created, else the publishing, to the disposition; 0 where neither is known,
	// as in Do. It counts all attempts and delays.
	Age time.Duration
	// Delay is after what time the message comes again; 0 after an ack.
	Delay time.Duration
	// Policy says what happens when the run is interrupted, where the key was claimed.
	Policy dedupe.Policy
	// PrevClass is the class of the failure before this attempt: of a job that is done at its third
	// attempt, what it failed with at its second. "" = there was none.
	PrevClass string
	// Saved is the name of the step that the job saved last, in this run or an earlier one; "" = it
	// has saved none.
	Saved string
	// Why is what a job that was postponed waits for: the text of its handler's error, clipped; ""
	// for other outcomes.
	Why string
	// Limiter is the name of the limiter that has postponed the job, as package limit names them;
	// "" = none has.
	Limiter string
	// From is the owner whose dead lease this claim took over, and DeadFor how long that had been
	// dead. "" = nobody's.
	From    string
	DeadFor time.Duration
}

// Observer is told of each job's start and end. Many goroutines call it: of a start, the one that
// runs the handler; of an end, the one that has settled or claimed a whole batch. So it must be
// quick, because an Observer that blocks holds up the other jobs of the batch. The same is true of
// a Logger. A panic of the Observer's is logged, and does no harm to the job; one of the Logger's
// loses its line.
type Observer interface {
	// JobStarted is called before the handler. The handler gets the context that JobStarted
	// returns, which must be made from ctx; nil means ctx itself.
	JobStarted(ctx context.Context, j *Job) context.Context
	// JobEnded is called once for every delivery, and once for every call of Do. Its ctx is the one
	// that JobStarted returned, so that a span that was put there can be ended. Where no handler
	// has started, ctx is the delivery's own. It has mostly ended when JobEnded is called: use
	// [context.WithoutCancel] for calls that need a context which has not.
	//
	// A job that was abandoned has the outcome "abandoned". Its handler may still run, and its
	// record has no key where its claim was not answered. A [DrainError], or Process, tells of it
	// as well.
	JobEnded(ctx context.Context, r *JobReport)
}

// attrs leave out what is empty, so that a line holds what there is to read.
func (t *JobReport) attrs() []slog.Attr {
	as := []slog.Attr{
		slog.String("job", verdict.Clip(t.JobID, engine.MaxLogged)), slog.String("outcome", string(t.Outcome)),
		slog.String("scope", t.Key.Scope), slog.String("key", t.Key.Key),
	}
	if t.Attempt > 0 {
		as = append(as, slog.Int("attempt", t.Attempt))
		if t.ErrClass == "" || t.Outcome == OutcomeRetried || t.Outcome == OutcomeLeaseLost {
			// The fence of a job that has failed, or is parked, is the permission to run it again,
			// and many people read logs.
			as = append(as, slog.Uint64("fence", t.Fence))
		}
		as = append(as, slog.Duration("queue_wait", t.QueueWait), slog.Duration("process", t.Process))
	}
	as = append(as, slog.Duration("visibility", t.Visibility), slog.Bool("heartbeat", t.Heartbeat), slog.Int("beats", t.Beats))
	if t.Type != "" {
		as = append(as, slog.String("type", verdict.Clip(t.Type, engine.MaxLogged)))
	}
	if t.Receives > 0 {
		as = append(as, slog.Int("receives", t.Receives))
	}
	if t.Saved != "" {
		as = append(as, slog.String("saved", t.Saved))
	}
	if t.Outcome == OutcomePostponed {
		as = append(as, slog.Duration("delay", t.Delay), slog.String("why", t.Why))
		if t.Limiter != "" {
			as = append(as, slog.String("limiter", t.Limiter))
		}
	}
	if t.ErrClass != "" {
		as = append(as, slog.String("class", t.ErrClass), slog.String("error", t.Err))
	}
	if t.Result != nil {
		as = append(as, slog.Int("result_bytes", len(t.Result)))
	}
	return as
}

// processName is the default Owner: "host/pid".
var processName = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return verdict.Clip(host, maxScope-24) + "/" + strconv.Itoa(os.Getpid())
})

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
	// Queue is the worker's, as in JobReport.Queue. The store belongs to all workers of a
	// Processor: its outage is told of once, by the worker that has met it.
	Queue string
	// Reason says more: which pause began or ended (ReasonLocal, ReasonRules, ReasonBreaker), or
	// what is away (ReasonStore, ReasonQueue, ReasonLetters). Empty for the other kinds.
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
	// ReasonBreaker: a breaker of the program is open; see Worker.Brake.
	ReasonBreaker = "breaker"
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
	if why&engine.ByBreaker != 0 {
		rs = append(rs, ReasonBreaker)
	}
	return rs
}
