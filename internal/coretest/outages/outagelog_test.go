package onceq_test

import (
	"context"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// An outage is told of at its beginning, again while it lasts, and when it is over: whoever missed
// a line sees the next one.
func TestOutagesAreToldOfAgain(t *testing.T) {
	fails := func(op onceqtest.Op) faulty.Func {
		return func(_ context.Context, c onceqtest.Call) (f faulty.Faults) {
			if c.Op == op {
				f = faulty.Fail(errBoom)
			}
			return f
		}
	}
	for name, c := range map[string]struct {
		begin       func(r *rig)
		end         func(r *rig)
		line, after string
		h           onceq.HandlerFunc
	}{
		"receiving": {
			func(r *rig) { r.q.SetFault(fails(onceqtest.Receive)) }, func(r *rig) { r.q.SetFault(nil) },
			"receiving fails", "receiving works again", returns(nil),
		},
		"store": {
			func(r *rig) { r.store.fails(errBoom, onceqtest.Claim, onceqtest.Renew, onceqtest.Settle) }, func(r *rig) { r.store.heals() },
			"the store does not answer; claims", "the store answers again", returns(nil),
		},
		"dead-letter queue": {
			func(r *rig) { r.dlq.SetFault(fails(onceqtest.Send)) }, func(r *rig) { r.dlq.SetFault(nil) },
			"the dead-letter queue takes nothing", "takes letters again", failing,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, c.h, func(r *rig) {
				r.start()
				pass(time.Second)
				for n := range 2 {
					c.begin(r)
					r.send(numbered("k"+time.Now().Format("0405"), 10)...)
					pass(time.Minute)
					if got := r.log.count(c.line); got != 11*n+1 {
						t.Errorf("%d lines in the first minute, want 1", got-11*n)
					}
					pass(51 * time.Minute)
					if got := r.log.count(c.line) - 11*n; got != 11 {
						t.Errorf("%d lines in 52 minutes, want one each five", got)
					}
					if got := r.log.count("since=50m"); got != n+1 {
						t.Errorf("%d lines tell how long it has lasted", got)
					}
					c.end(r)
					r.send("news" + time.Now().Format("0405")) // which a receive brings that may wait for an hour
					pass(time.Minute)
					// A receive that was under way when the fault began may bring messages after
					// another one has failed: a second outage, of no time.
					if got := r.log.count(c.after, "since=52m"); got != n+1 {
						t.Errorf("%d lines tell of the end, want %d", got, n+1)
					}
				}
			}, with(func(c *setup) { c.Pollers = 3 }))
		})
	}
}
