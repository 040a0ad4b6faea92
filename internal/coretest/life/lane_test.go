package life

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
	"github.com/onceq/onceq/internal/coretest/rig"
)

// slowGroups is a handler whose jobs of the groups a to z take long, and all others a second.
func slowGroups(t *testing.T, d *rig.Diary, lasts time.Duration) onceq.HandlerFunc {
	return func(_ context.Context, j *onceq.Job) error {
		d.Write(t, j)
		defer d.Left(j)
		if len(j.Message.Group) == 1 {
			rig.Takes(lasts)
		} else {
			rig.Takes(time.Second)
		}
		return nil
	}
}

// A message behind another of its group needs no slot yet, and does not keep others from theirs.
func TestSlowGroupsLeaveRoomForOthers(t *testing.T) {
	for _, groups := range []int{2, 10} {
		for _, p := range rig.Ordered {
			t.Run(fmt.Sprintf("%d groups on %v", groups, p), func(t *testing.T) {
				var d rig.Diary
				rig.Bubble(t, slowGroups(t, &d, time.Hour), func(r *rig.Rig) {
					slow := rig.Grouped(groups, 10)
					slices.Sort(slow) // a receive brings ten of a group
					r.Send(slow...)
					var quick []string
					for _, k := range rig.Numbered("quick", 50) {
						quick = append(quick, k+"/"+k)
					}
					r.Send(quick...)
					r.Start()
					rig.Pass(10 * time.Minute)
					for _, k := range rig.Numbered("quick", 50) {
						r.WantStatus(k, dedupe.Done)
					}
					rig.Pass(11 * time.Hour)
					for g := range groups {
						if got := d.Keys(string(rune('a' + g))); len(got) != 10 || !slices.IsSorted(got) {
							t.Errorf("group %c ran as %q", 'a'+g, got)
						}
					}
					for _, m := range slow {
						k := m[2:]
						r.WantStatus(k, dedupe.Done)
						// A hand-back burns a receive; PubSub and SQS end a delivery after some
						// hours.
						if n := r.Q.Received(k); p == membroker.Memory && n != 1 {
							t.Errorf("%q was received %d times", k, n)
						}
					}
					r.WantQueue(0)
					// Beats are not the point here; long leases need few.
				}, rig.Preset(p), rig.Warnings, rig.With(func(c *rig.Setup) { c.Concurrency, c.Lease, c.Visibility = groups+2, 5*time.Minute, 5*time.Minute }))
			})
		}
	}
}

// The followers that are held are bounded: what comes beyond goes back at once, and the order
// stays.
func TestFollowersAreBounded(t *testing.T) {
	var d rig.Diary
	rig.Bubble(t, slowGroups(t, &d, 40*time.Minute), func(r *rig.Rig) {
		// This queue orders groups, and goes on delivering one whose head is held.
		r.Q.ChangeLimits = func(l broker.Limits) broker.Limits { l.OrderedGroups = true; return l }
		r.Cfg.Concurrency, r.Cfg.Prefetch = 2, -1 // and batches of ten: 20 followers
		r.W = r.Worker(nil)
		r.Send(rig.Grouped(1, 40)...)
		r.Start()
		rig.Pass(10 * time.Minute)
		stats, err := r.Q.Depth(r.Context())
		if held := stats.InFlight; err != nil || held > 2+20+10 {
			t.Errorf("%d messages are held, %v", held, err)
		}
		receives := 0
		for i := range 40 {
			k := fmt.Sprintf("a%02d", i)
			receives += r.Q.Received(k)
			if i <= 20 {
				if n := r.Q.Received(k); n != 1 {
					t.Errorf("%q was received %d times: there was room for it", k, n)
				}
				continue
			}
			for _, delay := range r.Q.Delays(k) {
				if delay != 0 {
					t.Errorf("%q was handed back for %v", k, delay)
				}
			}
		}
		if receives > 10_000 {
			t.Errorf("%d receives in ten minutes", receives)
		}
		r.Send("quick/quick")
		rig.Pass(10 * time.Minute)
		r.WantStatus("quick", dedupe.Done)
		if got := d.Keys("a"); !slices.Equal(got, []string{"a00"}) {
			t.Errorf("ran %q", got)
		}
		// Those beyond the bound go round all the time, which is dear, so it goes on no longer than
		// it must. Some are held for longer than SQS allows, which is twelve hours.
		for hours := 0; hours < 32 && len(d.Keys("a")) < 40; hours++ {
			rig.Pass(time.Hour)
		}
		rig.Pass(2 * time.Hour)
		if got := d.Keys("a"); len(got) != 40 || !slices.IsSorted(got[:21]) { // those beyond come as this queue likes
			t.Errorf("ran %q", got)
		}
	}, rig.Preset(membroker.SQSStandard), rig.Warnings)
}

// Whatever ends a follower's wait, the count of followers falls with it. Afterwards there is as
// much room as before.
func TestFollowersLeaveNoTrace(t *testing.T) {
	var d rig.Diary
	rig.Bubble(t, slowGroups(t, &d, time.Hour), func(r *rig.Rig) {
		r.Cfg.Concurrency, r.Cfg.Prefetch = 2, -1
		r.W = r.Worker(nil)
		r.Send(rig.Grouped(1, 9)...)
		r.Start()
		rig.Pass(time.Second)
		for range 30 { // more than there may be followers
			r.Q.Expire(t, "a01") // lost while it waits
			rig.Pass(15 * time.Second)
			r.W.Pause()
			rig.Pass(time.Second)
			r.W.Resume()
			rig.Pass(15 * time.Second)
		}
		rig.Pass(12 * time.Hour)
		r.WantQueue(0)
		for n := range 4 { // with more followers than may be held at once
			ks := rig.Numbered(fmt.Sprintf("later%d-", n), 10)
			for _, k := range ks {
				r.Send("later/" + k)
			}
			rig.Pass(time.Minute)
			for _, k := range ks {
				r.WantStatus(k, dedupe.Done)
				if n := r.Q.Received(k); n != 1 {
					t.Errorf("%q was received %d times", k, n)
				}
			}
		}
		r.Send("x/x1", "y/y1", "w/w1", "v/v1")
		rig.Pass(5 * time.Hour)
		for _, k := range []string{"x1", "y1", "w1", "v1"} {
			r.WantStatus(k, dedupe.Done)
		}
		r.WantQueue(0)
	}, rig.Preset(membroker.SQSFIFO))
}
