package otelonceq

import (
	"runtime/debug"
	"sync"

	"go.opentelemetry.io/otel/attribute"
)

// This file owns the names: of instruments, with unit and buckets, and of labels and attributes.
// They are a promise to dashboards and alerts, so none of them ever changes. telemetry.go makes
// the instruments of this table; the tests compare it with what a scrape shows.

// scopeName names this package to OpenTelemetry.
const scopeName = "github.com/onceq/onceq/adapters/otelonceq"

// schemaURL names the conventions that messaging.* and error.type are taken from.
const schemaURL = "https://opentelemetry.io/schemas/1.43.0"

// version is this module's in the program; empty where it was not built from modules.
var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if info.Main.Path == scopeName {
		return info.Main.Version
	}
	for _, m := range info.Deps {
		if m.Path == scopeName {
			return m.Version
		}
	}
	return ""
})

// An instrument is a row of the table. The Prometheus exporter appends _total to counters and
// _seconds to the unit s, and drops units in braces.
type instrument struct {
	name, unit, about string
	buckets           []float64
}

var (
	jobEnqueued  = instrument{name: "jobs.enqueued", unit: "{job}", about: "Messages that the queue has accepted."}
	jobCompleted = instrument{name: "jobs.completed", unit: "{job}", about: "Jobs that are done."}
	jobFailed    = instrument{name: "jobs.failed", unit: "{job}", about: "Runs that ended in an error, and jobs that were refused; final says that no attempt follows."}
	jobEnded     = instrument{name: "jobs.ended", unit: "{job}", about: "Deliveries by their outcome, duplicates among them."}
	jobRetried   = instrument{name: "jobs.retried", unit: "{job}", about: "Runs that failed and are tried again."}
	jobPostponed = instrument{name: "jobs.postponed", unit: "{job}", about: "Jobs that a limiter has given back until their time."}
	jobStalled   = instrument{name: "jobs.stalled", unit: "{job}", about: "Jobs that were taken over from a worker whose lease had died."}
	jobLateEnd   = instrument{name: "jobs.late_end", unit: "{job}", about: "Runs whose end could not be recorded: the lease was lost, the store did not answer, or a drain was over."}
	letterFates  = instrument{name: "replays.letters", unit: "{letter}", about: "Dead letters that a replay or a purge has looked at, by what became of them."}
	contextLost  = instrument{name: "trace.context.dropped", unit: "{message}", about: "Messages that had no room for a part of the trace context."}

	jobAttempts = instrument{
		name: "job.attempts", about: "How many attempts a job took until it was done, failed or parked, by the class of its last error.",
		buckets: []float64{1, 2, 3, 4, 5, 7, 10, 15, 20, 50},
	}
	jobDuration = instrument{
		name: "job.duration", unit: "s", about: "The time of one run of the handler.",
		buckets: []float64{.01, .025, .1, .5, 1, 5, 10, 30, 60, 300, 1800, 7200},
	}
	jobWait = instrument{
		name: "job.wait", unit: "s", about: "From the sending, or the not-before, to the start of the first attempt.",
		buckets: []float64{.05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600},
	}
	jobAge = instrument{
		name: "job.age", unit: "s", about: "From the making of a job until it is done, all attempts and waits included.",
		buckets: []float64{.1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400},
	}
	jobHeld = instrument{
		name: "job.held", unit: "s", about: "From the receive to the start of the handler: waiting for a slot, and the claim.",
		buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60},
	}
	jobSettle = instrument{
		name: "job.settle", unit: "s", about: "From the handler's return until its end is recorded.",
		buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60},
	}
	leaseMargin = instrument{
		name: "lease.margin", unit: "s", about: "The least time that was left of a lease when it was renewed, between two readings.",
		buckets: []float64{0, .5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 60},
	}
	storeCall = instrument{
		name: "store.call", unit: "s", about: "One call of the store.",
		buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}

	queueDepth   = instrument{name: "queue.depth", unit: "{job}", about: "How many messages the queue has, as the broker tells."}
	deadLetters  = instrument{name: "dead_letter_queue.size", unit: "{letter}", about: "How many dead letters the queue named has, visible and in flight."}
	jobsActive   = instrument{name: "jobs.active", unit: "{job}", about: "Handlers' slots that are busy, from the claim to the return."}
	workerSlots  = instrument{name: "worker.slots", unit: "{slot}", about: "How many handlers may run at once."}
	workerBusy   = instrument{name: "worker.utilization", unit: "1", about: "Busy slots by all slots."}
	workerStates = instrument{name: "worker.state", unit: "{worker}", about: "How many Workers of this process are in the state."}
	workerSeats  = instrument{name: "worker.seats", unit: "{worker}", about: "Live workers of the queue in all processes, as the store knows them."}
	pauseSince   = instrument{name: "pause.since", unit: "s", about: "The Unix time since which the rule has paused."}

	messagingProcess = instrument{
		name: "messaging.process.duration", unit: "s", about: "Duration of processing operation.",
		buckets: conventionBuckets,
	}
	messagingOperation = instrument{
		name: "messaging.client.operation.duration", unit: "s", about: "Duration of messaging operation initiated by a producer or consumer client.",
		buckets: conventionBuckets,
	}
	messagingSent     = instrument{name: "messaging.client.sent.messages", unit: "{message}", about: "Number of messages producer attempted to send to the broker."}
	messagingConsumed = instrument{name: "messaging.client.consumed.messages", unit: "{message}", about: "Number of messages that were delivered to the application."}
)

// conventionBuckets are those that the conventions ask for.
var conventionBuckets = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10}

// Labels of metrics.
const (
	labelQueue     = attribute.Key("queue")
	labelType      = attribute.Key("type")
	labelClass     = attribute.Key("error_class")
	labelOutcome   = attribute.Key("outcome")
	labelSource    = attribute.Key("source")
	labelFinal     = attribute.Key("final")
	labelState     = attribute.Key("state")
	labelScope     = attribute.Key("scope")
	labelFate      = attribute.Key("fate")
	labelStore     = attribute.Key("store")
	labelOperation = attribute.Key("operation")
	labelPart      = attribute.Key("part")
	labelLimiter   = attribute.Key("limiter")
)

// Attributes of spans, and labels of messaging.*: those of the conventions, and our own.
const (
	attrSystem        = attribute.Key("messaging.system")
	attrDestination   = attribute.Key("messaging.destination.name")
	attrOperationName = attribute.Key("messaging.operation.name")
	attrOperationType = attribute.Key("messaging.operation.type")
	attrMessageID     = attribute.Key("messaging.message.id")
	attrConversation  = attribute.Key("messaging.message.conversation_id")
	attrBatch         = attribute.Key("messaging.batch.message_count")
	attrErrorType     = attribute.Key("error.type")

	attrJob      = attribute.Key("onceq.job.id")
	attrJobKey   = attribute.Key("onceq.job.key")
	attrJobType  = attribute.Key("onceq.job.type")
	attrAttempt  = attribute.Key("onceq.job.attempt")
	attrFence    = attribute.Key("onceq.fence")
	attrReceives = attribute.Key("onceq.receives")
	attrFrom     = attribute.Key("onceq.from")
	attrOutcome  = attribute.Key("onceq.outcome")
	// of a run that failed and is tried again
	attrErrorClass = attribute.Key("onceq.error_class")
	attrQueueWait  = attribute.Key("onceq.queue_wait_ms")
	attrBeats      = attribute.Key("onceq.beats")
	attrSettleMs   = attribute.Key("onceq.settle_ms")
	attrDead       = attribute.Key("dead_ms")
)

// What labels say where there is no name of its own.
const (
	other   = "_other"  // a type or class beyond the bound
	unknown = "unknown" // a queue or store that does not tell its name
)
