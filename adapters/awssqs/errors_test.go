package awssqs_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/smithy-go"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

// theSentinels are the contract's errors that SQS's codes become.
var theSentinels = map[string]error{
	"ErrNotFound": broker.ErrNotFound, "ErrThrottled": broker.ErrThrottled, "ErrReceiptExpired": broker.ErrReceiptExpired,
	"ErrTooLarge": broker.ErrTooLarge, "ErrUnsupported": broker.ErrUnsupported, "none": nil,
}

// errorTable is the documentation's: a row names a sentinel, what a call is about, and codes.
func errorTable(t *testing.T) (rows [][]string) {
	t.Helper()
	text := must.Get(os.ReadFile("doc.go"))
	for line := range strings.SplitSeq(string(text), "\n") {
		row := strings.Fields(strings.TrimPrefix(line, "//\t"))
		if _, ok := theSentinels[strings.Join(row[:min(1, len(row))], "")]; ok && strings.HasPrefix(line, "//\t") {
			rows = append(rows, row)
		}
	}
	return rows
}

// The documented table of errors is what becomes of SQS's codes, in each call, of the whole and of
// an entry.
func TestDocumentedErrors(t *testing.T) {
	texts := map[string]string{
		"(any other)":            "something new",
		"(beyond 12 hours)":      "Value 43200 for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds]",
		"(bytes)":                "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.",
		"(number of attributes)": "Number of message attributes [11] exceeds the allowed maximum [10].",
	}
	rows := errorTable(t)
	if len(rows) != 15 {
		t.Fatalf("%d rows", len(rows))
	}
	holds := []broker.Hold{{Receipt: "r", For: time.Second}}
	for _, row := range rows {
		want, about := theSentinels[row[0]], row[1]
		codes, text, _ := strings.Cut(strings.Join(row[2:], " "), " (")
		if text != "" {
			var known bool
			if text, known = texts["("+text]; !known {
				t.Fatalf("what does SQS say in the row %q?", row)
			}
		}
		for code := range strings.FieldsSeq(codes) {
			s := &stub{answer: func(stubCall) stubAnswer { return stubAnswer{code: code, text: text} }}
			whole := makeBroker(t, s.client(once), stubURL, nil)
			entry, _ := stubbed(t, stubURL, nil, func(stubCall) stubAnswer {
				return stubAnswer{out: object{"Failed": []object{entryFails("0", code, text)}}}
			})
			answers := map[string]error{}
			for name, b := range map[string]*awssqs.Broker{"whole": whole, "entry": entry} {
				_, send := b.Send(t.Context(), []broker.Outgoing{sized(1)})
				if about != "receipts" {
					answers["Send, "+name] = broker.ErrAt(send, 0)
				}
				if about != "messages" {
					answers["Ack, "+name] = broker.ErrAt(b.Ack(t.Context(), []broker.Receipt{"r"}), 0)
					answers["Nack, "+name] = broker.ErrAt(b.Nack(t.Context(), holds), 0)
					answers["Extend, "+name] = broker.ErrAt(b.Extend(t.Context(), holds), 0)
				}
			}
			if about == "any" {
				_, answers["Receive"] = whole.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Visibility: time.Minute})
				_, answers["Depth"] = whole.Depth(t.Context())
			}
			for call, err := range answers {
				for name, is := range theSentinels {
					if is != nil && errors.Is(err, is) != (is == want) {
						t.Errorf("%s: %s is answered %v; is it %s?", call, code, err, name)
					}
				}
				var api smithy.APIError
				if !errors.As(err, &api) || !strings.Contains(api.ErrorCode(), strings.TrimSuffix(code, "Exception")) {
					t.Errorf("%s: %s: the SDK's own error is not within reach of %v", call, code, err)
				}
			}
		}
	}
}

// The errors that the SDK has types for are in the table, unless no call of ours can meet them.
func TestErrorTableIsWhole(t *testing.T) {
	var all []string
	for _, row := range errorTable(t) {
		all = append(all, row[2:]...)
	}
	for _, code := range []string{
		"BatchEntryIdsNotDistinct", "BatchRequestTooLong", "EmptyBatchRequest", "InvalidAddress", "InvalidAttributeName", "InvalidAttributeValue",
		"InvalidBatchEntryId", "InvalidIdFormat", "InvalidMessageContents", "InvalidSecurity", "KmsAccessDenied", "KmsDisabled", "KmsInvalidKeyUsage",
		"KmsInvalidState", "KmsNotFound", "KmsOptInRequired", "KmsThrottled", "MessageNotInflight", "OverLimit", "QueueDoesNotExist",
		"ReceiptHandleIsInvalid", "RequestThrottled", "ResourceNotFoundException", "TooManyEntriesInBatchRequest", "UnsupportedOperation",
	} {
		if !slices.Contains(all, code) {
			t.Errorf("%s is not in the table", code)
		}
	}
}

// A call whose context ends while it is under way says so, whatever the SDK makes of it: its caller
// decides by that.
func TestCallsTellThatTheirContextEnded(t *testing.T) {
	holds := []broker.Hold{{Receipt: "r", For: time.Second}}
	for name, call := range map[string]func(ctx context.Context, b *awssqs.Broker) error{
		"Ack":    func(ctx context.Context, b *awssqs.Broker) error { return b.Ack(ctx, []broker.Receipt{"r"}) },
		"Nack":   func(ctx context.Context, b *awssqs.Broker) error { return b.Nack(ctx, holds) },
		"Extend": func(ctx context.Context, b *awssqs.Broker) error { return b.Extend(ctx, holds) },
		"Send": func(ctx context.Context, b *awssqs.Broker) error {
			_, err := b.Send(ctx, []broker.Outgoing{sized(1)})
			return err
		},
		"Depth": func(ctx context.Context, b *awssqs.Broker) error {
			_, err := b.Depth(ctx)
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			// SQS's answer comes in the same moment, and is not lost either.
			b, _ := stubbed(t, stubURL, nil, func(c stubCall) stubAnswer {
				<-c.gone
				return stubAnswer{code: "QueueDoesNotExist"}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if err := call(ctx, b); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, broker.ErrNotFound) {
				t.Errorf("%s, whose deadline passed, is answered %v", name, err)
			}
			ctx, cancel = context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(3*time.Second, cancel)
			if err := call(ctx, b); !errors.Is(err, context.Canceled) || !errors.Is(err, broker.ErrNotFound) {
				t.Errorf("%s, which was cancelled, is answered %v", name, err)
			}
		})
	}
}

// A poll whose caller's deadline passes is cut off, and cancelled for the SDK: the caller hears of
// its deadline.
func TestReceiveTellsOfItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, grace := range []time.Duration{-1, time.Second} {
			b, _ := stubbed(t, stubURL, &awssqs.Options{ReceiveGrace: grace}, func(stubCall) stubAnswer { return stubAnswer{wait: time.Hour} })
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			if _, err := b.Receive(ctx, broker.ReceiveOptions{Max: 1, Wait: -1, Visibility: time.Minute}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it is answered %v", err)
			}
			cancel()
		}
	})
}

// SQS refuses a whole request for one entry without a receipt; the nine others are none the worse
// for it here.
func TestEmptyReceiptFailsAlone(t *testing.T) {
	b, s := stubbed(t, stubURL, nil, func(c stubCall) stubAnswer {
		if c.entries()[0]["ReceiptHandle"] == "lost" {
			return stubAnswer{lost: errReset}
		}
		return allApplied(c)
	})
	hold := func(rs ...broker.Receipt) (hs []broker.Hold) {
		for _, r := range rs {
			hs = append(hs, broker.Hold{Receipt: r, For: time.Second})
		}
		return hs
	}
	for name, call := range map[string]func(rs ...broker.Receipt) error{
		"Ack":    func(rs ...broker.Receipt) error { return b.Ack(t.Context(), rs) },
		"Nack":   func(rs ...broker.Receipt) error { return b.Nack(t.Context(), hold(rs...)) },
		"Extend": func(rs ...broker.Receipt) error { return b.Extend(t.Context(), hold(rs...)) },
	} {
		n := len(s.calls)
		err := call("a", "", "c")
		if broker.ErrAt(err, 0) != nil || !errors.Is(broker.ErrAt(err, 1), broker.ErrReceiptExpired) || broker.ErrAt(err, 2) != nil {
			t.Errorf("%s is answered %v", name, err)
		}
		err = call("lost", "")
		if !errors.Is(broker.ErrAt(err, 0), errReset) || !errors.Is(broker.ErrAt(err, 1), broker.ErrReceiptExpired) || errors.Is(broker.ErrAt(err, 1), errReset) {
			t.Errorf("%s, lost, is answered %v", name, err)
		}
		if err := call(""); !errors.Is(broker.ErrAt(err, 0), broker.ErrReceiptExpired) || len(s.calls) != n+2 {
			t.Errorf("%s of nothing is answered %v after %d calls", name, err, len(s.calls)-n)
		}
	}
	if n := b.Stats().Acked; n != 2 {
		t.Errorf("%d acked", n)
	}
}

// What an answer names twice was applied once, and what it calls both was not.
func TestNamedTwiceCountsOnce(t *testing.T) {
	b, _ := stubbed(t, stubURL, nil, func(c stubCall) stubAnswer {
		a := allApplied(c)
		ok := a.out.(object)["Successful"].([]object)
		a.out = object{"Successful": append(ok, ok...), "Failed": []object{entryFails("1", "InternalError", "")}}
		return a
	})
	err := b.Ack(t.Context(), []broker.Receipt{"a", "b", "c"})
	if broker.ErrAt(err, 0) != nil || broker.ErrAt(err, 1) == nil || broker.ErrAt(err, 2) != nil {
		t.Errorf("the ack is answered %v", err)
	}
	ids, err := b.Send(t.Context(), []broker.Outgoing{sized(1), sized(2), sized(3)})
	if !slices.Equal(ids, []string{"sent-0", "", "sent-2"}) || broker.ErrAt(err, 1) == nil {
		t.Errorf("the send is answered %q, %v", ids, err)
	}
	if s := b.Stats(); s.Acked != 2 || s.Sent != 2 {
		t.Errorf("Stats are %+v", s)
	}
}

// The documented policy of a queue lets in each service for one source alone, nobody else, and
// nobody without TLS.
func TestDocumentedQueuePolicy(t *testing.T) {
	blocks := slices.DeleteFunc(documented(t, `{"Version"`), func(b string) bool { return !ofQueue(b) })
	if len(blocks) != 1 {
		t.Fatalf("%d policies of queues", len(blocks))
	}
	var policy struct {
		Statement []struct {
			Sid, Effect, Action, Resource string
			Principal                     any
			Condition                     map[string]map[string]any
		}
	}
	if err := json.Unmarshal([]byte(blocks[0]), &policy); err != nil {
		t.Fatal(err)
	}
	var let, exempt []any
	tls := false
	for _, s := range policy.Statement {
		if s.Resource != "arn:aws:sqs:REGION:ACCOUNT:orders" {
			t.Errorf("%s is of %s", s.Sid, s.Resource)
		}
		switch s.Effect {
		case "Allow":
			service, _ := s.Principal.(map[string]any)["Service"].(string)
			source, _ := s.Condition["ArnEquals"]["aws:SourceArn"].(string)
			if s.Action != "sqs:SendMessage" || !strings.HasSuffix(service, ".amazonaws.com") || !strings.HasPrefix(source, "arn:aws:"+strings.TrimSuffix(service, ".amazonaws.com")+":") {
				t.Errorf("%s lets in %v for %q", s.Sid, s.Principal, source)
			}
			let = append(let, source)
		case "Deny":
			if s.Principal != "*" {
				t.Errorf("%s denies %v", s.Sid, s.Principal)
			}
			tls = tls || s.Action == "sqs:*" && s.Condition["Bool"]["aws:SecureTransport"] == "false"
			if of, ok := s.Condition["ArnNotEquals"]["aws:SourceArn"].([]any); ok {
				exempt = of
			}
		}
	}
	if !tls || len(let) != 3 || !slices.Equal(let, exempt) {
		t.Errorf("TLS is asked for: %v; let in are %q, exempt from the denial %q", tls, let, exempt)
	}
}
