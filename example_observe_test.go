package onceq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/onceq/onceq"
)

// meter is an Observer: the seam for metrics and traces. JobStarted may put a span into the
// context; JobEnded gets that context, and is told of every delivery, also of those whose handler
// never started.
type meter struct{ outcomes map[onceq.Outcome]int }

func (m *meter) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	return context.WithValue(ctx, spanKey{}, "span of "+j.Key().Key)
}

func (m *meter) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	m.outcomes[r.Outcome]++ // a real one locks: it is called from many goroutines
	if span := ctx.Value(spanKey{}); span != nil {
		fmt.Println(span, "ends")
	}
}

type spanKey struct{}

// An Observer counts what becomes of the deliveries.
func ExampleObserver() {
	m := &meter{outcomes: make(map[onceq.Outcome]int)}
	queue, dead, store := inMemory()
	c := onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				fmt.Println(ctx.Value(spanKey{}))
				return nil
			}),
			Observer: m,
			Store:    store, Scope: "mails", DeadLetter: dead,
		},
		Broker: queue,
	}
	for range 3 {
		send(queue, "mail-7", "")
		work(c, 1)
	}
	fmt.Println(m.outcomes)
	// Output:
	// span of mail-7
	// span of mail-7 ends
	// map[already-done:2 done:1]
}

// jobLines leaves out what a worker logs of itself: that it starts, and drains.
type jobLines struct{ slog.Handler }

func (h jobLines) Handle(ctx context.Context, r slog.Record) error {
	if r.Message != "job" {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// A Logger gets one record for each delivery: a warning where there was a failure. Among its attributes are the
// waiting and working times, and whether the heartbeat was on.
func ExampleTimingRecord() {
	logger := slog.New(jobLines{slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case "time", "job", "fence", "queue_wait", "process": // they differ from run to run
				return slog.Attr{}
			}
			return a
		},
	})})
	queue, dead, store := inMemory()
	send(queue, "mail-7", "")
	work(onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				if j.Attempt == 1 {
					return onceq.RetryAfter(0, errors.New("greylisted"))
				}
				return nil
			}),
			Logger: logger,
			Store:  store, Scope: "mails", DeadLetter: dead,
		},
		Broker: queue,
	}, 2)
	// Output:
	// level=WARN msg=job outcome=retried scope=mails key=mail-7 attempt=1 visibility=30s heartbeat=true beats=0 receives=1 class=error error=greylisted
	// level=INFO msg=job outcome=done scope=mails key=mail-7 attempt=2 visibility=30s heartbeat=true beats=0 receives=2
}
