package leansqs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go/middleware"

	"github.com/onceq/onceq/internal/must"
)

const xmlError = `<ErrorResponse><Error><Type>Sender</Type><Code>AWS.SimpleQueueService.NonExistentQueue</Code><Message>no</Message></Error></ErrorResponse>`

// Answers and errors are the SDK's: its types all the way down, its texts, its number of tries.
func TestAnswers(t *testing.T) {
	cut := func(body string) *http.Response {
		r := answer(200, body, "X-Amzn-Requestid", "id-1")
		r.ContentLength += 10
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader(body), failing{io.ErrUnexpectedEOF}))
		return r
	}
	for name, play := range map[string]func(int, *http.Request) (*http.Response, error){
		"empty object":  always(200, "{}"),
		"empty":         always(200, ""),
		"messages":      always(200, `{"Messages":[{"MessageId":"1","ReceiptHandle":"r","Body":"b\u00e4\n","MD5OfBody":"x","Attributes":{"SentTimestamp":"1"},"MessageAttributes":{"a":{"DataType":"Binary","BinaryValue":"AAE="}}}]}`),
		"unknown field": always(200, `{"Messages":[{"MessageId":"1","New":{"a":[1]}}],"More":1}`),
		"partly failed": always(200, `{"Successful":[{"Id":"0"}],"Failed":[{"Id":"1","Code":"ReceiptHandleIsInvalid","SenderFault":true,"Message":"no"}]}`),
		"all applied":   always(200, `{"Successful":[{"Id":"0"},{"Id":"1"}],"Failed":[]}`),
		"cut JSON":      always(200, `{"Messages":[{"MessageId":"1","Rece`),
		"cut between":   always(200, `{"Messages":[{"MessageId":"1"}`),
		"cut body":      func(int, *http.Request) (*http.Response, error) { return cut(`{"Messages":[]`), nil },
		"cut in whole":  func(int, *http.Request) (*http.Response, error) { return cut(`{"Successful":[{"Id":"0"}]}`), nil },
		"XML":           always(200, `<ReceiveMessageResponse/>`),
		"XML error":     always(400, xmlError),
		"HTML error":    always(502, `<html>bad gateway</html>`),
		"no queue":      always(400, `{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"no"}`, "X-Amzn-Query-Error", "AWS.SimpleQueueService.NonExistentQueue;Sender", "X-Amzn-Requestid", "id-2"),
		"no such type":  always(400, `{"__type":"com.amazon.coral.service#Odd","message":"odd"}`),
		"query code":    always(403, `{"__type":"Odd"}`, "X-Amzn-Query-Error", "AccessDenied;Sender"),
		"throttled":     always(400, `{"__type":"com.amazonaws.sqs#RequestThrottled","message":"slow"}`),
		"unavailable":   always(503, `{}`),
		"created":       always(201, `{"Successful":[{"Id":"0"}]}`),
		"redirect":      always(307, ``, "Location", "https://elsewhere/"),
		"reset":         func(int, *http.Request) (*http.Response, error) { return nil, errors.New("connection reset by peer") },
		"no answer": func(_ int, r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
		"then good": func(n int, _ *http.Request) (*http.Response, error) {
			if n == 1 {
				return answer(503, `{}`), nil
			}
			return answer(200, `{"Successful":[{"Id":"0"}]}`), nil
		},
		"cut, then good": func(n int, _ *http.Request) (*http.Response, error) {
			if n == 1 {
				return cut(`{"Successful":[{"Id":"9"}`), nil
			}
			return answer(200, `{"Successful":[{"Id":"0"}]}`), nil
		},
	} {
		for op, do := range each {
			t.Run(name+"/"+op, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					type result struct {
						out         any
						text, types string
						tries       int
					}
					rs := map[string]result{}
					for kind, p := range both(t, play) {
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						out, err := do(ctx, p)
						cancel()
						r := result{out: plain(out), types: chain(err), tries: len(p.sent)}
						if err != nil {
							r.text = err.Error()
						}
						rs[kind] = r
					}
					if !reflect.DeepEqual(rs["sdk"], rs["lean"]) {
						t.Errorf("the SDK gives\n%+v,\nwe\n%+v", rs["sdk"], rs["lean"])
					}
				})
			})
		}
	}
}

// plain prints an answer without the SDK's metadata.
func plain(out any) string {
	v := reflect.ValueOf(out)
	if v.IsNil() {
		return ""
	}
	v.Elem().FieldByName("ResultMetadata").Set(reflect.ValueOf(middleware.Metadata{}))
	return deepText(v.Elem())
}

// deepText follows pointers.
func deepText(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "nil"
		}
		return "&" + deepText(v.Elem())
	case reflect.Struct:
		var s strings.Builder
		for f, w := range v.Fields() {
			if f.IsExported() && f.Name != "ResultMetadata" {
				s.WriteString(f.Name + ":" + deepText(w) + " ")
			}
		}
		return "{" + s.String() + "}"
	case reflect.Slice:
		if v.IsNil() {
			return "nil"
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return fmt.Sprintf("%q", v.Bytes())
		}
		var s strings.Builder
		for i := range v.Len() {
			s.WriteString(deepText(v.Index(i)) + ", ")
		}
		return "[" + s.String() + "]"
	case reflect.Map:
		if v.IsNil() {
			return "nil"
		}
		m := map[string]string{}
		for it := v.MapRange(); it.Next(); {
			m[it.Key().String()] = deepText(it.Value())
		}
		return fmt.Sprint(m)
	case reflect.String:
		return fmt.Sprintf("%q", v.String())
	default:
		return fmt.Sprint(v.Interface())
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Each try has credentials and a signature of its own; those that expired meanwhile are not used.
func TestEachTryIsSignedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		ps := both(t, func(n int, _ *http.Request) (*http.Response, error) {
			if n < 3 {
				return answer(503, `{}`), nil
			}
			return answer(200, `{"Successful":[{"Id":"0"}]}`), nil
		}, func(o *sqs.Options) {
			o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				n++
				return aws.Credentials{AccessKeyID: fmt.Sprint("AKID", n), SecretAccessKey: "secret", SessionToken: fmt.Sprint("token", n)}, nil
			})
		})
		for kind, p := range ps {
			n = 0
			if _, err := send(t.Context(), p); err != nil || len(p.sent) != 3 {
				t.Fatal(kind, err, len(p.sent))
			}
			for i, s := range p.sent {
				if a := s.header.Get("Authorization"); !strings.Contains(a, fmt.Sprint("=AKID", i+1, "/")) {
					t.Errorf("%s: try %d is signed %s", kind, i+1, a)
				}
				if k := s.header.Get("X-Amz-Security-Token"); k != fmt.Sprint("token", i+1) {
					t.Errorf("%s: try %d has %s", kind, i+1, k)
				}
				if r := s.header.Get("Amz-Sdk-Request"); !strings.HasPrefix(r, fmt.Sprintf("attempt=%d;", i+1)) {
					t.Errorf("%s: try %d says %s", kind, i+1, r)
				}
			}
		}
	})
}

// Credentials that cannot be had are an error as the SDK says it, and nothing is sent.
func TestNoCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expired := errors.New("the session has expired")
		got := map[string]string{}
		for kind, p := range both(t, always(200, "{}"), func(o *sqs.Options) {
			o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, expired })
		}) {
			_, err := send(t.Context(), p)
			got[kind] = fmt.Sprint(len(p.sent), " ", errors.Is(err, expired), " ", chain(err), " ", err)
		}
		if got["sdk"] != got["lean"] || !strings.HasPrefix(got["lean"], "0 true") {
			t.Errorf("the SDK gives %s,\nwe %s", got["sdk"], got["lean"])
		}
	})
}

// A wait of 0 is sent, by our writer and by the SDK's: left out, the queue's own would count.
func TestWaitOfZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := both(t, always(200, "{}"))["lean"]
		for _, attempt := range []*string{nil, new("ä")} {
			if _, err := p.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
				QueueUrl: new(queue), MaxNumberOfMessages: 10, VisibilityTimeout: 30, ReceiveRequestAttemptId: attempt,
			}); err != nil {
				t.Fatal(err)
			}
			if body := p.sent[len(p.sent)-1].body; !strings.Contains(body, `"WaitTimeSeconds":0`) {
				t.Errorf("the request is %s", body)
			}
		}
	})
}

// A clock that is an hour late is corrected by the service's, for the try that follows and for
// later calls.
func TestSkewedClock(t *testing.T) {
	for _, disabled := range []bool{false, true} {
		t.Run(fmt.Sprint("disabled=", disabled), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				play := func(n int, _ *http.Request) (*http.Response, error) {
					date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
					if n == 1 {
						return answer(403, `{"__type":"RequestTimeTooSkewed"}`, "Date", date), nil
					}
					return answer(200, `{"Successful":[{"Id":"0"}]}`, "Date", date), nil
				}
				tries := map[string][]time.Duration{}
				for kind, p := range both(t, play, func(o *sqs.Options) { o.DisableClockSkewCorrection = disabled }) {
					_, first := send(t.Context(), p)
					_, second := send(t.Context(), p)
					if (first != nil) != disabled || second != nil {
						t.Error(kind, first, second)
					}
					for _, s := range p.sent {
						at := must.Get(time.Parse("20060102T150405Z", s.header.Get("X-Amz-Date")))
						tries[kind] = append(tries[kind], at.Sub(s.at).Round(time.Minute))
					}
				}
				want := []time.Duration{0, time.Hour, time.Hour}
				if disabled {
					want = []time.Duration{0, 0}
				}
				if !reflect.DeepEqual(tries, map[string][]time.Duration{"sdk": want, "lean": want}) {
					t.Error(tries)
				}
			})
		})
	}
}

// The client's retryer is asked, one of the user's own among them, and its tokens are spent.
func TestRetryers(t *testing.T) {
	for name, c := range map[string]struct {
		retryer func() aws.Retryer
		calls   int
	}{
		"none":     {func() aws.Retryer { return aws.NopRetryer{} }, 1},
		"standard": {func() aws.Retryer { return retry.NewStandard() }, 3},
		"five": {func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts = 5 })
		}, 3},
		"poor": {func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.RateLimiter = empty{} })
		}, 1},
		"custom": {func() aws.Retryer { return custom{aws.NopRetryer{}} }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := map[string]string{}
				for kind, p := range both(t, always(400, `{"__type":"com.amazonaws.sqs#RequestThrottled","message":"slow"}`), func(o *sqs.Options) { o.Retryer = c.retryer() }) {
					var err error
					for range c.calls {
						_, err = send(t.Context(), p)
					}
					got[kind] = fmt.Sprint(len(p.sent), " ", chain(err), " ", err)
				}
				if got["sdk"] != got["lean"] {
					t.Errorf("the SDK gives %s,\nwe %s", got["sdk"], got["lean"])
				}
				if name == "custom" && !strings.HasPrefix(got["lean"], "8 ") {
					t.Error(got["lean"])
				}
			})
		})
	}
}

// empty has no tokens.
type empty struct{}

func (empty) GetToken(context.Context, uint) (func() error, error) {
	return nil, errors.New("no tokens")
}
func (empty) AddTokens(uint) error { return nil }

// custom tries four times, at once.
type custom struct{ aws.NopRetryer }

func (custom) IsErrorRetryable(error) bool                  { return true }
func (custom) MaxAttempts() int                             { return 4 }
func (custom) RetryDelay(int, error) (time.Duration, error) { return time.Second, nil }
func (custom) GetRetryToken(context.Context, error) (func(error) error, error) {
	return func(error) error { return nil }, nil
}
