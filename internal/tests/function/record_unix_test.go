//go:build unix

package function_test

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/sqslambda"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/localstack/lambdaruntime"
	"github.com/onceq/onceq/sqsfake"
)

// observed keeps the message of each job, and the letters of those that are none.
type observed struct {
	got     map[string]*broker.Message
	letters map[string]string // the classes, by body
}

func (o *observed) Send(_ context.Context, ms []broker.Outgoing) ([]string, error) {
	for i := range ms {
		o.letters[string(ms[i].Body)] = ms[i].Meta.Dead.Class
	}
	return make([]string, len(ms)), nil
}

func (o *observed) Limits() broker.Limits { return broker.Limits{SendBatch: 1, MaxBody: 1 << 20} }

// A function reads of its event what a worker reads of the message, whatever it is.
func TestRecordIsTheMessage(t *testing.T) {
	t.Parallel()
	client := sqsClient(sqsfake.Start(t, nil).URL)
	out, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: new("orders")})
	if err != nil {
		t.Fatal(err)
	}
	queue := out.QueueUrl
	b := must.Get(awssqs.New(client, *queue, nil))
	// Those of our own senders.
	for _, m := range []broker.Outgoing{
		{Body: []byte("plain")},
		{Body: nil, Meta: &broker.Meta{Key: "k"}},
		{Body: []byte("\x00\xff\xfe not a text"), Meta: &broker.Meta{Key: "k", Type: "t"}},
		{Body: []byte("\x01"), Attributes: map[string]string{"a": "1"}},
		{Body: []byte("a tenant's"), Group: "tenant-7"},
		{Body: []byte("attributes"), Attributes: map[string]string{"empty": "", "control": "a\x00b\xff", "tab": "a\tb", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}},
		{Body: []byte(strings.Repeat("x", 900_000)), Meta: &broker.Meta{Key: "large"}},
		{Body: []byte("a letter"), Meta: &broker.Meta{Key: "k", Dead: &broker.Letter{Fence: 7, Class: "permanent", LastErr: "b\x00om", Attempts: 3, At: time.UnixMilli(1)}}},
	} {
		if _, err := b.Send(t.Context(), []broker.Outgoing{m}); err != nil {
			t.Fatalf("%.20q: %v", m.Body, err)
		}
	}
	// Those of others, and broken ones.
	text, raw := func(typ, s string) types.MessageAttributeValue {
		return types.MessageAttributeValue{DataType: &typ, StringValue: &s}
	}, func(typ, s string) types.MessageAttributeValue {
		return types.MessageAttributeValue{DataType: &typ, BinaryValue: []byte(s)}
	}
	for body, as := range map[string]map[string]types.MessageAttributeValue{
		"foreign":                 {"n": text("Number", "3.50"), "f": text("Number.float", "1e3"), "b": raw("Binary.png", "\x89PNG\xff"), "s": text("String.x", "–")},
		"of a newer version":      {broker.MetaAttribute: text("String", `{"v":9,"id":"1"}`)},
		"no JSON":                 {broker.MetaAttribute: text("String", "{")},
		"%%% no base64":           {broker.MetaAttribute: text("String", `{"v":1,"id":"1","be":"base64"}`), "a": text("String", "b")},
		"no text":                 {broker.MetaAttribute: raw("Binary", `{"v":1,"id":"1","k":"k"}`)},
		`{"Type":"Notification"}`: {},
		`{"Type":"Notification","MessageId":"22b80b92","TopicArn":"arn:aws-cn:sns:cn-north-1:123456789012:T","Message":"inner","Timestamp":"2012-05-02T00:54:06.655Z",
		  "MessageAttributes":{"a":{"Type":"Binary","Value":"AP8="}}}`: {},
	} {
		if _, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: queue, MessageBody: &body, MessageAttributes: as}); err != nil {
			t.Fatalf("%.20q: %v", body, err)
		}
	}
	worker := must.Get(awssqs.New(client, *queue, &awssqs.Options{Unwrap: awssqs.AllEnvelopes}))
	const all = 15
	want := map[string]*broker.Message{}
	for end := time.After(20 * time.Second); len(want) < all; {
		select {
		case <-end:
			t.Fatalf("a worker gets %d of %d messages", len(want), all)
		default:
		}
		ms, err := worker.Receive(t.Context(), broker.ReceiveOptions{Max: 10, Visibility: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range ms {
			want[m.ID] = m
			if err := worker.Nack(t.Context(), []broker.Hold{{Receipt: m.Receipt, For: time.Second}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	o := &observed{got: map[string]*broker.Message{}, letters: map[string]string{}}
	h := o.function(t)
	for end := time.After(20 * time.Second); len(o.got)+len(o.letters) < all; {
		select {
		case <-end:
			for id, w := range want {
				if o.got[id] == nil && o.letters[string(w.Body)] == "" {
					t.Errorf("the function has not seen %.40q %+v %v", w.Body, w.Meta, w.MetaErr)
				}
			}
			t.FailNow()
		default:
		}
		out, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
			// A reply may be lost, and the SDK asks again.
			QueueUrl: queue, MaxNumberOfMessages: 10, WaitTimeSeconds: 1, VisibilityTimeout: 2,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"}, MessageAttributeNames: []string{"All"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Messages) == 0 {
			continue
		}
		var e events.SQSEvent
		for i := range out.Messages {
			e.Records = append(e.Records, lambdaruntime.Record("arn:aws:sqs:us-east-1:000000000000:orders", &out.Messages[i]))
		}
		payload := must.Get(json.Marshal(e))
		var again events.SQSEvent
		if err := json.Unmarshal(payload, &again); err != nil {
			t.Fatal(err)
		}
		if _, err := h(t.Context(), again); err != nil {
			t.Fatal(err)
		}
	}
	for id, w := range want {
		g := o.got[id]
		if w.MetaErr != nil {
			if o.letters[string(w.Body)] != onceq.ClassBadMeta || g != nil {
				t.Errorf("%.20q: the letters are %q", w.Body, o.letters)
			}
			continue
		}
		if string(g.Body) != string(w.Body) || g.Group != w.Group || !maps.Equal(g.Attributes, w.Attributes) || !g.Published.Equal(w.Published) ||
			g.Attempt <= w.Attempt || !reflect.DeepEqual(g.Meta, w.Meta) {
			t.Errorf("%.20q:\nthe function's message is %.300q %q %q %+v,\nthe worker's %.300q %q %q %+v",
				w.Body, g.Body, g.Group, g.Attributes, g.Meta, w.Body, w.Group, w.Attributes, w.Meta)
		}
	}
}

// function looks at its messages.
func (o *observed) function(t *testing.T) sqslambda.Func {
	t.Helper()
	p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
		Store: onceq.NoStore, Scope: "orders",
		Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			o.got[j.Message.ID] = j.Message
			return nil
		}),
		Key: func(m *broker.Message) (dedupe.Key, error) {
			return dedupe.Key{Key: m.ID}, nil
		},
	}))
	b := must.Get(p.Batches(onceq.BatchConfig{DeadLetter: o}))
	h, err := sqslambda.Handler(b, &sqslambda.Options{Unwrap: sqslambda.AllEnvelopes, Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	return h
}
