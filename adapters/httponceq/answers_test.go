package httponceq_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/httponceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
)

// A refusal that the handler began after the request's end tells of that end, perhaps, so the next
// request runs. What succeeded, or was refused in time, is final.
func TestAnswersAfterTheEnd(t *testing.T) {
	all := func(int) bool { return true }
	for name, c := range map[string]struct {
		o        httponceq.Options
		status   int
		inTime   bool // the handler answers before the end, and returns after it
		byClient bool // the client breaks off, where Timeout does not end the run
		runs     int
		then     int // what the next request gets
	}{
		"refused late":          {status: 402, byClient: true, runs: 2, then: 201},
		"refused after Timeout": {o: httponceq.Options{Timeout: time.Second}, status: 404, runs: 2, then: 201},
		"whatever Keep says":    {o: httponceq.Options{Keep: all}, status: 499, byClient: true, runs: 2, then: 201},
		"refused in time":       {status: 402, byClient: true, inTime: true, runs: 1, then: 402},
		"done late":             {status: 202, byClient: true, runs: 1, then: 202},
		"elsewhere late":        {status: 303, byClient: true, runs: 1, then: 303},
		"gone, in time":         {status: 499, byClient: true, inTime: true, runs: 2, then: 201},
		"gone, kept in time":    {o: httponceq.Options{Keep: all}, status: 499, byClient: true, inTime: true, runs: 1, then: 499},
		"parked":                {o: httponceq.Options{Interrupted: dedupe.Park}, status: 402, byClient: true, runs: 1, then: 500},
		"parked, in time":       {o: httponceq.Options{Interrupted: dedupe.Park}, status: 402, byClient: true, inTime: true, runs: 1, then: 402},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				h, _ := server(t, c.o, func(w http.ResponseWriter, r *http.Request) {
					if runs++; runs > 1 {
						w.WriteHeader(http.StatusCreated)
						return
					}
					if c.inTime {
						w.WriteHeader(c.status)
					}
					<-r.Context().Done()
					w.WriteHeader(c.status)
				})
				ctx, end := context.WithCancel(t.Context())
				defer end()
				if c.byClient {
					time.AfterFunc(time.Second, end)
				}
				first := send(h, httptest.NewRequest(http.MethodPost, "/payments", nil).WithContext(ctx), "k")
				if first.Code != c.status {
					t.Errorf("the first answer is %d", first.Code)
				}
				if then := post(h, "k", ""); then.Code != c.then || runs != c.runs {
					t.Errorf("then %d, %d runs; want %d, %d", then.Code, runs, c.then, c.runs)
				}
				<-time.After(time.Minute)
			})
		})
	}
}

// Bytes that are no UTF-8 are replayed as they were.
func TestHeadersOfAnyBytes(t *testing.T) {
	const latin = "inline; filename=\"caf\xe9\""
	h, _ := server(t, httponceq.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Names"] = []string{"Zo\xeb", "Zoë", ""}
		w.Header().Set("Content-Disposition", latin)
		w.Header().Set("X-Text", "Zoë")
		w.Header()["Content-Type"] = nil // none is to be guessed
		fmt.Fprint(w, "<p>")
	})
	for i := range 2 {
		a := post(h, "k", "")
		want(t, a, 200, i > 0, "<p>")
		if got := fmt.Sprintf("%q", a.Header()["X-Names"]); got != fmt.Sprintf("%q", []string{"Zo\xeb", "Zoë", ""}) ||
			a.Header().Get("Content-Disposition") != latin || a.Header().Get("X-Text") != "Zoë" {
			t.Errorf("answer %d has %q", i+1, a.Header())
		}
		if kind, there := a.Header()["Content-Type"]; !there || kind != nil {
			t.Errorf("answer %d is of type %q", i+1, kind)
		}
	}
}

// On a server the first answer is the one of the handler alone, trailers included. A replay is the
// same without them.
func TestAnswersOfAServer(t *testing.T) {
	late := func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Early"] = []string{"1"}
		w.WriteHeader(http.StatusAccepted)
		w.Header()["X-Early"][0] = "2"
		w.Header().Set("X-Later", "1")
		_, _ = io.WriteString(w, "body")
	}
	declared := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Digest, x-count")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Digest", "9")
		w.Header().Set("X-Count", "4")
		w.Header().Set("X-Later", "1")
	}
	prefixed := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("body", 1<<12)) // long enough to go in chunks
		w.Header().Set(http.TrailerPrefix+"X-Digest", "9")
	}
	early := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Digest")
		w.Header().Set("X-Digest", "9")
		w.Header().Set(http.TrailerPrefix+"X-Count", "4")
		w.WriteHeader(http.StatusOK)
	}
	for name, c := range map[string]struct {
		f       http.HandlerFunc
		trailer bool
	}{"late": {late, false}, "declared": {declared, true}, "prefixed": {prefixed, true}, "early": {early, true}} {
		h, _ := server(t, httponceq.Options{Client: httponceq.OneClient}, c.f)
		ask := func(h http.Handler) (said, trailer string) {
			s := httptest.NewServer(h)
			defer s.Close()
			r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader("b")))
			r.Header.Set("Idempotency-Key", "k")
			a, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(name, err)
			}
			defer a.Body.Close()
			body, err := io.ReadAll(a.Body)
			if err != nil {
				t.Fatal(name, err)
			}
			for _, of := range []string{"Date", "Cache-Control", "Content-Length", "Idempotency-Replayed"} {
				a.Header.Del(of)
			}
			return fmt.Sprintf("%d %v %d", a.StatusCode, a.Header, len(body)), fmt.Sprint(a.Trailer)
		}
		plain, plainTrailer := ask(c.f)
		first, firstTrailer := ask(h)
		again, againTrailer := ask(h)
		if first != plain || firstTrailer != plainTrailer {
			t.Errorf("%s: the first answer is %s, %s; want %s, %s", name, first, firstTrailer, plain, plainTrailer)
		}
		if name == "early" {
			plain = strings.Replace(plain, "X-Digest:[9]", "", 1) // net/http sends such a one as both
		}
		if again != plain || againTrailer != "map[]" || c.trailer == (plainTrailer == "map[]") {
			t.Errorf("%s: the second answer is %s, %s; want %s", name, again, againTrailer, plain)
		}
	}
}

// A handler is told that a 204 and a 304 have no body, as net/http tells it.
func TestAnswersWithoutABody(t *testing.T) {
	for _, status := range []int{http.StatusNoContent, http.StatusNotModified} {
		var said error
		h, _ := server(t, httponceq.Options{}, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, said = io.WriteString(w, "body")
		})
		for range 2 {
			if a := post(h, "k", ""); a.Code != status || a.Body.Len() > 0 || !errors.Is(said, http.ErrBodyNotAllowed) {
				t.Errorf("%d: answered %d %q, and the handler was told %v", status, a.Code, a.Body, said)
			}
		}
	}
}
