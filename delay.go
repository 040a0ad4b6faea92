package onceq

import (
	"time"
)

// Where a broker's nack knows no delay, the worker holds the message until the delay is over, and
// nacks then: else a job that fails, or a duplicate of one that runs, would come again at once.

// delays holds a run's message for the delay of its nack, where the broker does not. It is false
// when it is to be nacked now.
func (w *Worker) delays(r *run) bool {
	if w.l.MaxNack > 0 || r.Verdict.Delay <= 0 {
		return false
	}
	now := time.Now()
	d := min(r.Verdict.Delay, w.p.e.TotalLeft(r, now))
	if !w.l.Extends {
		d = min(d, r.DeliveryEnd().Sub(now)-w.p.e.Margin())
	}
	return d > 0 && r.Flow().KeepBack(r, d)
}
