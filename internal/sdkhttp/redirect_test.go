package sdkhttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/sdkhttp"
)

// The rule: an answer that redirects is one request and one answer, whoever the client is.
func TestRedirect(t *testing.T) {
	for name, c := range map[string]sdkhttp.Doer{
		"http.Client":     &http.Client{},
		"the SDK's own":   awshttp.NewBuildableClient(),
		"one of the user": doerFunc((&http.Client{}).Do),
	} {
		for _, status := range []int{301, 302, 303, 307, 308} {
			if name == "one of the user" && status < 307 {
				continue // net/http begins again with a GET, and the user has asked for that
			}
			var requests atomic.Int32
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1) > 3 {
					return // a client that follows comes to an end
				}
				http.Redirect(w, r, "/again", status)
			}))
			body := &sdkBody{Reader: strings.NewReader("x")}
			r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, body))
			r.ContentLength = 1
			res, err := sdkhttp.Sound(c).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if n := requests.Load(); n != 1 || res.StatusCode != status {
				t.Errorf("%s: a %d was answered by %d requests in all, and the answer is %d", name, status, n, res.StatusCode)
			}
			srv.Close()
		}
	}
}

// The rule: only a client that follows no redirect gets a body that can be sent again.
func TestBodyAgain(t *testing.T) {
	for name, c := range map[string]struct {
		wrap func(http.RoundTripper) sdkhttp.Doer
		want bool
	}{
		"http.Client":     {func(rt http.RoundTripper) sdkhttp.Doer { return &http.Client{Transport: rt} }, true},
		"one of the user": {func(rt http.RoundTripper) sdkhttp.Doer { return doerFunc(rt.RoundTrip) }, false},
	} {
		seen := false
		rt := tripFunc(func(r *http.Request) (*http.Response, error) {
			seen = true
			if got := r.GetBody != nil; got != c.want {
				t.Errorf("%s: GetBody is there: %t, want %t", name, got, c.want)
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/", &sdkBody{Reader: strings.NewReader("x")}))
		r.ContentLength, r.GetBody = 1, nil
		res, err := sdkhttp.Sound(c.wrap(rt)).Do(r)
		if err != nil || !seen {
			t.Fatal(err, seen)
		}
		res.Body.Close()
	}
}

type tripFunc func(*http.Request) (*http.Response, error)

func (f tripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
