package sqslambda_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	rigs "github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/onceqtest"
)

// world plays what happens to each order, and keeps what has happened.
type model struct {
	mu     sync.Mutex
	effect map[string]int
	order  map[string][]string // by group
	rnd    *rand.Rand
}

func (m *model) run(ctx context.Context, j *onceq.Job) error {
	m.mu.Lock()
	how := m.rnd.IntN(10)
	slow, again := time.Duration(m.rnd.IntN(12_000))*time.Millisecond, time.Duration(m.rnd.IntN(20))*time.Second
	m.mu.Unlock()
	k := string(j.Message.Body)
	if how == 3 { // it hears nothing, and does nothing
		rigs.Takes(2 * slow)
		return errBoom
	}
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	switch {
	case strings.HasSuffix(k, "-poison"):
		return onceq.Permanent(errBoom)
	case how == 0:
		return errBoom
	case how == 1:
		panic("boom")
	case how == 2:
		return onceq.RetryAfter(again, errBoom)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.effect[k]++
	m.order[j.Message.Group] = append(m.order[j.Message.Group], k)
	return nil
}

// Lambda in front of a FIFO queue and a standard one, whole: batches at random, functions that die
// without an answer, answers that are lost, stores and queues that fail now and then. Each order
// has one effect, what is poison has its letter, and a group keeps its order.
func TestRandomInvocations(t *testing.T) {
	for seed := range uint64(12) {
		for _, preset := range []membroker.Preset{membroker.SQSFIFO, membroker.SQSStandard} {
			m := &model{effect: map[string]int{}, order: map[string][]string{}, rnd: rand.New(rand.NewPCG(seed, 7))}
			bubble(t, m.run, func(r *rig) {
				r.queues(preset)
				if seed%3 > 0 {
					r.withQueue()
				}
				r.limit = 20 * time.Second
				r.o.Concurrency = 1 + int(seed%4)
				r.o.FailWhole = seed%4 == 3
				r.cfg.Defaults.MaxAttempts = -1
				r.cfg.Defaults.Backoff = func(int, error) time.Duration { return time.Second }
				faults, source := rand.New(rand.NewPCG(seed, 9)), rand.New(rand.NewPCG(seed, 11))
				var mu sync.Mutex
				flip := func(n int) bool { mu.Lock(); defer mu.Unlock(); return faults.IntN(n) == 0 }
				r.store.FailsAs(func(onceqtest.Op) error {
					if flip(12) {
						return errBoom
					}
					return nil
				})
				r.seen.fault = func(string, int) error {
					if flip(6) {
						return broker.ErrThrottled
					}
					return nil
				}
				var all []string
				for i := range 30 {
					k := fmt.Sprintf("g%d/g%d-%02d", i%3, i%3, i)
					if i%11 == 4 {
						k += "-poison"
					}
					all = append(all, k[3:])
					r.send(k)
				}
				h := r.function()
				var inFlight sync.WaitGroup
				for range 4000 {
					if r.depth() == 0 {
						break
					}
					ms, err := r.q.Receive(r.Context(), broker.ReceiveOptions{Max: 1 + source.IntN(10), Visibility: 2 * time.Minute})
					if err != nil {
						t.Fatal(err)
					}
					if len(ms) == 0 {
						rigs.Takes(time.Second)
						continue
					}
					var e events.SQSEvent
					for _, msg := range ms {
						e.Records = append(e.Records, record(r.arn, msg))
					}
					inFlight.Go(func() {
						failed, err := r.invoke(h, e)
						if err != nil || flip(8) { // the answer is lost
							return
						}
						for i := range e.Records {
							if !slices.Contains(failed, e.Records[i].Body) {
								_ = r.q.Ack(r.Context(), []broker.Receipt{broker.Receipt(e.Records[i].ReceiptHandle)})
							}
						}
					})
					rigs.Takes(time.Duration(source.IntN(5)) * time.Second)
				}
				inFlight.Wait()
				if n := r.depth(); n != 0 {
					t.Errorf("seed %d: %d messages are left", seed, n)
				}
				for _, k := range all {
					want, status := 1, dedupe.Done
					if strings.HasSuffix(k, "-poison") {
						want, status = 0, dedupe.Failed
					}
					if m.effect[k] != want || r.record(k).Status != status {
						t.Errorf("seed %d: %s had %d effects, and is %v", seed, k, m.effect[k], r.record(k).Status)
					}
				}
				if preset == membroker.SQSFIFO {
					for g, ks := range m.order {
						if !slices.IsSorted(ks) {
							t.Errorf("seed %d: the effects of %s came in the order %q", seed, g, ks)
						}
					}
				}
				r.quiet()
			})
		}
	}
}

func (r *rig) depth() int64 {
	r.Helper()
	d, err := r.q.Depth(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return d.Visible + d.InFlight + d.Delayed
}

// A function that dies gives a whole group back soon. What is done of the group is hidden, too,
// until Lambda deletes it, and would hold up what follows.
func TestDeadFunctionGivesItsGroupBack(t *testing.T) {
	var runs sync.Map
	for _, preset := range []membroker.Preset{membroker.SQSFIFO, membroker.SQSStandard} {
		bubble(t, plays(&runs), func(r *rig) {
			r.queues(preset)
			r.withQueue()
			r.send("g/ok", "g/slow", "g/deaf")
			e := r.receive(6 * r.limit)
			begin := time.Now()
			if _, err := r.invoke(r.function(), e); err != nil {
				t.Fatal(err)
			}
			// Its answer never came: nothing is deleted.
			rigs.Takes(r.limit + 11*time.Second - time.Since(begin))
			var again []string
			for _, m := range r.receive(time.Minute).Records {
				again = append(again, m.Body)
			}
			want := []string{"ok", "slow", "deaf"}
			if preset == membroker.SQSStandard {
				want = []string{"slow", "deaf"} // ok was over before it had to be held, and stops nobody
			}
			if !slices.Equal(again, want) {
				t.Errorf("%q come again, want %q", again, want)
			}
			rigs.Takes(2 * time.Hour)
		})
	}
}

// Of a FIFO queue's records, those that are done are held, and those that were given back are not.
func TestGivenBackIsNotHeldInAGroup(t *testing.T) {
	var runs sync.Map
	bubble(t, plays(&runs), func(r *rig) {
		r.queues(membroker.SQSFIFO)
		r.withQueue()
		r.send("a/retry-a1", "a/a2", "b/ok", "b/slow")
		e := r.receive(5 * time.Minute)
		failed, err := r.invoke(r.function(), e)
		r.want(failed, err, "retry-a1", "a2")
		var held []string
		for _, x := range r.seen.extends {
			i := slices.IndexFunc(e.Records, func(m events.SQSMessage) bool { return m.ReceiptHandle == string(x.Receipt) })
			held = append(held, e.Records[i].Body)
		}
		if !slices.Equal(held, []string{"ok", "slow"}) {
			t.Errorf("held: %q", held)
		}
	})
}
