package otelonceq_test

import (
	"testing"
	"time"

	"github.com/onceq/onceq"
)

// TestRelay: a relay is a Worker, so its jobs have the names of all jobs, under the outbox's queue.
// What it sends on is counted under the destination's.
func TestRelay(t *testing.T) {
	bubble(t, rigOptions{noTraces: true}, func(t *testing.T, r *rig) {
		to := newQueue(t, "ship")
		c := r.config(onceq.Forward(r.tel.Sender(to)))
		c.Store, c.Scope = onceq.NoStore, "outbox"
		w := r.worker(c, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue})
		r.send(message("charge", "A-1"), message("charge", "A-2"))
		r.runFor(w, 10*time.Second)
		fs := r.scrape()
		r.want(fs, 2, "jobs_completed_total", "queue=orders", "type=charge")
		r.want(fs, 2, "jobs_enqueued_total", "queue=ship", "type=charge")
		r.want(fs, 0, "jobs_active", "queue=orders")
		if d, err := to.Depth(t.Context()); err != nil || d.Visible != 2 {
			t.Error(d, err)
		}
	})
}
