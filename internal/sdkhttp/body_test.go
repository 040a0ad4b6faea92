package sdkhttp_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/sdkhttp"
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
	for _, size := range []int64{1, 64 << 10, 64<<10 + 1} {
		body := &sdkBody{Reader: strings.NewReader(strings.Repeat("x", int(size)))}
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/", body))
		r.ContentLength = size
		res, err := sdkhttp.Sound(&http.Client{Transport: tripFunc(func(r *http.Request) (*http.Response, error) {
			if b, err := io.ReadAll(io.LimitReader(r.Body, size)); int64(len(b)) != size || err != nil {
				t.Errorf("the body has %d bytes, %v", len(b), err)
			}
			body.Close() // the answer is there
			if n, err := io.Copy(io.Discard, r.Body); n != 0 || err != nil {
				t.Errorf("after its end the body of %d bytes gave %d, %v", size, n, err)
			}
			if size <= 64<<10 {
				again, err := r.GetBody()
				if err != nil {
					t.Fatal(err)
				}
				if b, err := io.ReadAll(again); int64(len(b)) != size || err != nil {
					t.Errorf("the body has %d bytes the second time, %v", len(b), err)
				}
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
}

// A body that is shorter than it says is not sent.
func TestShortBody(t *testing.T) {
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/", &sdkBody{Reader: strings.NewReader("x")}))
	r.ContentLength = 2
	if _, err := sdkhttp.Sound(doerFunc(func(*http.Request) (*http.Response, error) {
		t.Error("it was sent")
		return nil, nil
	})).Do(r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the answer is %v", err)
	}
}

// A request without a body is known by its http.NoBody.
func TestNoBodyStays(t *testing.T) {
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		r := &http.Request{Body: body}
		sdkhttp.Sound(doerFunc(func(r *http.Request) (*http.Response, error) {
			if r.Body != body {
				t.Errorf("%v became %v", body, r.Body)
			}
			return nil, nil
		})).Do(r)
	}
}
