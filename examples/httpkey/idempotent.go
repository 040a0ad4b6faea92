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
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // the client may be gone; its next request gets the same answer
}

var errServer = errors.New("the handler answered 5xx")

type jobKey struct{}

// jobOf is the job of a request, for its EffectKey.
func jobOf(ctx context.Context) *onceq.Job { return ctx.Value(jobKey{}).(*onceq.Job) }

// idempotent lets next answer once for each Idempotency-Key of a client. The answer is kept and replayed, unless it is a
// 5xx: then nothing was decided, and the next request runs again. It follows draft-ietf-httpapi-idempotency-key-header:
// 400 without a key, 409 while the first request is worked on, 422 for another request under a used key. An answer that is
// larger than the store takes is given once; later requests with its key get a 500.
func idempotent(p *onceq.Processor, client func(*http.Request) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.Trim(r.Header.Get("Idempotency-Key"), `"`) // the draft quotes it, most clients do not
		if name == "" || len(name) > 255 {
			problem(w, http.StatusBadRequest, "send an Idempotency-Key of 1 to 255 bytes")
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			problem(w, http.StatusRequestEntityTooLarge, err.Error())
			return
		case err != nil:
			problem(w, http.StatusBadRequest, err.Error())
			return
		}
		ran := false
		key := strconv.Quote(client(r)) + name // quoted, so that no client's name and key are another's
		a, err := onceq.Do(r.Context(), p, dedupe.Key{Key: key}, &onceq.DoOptions{Fingerprint: digest(r, body)},
			func(ctx context.Context, j *onceq.Job) (answer, error) {
				ran = true
				in := r.WithContext(context.WithValue(ctx, jobKey{}, j))
				in.Body = io.NopCloser(bytes.NewReader(body))
				out := &recorder{header: make(http.Header)}
				next.ServeHTTP(out, in)
				a := answer{cmp.Or(out.status, http.StatusOK), out.header, out.body.Bytes()}
				if a.Status >= 500 {
					return a, errServer
				}
				return a, nil
			})
		var busy *onceq.InProgressError
		var mismatch *onceq.MismatchError
		var notRun *onceq.NotRunError
		switch {
		case ran: // also where its end could not be recorded: the answer is true
			a.write(w)
		case err == nil:
			w.Header().Set("Idempotency-Replayed", "true")
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
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

// WriteHeader takes the first status, as the server does, and drops what goes before an answer.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status = status
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(b)
}
