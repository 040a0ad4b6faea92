package httponceq_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/httponceq"
	"github.com/onceq/onceq/internal/must"
)

// send gives a request with a key to h.
func send(h http.Handler, r *http.Request, key string) *httptest.ResponseRecorder {
	r.Header.Set("Idempotency-Key", key)
	r.SetBasicAuth("alice", "")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Handlers outside of the middleware may change the path. Requests are told apart by what the
// client sent, and by what they became.
func TestPathsThatOthersChange(t *testing.T) {
	runs := 0
	h, _ := server(t, httponceq.Options{}, counting(&runs))
	stripped := http.StripPrefix("/eu", http.StripPrefix("/orders", h))
	to := func(h http.Handler, path string) *httptest.ResponseRecorder {
		return send(h, httptest.NewRequest(http.MethodPost, path, strings.NewReader("a")), "k")
	}
	want(t, to(stripped, "/eu/orders/7?a=1"), 201, false, "run 1")
	want(t, to(stripped, "/eu/orders/7?a=1"), 201, true, "run 1")
	want(t, to(h, "/7?a=1"), 422, false, "another request")
	want(t, to(http.StripPrefix("/us/orders", h), "/us/orders/7?a=1"), 422, false, "another request")
	want(t, to(stripped, "/eu/orders/7?a=2"), 422, false, "another request")
	want(t, to(http.StripPrefix("/eu", h), "/eu/orders/7?a=1"), 422, false, "another request")
	want(t, to(stripped, "http://proxy.example/eu/orders/7?a=1"), 201, true, "run 1") // as a proxy may write it
	r := httptest.NewRequest(http.MethodPost, "/7?a=1", strings.NewReader("a"))
	r.RequestURI = "" // of no server
	want(t, send(h, r, "k-2"), 201, false, "run 2")
	want(t, to(h, "/8"), 422, false, "another request")
	r = httptest.NewRequest(http.MethodPost, "/8?a=1", strings.NewReader("a"))
	r.RequestURI = ""
	want(t, send(h, r, "k-2"), 422, false, "another request")
}

// Hosts share keys, unless Client tells them apart.
func TestHosts(t *testing.T) {
	runs := 0
	at := func(h http.Handler, host string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/orders", nil)
		r.Host = host
		return send(h, r, "k")
	}
	h, _ := server(t, httponceq.Options{}, counting(&runs))
	want(t, at(h, "a.example"), 201, false, "run 1")
	want(t, at(h, "10.0.0.7:8080"), 201, true, "run 1")
	h, _ = server(t, httponceq.Options{Client: func(r *http.Request) (string, bool) {
		name, ok := basic(r)
		return name + "@" + r.Host, ok
	}}, counting(&runs))
	want(t, at(h, "a.example"), 201, false, "run 2")
	want(t, at(h, "b.example"), 201, false, "run 3")
	want(t, at(h, "a.example"), 201, true, "run 2")
}

// parts is a form with a value and a file.
func parts(t *testing.T, value, name, content string) *http.Request {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	if err := w.WriteField("amount", value); err != nil {
		t.Fatal(err)
	}
	f, err := w.CreateFormFile("scan", name)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, content)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/orders", &body)
	r.Header.Set("Content-Type", w.FormDataContentType())
	return r
}

// A handler outside of the middleware has parsed the form, so the body is empty: the form counts.
func TestFormsThatAreParsed(t *testing.T) {
	form := func(body string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return r
	}
	parsed := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = r.FormValue("amount") // which parses both kinds
			h.ServeHTTP(w, r)
		})
	}
	read := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			m, err := r.MultipartReader()
			if err != nil {
				t.Fatal(err)
			}
			f, err := m.ReadForm(1) // the files go to disk
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.RemoveAll() }()
			r.MultipartForm = f
			h.ServeHTTP(w, r)
		})
	}
	runs := 0
	h, _ := server(t, httponceq.Options{}, func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("amount") != "7" {
			t.Errorf("the handler sees %q", r.FormValue("amount"))
		}
		counting(&runs)(w, r)
	})
	want(t, send(parsed(h), form("amount=7&note=x"), "f"), 201, false, "run 1")
	want(t, send(parsed(h), form("note=x&amount=7"), "f"), 201, true, "run 1")
	want(t, send(parsed(h), form("amount=70&note=x"), "f"), 422, false, "another request")
	want(t, send(parsed(h), parts(t, "7", "a.png", "x"), "m"), 201, false, "run 2")
	want(t, send(parsed(h), parts(t, "7", "a.png", "x"), "m"), 201, true, "run 2")
	h, _ = server(t, httponceq.Options{}, counting(&runs))
	for i, outer := range []http.Handler{parsed(h), read(h)} {
		key := fmt.Sprint("p-", i)
		want(t, send(outer, parts(t, "7", "a.png", "x"), key), 201, false, fmt.Sprint("run ", 3+i))
		want(t, send(outer, parts(t, "7", "a.png", "x"), key), 201, true, fmt.Sprint("run ", 3+i))
		for _, other := range [][3]string{{"8", "a.png", "x"}, {"7", "b.png", "x"}, {"7", "a.png", "y"}} {
			want(t, send(outer, parts(t, other[0], other[1], other[2]), key), 422, false, "another request")
		}
	}
	if runs != 4 {
		t.Errorf("%d runs", runs)
	}
}

// A body that somebody has read cannot be compared, so nothing runs.
func TestBodiesThatAreRead(t *testing.T) {
	runs := 0
	h, _ := server(t, httponceq.Options{}, counting(&runs))
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		h.ServeHTTP(w, r)
	})
	want(t, post(outer, "k", "a"), 500, false, "read the body before")
	want(t, post(outer, "k", ""), 201, false, "run 1")
}

// One matching pair of quotes is taken off a key, and several keys are none.
func TestKeysAsTheyAreSent(t *testing.T) {
	runs := 0
	h, _ := server(t, httponceq.Options{}, counting(&runs))
	for i, key := range []string{`"o-7"`, `o-7"`, `"o\"7"`, `"o\\7"`, `o;7`} {
		want(t, post(h, key, ""), 201, false, fmt.Sprint("run ", i+1))
	}
	// A client's library may begin to send parameters between two tries.
	for _, same := range []string{"o-7", `"o-7";v=1`, `"o-7" ; a`} {
		want(t, post(h, same, ""), 201, true, "run 1")
	}
	for _, none := range []string{`""`, `"`, `"o-7`, `""o-7""`, `"o\-7"`, `"o-7\`, `"o"7`, "o\t7", "\"o\x7f\""} {
		want(t, post(h, none, ""), 400, false, "Idempotency-Key")
	}
	for _, optional := range []bool{false, true} {
		h, _ := server(t, httponceq.Options{Optional: optional}, counting(&runs))
		want(t, post(h, `""`, ""), 400, false, "1 to 255") // the client meant to send a key
		r := httptest.NewRequest(http.MethodPost, "/orders", nil)
		r.Header["Idempotency-Key"] = []string{""}
		r.SetBasicAuth("alice", "")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		want(t, w, 400, false, "1 to 255")
		for _, first := range []string{"o-7", ""} {
			r := httptest.NewRequest(http.MethodPost, "/orders", nil)
			r.Header["Idempotency-Key"] = []string{first, "o-8"}
			r.SetBasicAuth("alice", "")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			want(t, w, 400, false, "not several")
		}
	}
	if runs != 5 {
		t.Errorf("%d runs", runs)
	}
}

// A request whose context ends while it waits is not told that nothing was done.
func TestWaitsAreCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		h, _ := server(t, httponceq.Options{Wait: time.Hour}, func(w http.ResponseWriter, r *http.Request) {
			<-time.After(20 * time.Second)
			counting(&runs)(w, r)
		})
		done := make(chan struct{})
		go func() { defer close(done); post(h, "k", "") }()
		<-time.After(4 * time.Second)
		ctx, end := context.WithTimeout(t.Context(), 3*time.Second)
		defer end()
		a := send(h, httptest.NewRequest(http.MethodPost, "/payments", nil).WithContext(ctx), "k")
		want(t, a, 409, false, "in progress")
		if got := a.Header().Get("Retry-After"); got != "7" {
			t.Errorf("Retry-After is %q, want the age of the run, 7 s", got)
		}
		<-done
		want(t, post(h, "k", ""), 201, true, "run 1")
		<-time.After(time.Minute)
	})
}

// The rule: a refusal about the header names the page that tells of it.
func TestDocs(t *testing.T) {
	h, _ := server(t, httponceq.Options{Docs: "https://example.com/keys"}, counting(new(int)))
	a := post(h, "", "")
	want(t, a, 400, false, `"type":"https://example.com/keys"`)
	if got := a.Header().Get("Link"); got != `<https://example.com/keys>; rel="describedby"` {
		t.Errorf("the Link is %q", got)
	}
	h, _ = server(t, httponceq.Options{}, counting(new(int)))
	if a := post(h, "", ""); a.Header().Get("Link") != "" || strings.Contains(a.Body.String(), "type") {
		t.Errorf("without Docs: %v %s", a.Header(), a.Body)
	}
}

// A request that was made by hand may have no body at all.
func TestNoBody(t *testing.T) {
	h, _ := server(t, httponceq.Options{Client: httponceq.OneClient}, counting(new(int)))
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", nil))
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	want(t, w, 201, false, "run 1")
}
