package plainbody_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onceq/onceq/internal/plainbody"
)

// sdkBody ends as the SDK's does.
type sdkBody struct {
	*strings.Reader
	closed atomic.Bool
}

func (b *sdkBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, io.EOF
	}
	return b.Reader.Read(p)
}

func (b *sdkBody) WriteTo(w io.Writer) (int64, error) {
	if b.closed.Load() {
		return 0, io.EOF
	}
	return b.Reader.WriteTo(w)
}

func (b *sdkBody) Close() error {
	b.closed.Store(true)
	return nil
}

type doerFunc func(*http.Request) (*http.Response, error)

func (f doerFunc) Do(r *http.Request) (*http.Response, error) { return f(r) }

func TestBodyThatIsClosedEndsWell(t *testing.T) {
	sent := plainbody.Of(doerFunc(func(r *http.Request) (*http.Response, error) {
		if b, err := io.ReadAll(io.LimitReader(r.Body, 4)); string(b) != "body" || err != nil {
			t.Errorf("the body is %q, %v", b, err)
		}
		r.Body.Close()                                                   // the answer is there
		if n, err := io.Copy(io.Discard, r.Body); n != 0 || err != nil { // as net/http looks for more
			t.Errorf("after its end the body gave %d bytes, %v", n, err)
		}
		return nil, nil
	}))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/", &sdkBody{Reader: strings.NewReader("body")})
	if err != nil {
		t.Fatal(err)
	}
	sent.Do(r)
}

// A request without a body is known by its http.NoBody.
func TestNoBodyStays(t *testing.T) {
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		r := &http.Request{Body: body}
		plainbody.Of(doerFunc(func(r *http.Request) (*http.Response, error) {
			if r.Body != body {
				t.Errorf("%v became %v", body, r.Body)
			}
			return nil, nil
		})).Do(r)
	}
}
