package httponceq_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/httponceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/onceqtest"
)

// basic tells clients apart by their names.
func basic(r *http.Request) (string, bool) {
	name, _, ok := r.BasicAuth()
	return name, ok
}

const scope = "payments"

// server is the middleware around f, on a store of its own.
func server(t *testing.T, o httponceq.Options, f http.HandlerFunc) (http.Handler, dedupe.Store) {
	t.Helper()
	store := must.Get(memstore.New(nil))
	p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: scope}))
	if o.Client == nil {
		o.Client = basic
	}
	once := must.Get(httponceq.New(p, o))
	return once(f), store
}

// ask sends a request as a client; an empty name sends no credentials.
func ask(h http.Handler, method, client, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/payments", strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	if client != "" {
		r.SetBasicAuth(client, "")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func post(h http.Handler, key, body string) *httptest.ResponseRecorder {
	return ask(h, http.MethodPost, "alice", key, body)
}

// want checks an answer.
func want(t *testing.T, a *httptest.ResponseRecorder, status int, replayed bool, text string) {
	t.Helper()
	if a.Code != status || (a.Header().Get("Idempotency-Replayed") == "true") != replayed || !strings.Contains(a.Body.String(), text) {
		t.Errorf("answered %d, replayed %q: %s; want %d, %v, %q", a.Code, a.Header().Get("Idempotency-Replayed"), a.Body, status, replayed, text)
	}
	if status >= 400 && a.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("a refusal of type %q", a.Header().Get("Content-Type"))
	}
}

// counting answers how often it has run.
func counting(runs *int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		*runs++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "run %d", *runs)
	}
}

func TestAnswersOnce(t *testing.T) {
	runs := 0
	h, _ := server(t, httponceq.Options{}, counting(&runs))
	want(t, post(h, "k", "a"), 201, false, "run 1")
	want(t, post(h, "k", "a"), 201, true, "run 1")
	want(t, post(h, `"k"`, "a"), 201, true, "run 1") // as the draft quotes it
	want(t, post(h, "k-2", "a"), 201, false, "run 2")
	want(t, post(h, "k", "b"), 422, false, "another request")
	want(t, ask(h, http.MethodPut, "alice", "k", "a"), 422, false, "another request")
}

func TestRefuses(t *testing.T) {
	runs := 0
	h, _ := server(t, httponceq.Options{MaxBody: 10, Challenge: "Basic"}, counting(&runs))
	want(t, post(h, "", "a"), 400, false, "Idempotency-Key")
	want(t, post(h, strings.Repeat("k", 256), "a"), 400, false, "255")
	want(t, post(h, "\xff", "a"), 400, false, "UTF-8")
	want(t, post(h, "k", "12345678901"), 413, false, "too large")
	a := ask(h, http.MethodPost, "", "k", "a")
	want(t, a, 401, false, "who you are")
	if a.Header().Get("WWW-Authenticate") != "Basic" {
		t.Errorf("the challenge is %q", a.Header().Get("WWW-Authenticate"))
	}
	r := httptest.NewRequest(http.MethodPost, "/payments", io.MultiReader(strings.NewReader("a"), broken{}))
	r.Header.Set("Idempotency-Key", "k")
	r.SetBasicAuth("alice", "")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	want(t, w, 400, false, "broken")
	if runs != 0 {
		t.Errorf("%d runs", runs)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the connection is broken") }

// What changes nothing needs no key, and nor does what Optional lets through.
func TestPassesBy(t *testing.T) {
	runs := 0
	h, _ := server(t, httponceq.Options{}, counting(&runs))
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace} {
		ask(h, m, "", "", "")
		ask(h, m, "alice", "k", "")
	}
	if runs != 8 {
		t.Errorf("%d runs of requests that change nothing, want 8", runs)
	}
	h, _ = server(t, httponceq.Options{Optional: true}, counting(&runs))
	want(t, post(h, "", ""), 201, false, "run 9")
	want(t, post(h, "", ""), 201, false, "run 10")
	want(t, post(h, "k", ""), 201, false, "run 11")
	want(t, post(h, "k", ""), 201, true, "run 11")
}

// No client gets another's answer, whatever they are called.
func TestClientsAreKeptApart(t *testing.T) {
	runs := 0
	h, _ := server(t, httponceq.Options{}, counting(&runs))
	for i, c := range [][2]string{{"a", "b c"}, {"a b", "c"}, {"a", `"\" c"`}, {`a\"`, "c"}} {
		want(t, ask(h, http.MethodPost, c[0], c[1], ""), 201, false, fmt.Sprint("run ", i+1))
	}
	want(t, ask(h, http.MethodPost, "a b", "c", ""), 201, true, "run 2")
	h, _ = server(t, httponceq.Options{Client: httponceq.OneClient}, counting(&runs))
	want(t, ask(h, http.MethodPost, "", "k", ""), 201, false, "run 5")
	want(t, ask(h, http.MethodPost, "b", "k", ""), 201, true, "run 5")
}

// The recorder takes a handler's answer as the server does; what decides nothing is not kept.
func TestAnswers(t *testing.T) {
	status := func(codes ...int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for _, c := range codes {
				w.WriteHeader(c)
			}
		}
	}
	only := func(kept ...int) func(int) bool { return func(s int) bool { return slices.Contains(kept, s) } }
	for name, c := range map[string]struct {
		f      http.HandlerFunc
		keep   func(int) bool
		status int
		runs   int // of two requests
	}{
		"nothing":          {func(http.ResponseWriter, *http.Request) {}, nil, 200, 1},
		"first wins":       {status(201, 500), nil, 201, 1},
		"body, then error": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x"); w.WriteHeader(500) }, nil, 200, 1},
		"hints":            {status(103, 204), nil, 204, 1},
		"declined":         {status(402), nil, 402, 1},
		"conflict":         {status(409), nil, 409, 1},
		"timeout":          {status(408), nil, 408, 2},
		"too early":        {status(425), nil, 425, 2},
		"too many":         {status(429), nil, 429, 2},
		"5xx":              {status(503), nil, 503, 2},
		"5xx kept":         {status(503), only(503), 503, 1},
		"2xx not kept":     {status(202), only(503), 202, 2},
	} {
		runs := 0
		h, _ := server(t, httponceq.Options{Keep: c.keep}, func(w http.ResponseWriter, r *http.Request) { runs++; c.f(w, r) })
		for range 2 {
			if a := post(h, "k", ""); a.Code != c.status {
				t.Errorf("%s: answered %d, want %d", name, a.Code, c.status)
			}
		}
		if runs != c.runs {
			t.Errorf("%s: %d runs, want %d", name, runs, c.runs)
		}
	}
}

// panics calls f and answers what it panicked with.
func panics(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// A panic is the server's, and the next request runs.
func TestPanics(t *testing.T) {
	runs := 0
	h, _ := server(t, httponceq.Options{}, func(w http.ResponseWriter, r *http.Request) {
		if runs == 0 {
			runs++
			panic(http.ErrAbortHandler)
		}
		counting(&runs)(w, r)
	})
	if v := panics(func() { post(h, "k", "") }); v != http.ErrAbortHandler {
		t.Errorf("panicked with %v", v)
	}
	want(t, post(h, "k", ""), 201, false, "run 2")
	for _, status := range []int{0, 99, 1000} { // the server refuses them, before they are kept
		h, _ := server(t, httponceq.Options{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		for range 2 {
			if panics(func() { post(h, "k", "") }) == nil {
				t.Errorf("a status %d is taken", status)
			}
		}
	}
}

// An answer without end costs no memory without end, and its request does not run again. An answer
// that the store does not take is given once, and its request does not run again, either.
func TestAnswersAreBounded(t *testing.T) {
	runs, written := 0, 0
	h, _ := server(t, httponceq.Options{MaxAnswer: 1 << 10}, func(w http.ResponseWriter, _ *http.Request) {
		runs++
		for {
			n, err := w.Write(make([]byte, 1<<8))
			if written += n; err != nil {
				return
			}
		}
	})
	for i := range 2 {
		want(t, post(h, "k", ""), 500, i > 0, "too large")
	}
	if runs != 1 || written != 1<<10 {
		t.Errorf("%d runs, %d bytes", runs, written)
	}
}

// The rule: by default a client gets no first answer that its next request would not get. The
// memory store keeps results of 1 MiB, so that 774,144 bytes and usual headers are the most.
func TestAnswersThatTheStoreKeeps(t *testing.T) {
	const most = (1<<20 - 16<<10) / 4 * 3
	for name, c := range map[string]struct {
		body, header int
		status       int
		text         string
	}{
		"the longest":   {body: most, status: 201, text: "xxx"},
		"one more":      {body: most + 1, status: 500, text: "too large"},
		"large headers": {body: most, header: 17 << 10, status: 500, text: "too large"},
	} {
		runs := 0
		h, _ := server(t, httponceq.Options{}, func(w http.ResponseWriter, _ *http.Request) {
			runs++
			w.Header().Set("X-Long", strings.Repeat("y", c.header))
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, strings.Repeat("x", c.body))
		})
		for i := range 2 {
			a := post(h, "k", "")
			if a.Code != c.status || !strings.Contains(a.Body.String(), c.text) || (a.Header().Get("Idempotency-Replayed") != "") != (i > 0) {
				t.Errorf("%s: answer %d is a %d of %d bytes", name, i, a.Code, a.Body.Len())
			}
		}
		if runs != 1 {
			t.Errorf("%s: %d runs", name, runs)
		}
	}
}

// What belongs to one exchange is not given again: a cookie least of all.
func TestHeadersOfOneExchange(t *testing.T) {
	h, _ := server(t, httponceq.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range map[string]string{
			"Set-Cookie": "session=1", "Date": "then", "Connection": "X-Hop", "X-Hop": "1", "Trailer": "X", "Upgrade": "h", "Location": "/payments/1",
			"Cache-Control": "public",
		} {
			w.Header().Set(name, value)
		}
		w.WriteHeader(http.StatusCreated)
	})
	a := post(h, "k", "")
	if a.Header().Get("Set-Cookie") != "session=1" || a.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("the first answer has %v", a.Header())
	}
	a = post(h, "k", "")
	if w := (http.Header{"Location": {"/payments/1"}, "Cache-Control": {"no-store"}, "Idempotency-Replayed": {"true"}}); !maps.EqualFunc(a.Header(), w, slices.Equal[[]string]) {
		t.Errorf("the second answer has %v, want %v", a.Header(), w)
	}
}

// An operator has said that the job is done; nobody knows its answer.
func TestResolvedByAnOperator(t *testing.T) {
	runs := 0
	h, store := server(t, httponceq.Options{Interrupted: dedupe.Park}, func(http.ResponseWriter, *http.Request) {
		runs++
		panic(http.ErrAbortHandler)
	})
	panics(func() { post(h, "k", "") })
	want(t, post(h, "k", ""), 500, false, "cannot be completed")
	key := dedupe.Key{Scope: scope, Key: `"alice"k`}
	rs, err := store.Get(t.Context(), []dedupe.Key{key})
	if err != nil || rs[0] == nil {
		t.Fatal(rs, err)
	}
	if err := dedupe.Resolve(t.Context(), store, key, rs[0].Fence, dedupe.Done, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		want(t, post(h, "k", ""), 204, true, "")
	}
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
}

// Who asks while the first request is worked on is told to wait, or waits.
func TestInProgress(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Minute, 2 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			runs := 0
			h, _ := server(t, httponceq.Options{Wait: wait}, func(w http.ResponseWriter, r *http.Request) {
				<-time.After(time.Hour)
				counting(&runs)(w, r)
			})
			first := make(chan *httptest.ResponseRecorder, 1)
			go func() { first <- post(h, "k", "") }()
			<-time.After(5 * time.Second)
			began := time.Now()
			a := post(h, "k", "")
			if wait > time.Hour {
				want(t, a, 201, true, "run 1")
			} else {
				want(t, a, 409, false, "in progress")
				// Rounded up, because 0 would be "at once", in a storm.
				if took := time.Since(began); took != wait || strings.TrimLeft(a.Header().Get("Retry-After"), "0") == "" {
					t.Errorf("answered after %v, %v", took, a.Header())
				}
			}
			want(t, <-first, 201, false, "run 1")
			want(t, post(h, "k", ""), 201, true, "run 1")
			<-time.After(time.Minute) // for a beat that is still in flight
		})
	}
}

// The handler gets the request's body, a job, and a context that ends after Timeout.
func TestHandlersRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := server(t, httponceq.Options{Timeout: time.Second}, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			j := httponceq.Job(r.Context())
			if string(body) != "body" || err != nil || j.Key() != (dedupe.Key{Scope: scope, Key: `"alice"k`}) || j.EffectKey("x") == "" {
				t.Errorf("got %q, %v, %v", body, err, j)
			}
			<-r.Context().Done()
			if !errors.Is(context.Cause(r.Context()), onceq.ErrTimeout) {
				t.Errorf("it ends with %v", context.Cause(r.Context()))
			}
			fmt.Fprint(w, "ok")
		})
		want(t, post(h, "k", "body"), 200, false, "ok")
	})
	if httponceq.Job(t.Context()) != nil {
		t.Error("a job outside a request")
	}
}

func TestStoreThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := rig.NewStore(t)
		store.Fails(errors.New("no connection"), onceqtest.Claim, onceqtest.Settle)
		p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: scope}))
		once := must.Get(httponceq.New(p, httponceq.Options{Client: httponceq.OneClient}))
		runs, spread := 0, make(map[int]bool)
		for i := range 32 { // all who have waited for the store are answered together
			a := post(once(counting(&runs)), fmt.Sprint("k-", i), "")
			want(t, a, 503, false, "this request did nothing")
			after, err := strconv.Atoi(a.Header().Get("Retry-After"))
			if runs != 0 || err != nil || after < 1 || after > 5 {
				t.Errorf("%d runs, %v", runs, a.Header())
			}
			spread[after] = true
		}
		if len(spread) < 3 { // fewer by chance: once in some 10^8 runs
			t.Errorf("they are told to come again after %v s", spread)
		}
		<-time.After(time.Minute)
	})
}

func TestNewRefuses(t *testing.T) {
	store := must.Get(memstore.New(nil))
	with := func(s dedupe.Store) *onceq.Processor {
		return must.Get(onceq.NewProcessor(onceq.ProcessorConfig{Store: s, Scope: scope}))
	}
	for text, c := range map[string]struct {
		p *onceq.Processor
		o httponceq.Options
	}{
		"Options.Client":    {with(store), httponceq.Options{}},
		"Options.MaxBody":   {with(store), httponceq.Options{Client: basic, MaxBody: -1}},
		"Options.MaxAnswer": {with(store), httponceq.Options{Client: basic, MaxAnswer: -1}},
		"Options.MaxAnswer is 786433, which takes 4/3": {with(store), httponceq.Options{Client: basic, MaxAnswer: 1<<20*3/4 + 1}},
		"Options.Docs":      {with(store), httponceq.Options{Client: basic, Docs: "keys.html"}},
		"Options.Challenge": {with(store), httponceq.Options{Client: basic, Challenge: "a\nb"}},
		"Wait":              {with(store), httponceq.Options{Client: basic, Wait: -1}},
		"httponceq: Options.Wait: 5ns is below 1ms; is its unit missing":    {with(store), httponceq.Options{Client: basic, Wait: 5}},
		"httponceq: Options.Timeout: 5ns is below 1ms; is its unit missing": {with(store), httponceq.Options{Client: basic, Timeout: 5}},
		"Timeout":                              {with(store), httponceq.Options{Client: basic, Timeout: -1}},
		"Interrupted":                          {with(store), httponceq.Options{Client: basic, Interrupted: 9}},
		"httponceq: New: the Processor is nil": {nil, httponceq.Options{Client: basic}},
		"no dedupe store":                      {with(onceq.NoStore), httponceq.Options{Client: basic}},
	} {
		if _, err := httponceq.New(c.p, c.o); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("the error is %v, want %q", err, text)
		}
	}
	if n := probed(t, store); n != nil {
		t.Errorf("the probe has left %v", n)
	}
}

func probed(t *testing.T, s dedupe.Store) *dedupe.Record {
	t.Helper()
	rs, err := s.Get(t.Context(), []dedupe.Key{{Scope: scope, Key: "probe"}})
	if err != nil {
		t.Fatal(err)
	}
	return rs[0]
}
