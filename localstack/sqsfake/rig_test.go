package sqsfake_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/onceq/onceq/localstack/sqsfake"
)

// rig is a server in a bubble, with the Go SDK as its client.
type rig struct {
	*testing.T
	srv *sqsfake.Server
	api *sqs.Client
}

// inBubble runs f in virtual time.
func inBubble(t *testing.T, o *sqsfake.Options, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := sqsfake.New(o)
		defer srv.Close()
		f(&rig{T: t, srv: srv, api: directClient(srv)})
	})
}

// directClient is an SDK client that retries nothing and needs no socket.
func directClient(srv *sqsfake.Server) *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint: &srv.URL, HTTPClient: srv.Client(), Region: "us-east-1",
		Credentials: credentials{}, RetryMaxAttempts: 1,
	})
}

type credentials struct{}

func (credentials) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
}

func (r *rig) queue(name string, attributes ...string) *string {
	r.Helper()
	m := map[string]string{}
	for i := 0; i < len(attributes); i += 2 {
		m[attributes[i]] = attributes[i+1]
	}
	u, err := r.srv.CreateQueue(name, m)
	if err != nil {
		r.Fatal(err)
	}
	return &u
}

func (r *rig) send(q *string, body string) {
	r.Helper()
	if _, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{QueueUrl: q, MessageBody: &body}); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) sendTo(q *string, group, body string) {
	r.Helper()
	_, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{
		QueueUrl: q, MessageBody: &body, MessageGroupId: &group, MessageDeduplicationId: new(group + "." + body),
	})
	if err != nil {
		r.Fatal(err)
	}
}

// receive gets what is there now, up to ten.
func (r *rig) receive(q *string) []types.Message {
	r.Helper()
	return r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, MaxNumberOfMessages: 10})
}

func (r *rig) receiveWith(in *sqs.ReceiveMessageInput) []types.Message {
	r.Helper()
	in.MessageSystemAttributeNames = []types.MessageSystemAttributeName{"All"}
	in.MessageAttributeNames = []string{"All"}
	out, err := r.api.ReceiveMessage(r.Context(), in)
	if err != nil {
		r.Fatal(err)
	}
	return out.Messages
}

func (r *rig) wantBodies(got []types.Message, want ...string) {
	r.Helper()
	bodies := bodies(got)
	if len(bodies) != len(want) {
		r.Fatalf("received %q, want %q", bodies, want)
	}
	for i := range want {
		if bodies[i] != want[i] {
			r.Fatalf("received %q, want %q", bodies, want)
		}
	}
}

func bodies(ms []types.Message) []string {
	b := []string{}
	for _, m := range ms {
		b = append(b, *m.Body)
	}
	return b
}

func (r *rig) change(q *string, m types.Message, seconds int32) error {
	_, err := r.api.ChangeMessageVisibility(r.Context(), &sqs.ChangeMessageVisibilityInput{
		QueueUrl: q, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: seconds,
	})
	return err
}

func (r *rig) remove(q *string, m types.Message) error {
	_, err := r.api.DeleteMessage(r.Context(), &sqs.DeleteMessageInput{QueueUrl: q, ReceiptHandle: m.ReceiptHandle})
	return err
}

// wantCode checks an error's code; "" wants success.
func (r *rig) wantCode(err error, code string) {
	r.Helper()
	if got := codeOf(err); got != code {
		r.Fatalf("code %q, want %q (%v)", got, code, err)
	}
}

func codeOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode()
	}
	return "not an API error"
}

// after lets virtual time pass.
func after(d time.Duration) { <-time.After(d) }
