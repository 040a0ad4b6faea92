package onceq_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// slowGroups is a handler whose jobs of the groups a to z take long, and all others a second.
func slowGroups(t *testing.T, d *diary, lasts time.Duration) onceq.HandlerFunc {
	return func(_ context.Context, j *onceq.Job) error {
		d.write(t, j)
		defer d.ends(j)
		if len(j.Message.Group) == 1 {
			takes(lasts)
		} else {
			takes(time.Second)
		}
		return nil
	}
}

// A message behind another of its group needs no slot yet, and does not keep others from theirs.
func TestSlowGroupsLeaveRoomForOthers(t *testing.T) {
	for _, groups := range []int{2, 10} {
		for _, p := range ordered {
			t.Run(fmt.Sprintf("%d groups on %v", groups, p), func(t *testing.T) {
				var d diary
				bubble(t, slowGroups(t, &d, time.Hour), func(r *rig) {
					slow := grouped(groups, 10)
					slices.Sort(slow) // a receive brings ten of a group
					r.send(slow...)
					var quick []string
					for _, k := range numbered("quick", 50) {
						quick = append(quick, k+"/"+k)
					}
					r.send(quick...)
					r.start()
					pass(10 * time.Minute)
					for _, k := range numbered("quick", 50) {
						r.wantStatus(k, dedupe.Done)
					}
					pass(11 * time.Hour)
					for g := range groups {
						if got := d.of(string(rune('a' + g))); len(got) != 10 || !slices.IsSorted(got) {
							t.Errorf("group %c ran as %q", 'a'+g, got)
						}
					}
					for _, m := range slow {
						k := m[2:]
						r.wantStatus(k, dedupe.Done)
						// A hand-back burns a receive; PubSub and SQS end a delivery after some
						// hours.
						if n := r.q.received(k); p == membroker.Memory && n != 1 {
							t.Errorf("%q was received %d times", k, n)
						}
					}
					r.wantQueue(0)
					// Beats are not the point here; long leases need few.
				}, preset(p), warnings, with(func(c *setup) { c.Concurrency, c.Lease, c.Visibility = groups+2, 5*time.Minute, 5*time.Minute }))
			})
		}
	}
}

// The followers that are held are bounded: what comes beyond goes back at once, and the order
// stays.
func TestFollowersAreBounded(t *testing.T) {
	var d diary
	bubble(t, slowGroups(t, &d, 40*time.Minute), func(r *rig) {
		// This queue orders groups, and goes on delivering one whose head is held.
		r.q.limits = func(l broker.Limits) broker.Limits { l.OrderedGroups = true; return l }
		r.cfg.Concurrency, r.cfg.Prefetch = 2, -1 // and batches of ten: 20 followers
		r.w = r.worker(nil)
		r.send(grouped(1, 40)...)
		r.start()
		pass(10 * time.Minute)
		stats, err := r.q.Depth(r.Context())
		if held := stats.InFlight; err != nil || held > 2+20+10 {
			t.Errorf("%d messages are held, %v", held, err)
		}
		receives := 0
		for i := range 40 {
			k := fmt.Sprintf("a%02d", i)
			receives += r.q.received(k)
			if i <= 20 {
				if n := r.q.received(k); n != 1 {
					t.Errorf("%q was received %d times: there was room for it", k, n)
				}
				continue
			}
			for _, delay := range r.q.delays(k) {
				if delay != 0 {
					t.Errorf("%q was handed back for %v", k, delay)
				}
			}
		}
		if receives > 10_000 {
			t.Errorf("%d receives in ten minutes", receives)
		}
		r.send("quick/quick")
		pass(10 * time.Minute)
		r.wantStatus("quick", dedupe.Done)
		if got := d.of("a"); !slices.Equal(got, []string{"a00"}) {
			t.Errorf("ran %q", got)
		}
		// Those beyond the bound go round all the time, which is dear, so it goes on no longer than
		// it must. Some are held for longer than SQS allows, which is twelve hours.
		for hours := 0; hours < 32 && len(d.of("a")) < 40; hours++ {
			pass(time.Hour)
		}
		pass(2 * time.Hour)
		if got := d.of("a"); len(got) != 40 || !slices.IsSorted(got[:21]) { // those beyond come as this queue likes
			t.Errorf("ran %q", got)
		}
	}, preset(membroker.SQSStandard), warnings)
}

// Whatever ends a follower's wait, the count of followers falls with it. Afterwards there is as
// much room as before.
func TestFollowersLeaveNoTrace(t *testing.T) {
	var d diary
	bubble(t, slowGroups(t, &d, time.Hour), func(r *rig) {
		r.cfg.Concurrency, r.cfg.Prefetch = 2, -1
		r.w = r.worker(nil)
		r.send(grouped(1, 9)...)
		r.start()
		pass(time.Second)
		for range 30 { // more than there may be followers
			r.q.expire(t, "a01") // lost while it waits
			pass(15 * time.Second)
			r.w.Pause()
			pass(time.Second)
			r.w.Resume()
			pass(15 * time.Second)
		}
		pass(12 * time.Hour)
		r.wantQueue(0)
		for n := range 4 { // with more followers than may be held at once
			ks := numbered(fmt.Sprintf("later%d-", n), 10)
			for _, k := range ks {
				r.send("later/" + k)
			}
			pass(time.Minute)
			for _, k := range ks {
				r.wantStatus(k, dedupe.Done)
				if n := r.q.received(k); n != 1 {
					t.Errorf("%q was received %d times", k, n)
				}
			}
		}
		r.send("x/x1", "y/y1", "w/w1", "v/v1")
		pass(5 * time.Hour)
		for _, k := range []string{"x1", "y1", "w1", "v1"} {
			r.wantStatus(k, dedupe.Done)
		}
		r.wantQueue(0)
	}, preset(membroker.SQSFIFO))
}
