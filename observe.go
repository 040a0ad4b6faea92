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

// TimingRecord tells how one delivery went. There is one for every disposition, and it is what is
// logged: that the heartbeat was off and a job outlived its timeout is read from one line.
type TimingRecord struct {
	JobID string
	Type  string
	Key   dedupe.Key
	// Outcome is how the delivery went. The Outcome of a message that could not be claimed, or was
	// too old to start, is the class of its dead letter.
	Outcome Outcome
	// ErrClass and Err tell of the failure, if there was one.
	ErrClass, Err string
	// QueueWait is from the publishing, or the not-before, to the start of the handler; 0 where the
	// broker does not tell, or no handler started.
	QueueWait time.Duration
	// Process is the handler's time.
	Process time.Duration
	// Visibility is how long the delivery, or the claim, is held without a heartbeat.
	Visibility time.Duration
	// Heartbeat tells whether the delivery is extended while the handler runs.
	Heartbeat bool
	// Beats is how often it was.
	Beats int
	// Attempt counts the runs of the job, and Receives the broker's deliveries (0 = it does not
	// count).
	Attempt, Receives int
	// Fence is the claim's number; 0 = none was won.
	Fence uint64
	// Result is what is kept with the key, when the job is done.
	Result []byte
}

// Observer is told of each job's start and end, from many goroutines: of a start by the one that
// runs the handler, of an end by the one that has settled a whole batch, or claimed it. So it must
// be quick: one that blocks holds up the other jobs of the batch; the same holds for a Logger. What
// it panics with is logged and does no harm to the job.
type Observer interface {
	// JobStarted is called before the handler. The handler gets the context that it returns, which
	// must be made from ctx; nil stands for ctx.
	JobStarted(ctx context.Context, j *Job) context.Context
	// JobEnded is called once for every delivery, and once for every call of Do. Its ctx is the one
	// that JobStarted returned, so that a span that was put there can be ended. Where no handler
	// has started it is the delivery's own. It has mostly ended when JobEnded is called: take
	// [context.WithoutCancel] of it for calls that need a context which lives.
	//
	// A job that was abandoned has the outcome "abandoned". Its handler may still run, and its
	// record has no key where its claim was not answered. A [DrainError], or Process, tells of it
	// as well.
	JobEnded(ctx context.Context, r *TimingRecord)
}

// attrs leave out what is empty, so that a line holds what there is to read.
func (t *TimingRecord) attrs() []slog.Attr {
	as := []slog.Attr{
		slog.String("job", verdict.Clip(t.JobID, engine.MaxLogged)), slog.String("outcome", string(t.Outcome)),
		slog.String("scope", t.Key.Scope), slog.String("key", t.Key.Key),
	}
	if t.Attempt > 0 {
		as = append(as, slog.Int("attempt", t.Attempt))
		if t.ErrClass == "" || t.Outcome == OutcomeRetried || t.Outcome == OutcomeLeaseLost {
			// That of a job that has failed, or is parked, is the permission to run it again, and
			// logs are read by many.
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
	if t.ErrClass != "" {
		as = append(as, slog.String("class", t.ErrClass), slog.String("error", t.Err))
	}
	if t.Result != nil {
		as = append(as, slog.Int("result_bytes", len(t.Result)))
	}
	return as
}

// processName is the default Owner.
var processName = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return verdict.Clip(host, maxScope-24) + "/" + strconv.Itoa(os.Getpid())
})
