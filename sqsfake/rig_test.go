package sqsfake_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/onceq/onceq/internal/fakeserver/elsewhere"
	"github.com/onceq/onceq/sqsfake"
)

// rig is a client of an SQS server, the Go SDK's.
type rig struct {
	elsewhere.Judge
	api *sqs.Client
	// prefix begins the names of queues, where the server is shared.
	prefix string
	// srv is nil when the server is not ours.
	srv *sqsfake.Server
}

// inBubble runs f in virtual time, on a server of its own whose short polls are whole: most tests
// look at a queue by one.
func inBubble(t *testing.T, o *sqsfake.Options, f func(r *rig)) {
	t.Helper()
	var whole sqsfake.Options
	if o != nil {
		whole = *o
	}
	whole.ShortPolls = sqsfake.ShortPollsWhole
	inBubbleOf(t, &whole, f)
}

// inBubbleOf runs f in virtual time, on a server with these options.
func inBubbleOf(t *testing.T, o *sqsfake.Options, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := sqsfake.New(o)
		defer srv.Close()
		defer func() {
			if t.Failed() {
				t.Logf("Options.Seed %d", srv.Seed())
			}
		}()
		f(&rig{Judge: t, srv: srv, api: directClient(srv)})
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

// create makes a queue of this name, with attributes in pairs; a name in .fifo makes a FIFO
// queue.
func (r *rig) create(name string, attributes ...string) (*string, error) {
	m := map[string]string{}
	if strings.HasSuffix(name, ".fifo") {
		m["FifoQueue"] = "true"
	}
	for i := 0; i < len(attributes); i += 2 {
		m[attributes[i]] = attributes[i+1]
	}
	out, err := r.api.CreateQueue(r.Context(), &sqs.CreateQueueInput{QueueName: new(r.prefix + name), Attributes: m})
	if err != nil {
		return nil, err
	}
	return out.QueueUrl, nil
}

func (r *rig) queue(name string, attributes ...string) *string {
	r.Helper()
	q, err := r.create(name, attributes...)
	if err != nil {
		r.Fatal(err)
	}
	return q
}

func (r *rig) send(q *string, body string) string {
	r.Helper()
	return *r.sendWith(&sqs.SendMessageInput{QueueUrl: q, MessageBody: &body}).MessageId
}

func (r *rig) sendWith(in *sqs.SendMessageInput) *sqs.SendMessageOutput {
	r.Helper()
	out, err := r.api.SendMessage(r.Context(), in)
	if err != nil {
		r.Fatal(err)
	}
	return out
}

// sendTo sends to a group of a FIFO queue; each body of a group is one deduplication id.
func (r *rig) sendTo(q *string, group string, bodies ...string) {
	r.Helper()
	for _, body := range bodies {
		r.sendWith(&sqs.SendMessageInput{
			QueueUrl: q, MessageBody: &body, MessageGroupId: &group, MessageDeduplicationId: new(group + "." + body),
		})
	}
}

// receive gets what is there now, up to ten.
func (r *rig) receive(q *string) []types.Message {
	r.Helper()
	return r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, MaxNumberOfMessages: 10})
}

// receiveOne gets the one message that must be there.
func (r *rig) receiveOne(q *string) types.Message {
	r.Helper()
	got := r.receive(q)
	if len(got) != 1 {
		r.Fatalf("received %q, want one message", bodies(got))
	}
	return got[0]
}

func (r *rig) receiveWith(in *sqs.ReceiveMessageInput) []types.Message {
	r.Helper()
	if in.MessageSystemAttributeNames == nil {
		in.MessageSystemAttributeNames = []types.MessageSystemAttributeName{"All"}
	}
	if in.MessageAttributeNames == nil {
		in.MessageAttributeNames = []string{"All"}
	}
	out, err := r.api.ReceiveMessage(r.Context(), in)
	if err != nil {
		r.Fatal(err)
	}
	return out.Messages
}

func (r *rig) wantBodies(got []types.Message, want ...string) {
	r.Helper()
	if g, w := fmt.Sprintf("%q", bodies(got)), fmt.Sprintf("%q", want); g != w {
		r.Fatalf("received %s, want %s", g, w)
	}
}

func bodies(ms []types.Message) []string {
	var b []string
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

// changeInBatch is change by a batch of one; a failed entry is an error with its code.
func (r *rig) changeInBatch(q *string, m types.Message, seconds int32) error {
	out, err := r.api.ChangeMessageVisibilityBatch(r.Context(), &sqs.ChangeMessageVisibilityBatchInput{
		QueueUrl: q,
		Entries: []types.ChangeMessageVisibilityBatchRequestEntry{{
			Id: new("0"), ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: seconds,
		}},
	})
	if err != nil {
		return err
	}
	return entryError(out.Failed)
}

func (r *rig) remove(q *string, m types.Message) error {
	_, err := r.api.DeleteMessage(r.Context(), &sqs.DeleteMessageInput{QueueUrl: q, ReceiptHandle: m.ReceiptHandle})
	return err
}

func (r *rig) removeInBatch(q *string, m types.Message) error {
	out, err := r.api.DeleteMessageBatch(r.Context(), &sqs.DeleteMessageBatchInput{
		QueueUrl: q, Entries: []types.DeleteMessageBatchRequestEntry{{Id: new("0"), ReceiptHandle: m.ReceiptHandle}},
	})
	if err != nil {
		return err
	}
	return entryError(out.Failed)
}

func entryError(failed []types.BatchResultErrorEntry) error {
	if len(failed) == 0 {
		return nil
	}
	return &smithy.GenericAPIError{Code: *failed[0].Code, Message: aws.ToString(failed[0].Message)}
}

func (r *rig) sendBatch(q *string, entries ...types.SendMessageBatchRequestEntry) (*sqs.SendMessageBatchOutput, error) {
	return r.api.SendMessageBatch(r.Context(), &sqs.SendMessageBatchInput{QueueUrl: q, Entries: entries})
}

func (r *rig) setAttributes(q *string, attributes ...string) error {
	m := map[string]string{}
	for i := 0; i < len(attributes); i += 2 {
		m[attributes[i]] = attributes[i+1]
	}
	_, err := r.api.SetQueueAttributes(r.Context(), &sqs.SetQueueAttributesInput{QueueUrl: q, Attributes: m})
	return err
}

func (r *rig) attribute(q *string, name string) string {
	r.Helper()
	out, err := r.api.GetQueueAttributes(r.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: q, AttributeNames: []types.QueueAttributeName{types.QueueAttributeName(name)},
	})
	if err != nil {
		r.Fatal(err)
	}
	return out.Attributes[name]
}

func (r *rig) arn(q *string) string { return r.attribute(q, "QueueArn") }

// wantCounts checks how many messages are visible, in flight and delayed.
func (r *rig) wantCounts(q *string, visible, inFlight, delayed int) {
	r.Helper()
	got := r.attribute(q, "ApproximateNumberOfMessages") + " " + r.attribute(q, "ApproximateNumberOfMessagesNotVisible") +
		" " + r.attribute(q, "ApproximateNumberOfMessagesDelayed")
	if want := fmt.Sprint(visible, inFlight, delayed); got != want {
		r.Fatalf("visible, in flight, delayed: %s, want %s", got, want)
	}
}

// wantCode checks an error's code; "" wants success.
func (r *rig) wantCode(err error, code string) {
	r.Helper()
	if got := codeOf(err); got != code {
		r.Fatalf("code %q, want %q (%v)", got, code, err)
	}
}

// wantText checks that an error's message has this part.
func (r *rig) wantText(err error, part string) {
	r.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		r.Fatalf("error %v, want one with %q", err, part)
	}
}

// codeOf is an error's code, without the namespace that some servers put before it.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		_, code, named := strings.Cut(e.ErrorCode(), "#")
		if !named {
			code = e.ErrorCode()
		}
		return code
	}
	return "not an API error"
}

// after lets time pass: virtual time on our server, real time on others.
func after(d time.Duration) {
	if d > 0 { // one that fires at once may crash the race detector (golang/go#78156)
		<-time.After(d)
	}
}

// Codes as the Go SDK shows them.
const (
	codeParameter = "InvalidParameterValue"
	codeHandle    = "ReceiptHandleIsInvalid"
	codeMissing   = "MissingParameter"
	codeNoQueue   = "AWS.SimpleQueueService.NonExistentQueue"
	codeExists    = "QueueAlreadyExists"
	codeAttrName  = "InvalidAttributeName"
	codeAttrValue = "InvalidAttributeValue"
	codeNotFound  = "ResourceNotFoundException"
)
