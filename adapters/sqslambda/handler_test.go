package sqslambda_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/peak"
	rigs "github.com/onceq/onceq/internal/rig"
)

// plays does what its body says, and counts the runs.
func plays(runs *sync.Map) onceq.HandlerFunc {
	return func(ctx context.Context, j *onceq.Job) error {
		n, _ := runs.LoadOrStore(string(j.Message.Body), new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
		what, _, _ := strings.Cut(string(j.Message.Body), "-")
		switch what {
		case "bad":
			return onceq.Permanent(errBoom)
		case "retry":
			return errBoom
		case "later":
			return onceq.RetryAfter(time.Hour, errBoom)
		case "panic":
			panic("boom")
		case "slow":
			rigs.Takes(10 * time.Second)
		case "cut":
			<-ctx.Done()
			return context.Cause(ctx)
		case "deaf":
			rigs.Takes(time.Hour)
		}
		return nil
	}
}

func ran(runs *sync.Map, key string) int {
	n, ok := runs.Load(key)
	if !ok {
		return 0
	}
	return int(n.(*atomic.Int32).Load())
}

// Each way to end, and what Lambda is told.
func TestEnds(t *testing.T) {
	for _, queue := range []bool{false, true} {
		var runs sync.Map
		bubble(t, plays(&runs), func(r *rig) {
			if queue {
				r.withQueue()
			}
			r.send("ok", "bad", "retry", "later", "panic", "cut", "done", "taken")
			occupy(r, "taken", 5*time.Minute)
			token := occupy(r, "done", time.Minute)
			if _, err := r.store.Store.Settle(r.Context(), []dedupe.Settlement{{Key: dedupe.Key{Scope: "orders", Key: "done"}, Token: token, To: dedupe.Done}}); err != nil {
				t.Fatal(err)
			}
			e := r.receive(6 * time.Minute)
			e.Records = append(e.Records, events.SQSMessage{
				MessageId: "poison", EventSourceARN: standard, EventSource: "aws:sqs", Body: "poison",
				MessageAttributes: map[string]events.SQSMessageAttribute{broker.MetaAttribute: {DataType: "String", StringValue: new("{")}},
			}, events.SQSMessage{MessageId: "foreign", EventSourceARN: standard, Body: "no key"})
			begin := time.Now()
			failed, err := r.invoke(r.function(), e)
			r.want(failed, err, "retry", "later", "panic", "cut", "taken")
			if got := r.letters(); !slices.Equal(got, []string{"bad-meta", "no-key", "permanent"}) {
				t.Errorf("the letters are %q", got)
			}
			if ran(&runs, "done")+ran(&runs, "taken") != 0 || ran(&runs, "ok") != 1 {
				t.Errorf("what is done, or in progress elsewhere, ran")
			}
			if rec := r.record("cut"); rec.Attempt != 1 || rec.ErrClass != onceq.ClassTimeout {
				t.Errorf("the record of what took too long is %+v", rec)
			}
			if !queue {
				if n := r.seen.count(""); n != 0 {
					t.Errorf("%d calls of the queue", n)
				}
				return
			}
			// What came back, and when: counted from the end of the job, not of the invocation.
			want := map[string][2]time.Duration{
				"retry": {7 * time.Second, 7 * time.Second}, "panic": {7 * time.Second, 7 * time.Second}, "later": {time.Hour, time.Hour},
				"cut": {7 * time.Second, 7 * time.Second}, "taken": {5 * time.Minute, 7 * time.Minute},
			}
			hidden := map[string]time.Duration{}
			for _, h := range r.seen.nacks {
				i := slices.IndexFunc(e.Records, func(m events.SQSMessage) bool { return m.ReceiptHandle == string(h.Receipt) })
				hidden[e.Records[i].Body] = h.For
			}
			for k, w := range want {
				if d, ok := hidden[k]; !ok || d < w[0] || d > w[1] {
					t.Errorf("%s comes again after %v (%v), want %v", k, d, ok, w)
				}
			}
			if len(hidden) != len(want) {
				t.Errorf("given back: %v", hidden)
			}
			if took := time.Since(begin); took != 55*time.Second {
				t.Errorf("took %v: the context of what takes too long ends 5 s before the end", took)
			}
			r.quiet()
		})
	}
}

func occupy(r *rig, k string, ttl time.Duration) dedupe.Token {
	r.Helper()
	q := dedupe.ClaimRequest{Key: dedupe.Key{Scope: "orders", Key: k}, Token: dedupe.Token{1, byte(len(k))}, TTL: ttl}
	if cs, err := r.store.Store.Claim(r.Context(), []dedupe.ClaimRequest{q}); err != nil || cs[0].Outcome != dedupe.Won {
		r.Fatal(cs, err)
	}
	return q.Token
}

// Two writes a job, in one lease for the whole invocation.
func TestTwoWritesAJob(t *testing.T) {
	var runs sync.Map
	bubble(t, plays(&runs), func(r *rig) {
		r.limit = 15 * time.Minute
		r.cfg.Handler = onceq.HandlerFunc(func(context.Context, *onceq.Job) error { rigs.Takes(14 * time.Minute); return nil })
		r.send("a", "b", "c")
		begin := time.Now()
		go func() {
			rigs.Takes(time.Minute)
			if d := r.record("a").LeaseUntil.Sub(begin); d < r.limit || d > r.limit+10*time.Second {
				t.Errorf("the claim is held for %v", d)
			}
		}()
		failed, err := r.invoke(r.function(), r.receive(time.Hour))
		r.want(failed, err)
		if c, n, s := r.store.Claims.Load(), r.store.Renews.Load(), r.store.Settles.Load(); c != 1 || n != 0 || s > 3 {
			t.Errorf("%d claims, %d renewals, %d settlements", c, n, s)
		}
	})
}

// Concurrency is bounded, and what finds no slot in time is not begun and not counted.
func TestConcurrencyAndMinTime(t *testing.T) {
	var runs sync.Map
	var busy peak.Gauge
	bubble(t, func(ctx context.Context, j *onceq.Job) error {
		busy.In()
		defer busy.Out()
		return plays(&runs)(ctx, j)
	}, func(r *rig) {
		r.withQueue()
		r.limit = 40 * time.Second
		r.o.Concurrency, r.o.MinTime = 3, 12*time.Second
		var ks []string
		for i := range 15 {
			ks = append(ks, fmt.Sprintf("slow-%02d", i))
		}
		r.send(ks...)
		begin := time.Now()
		failed, err := r.invoke(r.function(), r.receive(4*time.Minute))
		// 35 s to the cut, of which 12 are too short: three rounds begin, at 0, 10 and 20 s.
		r.want(failed, err, ks[9:]...)
		if busy.Top() != 3 {
			t.Errorf("%d handlers at once", busy.Top())
		}
		if took := time.Since(begin); took != 30*time.Second {
			t.Errorf("took %v", took)
		}
		if rec := r.record(ks[9]); rec.Status != 0 {
			t.Errorf("what did not begin has the record %+v", rec)
		}
		// They are there at once for another function.
		if e := r.receive(time.Minute); len(e.Records) != 6 {
			t.Errorf("%d records come again at once, want 6", len(e.Records))
		}
	})
}

// A group of a FIFO queue stops at its first failure; other groups go on; a letter does not stop
// it. On a standard queue a group is a tenant.
func TestGroups(t *testing.T) {
	for _, preset := range []membroker.Preset{membroker.SQSFIFO, membroker.SQSStandard} {
		var runs sync.Map
		var mu sync.Mutex
		var order []string
		bubble(t, func(ctx context.Context, j *onceq.Job) error {
			rigs.Takes(time.Second)
			mu.Lock()
			order = append(order, string(j.Message.Body))
			mu.Unlock()
			return plays(&runs)(ctx, j)
		}, func(r *rig) {
			r.queues(preset)
			r.withQueue()
			r.batch.DeadLetter = r.dlq
			r.send("a/a1", "a/retry-a2", "b/b1", "a/a3", "a/a4", "b/bad-b2", "b/b3")
			begin := time.Now()
			failed, err := r.invoke(r.function(), r.receive(5*time.Minute))
			if preset == membroker.SQSStandard {
				r.want(failed, err, "retry-a2")
				if took := time.Since(begin); took != time.Second {
					t.Errorf("the tenants of a fair queue took %v", took)
				}
				return
			}
			r.want(failed, err, "retry-a2", "a3", "a4")
			if ran(&runs, "a3")+ran(&runs, "a4") != 0 {
				t.Error("what follows a failure ran")
			}
			for _, pair := range [][2]string{{"a1", "retry-a2"}, {"b1", "bad-b2"}, {"bad-b2", "b3"}} {
				if i, j := slices.Index(order, pair[0]), slices.Index(order, pair[1]); i < 0 || j < i {
					t.Errorf("the order was %q", order)
				}
			}
			// Nothing of a comes before its head's delay is over, and then all of it, in order.
			rigs.Takes(6 * time.Second)
			if e := r.receive(time.Minute); len(e.Records) != 2 { // b's are Lambda's to delete
				for i := range e.Records {
					if e.Records[i].Attributes["MessageGroupId"] == "a" {
						t.Errorf("%s came before the delay of its group's head", e.Records[i].Body)
					}
				}
			}
		})
	}
}

// A store that is away is not waited for, nothing runs unclaimed, the log says it once, and the
// messages do not come back at once.
func TestOutage(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { t.Error("it ran"); return nil }, func(r *rig) {
		r.withQueue()
		r.limit = 15 * time.Minute
		r.store.Fails(errBoom)
		ks := numbered(30)
		r.send(ks...)
		begin := time.Now()
		failed, err := r.invoke(r.function(), r.receive(90*time.Minute))
		r.want(failed, err, ks...)
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("took %v, billed", took)
		}
		if n := r.log.Count("the store does not answer"); n != 1 {
			t.Errorf("the log tells %d times of the outage", n)
		}
		for _, h := range r.seen.nacks {
			if h.For < 10*time.Second || h.For > 30*time.Second {
				t.Errorf("a message comes again after %v", h.For)
			}
		}
		if len(r.seen.nacks) != 30 {
			t.Errorf("%d messages were given back", len(r.seen.nacks))
		}
		r.quiet()
	})
}

// A handler that ignores its context is given up in time; the rest of the batch is reported as it
// ended.
func TestDeafHandler(t *testing.T) {
	var runs sync.Map
	bubble(t, plays(&runs), func(r *rig) {
		r.withQueue()
		r.send("deaf", "ok", "slow")
		h := r.function()
		e := r.receive(6 * time.Minute)
		failed, err := r.invoke(h, e)
		r.want(failed, err, "deaf")
		if n := len(r.seen.nacks); n != 0 {
			t.Errorf("%d nacks: what is not known to have ended is left alone", n)
		}
		// Its claim ends soon after the invocation.
		rigs.Takes(11 * time.Second)
		failed, err = r.invoke(h, events.SQSEvent{Records: e.Records[:1]})
		r.want(failed, err, "deaf")
		if ran(&runs, "deaf") != 2 {
			t.Errorf("it ran %d times", ran(&runs, "deaf"))
		}
		rec := r.record("deaf")
		r.quiet()
		if now := r.record("deaf"); now.Status != rec.Status || now.Fence != rec.Fence {
			t.Errorf("the late return changed the record from %+v to %+v", rec, now)
		}
	})
}

// A function that dies, and one whose sandbox thaws after its leases, change nothing any more.
func TestKilled(t *testing.T) {
	begun, go2 := make(chan struct{}), make(chan struct{})
	bubble(t, nil, func(r *rig) {
		begun, go2 = make(chan struct{}), make(chan struct{})
		first := true
		r.cfg.Handler = onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			if first {
				first = false
				close(begun)
				<-go2 // frozen: not even its context reaches it
			}
			return j.SetResult([]byte("by " + fmt.Sprint(j.Attempt)))
		})
		r.send("a")
		h := r.function()
		e := r.receive(6 * time.Minute)
		failed, err := r.invoke(h, e)
		r.want(failed, err, "a")
		<-begun
		rigs.Takes(6 * time.Minute)
		failed, err = r.invoke(h, r.receive(6*time.Minute))
		r.want(failed, err)
		close(go2)
		r.quiet()
		if rec := r.record("a"); rec.Status != dedupe.Done || string(rec.Result) != "by 2" {
			t.Errorf("the record is %+v, %s", rec, rec.Result)
		}
	})
}

// Without ReportBatchItemFailures the function fails as a whole, and what is done is deleted first
// where that is possible.
func TestFailWhole(t *testing.T) {
	for _, queue := range []bool{false, true} {
		var runs sync.Map
		bubble(t, plays(&runs), func(r *rig) {
			r.o.FailWhole = true
			if queue {
				r.withQueue()
			}
			r.send("ok", "retry-a", "bad")
			h := r.function()
			failed, err := r.invoke(h, r.receive(time.Minute))
			if err == nil || !strings.Contains(err.Error(), "1 of 3 records failed") || len(failed) != 0 {
				t.Errorf("answered %q, %v", failed, err)
			}
			if n := len(r.seen.acks); queue && n != 2 {
				t.Errorf("%d records were deleted, want 2", n)
			}
			rigs.Takes(2 * time.Minute)
			again := r.receive(time.Minute)
			if want := map[bool]int{false: 3, true: 1}[queue]; len(again.Records) != want {
				t.Errorf("%d records come again, want %d", len(again.Records), want)
			}
			r.cfg.Handler = onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil })
			failed, err = r.invoke(r.function(), again)
			r.want(failed, err)
			if ran(&runs, "ok") != 1 {
				t.Errorf("ok ran %d times", ran(&runs, "ok"))
			}
		})
	}
}

// What is no event of a queue fails: answered as done, it would be lost.
func TestOtherEvents(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { t.Error("it ran"); return nil }, func(r *rig) {
		h := r.function()
		for name, e := range map[string]events.SQSEvent{
			"no records": {},
			"kinesis":    {Records: []events.SQSMessage{{EventSource: "aws:kinesis"}}},
			"mixed":      {Records: []events.SQSMessage{{EventSource: "aws:sqs", MessageId: "1"}, {EventSource: "aws:sns"}}},
		} {
			if _, err := h(r.Context(), e); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		if n := r.store.Calls(); n != 0 {
			t.Errorf("%d calls of the store", n)
		}
	})
}

// An empty id in the answer would fail the whole batch without a word; so it fails with one.
func TestNoMessageID(t *testing.T) {
	var runs sync.Map
	bubble(t, plays(&runs), func(r *rig) {
		r.send("ok", "retry")
		e := r.receive(time.Minute)
		e.Records[0].MessageId = ""
		failed, err := r.invoke(r.function(), events.SQSEvent{Records: e.Records[:1]})
		r.want(failed, err)
		// An id that comes twice is told once.
		failed, err = r.invoke(r.function(), events.SQSEvent{Records: []events.SQSMessage{e.Records[1], e.Records[1]}})
		r.want(failed, err, "retry")
		e.Records[1].MessageId = ""
		if _, err := r.invoke(r.function(), e); err == nil || !strings.Contains(err.Error(), "record 1 failed and has no message id") {
			t.Errorf("answered %v", err)
		}
	})
}

// Without a deadline the invocation may last as long as Lambda's longest.
func TestNoDeadline(t *testing.T) {
	var runs sync.Map
	bubble(t, plays(&runs), func(r *rig) {
		r.send("cut")
		e := r.receive(time.Hour)
		begin := time.Now()
		resp, err := r.function()(r.Context(), e)
		if err != nil || len(resp.BatchItemFailures) != 1 {
			t.Errorf("answered %+v, %v", resp, err)
		}
		if took := time.Since(begin); took != 15*time.Minute-5*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// The times of short functions, and of those that are too short.
func TestTimes(t *testing.T) {
	for _, c := range []struct {
		limit, reserve, least time.Duration
		cut                   time.Duration // 0 = it fails
	}{
		{3 * time.Second, 0, 0, 2250 * time.Millisecond},
		{time.Second, 0, 0, 750 * time.Millisecond},
		{time.Minute, 0, 0, 55 * time.Second},
		{time.Minute, time.Second, 0, 59 * time.Second},
		{time.Minute, time.Minute, 0, 45 * time.Second},
		{time.Minute, 0, 54 * time.Second, 55 * time.Second},
		{time.Minute, 0, 55 * time.Second, 0},
		{8 * time.Millisecond, 0, 0, 6 * time.Millisecond},
		{time.Millisecond, 0, 0, 0},
		{0, 0, 0, 0},
	} {
		var cut time.Duration
		bubble(t, nil, func(r *rig) {
			begin := time.Now()
			r.cfg.Handler = onceq.HandlerFunc(func(ctx context.Context, _ *onceq.Job) error {
				<-ctx.Done()
				cut = time.Since(begin)
				return context.Cause(ctx)
			})
			r.o.Reserve, r.o.MinTime = c.reserve, c.least
			r.send("a")
			h, e := r.function(), r.receive(time.Hour)
			ctx, cancel := context.WithTimeout(r.Context(), c.limit)
			defer cancel()
			begin = time.Now()
			_, err := h(ctx, e)
			if (c.cut == 0) != (err != nil) || cut != c.cut {
				t.Errorf("%+v: cut after %v, %v", c, cut, err)
			}
			if err != nil && !strings.Contains(err.Error(), "raise the function's timeout") {
				t.Errorf("the error is %v", err)
			}
			if n := r.log.Count("is its unit missing"); n != 0 {
				t.Errorf("%+v: nobody wrote a time without its unit, and %d lines ask for one", c, n)
			}
		})
	}
}

// Several invocations at once, as Managed Instances do: each message has its own answer.
func TestInvocationsAtOnce(t *testing.T) {
	var runs sync.Map
	bubble(t, plays(&runs), func(r *rig) {
		r.withQueue()
		r.send("ok", "slow", "retry", "bad")
		h, e := r.function(), r.receive(10*time.Minute)
		var calls sync.WaitGroup
		var failures atomic.Int32
		for range 4 {
			calls.Go(func() {
				failed, err := r.invoke(h, e)
				if err != nil {
					t.Error(err)
				}
				failures.Add(int32(len(failed)))
			})
		}
		calls.Wait()
		for _, k := range []string{"ok", "slow", "bad"} {
			if n := ran(&runs, k); n != 1 {
				t.Errorf("%s ran %d times", k, n)
			}
		}
		r.quiet()
	})
}
