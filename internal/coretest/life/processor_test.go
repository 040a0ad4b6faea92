package life

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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

// beside is a second queue of one Processor, with its own dead-letter queue and Worker.
type beside struct {
	q   *rig.Queue
	dlq *faulty.Broker
	w   *onceq.Worker
}

// two makes the rig's worker anew, under the name "web", and one of the same Processor on another
// queue, under the name "bulk".
func two(r *rig.Rig, o membroker.Options, set func(c *onceq.WorkerConfig)) (p *onceq.Processor, b *beside) {
	r.Helper()
	p, err := onceq.NewProcessor(r.Cfg.ProcessorConfig)
	if err != nil {
		r.Fatal(err)
	}
	web := r.Cfg.WorkerConfig
	web.Name = "web"
	if r.W, err = p.Worker(r.Cfg.Broker, web); err != nil {
		r.Fatal(err)
	}
	b = &beside{q: rig.NewQueue(r.T, o), dlq: rig.NewBroker(r.T, o)}
	bulk := onceq.WorkerConfig{Name: "bulk", DeadLetter: b.dlq}
	if set != nil {
		set(&bulk)
	}
	if b.w, err = p.Worker(b.q, bulk); err != nil {
		r.Fatal(err)
	}
	return p, b
}

// runBoth runs both workers for d.
func runBoth(r *rig.Rig, b *beside, d time.Duration) {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan error, 1)
	go func() { done <- b.w.Run(ctx) }()
	r.RunFor(d)
	cancel()
	if err := <-done; err != nil {
		r.Errorf("Run: %v", err)
	}
}

func (b *beside) send(t *testing.T, ms ...broker.Outgoing) {
	t.Helper()
	if err := onceq.Send(t.Context(), b.q.Broker, ms); err != nil {
		t.Fatal(err)
	}
}

// One Processor serves a FIFO queue that holds its groups, a standard queue and calls of Do at
// once. They share the keys, so each job has its effect once; each queue has its own dead-letter
// queue.
func TestOneProcessorServesAll(t *testing.T) {
	var mu sync.Mutex
	ran := make(map[string]int)
	count := func(k string) {
		mu.Lock()
		defer mu.Unlock()
		ran[k]++
	}
	h := func(_ context.Context, j *onceq.Job) error {
		rig.Takes(time.Second)
		if k := j.Key().Key; k[:3] == "bad" {
			return onceq.Permanent(rig.ErrBoom)
		}
		count(j.Key().Key)
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		p, b := two(r, membroker.Options{Preset: membroker.SQSStandard}, nil)
		keys := rig.Numbered("k", 50)
		for _, k := range keys {
			r.Send("g" + k + "/" + k)
			b.send(r.T, rig.Message(k))
		}
		r.Send("held/bad1", "held/after")
		b.send(r.T, rig.Message("bad2"))
		var calls sync.WaitGroup
		for _, k := range keys {
			calls.Go(func() {
				o := onceq.DoOptions{Wait: time.Minute}
				_, err := onceq.Do(r.Context(), p, rig.Key(k), &o, func(context.Context, *onceq.Job) (int, error) {
					rig.Takes(time.Second)
					count(k)
					return 1, nil
				})
				if err != nil {
					r.Errorf("Do %s: %v", k, err)
				}
			})
		}
		runBoth(r, b, 5*time.Minute)
		calls.Wait()
		for _, k := range keys {
			r.WantStatus(k, dedupe.Done)
			if ran[k] != 1 {
				r.Errorf("%q has run %d times", k, ran[k])
			}
		}
		r.NoLetters()
		r.WantQueue(2) // the group is held
		if ran["after"] != 0 {
			r.Error("what is behind a held message has run")
		}
		r.DLQ = b.dlq
		if l := r.Letter(onceq.ClassPermanent); string(l.Body) != "bad2" || l.Meta.Dead.Source != rig.Scope+":bulk" {
			r.Errorf("the letter is of %q, from %q", l.Body, l.Meta.Dead.Source)
		}
		if n := rig.Depth(r.T, b.q.Broker); n != 0 {
			r.Errorf("%d messages are left in the second queue", n)
		}
	}, rig.Preset(membroker.SQSFIFO), rig.With(func(c *rig.Setup) { c.HoldGroup = true }))
}

// A letter of one queue may be sent to another queue of the same scope, because the two share their
// keys. That is so with LetterKeys, too.
func TestLettersOfAllNamesReopen(t *testing.T) {
	for _, of := range []string{"web", "bulk", ""} {
		var d rig.Down
		rig.Bubble(t, d.Handle, func(r *rig.Rig) {
			if of == "" {
				r.Send("a")
				r.RunFor(time.Second) // a worker without a name, as before there were names
			}
			_, b := two(r, membroker.Options{}, nil)
			switch of {
			case "web":
				r.Send("a")
			case "bulk":
				b.send(r.T, rig.Message("a"))
			}
			runBoth(r, b, time.Second)
			want := rig.Scope
			if of != "" {
				want += ":" + of
			}
			if of == "bulk" {
				r.DLQ = b.dlq
			}
			l := r.Letter(onceq.ClassPermanent)
			if l.Meta.Dead.Source != want {
				r.Errorf("the letter is from %q, want %q", l.Meta.Dead.Source, want)
			}
			d.Mended = true
			b.send(r.T, broker.Outgoing{Body: l.Body, Meta: l.Meta, Attributes: l.Attributes})
			runBoth(r, b, time.Minute)
			if !slices.Equal(d.Ran, []string{"a"}) {
				r.Errorf("%q: ran %q", of, d.Ran)
			}
			r.WantStatus("a", dedupe.Done)
		}, rig.Signs)
	}
}

// A store that is away is told of once, whichever queues and calls find out, and once when it is
// back.
func TestOutageOfTheStoreIsOneForAllQueues(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		_, b := two(r, membroker.Options{}, nil)
		r.Store.Fails(rig.ErrBoom, onceqtest.Claim, onceqtest.Renew, onceqtest.Settle)
		r.Send(rig.Numbered("a", 5)...)
		for _, k := range rig.Numbered("b", 5) {
			b.send(r.T, rig.Message(k))
		}
		heal := time.AfterFunc(2*time.Minute, r.Store.Heals)
		defer heal.Stop()
		runBoth(r, b, 5*time.Minute)
		if n := r.Logged.Count("the store does not answer; claims"); n != 1 {
			r.Errorf("%d lines tell of the outage, want 1", n)
		}
		if n := r.Logged.Count("the store answers again"); n != 1 {
			r.Errorf("%d lines tell of its end, want 1", n)
		}
		r.WantQueue(0)
	})
}

// Messages with keys of ours on one queue say nothing about the producers of another queue.
func TestEachQueueLearnsOfItsOwnProducers(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		_, b := two(r, membroker.Options{}, nil)
		r.Send("a")
		if _, err := b.q.Send(r.Context(), []broker.Outgoing{{Body: []byte("foreign")}}); err != nil {
			r.Fatal(err)
		}
		runBoth(r, b, time.Hour)
		r.WantStatus("a", dedupe.Done)
		r.NoLetters()
		r.DLQ = b.dlq
		r.NoLetters()
		if n := rig.Depth(r.T, b.q.Broker); n != 1 {
			r.Errorf("%d messages are in the second queue, want the foreign one", n)
		}
	})
}

// A queue that cannot be received from stops its own worker, and nothing of the other queue.
func TestOneQueueDoesNotStopTheOther(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		_, b := two(r, membroker.Options{}, func(c *onceq.WorkerConfig) { c.Concurrency = 1 })
		if err := b.q.Close(); err != nil {
			r.Fatal(err)
		}
		r.Start()
		err := b.w.Run(r.Context())
		if err == nil {
			r.Error("a worker on a closed queue goes on")
		}
		r.Send("a")
		rig.Pass(time.Second)
		r.WantStatus("a", dedupe.Done)
	})
}

// The lines of a worker's life name its queue.
func TestLinesNameTheQueue(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		_, b := two(r, membroker.Options{}, nil)
		runBoth(r, b, time.Second)
		for _, name := range []string{"web", "bulk"} {
			for _, line := range []string{"the worker starts", "draining", "drained"} {
				if n := r.Logged.Count(line, "queue="+name); n != 1 {
					r.Errorf("%d lines %q name %q, want 1", n, line, name)
				}
			}
		}
	})
}

// halfAway is a store that answers only calls whose keys begin with a b, until a time.
type halfAway struct {
	dedupe.Store
	op    onceqtest.Op
	until time.Time
}

func (h halfAway) fails(op onceqtest.Op, k dedupe.Key) bool {
	return op == h.op && k.Key[0] != 'b' && time.Now().Before(h.until)
}

func (h halfAway) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	for i := range rs {
		if h.fails(onceqtest.Claim, rs[i].Key) {
			return nil, rig.ErrBoom
		}
	}
	return h.Store.Claim(ctx, rs)
}

func (h halfAway) Settle(ctx context.Context, ts []dedupe.Settlement) ([]dedupe.Settled, error) {
	for i := range ts {
		if h.fails(onceqtest.Settle, ts[i].Key) {
			return nil, rig.ErrBoom
		}
	}
	return h.Store.Settle(ctx, ts)
}

// A store may answer one queue's keys and not the other's. What is away for one queue is patiently
// asked for, whatever the other is answered: nothing is given up, and no effect repeated.
func TestAnswersToOneQueueAreNoProofForAnother(t *testing.T) {
	for _, op := range []onceqtest.Op{onceqtest.Claim, onceqtest.Settle} {
		t.Run(string(op), func(t *testing.T) {
			rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
				_, b := two(r, membroker.Options{}, nil)
				r.Send(rig.Numbered("a", 3)...)
				for i := range 200 {
					time.AfterFunc(time.Duration(i)*20*time.Second, func() { b.send(r.T, rig.Message(rig.Numbered("b", 200)[i])) })
				}
				runBoth(r, b, 90*time.Minute)
				for _, k := range rig.Numbered("a", 3) {
					r.WantOutcomes(k, "done")
					r.WantStatus(k, dedupe.Done)
					if n := r.Seen.Started(k); n != 1 {
						t.Errorf("%q has run %d times", k, n)
					}
				}
				r.WantQueue(0)
				r.NoLetters()
			}, func(r *rig.Rig) { r.Cfg.Store = halfAway{r.Store, op, time.Now().Add(40 * time.Minute)} })
		})
	}
}

// A store that comes and goes has a line each five minutes, whoever asks it.
func TestFlappingStoreDoesNotFloodTheLog(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		p, b := two(r, membroker.Options{}, nil)
		var n atomic.Int64
		r.Store.Set(func(s *rig.Store) {
			s.Fault = func(c onceqtest.Call) (f faulty.Faults) {
				if n.Add(1)%10 < 7 {
					f = faulty.Fail(rig.ErrBoom)
				}
				return f
			}
		})
		ctx, stop := context.WithTimeout(r.Context(), 11*time.Minute)
		defer stop()
		go func() {
			for i := 0; ctx.Err() == nil; i++ {
				_, _ = onceq.Do(ctx, p, rig.Key(fmt.Sprint("do", i)), nil, func(context.Context, *onceq.Job) (int, error) { return 1, nil })
				r.Send(fmt.Sprint("a", i))
				b.send(r.T, rig.Message(fmt.Sprint("b", i)))
				pause := time.NewTimer(200 * time.Millisecond)
				<-pause.C
			}
		}()
		runBoth(r, b, 12*time.Minute)
		// One each five minutes, and one more after each calm, of which the last minute has some.
		if n := r.Logged.Count("the store does not answer; claims"); n < 1 || n > 7 {
			t.Errorf("%d lines tell of the outage in 11 minutes", n)
		}
		if n := r.Logged.Count("the store answers again"); n < 1 || n > 7 {
			t.Errorf("%d lines tell of its end", n)
		}
	})
}

// A call of Do under a long lease shows that it lives as often as a Worker looks for it: its
// duplicate in a queue is received seldom, however long the call takes.
func TestWorkerTakesALongDoForAlive(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		p, b := two(r, membroker.Options{Preset: membroker.SQSStandard}, nil)
		done := make(chan error, 1)
		go func() {
			_, err := onceq.Do(r.Context(), p, rig.Key("a"), nil, func(context.Context, *onceq.Job) (int, error) {
				rig.Takes(6 * time.Hour)
				return 1, nil
			})
			done <- err
		}()
		rig.Pass(time.Second)
		b.send(r.T, rig.Message("a"))
		runBoth(r, b, 7*time.Hour)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := b.q.Received("a"); n > 14 {
			t.Errorf("the duplicate was received %d times in 6 hours", n)
		}
	}, rig.With(func(c *rig.Setup) { c.Lease = 10 * time.Minute }))
}
