package sqslambda_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	rigs "github.com/onceq/onceq/internal/rig"
)

// A visibility timeout that is shorter than the function does no harm: the messages are held to the
// invocation's end, with one call for ten, those that wait for a slot too. A short invocation asks
// for nothing.
func TestHeldToTheEnd(t *testing.T) {
	var runs sync.Map
	bubble(t, plays(&runs), func(r *rig) {
		r.withQueue()
		var ks []string
		for i := range 14 {
			ks = append(ks, fmt.Sprintf("slow-%02d", i))
		}
		r.send(ks...)
		h, e := r.function(), r.receive(5*time.Second)
		begin := time.Now()
		go func() {
			for time.Since(begin) < 19*time.Second {
				rigs.Takes(time.Second)
				if again := r.receive(time.Second); len(again.Records) > 0 {
					t.Errorf("%d messages came again after %v", len(again.Records), time.Since(begin))
				}
			}
		}()
		failed, err := r.invoke(h, e)
		r.want(failed, err)
		if n := r.seen.count("extend"); n != 2 {
			t.Errorf("%d calls to hold 14 messages for 20 s, want 2", n)
		}
		for _, x := range r.seen.extends {
			if x.For != r.limit-time.Second+10*time.Second {
				t.Errorf("held for %v from 1 s on", x.For)
			}
		}
		r.quiet()

		r.send("ok")
		e = r.receive(5 * time.Second)
		begin = time.Now()
		failed, err = r.invoke(h, e)
		r.want(failed, err)
		if n := r.seen.count("extend"); n != 2 {
			t.Error("a short invocation has asked to hold its messages")
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("a short invocation took %v", took)
		}
	})
}

// What has ended by then is not held: one that is given back must stay so.
func TestEndedIsNotHeld(t *testing.T) {
	var runs sync.Map
	bubble(t, plays(&runs), func(r *rig) {
		r.withQueue()
		r.send("ok", "retry", "slow")
		e := r.receive(5 * time.Minute)
		failed, err := r.invoke(r.function(), e)
		r.want(failed, err, "retry")
		if x := r.seen.extends; len(x) != 1 || string(x[0].Receipt) != e.Records[2].ReceiptHandle {
			t.Errorf("held: %v", x)
		}
	})
}

// A delay is cut to what the queue takes. A part of it is gone already.
func TestLongestDelay(t *testing.T) {
	for _, c := range []struct{ nack, total, want time.Duration }{
		{12 * time.Hour, 12 * time.Hour, 11 * time.Hour}, {time.Hour, 0, time.Hour}, {math.MaxInt64, 0, 12 * time.Hour}, {time.Hour, time.Minute, 0}, {0, 0, 0},
	} {
		bubble(t, func(context.Context, *onceq.Job) error { return onceq.RetryAfter(24*time.Hour, errBoom) }, func(r *rig) {
			r.withQueue()
			r.seen.limits = func(l broker.Limits) broker.Limits {
				l.MaxNack, l.MaxTotal = c.nack, c.total
				return l
			}
			r.send("a")
			failed, err := r.invoke(r.function(), r.receive(5*time.Minute))
			r.want(failed, err, "a")
			if n := r.seen.nacks; len(n) != 1 || n[0].For != c.want {
				t.Errorf("given back: %v, want after %v", n, c.want)
			}
		})
	}
}

// What fails in passing is tried again, what fails for good is not, and each alone.
func TestHoldFails(t *testing.T) {
	var runs sync.Map
	bubble(t, plays(&runs), func(r *rig) {
		r.withQueue()
		r.seen.fault = func(op string, n int) error {
			switch {
			case op != "extend":
				return nil
			case n == 1:
				return &broker.BatchError{Errs: []error{nil, broker.ErrThrottled, broker.ErrReceiptExpired, broker.ErrNotFound}}
			case n == 2:
				return errBoom
			case n == 3:
				panic("the driver")
			}
			return nil
		}
		r.send("slow-1", "slow-2", "slow-3", "slow-4")
		e := r.receive(5 * time.Minute)
		failed, err := r.invoke(r.function(), e)
		r.want(failed, err)
		if n := r.seen.count("extend"); n != 4 || len(r.seen.extends) != 1 || string(r.seen.extends[0].Receipt) != e.Records[1].ReceiptHandle {
			t.Errorf("%d calls; at the end held: %v", n, r.seen.extends)
		}
		for text, n := range map[string]int{"visibility timeout should be six times": 1, "cannot be held to the invocation's end; it is tried": 1, "a message cannot be held": 1} {
			if got := r.log.Count(text); got != n {
				t.Errorf("the log says %d times %q, want %d", got, text, n)
			}
		}
	})
}

// A nack waits for the call that holds its message, because a call that came after it would undo
// it.
func TestNackWaitsForTheHold(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { rigs.Takes(2 * time.Second); return errBoom }, func(r *rig) {
		r.withQueue()
		r.seen.before = func(op string) {
			if op == "extend" {
				rigs.Takes(3 * time.Second)
			}
		}
		r.send("a")
		h, e := r.function(), r.receive(5*time.Minute)
		begin := time.Now()
		failed, err := r.invoke(h, e)
		r.want(failed, err, "a")
		if took := time.Since(begin); took != 4*time.Second {
			t.Errorf("took %v", took)
		}
		// The delay of 7 s is counted from the job's end, 2 s ago.
		if n := r.seen.nacks; len(n) != 1 || n[0].For != 5*time.Second {
			t.Errorf("given back: %v", n)
		}
		rigs.Takes(5*time.Second + time.Millisecond)
		if e := r.receive(time.Minute); len(e.Records) != 1 {
			t.Error("it does not come again after its delay")
		}
	})
}

// A nack that fails in passing is tried again, as long as there is time; then the function answers
// all the same.
func TestNackFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(op string, n int) error
		calls func(n int) bool
		nacks int
		logs  int
	}{
		{"once", func(op string, n int) error {
			if op == "nack" && n < 3 {
				return broker.ErrThrottled
			}
			return nil
		}, func(n int) bool { return n == 3 }, 1, 0},
		{"lost", func(op string, _ int) error {
			if op == "nack" {
				return broker.ErrReceiptExpired
			}
			return nil
		}, func(n int) bool { return n == 1 }, 0, 0},
		{"closed", func(op string, _ int) error {
			if op == "nack" {
				return broker.ErrClosed
			}
			return nil
		}, func(n int) bool { return n == 1 }, 0, 1},
		{"always", func(op string, _ int) error {
			if op == "nack" {
				return errBoom
			}
			return nil
		}, func(n int) bool { return n > 3 }, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(context.Context, *onceq.Job) error { return errBoom }, func(r *rig) {
				r.withQueue()
				r.seen.fault = c.fault
				r.send("a")
				h, e := r.function(), r.receive(5*time.Minute)
				begin := time.Now()
				failed, err := r.invoke(h, e)
				r.want(failed, err, "a")
				if n := r.seen.count("nack"); !c.calls(n) || len(r.seen.nacks) != c.nacks {
					t.Errorf("%d calls, given back: %v", n, r.seen.nacks)
				}
				if n := r.log.Count("could not be given back"); n != c.logs {
					t.Errorf("the log tells of it %d times", n)
				}
				if took := time.Since(begin); took > 5*time.Second {
					t.Errorf("took %v", took)
				}
				r.quiet()
			})
		})
	}
}

// Of a batch of nacks the one that failed goes again, alone.
func TestOneNackOfABatchFails(t *testing.T) {
	bubble(t, func(_ context.Context, j *onceq.Job) error {
		if string(j.Message.Body) != "a" { // so that the others are given back together, while that of a is under way
			rigs.Takes(100 * time.Millisecond)
		}
		return errBoom
	}, func(r *rig) {
		r.withQueue()
		r.seen.before = func(string) { rigs.Takes(200 * time.Millisecond) }
		r.seen.fault = func(_ string, n int) error {
			if n == 2 {
				return &broker.BatchError{Errs: []error{nil, broker.ErrThrottled}}
			}
			return nil
		}
		r.send("a", "b", "c")
		failed, err := r.invoke(r.function(), r.receive(5*time.Minute))
		r.want(failed, err, "a", "b", "c")
		if n := r.seen.count("nack"); n != 3 || len(r.seen.nacks) != 2 {
			t.Errorf("%d calls; the first and the last were for %v", n, r.seen.nacks)
		}
	})
}

// A driver that ignores its context does not keep the answer back.
func TestQueueHangs(t *testing.T) {
	for _, op := range []string{"extend", "nack"} {
		bubble(t, func(context.Context, *onceq.Job) error { rigs.Takes(3 * time.Second); return errBoom }, func(r *rig) {
			r.withQueue()
			r.seen.before = func(o string) {
				if o == op {
					rigs.Takes(time.Hour)
				}
			}
			r.send("a")
			h, e := r.function(), r.receive(5*time.Minute)
			begin := time.Now()
			failed, err := r.invoke(h, e)
			r.want(failed, err, "a")
			if took := time.Since(begin); took > 13*time.Second {
				t.Errorf("took %v", took)
			}
			rigs.Takes(2 * time.Hour)
			synctest.Wait()
		})
	}
}

// The records of another queue than Options.Queue are run, and left to their own timeout: one of
// another account has the same name.
func TestAnotherQueue(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { rigs.Takes(3 * time.Second); return errBoom }, func(r *rig) {
		r.withQueue()
		r.seen.arn = "arn:aws:sqs:us-east-1:210987654321:orders"
		r.send("a", "b")
		failed, err := r.invoke(r.function(), r.receive(5*time.Minute))
		r.want(failed, err, "a", "b")
		if n := r.seen.count(""); n != 0 {
			t.Errorf("%d calls of a queue that has nothing to do with it", n)
		}
		if n := r.log.Count("of another queue"); n != 1 {
			t.Errorf("the log tells of it %d times", n)
		}
	})
}

// A queue that cannot tell its ARN is taken for the right one, and so is one for a record without
// an ARN.
func TestNamelessQueue(t *testing.T) {
	for _, name := range []string{"", "elsewhere"} {
		bubble(t, func(context.Context, *onceq.Job) error { return errBoom }, func(r *rig) {
			r.withQueue()
			r.seen.arn = name
			if name == "" {
				r.o.Queue = struct{ broker.Receiver }{r.seen}
			}
			r.send("a")
			e := r.receive(5 * time.Minute)
			if name != "" {
				e.Records[0].EventSourceARN = ""
			}
			failed, err := r.invoke(r.function(), e)
			r.want(failed, err, "a")
			if len(r.seen.nacks) != 1 {
				t.Errorf("given back: %v", r.seen.nacks)
			}
		})
	}
}

// Each record of a batch of the largest size fails. The calls of the queue go out side by side.
func TestLargeBatch(t *testing.T) {
	bubble(t, func(_ context.Context, j *onceq.Job) error {
		rigs.Takes(10 * time.Millisecond)
		if j.Message.Body[0] == 'k' {
			return errBoom
		}
		return nil
	}, func(r *rig) {
		r.withQueue()
		r.o.Concurrency = 100
		r.seen.before = func(string) { rigs.Takes(20 * time.Millisecond) }
		var e events.SQSEvent
		for i := range 10_000 {
			m := &broker.Message{ID: fmt.Sprint("id", i), Receipt: broker.Receipt(fmt.Sprint(i)), Body: []byte("k"), Meta: &broker.Meta{Key: fmt.Sprint(i)}}
			e.Records = append(e.Records, record(standard, m))
		}
		r.seen.fault = func(string, int) error { return broker.ErrReceiptExpired } // these are nowhere
		begin := time.Now()
		failed, err := r.invoke(r.function(), e)
		if err != nil || len(failed) != len(e.Records) {
			t.Errorf("%d failures, %v", len(failed), err)
		}
		if took := time.Since(begin); took > 8*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// A FIFO queue with the real order of calls: after a failure in the middle, the rest of the group
// comes back in its order.
func TestFIFOComesBackInOrder(t *testing.T) {
	var mu sync.Mutex
	var order []string
	tries := 0
	bubble(t, func(_ context.Context, j *onceq.Job) error {
		mu.Lock()
		defer mu.Unlock()
		if string(j.Message.Body) == "2" {
			if tries++; tries < 3 {
				return errBoom
			}
		}
		order = append(order, string(j.Message.Body))
		return nil
	}, func(r *rig) {
		r.queues(presetFIFO)
		r.withQueue()
		r.batch.DeadLetter = r.dlq
		r.send("g/1", "g/2", "g/3", "g/4")
		h := r.function()
		for range 40 {
			e := r.receive(30 * time.Second)
			if len(e.Records) == 0 {
				rigs.Takes(time.Second)
				continue
			}
			failed, err := r.invoke(h, e)
			if err != nil {
				t.Fatal(err)
			}
			var gone []broker.Receipt
			for i := range e.Records {
				if !slices.Contains(failed, e.Records[i].Body) {
					gone = append(gone, broker.Receipt(e.Records[i].ReceiptHandle))
				}
			}
			if len(gone) > 0 {
				if err := r.q.Ack(r.Context(), gone); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !slices.Equal(order, []string{"1", "2", "3", "4"}) {
			t.Errorf("the order was %q", order)
		}
		for _, k := range order {
			if rec := r.record(k); rec.Status != dedupe.Done {
				t.Errorf("%s is %v", k, rec.Status)
			}
		}
	})
}
