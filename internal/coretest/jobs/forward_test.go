package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/onceqtest"
)

// What is sent on is what was put: its bytes, its attributes, its group, and all of its metadata,
// the id, key and time that the producer's Send has filled in above all.
func TestForwardSendsTheMessageAsItIs(t *testing.T) {
	inOffice(t, func(o *office) {
		ms := []broker.Outgoing{
			{
				Body: []byte{0, 1, 255}, Attributes: map[string]string{"traceparent": "00-1", "empty": ""}, Group: "account-1",
				Meta: &broker.Meta{
					Type: "mail", Key: "A-1", CorrelationID: "c", Expires: time.Now().Add(time.Hour),
					MaxAttempts: 3, Timeout: time.Second, Version: 9, Extra: `"new":1`,
					Dead: &broker.Letter{Fence: 7, Class: "permanent", Source: "orders", Signature: "s"},
				},
			},
			{Body: nil, Meta: &broker.Meta{Type: "ship"}},
		}
		o.post(ms...) // fills in what is missing
		want := ms
		o.relay(nil)
		rig.Pass(time.Second)
		got := o.arrived()
		if len(got) != 2 {
			t.Fatalf("%d messages arrived, want 2", len(got))
		}
		slices.SortFunc(got, func(a, b *broker.Message) int { return strings.Compare(a.Meta.Type, b.Meta.Type) })
		for i, m := range got {
			if string(m.Body) != string(want[i].Body) || !maps.Equal(m.Attributes, want[i].Attributes) || m.Group != want[i].Group {
				t.Errorf("message %d arrived as %q %v %q", i, m.Body, m.Attributes, m.Group)
			}
			if !reflect.DeepEqual(m.Meta, want[i].Meta) {
				t.Errorf("its metadata arrived as\n%+v, want\n%+v", m.Meta, want[i].Meta)
			}
		}
		if n := rig.Depth(o.T, o.box.Broker); n != 0 {
			t.Errorf("%d messages are left in the outbox", n)
		}
		if n := o.log.Count("level="); n != 0 {
			t.Errorf("the relay told of %d things, and nothing was wrong", n)
		}
	})
}

// What is ready together shares a call, as far as the destination takes it.
func TestForwardSharesCalls(t *testing.T) {
	inOffice(t, func(o *office) {
		o.put(rig.Numbered("k", 95)...)
		r := o.relay(nil)
		rig.Pass(time.Second)
		if n := r.sends(); n != 10 {
			t.Errorf("%d calls for 95 messages in batches of 10, want 10", n)
		}
		if n := len(o.arrived()); n != 95 {
			t.Errorf("%d messages arrived", n)
		}
	}, membroker.SQSStandard)
}

// Each row of the table of failures: the relay dies before the send, in it and before the ack; its
// calls fail and their answers are lost. Another relay, or the same, goes on. Each job has its
// effect once.
func TestForwardWhenARelayFails(t *testing.T) {
	kinds := []onceqtest.Fault{
		{Kind: onceqtest.CrashBefore},
		{Kind: onceqtest.CrashAfter},
		{Kind: onceqtest.Fail},
		{Kind: onceqtest.LoseReply},
		{Kind: onceqtest.Cancel},
		{Kind: onceqtest.Slow, Delay: time.Minute},
		{Kind: onceqtest.Late, Delay: time.Minute},
		{Kind: onceqtest.Stall, Delay: 5 * time.Minute},
		{Kind: onceqtest.SlowReply, Delay: time.Minute},
		{Kind: onceqtest.Fail, Entries: []int{0}},
		{Kind: onceqtest.LoseReply, Entries: []int{1, 2}},
	}
	for _, op := range []onceqtest.Op{onceqtest.Receive, onceqtest.Send, onceqtest.Ack} {
		for _, f := range kinds {
			if f.Kind == onceqtest.Late && op == onceqtest.Receive {
				continue // what a late receive brings, it brings to nobody: LoseReply
			}
			for _, times := range []int{1, 3} {
				f.Op, f.Times = op, times
				t.Run(fmt.Sprintf("%v, %d times", f, times), func(t *testing.T) {
					inOffice(t, func(o *office) {
						ks := append(rig.Numbered("k", 5), "a0", "a1", "a2", "a3")
						o.put(append(rig.Numbered("k", 5), "a/a0", "a/a1", "a/a2", "a/a3")...)
						r := o.relay(nil, f)
						o.work(nil)
						rig.Pass(30 * time.Second)
						o.relay(nil)
						rig.Pass(30 * time.Minute)
						if len(r.Missed()) > 0 && len(f.Entries) == 0 {
							t.Errorf("nothing went wrong: %v", r.Missed())
						}
						o.wantOnce(ks...)
						o.wantOrder("a")
					})
				})
			}
		}
	}
}

// A destination that cannot be reached for ten minutes: nothing is lost, nothing is given up, and
// no message waits for more than the longest backoff when it is back.
func TestForwardOutlastsItsDestination(t *testing.T) {
	inOffice(t, func(o *office) {
		var away time.Time
		o.dest.SetFault(func(_ context.Context, c onceqtest.Call) (f faulty.Faults) {
			if c.Op == onceqtest.Send && time.Now().Before(away) {
				f = faulty.Fail(errors.New("connection refused"))
			}
			return f
		})
		away = time.Now().Add(10 * time.Minute)
		o.put(rig.Numbered("k", 100)...)
		o.put("a/a0", "a/a1")
		o.relay(nil)
		o.work(nil)
		rig.Pass(5 * time.Minute)
		o.put(rig.Numbered("l", 50)...)
		rig.Pass(6*time.Minute + 10*time.Second)
		o.wantOnce(slices.Concat(rig.Numbered("k", 100), rig.Numbered("l", 50), []string{"a0", "a1"})...)
		o.wantOrder("a")
		for _, k := range []string{"k000", "k077", "a0"} {
			ds := o.box.Delays(k)
			if len(ds) < 10 || len(ds) > 60 || slices.Max(ds) > time.Minute || slices.Max(ds) < 30*time.Second {
				t.Errorf("%s was given back %d times, for %v at most", k, len(ds), slices.Max(ds))
			}
		}
	})
}

// A message that can never be sent stays, is told of each hour, and holds up its group alone. What
// came with it in one call is sent.
func TestForwardKeepsWhatCannotBeSent(t *testing.T) {
	inOffice(t, func(o *office) {
		big := rig.Message("big")
		big.Body = make([]byte, 2<<20)
		big.Group = "a"
		o.put("k", "l")
		o.post(big)
		o.put("a/a1", "b/b0", "m")
		o.relay(nil)
		o.work(nil)
		rig.Pass(4*time.Hour + 10*time.Minute)
		if n := o.log.Count("level=ERROR", "stays in the queue", "class=permanent", "message too large"); n != 5 {
			t.Errorf("the log told %d times, want once an hour", n)
		}
		if n := rig.Depth(o.T, o.box.Broker); n != 2 {
			t.Errorf("%d messages are in the outbox, want the one and what waits behind it", n)
		}
		o.mu.Lock()
		if n := len(o.effects); n != 4 {
			t.Errorf("%d jobs were done, want 4: %v", n, o.effects)
		}
		o.mu.Unlock()
	}, membroker.SQSStandard)
}

// The way out, on every queue: a middleware that skips the message by its id, or mends it.
func TestForwardWithAMiddleware(t *testing.T) {
	for _, mends := range []bool{false, true} {
		inOffice(t, func(o *office) {
			big := rig.Message("big")
			big.Body, big.Group = make([]byte, 2<<20), "a"
			o.post(big)
			o.put("a/small")
			o.relay(func(c *rig.Setup) {
				c.Handler = onceq.Chain(c.Handler, func(next onceq.Handler) onceq.Handler {
					return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
						switch {
						case len(j.Message.Body) < 1<<20:
						case mends:
							j.Message.Body = []byte("see s3://bucket/big")
						default:
							return nil
						}
						return next.Handle(ctx, j)
					})
				})
			})
			o.work(nil)
			rig.Pass(time.Minute)
			want := []string{"small"}
			if mends {
				want = []string{"big", "small"}
			}
			o.wantOnce(want...)
			o.wantOrder("a")
		}, membroker.SQSStandard)
	}
}

// What a driver refuses as a whole says nothing of each message.
func TestForwardWhenACallIsRefusedAsAWhole(t *testing.T) {
	for name, err := range map[string]error{
		"a panic": nil, "unknown": errors.New("cannot encode"), "unsupported": broker.ErrUnsupported, "metadata": broker.ErrBadMeta,
	} {
		inOffice(t, func(o *office) {
			o.put(rig.Numbered("k", 20)...)
			o.put("poison")
			o.relay(func(c *rig.Setup) { c.Handler = onceq.Forward(choosy{o.dest, err}) })
			o.work(nil)
			rig.Pass(10 * time.Minute)
			o.mu.Lock()
			defer o.mu.Unlock()
			if n := len(o.effects); n != 20 || o.effects["poison"] != 0 {
				t.Errorf("%s: %d of 20 were done beside the poison", name, n)
			}
			if n := rig.Depth(o.T, o.box.Broker); n != 1 {
				t.Errorf("%s: %d messages are in the outbox, want the poison", name, n)
			}
		})
	}
}

// choosy answers err to a whole call that has "poison" in it, or panics.
type choosy struct {
	broker.Sender
	err error
}

func (p choosy) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	if slices.ContainsFunc(ms, func(m broker.Outgoing) bool { return string(m.Body) == "poison" }) {
		if p.err == nil {
			panic("no such encoding")
		}
		return nil, p.err
	}
	return p.Sender.Send(ctx, ms)
}

// What a job asks of its worker it does not ask of a relay: it is sent on when it has expired, when
// it is older than any record, and as often as it takes.
func TestForwardJudgesNoJob(t *testing.T) {
	inOffice(t, func(o *office) {
		old := rig.Message("old")
		old.Meta.Created = time.Now().Add(-365 * 24 * time.Hour)
		expired := rig.Message("expired")
		expired.Meta.Expires = time.Now().Add(time.Minute)
		once := rig.Message("once")
		once.Meta.MaxAttempts, once.Meta.Timeout = 1, time.Second
		o.post(old, expired, once)
		o.dest.SetFault(func(_ context.Context, c onceqtest.Call) (f faulty.Faults) {
			if c.Op == onceqtest.Send {
				if c.N <= 2 {
					return faulty.Fail(rig.ErrBoom)
				}
				return faulty.Slow(3 * time.Second)
			}
			return f
		})
		rig.Pass(2 * time.Minute)
		o.relay(nil)
		rig.Pass(time.Minute)
		if n := rig.Depth(o.T, o.box.Broker); n != 0 {
			t.Errorf("%d messages are left in the outbox", n)
		}
		o.dest.SetFault(nil)
		o.work(nil)
		rig.Pass(time.Minute)
		o.wantOnce("once")
		classes := make(map[string]string)
		for _, l := range (&rig.Rig{T: o.T, DLQ: o.dead}).Letters() {
			classes[l.Meta.Key] = l.Meta.Dead.Class
		}
		if want := map[string]string{"old": "unproven", "expired": "expired"}; !maps.Equal(classes, want) {
			t.Errorf("the destination's letters are %v, want %v", classes, want)
		}
	})
}

// A delayed job stays in the outbox until the destination can delay it for the rest.
func TestForwardOfADelayedJob(t *testing.T) {
	for p, most := range map[membroker.Preset]time.Duration{membroker.SQSStandard: 15 * time.Minute, membroker.PubSub: 0} {
		inOffice(t, func(o *office) {
			later := rig.Message("later")
			later.Meta.NotBefore = time.Now().Add(90 * 24 * time.Hour)
			soon := rig.Message("soon")
			soon.Meta.NotBefore = time.Now().Add(10 * time.Minute)
			o.post(later, soon)
			r := o.relay(nil)
			rig.Pass(time.Second)
			if want := most / (15 * time.Minute); r.sends() != int(want) {
				t.Errorf("%v: %d sends at once, want %d", p, r.sends(), want)
			}
			if d, err := o.dest.Depth(o.Context()); err != nil || d.Visible != 0 {
				t.Errorf("%v: %d jobs may be received before their time (%v)", p, d.Visible, err)
			}
			rig.Pass(10*time.Minute + time.Second)
			if got := len(o.arrived()); got != 1 {
				t.Errorf("%v: after 10 min %d jobs are there, want the one", p, got)
			}
			rig.Pass(90*24*time.Hour - most - 11*time.Minute)
			if r.sends() != 1 {
				t.Errorf("%v: %d sends before its time, want 1", p, r.sends())
			}
			o.work(nil)
			rig.Pass(most + 2*time.Minute)
			o.wantOnce("later")
		}, p)
	}
}

// Groups keep their order through four relays whose calls go wrong at random.
func TestForwardKeepsTheOrderOfGroups(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	kinds := []onceqtest.FaultKind{onceqtest.CrashBefore, onceqtest.CrashAfter, onceqtest.Fail, onceqtest.LoseReply, onceqtest.Stall}
	ops := []onceqtest.Op{onceqtest.Receive, onceqtest.Send, onceqtest.Ack, onceqtest.Nack, onceqtest.Extend, onceqtest.Send}
	for range 40 {
		inOffice(t, func(o *office) {
			texts := rig.Grouped(5, 12)
			rnd.Shuffle(3, func(i, j int) { texts[i], texts[j] = texts[j], texts[i] }) // of three groups
			o.put(texts[:30]...)
			o.work(nil)
			for range 4 {
				var fs []onceqtest.Fault
				for range rnd.IntN(3) {
					fs = append(fs, onceqtest.Fault{
						Op: ops[rnd.IntN(len(ops))], N: 1 + rnd.IntN(12), Kind: kinds[rnd.IntN(len(kinds))], Delay: time.Duration(rnd.IntN(90)+1) * time.Second,
					})
				}
				o.relay(func(c *rig.Setup) { c.Concurrency = 1 + rnd.IntN(8) }, fs...)
				rig.Pass(time.Duration(rnd.IntN(500)) * time.Millisecond)
			}
			o.put(texts[30:]...)
			rig.Pass(5 * time.Minute)
			o.relay(nil)
			rig.Pass(time.Hour)
			var ks []string
			for _, text := range texts {
				_, k, _ := strings.Cut(text, "/")
				ks = append(ks, k)
			}
			o.wantOnce(ks...)
			for g := range 5 {
				o.wantOrder(string(rune('a' + g)))
			}
		}, []membroker.Preset{membroker.Memory, membroker.SQSFIFO, membroker.PubSub}[rnd.IntN(3)])
	}
}

// A message without metadata is sent as it is: its destination finds its key, as in each copy.
func TestForwardOfAMessageWithoutMetadata(t *testing.T) {
	raw := func(o *office) {
		o.Helper()
		if _, err := o.box.Send(o.Context(), []broker.Outgoing{
			{Body: []byte("order 1"), Attributes: map[string]string{"order": "1"}},
			{Body: []byte("order 2"), Attributes: map[string]string{"order": "2"}, Meta: &broker.Meta{Type: "mail"}},
		}); err != nil {
			o.Fatal(err)
		}
	}
	byOrder := func(m *broker.Message) (dedupe.Key, error) {
		return dedupe.Key{Key: "order-" + m.Attributes["order"]}, nil
	}
	twice := onceqtest.Fault{Op: onceqtest.Send, Kind: onceqtest.LoseReply}
	t.Run("the destination's key", func(t *testing.T) {
		inOffice(t, func(o *office) {
			raw(o)
			o.relay(nil, twice)
			rig.Pass(time.Minute)
			if n := rig.Depth(o.T, o.dest); n != 4 {
				t.Fatalf("%d messages arrived, want two copies of each", n)
			}
			o.work(func(c *rig.Setup) { c.Key = byOrder })
			rig.Pass(time.Minute)
			o.wantOnce("order-1", "order-2")
		})
	})
	t.Run("nobody's key", func(t *testing.T) {
		inOffice(t, func(o *office) {
			raw(o)
			o.relay(nil)
			rig.Pass(time.Minute)
			got := o.arrived()
			slices.SortFunc(got, func(a, b *broker.Message) int { return strings.Compare(string(a.Body), string(b.Body)) })
			if len(got) != 2 || got[0].Meta != nil || got[1].Meta == nil || got[1].Meta.Key != "" || got[1].Meta.ID != "" {
				t.Errorf("%d messages arrived, the first with metadata %+v", len(got), got[0].Meta)
			}
		})
	})
	t.Run("the relay's key", func(t *testing.T) {
		inOffice(t, func(o *office) {
			raw(o)
			o.put("own")
			o.relay(func(c *rig.Setup) { c.Key = byOrder }, twice)
			rig.Pass(time.Minute)
			o.work(nil)
			rig.Pass(time.Minute)
			o.wantOnce("order-1", "order-2", "own")
		})
	})
}

// A row whose metadata cannot be read, or whose key no store takes, stays and is told of.
func TestForwardOfBadMetadata(t *testing.T) {
	inOffice(t, func(o *office) {
		if err := o.box.SendRaw(o.Context(), []byte("a"), map[string]string{broker.MetaAttribute: "{"}); err != nil {
			t.Fatal(err)
		}
		if _, err := o.box.Send(o.Context(), []broker.Outgoing{{Body: []byte("b"), Meta: &broker.Meta{Key: "\xff"}}}); err != nil {
			t.Fatal(err)
		}
		r := o.relay(nil)
		rig.Pass(90 * time.Minute)
		for _, class := range []string{"class=bad-meta", "class=bad-key"} {
			if n := o.log.Count("level=ERROR", "stays in the queue", class); n != 2 {
				t.Errorf("%s: the log told %d times, want twice", class, n)
			}
		}
		if r.sends() != 0 || rig.Depth(o.T, o.box.Broker) != 2 {
			t.Errorf("%d sends, %d messages are left", r.sends(), rig.Depth(o.T, o.box.Broker))
		}
	})
}

// A call that hangs is given up after CallTimeout, and what it was for is sent again.
func TestForwardBoundsACall(t *testing.T) {
	inOffice(t, func(o *office) {
		o.put("a")
		o.relay(func(c *rig.Setup) { c.CallTimeout = 2 * time.Second }, onceqtest.Fault{Op: onceqtest.Send, Kind: onceqtest.Slow, Delay: time.Hour})
		o.work(nil)
		rig.Pass(2*time.Second - time.Millisecond)
		if n := o.box.Acked("a") + len(o.box.Delays("a")); n != 0 {
			t.Error("the call was given up before its time")
		}
		rig.Pass(2 * time.Second)
		o.wantOnce("a")
	})
}

// A throttled destination is offered the messages again before they go back.
func TestForwardWhenThrottled(t *testing.T) {
	inOffice(t, func(o *office) {
		o.put("a", "b", "c")
		r := o.relay(nil, onceqtest.Fault{Op: onceqtest.Send, N: 1, Times: 2, Kind: onceqtest.Fail, Entries: []int{0, 2}, Err: broker.ErrThrottled})
		o.work(nil)
		rig.Pass(time.Second)
		o.wantOnce("a", "b", "c")
		if r.sends() != 3 || len(o.box.Delays("a"))+len(o.box.Delays("b"))+len(o.box.Delays("c")) != 0 {
			t.Errorf("%d sends, delays %v %v %v", r.sends(), o.box.Delays("a"), o.box.Delays("b"), o.box.Delays("c"))
		}
	})
}

// A drain ends what is under way, and hands back the rest.
func TestForwardDrains(t *testing.T) {
	inOffice(t, func(o *office) {
		o.put(rig.Numbered("k", 150)...)
		r := o.relay(func(c *rig.Setup) { c.Concurrency = 20 }, onceqtest.Fault{Op: onceqtest.Send, Kind: onceqtest.Slow, Delay: time.Second, Times: -1})
		rig.Pass(1500 * time.Millisecond)
		r.end()
		if n := rig.Depth(o.T, o.box.Broker) + rig.Depth(o.T, o.dest); n != 150 {
			t.Errorf("%d messages are in the two queues, want 150", n)
		}
		o.relay(nil)
		o.work(nil)
		rig.Pass(time.Minute)
		o.wantOnce(rig.Numbered("k", 150)...)
	})
}

// Deliveries that somebody else holds, as a function's, are sent on too.
func TestForwardInABatchOfDeliveries(t *testing.T) {
	inOffice(t, func(o *office) {
		c := o.config(new(onceqtest.Process))
		bs := must.Get(c.Batches())
		var ds []onceq.Delivery
		for _, k := range rig.Numbered("k", 10) {
			ds = append(ds, onceq.Delivery{Message: &broker.Message{ID: k, Body: []byte(k), Meta: &broker.Meta{ID: k, Key: k}}})
		}
		bs.Process(o.Context(), ds, &onceq.BatchOptions{Concurrency: 3}, func(i int, d onceq.Disposition) {
			if d.Action != onceq.Ack {
				t.Errorf("delivery %d: %+v", i, d)
			}
		})
		o.work(nil)
		rig.Pass(time.Minute)
		o.wantOnce(rig.Numbered("k", 10)...)
	})
}

// A rig of onceqtest runs a relay, too.
func TestForwardInARig(t *testing.T) {
	inOffice(t, func(o *office) {
		r := onceqtest.New(o.T, onceq.ProcessorConfig{Handler: onceq.Forward(o.dest), Store: onceq.NoStore},
			&onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue})
		r.Send(rig.Message("a"))
		if got := r.Deliver(); got.Outcome != onceq.OutcomeDone {
			t.Errorf("%+v", got)
		}
		o.work(nil)
		rig.Pass(time.Second)
		o.wantOnce("a")
	})
}

// A replayed letter goes through the outbox with its permission.
func TestForwardOfAReplayedLetter(t *testing.T) {
	inOffice(t, func(o *office) {
		fails := true
		o.work(func(c *rig.Setup) {
			done := c.Handler
			c.Handler = onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				if fails {
					return onceq.Permanent(rig.ErrBoom)
				}
				return done.Handle(ctx, j)
			})
		})
		o.relay(nil)
		o.put("a")
		rig.Pass(time.Second)
		fails = false
		q := must.Get(dlq.New(o.dead, nil))
		if _, err := q.Replay(o.Context(), dlq.ReplayOptions{To: o.box}); err != nil {
			t.Fatal(err)
		}
		rig.Pass(time.Minute)
		o.wantOnce("a")
	})
}
