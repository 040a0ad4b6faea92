package awssqs_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
)

// Every error code that the facts know, as a whole answer and as an entry's.
func TestErrorsAreMapped(t *testing.T) {
	const receipt = "Value AQEB for parameter ReceiptHandle is invalid. Reason: "
	for _, c := range []struct {
		code, text string
		want       error
	}{
		{"InvalidParameterValue", receipt + "The receipt handle has expired.", broker.ErrReceiptExpired},
		{"InvalidParameterValue", receipt + "Message does not exist or is not available for visibility timeout change.", broker.ErrReceiptExpired},
		{"InvalidParameterValue", "something new", broker.ErrReceiptExpired},
		{"InvalidParameterValueException", receipt + "The receipt handle has expired.", broker.ErrReceiptExpired},
		{"ReceiptHandleIsInvalid", "The input receipt handle is invalid.", broker.ErrReceiptExpired},
		{"MessageNotInflight", "", broker.ErrReceiptExpired},
		{"AWS.SimpleQueueService.MessageNotInflight", "", broker.ErrReceiptExpired},
		{
			"InvalidParameterValue", "Value 43200 for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds]",
			broker.ErrUnsupported,
		},
		{"QueueDoesNotExist", "The specified queue does not exist.", broker.ErrNotFound},
		{"AWS.SimpleQueueService.NonExistentQueue", "", broker.ErrNotFound},
		{"InvalidAddress", "", broker.ErrNotFound},
		{"RequestThrottled", "", broker.ErrThrottled},
		{"AWS.SimpleQueueService.RequestThrottled", "", broker.ErrThrottled},
		{"ThrottlingException", "Rate exceeded", broker.ErrThrottled},
		{"KMS.ThrottlingException", "", broker.ErrThrottled},
		{"OverLimit", "", broker.ErrThrottled},
		{"UnsupportedOperation", "", broker.ErrUnsupported},
		{"AccessDenied", "", nil},
		{"InternalError", "", nil},
	} {
		whole, _ := stubbed(t, stubURL, nil, func(stubCall) stubAnswer { return stubAnswer{code: c.code, text: c.text} })
		entry, _ := stubbed(t, stubURL, nil, func(call stubCall) stubAnswer {
			return stubAnswer{out: object{"Failed": []object{entryFails("0", c.code, c.text)}}}
		})
		holds := []broker.Hold{{Receipt: "r", For: time.Second}}
		for what, err := range map[string]error{
			"Ack, whole":    whole.Ack(t.Context(), []broker.Receipt{"r"}),
			"Ack, entry":    broker.ErrAt(entry.Ack(t.Context(), []broker.Receipt{"r"}), 0),
			"Nack, whole":   whole.Nack(t.Context(), holds),
			"Nack, entry":   broker.ErrAt(entry.Nack(t.Context(), holds), 0),
			"Extend, whole": whole.Extend(t.Context(), holds),
			"Extend, entry": broker.ErrAt(entry.Extend(t.Context(), holds), 0),
		} {
			for _, s := range []error{
				broker.ErrReceiptExpired, broker.ErrThrottled, broker.ErrNotFound, broker.ErrUnsupported, broker.ErrTooLarge, broker.ErrClosed,
			} {
				if errors.Is(err, s) != (s == c.want) {
					t.Errorf("%s: %s %q was answered %v, want %v", what, c.code, c.text, err, c.want)
				}
			}
			var api smithy.APIError
			if !errors.As(err, &api) || c.text != "" && api.ErrorMessage() != c.text {
				t.Errorf("%s: %s: the SDK's own error is not within reach of %v", what, c.code, err)
			}
			if !strings.Contains(fmt.Sprint(err), "orders") {
				t.Errorf("%s: %v does not name the queue", what, err)
			}
		}
	}
}

func TestStatusTooManyRequestsIsThrottled(t *testing.T) {
	b, _ := stubbed(t, stubURL, nil, func(stubCall) stubAnswer { return stubAnswer{code: "Odd", status: 429} })
	if err := b.Ack(t.Context(), []broker.Receipt{"r"}); !errors.Is(err, broker.ErrThrottled) {
		t.Error(err)
	}
}

func TestSettleAnswersByPosition(t *testing.T) {
	answer := func(c stubCall) stubAnswer {
		var ok, failed []object
		for _, e := range c.entries() {
			switch id := e["Id"].(string); id {
			case "1":
				failed = append(failed, entryFails(id, "ReceiptHandleIsInvalid", "no"))
			case "2": // SQS does not name it
			default:
				ok = append(ok, object{"Id": id})
			}
		}
		ok = append(ok, object{"Id": "77"}, object{"Id": "-1"}, object{"Id": "x"})
		return stubAnswer{out: object{"Successful": ok, "Failed": failed}}
	}
	b, _ := stubbed(t, stubURL, nil, answer)
	check := func(call string, err error) {
		t.Helper()
		if broker.ErrAt(err, 0) != nil || broker.ErrAt(err, 3) != nil {
			t.Errorf("%s: the entries that were applied are answered: %v", call, err)
		}
		if !errors.Is(broker.ErrAt(err, 1), broker.ErrReceiptExpired) {
			t.Errorf("%s: the bad entry is answered: %v", call, broker.ErrAt(err, 1))
		}
		if at := broker.ErrAt(err, 2); at == nil || errors.Is(at, broker.ErrReceiptExpired) {
			t.Errorf("%s: the entry that nothing is known of is answered: %v", call, at)
		}
	}
	check("Ack", b.Ack(t.Context(), []broker.Receipt{"a", "b", "c", "d"}))
	holds := []broker.Hold{{Receipt: "a", For: time.Second}, {Receipt: "b", For: time.Second}, {Receipt: "c", For: time.Second}, {Receipt: "d", For: time.Second}}
	check("Nack", b.Nack(t.Context(), holds))
	check("Extend", b.Extend(t.Context(), holds))
	if n := b.Stats().Acked; n != 2 {
		t.Errorf("%d messages are counted as acked, want 2", n)
	}
}

func TestHoldsOutsideTheLimitsAreNotSent(t *testing.T) {
	b, s := stubbed(t, stubURL, nil, func(c stubCall) stubAnswer {
		if c.entries()[0]["ReceiptHandle"] == "lost" {
			return stubAnswer{lost: errReset}
		}
		return allApplied(c)
	})
	holds := func(first broker.Receipt) []broker.Hold {
		return []broker.Hold{{Receipt: first, For: time.Second}, {Receipt: "b", For: -1}, {Receipt: "c", For: math.MaxInt64}, {Receipt: "d", For: 1500 * time.Millisecond}}
	}
	for _, call := range []func(context.Context, []broker.Hold) error{b.Nack, b.Extend} {
		err := call(t.Context(), holds("a"))
		for i, want := range []error{nil, broker.ErrUnsupported, broker.ErrUnsupported, nil} {
			if at := broker.ErrAt(err, i); !errors.Is(at, want) {
				t.Errorf("entry %d is answered %v, want %v", i, at, want)
			}
		}
		err = call(t.Context(), holds("lost"))
		for i, sent := range []bool{true, false, false, true} {
			if at := broker.ErrAt(err, i); at == nil || errors.Is(at, errReset) != sent || errors.Is(at, broker.ErrUnsupported) == sent {
				t.Errorf("entry %d of a lost call is answered %v", i, at)
			}
		}
	}
	for _, c := range s.calls {
		if es := c.entries(); len(es) != 2 || es[1]["ReceiptHandle"] != "d" || es[1]["VisibilityTimeout"] != 2.0 {
			t.Errorf("%v was sent", es)
		}
	}
	n := len(s.calls)
	if err := b.Nack(t.Context(), []broker.Hold{{Receipt: "a", For: b.Limits().MaxNack + 1}}); !errors.Is(broker.ErrAt(err, 0), broker.ErrUnsupported) || len(s.calls) > n {
		t.Errorf("a nack by 1 ns too much was answered %v after %d calls", err, len(s.calls)-n)
	}
	if err := b.Extend(t.Context(), []broker.Hold{{Receipt: "a", For: 0}}); !errors.Is(broker.ErrAt(err, 0), broker.ErrUnsupported) || len(s.calls) > n {
		t.Errorf("an extension by 0 was answered %v after %d calls", err, len(s.calls)-n)
	}
}

func TestCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := stubbed(t, stubURL, &awssqs.Options{CallTimeout: 7 * time.Second}, func(stubCall) stubAnswer { return stubAnswer{wait: time.Hour} })
		started := time.Now()
		err := b.Ack(t.Context(), []broker.Receipt{"r"})
		if took := time.Since(started); took != 7*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v it was answered: %v", took, err)
		}
	})
}

// Drivers do not retry: the core repeats receives, acks and extensions itself. Sends go through the
// user's client.
func TestOnlySendsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := stubbed(t, stubURL, nil, func(stubCall) stubAnswer { return stubAnswer{code: "InternalError", status: 500} })
		holds := []broker.Hold{{Receipt: "r", For: time.Second}}
		b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Visibility: time.Minute})
		b.Ack(t.Context(), []broker.Receipt{"r"})
		b.Extend(t.Context(), holds)
		b.Send(t.Context(), []broker.Outgoing{{Body: []byte("a")}})
		for op, want := range map[string]int{"ReceiveMessage": 1, "DeleteMessageBatch": 1, "ChangeMessageVisibilityBatch": 1, "SendMessageBatch": 3} {
			if n := len(s.of(op)); n != want {
				t.Errorf("%d calls of %s, want %d", n, op, want)
			}
		}
		if got, want := b.Stats(), (awssqs.Stats{Receives: 1, Acks: 1, Holds: 1, Sends: 3}); got != want {
			t.Errorf("Stats are %+v, want %+v", got, want)
		}
	})
}

// A client of the user's that is set to retry often, or to no retries, must not say how lease calls
// are made.
func TestLeaseCallsIgnoreRetrySettings(t *testing.T) {
	s := &stub{answer: func(stubCall) stubAnswer { return stubAnswer{code: "InternalError", status: 500} }}
	c := s.client(func(o *sqs.Options) { o.RetryMaxAttempts, o.RetryMode = 5, aws.RetryModeAdaptive })
	b := makeBroker(t, c, stubURL, nil)
	b.Ack(t.Context(), []broker.Receipt{"r"})
	if n := len(s.calls); n != 1 {
		t.Errorf("%d calls", n)
	}
}
