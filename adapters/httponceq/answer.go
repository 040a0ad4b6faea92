package httponceq

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// This file owns what becomes of an answer: how it is recorded, kept and given again. The goroutine
// that serves the request calls it, and no recorder or answer is shared, so nothing is locked.

// answer is what is kept with a key, as JSON, and replayed. Of the headers it has what the handler
// made of those that were there when it began. Handlers outside of the middleware have set these,
// and set them again for each request: a cookie of a session, the id of a request.
type answer struct {
	Status  int
	Header  http.Header
	Added   http.Header         `json:",omitempty"` // values behind those that are there
	Removed []string            `json:",omitempty"` // headers of others, which the handler has deleted
	Bytes   map[string][][]byte `json:",omitempty"` // headers that are not UTF-8, which JSON would change
	Body    []byte
	trailer http.Header // for the first answer alone
}

// headers keeps the difference between the headers before the handler and after it.
func (a *answer) headers(before, after http.Header) {
	a.Header = make(http.Header)
	for name, values := range after {
		old, n := before[name], len(before[name])
		switch {
		case n > 0 && slices.Equal(old, values):
		case n > 0 && len(values) > n && slices.Equal(old, values[:n]) && areText(values):
			if a.Added == nil {
				a.Added = make(http.Header)
			}
			a.Added[name] = values[n:]
		default:
			a.Header[name] = values
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			a.Removed = append(a.Removed, name)
		}
	}
	// net/http breaks the connection after a body that is shorter than its handler has said.
	if n := a.Header.Get("Content-Length"); n != "" && n != strconv.Itoa(len(a.Body)) {
		a.Header.Del("Content-Length")
	}
}

func areText(values []string) bool {
	return !slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) })
}

func (a *answer) write(w http.ResponseWriter) {
	for _, name := range a.Removed {
		delete(w.Header(), name)
	}
	maps.Copy(w.Header(), a.Header)
	for name, values := range a.Added {
		w.Header()[name] = slices.Concat(w.Header()[name], values)
	}
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
	drop := slices.Clone(onceOnly)
	for _, h := range []http.Header{a.Header, a.Added} {
		drop = slices.Concat(drop, listed(h["Connection"]), listed(h["Trailer"]))
	}
	isOnce := func(name string) bool {
		return slices.Contains(drop, name) || strings.HasPrefix(name, http.TrailerPrefix)
	}
	a.Removed = slices.DeleteFunc(slices.Clone(a.Removed), isOnce)
	a.Added = maps.Clone(a.Added)
	maps.DeleteFunc(a.Added, func(name string, _ []string) bool { return isOnce(name) })
	given := a.Header
	a.Header, a.Bytes, a.trailer = make(http.Header), nil, nil
	for name, values := range given {
		switch {
		case isOnce(name):
		case !areText(values):
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

// size bounds how many bytes the answer takes as JSON.
func (a *answer) size() int {
	head, err := json.Marshal(answer{Header: a.Header, Added: a.Added, Removed: a.Removed, Bytes: a.Bytes})
	if err != nil {
		return math.MaxInt
	}
	return len(head) + len(`999`) + base64.StdEncoding.EncodedLen(len(a.Body))
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
	server  http.ResponseWriter
	ctx     context.Context // the handler's
	before  http.Header     // what handlers outside have set
	header  http.Header     // for the handler to change; begins with what is there
	sent    http.Header     // what it was when the answer began; what comes later is not sent
	status  int
	ended   error // why ctx had ended when the answer began; nil = it had not
	body    bytes.Buffer
	most    int
	instead string // why a 500 is answered for good, in place of what the handler wrote; "" = it is not
}

// newRecorder records what becomes of a request's answer w.
func newRecorder(w http.ResponseWriter, ctx context.Context, most int) *recorder {
	before := w.Header().Clone()
	r := &recorder{server: w, ctx: ctx, before: before, header: before.Clone(), most: most}
	if r.header == nil {
		r.header = make(http.Header)
	}
	return r
}

func (r *recorder) Header() http.Header { return r.header }

// WriteHeader takes the first status, as the server does. It drops the statuses that go before an
// answer (1xx). A 101 is an answer, but what comes after it could not be replayed.
func (r *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		r.server.WriteHeader(status) // net/http's panics; such an answer could not be replayed
		status = http.StatusInternalServerError
	}
	if status == http.StatusSwitchingProtocols && r.status == 0 {
		r.instead = "the protocol cannot be switched here"
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
	if r.instead == "" && r.body.Len()+len(b) > r.most {
		r.instead = tooLarge
	}
	if r.instead != "" {
		return 0, fmt.Errorf("httponceq: %s, and may have %d bytes", r.instead, r.most)
	}
	return r.body.Write(b)
}

const tooLarge = "the answer is too large"

// answer is what was recorded.
func (r *recorder) answer() *answer {
	if r.instead != "" {
		return failed(r.instead)
	}
	r.WriteHeader(http.StatusOK) // where the handler has answered nothing
	a := &answer{Status: r.status, Body: r.body.Bytes(), trailer: r.trailer()}
	a.headers(r.before, r.sent)
	return a
}

// failed is a 500 for good, because a part of an answer would be wrong, and the handler has done
// its work.
func failed(why string) *answer {
	instead := recorder{header: make(http.Header), most: DefaultMax}
	Problem(&instead, http.StatusInternalServerError, why)
	return instead.answer()
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
