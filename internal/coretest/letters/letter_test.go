package letters

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// order notes the calls that end a failed job.
type order struct {
	rig   *rig.Rig
	steps []string
}

func (o *order) note(step string) {
	if len(o.steps) == 0 || o.steps[len(o.steps)-1] != step {
		o.steps = append(o.steps, step)
	}
}

// watch makes every step fail, its reply lost or not, the given number of times.
func watch(r *rig.Rig, tries int, applied bool) *order {
	o := &order{rig: r}
	r.Store.Set(func(s *rig.Store) {
		s.Fault = func(c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Settle {
				o.note("settle")
				if c.N <= tries {
					return faulty.Err(rig.ErrBoom, applied)
				}
			}
			return nil
		}
	})
	r.DLQ.SetFault(fail(o, onceqtest.Send, "letter", tries, applied))
	r.Q.SetFault(fail(o, onceqtest.Ack, "ack", tries, applied))
	return o
}

func fail(o *order, op onceqtest.Op, step string, tries int, applied bool) faulty.Func {
	return func(_ context.Context, c onceqtest.Call) faulty.Faults {
		if c.Op != op {
			return nil
		}
		o.note(step)
		if c.N <= tries {
			return faulty.Err(rig.ErrBoom, applied)
		}
		return nil
	}
}

func TestFailureIsSettledThenLetterThenAck(t *testing.T) {
	for _, applied := range []bool{false, true} {
		for _, tries := range []int{0, 1, 4} {
			t.Run(fmt.Sprint(applied, tries), func(t *testing.T) {
				rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
					o := watch(r, tries, applied)
					r.Send("a")
					r.RunFor(time.Minute)
					if want := []string{"settle", "letter", "ack"}; !slices.Equal(o.steps, want) {
						t.Errorf("the order was %q, want %q", o.steps, want)
					}
					r.WantStatus("a", dedupe.Failed)
					r.WantQueue(0)
					if n := r.Seen.Started("a"); n != 1 {
						t.Errorf("%d runs", n)
					}
					want := 1
					if applied {
						want += tries
					}
					ms := r.Letters()
					if len(ms) != want {
						t.Fatalf("%d letters, want %d: a letter in doubt is put again", len(ms), want)
					}
					for _, m := range ms {
						if d := m.Meta.Dead; d.Fence != r.Record("a").Fence || d.Class != onceq.ClassPermanent {
							t.Errorf("the letter is %+v", d)
						}
					}
				})
			})
		}
	}
}

func TestDeadLetterQueueAway(t *testing.T) {
	for name, fault := range map[string]faulty.Faults{
		"error": faulty.Fail(rig.ErrBoom), "throttled": faulty.Fail(broker.ErrThrottled), "hang": faulty.Slow(time.Hour), "missing": faulty.Fail(broker.ErrNotFound),
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
				r.DLQ.SetFault(func(context.Context, onceqtest.Call) faulty.Faults { return fault })
				r.Send("a")
				r.Start()
				rig.Pass(10 * time.Minute)
				r.WantStatus("a", dedupe.Failed)
				r.WantQueue(1)
				if n := r.Store.Renews.Load(); n != 0 {
					t.Errorf("%d renewals of a claim that has ended", n)
				}
				if n := r.Q.Received("a"); n != 1 {
					t.Errorf("%d receives: the message was not held", n)
				}
				r.DLQ.SetFault(nil)
				rig.Pass(time.Minute)
				r.Letter(onceq.ClassPermanent)
				r.WantQueue(0)
			})
		})
	}
}

func TestDrainWithoutADeadLetterQueue(t *testing.T) {
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
		r.DLQ.SetFault(func(context.Context, onceqtest.Call) faulty.Faults { return faulty.Fail(rig.ErrBoom) })
		r.Send("a")
		r.Start()
		rig.Pass(time.Minute)
		begin := time.Now()
		if err := r.Stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(begin); took > 6*time.Second {
			t.Errorf("the drain took %v", took)
		}
		r.WantQueue(1)
		r.DLQ.SetFault(nil)
		rig.Pass(time.Minute)
		r.RunFor(time.Second)
		r.Letter(onceq.ClassPermanent)
		r.WantQueue(0)
		if n := r.Seen.Started("a"); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestLetterIsCutDownToWhatFits(t *testing.T) {
	attributes := map[string]string{"one": "1", "two": "2"}
	long := strings.Repeat("x", 1500)
	for _, c := range []struct {
		name   string
		refuse func(o *broker.Outgoing) bool
		check  func(m *broker.Message) bool
	}{
		{"whole", func(*broker.Outgoing) bool { return false }, func(m *broker.Message) bool {
			return m.Meta.Dead.LastErr == long && maps.Equal(m.Attributes, attributes)
		}},
		{"trimmed", func(o *broker.Outgoing) bool { return o.Meta != nil && len(o.Meta.Dead.LastErr) > 1000 }, func(m *broker.Message) bool {
			return len(m.Meta.Dead.LastErr) < 200 && m.Meta.Dead.Fence > 0 && maps.Equal(m.Attributes, attributes)
		}},
		{"folded", func(o *broker.Outgoing) bool { return o.Meta != nil && len(o.Attributes) > 0 }, func(m *broker.Message) bool {
			return m.Meta.Dead.Fence > 0 && len(m.Attributes) == 0 && maps.Equal(m.Meta.Dead.Attributes, attributes)
		}},
		{"bare", func(o *broker.Outgoing) bool { return o.Meta != nil }, func(m *broker.Message) bool {
			return m.Meta == nil && maps.Equal(m.Attributes, attributes)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rig.Bubble(t, rig.Returns(onceq.Permanent(fmt.Errorf("%s", long))), func(r *rig.Rig) {
				m := rig.Message("a")
				m.Attributes = attributes
				r.Put(m)
				r.RunFor(time.Minute)
				ms := r.Letters()
				if len(ms) != 1 || string(ms[0].Body) != "a" || !c.check(ms[0]) {
					t.Fatalf("the letters are %+v", ms)
				}
				r.WantQueue(0)
			}, rig.Refusing(func(o *broker.Outgoing) error {
				if c.refuse(o) {
					return broker.ErrTooLarge
				}
				return nil
			}))
		})
	}
}

// The attributes of a letter found no room beside ours, and it is sent back as it is. The handler
// and the next letter have the attributes in their places.
func TestFoldedAttributesComeBack(t *testing.T) {
	attributes := map[string]string{"tenant": "acme", "traceparent": "00-1-2-01"}
	var seen []map[string]string
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error {
		seen = append(seen, j.Message.Attributes)
		return onceq.Permanent(rig.ErrBoom)
	}, func(r *rig.Rig) {
		m := rig.Message("a")
		m.Attributes = attributes
		r.Put(m)
		r.Start()
		for n := range 3 {
			rig.Pass(time.Minute)
			l := r.Letter(onceq.ClassPermanent)
			if len(l.Attributes) != 0 || !maps.Equal(l.Meta.Dead.Attributes, attributes) {
				t.Fatalf("letter %d has the attributes %v, folded %v", n, l.Attributes, l.Meta.Dead.Attributes)
			}
			r.Replay(l)
		}
		rig.Pass(time.Minute)
		if len(seen) != 4 {
			t.Fatalf("%d runs", len(seen))
		}
		for n, got := range seen {
			if !maps.Equal(got, attributes) {
				t.Errorf("run %d saw the attributes %v", n, got)
			}
		}
	}, rig.Refusing(func(o *broker.Outgoing) error {
		if o.Meta != nil && len(o.Attributes) > 0 {
			return broker.ErrTooLarge
		}
		return nil
	}))
}

func TestLetterThatIsNeverTakenStaysInTheQueue(t *testing.T) {
	for _, refusal := range []error{broker.ErrTooLarge, broker.ErrUnsupported, broker.ErrBadMeta} {
		t.Run(refusal.Error(), func(t *testing.T) {
			rig.Bubble(t, func(_ context.Context, j *onceq.Job) error {
				if string(j.Message.Body) == "poison" {
					return onceq.Permanent(rig.ErrBoom)
				}
				return nil
			}, func(r *rig.Rig) {
				for range 20 { // more than there are slots: they must not stop the good ones
					m := rig.Message("poison")
					m.Meta.Key = ""
					r.Put(m)
				}
				r.Start()
				rig.Pass(time.Minute)
				r.Send("good")
				rig.Pass(time.Minute)
				r.WantStatus("good", dedupe.Done)
				r.WantQueue(20)
				for _, d := range r.Q.Delays("poison") {
					if d != time.Hour {
						t.Errorf("nacked with %v, want an hour", d)
					}
				}
				if n := r.Logged.Count("does not take a message"); n != 20 {
					t.Errorf("%d log records, want 20", n)
				}
				r.NoLetters()
			}, rig.Refusing(func(o *broker.Outgoing) error { return refusal }))
		})
	}
}

// Each of these letters fits, but not all of them into one request.
func TestLettersTooLargeTogether(t *testing.T) {
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
		keys := rig.Numbered("k", 8)
		for _, k := range keys {
			m := rig.Message(k)
			m.Body = []byte(strings.Repeat(k, 60_000))
			r.Put(m)
		}
		r.RunFor(time.Minute)
		ms := r.Letters()
		if len(ms) != len(keys) {
			t.Fatalf("%d letters, want %d", len(ms), len(keys))
		}
		for _, m := range ms {
			if m.Meta == nil || m.Meta.Dead == nil || m.Meta.Dead.Fence == 0 {
				t.Errorf("a letter has lost its fence: %+v", m.Meta)
			}
		}
		r.WantQueue(0)
	}, rig.Preset(membroker.SQSStandard))
}

func TestLetterToAQueueThatRequiresGroups(t *testing.T) {
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
		r.DLQ = rig.NewBroker(t, membroker.Options{Preset: membroker.SQSFIFO})
		r.Cfg.DeadLetter = r.DLQ
		r.W = r.Worker(nil)
		long := strings.Repeat("k", 1000)
		r.Send("a", "b", "ungültig", long)
		r.RunFor(time.Minute)
		groups := make(map[string]bool)
		for _, m := range r.Letters() {
			groups[m.Group] = true
		}
		if len(groups) != 4 {
			t.Errorf("the letters' groups are %v, want one for each key", groups)
		}
		r.WantQueue(0)
	})
}

// Within five minutes a FIFO queue swallows what has the same deduplication id.
func TestLettersOnFIFOAreNotSwallowed(t *testing.T) {
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
		m := rig.Message("a")
		m.Group, m.DedupID = "g", "dedup"
		r.Put(m)
		r.RunFor(time.Second)
		first := r.Letter(onceq.ClassPermanent)
		// The replay, within the window, fails again: another fence, another letter.
		if _, err := r.Q.Send(r.Context(), []broker.Outgoing{{Body: first.Body, Meta: first.Meta, Group: "g"}}); err != nil {
			t.Fatal(err)
		}
		r.RunFor(time.Second)
		second := r.Letter(onceq.ClassPermanent)
		if second.Meta.Dead.Fence <= first.Meta.Dead.Fence {
			t.Errorf("fences %d, then %d", first.Meta.Dead.Fence, second.Meta.Dead.Fence)
		}
		if n := r.Seen.Started("a"); n != 2 {
			t.Errorf("%d runs, want 2", n)
		}
		r.WantQueue(0)
	}, rig.Preset(membroker.SQSFIFO))
}

func TestReplayReopensOnce(t *testing.T) {
	fails := true
	h := func(context.Context, *onceq.Job) error {
		if fails {
			return onceq.Permanent(rig.ErrBoom)
		}
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		m := r.Letter(onceq.ClassPermanent)
		fails = false
		again := broker.Outgoing{Body: m.Body, Meta: m.Meta}
		r.PutRaw(again, again)
		r.RunFor(10 * time.Minute)
		r.WantStatus("a", dedupe.Done)
		if n := r.Seen.Started("a"); n != 2 {
			t.Errorf("%d runs, want 2: the second copy of the letter finds it done", n)
		}
		r.NoLetters()
		r.WantQueue(0)
	})
}

func TestStaleReplayIsPutBackWithTheRecordsFence(t *testing.T) {
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		m := r.Letter(onceq.ClassPermanent)
		again := broker.Outgoing{Body: m.Body, Meta: m.Meta}
		r.PutRaw(again)
		r.RunFor(time.Second)
		newer := r.Letter(onceq.ClassPermanent)
		r.PutRaw(again) // the old letter
		r.RunFor(time.Second)
		if d := r.Letter(onceq.ClassPermanent).Meta.Dead; d.Fence != newer.Meta.Dead.Fence {
			t.Errorf("put back with fence %d, want the record's, %d", d.Fence, newer.Meta.Dead.Fence)
		}
		if n := r.Seen.Started("a"); n != 2 {
			t.Errorf("%d runs, want 2", n)
		}
	})
}
