package matrix

import (
	"context"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// This file owns the cells of a job that sleeps, and whose message comes for the last time: the
// worker sends it anew, records the job's wait, and acks it. Each of these calls goes wrong in each
// way, on each store.

// asleepFor is how long the job sleeps: until what is late has come.
func (b *backend) asleepFor() time.Duration { return b.late + 3*b.second }

// oneReceive is a queue in memory that moves a message to the letters when it would come a second
// time.
func oneReceive(t testing.TB, b *backend) queues {
	t.Helper()
	letters, err := membroker.New(&membroker.Options{Visibility: b.visibility})
	if err != nil {
		t.Fatal(err)
	}
	queue, err := membroker.New(&membroker.Options{Visibility: b.visibility, Redrive: &membroker.Redrive{MaxReceives: 1, To: letters}})
	if err != nil {
		t.Fatal(err)
	}
	return memoryQueues{ends{queue, letters}}
}

// sleep is a sleep of the job, which does not end early.
func (w *world) sleep(ctx context.Context, j *onceq.Job) error {
	err := onceq.Sleep(ctx, j, "trial", w.b.asleepFor())
	if early := time.Until(w.begun.Add(w.b.asleepFor())); err == nil && early > 0 {
		w.Errorf("the job woke %v too early", early)
	}
	return err
}

// putBack sends again what the queue has moved away as it is, as an operator does, and reports
// whether there was any. A job that waits by its record has a copy, because that was stored before:
// with the message alone no queue would bring the job.
func (w *world) putBack() bool {
	w.Helper()
	var moved []broker.Outgoing
	copied := false
	for _, m := range w.dead() {
		if err := w.letters.Ack(w.Context(), []broker.Receipt{m.Receipt}); err != nil {
			w.Fatal(err)
		}
		if m.Meta == nil || m.Meta.Dead != nil {
			w.put = append(w.put, m)
			continue
		}
		copied = copied || !m.Meta.Postponed.IsZero()
		moved = append(moved, broker.Outgoing{Body: m.Body, Attributes: m.Attributes, Meta: m.Meta})
	}
	if len(moved) == 0 {
		return false
	}
	w.moved += len(moved)
	if rec := w.record(); rec != nil && rec.Status == dedupe.Released && rec.ErrClass == onceq.ClassPostponed && !copied {
		w.Errorf("the job waits by its record, and no message brings it: %+v", rec)
	}
	if _, err := w.queue.Send(w.Context(), moved); err != nil {
		w.Fatal(err)
	}
	return true
}
