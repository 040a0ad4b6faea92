package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/onceq/onceq/adapters/webonceq"
	"github.com/onceq/onceq/internal/must"
)

// web starts the command, and answers the address that it prints.
func (r *rig) web(args ...string) (address string, said func() string, end func() int) {
	r.Helper()
	from, to := io.Pipe()
	var errs bytes.Buffer
	on := r.io(nil, &errs)
	on.Out = to
	said = func() string {
		l := on.Err.(*locked)
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.w.String()
	}
	ctx, cancel := context.WithCancel(r.Context())
	code := make(chan int, 1)
	go func() {
		code <- Main(ctx, append([]string{"--by", "ana", "-o", "json", "web"}, args...), on)
		_ = to.Close()
	}()
	var v webView
	if err := json.NewDecoder(from).Decode(&v); err != nil {
		r.Fatal(err, said())
	}
	go func() { _, _ = io.Copy(io.Discard, from) }()
	end = func() int { cancel(); return <-code }
	return v.URL, said, end
}

// visitor is a browser: it keeps cookies by their path, and follows no redirect.
type visitor struct {
	*rig
	cookie *http.Cookie
}

func (v *visitor) ask(method, address string, form url.Values) (status int, to, body string) {
	v.Helper()
	q := must.Get(http.NewRequestWithContext(v.Context(), method, address, strings.NewReader(form.Encode())))
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if v.cookie != nil && strings.HasPrefix(q.URL.Path, v.cookie.Path) {
		q.AddCookie(v.cookie)
	}
	res, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		v.Fatal(err)
	}
	defer res.Body.Close()
	for _, c := range res.Cookies() {
		v.cookie = c
	}
	text := must.Get(io.ReadAll(res.Body))
	return res.StatusCode, res.Header.Get("Location"), string(text)
}

// TestWeb: the printed address opens the page once, for one browser, which has a cookie then that
// nothing else on this address is sent. Who acts stands in the audit.
func TestWeb(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.seat("w-1/1", nil)
	address, said, end := r.web()
	at, token, _ := strings.Cut(address, "?token=")
	if len(token) < 26 {
		t.Fatal(address)
	}
	ana, other := &visitor{rig: r}, &visitor{rig: r}
	for _, wrong := range []string{at, at + "?token=", at + "?token=" + token[1:] + "A", at + "q/orders"} {
		if status, _, body := other.ask("GET", wrong, nil); status != http.StatusForbidden || strings.Contains(body, "orders") {
			t.Errorf("%s: %d %s", wrong, status, body)
		}
	}
	status, to, _ := ana.ask("GET", address, nil)
	c := ana.cookie
	if status != http.StatusSeeOther || c == nil || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path == "/" || !strings.HasSuffix(at, to) || to != c.Path {
		t.Fatalf("%d to %s with %+v", status, to, c)
	}
	if status, _, body := other.ask("GET", address, nil); status != http.StatusForbidden || !strings.Contains(body, "has opened the page already") {
		t.Errorf("again: %d %s", status, body)
	}
	if status, _, body := ana.ask("GET", at, nil); status != http.StatusOK || !strings.Contains(body, "orders") || !strings.Contains(body, "ana") {
		t.Errorf("%d %s", status, body)
	}
	form := url.Values{"reason": {"INC-7"}, "for": {"1h"}}
	if status, _, _ := other.ask("POST", at+"q/orders/pause", form); status != http.StatusForbidden {
		t.Errorf("a stranger's pause: %d", status)
	}
	if status, _, body := ana.ask("POST", at+"q/orders/pause", form); status != http.StatusSeeOther {
		t.Errorf("a pause: %d %s", status, body)
	}
	r.run("audit").want(0, "ana", "pause", "INC-7")
	next := regexp.MustCompile(`http://\S+`).FindString(said())
	if status, _, _ := other.ask("GET", next, nil); status != http.StatusSeeOther || other.cookie.Value == c.Value {
		t.Errorf("%s: %d", next, status)
	}
	if code := end(); code != 0 {
		t.Errorf("exit %d\n%s", code, said())
	}
}

// TestWebLooks: with --look nobody acts, and without a file there is no purge.
func TestWebLooks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for args, want := range map[string]map[string]int{
		"--look": {"q/orders/pause": 403, "q/orders/plan": 403, "q/orders/purge": 403},
		"":       {"q/orders/purge": 403},
	} {
		address, _, end := r.web(strings.Fields(args)...)
		at, _, _ := strings.Cut(address, "?token=")
		v := &visitor{rig: r}
		v.ask("GET", address, nil)
		for path, status := range want {
			if got, _, _ := v.ask("POST", at+path, url.Values{"reason": {"x"}}); got != status {
				t.Errorf("%q %s: %d, want %d", args, path, got, status)
			}
		}
		if status, _, _ := v.ask("GET", at, nil); status != http.StatusOK {
			t.Errorf("%q: %d", args, status)
		}
		end()
	}
}

// TestWebListens on this machine alone.
func TestWebListens(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, address := range []string{"0.0.0.0:0", ":8080", "[::]:0", "10.0.0.7:80", "example.org:80", "127.0.0.1"} {
		r.run("web", "--listen", address).want(2, "--listen")
	}
	r.run("web", "-f", r.dir).want(2, "-f")
	r.run("web", "nobody").want(2, "nobody")
}

// TestWebTerminal: whoever is in goes on while the terminal takes no line, such as after ctrl-S.
func TestWebTerminal(t *testing.T) {
	t.Parallel()
	stands := make(chan struct{})
	d := &door{base: "/x", in: map[string]bool{"cookie": true}, who: webonceq.Access{Name: "ana"}}
	told := make(chan struct{})
	d.tell = func(string) { close(told); <-stands }
	d.next()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/x/?token="+d.token, nil))
	}()
	<-told
	if !d.mu.TryLock() {
		t.Error("the door is held until the terminal goes on")
	} else {
		d.mu.Unlock()
	}
	close(stands)
	<-done
	if len(d.in) != 2 {
		t.Errorf("%d cookies", len(d.in))
	}
}
