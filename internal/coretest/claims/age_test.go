package onceq_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

func TestExpired(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		m := message("a")
		m.Meta.Expires = time.Now().Add(time.Minute)
		r.put(m)
		pass(time.Minute)
		r.run(time.Second)
		r.wantStatus("a", dedupe.Released)
		if rec := r.record("a"); rec.Attempt != 0 || rec.ErrClass != "" || rec.FirstErr != "" {
			t.Errorf("the record is %+v", rec)
		}
		if d := r.letter(onceq.ClassExpired).Meta.Dead; d.Fence != 0 || !strings.Contains(d.LastErr, "expired at") {
			t.Errorf("the letter is %+v", d)
		}
		r.wantOutcomes("a", "expired")
		r.wantQueue(0)
	})
	bubble(t, returns(nil), func(r *rig) {
		m := message("a")
		m.Meta.Expires = time.Now().Add(time.Minute)
		r.put(m)
		pass(time.Minute - 1)
		r.run(time.Second)
		r.wantStatus("a", dedupe.Done)
	})
}

// A done job is done, expired or not.
func TestExpiredAndDone(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		q := r.store.occupy(t, "a", time.Hour, dedupe.Rerun)
		r.store.settle(t, q, dedupe.Settlement{To: dedupe.Done})
		m := message("a")
		m.Meta.Expires = time.Now().Add(time.Minute)
		r.put(m)
		pass(time.Hour)
		r.run(time.Second)
		r.wantOutcomes("a", "already-done")
		r.noLetters()
	})
}

func TestExpiredWithoutAStore(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		m := message("a")
		m.Meta.Expires = time.Now().Add(time.Minute)
		r.put(m)
		pass(time.Hour)
		r.run(time.Second)
		if d := r.letter(onceq.ClassExpired).Meta.Dead; d.Fence != 0 {
			t.Errorf("the letter is %+v", d)
		}
		r.wantQueue(0)
	}, noStore)
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
			m.Created, m.Dead = time.Now().Add(time.Hour-old), &broker.Dead{Fence: 7, At: time.Now()}
		}, true},
		{"replayed long ago", 0, func(m *broker.Meta) { m.Dead = &broker.Dead{Fence: 7, At: time.Now()} }, false},
		{"created of late", old - time.Hour, func(m *broker.Meta) { m.Created = time.Now() }, true},
		{"created later than it was sent", 0, func(m *broker.Meta) { m.Created = time.Now().Add(old - time.Hour) }, false},
		{"failed later than it was sent", 0, func(m *broker.Meta) { m.Dead = &broker.Dead{Fence: 7, At: time.Now().Add(old - time.Hour)} }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, returns(nil), func(r *rig) {
				pass(c.late)
				m := message("a")
				c.meta(m.Meta)
				r.put(m)
				pass(old - c.late)
				r.run(time.Second)
				if c.runs {
					r.wantStatus("a", dedupe.Done)
					r.noLetters()
					return
				}
				r.wantStatus("a", dedupe.Released)
				if d := r.letter(onceq.ClassUnproven).Meta.Dead; d.Fence != 0 {
					t.Errorf("the letter is %+v", d)
				}
				if n := r.seen.started("a"); n != 0 {
					t.Errorf("%d runs", n)
				}
			}, with(func(c *setup) { c.Retention = 24 * time.Hour }))
		})
	}
}

// A foreign message's age is counted from its publishing; one that is being retried has its record
// to prove it. TestUnprovenSticks: the first who found the message too old died before that was
// settled. Whoever takes the claim over must find it too old as well, although there is a record
// now.
func TestUnprovenSticks(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		r.put(message("a"))
		pass(25 * time.Hour)
		r.store.occupy(t, "a", time.Second, dedupe.Rerun)
		pass(time.Minute)
		r.run(time.Second)
		r.wantStatus("a", dedupe.Released)
		r.letter(onceq.ClassUnproven)
	}, with(func(c *setup) { c.Retention = 24 * time.Hour }))
}

func TestUnprovenForeignAndRetried(t *testing.T) {
	day := with(func(c *setup) {
		c.Retention = 24 * time.Hour
		c.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: string(m.Body)}, nil }
		c.Defaults.Backoff = func(int, error) time.Duration { return 10 * time.Hour }
	})
	bubble(t, returns(nil), func(r *rig) {
		if err := r.q.SendRaw(r.Context(), []byte("a"), nil); err != nil {
			t.Fatal(err)
		}
		pass(25 * time.Hour)
		r.run(time.Second)
		r.letter(onceq.ClassUnproven)
	}, day)
	bubble(t, returns(errBoom), func(r *rig) {
		r.send("a")
		r.run(95 * time.Hour)
		if n := r.seen.started("a"); n != 10 {
			t.Errorf("%d runs, want all ten over four days", n)
		}
		r.letter(onceq.ClassError)
	}, day)
}

func TestNotBeforeIsCheckedBeforeTheClaim(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		m := message("a")
		m.Meta.NotBefore = time.Now().Add(3 * time.Hour)
		r.put(m)
		r.start()
		pass(time.Second)
		if n := r.store.claims.Load(); n != 0 {
			t.Errorf("%d claims", n)
		}
		if got := r.q.delays("a"); len(got) != 1 || got[0] != 3*time.Hour {
			t.Errorf("nacked with %v", got)
		}
		pass(3 * time.Hour)
		if rec := r.record("a"); rec.Status != dedupe.Done || rec.Attempt != 1 {
			t.Errorf("the record is %+v", rec)
		}
		if got := r.seen.ends[0]; got.Outcome != "early" {
			t.Errorf("the first timing record is %+v", got)
		}
		if got := r.seen.of("a")[0]; got.QueueWait > time.Second {
			t.Errorf("the queue wait is %v, want it counted from the not-before", got.QueueWait)
		}
	})
}

func TestNotBeforeBeyondTheLongestNack(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		m := message("a")
		m.Meta.NotBefore = time.Now().Add(time.Hour)
		r.put(m)
		r.start()
		pass(time.Hour + time.Second)
		r.wantStatus("a", dedupe.Done)
		if n := r.q.received("a"); n < 7 || n > 8 {
			t.Errorf("%d receives, want one each ten minutes", n)
		}
	}, preset(membroker.PubSub))
}

// An early message in a group holds the later ones.
func TestNotBeforeInAGroup(t *testing.T) {
	var d diary
	bubble(t, func(_ context.Context, j *onceq.Job) error { d.write(t, j); defer d.ends(j); return nil }, func(r *rig) {
		m := message("g1")
		m.Group, m.Meta.NotBefore = "g", time.Now().Add(time.Hour)
		r.put(m)
		r.send("g/g2")
		r.start()
		pass(59 * time.Minute)
		if len(d.of("g")) != 0 {
			t.Errorf("ran %q", d.of("g"))
		}
		pass(2 * time.Minute)
		if got := strings.Join(d.of("g"), " "); got != "g1 g2" {
			t.Errorf("ran %q", got)
		}
	}, preset(membroker.SQSFIFO))
}
