package httponceq

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
)

// This file owns the middleware: its options, and what becomes of a request. The server's
// goroutines call serve, for many requests at once. What New makes never changes, so nothing is
// locked.

// DefaultMax is how many bytes a request's body may have, and an answer's, where Options do not
// say.
const DefaultMax = 1 << 20

// maxKey is how long an Idempotency-Key may be, in bytes.
const maxKey = 255

// Options say how requests are told apart, and which answers are kept.
type Options struct {
	// Client names who asks, from the request's credentials; false = nobody that is known, and the
	// answer is 401. Keys are each client's own, so that nobody gets another client's answer.
	// Required; [OneClient] says aloud that all requests come from one client. A name, quoted, and
	// a key may have [dedupe.MaxKey] (1,024) bytes together; beyond that the answer is 400. The
	// hosts of a server share their keys, because a client may ask again at another address. Where
	// they do different work, make r.Host a part of the name. The server's goroutines call it.
	Client func(r *http.Request) (name string, ok bool)
	// Challenge is the WWW-Authenticate header of a 401, such as `Basic realm="payments"`. Default:
	// none.
	Challenge string
	// Optional lets requests without a key through, each of which runs. Default: they get a 400.
	Optional bool
	// MaxBody is how many bytes a request's body may have. The body is read before the handler
	// runs, so that its digest can tell requests apart. 0 = DefaultMax.
	MaxBody int64
	// MaxAnswer is how many bytes an answer's body may have. The writes beyond that fail, and the
	// answer is a 500. The 500 is kept, because the request's effect has happened. The body travels
	// in base64 within JSON, so the store must take 4/3 of it and the headers; New refuses more
	// than the store takes. 0 = what the store takes beside 16 KiB for headers, DefaultMax at most:
	// 774,144 bytes for a store that keeps results of 1 MiB.
	MaxAnswer int
	// Wait is how long a request waits while another one with its key is worked on, before it gets
	// a 409. 0 = not at all; else at least 1 ms. The server's WriteTimeout must be longer.
	Wait time.Duration
	// Timeout bounds one run of the handler, whose context ends then; at least 1 ms. 0 = the
	// Processor's Defaults.Timeout.
	Timeout time.Duration
	// Interrupted says what becomes of a request whose process died while its handler ran. With
	// dedupe.Rerun (the default), the next request runs. With dedupe.Park, later requests get a 500
	// until an operator has looked.
	Interrupted dedupe.Policy
	// Docs is the address of a page that tells clients how to use the header. The answers 400, 409
	// and 422 name it, in a Link header and as the problem's type. Default: none.
	Docs string
	// Keep reports whether an answer with that status is final, and kept. After one that is not,
	// the next request with the key runs again. Default: all but 5xx, 408 (timeout), 425 (too
	// early), 429 (too many requests) and 499 (the client has gone), which decide nothing. An
	// answer of 400 or above that the handler began after its context had ended is never kept:
	// nobody has got it, and it may tell of that end alone. Under dedupe.Park such a request is
	// parked.
	Keep func(status int) bool
}

// OneClient is an Options.Client for servers whose requests all come from one client.
func OneClient(*http.Request) (string, bool) { return "", true }

// clientGone is the status that proxies and gateways have for a client that broke off.
const clientGone = 499

func decides(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, clientGone:
		return false
	}
	return status < 500
}

// withDefaults takes the longest result that the store keeps; 0 = any.
func (o Options) withDefaults(result int) Options {
	const headers = 16 << 10
	fits := DefaultMax
	if result > 0 {
		fits = min(fits, max(1, (result-headers)/4*3))
	}
	o.MaxBody, o.MaxAnswer = cmp.Or(o.MaxBody, DefaultMax), cmp.Or(o.MaxAnswer, fits)
	if o.Keep == nil {
		o.Keep = decides
	}
	return o
}

func (o *Options) check(result int) error {
	docs, err := url.Parse(o.Docs)
	switch {
	case err != nil || o.Docs != "" && (docs.Host == "" || strings.ContainsAny(o.Docs, "<> ")):
		return fmt.Errorf("httponceq: Options.Docs is %q, want an address of the form https://host/path", o.Docs)
	case result > 0 && base64.StdEncoding.EncodedLen(o.MaxAnswer) > result:
		return fmt.Errorf("httponceq: Options.MaxAnswer is %d, which takes 4/3 of it, and the store keeps results of %d bytes at most", o.MaxAnswer, result)
	case o.Client == nil:
		return errors.New("httponceq: Options.Client is nil: keys are each client's own; say OneClient where there is one")
	case o.MaxBody < 1:
		return fmt.Errorf("httponceq: Options.MaxBody is %d, want 1 or more", o.MaxBody)
	case o.MaxAnswer < 1:
		return fmt.Errorf("httponceq: Options.MaxAnswer is %d, want 1 or more", o.MaxAnswer)
	case durations.IsBare(o.Wait):
		return fmt.Errorf("httponceq: Options.Wait: %s", durations.AskUnit(o.Wait))
	case durations.IsBare(o.Timeout):
		return fmt.Errorf("httponceq: Options.Timeout: %s", durations.AskUnit(o.Timeout))
	case strings.ContainsAny(o.Challenge, "\r\n"):
		return errors.New("httponceq: Options.Challenge has more than one line")
	}
	return nil
}

// New makes the middleware. It may be given to any number of handlers. These share their keys: a
// key that was used for another path gets a 422. The Processor needs a store; one that is for
// [onceq.Do] only will do. New reports mistakes in o, and does no I/O.
func New(p *onceq.Processor, o Options) (func(http.Handler) http.Handler, error) {
	if p == nil {
		return nil, errors.New("httponceq: New: the Processor is nil")
	}
	result := p.MaxResult()
	o = o.withDefaults(result)
	if err := o.check(result); err != nil {
		return nil, err
	}
	g := &guard{p: p, o: o}
	if err := g.probe(); err != nil {
		return nil, fmt.Errorf("httponceq: %w", err)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
	}, nil
}

// guard is what New makes.
type guard struct {
	p *onceq.Processor
	o Options
}

func (g *guard) do() *onceq.DoOptions {
	return &onceq.DoOptions{Wait: g.o.Wait, Timeout: g.o.Timeout, Interrupted: g.o.Interrupted}
}

// probe finds what Do would refuse in every request. Its context has ended, so it asks nothing of
// the store.
func (g *guard) probe() error {
	ctx, end := context.WithCancel(context.Background())
	end()
	_, err := onceq.Do(ctx, g.p, dedupe.Key{Key: "probe"}, g.do(), func(context.Context, *onceq.Job) (int, error) { return 0, nil })
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

type jobKey struct{}

// Job is the job of a request that the middleware has let through; nil where there is none, as for
// a GET.
func Job(ctx context.Context) *onceq.Job {
	j, _ := ctx.Value(jobKey{}).(*onceq.Job)
	return j
}

func (g *guard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	sent := r.Header.Values("Idempotency-Key")
	if isSafe(r.Method) || len(sent) == 0 && g.o.Optional {
		next.ServeHTTP(w, r)
		return
	}
	who, ok := g.o.Client(r)
	if !ok {
		if g.o.Challenge != "" {
			w.Header().Set("WWW-Authenticate", g.o.Challenge)
		}
		Problem(w, http.StatusUnauthorized, "say who you are")
		return
	}
	if len(sent) > 1 {
		g.problem(w, http.StatusBadRequest, "send one Idempotency-Key, not several")
		return
	}
	name, ok := keyOf(strings.Join(sent, ""))
	if !ok {
		g.problem(w, http.StatusBadRequest, "the Idempotency-Key is no string as RFC 8941 has it, and no plain text")
		return
	}
	if name == "" || len(name) > maxKey {
		g.problem(w, http.StatusBadRequest, "send an Idempotency-Key of 1 to 255 bytes")
		return
	}
	if r.Body == nil { // as in a request that was made by hand
		r = r.WithContext(r.Context())
		r.Body = http.NoBody
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, g.o.MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		Problem(w, http.StatusRequestEntityTooLarge, err.Error())
		return
	case err != nil:
		Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	o := g.do()
	if o.Fingerprint, err = digest(r, body); err != nil {
		Problem(w, http.StatusInternalServerError, err.Error())
		return
	}
	var first *answer                // set where this request ran
	key := strconv.Quote(who) + name // quoted, so that no client's name and key are another's
	a, err := onceq.Do(r.Context(), g.p, dedupe.Key{Key: key}, o, func(ctx context.Context, j *onceq.Job) (answer, error) {
		in := r.WithContext(context.WithValue(ctx, jobKey{}, j))
		in.Body = io.NopCloser(bytes.NewReader(body))
		out := newRecorder(w, ctx, g.o.MaxAnswer)
		next.ServeHTTP(out, in)
		first = out.answer()
		switch {
		case out.instead != "":
		case !g.o.Keep(first.Status):
			return *first, fmt.Errorf("httponceq: the answer %d decides nothing, and is not kept", first.Status)
		case out.ended != nil && first.Status >= 400:
			return *first, fmt.Errorf("httponceq: the answer %d came after the request had ended, and is not kept: %w", first.Status, out.ended)
		}
		kept := first.kept()
		if most := g.p.MaxResult(); most > 0 && kept.size() > most { // by its headers
			first = failed(tooLarge)
			kept = first.kept()
		}
		return kept, nil
	})
	if first != nil { // also where its end could not be recorded: the answer is true
		first.write(w)
		return
	}
	g.refuse(w, &a, err)
}

// refuse answers a request whose handler has not run.
func (g *guard) refuse(w http.ResponseWriter, a *answer, err error) {
	var busy *onceq.InProgressError
	var mismatch *onceq.MismatchError
	var notRun *onceq.NotRunError
	switch {
	case err == nil:
		w.Header().Set("Idempotency-Replayed", "true")
		a.Status = cmp.Or(a.Status, http.StatusNoContent)
		a.write(w)
	case errors.As(err, &busy):
		retryAfter(w, busy.RetryAfter)
		g.problem(w, http.StatusConflict, "a request with this Idempotency-Key is in progress")
	case errors.As(err, &mismatch):
		g.problem(w, http.StatusUnprocessableEntity, "this Idempotency-Key was used for another request")
	case errors.Is(err, dedupe.ErrBadKey):
		g.problem(w, http.StatusBadRequest, "the Idempotency-Key is not UTF-8 text, or too long")
	case errors.As(err, &notRun):
		// Spread, because all who have waited for the store are answered together.
		retryAfter(w, time.Second+rand.N(4*time.Second))
		Problem(w, http.StatusServiceUnavailable, "this request did nothing; send it again with the same Idempotency-Key")
	default: // parked or failed: a person must look at it
		Problem(w, http.StatusInternalServerError, "the request cannot be completed")
	}
}

// keyOf is the key that a header names. The draft quotes it, as RFC 8941 has strings, and most
// clients do not; `"k"` and `k` are one key. Parameters behind a string say nothing about the key.
// It reports false for what is neither such a string nor text without quotes in its beginning.
func keyOf(sent string) (name string, ok bool) {
	text, quoted := strings.CutPrefix(sent, `"`)
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return "", false
	}
	if !quoted {
		return text, true
	}
	var key strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"':
			rest := strings.TrimLeft(text[i+1:], " ")
			return key.String(), rest == "" || rest[0] == ';'
		case '\\':
			if i++; i == len(text) || text[i] != '"' && text[i] != '\\' {
				return "", false
			}
			key.WriteByte(text[i])
		default:
			key.WriteByte(c)
		}
	}
	return "", false // without its end
}

func isSafe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

func retryAfter(w http.ResponseWriter, d time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(d.Seconds()))))
}

// problem is a Problem about the header, which names the page that tells of it.
func (g *guard) problem(w http.ResponseWriter, status int, detail string) {
	if g.o.Docs != "" {
		w.Header().Add("Link", "<"+g.o.Docs+`>; rel="describedby"`)
	}
	problem(w, status, detail, g.o.Docs)
}

// Problem answers with a status and a sentence, as RFC 9457 says. The middleware refuses with it,
// and handlers that wish to answer alike may call it. Its members are title, status and detail.
func Problem(w http.ResponseWriter, status int, detail string) { problem(w, status, detail, "") }

func problem(w http.ResponseWriter, status int, detail, docs string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	members := map[string]any{"title": http.StatusText(status), "status": status, "detail": detail}
	if docs != "" {
		members["type"] = docs
	}
	_ = json.NewEncoder(w).Encode(members)
}
