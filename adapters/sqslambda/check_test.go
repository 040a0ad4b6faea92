package sqslambda_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/onceq/onceq"
	rigs "github.com/onceq/onceq/internal/rig"
)

// asked is a queue that tells its visibility timeout.
type asked struct {
	*watched
	hidden time.Duration
	takes  time.Duration
	err    error
	times  int
}

func (a *asked) VisibilityTimeout(ctx context.Context) (time.Duration, error) {
	a.times++
	if a.takes > 0 {
		select {
		case <-time.After(a.takes):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return a.hidden, a.err
}

const tooBrief = "less than six times the function's timeout"

// A queue that hides its messages for less than six of the function's timeouts is told of once,
// whatever comes after.
func TestVisibilityIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		q      asked
		limit  time.Duration
		asked  int // after three invocations
		warned int
	}{
		"long enough":       {asked{hidden: 6 * time.Minute}, time.Minute, 1, 0},
		"a second less":     {asked{hidden: 6*time.Minute - time.Second}, time.Minute, 1, 1},
		"moments gone":      {asked{hidden: 6 * time.Minute}, time.Minute - 300*time.Millisecond, 1, 0},
		"and a second less": {asked{hidden: 6*time.Minute - time.Second}, time.Minute - 300*time.Millisecond, 1, 1},
		"may not ask":       {asked{err: errors.New("denied")}, time.Minute, 1, 0},
		"no answer":         {asked{takes: time.Hour}, time.Minute, 3, 0},
		"no visibility":     {asked{}, time.Minute, 1, 1},
		"a slow answer":     {asked{hidden: time.Minute, takes: time.Second}, time.Minute, 1, 1},
		"without a limit":   {asked{}, 0, 0, 0},
	} {
		bubble(t, func(context.Context, *onceq.Job) error { rigs.Takes(2 * time.Second); return nil }, func(r *rig) {
			c.q.watched = r.seen
			r.o.Queue = &c.q
			h := r.function()
			for i := range 3 {
				r.send(numbered(3)[i])
				e := r.receive(5 * time.Minute)
				if c.limit == 0 {
					if _, err := h(r.Context(), e); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				r.limit = c.limit
				begin := time.Now()
				failed, err := r.invoke(h, e)
				r.want(failed, err)
				if took := time.Since(begin); took != 2*time.Second {
					t.Errorf("%s: the invocation took %v", name, took)
				}
			}
			if c.q.times != c.asked || r.log.Count(tooBrief) != c.warned {
				t.Errorf("%s: asked %d times, told of %d times", name, c.q.times, r.log.Count(tooBrief))
			}
			r.quiet()
		})
	}
}

// TestWarningsWithoutALogger: a function whose author said nothing of logs is warned as well.
func TestWarningsWithoutALogger(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig) {
		slog.SetDefault(r.log.Logger())
		r.o.Logger = nil
		r.o.Queue = &asked{watched: r.seen}
		r.send("a")
		failed, err := r.invoke(r.function(), r.receive(5*time.Minute))
		r.want(failed, err)
		if n := r.log.Count(tooBrief); n != 1 {
			t.Errorf("told of %d times", n)
		}
	})
}

// TestLoggerPanics: a Logger that panics costs its line, and no invocation.
func TestLoggerPanics(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig) {
		r.o.Logger = rigs.Broken()
		r.o.Queue = &asked{watched: r.seen}
		r.send("a")
		failed, err := r.invoke(r.function(), r.receive(5*time.Minute))
		r.want(failed, err)
	})
}

// An invocation whose context ends in hundreds of years holds its messages for as long as the queue
// takes.
func TestTheLongestInvocation(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { rigs.Takes(3 * time.Second); return nil }, func(r *rig) {
		r.withQueue()
		r.send("a")
		e := r.receive(5 * time.Minute)
		ctx, cancel := context.WithTimeout(r.Context(), 1<<63-1)
		defer cancel()
		resp, err := r.function()(ctx, events.SQSEvent{Records: e.Records})
		if err != nil || len(resp.BatchItemFailures) > 0 {
			t.Errorf("it is answered %v, %v", resp, err)
		}
		if x := r.seen.extends; len(x) != 1 || x[0].For != r.q.Limits().MaxHold {
			t.Errorf("held: %v", x)
		}
	})
}
