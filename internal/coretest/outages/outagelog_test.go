package outages

import (
	"context"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// An outage is told of at its beginning, again while it lasts, and when it is over: whoever missed
// a line sees the next one.
func TestOutagesAreToldOfAgain(t *testing.T) {
	fails := func(op onceqtest.Op) faulty.Func {
		return func(_ context.Context, c onceqtest.Call) (f faulty.Faults) {
			if c.Op == op {
				f = faulty.Fail(rig.ErrBoom)
			}
			return f
		}
	}
	for name, c := range map[string]struct {
		begin       func(r *rig.Rig)
		end         func(r *rig.Rig)
		line, after string
		h           onceq.HandlerFunc
	}{
		"receiving": {
			func(r *rig.Rig) { r.Q.SetFault(fails(onceqtest.Receive)) }, func(r *rig.Rig) { r.Q.SetFault(nil) },
			"receiving fails", "receiving works again", rig.Returns(nil),
		},
		"store": {
			func(r *rig.Rig) { r.Store.Fails(rig.ErrBoom, onceqtest.Claim, onceqtest.Renew, onceqtest.Settle) }, func(r *rig.Rig) { r.Store.Heals() },
			"the store does not answer; claims", "the store answers again", rig.Returns(nil),
		},
		"dead-letter queue": {
			func(r *rig.Rig) { r.DLQ.SetFault(fails(onceqtest.Send)) }, func(r *rig.Rig) { r.DLQ.SetFault(nil) },
			"the dead-letter queue takes nothing", "takes letters again", rig.Failing,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, c.h, func(r *rig.Rig) {
				r.Start()
				rig.Pass(time.Second)
				for n := range 2 {
					c.begin(r)
					r.Send(rig.Numbered("k"+time.Now().Format("0405"), 10)...)
					rig.Pass(time.Minute)
					if got := r.Logged.Count(c.line); got != 11*n+1 {
						t.Errorf("%d lines in the first minute, want 1", got-11*n)
					}
					rig.Pass(51 * time.Minute)
					if got := r.Logged.Count(c.line) - 11*n; got != 11 {
						t.Errorf("%d lines in 52 minutes, want one each five", got)
					}
					if got := r.Logged.Count("since=50m"); got != n+1 {
						t.Errorf("%d lines tell how long it has lasted", got)
					}
					c.end(r)
					r.Send("news" + time.Now().Format("0405")) // which a receive brings that may wait for an hour
					rig.Pass(time.Minute)
					// A receive that was under way when the fault began may bring messages after
					// another one has failed: a second outage, of no time.
					if got := r.Logged.Count(c.after, "since=52m"); got != n+1 {
						t.Errorf("%d lines tell of the end, want %d", got, n+1)
					}
				}
			}, rig.With(func(c *rig.Setup) { c.Pollers = 3 }))
		})
	}
}
