package awssqs_test

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/internal/rig"
)

const (
	stubURL = "https://sqs.us-east-1.amazonaws.com/123456789012/orders"
	fifoURL = stubURL + ".fifo"
)

// object is JSON.
type object = map[string]any

// stub answers the SDK's calls in the test's own goroutines: what a server would not do is tried
// here.
type stub struct {
	mu     sync.Mutex
	calls  []stubCall
	answer func(c stubCall) stubAnswer
}

type stubCall struct {
	op string
	in object
	at time.Time
	// gone ends when the caller has given up.
	gone <-chan struct{}
}

type stubAnswer struct {
	out    any
	code   string // an error's
	text   string
	status int // default 400 for an error
	lost   error
	wait   time.Duration
}

// Do is the SDK's HTTP client.
func (s *stub) Do(r *http.Request) (*http.Response, error) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	c := stubCall{op: strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS."), at: time.Now(), gone: r.Context().Done()}
	if err := json.Unmarshal(raw, &c.in); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.calls = append(s.calls, c)
	s.mu.Unlock()
	a := s.answer(c)
	if a.wait > 0 {
		select {
		case <-time.After(a.wait):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if a.lost != nil {
		return nil, a.lost
	}
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r}
	if a.code != "" {
		res.StatusCode = max(a.status, http.StatusBadRequest)
		res.Header.Set("x-amzn-query-error", a.code+";Sender")
		a.out = object{"__type": "com.amazonaws.sqs#" + a.code, "message": a.text}
	}
	if a.out == nil {
		a.out = object{}
	}
	body, err := json.Marshal(a.out)
	if err != nil {
		return nil, err
	}
	res.Header.Set("Content-Type", "application/x-amz-json-1.0")
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, nil
}

// of are the calls of an operation.
func (s *stub) of(op string) (cs []stubCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.op == op {
			cs = append(cs, c)
		}
	}
	return cs
}

func (s *stub) client(fns ...func(*sqs.Options)) *sqs.Client {
	return sqs.New(sqs.Options{Region: region, Credentials: aws.CredentialsProviderFunc(credentials), HTTPClient: s}, fns...)
}

// stubbed is a broker whose calls answer answers.
func stubbed(t testing.TB, url string, o *awssqs.Options, answer func(c stubCall) stubAnswer) (*awssqs.Broker, *stub) {
	t.Helper()
	s := &stub{answer: answer}
	return makeBroker(t, s.client(), url, o), s
}

var errReset = errors.New("read tcp 10.0.0.1:443: connection reset by peer")

// delivery is a message of a receive's answer.
func delivery(body, receipt, group string) object {
	sum := md5.Sum([]byte(body))
	return object{
		"MessageId": "id-" + receipt, "ReceiptHandle": receipt, "Body": body, "MD5OfBody": hex.EncodeToString(sum[:]),
		"Attributes": object{"ApproximateReceiveCount": "3", "SentTimestamp": "1764000000123", "MessageGroupId": group},
	}
}

func damaged(m object) object {
	m["Body"] = m["Body"].(string) + "?"
	return m
}

// entries are those of a batch request.
func (c stubCall) entries() (es []object) {
	for _, e := range c.in["Entries"].([]any) {
		es = append(es, e.(object))
	}
	return es
}

// allApplied answers a batch request with success for each entry.
func allApplied(c stubCall) stubAnswer {
	var ok []object
	for _, e := range c.entries() {
		id := e["Id"].(string)
		a := object{"Id": id, "MessageId": "sent-" + id}
		if body, sends := e["MessageBody"].(string); sends {
			sum := md5.Sum([]byte(body))
			a["MD5OfMessageBody"] = hex.EncodeToString(sum[:])
		}
		ok = append(ok, a)
	}
	return stubAnswer{out: object{"Successful": ok, "Failed": []object{}}}
}

func entryFails(id, code, text string) object {
	return object{"Id": id, "Code": code, "Message": text, "SenderFault": true}
}

func numbers(n int) []string { return rig.Numbers(0, n) }

// once is a client without retries.
func once(o *sqs.Options) { o.RetryMaxAttempts = 1 }
