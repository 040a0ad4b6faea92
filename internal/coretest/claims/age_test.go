package claims

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

func TestExpired(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		m := rig.Message("a")
		m.Meta.Expires = time.Now().Add(time.Minute)
		r.Put(m)
		rig.Pass(time.Minute)
		r.RunFor(time.Second)
		r.WantStatus("a", dedupe.Released)
		if rec := r.Record("a"); rec.Attempt != 0 || rec.ErrClass != "" || rec.FirstErr != "" {
			t.Errorf("the record is %+v", rec)
		}
		if d := r.Letter(onceq.ClassExpired).Meta.Dead; d.Fence != 0 || !strings.Contains(d.LastErr, "expired at") {
			t.Errorf("the letter is %+v", d)
		}
		r.WantOutcomes("a", "expired")
		r.WantQueue(0)
	})
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		m := rig.Message("a")
		m.Meta.Expires = time.Now().Add(time.Minute)
		r.Put(m)
		rig.Pass(time.Minute - 1)
		r.RunFor(time.Second)
		r.WantStatus("a", dedupe.Done)
	})
}

// A done job is done, expired or not.
func TestExpiredAndDone(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		q := r.Store.Occupy(t, "a", time.Hour, dedupe.Rerun)
		r.Store.EndClaim(t, q, dedupe.Settlement{To: dedupe.Done})
		m := rig.Message("a")
		m.Meta.Expires = time.Now().Add(time.Minute)
		r.Put(m)
		rig.Pass(time.Hour)
		r.RunFor(time.Second)
		r.WantOutcomes("a", "already-done")
		r.NoLetters()
	})
}

func TestExpiredWithoutAStore(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		m := rig.Message("a")
		m.Meta.Expires = time.Now().Add(time.Minute)
		r.Put(m)
		rig.Pass(time.Hour)
		r.RunFor(time.Second)
		if d := r.Letter(onceq.ClassExpired).Meta.Dead; d.Fence != 0 {
			t.Errorf("the letter is %+v", d)
		}
		r.WantQueue(0)
	}, rig.NoStore)
}

func TestUnproven(t *testing.T) {
	const old = 25 * time.Hour
	for _, c := range []struct {
		name string
		late time.Duration // after which it is sent
		meta func(m *broker.Meta)
		runs bool
	}{
		{"created long ago", 0, func(*broker.Meta) {}, false},
		{"created long ago, sent of late", old - time.Hour, func(m *broker.Meta) { m.Created = time.Now().Add(time.Hour - old) }, false},
		{"not before, of late", 0, func(m *broker.Meta) { m.NotBefore = time.Now().Add(old - 2*time.Hour) }, true},
		{"replayed of late", old - time.Hour, func(m *broker.Meta) {
			m.Created, m.Dead = time.Now().Add(time.Hour-old), &broker.Letter{Fence: 7, At: time.Now()}
		}, true},
		{"replayed long ago", 0, func(m *broker.Meta) { m.Dead = &broker.Letter{Fence: 7, At: time.Now()} }, false},
		{"created of late", old - time.Hour, func(m *broker.Meta) { m.Created = time.Now() }, true},
		{"created later than it was sent", 0, func(m *broker.Meta) { m.Created = time.Now().Add(old - time.Hour) }, false},
		{"failed later than it was sent", 0, func(m *broker.Meta) { m.Dead = &broker.Letter{Fence: 7, At: time.Now().Add(old - time.Hour)} }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
				rig.Pass(c.late)
				m := rig.Message("a")
				c.meta(m.Meta)
				r.Put(m)
				rig.Pass(old - c.late)
				r.RunFor(time.Second)
				if c.runs {
					r.WantStatus("a", dedupe.Done)
					r.NoLetters()
					return
				}
				r.WantStatus("a", dedupe.Released)
				if d := r.Letter(onceq.ClassUnproven).Meta.Dead; d.Fence != 0 {
					t.Errorf("the letter is %+v", d)
				}
				if n := r.Seen.Started("a"); n != 0 {
					t.Errorf("%d runs", n)
				}
			}, rig.With(func(c *rig.Setup) { c.Retention = 24 * time.Hour }))
		})
	}
}

// A foreign message's age is counted from its publishing; one that is being retried has its record
// to prove it. TestUnprovenSticks: the first who found the message too old died before that was
// settled. Whoever takes the claim over must find it too old as well, although there is a record
// now.
func TestUnprovenSticks(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		r.Put(rig.Message("a"))
		rig.Pass(25 * time.Hour)
		r.Store.Occupy(t, "a", time.Second, dedupe.Rerun)
		rig.Pass(time.Minute)
		r.RunFor(time.Second)
		r.WantStatus("a", dedupe.Released)
		r.Letter(onceq.ClassUnproven)
	}, rig.With(func(c *rig.Setup) { c.Retention = 24 * time.Hour }))
}

func TestUnprovenForeignAndRetried(t *testing.T) {
	day := rig.With(func(c *rig.Setup) {
		c.Retention = 24 * time.Hour
		c.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: string(m.Body)}, nil }
		c.Defaults.Backoff = func(int, error) time.Duration { return 10 * time.Hour }
	})
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		if err := r.Q.SendRaw(r.Context(), []byte("a"), nil); err != nil {
			t.Fatal(err)
		}
		rig.Pass(25 * time.Hour)
		r.RunFor(time.Second)
		r.Letter(onceq.ClassUnproven)
	}, day)
	rig.Bubble(t, rig.Returns(rig.ErrBoom), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(95 * time.Hour)
		if n := r.Seen.Started("a"); n != 10 {
			t.Errorf("%d runs, want all ten over four days", n)
		}
		r.Letter(onceq.ClassError)
	}, day)
}

func TestNotBeforeIsCheckedBeforeTheClaim(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		m := rig.Message("a")
		m.Meta.NotBefore = time.Now().Add(3 * time.Hour)
		r.Put(m)
		r.Start()
		rig.Pass(time.Second)
		if n := r.Store.Claims.Load(); n != 0 {
			t.Errorf("%d claims", n)
		}
		if got := r.Q.Delays("a"); len(got) != 1 || got[0] != 3*time.Hour {
			t.Errorf("nacked with %v", got)
		}
		rig.Pass(3 * time.Hour)
		if rec := r.Record("a"); rec.Status != dedupe.Done || rec.Attempt != 1 {
			t.Errorf("the record is %+v", rec)
		}
		if got := r.Seen.Ends[0]; got.Outcome != "early" {
			t.Errorf("the first job report is %+v", got)
		}
		if got := r.Seen.Of("a")[0]; got.QueueWait > time.Second {
			t.Errorf("the queue wait is %v, want it counted from the not-before", got.QueueWait)
		}
	})
}

func TestNotBeforeBeyondTheLongestNack(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		m := rig.Message("a")
		m.Meta.NotBefore = time.Now().Add(time.Hour)
		r.Put(m)
		r.Start()
		rig.Pass(time.Hour + time.Second)
		r.WantStatus("a", dedupe.Done)
		if n := r.Q.Received("a"); n < 7 || n > 8 {
			t.Errorf("%d receives, want one each ten minutes", n)
		}
	}, rig.Preset(membroker.PubSub))
}

// An early message in a group holds the later ones.
func TestNotBeforeInAGroup(t *testing.T) {
	var d rig.Diary
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error { d.Write(t, j); defer d.Left(j); return nil }, func(r *rig.Rig) {
		m := rig.Message("g1")
		m.Group, m.Meta.NotBefore = "g", time.Now().Add(time.Hour)
		r.Put(m)
		r.Send("g/g2")
		r.Start()
		rig.Pass(59 * time.Minute)
		if len(d.Keys("g")) != 0 {
			t.Errorf("ran %q", d.Keys("g"))
		}
		rig.Pass(2 * time.Minute)
		if got := strings.Join(d.Keys("g"), " "); got != "g1 g2" {
			t.Errorf("ran %q", got)
		}
	}, rig.Preset(membroker.SQSFIFO))
}
