package claims

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

func TestDoneIsAckedWithItsResult(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		q := r.Store.Occupy(t, "a", time.Minute, dedupe.Rerun)
		r.Store.EndClaim(t, q, dedupe.Settlement{To: dedupe.Done, Result: []byte("42")})
		r.Send("a")
		r.RunFor(time.Second)
		r.WantQueue(0)
		r.NoLetters()
		r.WantOutcomes("a", "already-done")
		if got := r.Seen.Of("a")[0]; string(got.Result) != "42" || got.Process != 0 {
			t.Errorf("the job report is %+v", got)
		}
	})
}

func TestFailedAndParkedPutTheLetterAgain(t *testing.T) {
	for _, c := range []struct {
		to      dedupe.Status
		class   string
		outcome string
	}{{dedupe.Failed, "custom", "already-failed"}, {dedupe.Parked, onceq.ClassInterrupted, "already-parked"}} {
		rig.BothWays(t, rig.Never(t), func(r *rig.Rig) {
			id := r.PutRaw(rig.Message("a"))[0]
			q := r.Store.Occupy(t, "a", time.Minute, dedupe.Rerun, id)
			r.Store.EndClaim(t, q, dedupe.Settlement{To: c.to, ErrClass: c.class, ErrText: "because"})
			r.RunFor(time.Second)
			rec := r.Record("a")
			if d := r.Letter(c.class).Meta.Dead; d.Fence != rec.Fence || d.FirstErr != "because" || d.LastErr != "because" || d.Attempts != 1 || !d.At.Equal(rec.Finished) {
				t.Errorf("the letter is %+v of %+v", d, rec)
			}
			r.WantStatus("a", c.to)
			r.WantQueue(0)
			r.WantOutcomes("a", c.outcome)
		})
	}
}

func TestTakeoverParks(t *testing.T) {
	rig.BothWays(t, rig.Never(t), func(r *rig.Rig) {
		id := r.PutRaw(rig.Message("a"))[0]
		q := r.Store.Occupy(t, "a", time.Minute, dedupe.Park, id)
		if _, err := r.Store.Store.Renew(r.Context(), []dedupe.Renewal{{Key: q.Key, Token: q.Token, TTL: time.Minute, Started: true}}); err != nil {
			t.Fatal(err)
		}
		rig.Pass(2 * time.Minute)
		r.RunFor(time.Second)
		r.WantStatus("a", dedupe.Parked)
		if d := r.Letter(onceq.ClassInterrupted).Meta.Dead; d.Fence != r.Record("a").Fence || d.LastErr == "" {
			t.Errorf("the letter is %+v", d)
		}
		r.WantQueue(0)
	})
}

func TestDeadLeaseCounts(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		r.Store.Occupy(t, "a", time.Second, dedupe.Rerun)
		rig.Pass(time.Minute)
		r.Send("a")
		r.RunFor(time.Second)
		r.WantStatus("a", dedupe.Failed)
		if d := r.Letter(onceq.ClassAttempts).Meta.Dead; d.Fence != r.Record("a").Fence || d.Attempts != 1 { // the attempt that was never started does not count
			t.Errorf("the letter is %+v", d)
		}
		r.WantQueue(0)
	}, rig.Most(1))
}

func TestAnotherWorkerHasIt(t *testing.T) {
	const length = 4 * time.Hour
	rig.BothWays(t, rig.Returns(nil), func(r *rig.Rig) {
		q := r.Store.Occupy(t, "a", length, dedupe.Rerun)
		r.Send("a")
		r.Start()
		rig.Pass(length)
		r.Store.EndClaim(t, q, dedupe.Settlement{To: dedupe.Done})
		rig.Pass(length)
		r.WantQueue(0)
		if n := r.Seen.Started("a"); n != 0 {
			t.Errorf("the handler ran %d times", n)
		}
		if n := r.Q.Received("a"); n > 4 {
			t.Errorf("%d receives", n)
		}
		if d := r.Q.Delays("a")[0]; d < length || d > length+length/8+time.Second {
			t.Errorf("the first delay is %v, want %v and up to an eighth and a second", d, length)
		}
	})
}

func TestReceivesAreFewHoweverLongAJob(t *testing.T) {
	const length = 12 * time.Hour
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		q := r.Store.Occupy(t, "a", 30*time.Second, dedupe.Rerun)
		r.Send("a")
		r.Start()
		for range int(length / (10 * time.Second)) { // the other worker's heartbeat
			rig.Pass(10 * time.Second)
			if _, err := r.Store.Store.Renew(r.Context(), []dedupe.Renewal{{Key: q.Key, Token: q.Token, TTL: 30 * time.Second}}); err != nil {
				t.Fatal(err)
			}
		}
		r.Store.EndClaim(t, q, dedupe.Settlement{To: dedupe.Done})
		n := r.Q.Received("a")
		if n < 5 || n > 12 {
			t.Errorf("%d receives in %v, want about log2", n, length)
		}
		rig.Pass(2 * length)
		r.WantQueue(0)
		r.NoLetters()
	})
}

func TestInProgressDelayIsClamped(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		r.Store.Occupy(t, "a", time.Hour, dedupe.Rerun)
		r.Send("a")
		r.RunFor(time.Second)
		if got := r.Q.Delays("a"); len(got) != 1 || got[0] != 10*time.Minute {
			t.Errorf("nacked with %v, want the broker's longest, 10m", got)
		}
	}, rig.Preset(membroker.PubSub))
}

func TestReceiptIsHandedOver(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(5 * time.Minute); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		r.Q.Expire(t, "a") // as if all extensions had come too late
		rig.Pass(time.Second)
		if n := r.Q.Received("a"); n != 2 {
			t.Fatalf("%d receives, want 2", n)
		}
		rig.Pass(10 * time.Minute)
		r.WantQueue(0)
		r.WantOutcomes("a", "handed-over", "done")
		if n := r.Q.Received("a"); n != 2 {
			t.Errorf("%d receives, want 2: the new receipt must be kept alive", n)
		}
		if n := r.Seen.Started("a"); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestReceiptIsHandedOverOnSQS(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(5 * time.Minute); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		r.Q.Expire(t, "a")
		rig.Pass(10 * time.Minute)
		r.WantQueue(0)
		if n := r.Q.Received("a"); n != 2 {
			t.Errorf("%d receives, want 2", n)
		}
	}, rig.Preset(membroker.SQSStandard))
}

func TestAnotherMessageWithTheKeyIsNoHandOver(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(time.Minute); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		first, second := rig.Message("a"), rig.Message("a")
		first.Body, second.Body = []byte("first"), []byte("second")
		r.Put(first)
		r.Start()
		rig.Pass(time.Second)
		r.Put(second)
		rig.Pass(5 * time.Minute)
		r.WantQueue(0)
		if got := r.Seen.Outcomes("a"); len(got) < 3 || got[0] != "in-progress" || !slices.Equal(got[len(got)-2:], []string{"done", "already-done"}) {
			t.Errorf("the deliveries ended as %q", got)
		}
		if r.Q.Acked("first") != 1 || r.Q.Acked("second") != 1 {
			t.Errorf("acks: %d and %d", r.Q.Acked("first"), r.Q.Acked("second"))
		}
	})
}

func TestSameKeyTwiceInAReceive(t *testing.T) {
	rig.BothWays(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Send("a", "a", "b", "a")
		r.RunFor(5 * time.Minute)
		if n := r.Seen.Started("a"); n != 1 {
			t.Errorf("%d runs of one key", n)
		}
		r.WantQueue(0)
		r.NoLetters()
	})
}

// refused are messages for which no claim is won. Each becomes a letter with fence 0, which never
// reopens anything.
func TestRefused(t *testing.T) {
	raw := func(r *rig.Rig, attributes map[string]string) {
		if err := r.Q.SendRaw(r.Context(), []byte("a"), attributes); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		class string
		send  func(r *rig.Rig)
		set   rig.Option
	}{
		{onceq.ClassNoKey, func(r *rig.Rig) { raw(r, nil) }, rig.With(func(c *rig.Setup) {
			c.Key = func(*broker.Message) (dedupe.Key, error) { return dedupe.Key{}, rig.ErrBoom }
		})},
		{onceq.ClassBadMeta, func(r *rig.Rig) { raw(r, map[string]string{broker.MetaAttribute: "{"}) }, nil},
		{onceq.ClassBadKey, func(r *rig.Rig) { r.PutRaw(rig.Message(strings.Repeat("k", 1<<20))) }, nil},
		{onceq.ClassBadKey, func(r *rig.Rig) { r.PutRaw(rig.Message("nul\x00")) }, nil},
		{onceq.ClassBadKey, func(r *rig.Rig) { r.PutRaw(rig.Message("not UTF-8: \xff")) }, nil},
		{onceq.ClassBadKey, func(r *rig.Rig) { r.Send("a") }, rig.With(func(c *rig.Setup) {
			c.Key = func(*broker.Message) (dedupe.Key, error) { return dedupe.Key{}, nil }
		})},
		{onceq.ClassNoKey, func(r *rig.Rig) { r.Send("a") }, rig.With(func(c *rig.Setup) {
			c.Key = func(*broker.Message) (dedupe.Key, error) { return dedupe.Key{}, rig.ErrBoom }
		})},
		{onceq.ClassNoKey, func(r *rig.Rig) { r.Send("a") }, rig.With(func(c *rig.Setup) {
			c.Key = func(*broker.Message) (dedupe.Key, error) { panic("Key") }
		})},
		{onceq.ClassError, func(r *rig.Rig) { r.Send("a") }, rig.With(func(c *rig.Setup) {
			c.Fingerprint = func(*broker.Message) []byte { panic("Fingerprint") }
		})},
	} {
		t.Run(c.class, func(t *testing.T) {
			var options []rig.Option
			if c.set != nil {
				options = append(options, c.set)
			}
			rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
				c.send(r)
				r.RunFor(time.Second)
				m := r.Letter(c.class)
				if d := m.Meta.Dead; d.Fence != 0 || d.LastErr == "" || d.Attempts != 0 {
					t.Errorf("the letter is %+v", d)
				}
				if c.class == onceq.ClassBadMeta && m.Attributes["onceq-unreadable"] != "{" {
					t.Errorf("the attributes are %v", m.Attributes)
				}
				r.WantQueue(0)
				if n := r.Store.Store.(interface{ Len() int }).Len(); n != 0 {
					t.Errorf("%d records", n)
				}
				outcome := onceq.Outcome(c.class)
				if c.class == onceq.ClassError {
					outcome = onceq.OutcomeBadFingerprint
				}
				if got := r.Seen.Ends; len(got) != 1 || got[0].Outcome != outcome || got[0].Fence != 0 {
					t.Errorf("the job reports are %+v", got)
				}
			}, options...)
		})
	}
}

func TestForeignMessagesWithAKey(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		for range 2 {
			if err := r.Q.SendRaw(r.Context(), []byte("a"), nil); err != nil {
				t.Fatal(err)
			}
		}
		r.RunFor(5 * time.Minute)
		r.WantStatus("a", dedupe.Done)
		r.WantQueue(0)
		if n := r.Seen.Started("a"); n != 1 {
			t.Errorf("%d runs", n)
		}
	}, rig.With(func(c *rig.Setup) {
		c.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: string(m.Body)}, nil }
	}))
}

// A producer's retry makes another message of the same job; only the job's id may be the key.
func TestKeyIsTheJobsID(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		m := broker.Outgoing{Body: []byte("a"), Meta: &broker.Meta{ID: "job", Created: time.Now()}}
		r.PutRaw(m, m)
		r.RunFor(5 * time.Minute)
		r.WantStatus("job", dedupe.Done)
		if n := r.Seen.Started("job"); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestMismatch(t *testing.T) {
	rig.BothWays(t, rig.Returns(nil), func(r *rig.Rig) {
		first, second := rig.Message("a"), rig.Message("a")
		second.Body = []byte("another payload")
		r.Put(first)
		r.Start()
		rig.Pass(time.Second)
		r.Put(second)
		rig.Pass(time.Second)
		r.WantStatus("a", dedupe.Done)
		if d := r.Letter(onceq.ClassMismatch).Meta.Dead; d.Fence != 0 {
			t.Errorf("the letter is %+v", d)
		}
		r.WantQueue(0)
		if n := r.Seen.Started("a"); n != 1 {
			t.Errorf("%d runs", n)
		}
	}, rig.With(func(c *rig.Setup) {
		c.Fingerprint = func(m *broker.Message) []byte { return m.Body }
	}))
}
