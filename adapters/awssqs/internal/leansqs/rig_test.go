package leansqs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/adapters/awssqs/internal/leansqs"
	"github.com/onceq/onceq/internal/must"
)

const queue = "https://sqs.us-east-1.amazonaws.com/123456789012/orders"

// api are the calls that both have.
type api interface {
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput, ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
	ChangeMessageVisibilityBatch(context.Context, *sqs.ChangeMessageVisibilityBatchInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
	SendMessageBatch(context.Context, *sqs.SendMessageBatchInput, ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error)
}

// sent is a request as it went out.
type sent struct {
	url, host, body string
	header          http.Header
	at              time.Time
}

// server answers with what play says, and keeps the requests.
type server struct {
	mu   sync.Mutex
	sent []sent
	play func(n int, r *http.Request) (*http.Response, error)
}

func (s *server) Do(r *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	// net/http asks for the body again where the server had closed the connection.
	if r.GetBody != nil {
		again, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		if b2, err := io.ReadAll(again); err != nil || !bytes.Equal(b, b2) {
			return nil, fmt.Errorf("the body is %q again, %w, not %q", b2, err, b)
		}
	}
	s.mu.Lock()
	s.sent = append(s.sent, sent{r.URL.String(), r.Host, string(b), r.Header.Clone(), time.Now()})
	n := len(s.sent)
	s.mu.Unlock()
	return s.play(n, r)
}

func answer(status int, body string, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
}

func always(status int, body string, header ...string) func(int, *http.Request) (*http.Response, error) {
	return func(int, *http.Request) (*http.Response, error) { return answer(status, body, header...), nil }
}

func keys(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret"}, nil
}

// both are the SDK's client and the lean one of the same options, each with a server that plays the
// same.
func both(t testing.TB, play func(int, *http.Request) (*http.Response, error), set ...func(*sqs.Options)) map[string]pair {
	t.Helper()
	ps := map[string]pair{}
	for _, kind := range []string{"sdk", "lean"} {
		s := &server{play: play}
		c := sqs.New(sqs.Options{Region: "us-east-1", Credentials: aws.CredentialsProviderFunc(keys), HTTPClient: s, DisableMessageChecksumValidation: true}, set...)
		p := pair{api: c, server: s}
		if kind == "lean" {
			lean := must.Get(leansqs.New(c.Options(), func(string) {}))
			p.api = lean
		}
		ps[kind] = p
	}
	return ps
}

type pair struct {
	api
	*server
}

// each are the busy calls, by name.
var each = map[string]func(ctx context.Context, c api) (any, error){
	"receive": func(ctx context.Context, c api) (any, error) {
		return c.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: new(queue), MaxNumberOfMessages: 10, WaitTimeSeconds: 8, VisibilityTimeout: 30,
			MessageAttributeNames: []string{"All"}, ReceiveRequestAttemptId: new("a\"ü"),
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{"SentTimestamp"},
		})
	},
	"delete": func(ctx context.Context, c api) (any, error) {
		return c.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: new(queue), Entries: []types.DeleteMessageBatchRequestEntry{
			{Id: new("0"), ReceiptHandle: new("r<0>\n")}, {Id: new("1"), ReceiptHandle: new("r1")},
		}})
	},
	"change": func(ctx context.Context, c api) (any, error) {
		return c.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: new(queue), Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
			{Id: new("0"), ReceiptHandle: new("r0"), VisibilityTimeout: 30}, {Id: new("1"), ReceiptHandle: new("r1")},
		}})
	},
	"send": func(ctx context.Context, c api) (any, error) { return send(ctx, c) },
}

func send(ctx context.Context, c api) (*sqs.SendMessageBatchOutput, error) {
	return c.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: new(queue), Entries: []types.SendMessageBatchRequestEntry{{
		Id: new("0"), MessageBody: new("body"), MessageAttributes: map[string]types.MessageAttributeValue{"a": {DataType: new("Binary"), BinaryValue: []byte{0, 1}}},
	}}})
}

// bare is the header without what differs from call to call.
func bare(h http.Header) http.Header {
	h = maps.Clone(h)
	delete(h, "Amz-Sdk-Invocation-Id")
	delete(h, "Authorization")
	return h
}

// checkSignature signs the request again with the SDK's signer.
func checkSignature(t testing.TB, s sent, c aws.Credentials, hash, region string) {
	t.Helper()
	at := must.Get(time.Parse("20060102T150405Z", s.header.Get("X-Amz-Date")))
	r := must.Get(http.NewRequestWithContext(context.Background(), http.MethodPost, s.url, bytes.NewReader([]byte(s.body))))
	r.Header = s.header.Clone()
	for _, h := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token"} {
		r.Header.Del(h)
	}
	if err := v4.NewSigner().SignHTTP(context.Background(), c, r, hash, "sqs", region, at); err != nil {
		t.Fatal(err)
	}
	for _, h := range []string{"Authorization", "X-Amz-Security-Token"} {
		if have, want := s.header.Get(h), r.Header.Get(h); have != want {
			t.Errorf("%s is %q; the SDK's signer makes %q", h, have, want)
		}
	}
}

// chain are the types of an error and of all that it wraps.
func chain(err error) string {
	var s []string
	for ; err != nil; err = errors.Unwrap(err) {
		s = append(s, fmt.Sprintf("%T", err))
		if j, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the chain itself
			for _, e := range j.Unwrap() {
				s = append(s, "("+chain(e)+")")
			}
		}
	}
	return strings.Join(s, " ")
}
