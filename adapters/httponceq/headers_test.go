package httponceq_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/onceq/onceq/adapters/httponceq"
	"github.com/onceq/onceq/internal/must"
)

// The rule: the first answer is what it would be without the middleware, headers of handlers
// outside among it. Else the cookie of a session is lost as soon as the handler sets one of its
// own. In a replay the handlers outside say anew what is theirs, and what the handler made of it is
// kept.
func TestHeadersOfHandlersOutside(t *testing.T) {
	requests := 0
	outer := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests++
			http.SetCookie(w, &http.Cookie{Name: "session", Value: fmt.Sprint(requests)})
			w.Header().Set("X-Request-Id", fmt.Sprint(requests))
			w.Header().Add("Vary", "Origin")
			w.Header().Set("X-Drop", "1")
			w.Header().Set("X-Change", "outer")
			w.Header()["X-Bytes"] = []string{"a"}
			w.Header().Set("Cache-Control", "no-store")
			next.ServeHTTP(w, r)
		})
	}
	seen := ""
	f := func(w http.ResponseWriter, _ *http.Request) {
		seen = w.Header().Get("X-Request-Id")
		http.SetCookie(w, &http.Cookie{Name: "cart", Value: "1"})
		w.Header().Add("Vary", "Accept")
		w.Header().Add("X-Bytes", "\xff")
		w.Header().Del("X-Drop")
		w.Header().Set("X-Change", "inner")
		w.Header().Set("Location", "/orders/1")
		w.WriteHeader(http.StatusCreated)
	}
	once, _ := server(t, httponceq.Options{}, f)
	bare := post(outer(http.HandlerFunc(f)), "k", "")
	if seen != "1" {
		t.Errorf("without the middleware the handler saw %q", seen)
	}
	requests = 0
	first := post(outer(once), "k", "")
	if seen != "1" || !maps.EqualFunc(first.Header(), bare.Header(), slices.Equal[[]string]) {
		t.Errorf("the handler saw %q, and the answer has\n%v, want\n%v", seen, first.Header(), bare.Header())
	}
	again := post(outer(once), "k", "")
	for _, h := range []http.Header{bare.Header(), again.Header()} {
		h.Del("Idempotency-Replayed")
	}
	wanted := bare.Header().Clone()
	wanted.Set("X-Request-Id", "2")
	wanted["Set-Cookie"] = []string{"session=2"}
	if !maps.EqualFunc(again.Header(), wanted, slices.Equal[[]string]) {
		t.Errorf("the replay has\n%v, want\n%v", again.Header(), wanted)
	}
}

// A length that the body does not have would break the connection at each replay.
func TestWrongContentLength(t *testing.T) {
	h, _ := server(t, httponceq.Options{Client: httponceq.OneClient}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", r.URL.Query().Get("n"))
		_, _ = io.WriteString(w, "short")
	})
	s := httptest.NewServer(h)
	defer s.Close()
	for _, n := range []string{"100", "5"} {
		for range 2 {
			r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"?n="+n, nil))
			r.Header.Set("Idempotency-Key", n)
			a, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(a.Body)
			a.Body.Close()
			if string(body) != "short" || err != nil || a.ContentLength != 5 {
				t.Errorf("%s declared: %q, %v, %d", n, body, err, a.ContentLength)
			}
		}
	}
}

// What comes after a 101 cannot be replayed, so it is no answer.
func TestSwitchedProtocol(t *testing.T) {
	runs := 0
	h, _ := server(t, httponceq.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		runs++
		w.WriteHeader(http.StatusSwitchingProtocols)
	})
	for i := range 2 {
		if a := post(h, "k", ""); a.Code != 500 || !strings.Contains(a.Body.String(), "protocol") || runs != 1 {
			t.Errorf("answer %d: %d %s, %d runs", i, a.Code, a.Body, runs)
		}
	}
}
