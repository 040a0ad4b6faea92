package gcppubsub_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/rig"
)

func concurrency(n int) func(*rig.Config) {
	return func(c *rig.Config) { c.Concurrency = n }
}

// A job of five ack deadlines, and of five visibility timeouts, is delivered once.
func TestLongJobsAreKept(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Put("", "short")
		p := w.Work(rig.Works(50*time.Second), func(c *rig.Config) { c.Visibility = 10 * time.Second })
		w.Until(2*time.Minute, "the job is done", w.AllDone(1))
		w.Put("", "long")
		w.Until(5*time.Minute, "the job is done", w.AllDone(2))
		p.Drain()
		w.once(2)
		w.deliveredOnce(2)
	})
}

// TestStalledAck holds back one Acknowledge for 30 s, or all of them, while other jobs run.
func TestStalledAck(t *testing.T) {
	for name, fault := range map[string]pubsubfake.Fault{
		"late":     {Method: "Acknowledge", Count: 1, Delay: 30 * time.Second},
		"no reply": {Method: "Acknowledge", Count: 1, Silence: true, Applied: true},
		"all":      {Method: "Acknowledge", For: 30 * time.Second, Silence: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.srv.SetFaults(fault)
				w.Put("", numbers(40)...)
				p := w.Work(func(ctx context.Context, j *onceq.Job) error {
					n, err := strconv.Atoi(j.Key().Key)
					if err != nil {
						return err
					}
					return rig.Busy(ctx, time.Duration(1+3*n)*time.Second)
				}, func(c *rig.Config) { c.Concurrency, c.Visibility = 20, 10*time.Second })
				w.Until(10*time.Minute, "every job done", w.AllDone(40))
				<-time.After(time.Minute)
				p.Drain()
				w.once(40)
				if name != "all" { // there the worker gives acks up after SettleTimeout, and the messages come again
					w.deliveredOnce(40)
				}
				if len(w.Cancelled) > 0 {
					w.Errorf("handlers were cancelled: %v", w.Cancelled)
				}
				for k, n := range w.Started {
					if n != 1 {
						w.Errorf("the handler of %s was started %d times", k, n)
					}
				}
			})
		})
	}
}

// TestUnavailable lets every call fail for a while. A lease that lives longer is kept by repeating
// its renewal. The handler of one that does not is cancelled before its deadline.
func TestUnavailable(t *testing.T) {
	for _, c := range []struct {
		name string
		away time.Duration
		kept bool
	}{{"20 s", 20 * time.Second, true}, {"two minutes", 2 * time.Minute, false}} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var ended []time.Time
				w.Put("", numbers(20)...)
				p := w.Work(func(ctx context.Context, j *onceq.Job) error {
					err := rig.Busy(ctx, 70*time.Second)
					if err != nil {
						w.Mu.Lock()
						defer w.Mu.Unlock()
						ended = append(ended, time.Now())
					}
					return err
				}, func(c *rig.Config) { c.Concurrency, c.Visibility = 20, 30*time.Second })
				<-time.After(5 * time.Second)
				begun := time.Now()
				w.srv.SetFaults(pubsubfake.Fault{Code: codes.Unavailable, For: c.away})
				w.Until(20*time.Minute, "every job done", w.AllDone(20))
				<-time.After(time.Minute) // what was delivered twice is found done, and acked
				p.Drain()
				w.once(20)
				if c.kept {
					w.deliveredOnce(20)
					if len(ended) > 0 {
						w.Errorf("%d handlers were cancelled: %v", len(ended), w.Cancelled)
					}
					return
				}
				for _, at := range ended {
					// The lease was renewed at most a moment before the outage.
					if after := at.Sub(begun); after > 30*time.Second {
						w.Errorf("a handler was cancelled %v after the beginning of the outage, when its lease was over", after)
					}
				}
			})
		})
	}
}

// TestDrainConfirmsEachAck stops a worker while 100 handlers run.
func TestDrainConfirmsEachAck(t *testing.T) {
	inWorld(t, func(w *world) {
		w.srv.SetFaults(pubsubfake.Fault{Method: "Acknowledge", ReplyDelay: 300 * time.Millisecond})
		w.Put("", numbers(150)...)
		p := w.Work(rig.Works(10*time.Second), func(c *rig.Config) { c.Concurrency, c.Prefetch = 100, 30 })
		<-time.After(2 * time.Second)
		stopped := time.Now()
		p.Drain()
		if took := time.Since(stopped); took > 20*time.Second {
			w.Errorf("the drain took %v", took)
		}
		w.Mu.Lock()
		if len(w.Effects) != 100 || len(w.Cancelled) > 0 {
			w.Errorf("%d jobs were done, and %d cancelled", len(w.Effects), len(w.Cancelled))
		}
		w.Mu.Unlock()
		// What is not done is there again at once, and nothing is in a lease.
		if st := w.srv.Stats(w.sub); st.Held > 0 || st.Delayed > 0 || st.Unacked() != 50 {
			w.Errorf("the subscription has %+v", st)
		}
		acked := 0
		for _, r := range w.srv.Requests() {
			if r.Method == "Acknowledge" && r.Code == codes.OK {
				acked += r.Entries
			}
		}
		if acked != 100 {
			w.Errorf("%d acks had an answer before Run returned", acked)
		}
		p = w.Work(rig.Works(time.Second), concurrency(50))
		w.Until(2*time.Minute, "every job done", w.AllDone(150))
		p.Drain()
		w.once(150)
	})
}

// TestDrainStrandsNothing stops idle workers at any moment of their pulls, while messages come.
func TestDrainStrandsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 40 {
			p := w.Work(rig.Works(time.Millisecond), func(c *rig.Config) { c.Pollers = 2 })
			<-time.After(time.Duration(rand.N(9_000)+1) * time.Millisecond)
			done := make(chan struct{})
			go func() { p.Drain(); close(done) }()
			w.Put("", fmt.Sprint(i))
			<-done
			if st := w.srv.Stats(w.sub); st.Held+st.Delayed+st.Blocked > 0 {
				w.Fatalf("after drain %d the subscription has %+v", i, st)
			}
		}
		p := w.Work(rig.Works(time.Millisecond), nil)
		w.Until(time.Minute, "every job done", w.AllDone(40))
		p.Drain()
		w.once(40)
	})
}

func TestWorkersThatAreKilled(t *testing.T) {
	inWorld(t, func(w *world) {
		const jobs, workers = 200, 3
		w.PutTens(jobs)
		handler := func(ctx context.Context, _ *onceq.Job) error {
			return rig.Busy(ctx, 2*time.Second+rand.N(8*time.Second))
		}
		var ps []*rig.Worker
		for range workers {
			ps = append(ps, w.Work(handler, concurrency(5)))
		}
		for range 12 {
			<-time.After(5*time.Second + rand.N(10*time.Second))
			i := rand.N(workers)
			ps[i].Kill()
			ps[i] = w.Work(handler, concurrency(5))
		}
		w.Until(2*time.Hour, "every job done", w.AllDone(jobs))
		for _, p := range ps {
			p.Drain()
		}
		// What a dead worker held is delivered again, found done, and acked.
		p := w.Work(handler, nil)
		<-time.After(2 * time.Minute)
		p.Drain()
		w.once(jobs)
		if w.ordered {
			w.InOrder()
		}
	})
}

// TestFailedHeadsHandTheirFollowersBack lets heads fail, with a delay or without, while the service
// has delivered a whole key at once.
func TestFailedHeadsHandTheirFollowersBack(t *testing.T) {
	for _, k := range kinds {
		if !k.ordered {
			continue
		}
		for _, delay := range []time.Duration{0, 15 * time.Second} {
			t.Run(fmt.Sprint(k.name, " ", delay), func(t *testing.T) {
				inWorldOf(t, k, nil, func(w *world) {
					w.PutTens(50)
					running := map[string]int{}
					h := func(ctx context.Context, j *onceq.Job) error {
						w.Mu.Lock()
						running[j.Message.Group]++
						if running[j.Message.Group] > 1 {
							w.Errorf("two of %s run at once", j.Message.Group)
						}
						w.Mu.Unlock()
						defer func() {
							w.Mu.Lock()
							running[j.Message.Group]--
							w.Mu.Unlock()
						}()
						if err := rig.Busy(ctx, time.Second); err != nil {
							return err
						}
						if k := j.Key().Key; strings.HasSuffix(k, "3") && j.Attempt == 1 || strings.HasSuffix(k, "7") && j.Attempt < 3 {
							return onceq.RetryAfter(delay, errors.New("not now"))
						}
						return nil
					}
					ps := []*rig.Worker{w.Work(h, concurrency(7)), w.Work(h, concurrency(7))}
					w.Until(10*time.Minute, "every job done", w.AllDone(50))
					for _, p := range ps {
						p.Drain()
					}
					w.once(50)
					w.InOrder()
				})
			})
		}
	}
}

// TestOutagesAreToldOf has what may happen to a subscription while a worker runs. It is told once,
// with its age, and then the worker goes on.
func TestOutagesAreToldOf(t *testing.T) {
	again := func(w *world) {
		if _, err := w.srv.CreateSubscription(w.Context(), &pubsubpb.Subscription{
			Name: w.sub, Topic: w.topic, AckDeadlineSeconds: 10, EnableMessageOrdering: w.ordered, EnableExactlyOnceDelivery: w.exact,
		}); err != nil {
			w.Fatal(err)
		}
	}
	remove := func(w *world) {
		if _, err := w.srv.DeleteSubscription(w.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: w.sub}); err != nil {
			w.Fatal(err)
		}
	}
	fails := func(method string, code codes.Code) func(w *world) {
		return func(w *world) { w.srv.SetFaults(pubsubfake.Fault{Method: method, Code: code}) }
	}
	heal := func(w *world) { w.srv.SetFaults() }
	for _, c := range []struct {
		name       string
		begin, end func(w *world)
		says       string
	}{
		{"deleted and made again", remove, again, "queue not found"},
		{
			"detached and made again",
			func(w *world) {
				if _, err := w.srv.DetachSubscription(w.Context(), &pubsubpb.DetachSubscriptionRequest{Subscription: w.sub}); err != nil {
					w.Fatal(err)
				}
			},
			func(w *world) { remove(w); again(w) }, "detached",
		},
		{"permission revoked", fails("Pull", codes.PermissionDenied), heal, "access denied; it needs roles/pubsub.subscriber"},
		{"quota used up", fails("Pull", codes.ResourceExhausted), heal, "throttled"},
		{"pulls stalled", func(w *world) { w.srv.SetFaults(pubsubfake.Fault{Method: "Pull", Silence: true}) }, heal, "pulls in a row"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				p := w.Work(rig.Works(time.Second), nil)
				w.Put("", "before")
				w.Until(time.Minute, "the first job", w.AllDone(1))
				<-time.After(time.Minute)
				c.begin(w)
				<-time.After(30 * time.Minute)
				log := w.Log.String()
				told := strings.Count(log, "receiving fails")
				if told < 2 || told > 12 || strings.Count(log, "level=ERROR") != told {
					w.Errorf("in half an hour it was told %d times:\n%s", told, log)
				}
				if !strings.Contains(log, c.says) || !strings.Contains(log, " since=") || !strings.Contains(log, "gcppubsub: receive s-") {
					w.Errorf("the log does not say %q with its age:\n%s", c.says, log)
				}
				c.end(w)
				<-time.After(2 * time.Minute)
				w.Put("", "after")
				w.Until(5*time.Minute, "the job after", w.AllDone(2))
				if log := w.Log.String(); !strings.Contains(log, "receiving works again") {
					w.Errorf("the end was not told:\n%s", log)
				}
				p.Drain()
				w.once(2)
			})
		})
	}
}

// TestQuotaOfSends has a cause, whatever the caller's deadline.
func TestQuotaOfSends(t *testing.T) {
	inWorld(t, func(w *world) {
		w.srv.SetFaults(pubsubfake.Fault{Method: "Publish", Code: codes.ResourceExhausted})
		ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
		defer cancel()
		err := onceq.Send(ctx, w.queue, []broker.Outgoing{{Body: []byte("x")}})
		if !errors.Is(err, broker.ErrThrottled) || !strings.Contains(err.Error(), "Quota exceeded") {
			w.Errorf("the send was answered %v", err)
		}
	})
}

// TestLettersAndReplay lets jobs fail for good, and replays their letters. One has long errors and
// many attributes, so its letter has metadata in pieces, or is folded.
func TestLettersAndReplay(t *testing.T) {
	inWorld(t, func(w *world) {
		many := map[string]string{}
		for i := range 98 {
			many[fmt.Sprint("a", i)] = strings.Repeat("x", i)
		}
		ms := []broker.Outgoing{
			{Body: []byte("plain"), Meta: &broker.Meta{Key: "plain"}},
			{Body: []byte("many"), Meta: &broker.Meta{Key: "many"}, Attributes: many},
		}
		if err := onceq.Send(w.Context(), w.queue, ms); err != nil {
			w.Fatal(err)
		}
		var mended bool
		text := strings.Repeat("é€😀 ", 400)
		p := w.Work(func(_ context.Context, j *onceq.Job) error {
			w.Mu.Lock()
			defer w.Mu.Unlock()
			if !mended {
				return onceq.Permanent(errors.New(text))
			}
			if string(j.Message.Body) == "many" && len(j.Message.Attributes) != 98 {
				w.Errorf("%d attributes came back", len(j.Message.Attributes))
			}
			return nil
		}, nil)
		w.Until(time.Minute, "two letters", func() bool { return w.srv.Stats(w.deadSub).Unacked() == 2 })
		w.Mu.Lock()
		mended = true
		w.Mu.Unlock()
		q := must.Get(dlq.New(w.letters, nil))
		var pieces int
		for l, err := range q.List(w.Context(), dlq.Filter{}) {
			if err != nil {
				w.Fatal(err)
			}
			if d := l.Message.Meta.Dead; d == nil || d.Fence == 0 {
				w.Errorf("a letter came as %+v", l.Message.Meta)
			}
			if len(broker.EncodeMeta(l.Message.Meta)) > 1024 {
				pieces++
			}
		}
		if pieces == 0 {
			w.Error("no letter's metadata was longer than an attribute")
		}
		<-time.After(5 * time.Minute)
		r, err := q.Replay(w.Context(), dlq.ReplayOptions{To: w.queue})
		if err != nil || r.Replayed != 2 {
			w.Fatalf("%+v, %v", r, err)
		}
		w.Until(5*time.Minute, "both done", w.AllDone(2))
		p.Drain()
		w.once(2)
	})
}

// TestMovedMessagesAreReplayed lets the service itself dead-letter messages, whose failure is
// recorded or not. Their job is the same one after the replay.
func TestMovedMessagesAreReplayed(t *testing.T) {
	for _, k := range kinds[:2] {
		t.Run(k.name, func(t *testing.T) {
			inWorldOf(t, k, nil, func(w *world) {
				if _, err := w.srv.UpdateSubscription(w.Context(), &pubsubpb.UpdateSubscriptionRequest{
					Subscription: &pubsubpb.Subscription{Name: w.sub, DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: w.deadTopic, MaxDeliveryAttempts: 5}},
					UpdateMask:   mask("dead_letter_policy"),
				}); err != nil {
					w.Fatal(err)
				}
				w.Put("", numbers(3)...)
				for range 5 {
					ms, err := w.queue.Receive(w.Context(), broker.ReceiveOptions{Max: 10, Wait: -1, Visibility: 10 * time.Second})
					if err != nil || len(ms) != 3 {
						w.Fatalf("%d messages, %v", len(ms), err)
					}
					var hs []broker.Hold
					for _, m := range ms {
						hs = append(hs, broker.Hold{Receipt: m.Receipt})
					}
					if err := w.queue.Nack(w.Context(), hs); err != nil {
						w.Fatal(err)
					}
				}
				w.Until(time.Minute, "three were moved", func() bool { return w.srv.Stats(w.deadSub).Unacked() == 3 })
				<-time.After(time.Minute)
				q := must.Get(dlq.New(w.letters, nil))
				r, err := q.Replay(w.Context(), dlq.ReplayOptions{To: w.queue})
				if err != nil || r.Replayed != 3 {
					w.Fatalf("%+v, %v", r, err)
				}
				p := w.Work(func(_ context.Context, j *onceq.Job) error {
					if len(j.Message.Attributes) > 0 {
						w.Errorf("attributes came: %v", j.Message.Attributes)
					}
					return nil
				}, nil)
				w.Until(time.Minute, "all done", w.AllDone(3))
				p.Drain()
				w.once(3)
			})
		})
	}
}
