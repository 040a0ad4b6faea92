package sqsfake_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/sqsfake"
)

func TestOverHTTP(t *testing.T) {
	srv := sqsfake.Start(t, nil)
	api := sqs.New(sqs.Options{BaseEndpoint: &srv.URL, Region: "us-east-1", Credentials: credentials{}})
	r := &rig{Judge: t, srv: srv, api: api}
	u, err := srv.CreateQueue("jobs.fifo", nil)
	if err != nil || !strings.HasPrefix(u, srv.URL+"/000000000000/") {
		t.Fatal(u, err)
	}
	if q := r.queue("jobs.fifo"); *q != u {
		t.Fatalf("%s and %s", *q, u)
	}
	var sending sync.WaitGroup
	sending.Go(func() { r.sendTo(&u, "g", "a") })
	got := r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: &u, WaitTimeSeconds: 20})
	r.wantBodies(got, "a")
	r.wantCode(r.remove(&u, got[0]), "")
	sending.Wait() // its answer may come after the message
}

func TestCreateQueueRefuses(t *testing.T) {
	srv := sqsfake.New(nil)
	if _, err := srv.CreateQueue("a b", nil); err == nil || !strings.Contains(err.Error(), "InvalidParameterValue: Can only include") {
		t.Errorf("a bad name: %v", err)
	}
	if _, err := srv.CreateQueue("q", map[string]string{"DelaySeconds": "901"}); err == nil || !strings.Contains(err.Error(), "DelaySeconds") {
		t.Errorf("a bad attribute: %v", err)
	}
}

func TestInFlightLimit(t *testing.T) {
	o := &sqsfake.Options{MaxInFlight: 12}
	inBubble(t, o, func(r *rig) {
		q, f := r.queue("q"), r.queue("f.fifo")
		for i := range 20 {
			r.send(q, fmt.Sprint(i))
			r.sendTo(f, fmt.Sprint(i), "a") // each in a group of its own
		}
		held := map[*string][]types.Message{}
		for _, u := range []*string{q, f} {
			held[u] = append(r.receive(u), r.receive(u)...)
			if len(held[u]) != 12 {
				r.Fatalf("received %d", len(held[u]))
			}
		}
		_, err := r.api.ReceiveMessage(r.Context(), &sqs.ReceiveMessageInput{QueueUrl: q})
		r.wantCode(err, "OverLimit")
		r.wantBodies(r.receive(f))
		// Who waits is told of no limit: a consumer that is stuck looks idle.
		for _, u := range []*string{q, f} {
			start := time.Now()
			r.wantBodies(r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: u, WaitTimeSeconds: 5}))
			if took := time.Since(start); took != 5*time.Second {
				r.Fatalf("it was answered after %v", took)
			}
		}
		for _, u := range []*string{q, f} {
			start := time.Now()
			go func() {
				after(time.Second)
				_ = r.remove(u, held[u][1])
			}()
			if got := r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: u, WaitTimeSeconds: 5}); len(got) != 1 {
				r.Fatalf("received %q", bodies(got))
			}
			if took := time.Since(start); took != time.Second {
				r.Fatalf("what came free was received after %v", took)
			}
		}
		for _, u := range []*string{q, f} {
			r.wantCode(r.remove(u, held[u][0]), "")
			if got := r.receive(u); len(got) != 1 {
				r.Fatalf("after a delete: received %d", len(got))
			}
		}
	})
}

// TestAWSInFlightLimit: without an option the limit is AWS's.
func TestAWSInFlightLimit(t *testing.T) {
	r := newRaw(t, false, "q", nil)
	r.fill(120_010, false)
	for range 12_000 {
		r.call("ReceiveMessage", receiveTen)
	}
	status, header, answer := post(t, r.srv, "ReceiveMessage", `{"QueueUrl":"`+r.queue+`"}`)
	if status != 403 || header.Get("X-Amzn-Query-Error") != "OverLimit;Sender" {
		t.Errorf("%d %s", status, answer)
	}
}

func TestReportLostLeases(t *testing.T) {
	inBubble(t, &sqsfake.Options{ReportLostLeases: true}, func(r *rig) {
		q := r.queue("q", "VisibilityTimeout", "5")
		r.send(q, "a")
		m := r.receiveOne(q)
		r.wantCode(r.change(q, m, 5), "")
		after(5 * time.Second)
		r.wantCode(r.change(q, m, 5), "AWS.SimpleQueueService.MessageNotInflight")
		r.wantCode(r.changeInBatch(q, m, 5), "AWS.SimpleQueueService.MessageNotInflight")
		r.receiveOne(q)
		r.wantCode(r.change(q, m, 5), "AWS.SimpleQueueService.MessageNotInflight")
		r.wantCode(r.remove(q, m), "")
	})
}

// TestCancelledPolls: what a long poll finds after its caller went away.
func TestCancelledPolls(t *testing.T) {
	for _, strand := range []bool{false, true} {
		inBubble(t, &sqsfake.Options{StrandCancelled: strand}, func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "100")
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			_, err := r.api.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: q, WaitTimeSeconds: 20})
			if !errors.Is(err, context.DeadlineExceeded) {
				r.Fatalf("answered %v", err)
			}
			after(time.Second)
			r.send(q, "a")
			if strand {
				r.wantCounts(q, 0, 1, 0)
			} else {
				r.wantCounts(q, 1, 0, 0)
			}
			after(100 * time.Second)
			r.wantBodies(r.receive(q), "a")
			// The poll's own wait is over by now: it takes nothing more.
			r.send(q, "b")
			r.wantBodies(r.receive(q), "b")
		})
	}
}

func TestDrain(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		q := r.queue("q")
		start := time.Now()
		go func() {
			after(time.Second)
			r.srv.Drain()
			r.srv.Drain()
		}()
		r.wantBodies(r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, WaitTimeSeconds: 20}))
		r.wantBodies(r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, WaitTimeSeconds: 20}))
		if took := time.Since(start); took != time.Second {
			r.Fatalf("it took %v", took)
		}
		r.send(q, "a")
		r.wantBodies(r.receive(q), "a")
	})
}

func TestDeletingAQueueEndsItsPolls(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		q := r.queue("q")
		deleted := make(chan struct{})
		go func() {
			defer close(deleted)
			after(time.Second)
			r.deleteQueue(q)
		}()
		defer func() { <-deleted }() // its answer may come after the poll's
		start := time.Now()
		_, err := r.api.ReceiveMessage(r.Context(), &sqs.ReceiveMessageInput{QueueUrl: q, WaitTimeSeconds: 20})
		r.wantCode(err, codeNoQueue)
		if took := time.Since(start); took != time.Second {
			r.Fatalf("it took %v", took)
		}
	})
}

func TestRecreateAtOnce(t *testing.T) {
	inBubble(t, &sqsfake.Options{RecreateAtOnce: true}, func(r *rig) {
		q := r.queue("q")
		r.send(q, "a")
		m := r.receiveOne(q)
		r.deleteQueue(q)
		r.queue("q")
		r.wantCode(r.remove(q, m), codeHandle) // the handle is of the other queue
	})
}

// TestPollSeesWhatComesSooner: a poll that waits for one hidden message is woken by another
// that becomes visible before it, and not by one whose timeout was extended meanwhile.
func TestPollSeesWhatComesSooner(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		q := r.queue("q", "VisibilityTimeout", "15")
		r.send(q, "late")
		late := r.receiveOne(q)
		start := time.Now()
		go func() {
			after(time.Second)
			_, _ = r.api.SendMessage(r.Context(), &sqs.SendMessageInput{QueueUrl: q, MessageBody: new("soon"), DelaySeconds: 2})
		}()
		soon := r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, WaitTimeSeconds: 20, VisibilityTimeout: 3600})
		r.wantBodies(soon, "soon")
		if took := time.Since(start); took != 3*time.Second {
			r.Fatalf("it took %v", took)
		}
		go func() {
			after(2 * time.Second)
			_ = r.change(q, late, 12)
		}()
		r.wantBodies(r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, WaitTimeSeconds: 20}), "late")
		if took := time.Since(start); took != 17*time.Second {
			r.Fatalf("the second took until %v", took)
		}
	})
}

// TestPollsAreServedInTurn: the poll that waits longest is served first, and a message goes
// to one of them only.
func TestPollsAreServedInTurn(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		q := r.queue("q")
		var mu sync.Mutex
		var order []string
		for i := range 3 {
			go func() {
				after(time.Duration(i) * time.Second)
				got := r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, WaitTimeSeconds: 20})
				mu.Lock()
				defer mu.Unlock()
				order = append(order, fmt.Sprint(i, bodies(got)))
			}()
		}
		after(10 * time.Second)
		r.send(q, "a")
		synctest.Wait()
		_, err := r.sendBatch(q, entryOf("0", "b"), entryOf("1", "c"))
		r.wantCode(err, "")
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		got := fmt.Sprint(order)
		if got != "[0 [a] 1 [b] 2 [c]]" && got != "[0 [a] 2 [c] 1 [b]]" {
			r.Fatalf("served %s", got)
		}
	})
}

func TestRequestLog(t *testing.T) {
	inBubble(t, &sqsfake.Options{LogSize: 3}, func(r *rig) {
		q := r.queue("q")
		r.send(q, "a")
		_, err := r.sendBatch(q, entryOf("0", "b"), entryOf("1", "c"))
		r.wantCode(err, "")
		r.receive(q)
		r.wantCode(r.trySend(new(*q+"x"), "a"), codeNoQueue)
		if got := fmt.Sprint(r.srv.Counts()); got != "map[CreateQueue:1 ReceiveMessage:1 SendMessage:2 SendMessageBatch:1]" {
			r.Fatalf("counts %s", got)
		}
		var got []string
		for _, c := range r.srv.Requests() {
			got = append(got, fmt.Sprint(c.Action, " ", c.Queue, " ", c.Entries, " ", c.Messages, " ", c.Code))
		}
		if s := strings.Join(got, ", "); s != "SendMessageBatch q 2 0 , ReceiveMessage q 0 3 , SendMessage qx 1 0 "+codeNoQueue {
			r.Fatalf("log: %s", s)
		}
		r.srv.SetFaults(sqsfake.Fault{Delay: time.Second})
		r.srv.ResetLog()
		r.receive(q)
		if log := r.srv.Requests(); len(log) != 1 || !log[0].Faulty || log[0].Took != time.Second || len(r.srv.Counts()) != 1 {
			r.Fatalf("log: %+v", log)
		}
	})
}
