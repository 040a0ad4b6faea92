package sqslambda_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/faulty"
	rigs "github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/onceqtest"
)

// A dead-letter queue, or a store, hangs. What waited for its turn behind a call that hangs is not
// begun after the answer.
func TestNothingBeginsAfterTheAnswer(t *testing.T) {
	for _, op := range []string{"letter", "settle"} {
		bubble(t, func(context.Context, *onceq.Job) error { rigs.Takes(7 * time.Second); return onceq.Permanent(errBoom) }, func(r *rig) {
			r.withQueue()
			r.limit = 10 * time.Second
			r.o.Concurrency = 50
			var p onceqtest.Process
			r.batch.DeadLetter = p.Sender(r.dlq)
			switch op {
			case "letter":
				p.At(onceqtest.Fault{Op: onceqtest.Letter, Times: -1, Kind: onceqtest.Slow, Delay: time.Hour})
			case "settle":
				r.store.Befalls(faulty.Hang(), onceqtest.Settle)
			}
			ks := numbered(40)
			r.send(ks...)
			failed, err := r.invoke(r.function(), r.receive(time.Minute))
			r.want(failed, err, ks...)
			before := p.Calls(onceqtest.Letter)
			r.quiet()
			if n := p.Calls(onceqtest.Letter) - before; n != 0 {
				t.Errorf("%s hangs: %d calls of the dead-letter queue after the answer", op, n)
			}
		})
	}
}

// The end of an invocation is as its documentation has it. What does not return is given up at L -
// 1.8 s. Its claim ends SettleTimeout after L - 1 s. A queue that hangs makes the answer wait until
// L - 0.5 s and no longer.
func TestTheEndOfTheTime(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		bubble(t, func(ctx context.Context, j *onceq.Job) error {
			if string(j.Message.Body) == "deaf" {
				rigs.Takes(2 * time.Minute)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}, func(r *rig) {
			r.withQueue()
			h := r.function()
			r.send("cut", "deaf")
			if hangs {
				r.seen.before = func(op string) {
					if op == "nack" {
						rigs.Takes(time.Hour)
					}
				}
			}
			e := r.receive(6 * time.Minute)
			begin := time.Now()
			failed, err := r.invoke(h, e)
			r.want(failed, err, "cut", "deaf")
			want := r.limit - 1800*time.Millisecond
			if hangs {
				want = r.limit - 500*time.Millisecond
			}
			if took := time.Since(begin); took != want {
				t.Errorf("the queue hangs: %v: took %v, want %v", hangs, took, want)
			}
			if d := r.record("deaf").LeaseUntil.Sub(begin); d != r.limit-time.Second+onceq.DefaultSettleTimeout {
				t.Errorf("what was given up is claimed for %v", d)
			}
			rigs.Takes(2 * time.Hour)
		})
	}
}

// What is done is deleted before the batch fails, also where the other record is given up and not
// given back.
func TestFailWholeWithADeafHandler(t *testing.T) {
	var runs sync.Map
	bubble(t, plays(&runs), func(r *rig) {
		r.withQueue()
		r.o.FailWhole = true
		r.send("ok", "deaf")
		e := r.receive(5 * time.Minute)
		if failed, err := r.invoke(r.function(), e); err == nil || len(failed) != 0 {
			t.Errorf("answered %q, %v", failed, err)
		}
		if a := r.seen.acks; len(a) != 1 || string(a[0]) != e.Records[0].ReceiptHandle {
			t.Errorf("deleted: %q", a)
		}
		rigs.Takes(2 * time.Hour)
	})
}

// All of a batch is done: Lambda deletes it, and the function has nothing to ask for.
func TestFailWholeWithoutFailures(t *testing.T) {
	var runs sync.Map
	bubble(t, plays(&runs), func(r *rig) {
		r.withQueue()
		r.o.FailWhole = true
		r.send("ok-1", "ok-2")
		failed, err := r.invoke(r.function(), r.receive(time.Minute))
		r.want(failed, err)
		if n := r.seen.count(""); n != 0 {
			t.Errorf("%d calls of the queue", n)
		}
	})
}

// A queue whose messages cannot be extended is not asked to. No other queue is asked for more than
// it takes.
func TestLimitsOfTheHold(t *testing.T) {
	for _, c := range []struct {
		extends     bool
		least, most time.Duration
		want        time.Duration
	}{{extends: false}, {extends: true, most: 20 * time.Second, want: 20 * time.Second}, {extends: true, least: 5 * time.Minute, want: 5 * time.Minute}} {
		var runs sync.Map
		bubble(t, plays(&runs), func(r *rig) {
			r.withQueue()
			r.seen.limits = func(l broker.Limits) broker.Limits {
				l.Extends, l.MinHold, l.MaxHold = c.extends, c.least, c.most
				return l
			}
			r.send("slow")
			failed, err := r.invoke(r.function(), r.receive(5*time.Minute))
			r.want(failed, err)
			switch x := r.seen.extends; {
			case c.want == 0 && r.seen.count("extend") != 0, c.want != 0 && (len(x) != 1 || x[0].For != c.want):
				t.Errorf("%+v: held %v", c, x)
			}
		})
	}
}

// What will never be given back is told of. It does not keep the others of its batch from being
// tried again.
func TestNackFailsForGood(t *testing.T) {
	for _, never := range []error{broker.ErrUnsupported, broker.ErrNotFound} {
		bubble(t, func(_ context.Context, j *onceq.Job) error {
			// The others are then given back together, while that of a is under way.
			if string(j.Message.Body) != "a" {
				rigs.Takes(100 * time.Millisecond)
			}
			return errBoom
		}, func(r *rig) {
			r.withQueue()
			r.seen.before = func(string) { rigs.Takes(200 * time.Millisecond) }
			r.seen.fault = func(_ string, n int) error {
				if n == 2 {
					return &broker.BatchError{Errs: []error{broker.ErrThrottled, never}}
				}
				return nil
			}
			r.send("a", "b", "c")
			failed, err := r.invoke(r.function(), r.receive(5*time.Minute))
			r.want(failed, err, "a", "b", "c")
			if n := r.seen.count("nack"); n != 3 || len(r.seen.nacks) != 2 {
				t.Errorf("%d calls; those that succeeded were for %v", n, r.seen.nacks)
			}
			if n := r.log.Count("could not be given back"); n != 1 {
				t.Errorf("the log tells of it %d times", n)
			}
		})
	}
}
