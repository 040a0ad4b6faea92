package awssqs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/broker"
)

// canned answers at once, always the same: what is measured is the driver and the SDK.
type canned struct{ receive, remove []byte }

func newCanned(b testing.TB) *canned {
	var ms, ok []object
	for _, n := range numbers(10) {
		m := delivery(strings.Repeat("x", 500), n, "")
		m["MessageAttributes"] = object{"onceq": object{"DataType": "String", "StringValue": `{"v":1,"id":"j-1","t":"mail","k":"order-7","cr":1764000000000}`}}
		ms, ok = append(ms, m), append(ok, object{"Id": n})
	}
	c := &canned{}
	var err error
	if c.receive, err = json.Marshal(object{"Messages": ms}); err != nil {
		b.Fatal(err)
	}
	if c.remove, err = json.Marshal(object{"Successful": ok}); err != nil {
		b.Fatal(err)
	}
	return c
}

func (c *canned) Do(r *http.Request) (*http.Response, error) {
	body := c.receive
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), "DeleteMessageBatch") {
		body = c.remove
	}
	return &http.Response{
		StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}, nil
}

func (c *canned) client() *sqs.Client {
	return sqs.New(sqs.Options{Region: region, Credentials: aws.CredentialsProviderFunc(credentials), HTTPClient: c})
}

// BenchmarkReceiveAndAck is a full batch through the driver; compare it with the SDK alone.
func BenchmarkReceiveAndAck(b *testing.B) {
	b.Run("driver", func(b *testing.B) {
		q := makeBroker(b, newCanned(b).client(), stubURL, nil)
		b.ReportAllocs()
		for b.Loop() {
			ms, err := q.Receive(context.Background(), broker.ReceiveOptions{Max: 10, Wait: -1, Visibility: time.Minute})
			if err != nil {
				b.Fatal(err)
			}
			rs := make([]broker.Receipt, len(ms))
			for i, m := range ms {
				rs[i] = m.Receipt
			}
			if err := q.Ack(context.Background(), rs); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("SDK", func(b *testing.B) {
		c := newCanned(b).client()
		url := stubURL
		b.ReportAllocs()
		for b.Loop() {
			out, err := c.ReceiveMessage(context.Background(), &sqs.ReceiveMessageInput{
				QueueUrl: &url, MaxNumberOfMessages: 10, WaitTimeSeconds: 8, VisibilityTimeout: 60, MessageAttributeNames: []string{"All"},
				MessageSystemAttributeNames: []types.MessageSystemAttributeName{"ApproximateReceiveCount", "SentTimestamp", "MessageGroupId"},
			})
			if err != nil {
				b.Fatal(err)
			}
			in := &sqs.DeleteMessageBatchInput{QueueUrl: &url}
			for i, m := range out.Messages {
				in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: new(numbered[i]), ReceiptHandle: m.ReceiptHandle})
			}
			if _, err := c.DeleteMessageBatch(context.Background(), in); err != nil {
				b.Fatal(err)
			}
		}
	})
}

var numbered = numbers(10)
