package httponceq

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// answer is what is kept with a key, as JSON, and replayed.
type answer struct {
	Status  int
	Header  http.Header
	Bytes   map[string][][]byte `json:",omitempty"` // headers that are not UTF-8, which JSON would change
	Body    []byte
	trailer http.Header // for the first answer alone
}

func (a *answer) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.Header)
	for name, values := range a.Bytes {
		w.Header()[name] = nil
		for _, v := range values {
			w.Header()[name] = append(w.Header()[name], string(v))
		}
	}
	w.Header().Set("Cache-Control", "no-store") // it is for one client
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // the client may be gone; its next request gets the same answer
	maps.Copy(w.Header(), a.trailer)
}

// onceOnly are the headers that belong to one exchange. They are given with the first answer, and
// not kept.
var onceOnly = []string{
	"Set-Cookie", "Date", // of that moment
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", // of that connection
}

// kept is the answer without them, and without its trailers.
func (a answer) kept() answer {
	drop := slices.Concat(onceOnly, listed(a.Header["Connection"]), listed(a.Header["Trailer"]))
	given := a.Header
	a.Header, a.Bytes, a.trailer = make(http.Header), nil, nil
	for name, values := range given {
		switch {
		case slices.Contains(drop, name), strings.HasPrefix(name, http.TrailerPrefix):
		case slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }):
			if a.Bytes == nil {
				a.Bytes = make(map[string][][]byte)
			}
			for _, v := range values {
				a.Bytes[name] = append(a.Bytes[name], []byte(v))
			}
		default:
			a.Header[name] = values
		}
	}
	return a
}

// listed are the headers that a header lists.
func listed(values []string) (names []string) {
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			names = append(names, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	return names
}

// recorder keeps what a handler answers. It is the handler's own ResponseWriter.
type recorder struct {
	server   http.ResponseWriter
	ctx      context.Context // the handler's
	header   http.Header     // for the handler to change
	sent     http.Header     // what it was when the answer began; what comes later is not sent
	status   int
	ended    error // why ctx had ended when the answer began; nil = it had not
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
		r.status, r.sent = status, r.header.Clone()
		if r.ctx != nil {
			r.ended = context.Cause(r.ctx)
		}
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if r.status == http.StatusNoContent || r.status == http.StatusNotModified {
		return 0, http.ErrBodyNotAllowed
	}
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
	r.WriteHeader(http.StatusOK) // where the handler has answered nothing
	return &answer{Status: r.status, Header: r.sent, Body: r.body.Bytes(), trailer: r.trailer()}
}

// trailer is what the handler has set after its answer began, of what it may.
func (r *recorder) trailer() http.Header {
	t := make(http.Header)
	declared := listed(r.sent["Trailer"])
	for name, values := range r.header {
		if slices.Contains(declared, name) || strings.HasPrefix(name, http.TrailerPrefix) {
			t[name] = values
		}
	}
	return t
}
