package awssqs_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
)

// TestConnectionsAreApart holds polls open and acks beside them, on a client that allows one
// connection per host: a poll must never keep an ack waiting.
func TestConnectionsAreApart(t *testing.T) {
	narrow := func(tr *http.Transport) { tr.MaxConnsPerHost = 1 }
	own := http.DefaultTransport.(*http.Transport).Clone()
	narrow(own)
	for name, hc := range map[string]sqs.HTTPClient{
		"the SDK's":   awshttp.NewBuildableClient().WithTransportOptions(narrow),
		"an HTTP one": &http.Client{Transport: own},
	} {
		t.Run(name, func(t *testing.T) {
			polling, release := make(chan bool, 8), make(chan bool)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Amz-Target") == "AmazonSQS.ReceiveMessage" {
					polling <- true
					<-release
				}
				w.Write([]byte(`{"Successful":[{"Id":"0","MessageId":"m"}]}`))
			}))
			defer srv.Close()
			b := makeBroker(t, newClient(srv.URL, func(o *sqs.Options) { o.HTTPClient = hc }), srv.URL+"/0/orders", nil)
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1, Visibility: time.Minute}); err != nil {
					t.Errorf("Receive was answered: %v", err)
				}
			})
			<-polling
			if err := b.Ack(t.Context(), []broker.Receipt{"r"}); err != nil {
				t.Errorf("Ack was answered: %v", err)
			}
			if _, err := b.Send(t.Context(), []broker.Outgoing{{Body: []byte("a")}}); err != nil && name == "the SDK's" {
				t.Errorf("Send was answered: %v", err)
			}
			close(release)
			wg.Wait()
			if hc, ok := hc.(*http.Client); ok && hc.Transport != own {
				t.Error("the user's client was changed")
			}
		})
	}
}

// TestAnswerOutlivesItsRequest: the SDK closes a request's body when the answer's head is there,
// also while net/http still looks for its end. Then its WriteTo fails, and with the connection ten
// messages are gone until their timeout.
func TestAnswerOutlivesItsRequest(t *testing.T) {
	calls := 0
	hc := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		calls++
		if _, err := io.Copy(io.Discard, io.LimitReader(r.Body, r.ContentLength)); err != nil {
			t.Error(err)
		}
		r.Body.Close()
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Errorf("%s: the end of the body is an error: %v", r.Header.Get("X-Amz-Target"), err)
		}
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{}, Request: r,
			Body: io.NopCloser(strings.NewReader(`{"Successful":[{"Id":"0","MessageId":"m"}]}`)),
		}, nil
	})}
	b := makeBroker(t, newClient("http://127.0.0.1", func(o *sqs.Options) { o.HTTPClient = hc }), "http://127.0.0.1/0/orders", nil)
	_, _ = b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Visibility: time.Minute})
	_ = b.Ack(t.Context(), []broker.Receipt{"r"})
	_, _ = b.Send(t.Context(), []broker.Outgoing{{Body: []byte("a")}})
	if calls < 3 {
		t.Errorf("%d calls", calls)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestConnectionsAreKept acks from many goroutines at once, twice: the second time no connection is
// made.
func TestConnectionsAreKept(t *testing.T) {
	for name, hc := range map[string]sqs.HTTPClient{
		"the SDK's":           nil,
		"one without a field": &http.Client{},
		"one with a timeout":  &http.Client{Timeout: time.Minute},
	} {
		t.Run(name, func(t *testing.T) { keepsConnections(t, hc) })
	}
	if n := http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost; n != 0 {
		t.Errorf("http.DefaultTransport was changed: MaxIdleConnsPerHost is %d", n)
	}
}

func keepsConnections(t *testing.T, hc sqs.HTTPClient) {
	const callers = 32
	var mu sync.Mutex
	made := 0
	arrived, release := make(chan bool), make(chan bool)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- true
		<-release
		w.Write([]byte(`{"Successful":[{"Id":"0"}]}`))
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if s == http.StateNew {
			made++
		}
	}
	srv.Start()
	defer srv.Close()
	b := makeBroker(t, newClient(srv.URL, func(o *sqs.Options) { o.HTTPClient = hc }), srv.URL+"/0/orders", &awssqs.Options{})
	round := func() int {
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				if err := b.Ack(t.Context(), []broker.Receipt{"r"}); err != nil {
					t.Errorf("Ack was answered: %v", err)
				}
			})
		}
		for range callers { // all at once
			<-arrived
		}
		for range callers {
			release <- true
		}
		wg.Wait()
		mu.Lock()
		defer mu.Unlock()
		return made
	}
	first := round()
	// A connection may come back a moment after its answer, so a few more are no failure; the SDK's
	// own pool keeps 10.
	if more := round() - first; first != callers || more > callers/2 {
		t.Errorf("%d of %d connections were made anew", more, first)
	}
}
