package pubsubpush_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubpush"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	rigs "github.com/onceq/onceq/internal/rig"
)

// This file owns the forms in which a message comes, and what is refused. Each test has a rig of
// its own, so nothing is locked.

// with sets headers: name, value, name, value.
func with(r *http.Request, headers ...string) *http.Request {
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// meta is metadata of ours, as an attribute has it.
var meta = broker.EncodeMeta(&broker.Meta{ID: "j-1", Type: "pay"})

const messageTime = "2026-11-23T07:00:00.123Z"

// TestForms: each form in which a message comes, and what the handler gets of it.
func TestForms(t *testing.T) {
	at := must.Get(time.Parse(time.RFC3339Nano, messageTime))
	quoted := strings.ReplaceAll(meta, `"`, `\"`)
	for _, c := range []struct {
		name    string
		body    string
		headers []string
		want    broker.Message
		key     string
	}{
		{
			name: "wrapped",
			body: `{"message":{"data":"aGVsbG8=","attributes":{"onceq":"` + quoted + `","a":"b"},"messageId":"1","message_id":"1","publishTime":"` + messageTime +
				`","publish_time":"` + messageTime + `","orderingKey":"g"},"subscription":"` + subscription + `","deliveryAttempt":5}`,
			headers: []string{"ce-id", "1"}, // without a type it is no event
			want:    broker.Message{ID: "1", Body: []byte("hello"), Attributes: map[string]string{"a": "b"}, Group: "g", Attempt: 5, Published: at},
			key:     "j-1",
		},
		{
			name: "as the emulator wraps it", body: `{"message":{"data":"aGVsbG8=","message_id":"2","publish_time":"` + messageTime + `"},"subscription":"` + subscription + `"}`,
			want: broker.Message{ID: "2", Body: []byte("hello"), Published: at}, key: "2",
		},
		{
			name: "without data", body: `{"message":{"attributes":{"a":"b"},"messageId":"3"},"subscription":"` + subscription + `"}`,
			want: broker.Message{ID: "3", Attributes: map[string]string{"a": "b"}}, key: "3",
		},
		{
			name: "moved by the dead-letter policy",
			body: `{"message":{"data":"aGVsbG8=","attributes":{"CloudPubSubDeadLetterSourceDeliveryCount":"5"},"messageId":"4"},"subscription":"` + subscription + `"}`,
			want: broker.Message{ID: "4", Body: []byte("hello")}, key: "4",
		},
		{
			name: "unwrapped", body: "\xffhello",
			headers: []string{
				"x-goog-pubsub-subscription-name", subscription, "x-goog-pubsub-message-id", "5", "x-goog-pubsub-publish-time", messageTime,
				"x-goog-pubsub-ordering-key", "g", "onceq", meta[:9], "onceq.1", meta[9:], "Tenant", "t", "X-Forwarded-For", "10.0.0.1", "User-Agent", "Google",
			},
			want: broker.Message{ID: "5", Body: []byte("\xffhello"), Attributes: map[string]string{"tenant": "t"}, Group: "g", Published: at}, key: "j-1",
		},
		{
			name: "unwrapped, and it looks like an envelope", body: `{"message":{"data":"aGVsbG8=","messageId":"7"}}`,
			headers: []string{"x-goog-pubsub-subscription-name", subscription, "x-goog-pubsub-message-id", "6"},
			want:    broker.Message{ID: "6", Body: []byte(`{"message":{"data":"aGVsbG8=","messageId":"7"}}`)}, key: "6",
		},
		{
			name:    "a topic through Eventarc",
			body:    `{"message":{"data":"aGVsbG8=","attributes":{"ce-source":"forged"},"messageId":"8"},"subscription":"` + subscription + `"}`,
			headers: []string{"ce-type", "google.cloud.pubsub.topic.v1.messagePublished", "ce-id", "8", "ce-source", "//pubsub"},
			want: broker.Message{ID: "8", Body: []byte("hello"), Attributes: map[string]string{
				"ce-type": "google.cloud.pubsub.topic.v1.messagePublished", "ce-id": "8", "ce-source": "//pubsub",
			}}, key: "8",
		},
		{
			name: "an event of Eventarc", body: `{"bucket":"b"}`,
			headers: []string{"ce-type", "google.cloud.storage.object.v1.finalized", "ce-id", "e-9", "ce-source", "//storage", "ce-time", messageTime},
			want: broker.Message{ID: "e-9", Body: []byte(`{"bucket":"b"}`), Published: at, Attributes: map[string]string{
				"ce-type": "google.cloud.storage.object.v1.finalized", "ce-id": "e-9", "ce-source": "//storage", "ce-time": messageTime,
			}}, key: "e-9",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m *broker.Message
			var key dedupe.Key
			bubble(t, func(_ context.Context, j *onceq.Job) error { m, key = j.Message, j.Key(); return nil }, func(r *rig) {
				r.cfg.Key = func(m *broker.Message) (dedupe.Key, error) {
					if m.Meta != nil {
						return dedupe.Key{Key: m.Meta.ID}, nil
					}
					return dedupe.Key{Key: m.ID}, nil
				}
				r.o.Attributes = []string{"tenant"}
				w := r.serve(with(post([]byte(c.body)), c.headers...))
				r.want(w.Code, http.StatusNoContent)
				if m == nil {
					r.Fatal("it did not run: " + w.Body.String())
				}
				if m.ID != c.want.ID || !bytes.Equal(m.Body, c.want.Body) || !maps.Equal(m.Attributes, c.want.Attributes) || m.Group != c.want.Group ||
					m.Attempt != c.want.Attempt || !m.Published.Equal(c.want.Published) {
					r.Errorf("the handler got %+v, want %+v", m, c.want)
				}
				if key.Key != c.key {
					r.Errorf("its key is %v, want %s", key, c.key)
				}
			})
		})
	}
}

// TestRefused: what is no message of Pub/Sub gets a 4xx with a one-line reason and one log record,
// and nothing runs.
func TestRefused(t *testing.T) {
	good := `{"message":{"data":"aGVsbG8=","messageId":"1"},"subscription":"` + subscription + `"}`
	for _, c := range []struct {
		name    string
		method  string
		body    io.Reader
		headers []string
		only    string // Options.Subscription
		status  int
		reason  string
	}{
		{name: "a GET", method: http.MethodGet, status: 405, reason: `the method is "GET", not POST`},
		{name: "nothing", status: 400, reason: "the body is no envelope of Pub/Sub"},
		{name: "no JSON", body: strings.NewReader("hello"), status: 400, reason: "the body is no envelope of Pub/Sub"},
		{name: "another JSON", body: strings.NewReader(`{"a":1}`), status: 400, reason: "the body has no message"},
		{name: "a list", body: strings.NewReader(`[]`), status: 400, reason: "the body is no envelope of Pub/Sub"},
		{name: "null", body: strings.NewReader(`null`), status: 400, reason: "the body has no message"},
		{name: "no messageId", body: strings.NewReader(`{"message":{"data":"aGVsbG8="}}`), status: 400, reason: "the message has no messageId"},
		{name: "wrong base64", body: strings.NewReader(`{"message":{"data":"?","messageId":"1"}}`), status: 400, reason: "the body is no envelope of Pub/Sub"},
		{name: "truncated", body: strings.NewReader(good[:40]), status: 400, reason: "the body is no envelope of Pub/Sub"},
		{name: "two", body: strings.NewReader(good + good), status: 400, reason: "the body is no envelope of Pub/Sub"},
		{name: "not UTF-8", body: strings.NewReader(strings.Replace(good, `"1"`, "\"\xff\"", 1)), status: 400, reason: "the body is not UTF-8"},
		{name: "a long id", body: strings.NewReader(strings.Replace(good, `"1"`, `"`+strings.Repeat("1", 1025)+`"`, 1)), status: 400, reason: "the message's id is longer than 1024 bytes, or not UTF-8"},
		{name: "no time", body: strings.NewReader(strings.Replace(good, `"1"`, `"1","publishTime":"noon"`, 1)), status: 400, reason: "the time of the message is none"},
		{name: "huge", body: strings.NewReader(good + strings.Repeat(" ", 1000)), status: 413, reason: "the body has more than 1000 bytes"},
		{name: "cut off", body: io.MultiReader(strings.NewReader(good[:40]), iotest.ErrReader(errors.New("gone"))), status: 400, reason: "the body ends too early"},
		{
			name: "an event without id", headers: []string{"ce-type", "google.cloud.storage.object.v1.finalized"}, body: strings.NewReader(`{}`), status: 400,
			reason: "the event has no ce-id",
		},
		{
			name: "an event without time", headers: []string{"ce-type", "google.cloud.storage.object.v1.finalized", "ce-id", "1", "ce-time", "noon"},
			body: strings.NewReader(`{}`), status: 400, reason: "the time of the message is none",
		},
		{
			name: "unwrapped, no time", headers: []string{"x-goog-pubsub-message-id", "1", "x-goog-pubsub-publish-time", "noon"}, body: strings.NewReader(`a`),
			status: 400, reason: "the time of the message is none",
		},
		{name: "another subscription", only: "projects/p/subscriptions/other", body: strings.NewReader(good), status: 403, reason: `the subscription is "` + subscription + `", which may not push here`},
		{
			name: "another subscription, unwrapped", only: subscription, headers: []string{"x-goog-pubsub-message-id", "1", "x-goog-pubsub-subscription-name", "x"},
			body: strings.NewReader(good), status: 403, reason: `the subscription is "x", which may not push here`,
		},
		{
			name: "no subscription", only: subscription, body: strings.NewReader(`{"message":{"messageId":"1"}}`), status: 403,
			reason: `the subscription is "", which may not push here`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s runs
			bubble(t, s.Handle, func(r *rig) {
				r.o.MaxBody, r.o.Subscription = 1000, c.only
				if strings.Contains(c.name, "long") {
					r.o.MaxBody = 0
				}
				method := c.method
				if method == "" {
					method = http.MethodPost
				}
				w := r.serve(with(httptest.NewRequest(method, "/", c.body), c.headers...))
				if w.Code != c.status || w.Body.String() != c.reason+"\n" {
					r.Errorf("%d %q, want %d %q", w.Code, w.Body, c.status, c.reason)
				}
				if text := r.log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=WARN") || !strings.Contains(text, fmt.Sprint("status=", c.status)) {
					r.Errorf("the log is %q, want one record", text)
				}
				if n := r.store.Claims.Load(); n != 0 {
					r.Errorf("%d claims", n)
				}
			})
		})
	}
	var s runs
	bubble(t, s.Handle, func(r *rig) {
		r.o.Subscription = subscription
		r.want(r.push(job("ok")), 204)
	})
}

// FuzzServe: whatever comes, there is an answer and no panic, and nothing runs whose answer is a
// refusal.
func FuzzServe(f *testing.F) {
	f.Add([]byte(`{"message":{"data":"aGVsbG8=","attributes":{"onceq":"{}"},"messageId":"1","publishTime":"2026-11-23T07:00:00Z"},"subscription":"s"}`), "", "", "", "")
	f.Add([]byte("hello"), "1", "2026-11-23T07:00:00Z", "", "")
	f.Add([]byte("hello"), "", "", "google.cloud.storage.object.v1.finalized", "1")
	f.Add([]byte(`{"message":{}}`), "", "", "", "")
	ran := false
	r := newRig(f, func(context.Context, *onceq.Job) error { ran = true; return nil })
	r.cfg.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: m.ID}, nil }
	r.o.MaxBody = 1 << 12
	h := r.handler()
	f.Fuzz(func(t *testing.T, body []byte, id, at, event, eventID string) {
		req := post(body)
		for name, value := range map[string]string{
			"x-goog-pubsub-message-id": id, "x-goog-pubsub-publish-time": at, "ce-type": event, "ce-id": eventID, "onceq": id,
		} {
			if value != "" {
				req.Header[http.CanonicalHeaderKey(name)] = []string{value}
			}
		}
		ran = false
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		switch {
		case w.Code == 204 && w.Body.Len() != 0, w.Code != 204 && (strings.Count(w.Body.String(), "\n") != 1 || w.Code < 400 || w.Code == 500):
			t.Errorf("%d %q", w.Code, w.Body)
		case ran && w.Code != 204:
			t.Errorf("it ran, and the answer is %d", w.Code)
		}
	})
}

func TestOptions(t *testing.T) {
	p := must.Get(onceq.NewProcessor(newRig(t, new(runs).Handle).cfg))
	b := must.Get(p.Batches(onceq.BatchConfig{DeadLetter: onceq.KeepInQueue}))
	good := pubsubpush.Options{Auth: pubsubpush.IAM{}, AckDeadline: time.Minute}
	for _, c := range []struct {
		change func(*pubsubpush.Options)
		why    string
	}{
		{func(*pubsubpush.Options) {}, ""},
		{func(o *pubsubpush.Options) { o.AckDeadline = 10 * time.Second }, ""},
		{func(o *pubsubpush.Options) { o.AckDeadline = 600 * time.Second }, ""},
		{func(o *pubsubpush.Options) { o.Auth = nil }, "Options.Auth is nil: say who may push by OIDC, IAM or None"},
		{func(o *pubsubpush.Options) { o.AckDeadline = 0 }, "Options.AckDeadline is 0: a request does not tell it"},
		{func(o *pubsubpush.Options) { o.AckDeadline = 60 }, "Options.AckDeadline: 60ns is not within 10s and 10m0s"},
		{func(o *pubsubpush.Options) { o.AckDeadline = 601 * time.Second }, "Options.AckDeadline: 10m1s is not within"},
		{func(o *pubsubpush.Options) { o.Reserve = 5 }, "Options.Reserve"},
		{func(o *pubsubpush.Options) { o.Reserve = -time.Second }, "Options.Reserve: -1s is not within"},
		{func(o *pubsubpush.Options) { o.Reserve = 151 * time.Second }, "Options.Reserve: 2m31s is not within"},
		{func(o *pubsubpush.Options) { o.MaxBody = -1 }, "Options.MaxBody is -1"},
		{func(o *pubsubpush.Options) { o.Subscription = "orders" }, `Options.Subscription: "orders" is not of the form projects/P/subscriptions/S`},
		{func(o *pubsubpush.Options) { o.Subscription = "projects//subscriptions/s" }, "is not of the form"},
		{func(o *pubsubpush.Options) { o.Attributes = []string{"tenant"} }, ""},
		{func(o *pubsubpush.Options) { o.Attributes = []string{""} }, `the header "" is no attribute`},
		{func(o *pubsubpush.Options) { o.Attributes = []string{"Authorization"} }, `the header "Authorization" is no attribute`},
		{func(o *pubsubpush.Options) { o.Attributes = []string{"X-Goog-Pubsub-Message-Id"} }, "is no attribute"},
		{func(o *pubsubpush.Options) { o.Auth = pubsubpush.OIDC{Audience: "a", ServiceAccount: "x@y"} }, ""},
		{func(o *pubsubpush.Options) { o.Auth = pubsubpush.OIDC{ServiceAccount: "x@y"} }, "OIDC.Audience is empty"},
		{func(o *pubsubpush.Options) { o.Auth = pubsubpush.OIDC{Audience: "a"} }, `OIDC.ServiceAccount: "" is no address`},
		{func(o *pubsubpush.Options) { o.Auth = pubsubpush.OIDC{Audience: "a", ServiceAccount: "1234"} }, `OIDC.ServiceAccount: "1234" is no address`},
		{func(o *pubsubpush.Options) {
			o.Auth = pubsubpush.OIDC{Audience: "a", ServiceAccount: "x@y", CertsURL: "http://example.com/certs"}
		}, "OIDC.CertsURL"},
		{func(o *pubsubpush.Options) {
			o.Auth = pubsubpush.OIDC{Audience: "a", ServiceAccount: "x@y", CertsURL: "http://127.0.0.1:1/certs"}
		}, ""},
	} {
		o := good
		c.change(&o)
		_, err := pubsubpush.New(b, o)
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%+v: %v, want %q", o, err, c.why)
		}
	}
	if _, err := pubsubpush.New(nil, good); err == nil || !strings.Contains(err.Error(), "the Batches are nil") {
		t.Error(err)
	}
}

// setting is a subscription's deadline.
type setting struct {
	d   time.Duration
	err error
}

func (s setting) AckDeadline(context.Context) (time.Duration, error) { return s.d, s.err }

func TestCheck(t *testing.T) {
	h := newRig(t, new(runs).Handle).handler() // a minute
	for d, why := range map[time.Duration]string{
		time.Minute: "", 2 * time.Minute: "",
		59 * time.Second: "the subscription's acknowledgement deadline is 59s, and Options.AckDeadline 1m0s",
	} {
		err := h.Check(t.Context(), setting{d: d})
		if (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%v: %v", d, err)
		}
	}
	if err := h.Check(t.Context(), setting{err: errBoom}); !errors.Is(err, errBoom) {
		t.Error(err)
	}
}

// A middleware may leave a header without a value. That is no header, and no panic.
func TestHeadersWithoutValues(t *testing.T) {
	for _, name := range []string{"Onceq", "Tenant", "Ce-Source", "Ce-Type", "X-Goog-Pubsub-Message-Id", "Authorization"} {
		bubble(t, new(runs).Handle, func(r *rig) {
			r.o.Attributes = []string{"tenant"}
			r.cfg.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: m.ID}, nil }
			req := with(post(job("ok")), "x-goog-pubsub-message-id", "1", "ce-type", "x", "ce-id", "1")
			req.Header[name] = []string{}
			r.want(r.serve(req).Code, http.StatusNoContent)
		})
	}
}

// A stranger's text makes neither the log nor the answer long, and no data gets into the log.
func TestRefusalsAreShort(t *testing.T) {
	long := strings.Repeat("9", 100_000)
	bubble(t, new(runs).Handle, func(r *rig) {
		r.o.Subscription = subscription
		for name, req := range map[string]*http.Request{
			"a method":                  httptest.NewRequest(long, "/", nil),
			"a subscription":            post([]byte(`{"message":{"messageId":"1"},"subscription":"` + long + `"}`)),
			"a number for a message":    post([]byte(`{"message":` + long + `}`)),
			"a number for an id":        post([]byte(`{"message":{"messageId":` + long + `}}`)),
			"a number for an attribute": post([]byte(`{"message":{"messageId":"1","attributes":{"card":` + long + `}}}`)),
			"a number of attempts":      post([]byte(`{"message":{"messageId":"1"},"deliveryAttempt":` + long + `}`)),
			"a text of attempts":        post([]byte(`{"message":{"messageId":"1"},"deliveryAttempt":"` + long + `"}`)),
			"data":                      post([]byte(`{"message":{"messageId":"1","data":"` + long + `"}}`)),
			"lists":                     post([]byte(strings.Repeat("[", 100_000))),
		} {
			before := len(r.log.String())
			w := r.serve(req)
			if text := r.log.String()[before:]; w.Code < 400 || w.Code > 499 || w.Body.Len() > 1000 || len(text) > 2000 {
				r.Errorf("%s: %d, an answer of %d bytes and %d in the log", name, w.Code, w.Body.Len(), len(text))
			}
			if text := r.log.String()[before:]; strings.Contains(name, "number") && strings.Contains(text, "9999") {
				r.Errorf("%s: the log has what the body has: %.300s", name, text)
			}
		}
	})
}

// TestRefusalsAreLogged without a Logger: the process's own gets them, as a Processor's warnings.
func TestRefusalsAreLogged(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	r := newRig(t, new(runs).Handle)
	r.o.Logger = nil
	slog.SetDefault(r.log.Logger())
	if w := r.serve(post([]byte("{"))); w.Code < 400 {
		t.Fatalf("answered %d", w.Code)
	}
	if text := r.log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "a request is refused") {
		t.Errorf("logged %q", text)
	}
}

// TestLoggerPanics: a Logger that panics costs its line, and the request is answered.
func TestLoggerPanics(t *testing.T) {
	r := newRig(t, new(runs).Handle)
	r.o.Logger = rigs.Broken()
	if w := r.serve(post([]byte("{"))); w.Code < 400 || w.Code > 499 {
		t.Errorf("answered %d", w.Code)
	}
}
