//go:build unix

package function_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/localstack/lambdaruntime"
)

// pollOnce polls until a batch was answered.
func (w *world) pollOnce(s lambdaruntime.Source) (deleted int, rejected error) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	deleted = -1
	s.Client, s.QueueURL, s.ARN = w.client, w.queue, w.arn
	s.Answered = func(_ events.SQSEvent, r lambdaruntime.Result, n int) { deleted, rejected = n, r.Rejected; cancel() }
	if err := w.f.Poll(ctx, s); err != nil {
		w.Fatal(err)
	}
	return deleted, rejected
}

// Lambda invokes a function with the same event twice, now and then: each order has one effect all
// the same.
func TestTwice(t *testing.T) {
	t.Parallel()
	for _, sandboxes := range []int{1, 2} { // one after the other, and at once
		var mu sync.Mutex
		seen := map[string]int{}
		w := newWorld(t, setup{
			name: "orders", visibility: 3 * time.Second, handle: sandboxes == 2,
			o: lambdaruntime.Options{Timeout: 2 * time.Second, Sandboxes: sandboxes},
			s: lambdaruntime.Source{
				Twice: func(events.SQSEvent) bool { return true },
				Answered: func(e events.SQSEvent, _ lambdaruntime.Result, _ int) {
					mu.Lock()
					defer mu.Unlock()
					for i := range e.Records {
						seen[e.Records[i].ReceiptHandle]++
					}
				},
			},
		})
		os := many(10)
		w.send(os...)
		w.drained()
		w.stop()
		w.audit(os)
		for handle, n := range seen {
			if n != 2 {
				t.Errorf("the delivery %.12s was invoked %d times", handle, n)
			}
		}
	}
}

// A standard queue's batch has up to 10,000 records, gathered in a window.
func TestLargeBatches(t *testing.T) {
	t.Parallel()
	const n = 45
	var mu sync.Mutex
	var sizes []int
	w := newWorld(t, setup{
		name: "orders", visibility: 30 * time.Second, o: lambdaruntime.Options{Timeout: 5 * time.Second},
		s: lambdaruntime.Source{
			BatchSize: 30, Window: 2 * time.Second,
			Answered: func(e events.SQSEvent, _ lambdaruntime.Result, _ int) {
				mu.Lock()
				defer mu.Unlock()
				sizes = append(sizes, len(e.Records))
			},
		},
	})
	var os []order
	for i := range n {
		os = append(os, order{ID: fmt.Sprint("o-", i)})
	}
	w.send(os...)
	w.drained()
	w.stop()
	w.audit(os)
	largest := 0
	for _, size := range sizes {
		largest = max(largest, size)
	}
	if largest <= 10 || largest > 30 {
		t.Errorf("the batches had %v records, want more than 10 and at most 30", sizes)
	}
}

// Event and answer have 6 MB at most: larger batches are cut, a larger answer fails.
func TestSixMegabytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{name: "orders", visibility: time.Hour, o: lambdaruntime.Options{Timeout: 10 * time.Second}})
	w.stop()
	large := bodyThatAnswers + `"` + strings.Repeat("<", 1<<20-100) + `"`
	for range 7 {
		if _, err := w.client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &w.queue, MessageBody: &large}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	invocations, records := 0, 0
	if err := w.f.Poll(ctx, lambdaruntime.Source{
		Client: w.client, QueueURL: w.queue, ARN: w.arn, IgnoreAnswer: true,
		Answered: func(e events.SQSEvent, r lambdaruntime.Result, _ int) {
			invocations++
			if len(e.Records) == 7 || r.Err != nil {
				t.Errorf("an event of %d MiB ended in %v", len(e.Records), r.Err)
			}
			if records += len(e.Records); records == 7 {
				cancel()
			}
		},
	}); err != nil || invocations < 2 {
		t.Errorf("%d invocations, %v", invocations, err)
	}
	if n := w.depth(w.queue); n != 0 {
		t.Errorf("%d messages are left", n)
	}
	res := w.f.Invoke(t.Context(), []byte(`"`+strings.Repeat("x", 6<<20+99)+`"`))
	if !errors.Is(res.Err, lambdaruntime.ErrTooLarge) {
		t.Errorf("an event of more than 6 MB ended in %v", res.Err)
	}
	res = w.f.Invoke(t.Context(), []byte(`{"Records":[{"messageId":"1","body":"`+bodyThatSwells+`"}]}`))
	if !errors.Is(res.Err, lambdaruntime.ErrFunction) || !strings.Contains(res.Err.Error(), "ResponseSizeTooLarge") || len(res.Payload) > 0 {
		t.Errorf("an answer of more than 6 MB ended in %v, with %d bytes", res.Err, len(res.Payload))
	}
	if res = w.f.Invoke(t.Context(), []byte(`{"Records":[{"messageId":"1","body":"{}"}]}`)); res.Err != nil {
		t.Errorf("the next invocation ended in %v", res.Err)
	}
}

func TestSourceIsChecked(t *testing.T) {
	t.Parallel()
	f := lambdaruntime.New(t, lambdaruntime.Options{Command: []string{"true"}})
	for _, c := range []struct {
		s    lambdaruntime.Source
		want string
	}{
		{lambdaruntime.Source{BatchSize: -1}, "Source.BatchSize is -1; it is within 1 and 10000"},
		{lambdaruntime.Source{BatchSize: 10_001}, "Source.BatchSize is 10001"},
		{lambdaruntime.Source{BatchSize: 11, QueueURL: "q.fifo"}, "on a FIFO queue it is at most 10"},
		{lambdaruntime.Source{Window: time.Second, QueueURL: "q.fifo"}, "Source.Window is 1s; a FIFO queue has none"},
		{lambdaruntime.Source{Window: time.Hour}, "Source.Window is 1h0m0s; it is within 0 and 5m0s"},
	} {
		if err := f.Poll(t.Context(), c.s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.s, err, c.want)
		}
	}
}
