package onceq_test

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
)

// never is a handler that must not run.
func never(t *testing.T) onceq.HandlerFunc {
	return func(_ context.Context, j *onceq.Job) error {
		t.Errorf("the handler of %q ran", j.Message.Body)
		return nil
	}
}

func TestDoneIsAckedWithItsResult(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		q := r.store.occupy(t, "a", time.Minute, dedupe.Rerun)
		r.store.settle(t, q, dedupe.Settlement{To: dedupe.Done, Result: []byte("42")})
		r.send("a")
		r.run(time.Second)
		r.wantQueue(0)
		r.noLetters()
		r.wantOutcomes("a", "already-done")
		if got := r.seen.of("a")[0]; string(got.Result) != "42" || got.Process != 0 {
			t.Errorf("the timing record is %+v", got)
		}
	})
}

func TestFailedAndParkedPutTheLetterAgain(t *testing.T) {
	for _, c := range []struct {
		to      dedupe.Status
		class   string
		outcome string
	}{{dedupe.Failed, "custom", "already-failed"}, {dedupe.Parked, onceq.ClassInterrupted, "already-parked"}} {
		bubble(t, never(t), func(r *rig) {
			id := r.putRaw(message("a"))[0]
			q := r.store.occupy(t, "a", time.Minute, dedupe.Rerun, id)
			r.store.settle(t, q, dedupe.Settlement{To: c.to, ErrClass: c.class, ErrText: "because"})
			r.run(time.Second)
			rec := r.record("a")
			if d := r.letter(c.class).Meta.Dead; d.Fence != rec.Fence || d.FirstErr != "because" || d.LastErr != "because" || d.Attempts != 1 || !d.At.Equal(rec.Finished) {
				t.Errorf("the letter is %+v of %+v", d, rec)
			}
			r.wantStatus("a", c.to)
			r.wantQueue(0)
			r.wantOutcomes("a", c.outcome)
		})
	}
}

func TestTakeoverParks(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		id := r.putRaw(message("a"))[0]
		q := r.store.occupy(t, "a", time.Minute, dedupe.Park, id)
		if _, err := r.store.Store.Renew(r.Context(), []dedupe.Renewal{{Key: q.Key, Token: q.Token, TTL: time.Minute, Started: true}}); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute)
		r.run(time.Second)
		r.wantStatus("a", dedupe.Parked)
		if d := r.letter(onceq.ClassInterrupted).Meta.Dead; d.Fence != r.record("a").Fence || d.LastErr == "" {
			t.Errorf("the letter is %+v", d)
		}
		r.wantQueue(0)
	})
}

func TestDeadLeaseCounts(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		r.store.occupy(t, "a", time.Second, dedupe.Rerun)
		pass(time.Minute)
		r.send("a")
		r.run(time.Second)
		r.wantStatus("a", dedupe.Failed)
		if d := r.letter(onceq.ClassAttempts).Meta.Dead; d.Fence != r.record("a").Fence || d.Attempts != 1 { // the attempt that was never started does not count
			t.Errorf("the letter is %+v", d)
		}
		r.wantQueue(0)
	}, most(1))
}

func TestAnotherWorkerHasIt(t *testing.T) {
	const length = 4 * time.Hour
	bubble(t, returns(nil), func(r *rig) {
		q := r.store.occupy(t, "a", length, dedupe.Rerun)
		r.send("a")
		r.start()
		pass(length)
		r.store.settle(t, q, dedupe.Settlement{To: dedupe.Done})
		pass(length)
		r.wantQueue(0)
		if n := r.seen.started("a"); n != 0 {
			t.Errorf("the handler ran %d times", n)
		}
		if n := r.q.received("a"); n > 4 {
			t.Errorf("%d receives", n)
		}
		if d := r.q.delays("a")[0]; d < length || d > length+length/8+time.Second {
			t.Errorf("the first delay is %v, want %v and up to an eighth and a second", d, length)
		}
	})
}

func TestReceivesAreFewHoweverLongAJob(t *testing.T) {
	const length = 12 * time.Hour
	bubble(t, returns(nil), func(r *rig) {
		q := r.store.occupy(t, "a", 30*time.Second, dedupe.Rerun)
		r.send("a")
		r.start()
		for range int(length / (10 * time.Second)) { // the other worker's heartbeat
			pass(10 * time.Second)
			if _, err := r.store.Store.Renew(r.Context(), []dedupe.Renewal{{Key: q.Key, Token: q.Token, TTL: 30 * time.Second}}); err != nil {
				t.Fatal(err)
			}
		}
		r.store.settle(t, q, dedupe.Settlement{To: dedupe.Done})
		n := r.q.received("a")
		if n < 5 || n > 12 {
			t.Errorf("%d receives in %v, want about log2", n, length)
		}
		pass(2 * length)
		r.wantQueue(0)
		r.noLetters()
	})
}

func TestInProgressDelayIsClamped(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		r.store.occupy(t, "a", time.Hour, dedupe.Rerun)
		r.send("a")
		r.run(time.Second)
		if got := r.q.delays("a"); len(got) != 1 || got[0] != 10*time.Minute {
			t.Errorf("nacked with %v, want the broker's longest, 10m", got)
		}
	}, preset(membroker.PubSub))
}

func TestReceiptIsHandedOver(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { takes(5 * time.Minute); return nil }
	bubble(t, h, func(r *rig) {
		r.send("a")
		r.start()
		pass(time.Second)
		r.q.expire(t, "a") // as if all extensions had come too late
		pass(time.Second)
		if n := r.q.received("a"); n != 2 {
			t.Fatalf("%d receives, want 2", n)
		}
		pass(10 * time.Minute)
		r.wantQueue(0)
		r.wantOutcomes("a", "handed-over", "done")
		if n := r.q.received("a"); n != 2 {
			t.Errorf("%d receives, want 2: the new receipt must be kept alive", n)
		}
		if n := r.seen.started("a"); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestReceiptIsHandedOverOnSQS(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { takes(5 * time.Minute); return nil }
	bubble(t, h, func(r *rig) {
		r.send("a")
		r.start()
		pass(time.Second)
		r.q.expire(t, "a")
		pass(10 * time.Minute)
		r.wantQueue(0)
		if n := r.q.received("a"); n != 2 {
			t.Errorf("%d receives, want 2", n)
		}
	}, preset(membroker.SQSStandard))
}

func TestAnotherMessageWithTheKeyIsNoHandOver(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { takes(time.Minute); return nil }
	bubble(t, h, func(r *rig) {
		first, second := message("a"), message("a")
		first.Body, second.Body = []byte("first"), []byte("second")
		r.put(first)
		r.start()
		pass(time.Second)
		r.put(second)
		pass(5 * time.Minute)
		r.wantQueue(0)
		if got := r.seen.outcomes("a"); len(got) < 3 || got[0] != "in-progress" || !slices.Equal(got[len(got)-2:], []string{"done", "already-done"}) {
			t.Errorf("the deliveries ended as %q", got)
		}
		if r.q.acked("first") != 1 || r.q.acked("second") != 1 {
			t.Errorf("acks: %d and %d", r.q.acked("first"), r.q.acked("second"))
		}
	})
}

func TestSameKeyTwiceInAReceive(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.send("a", "a", "b", "a")
		r.run(5 * time.Minute)
		if n := r.seen.started("a"); n != 1 {
			t.Errorf("%d runs of one key", n)
		}
		r.wantQueue(0)
		r.noLetters()
	})
}

// refused are messages for which no claim is won. Each becomes a letter with fence 0, which never
// reopens anything.
func TestRefused(t *testing.T) {
	raw := func(r *rig, attributes map[string]string) {
		if err := r.q.SendRaw(r.Context(), []byte("a"), attributes); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		class string
		send  func(r *rig)
		set   option
	}{
		{onceq.ClassNoKey, func(r *rig) { raw(r, nil) }, with(func(c *setup) {
			c.Key = func(*broker.Message) (dedupe.Key, error) { return dedupe.Key{}, errBoom }
		})},
		{onceq.ClassBadMeta, func(r *rig) { raw(r, map[string]string{broker.MetaAttribute: "{"}) }, nil},
		{onceq.ClassBadKey, func(r *rig) { r.putRaw(message(strings.Repeat("k", 1<<20))) }, nil},
		{onceq.ClassBadKey, func(r *rig) { r.putRaw(message("nul\x00")) }, nil},
		{onceq.ClassBadKey, func(r *rig) { r.putRaw(message("not UTF-8: \xff")) }, nil},
		{onceq.ClassBadKey, func(r *rig) { r.send("a") }, with(func(c *setup) {
			c.Key = func(*broker.Message) (dedupe.Key, error) { return dedupe.Key{}, nil }
		})},
		{onceq.ClassNoKey, func(r *rig) { r.send("a") }, with(func(c *setup) {
			c.Key = func(*broker.Message) (dedupe.Key, error) { return dedupe.Key{}, errBoom }
		})},
		{onceq.ClassNoKey, func(r *rig) { r.send("a") }, with(func(c *setup) {
			c.Key = func(*broker.Message) (dedupe.Key, error) { panic("Key") }
		})},
		{onceq.ClassError, func(r *rig) { r.send("a") }, with(func(c *setup) {
			c.Fingerprint = func(*broker.Message) []byte { panic("Fingerprint") }
		})},
	} {
		t.Run(c.class, func(t *testing.T) {
			var options []option
			if c.set != nil {
				options = append(options, c.set)
			}
			bubble(t, never(t), func(r *rig) {
				c.send(r)
				r.run(time.Second)
				m := r.letter(c.class)
				if d := m.Meta.Dead; d.Fence != 0 || d.LastErr == "" || d.Attempts != 0 {
					t.Errorf("the letter is %+v", d)
				}
				if c.class == onceq.ClassBadMeta && m.Attributes["onceq-unreadable"] != "{" {
					t.Errorf("the attributes are %v", m.Attributes)
				}
				r.wantQueue(0)
				if n := r.store.Store.(interface{ Len() int }).Len(); n != 0 {
					t.Errorf("%d records", n)
				}
				if got := r.seen.ends; len(got) != 1 || string(got[0].Outcome) != c.class || got[0].Fence != 0 {
					t.Errorf("the timing records are %+v", got)
				}
			}, options...)
		})
	}
}

// putRaw sends without what Send would refuse.
func (r *rig) putRaw(ms ...broker.Outgoing) []string {
	r.Helper()
	ids, err := r.q.Send(r.Context(), ms)
	if err != nil {
		r.Fatal(err)
	}
	return ids
}

func TestForeignMessagesWithAKey(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		for range 2 {
			if err := r.q.SendRaw(r.Context(), []byte("a"), nil); err != nil {
				t.Fatal(err)
			}
		}
		r.run(5 * time.Minute)
		r.wantStatus("a", dedupe.Done)
		r.wantQueue(0)
		if n := r.seen.started("a"); n != 1 {
			t.Errorf("%d runs", n)
		}
	}, with(func(c *setup) {
		c.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: string(m.Body)}, nil }
	}))
}

// A producer's retry makes another message of the same job; only the job's id may be the key.
func TestKeyIsTheJobsID(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		m := broker.Outgoing{Body: []byte("a"), Meta: &broker.Meta{ID: "job", Created: time.Now()}}
		r.putRaw(m, m)
		r.run(5 * time.Minute)
		r.wantStatus("job", dedupe.Done)
		if n := r.seen.started("job"); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestMismatch(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		first, second := message("a"), message("a")
		second.Body = []byte("another payload")
		r.put(first)
		r.start()
		pass(time.Second)
		r.put(second)
		pass(time.Second)
		r.wantStatus("a", dedupe.Done)
		if d := r.letter(onceq.ClassMismatch).Meta.Dead; d.Fence != 0 {
			t.Errorf("the letter is %+v", d)
		}
		r.wantQueue(0)
		if n := r.seen.started("a"); n != 1 {
			t.Errorf("%d runs", n)
		}
	}, with(func(c *setup) {
		c.Fingerprint = func(m *broker.Message) []byte { return m.Body }
	}))
}
