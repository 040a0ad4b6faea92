package dynamostore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onceq/onceq/internal/must"
)

// object is JSON.
type object = map[string]any

// stub answers the SDK's calls in the test's own goroutines: what a server would not do when asked
// is tried here.
type stub struct {
	mu     sync.Mutex
	calls  []stubCall
	answer func(c stubCall) stubAnswer
	// ahead is how far the service's clock is before the host's; undated leaves the Date out.
	ahead   time.Duration
	undated bool
	// strict refuses signatures that are more than five minutes old, or ahead, as the service does.
	strict bool
}

type stubCall struct {
	op string
	in object
	n  int // the how-manieth of its operation, from 1
}

type stubAnswer struct {
	out    object
	code   string // an error's
	status int    // default 400 for an error
	lost   error
	silent bool // until the caller gives up
	late   time.Duration
	proxy  bool // the answer of something on the way
}

// Do is the SDK's HTTP client.
func (s *stub) Do(r *http.Request) (*http.Response, error) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	c := stubCall{op: strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "DynamoDB_20120810."), n: 1}
	if err := json.Unmarshal(raw, &c.in); err != nil {
		return nil, err
	}
	s.mu.Lock()
	for _, b := range s.calls {
		if b.op == c.op {
			c.n++
		}
	}
	s.calls = append(s.calls, c)
	s.mu.Unlock()
	a := s.answer(c)
	date := time.Now().Add(s.ahead)
	if a.proxy {
		date = date.Add(time.Hour)
	}
	if a.late > 0 {
		<-time.After(a.late)
	}
	if s.strict {
		at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err != nil || date.Sub(at).Abs() > 5*time.Minute {
			a = failing("InvalidSignatureException", 400)
		}
	}
	switch {
	case a.silent:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case a.lost != nil:
		return nil, a.lost
	}
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r}
	if a.out == nil {
		a.out = object{}
	}
	if a.code != "" {
		res.StatusCode = max(a.status, http.StatusBadRequest)
		a.out["__type"] = "com.amazonaws.dynamodb.v20120810#" + a.code
	}
	body, err := json.Marshal(a.out)
	if err != nil {
		return nil, err
	}
	res.Header.Set("Content-Type", "application/x-amz-json-1.0")
	if !a.proxy {
		res.Header.Set("X-Amzn-Requestid", "4O1F2I5E8G0H")
	}
	if !s.undated {
		res.Header.Set("Date", date.UTC().Format(http.TimeFormat))
	}
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

// stubbed is a store whose calls answer answers.
func stubbed(tb testing.TB, answer func(c stubCall) stubAnswer) (*Store, *stub) {
	tb.Helper()
	st := &stub{answer: answer}
	c := dynamodb.New(dynamodb.Options{Region: region, Credentials: aws.CredentialsProviderFunc(credentials), HTTPClient: st})
	s := must.Get(New(c, "records", nil))
	return s, st
}

// warmed is a stubbed store that knows the time and the table's key.
func warmed(tb testing.TB, answer func(c stubCall) stubAnswer) (*Store, *stub) {
	tb.Helper()
	s, st := stubbed(tb, func(stubCall) stubAnswer { return applied })
	claimOne(tb, s, request("the first"))
	st.calls, st.answer = nil, answer
	return s, st
}

var (
	errReset = errors.New("read tcp 10.0.0.1:443: connection reset by peer")
	applied  = stubAnswer{}
)

// refused is a condition that did not hold on the item.
func refused(it any) stubAnswer {
	return stubAnswer{code: "ConditionalCheckFailedException", out: object{"Item": it}}
}

func failing(code string, status int) stubAnswer { return stubAnswer{code: code, status: status} }

// within is a context with the time of a worker's call.
func within(tb testing.TB, d time.Duration) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), d)
	tb.Cleanup(cancel)
	return ctx
}
