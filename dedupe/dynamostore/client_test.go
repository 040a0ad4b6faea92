package dynamostore

import (
	"io"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

// TestConnections: the store keeps as many connections as it writes at once, and leaves the user's
// client as it is.
func TestConnections(t *testing.T) {
	tight := &http.Transport{MaxIdleConnsPerHost: 1, MaxIdleConns: 3}
	wide := &http.Transport{MaxIdleConnsPerHost: 1000}
	for name, c := range map[string]struct {
		hc   dynamodb.HTTPClient
		keep int // 0 = the user's own business
	}{
		"the SDK's own":           {nil, poolPerHost},
		"a buildable client":      {awshttp.NewBuildableClient(), poolPerHost},
		"an http.Client":          {&http.Client{}, poolPerHost},
		"a narrow transport":      {&http.Client{Transport: tight}, poolPerHost},
		"a wide transport":        {&http.Client{Transport: wide}, 1000},
		"another kind of client":  {transport{}, 0},
		"another round tripper":   {&http.Client{Transport: trips{}}, 0},
		"a transport that is nil": {&http.Client{Transport: (*http.Transport)(nil)}, 0},
	} {
		client := dynamodb.New(dynamodb.Options{Region: region, Credentials: aws.CredentialsProviderFunc(credentials), HTTPClient: c.hc})
		hc := widened(client.Options().HTTPClient)
		var got *http.Transport
		switch hc := hc.(type) {
		case *awshttp.BuildableClient:
			got = hc.GetTransport()
		case *http.Client:
			got, _ = hc.Transport.(*http.Transport)
		}
		switch {
		case c.keep == 0:
			if hc != c.hc {
				t.Errorf("%s: it was replaced", name)
			}
		case got == nil || got.MaxIdleConnsPerHost != c.keep || got.MaxIdleConns != 0 && got.MaxIdleConns < c.keep:
			t.Errorf("%s: the transport is %+v", name, got)
		}
	}
	if tight.MaxIdleConnsPerHost != 1 || tight.MaxIdleConns != 3 {
		t.Error("the user's transport was changed")
	}
	if d, ok := http.DefaultTransport.(*http.Transport); !ok || d.MaxIdleConnsPerHost != 0 {
		t.Error("http.DefaultTransport was changed")
	}
}

type trips struct{}

func (trips) RoundTrip(r *http.Request) (*http.Response, error) { return transport{}.Do(r) }

// TestAnswerOutlivesItsRequest: the SDK closes a request's body when the answer's head is there,
// also while net/http still looks for its end. Then its WriteTo fails, and with the connection the
// answer is gone.
func TestAnswerOutlivesItsRequest(t *testing.T) {
	calls := 0
	s, err := New(dynamodb.New(dynamodb.Options{
		Region: region, Credentials: aws.CredentialsProviderFunc(credentials),
		HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			calls++
			if _, err := io.Copy(io.Discard, io.LimitReader(r.Body, r.ContentLength)); err != nil {
				t.Error(err)
			}
			r.Body.Close()
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				t.Errorf("the end of the body is an error: %v", err)
			}
			return transport{}.Do(r)
		})},
	}), "records", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request("k")}); err != nil || calls == 0 {
		t.Errorf("after %d calls: %v", calls, err)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	testaws.NoRedirect(t, func(t *testing.T, url string, hc aws.HTTPClient) map[string]func() error {
		s, err := New(dynamodb.New(dynamodb.Options{
			Region: region, BaseEndpoint: &url, Credentials: aws.CredentialsProviderFunc(credentials), HTTPClient: hc,
		}), "records", nil)
		if err != nil {
			t.Fatal(err)
		}
		return map[string]func() error{"Get": func() error {
			_, err := s.Get(t.Context(), []dedupe.Key{{Scope: "s", Key: "k"}})
			return err
		}}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
