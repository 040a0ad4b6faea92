package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
)

// answer is what is kept with a key, and replayed.
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

// onceOnly are the headers that belong to one exchange: they are given with the first answer, and not kept.
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

var errServer = errors.New("the handler answered 5xx")

type jobKey struct{}

// jobOf is the job of a request, for its EffectKey.
func jobOf(ctx context.Context) *onceq.Job { return ctx.Value(jobKey{}).(*onceq.Job) }

// most is how large a request or an answer may be, in bytes.
const most = 1 << 20

// idempotent lets next answer once for each Idempotency-Key of a client: keys are each client's own, so it must be told who asks, from
// the request's credentials; nobody else gets an answer. The answer is kept and replayed, unless it is a
// 5xx: then nothing was decided, and the next request runs again. It follows draft-ietf-httpapi-idempotency-key-header:
// 400 without a key, 409 while the first request is worked on, 422 for another request under a used key. An answer that is
// larger than the store takes is given once; later requests with its key get a 500, as all do where it has more than most
// bytes. Where an operator has resolved the job as done, there is no answer to give: 204.
func idempotent(p *onceq.Processor, client func(*http.Request) (name string, ok bool), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, ok := client(r)
		if !ok {
			w.Header().Set("WWW-Authenticate", `Basic realm="payments"`)
			problem(w, http.StatusUnauthorized, "say who you are")
			return
		}
		name := strings.Trim(r.Header.Get("Idempotency-Key"), `"`) // the draft quotes it, most clients do not
		if name == "" || len(name) > 255 {
			problem(w, http.StatusBadRequest, "send an Idempotency-Key of 1 to 255 bytes")
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			problem(w, http.StatusRequestEntityTooLarge, err.Error())
			return
		case err != nil:
			problem(w, http.StatusBadRequest, err.Error())
			return
		}
		var first *answer                // set where this request ran
		key := strconv.Quote(who) + name // quoted, so that no client's name and key are another's
		a, err := onceq.Do(r.Context(), p, dedupe.Key{Key: key}, &onceq.DoOptions{Fingerprint: digest(r, body)},
			func(ctx context.Context, j *onceq.Job) (answer, error) {
				in := r.WithContext(context.WithValue(ctx, jobKey{}, j))
				in.Body = io.NopCloser(bytes.NewReader(body))
				out := &recorder{header: make(http.Header)}
				next.ServeHTTP(out, in)
				first = out.answer()
				if first.Status >= 500 && !out.overflow {
					return *first, errServer
				}
				return first.kept(), nil
			})
		var busy *onceq.InProgressError
		var mismatch *onceq.MismatchError
		var notRun *onceq.NotRunError
		switch {
		case first != nil: // also where its end could not be recorded: the answer is true
			first.write(w)
		case err == nil:
			w.Header().Set("Idempotency-Replayed", "true")
			a.Status = cmp.Or(a.Status, http.StatusNoContent)
			a.write(w)
		case errors.As(err, &busy):
			retryAfter(w, busy.RetryAfter)
			problem(w, http.StatusConflict, "a request with this Idempotency-Key is in progress")
		case errors.As(err, &mismatch):
			problem(w, http.StatusUnprocessableEntity, "this Idempotency-Key was used for another request")
		case errors.Is(err, dedupe.ErrBadKey):
			problem(w, http.StatusBadRequest, "the Idempotency-Key is not UTF-8 text")
		case errors.As(err, &notRun):
			retryAfter(w, time.Second)
			problem(w, http.StatusServiceUnavailable, "nothing was done; send the request again")
		default: // parked or failed: a person must look at it
			problem(w, http.StatusInternalServerError, "the request cannot be completed")
		}
	})
}

// digest tells one request from another under the same key.
func digest(r *http.Request, body []byte) []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s\n", r.Method, r.URL.RequestURI())
	h.Write(body)
	return h.Sum(nil)
}

func retryAfter(w http.ResponseWriter, d time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(d.Seconds()))))
}

// problem answers as RFC 9457 says.
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(status), "status": status, "detail": detail})
}

// recorder keeps what a handler answers.
type recorder struct {
	header   http.Header
	status   int
	body     bytes.Buffer
	overflow bool // it would not stop
}

func (r *recorder) Header() http.Header { return r.header }

// WriteHeader takes the first status, as the server does, and drops what goes before an answer.
func (r *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // as the server does: it could not be replayed
	}
	if r.status == 0 && status >= 200 {
		r.status = status
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if r.overflow = r.overflow || r.body.Len()+len(b) > most; r.overflow {
		return 0, fmt.Errorf("an answer of more than %d bytes", most)
	}
	return r.body.Write(b)
}

// answer is what was recorded. Of one that is too large a part would be wrong, and the handler has done its work: it is a 500 for good.
func (r *recorder) answer() *answer {
	if r.overflow {
		instead := recorder{header: make(http.Header)}
		problem(&instead, http.StatusInternalServerError, "the answer is too large")
		return instead.answer()
	}
	return &answer{cmp.Or(r.status, http.StatusOK), r.header, r.body.Bytes()}
}
