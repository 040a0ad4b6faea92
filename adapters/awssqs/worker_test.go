package awssqs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/sqsfake"
)

func concurrency(n int) func(*rig.Config) {
	return func(c *rig.Config) { c.Concurrency = n }
}

func TestWorkersThatAreKilled(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		t.Run(fmt.Sprint("fifo ", fifo), func(t *testing.T) {
			inWorld(t, fifo, func(w *world) {
				const jobs, workers = 300, 3
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
				w.Until(time.Hour, "every job done", w.AllDone(jobs))
				for _, p := range ps {
					p.Drain()
				}
				// What a dead worker held is delivered again, found done, and acked.
				p := w.Work(handler, nil)
				<-time.After(time.Minute)
				p.Drain()
				w.once(jobs)
				if fifo {
					w.InOrder()
				}
			})
		})
	}
}

// A job that outlives ten visibility timeouts is delivered once.
func TestLongJobsAreKept(t *testing.T) {
	inWorld(t, false, func(w *world) {
		keys := numbers(30)
		w.Put("", keys...)
		p := w.Work(rig.Works(5*time.Minute), concurrency(30))
		w.Until(6*time.Minute, "every job done", w.AllDone(len(keys)))
		p.Drain()
		w.once(len(keys))
		if n := w.delivered(); n != len(keys) {
			w.Errorf("%d deliveries of %d jobs", n, len(keys))
		}
	})
}

// No lease is lost that could be kept, and nobody is dead afterwards.
func TestBrownOut(t *testing.T) {
	const lease = time.Minute
	for name, faults := range map[string][]sqsfake.Fault{
		"throttling":                        {{Code: "RequestThrottled"}},
		"failures":                          {{Status: 500}},
		"resets":                            {{Reset: true}},
		"resets after the effect":           {{Reset: true, Applied: true}},
		"silence":                           {{Silence: true}},
		"silence after the effect":          {{Silence: true, Applied: true}},
		"half of all, each way":             {{Rate: 0.2, Code: "RequestThrottled"}, {Rate: 0.2, Status: 503}, {Rate: 0.2, Reset: true, Applied: true}, {Rate: 0.2, Reset: true}},
		"receives that never come back":     {{Action: "ReceiveMessage", Silence: true}},
		"a single entry of each":            {{Action: "ChangeMessageVisibilityBatch", Entries: []int{0}}, {Action: "DeleteMessageBatch", Entries: []int{0}}},
		"wrong checksums":                   {{Action: "ReceiveMessage", BadMD5: []int{0}}},
		"messages that are delivered twice": {{Action: "ReceiveMessage", Duplicate: true}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, false, func(w *world) {
				w.Put("", numbers(20)...)
				set := func(c *rig.Config) { c.Concurrency, c.Pollers, c.Visibility, c.Lease = 40, 4, lease, lease }
				p := w.Work(rig.Works(5*time.Minute), set)
				<-time.After(time.Minute + rand.N(30*time.Second))
				w.srv.SetFaults(faults...)
				<-time.After(20 * time.Second)
				w.srv.SetFaults()
				<-time.After(time.Second)
				w.srv.SetFaults(faults...)
				<-time.After(15 * time.Second)
				w.srv.SetFaults()
				w.Until(5*time.Minute, "the jobs that were held are done", w.AllDone(20))
				for _, k := range numbers(20) {
					if n := w.Started[k]; n != 1 {
						w.Errorf("job %s was started %d times", k, n)
					}
				}
				before := time.Now()
				for _, k := range numbers(40) {
					w.Put("", "later-"+k)
				}
				w.Until(6*time.Minute, "all that came later is done", w.AllDone(60))
				if took := time.Since(before); took > 5*time.Minute+30*time.Second {
					w.Errorf("40 jobs of 5 minutes took %v after the brown-out; a poller is dead", took)
				}
				<-time.After(2 * lease)
				p.Drain()
				w.once(60)
			})
		})
	}
}

// A brown-out in the middle of short jobs, in which every answer may be lost: all is done, and done
// once by the record.
func TestShortJobsThroughABrownOut(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		t.Run(fmt.Sprint("fifo ", fifo), func(t *testing.T) {
			inWorld(t, fifo, func(w *world) {
				const jobs = 400
				w.PutTens(jobs)
				w.srv.SetFaults(
					sqsfake.Fault{Rate: 0.1, Code: "RequestThrottled"}, sqsfake.Fault{Rate: 0.1, Reset: true, Applied: true},
					sqsfake.Fault{Rate: 0.1, Status: 500}, sqsfake.Fault{Rate: 0.05, Silence: true, Applied: true},
				)
				ps := []*rig.Worker{w.Work(rig.Works(300*time.Millisecond), nil), w.Work(rig.Works(300*time.Millisecond), nil)}
				<-time.After(time.Minute)
				w.srv.SetFaults()
				w.Until(time.Hour, "every job done", w.AllDone(jobs))
				<-time.After(2 * time.Minute)
				for _, p := range ps {
					p.Drain()
				}
				w.once(jobs)
				if fifo {
					w.InOrder()
				}
				for k, n := range w.Started {
					if n != 1 {
						w.Errorf("job %s was started %d times", k, n)
					}
				}
			})
		})
	}
}

// Past the 12 hours of a delivery, the job goes on under its claim alone.
func TestJobBeyondTwelveHours(t *testing.T) {
	inWorld(t, false, func(w *world) {
		w.Put("", "long")
		p := w.Work(rig.Works(13*time.Hour), func(c *rig.Config) {
			c.Visibility, c.Lease, c.PollPause = 20*time.Minute, 20*time.Minute, time.Minute
		})
		w.Until(14*time.Hour, "the job is done", w.AllDone(1))
		<-time.After(time.Hour)
		p.Drain()
		w.once(1)
		if n := w.Started["long"]; n != 1 {
			w.Errorf("it was started %d times", n)
		}
		if !strings.Contains(w.Log.String(), "nears the broker's limit") {
			w.Error("nobody was warned")
		}
	})
}

// In a group a failed head holds its followers, which are neither overtaken nor dragged to the
// dead-letter queue.
func TestGroupWaitsForItsHead(t *testing.T) {
	inWorld(t, true, func(w *world) {
		w.Put("a", "a0", "a1", "a2", "a3", "a4", "a5")
		w.Put("b", "b0", "b1", "b2", "b3", "b4", "b5")
		failures := map[string]int{"a1": 4, "b0": 2}
		p := w.Work(func(ctx context.Context, j *onceq.Job) error {
			w.Mu.Lock()
			defer w.Mu.Unlock()
			if k := j.Key().Key; failures[k] > 0 {
				failures[k]--
				return errors.New("not yet")
			}
			return nil
		}, func(c *rig.Config) { c.Defaults.Backoff = func(int, error) time.Duration { return 40 * time.Second } })
		w.Until(time.Hour, "every job done", w.AllDone(12))
		p.Drain()
		w.once(12)
		next := map[byte]byte{'a': '0', 'b': '0'}
		for _, k := range w.Order {
			if k[1] != next[k[0]] {
				w.Fatalf("the order was %q", w.Order)
			}
			next[k[0]]++
		}
		for k, n := range w.Started {
			if want := map[string]int{"a1": 5, "b0": 3}[k]; want != 0 && n != want || want == 0 && n != 1 {
				w.Errorf("job %s was started %d times", k, n)
			}
		}
	})
}

// A dead letter that is sent back reopens its failure, within the five minutes of FIFO
// deduplication too.
func TestLetterIsReplayed(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		t.Run(fmt.Sprint("fifo ", fifo), func(t *testing.T) {
			inWorld(t, fifo, func(w *world) {
				w.Put("g", "k")
				broken := true
				p := w.Work(func(context.Context, *onceq.Job) error {
					if broken {
						return onceq.Permanent(errors.New("no such customer"))
					}
					return nil
				}, nil)
				<-time.After(10 * time.Second)
				w.empty(w.url)
				ms, err := w.letter.Receive(w.Context(), broker.ReceiveOptions{Max: 10, Wait: -1})
				if err != nil || len(ms) != 1 || ms[0].Meta == nil || ms[0].Meta.Dead == nil {
					w.Fatalf("the letters are %v, %v", ms, err)
				}
				broken = false
				back := broker.Outgoing{Body: ms[0].Body, Attributes: ms[0].Attributes, Meta: ms[0].Meta, Group: ms[0].Group}
				for range 2 { // the second finds it done
					if _, err := w.queue.Send(w.Context(), []broker.Outgoing{back}); err != nil {
						w.Fatal(err)
					}
				}
				if err := w.letter.Ack(w.Context(), []broker.Receipt{ms[0].Receipt}); err != nil {
					w.Fatal(err)
				}
				w.Until(time.Minute, "the job is done", w.AllDone(1))
				<-time.After(time.Minute)
				p.Drain()
				w.once(1)
			})
		})
	}
}

// SQS itself may move the letters back: under a new message ID, each reopens its own failure.
func TestNativeRedriveReopens(t *testing.T) {
	inWorld(t, false, func(w *world) {
		policy := fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":100}`, arnOf(w.dlqURL))
		if _, err := fakeClient(w.srv).SetQueueAttributes(w.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &w.url, Attributes: map[string]string{"RedrivePolicy": policy}}); err != nil {
			w.Fatal(err)
		}
		w.Put("", numbers(5)...)
		broken := true
		p := w.Work(func(context.Context, *onceq.Job) error {
			if broken {
				return onceq.Permanent(errors.New("no such customer"))
			}
			return nil
		}, nil)
		w.Until(time.Minute, "every job is a letter", func() bool {
			d, err := w.letter.Depth(w.Context())
			return err == nil && d.Visible == 5
		})
		broken = false
		if _, err := w.letter.StartRedrive(w.Context(), &awssqs.RedriveOptions{To: arnOf(w.url)}); err != nil {
			w.Fatal(err)
		}
		w.Until(10*time.Minute, "every job is done", w.AllDone(5))
		<-time.After(time.Minute)
		p.Drain()
		w.once(5)
	})
}

// All letters of a queue are replayed, in order where there are groups.
func TestReplayOfManyLetters(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		t.Run(fmt.Sprint("fifo ", fifo), func(t *testing.T) {
			inWorld(t, fifo, func(w *world) {
				const jobs = 50
				w.PutTens(jobs)
				broken := true
				p := w.Work(func(context.Context, *onceq.Job) error {
					if broken {
						return onceq.Permanent(errors.New("no such customer"))
					}
					return nil
				}, nil)
				w.Until(time.Minute, "every job is a letter", func() bool {
					d, err := w.letter.Depth(w.Context())
					return err == nil && d.Visible == jobs
				})
				broken = false
				<-time.After(time.Second) // a letter of the same millisecond counts as newer than the replay
				q := must.Get(dlq.New(w.letter, nil))
				report, err := q.Replay(w.Context(), dlq.ReplayOptions{To: w.queue})
				if err != nil || report.Replayed != jobs {
					w.Fatalf("%v, %v", report, err)
				}
				w.Until(time.Minute, "every job is done", w.AllDone(jobs))
				<-time.After(time.Minute)
				p.Drain()
				w.once(jobs)
				if fifo {
					w.InOrder()
				}
			})
		})
	}
}

// A job that may not start before tomorrow is put off again and again, and no attempt is counted.
func TestNotBefore(t *testing.T) {
	inWorld(t, false, func(w *world) {
		from := time.Now().Add(20 * time.Hour)
		m := []broker.Outgoing{{Body: []byte("later"), Meta: &broker.Meta{Key: "later", NotBefore: from}, Delay: 15 * time.Minute}}
		if err := onceq.Send(w.Context(), w.queue, m); err != nil {
			w.Fatal(err)
		}
		p := w.Work(rig.Works(0), func(c *rig.Config) { c.PollPause = time.Minute })
		w.Until(20*time.Hour+5*time.Minute, "the job is done", func() bool {
			done := w.AllDone(1)()
			if done && time.Now().Before(from) {
				w.Errorf("it was done %v too early", time.Until(from))
			}
			return done
		})
		<-time.After(time.Minute)
		p.Drain()
		w.once(1)
		if n := w.delivered(); n > 3 {
			w.Errorf("%d deliveries", n)
		}
	})
}

// 3,000 messages at once, then slow jobs and a second worker that joins: nothing is delivered
// twice.
func TestNothingTwiceWhenAWorkerJoins(t *testing.T) {
	inWorld(t, false, func(w *world) {
		send := func(prefix string, n int) {
			for i := 0; i < n; i += 10 {
				var keys []string
				for j := range 10 {
					keys = append(keys, fmt.Sprint(prefix, i+j))
				}
				w.Put("", keys...)
			}
		}
		slow := false
		handler := func(ctx context.Context, _ *onceq.Job) error {
			if slow {
				return rig.Busy(ctx, 500*time.Millisecond)
			}
			return nil
		}
		set := func(c *rig.Config) { c.Concurrency, c.Visibility, c.Lease = 50, 10*time.Second, 10*time.Second }
		send("a", 3000)
		p := w.Work(handler, set)
		w.Until(time.Minute, "the quick ones are done", w.AllDone(3000))
		<-time.After(time.Second)
		// A poll that takes less than the clock's step costs a request for a batch: this is the
		// floor.
		if s := p.Queue.(*awssqs.Broker).Stats(); s.PerMessage() > 0.21 {
			w.Errorf("%.3f requests a message: %+v", s.PerMessage(), s)
		}
		slow = true
		send("b", 1000)
		q := w.Work(handler, set)
		w.Until(time.Minute, "the slow ones are done", w.AllDone(4000))
		p.Drain()
		q.Drain()
		w.once(4000)
		if n := w.delivered(); n != 4000 {
			w.Errorf("%d deliveries of 4000 messages", n)
		}
	})
}

// At a low load PollPause trades latency for requests. Without it one poll brings what came while
// it was on its way: only where a call takes no time is each message a receive.
func TestRequestsAtLowLoad(t *testing.T) {
	for _, c := range []struct {
		pause, call time.Duration
		most        float64
	}{{0, 0, 1.11}, {0, 15 * time.Millisecond, 0.80}, {500 * time.Millisecond, 0, 0.24}, {500 * time.Millisecond, 15 * time.Millisecond, 0.24}} {
		inWorld(t, false, func(w *world) {
			w.srv.SetFaults(sqsfake.Fault{Action: "ReceiveMessage", Delay: c.call})
			p := w.Work(rig.Works(0), func(c2 *rig.Config) { c2.PollPause, c2.Concurrency, c2.Pollers = c.pause, 64, 16 })
			const jobs = 1000
			for i := range jobs {
				w.Put("", fmt.Sprint(i))
				<-time.After(10 * time.Millisecond)
			}
			w.Until(time.Minute, "every job done", w.AllDone(jobs))
			<-time.After(time.Second)
			s := p.Queue.(*awssqs.Broker).Stats()
			p.Drain()
			w.once(jobs)
			w.Logf("PollPause %v, calls of %v: %.3f requests a message, %+v", c.pause, c.call, s.PerMessage(), s)
			if s.PerMessage() > c.most {
				w.Errorf("%.3f requests a message, at most %.2f are wanted", s.PerMessage(), c.most)
			}
		})
	}
}

// A not-before far away is reached in hops of nearly 12 hours also where answers take their time,
// of which the driver knows nothing: each receive more counts towards the queue's own
// maxReceiveCount.
func TestNotBeforeWithSlowAnswers(t *testing.T) {
	inWorld(t, false, func(w *world) {
		w.srv.SetFaults(sqsfake.Fault{Action: "ReceiveMessage", ReplyDelay: 9 * time.Second})
		m := []broker.Outgoing{{Body: []byte("later"), Meta: &broker.Meta{Key: "later", NotBefore: time.Now().Add(30 * time.Hour)}}}
		if err := onceq.Send(w.Context(), w.queue, m); err != nil {
			w.Fatal(err)
		}
		p := w.Work(rig.Works(0), func(c *rig.Config) { c.PollPause = time.Minute })
		w.Until(31*time.Hour, "the job is done", w.AllDone(1))
		<-time.After(time.Minute)
		p.Drain()
		w.once(1)
		if n := w.delivered(); n > 4 {
			w.Errorf("%d deliveries", n)
		}
	})
}
