package onceq_test

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
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

var failing = returns(onceq.Permanent(errBoom))

// order notes the calls that end a failed job.
type order struct {
	rig   *rig
	steps []string
}

func (o *order) note(step string) {
	if len(o.steps) == 0 || o.steps[len(o.steps)-1] != step {
		o.steps = append(o.steps, step)
	}
}

// watch makes every step fail, its reply lost or not, the given number of times.
func watch(r *rig, tries int, applied bool) *order {
	o := &order{rig: r}
	r.store.set(func(s *store) {
		s.fault = func(c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Settle {
				o.note("settle")
				if c.N <= tries {
					return faulty.Err(errBoom, applied)
				}
			}
			return nil
		}
	})
	r.dlq.SetFault(fail(o, onceqtest.Send, "letter", tries, applied))
	r.q.SetFault(fail(o, onceqtest.Ack, "ack", tries, applied))
	return o
}

func fail(o *order, op onceqtest.Op, step string, tries int, applied bool) faulty.Func {
	return func(_ context.Context, c onceqtest.Call) faulty.Faults {
		if c.Op != op {
			return nil
		}
		o.note(step)
		if c.N <= tries {
			return faulty.Err(errBoom, applied)
		}
		return nil
	}
}

func TestFailureIsSettledThenLetterThenAck(t *testing.T) {
	for _, applied := range []bool{false, true} {
		for _, tries := range []int{0, 1, 4} {
			t.Run(fmt.Sprint(applied, tries), func(t *testing.T) {
				bubble(t, failing, func(r *rig) {
					o := watch(r, tries, applied)
					r.send("a")
					r.run(time.Minute)
					if want := []string{"settle", "letter", "ack"}; !slices.Equal(o.steps, want) {
						t.Errorf("the order was %q, want %q", o.steps, want)
					}
					r.wantStatus("a", dedupe.Failed)
					r.wantQueue(0)
					if n := r.seen.started("a"); n != 1 {
						t.Errorf("%d runs", n)
					}
					want := 1
					if applied {
						want += tries
					}
					ms := r.letters()
					if len(ms) != want {
						t.Fatalf("%d letters, want %d: a letter in doubt is put again", len(ms), want)
					}
					for _, m := range ms {
						if d := m.Meta.Dead; d.Fence != r.record("a").Fence || d.Class != onceq.ClassPermanent {
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
		"error": faulty.Fail(errBoom), "throttled": faulty.Fail(broker.ErrThrottled), "hang": faulty.Slow(time.Hour), "missing": faulty.Fail(broker.ErrNotFound),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, failing, func(r *rig) {
				r.dlq.SetFault(func(context.Context, onceqtest.Call) faulty.Faults { return fault })
				r.send("a")
				r.start()
				pass(10 * time.Minute)
				r.wantStatus("a", dedupe.Failed)
				r.wantQueue(1)
				if n := r.store.renews.Load(); n != 0 {
					t.Errorf("%d renewals of a claim that has ended", n)
				}
				if n := r.q.received("a"); n != 1 {
					t.Errorf("%d receives: the message was not held", n)
				}
				r.dlq.SetFault(nil)
				pass(time.Minute)
				r.letter(onceq.ClassPermanent)
				r.wantQueue(0)
			})
		})
	}
}

func TestDrainWithoutADeadLetterQueue(t *testing.T) {
	bubble(t, failing, func(r *rig) {
		r.dlq.SetFault(func(context.Context, onceqtest.Call) faulty.Faults { return faulty.Fail(errBoom) })
		r.send("a")
		r.start()
		pass(time.Minute)
		begin := time.Now()
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(begin); took > 6*time.Second {
			t.Errorf("the drain took %v", took)
		}
		r.wantQueue(1)
		r.dlq.SetFault(nil)
		pass(time.Minute)
		r.run(time.Second)
		r.letter(onceq.ClassPermanent)
		r.wantQueue(0)
		if n := r.seen.started("a"); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

// picky is a dead-letter queue that does not take everything.
type picky struct {
	*faulty.Broker
	refuse func(o *broker.Outgoing) error
}

func (p *picky) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	ids, errs := make([]string, len(ms)), make([]error, len(ms))
	for i := range ms {
		if errs[i] = p.refuse(&ms[i]); errs[i] == nil {
			if _, err := p.Broker.Send(ctx, ms[i:i+1]); err != nil {
				return nil, err
			}
		}
	}
	return ids, broker.Batch(errs)
}

func refusing(refuse func(o *broker.Outgoing) error) option {
	return func(r *rig) { r.cfg.DeadLetter = &picky{r.dlq, refuse} }
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
			bubble(t, returns(onceq.Permanent(fmt.Errorf("%s", long))), func(r *rig) {
				m := message("a")
				m.Attributes = attributes
				r.put(m)
				r.run(time.Minute)
				ms := r.letters()
				if len(ms) != 1 || string(ms[0].Body) != "a" || !c.check(ms[0]) {
					t.Fatalf("the letters are %+v", ms)
				}
				r.wantQueue(0)
			}, refusing(func(o *broker.Outgoing) error {
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
	bubble(t, func(_ context.Context, j *onceq.Job) error {
		seen = append(seen, j.Message.Attributes)
		return onceq.Permanent(errBoom)
	}, func(r *rig) {
		m := message("a")
		m.Attributes = attributes
		r.put(m)
		r.start()
		for n := range 3 {
			pass(time.Minute)
			l := r.letter(onceq.ClassPermanent)
			if len(l.Attributes) != 0 || !maps.Equal(l.Meta.Dead.Attributes, attributes) {
				t.Fatalf("letter %d has the attributes %v, folded %v", n, l.Attributes, l.Meta.Dead.Attributes)
			}
			r.replay(l)
		}
		pass(time.Minute)
		if len(seen) != 4 {
			t.Fatalf("%d runs", len(seen))
		}
		for n, got := range seen {
			if !maps.Equal(got, attributes) {
				t.Errorf("run %d saw the attributes %v", n, got)
			}
		}
	}, refusing(func(o *broker.Outgoing) error {
		if o.Meta != nil && len(o.Attributes) > 0 {
			return broker.ErrTooLarge
		}
		return nil
	}))
}

func TestLetterThatIsNeverTakenStaysInTheQueue(t *testing.T) {
	for _, refusal := range []error{broker.ErrTooLarge, broker.ErrUnsupported, broker.ErrBadMeta} {
		t.Run(refusal.Error(), func(t *testing.T) {
			bubble(t, func(_ context.Context, j *onceq.Job) error {
				if string(j.Message.Body) == "poison" {
					return onceq.Permanent(errBoom)
				}
				return nil
			}, func(r *rig) {
				for range 20 { // more than there are slots: they must not stop the good ones
					m := message("poison")
					m.Meta.Key = ""
					r.put(m)
				}
				r.start()
				pass(time.Minute)
				r.send("good")
				pass(time.Minute)
				r.wantStatus("good", dedupe.Done)
				r.wantQueue(20)
				for _, d := range r.q.delays("poison") {
					if d != time.Hour {
						t.Errorf("nacked with %v, want an hour", d)
					}
				}
				if n := r.log.count("does not take a message"); n != 20 {
					t.Errorf("%d log records, want 20", n)
				}
				r.noLetters()
			}, refusing(func(o *broker.Outgoing) error { return refusal }))
		})
	}
}

// Each of these letters fits, but not all of them into one request.
func TestLettersTooLargeTogether(t *testing.T) {
	bubble(t, failing, func(r *rig) {
		keys := numbered("k", 8)
		for _, k := range keys {
			m := message(k)
			m.Body = []byte(strings.Repeat(k, 60_000))
			r.put(m)
		}
		r.run(time.Minute)
		ms := r.letters()
		if len(ms) != len(keys) {
			t.Fatalf("%d letters, want %d", len(ms), len(keys))
		}
		for _, m := range ms {
			if m.Meta == nil || m.Meta.Dead == nil || m.Meta.Dead.Fence == 0 {
				t.Errorf("a letter has lost its fence: %+v", m.Meta)
			}
		}
		r.wantQueue(0)
	}, preset(membroker.SQSStandard))
}

func TestLetterToAQueueThatRequiresGroups(t *testing.T) {
	bubble(t, failing, func(r *rig) {
		r.dlq = newBroker(t, membroker.Options{Preset: membroker.SQSFIFO})
		r.cfg.DeadLetter = r.dlq
		r.w = r.worker(nil)
		long := strings.Repeat("k", 1000)
		r.send("a", "b", "ungültig", long)
		r.run(time.Minute)
		groups := make(map[string]bool)
		for _, m := range r.letters() {
			groups[m.Group] = true
		}
		if len(groups) != 4 {
			t.Errorf("the letters' groups are %v, want one for each key", groups)
		}
		r.wantQueue(0)
	})
}

// Within five minutes a FIFO queue swallows what has the same deduplication id.
func TestLettersOnFIFOAreNotSwallowed(t *testing.T) {
	bubble(t, failing, func(r *rig) {
		m := message("a")
		m.Group, m.DedupID = "g", "dedup"
		r.put(m)
		r.run(time.Second)
		first := r.letter(onceq.ClassPermanent)
		// The replay, within the window, fails again: another fence, another letter.
		if _, err := r.q.Send(r.Context(), []broker.Outgoing{{Body: first.Body, Meta: first.Meta, Group: "g"}}); err != nil {
			t.Fatal(err)
		}
		r.run(time.Second)
		second := r.letter(onceq.ClassPermanent)
		if second.Meta.Dead.Fence <= first.Meta.Dead.Fence {
			t.Errorf("fences %d, then %d", first.Meta.Dead.Fence, second.Meta.Dead.Fence)
		}
		if n := r.seen.started("a"); n != 2 {
			t.Errorf("%d runs, want 2", n)
		}
		r.wantQueue(0)
	}, preset(membroker.SQSFIFO))
}

func TestReplayReopensOnce(t *testing.T) {
	fails := true
	h := func(context.Context, *onceq.Job) error {
		if fails {
			return onceq.Permanent(errBoom)
		}
		return nil
	}
	bubble(t, h, func(r *rig) {
		r.send("a")
		r.run(time.Second)
		m := r.letter(onceq.ClassPermanent)
		fails = false
		again := broker.Outgoing{Body: m.Body, Meta: m.Meta}
		r.putRaw(again, again)
		r.run(10 * time.Minute)
		r.wantStatus("a", dedupe.Done)
		if n := r.seen.started("a"); n != 2 {
			t.Errorf("%d runs, want 2: the second copy of the letter finds it done", n)
		}
		r.noLetters()
		r.wantQueue(0)
	})
}

func TestStaleReplayIsPutBackWithTheRecordsFence(t *testing.T) {
	bubble(t, failing, func(r *rig) {
		r.send("a")
		r.run(time.Second)
		m := r.letter(onceq.ClassPermanent)
		again := broker.Outgoing{Body: m.Body, Meta: m.Meta}
		r.putRaw(again)
		r.run(time.Second)
		newer := r.letter(onceq.ClassPermanent)
		r.putRaw(again) // the old letter
		r.run(time.Second)
		if d := r.letter(onceq.ClassPermanent).Meta.Dead; d.Fence != newer.Meta.Dead.Fence {
			t.Errorf("put back with fence %d, want the record's, %d", d.Fence, newer.Meta.Dead.Fence)
		}
		if n := r.seen.started("a"); n != 2 {
			t.Errorf("%d runs, want 2", n)
		}
	})
}
