package sqslambda_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/sqslambda"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	rigs "github.com/onceq/onceq/internal/rig"
)

// event is one as Lambda sends it: https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html
const event = `{"Records": [{
  "messageId": "059f36b4-87a3-44ab-83d2-661975830a7d", "receiptHandle": "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a...", "body": "Test message.",
  "attributes": {"ApproximateReceiveCount": "3", "SentTimestamp": "1545082649183", "SenderId": "AIDAIENQZJOLO23YVJ4VO",
    "ApproximateFirstReceiveTimestamp": "1545082649185", "MessageGroupId": "g1"},
  "messageAttributes": {
    "myAttribute": {"stringValue": "myValue", "stringListValues": [], "binaryListValues": [], "dataType": "String"},
    "empty": {"stringValue": "-", "dataType": "String.onceq-empty"},
    "raw": {"binaryValue": "AAH/", "dataType": "Binary"},
    "onceq": {"stringValue": %META%, "dataType": "String"}},
  "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3", "eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:us-east-2:123456789012:my-queue", "awsRegion": "us-east-2"}]}`

// seenBy is the message that the handler gets.
func seenBy(r *rig, e events.SQSEvent) (m *broker.Message) {
	r.Helper()
	r.cfg.Handler = onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error { m = j.Message; return nil })
	r.cfg.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: "k" + m.ID}, nil }
	failed, err := r.invoke(r.function(), e)
	r.want(failed, err)
	return m
}

func decode(t *testing.T, meta string) (e events.SQSEvent) {
	t.Helper()
	quoted := must.Get(json.Marshal(meta))
	text := []byte(event)
	for i := range text {
		if string(text[i:i+6]) == "%META%" {
			text = append(append(append([]byte{}, text[:i]...), quoted...), text[i+6:]...)
			break
		}
	}
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestMessage(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		m := seenBy(r, decode(t, `{"v":1,"id":"j","t":"mail","k":"order-7"}`))
		if m.ID != "059f36b4-87a3-44ab-83d2-661975830a7d" || string(m.Body) != "Test message." || m.Attempt != 3 || m.Group != "g1" ||
			!m.Published.Equal(time.UnixMilli(1545082649183)) || m.Receipt == "" || m.Meta == nil || m.Meta.Key != "order-7" || m.Meta.Type != "mail" {
			t.Errorf("the message is %+v, %+v", m, m.Meta)
		}
		if want := map[string]string{"myAttribute": "myValue", "empty": "", "raw": "\x00\x01\xff"}; !maps.Equal(m.Attributes, want) {
			t.Errorf("the attributes are %q", m.Attributes)
		}
	})
	bubble(t, nil, func(r *rig) {
		e := decode(t, `{"v":1,"id":"j","be":"base64"}`)
		e.Records[0].Body = "AP8="
		if m := seenBy(r, e); string(m.Body) != "\x00\xff" || m.Meta.BodyEncoding != "" {
			t.Errorf("the message is %+v", m)
		}
	})
}

// The envelopes are opened when they are asked for, and not otherwise.
func TestUnwrap(t *testing.T) {
	const note = `{"Type":"Notification","MessageId":"22b80b92","TopicArn":"arn:aws:sns:us-west-2:123456789012:T","Message":"inner","Timestamp":"2012-05-02T00:54:06.655Z"}`
	for which, want := range map[sqslambda.Envelope]string{0: note, sqslambda.SNS: "inner", sqslambda.AllEnvelopes: "inner", sqslambda.S3: note} {
		bubble(t, nil, func(r *rig) {
			r.o.Unwrap = which
			m := seenBy(r, events.SQSEvent{Records: []events.SQSMessage{{MessageId: "1", Body: note}}})
			if string(m.Body) != want || (m.Meta != nil) != (want == "inner") {
				t.Errorf("%d: the body is %s, the metadata %+v", which, m.Body, m.Meta)
			}
		})
	}
}

// A notification sets metadata of ours only where its topic is trusted; otherwise it ends as a
// letter, and never runs.
func TestUnwrapTrustsTopics(t *testing.T) {
	const topic = "arn:aws:sns:us-west-2:123456789012:T"
	const note = `{"Type":"Notification","MessageId":"22b80b92","TopicArn":"` + topic + `","Message":"inner","Timestamp":"2012-05-02T00:54:06.655Z",
		"MessageAttributes":{"onceq":{"Type":"String","Value":"{\"v\":1,\"id\":\"j\",\"k\":\"order-7\"}"}}}`
	e := events.SQSEvent{Records: []events.SQSMessage{{MessageId: "1", Body: note}}}
	for _, topics := range [][]string{nil, {topic}} {
		bubble(t, nil, func(r *rig) {
			r.o.Unwrap, r.o.TrustTopics = sqslambda.AllEnvelopes, topics
			m := seenBy(r, e)
			switch {
			case topics == nil && (m != nil || !slices.Equal(r.letters(), []string{onceq.ClassBadMeta})):
				t.Errorf("from a topic that is not trusted it ran as %+v", m)
			case topics != nil && (m == nil || m.Meta.Key != "order-7"):
				t.Errorf("from a topic that is trusted it ran as %+v", m)
			}
		})
	}
	bubble(t, nil, func(r *rig) {
		r.o.Unwrap = sqslambda.SNS
		forged := "forged"
		m := seenBy(r, events.SQSEvent{Records: []events.SQSMessage{{
			MessageId: "1", Body: "text", MessageAttributes: map[string]events.SQSMessageAttribute{"sns-topic": {DataType: "String", StringValue: &forged}},
		}}})
		if m == nil || m.Attributes != nil {
			t.Errorf("it ran as %+v", m)
		}
	})
}

// A poisonous record is lettered alone, whatever it is.
func TestPoison(t *testing.T) {
	for _, poison := range []string{"", "{", `{"v":1,"id":"j","be":"rot13"}`, `{"v":1,"id":"j","be":"base64"}`} {
		var runs atomic.Int32
		bubble(t, func(context.Context, *onceq.Job) error { runs.Add(1); return nil }, func(r *rig) {
			r.withQueue()
			e := decode(t, poison)
			r.send("ok-1", "ok-2")
			good := r.receive(time.Minute)
			e.Records = append(good.Records[:1:1], append(e.Records, good.Records[1])...)
			failed, err := r.invoke(r.function(), e)
			r.want(failed, err)
			if got := r.letters(); len(got) != 1 || got[0] != onceq.ClassBadMeta || runs.Load() != 2 {
				t.Errorf("%s: the letters are %q, and %d ran", poison, got, runs.Load())
			}
		})
	}
}

// Any event ends in an answer that Lambda can use, or in an error, and never in a panic; what ran
// is never more than what was sent.
func FuzzEvent(f *testing.F) {
	f.Add(event)
	f.Add(`{"Records":[{"messageId":"1","body":"{}","messageAttributes":{"onceq":{"dataType":"String","stringValue":"{\"v\":1,\"id\":\"a\",\"k\":\"b\"}"}}}]}`)
	f.Add(`{"Records":[{"messageId":"1","eventSource":"aws:sqs","eventSourceARN":"a.fifo","attributes":{"MessageGroupId":"g"}},{"messageId":"1"},{}]}`)
	f.Add(`{"Records":[{"eventSource":"aws:kinesis"}]}`)
	f.Add(`{"Records":[{"messageId":"1","body":"{\"Records\":[{\"eventSource\":\"aws:s3\",\"s3\":{\"bucket\":{\"name\":\"b\"}}}]}"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var e events.SQSEvent
		if json.Unmarshal([]byte(text), &e) != nil || len(e.Records) > 50 {
			t.Skip()
		}
		runs := 0
		bubble(t, nil, func(r *rig) {
			r.o.Unwrap = sqslambda.AllEnvelopes | sqslambda.EventBridgeInSNS | sqslambda.S3InSNS
			r.withQueue()
			r.o.Concurrency = 1
			r.cfg.Handler = onceq.HandlerFunc(func(context.Context, *onceq.Job) error { runs++; return nil })
			ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
			defer cancel()
			resp, err := r.function()(ctx, e)
			if runs > len(e.Records) {
				t.Errorf("%d runs of %d records", runs, len(e.Records))
			}
			ids := map[string]bool{}
			for i := range e.Records {
				ids[e.Records[i].MessageId] = true
			}
			for _, bad := range resp.BatchItemFailures {
				if bad.ItemIdentifier == "" || !ids[bad.ItemIdentifier] || err != nil {
					t.Errorf("the failure %q would fail the batch; %v", bad.ItemIdentifier, err)
				}
			}
			rigs.Takes(time.Hour)
		})
	})
}
