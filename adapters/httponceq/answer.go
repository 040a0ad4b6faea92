package httponceq

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// answer is what is kept with a key, as JSON, and replayed.
type answer struct {
	Status int
	Header http.Header
	Body   []byte
}

func (a *answer) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.Header)
	w.Header().Set("Cache-Control", "no-store") // it is for one client
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // the client may be gone; its next request gets the same answer
}

// onceOnly are the headers that belong to one exchange. They are given with the first answer, and
// not kept.
var onceOnly = []string{
	"Set-Cookie", "Date", // of that moment
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", // of that connection
}

// kept is the answer without them.
func (a answer) kept() answer {
	drop := onceOnly
	for _, names := range a.Header["Connection"] {
		for name := range strings.SplitSeq(names, ",") {
			drop = append(slices.Clip(drop), http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	a.Header = maps.Clone(a.Header)
	maps.DeleteFunc(a.Header, func(name string, _ []string) bool { return slices.Contains(drop, name) })
	return a
}

// recorder keeps what a handler answers. It is the handler's own ResponseWriter.
type recorder struct {
	server   http.ResponseWriter
	header   http.Header
	status   int
	body     bytes.Buffer
	most     int
	overflow bool // the body was longer than most
}

func (r *recorder) Header() http.Header { return r.header }

// WriteHeader takes the first status, as the server does. It drops the statuses that go before an
// answer (1xx).
func (r *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		r.server.WriteHeader(status) // net/http's panics; such an answer could not be replayed
		status = http.StatusInternalServerError
	}
	if r.status == 0 && status >= 200 {
		r.status = status
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if r.overflow = r.overflow || r.body.Len()+len(b) > r.most; r.overflow {
		return 0, fmt.Errorf("httponceq: an answer of more than %d bytes", r.most)
	}
	return r.body.Write(b)
}

// answer is what was recorded. Where the body was too large, it is a 500 for good, because a part
// of the body would be wrong, and the handler has done its work.
func (r *recorder) answer() *answer {
	if r.overflow {
		instead := recorder{header: make(http.Header), most: DefaultMax}
		Problem(&instead, http.StatusInternalServerError, "the answer is too large")
		return instead.answer()
	}
	return &answer{cmp.Or(r.status, http.StatusOK), r.header, r.body.Bytes()}
}
