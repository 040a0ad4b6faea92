package onceq

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/ahead"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns jobs that are due later than their queue can keep them. Such a message would be
// gone before its time, and nobody would know. So it is refused at its first receive. hosts.go and
// intake.go ask, in the goroutine that has the run; Worker.look reads
// what the queue can keep.

// patience is what the queue does to a message that waits for its time. A batch does not know.
func (in *intake) patience() ahead.Queue {
	return ahead.Queue{
		Keeps:    time.Duration(in.foreign.keeps.Load()),
		Receives: int(in.foreign.receives.Load()),
		Hop:      in.e.LongestNack(),
	}
}

// outlasts refuses a message that its queue cannot keep until due.
func (in *intake) outlasts(m *broker.Message, due time.Time) *engine.Refusal {
	if in.carry.able(m) {
		return nil
	}
	q := in.patience()
	if q.Keeps <= 0 && q.Receives <= 0 {
		return nil
	}
	why := q.Refuses(due, m.Published, time.Now(), m.Attempt)
	if why == "" {
		return nil
	}
	from := q.From(due)
	return &engine.Refusal{Class: ClassTooEarly, Err: fmt.Errorf("onceq: the job is %s; it can be sent from %s on", why, from.UTC().Format(time.RFC3339))}
}

// tooLong is the handler's error. But where it postpones the job for longer than the queue can keep
// its message, and nothing carries that, the job fails, and its letter keeps it.
func (in *intake) tooLong(r *run, err error) error {
	var p *verdict.PostponeError
	if r.Message == nil || !errors.As(err, &p) || p.After <= 0 {
		return err
	}
	no := in.outlasts(r.Message, time.Now().Add(p.After))
	if no == nil {
		return err
	}
	_ = in.refuseOutlasting(r, no)
	return Permanent(verdict.Classed(ClassTooEarly, "%w: %w", no.Err, err))
}

// refuseOutlasting turns a message away that its queue cannot keep, and says so in the log: at the
// first such message, and then each engine.TellAgain while they come.
func (in *intake) refuseOutlasting(r *run, no *engine.Refusal) *engine.Refusal {
	if since, tell := in.foreign.outlasting.tells(); tell {
		in.log.LogAttrs(r.Flow().Terms.Base, slog.LevelError, "onceq: jobs are due later than their queue can keep them, and become dead letters. Let them wait in a queue that keeps messages, in PostgreSQL or SQLite, or send them later",
			engine.ForSo(since), slog.String("job", r.Name()), slog.Any("error", no.Err))
	}
	return no
}
