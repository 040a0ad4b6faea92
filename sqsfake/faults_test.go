package sqsfake_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/sqsfake"
)

func (r *rig) trySend(q *string, body string) error {
	_, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{QueueUrl: q, MessageBody: &body})
	return err
}

func TestFaultAtTheNthCall(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		q := r.queue("q")
		r.srv.SetFaults(sqsfake.Fault{Action: "SendMessage", Skip: 1, Count: 2, Code: "RequestThrottled"})
		r.wantCode(r.trySend(q, "1"), "")
		r.wantCode(r.trySend(q, "2"), "RequestThrottled")
		r.wantCounts(q, 1, 0, 0) // another action does not count
		r.wantCode(r.trySend(q, "3"), "RequestThrottled")
		r.wantCode(r.trySend(q, "4"), "")
		r.wantBodies(r.receive(q), "1", "4")
	})
}

func TestFaultAtARate(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		q := r.queue("q")
		r.srv.SetFaults(sqsfake.Fault{Rate: 0.5, Code: "Throttling"})
		failed := 0
		for range 400 {
			if err := r.trySend(q, "a"); err != nil {
				r.wantCode(err, "Throttling")
				failed++
			}
		}
		if failed < 100 || failed > 300 {
			r.Fatalf("%d of 400 failed", failed)
		}
	})
}

func TestFaultOfAQueueForAWhile(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		q, other := r.queue("q"), r.queue("other")
		r.srv.SetFaults(sqsfake.Fault{Queue: "q", For: time.Minute, Status: 503, Code: "ServiceUnavailable"})
		r.wantCode(r.trySend(q, "a"), "ServiceUnavailable")
		r.wantCode(r.trySend(other, "a"), "")
		after(time.Minute)
		r.wantCode(r.trySend(q, "a"), "")
	})
}

func TestFaultWhen(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		q := r.queue("q")
		r.srv.SetFaults(
			sqsfake.Fault{Code: "AccessDenied", When: func(c sqsfake.Request) bool { return c.Action == "SendMessageBatch" && c.Entries > 1 }},
			sqsfake.Fault{Action: "SendMessageBatch", Status: 500},
		)
		_, err := r.sendBatch(q, entryOf("0", "a"), entryOf("1", "b"))
		r.wantCode(err, "AccessDenied")
		_, err = r.sendBatch(q, entryOf("0", "a"))
		r.wantCode(err, "InternalFailure")
	})
}

func TestFaultCodes(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		q := r.queue("q")
		for given, want := range map[string]string{
			"RequestThrottled": "RequestThrottled", "OverLimit": "OverLimit", "QueueDoesNotExist": codeNoQueue,
			codeNoQueue: codeNoQueue, "KmsThrottled": "KMS.ThrottlingException", "InternalFailure": "InternalFailure",
			"SomethingNew": "SomethingNew", "ExpiredToken": "ExpiredToken",
		} {
			r.srv.SetFaults(sqsfake.Fault{Code: given, Message: "because"})
			err := r.trySend(q, "a")
			r.wantCode(err, want)
			r.wantText(err, "because")
		}
		r.srv.SetFaults(sqsfake.Fault{Code: "KmsThrottled"})
		if _, ok := errors.AsType[*types.KmsThrottled](r.trySend(q, "a")); !ok {
			r.Fatal("the SDK's own type is lost")
		}
		r.srv.SetFaults()
		r.wantCode(r.trySend(q, "a"), "")
	})
}

func TestFaultDelay(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		q := r.queue("q")
		r.srv.SetFaults(sqsfake.Fault{Delay: time.Second, ReplyDelay: 2 * time.Second})
		start := time.Now()
		r.wantCode(r.trySend(q, "a"), "")
		if took := time.Since(start); took != 3*time.Second {
			r.Fatalf("it took %v", took)
		}
		// Who gives up before the delay ends has sent nothing; after it, something.
		for _, c := range []struct {
			timeout time.Duration
			want    int
		}{{500 * time.Millisecond, 1}, {1500 * time.Millisecond, 2}} {
			ctx, cancel := context.WithTimeout(r.Context(), c.timeout)
			_, err := r.api.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: q, MessageBody: new("b")})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				r.Fatalf("answered %v", err)
			}
			r.wantCounts(q, c.want, 0, 0)
		}
	})
}

// TestLostReplies: the change is made, its caller sees none of it.
func TestLostReplies(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		q := r.queue("q", "VisibilityTimeout", "10")
		r.srv.SetFaults(sqsfake.Fault{Action: "SendMessage", Reset: true, Applied: true})
		if err := r.trySend(q, "a"); !errors.Is(err, syscall.ECONNRESET) {
			r.Fatalf("answered %v", err)
		}
		r.wantCounts(q, 1, 0, 0)
		r.srv.SetFaults(sqsfake.Fault{Action: "ReceiveMessage", Status: 500, Applied: true})
		_, err := r.api.ReceiveMessage(r.Context(), &sqs.ReceiveMessageInput{QueueUrl: q})
		r.wantCode(err, "InternalFailure")
		r.wantCounts(q, 0, 1, 0)
		after(10 * time.Second)
		r.srv.SetFaults()
		m := r.receiveOne(q)
		if m.Attributes["ApproximateReceiveCount"] != "2" {
			r.Fatalf("received %s times", m.Attributes["ApproximateReceiveCount"])
		}
		r.srv.SetFaults(sqsfake.Fault{Action: "DeleteMessage", Reset: true})
		if err := r.remove(q, m); !errors.Is(err, syscall.ECONNRESET) {
			r.Fatalf("answered %v", err)
		}
		r.wantCounts(q, 0, 1, 0) // not applied
	})
}

func TestSilence(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		q := r.queue("q")
		r.srv.SetFaults(sqsfake.Fault{Silence: true, Count: 1})
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		_, err := r.api.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: q, MessageBody: new("a")})
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != time.Minute {
			r.Fatalf("after %v: %v", took, err)
		}
		r.wantCounts(q, 0, 0, 0)
		if log := r.srv.Requests(); log[1].Code != "(no answer)" || !log[1].Faulty {
			r.Fatalf("log: %+v", log)
		}
	})
}

func TestFailedEntries(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		q := r.queue("q")
		send := func() []string {
			out, err := r.sendBatch(q, entryOf("x", "a"), entryOf("y", "b"), entryOf("z", "c"))
			r.wantCode(err, "")
			var failed []string
			for _, f := range out.Failed {
				failed = append(failed, *f.Id+" "+*f.Code+" "+fmt.Sprint(f.SenderFault))
			}
			slices.Sort(failed)
			return failed
		}
		r.srv.SetFaults(sqsfake.Fault{Action: "SendMessageBatch", Entries: []int{0, 2}})
		if got := send(); !slices.Equal(got, []string{"x InternalError false", "z InternalError false"}) {
			r.Fatalf("failed %q", got)
		}
		r.wantCounts(q, 1, 0, 0)
		r.srv.SetFaults(sqsfake.Fault{Entries: []int{1}, Code: "RequestThrottled", Applied: true})
		if got := send(); !slices.Equal(got, []string{"y RequestThrottled true"}) {
			r.Fatalf("failed %q", got)
		}
		r.srv.SetFaults()
		r.wantCounts(q, 4, 0, 0)

		got := r.receive(q)
		r.srv.SetFaults(sqsfake.Fault{Action: "DeleteMessageBatch", Entries: []int{0}})
		r.wantCode(r.removeInBatch(q, got[0]), "InternalError")
		r.wantCounts(q, 0, 4, 0)
		r.srv.SetFaults(sqsfake.Fault{Action: "DeleteMessageBatch", Entries: []int{0}, Applied: true})
		r.wantCode(r.removeInBatch(q, got[0]), "InternalError")
		r.wantCounts(q, 0, 3, 0)
	})
}

func TestStaleHandles(t *testing.T) {
	inBubble(t, staleWork, func(r *rig) {
		q, f := r.queue("q"), r.queue("f.fifo")
		r.send(q, "a")
		r.sendTo(f, "g", "a")
		std, ordered := r.receiveOne(q), r.receiveOne(f)
		r.srv.SetFaults(sqsfake.Fault{Stale: true})
		r.wantCode(r.remove(q, std), "")
		r.wantCode(r.removeInBatch(q, std), "")
		r.wantCode(r.change(q, std, 0), "")
		r.wantCounts(q, 0, 1, 0)
		r.wantCode(r.remove(f, ordered), codeParameter)
		r.wantCode(r.removeInBatch(f, ordered), codeHandle)
		r.wantCounts(f, 0, 1, 0)
	})
}

func TestBadChecksums(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		q := r.queue("q")
		r.send(q, "a")
		r.srv.SetFaults(sqsfake.Fault{BadMD5: []int{0}})
		_, err := r.api.ReceiveMessage(r.Context(), &sqs.ReceiveMessageInput{QueueUrl: q})
		r.wantText(err, "checksum")
		r.wantText(r.trySend(q, "b"), "checksum")
		_, err = r.sendBatch(q, entryOf("0", "c"))
		r.wantText(err, "checksum")
	})
}

func TestDuplicates(t *testing.T) {
	inBubble(t, staleIgnored, func(r *rig) {
		q := r.queue("q")
		r.send(q, "a")
		r.srv.SetFaults(sqsfake.Fault{Duplicate: true, Count: 1, Action: "ReceiveMessage"})
		first, second := r.receiveOne(q), r.receiveOne(q)
		r.wantBodies(r.receive(q))
		if *first.MessageId != *second.MessageId || *first.ReceiptHandle == *second.ReceiptHandle {
			r.Fatal("not the same message twice")
		}
		r.wantCode(r.remove(q, first), "")
		r.wantCounts(q, 0, 1, 0)
		r.wantCode(r.remove(q, second), "")
		r.wantCounts(q, 0, 0, 0)
	})
}

func TestFaultOfFewer(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		q, f := r.queue("q"), r.queue("f.fifo")
		for _, body := range []string{"1", "2", "3"} {
			r.send(q, body)
			r.sendTo(f, "g", body)
		}
		r.srv.SetFaults(sqsfake.Fault{Action: "ReceiveMessage", Most: 2, Count: 2})
		r.wantBodies(r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, MaxNumberOfMessages: 10, WaitTimeSeconds: 5}), "1", "2")
		r.wantBodies(r.receive(f), "1", "2")
		r.wantBodies(r.receive(q), "3")
	})
}

func TestFaultOfAnUnknownAction(t *testing.T) {
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, `no action "SendMesage"`) {
			t.Errorf("recovered %s", got)
		}
	}()
	sqsfake.New(&sqsfake.Options{Faults: []sqsfake.Fault{{Action: "SendMesage"}}})
}

// TestFaultsOnTheWire: what a socket sees.
func TestFaultsOnTheWire(t *testing.T) {
	srv := sqsfake.Start(t, &sqsfake.Options{ShortPolls: sqsfake.ShortPollsWhole})
	api := sqs.New(sqs.Options{
		BaseEndpoint: &srv.URL, Region: "us-east-1", Credentials: credentials{}, RetryMaxAttempts: 1,
		HTTPClient: &http.Client{Transport: &http.Transport{}},
	})
	r := &rig{Judge: t, srv: srv, api: api}
	q := r.queue("q")
	srv.SetFaults(sqsfake.Fault{Action: "SendMessage", Reset: true})
	if err := r.trySend(q, "a"); err == nil || codeOf(err) != "not an API error" {
		t.Errorf("a reset: %v", err)
	}
	srv.SetFaults(sqsfake.Fault{Action: "SendMessage", Silence: true, Applied: true})
	ctx, cancel := context.WithCancel(t.Context())
	silent := make(chan error, 1)
	go func() {
		_, err := api.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: q, MessageBody: new("a")})
		silent <- err
	}()
	for r.attribute(q, "ApproximateNumberOfMessages") != "1" { // a caller that leaves before has sent nothing
		<-time.After(time.Millisecond)
	}
	cancel()
	if err := <-silent; !errors.Is(err, context.Canceled) {
		t.Errorf("silence: %v", err)
	}
	srv.SetFaults()
	r.wantBodies(r.receive(q), "a")
	srv.SetFaults(sqsfake.Fault{Status: 503})
	err := r.trySend(q, "a")
	r.wantText(err, "503")
	r.wantCode(err, "InternalFailure")
}
