package webonceq

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/ops"
)

// paths fills the places of a route's path.
func (n *night) paths(x route, values map[string]string) string {
	return regexp.MustCompile(`\{(\w+|\$)\}`).ReplaceAllStringFunc(x.path, func(place string) string { return url.PathEscape(values[strings.Trim(place, "{}$")]) })
}

// The rule: what a route needs is asked for each request, whatever else is in it. A request without
// the permission is a 403 and one line in the log, and it changes nothing.
func TestEachRouteNeedsItsPermission(t *testing.T) {
	var log bytes.Buffer
	n := newNight(t, nil).usual()
	values := map[string]string{"queue": "orders", "group": "3eb5d239", "message": "m", "id": "x"}
	for _, x := range routes() {
		for bits := range permissions {
			for _, may := range []Permission{1 << bits, All &^ (1 << bits), All, 0} {
				log.Reset()
				n.page.o.Access, n.page.o.Logger = who("ana", may), slog.New(slog.NewTextHandler(&log, nil))
				if strings.HasSuffix(x.path, "/events") && may.has(x.need) {
					continue // it does not end
				}
				path := n.paths(x, values)
				var w *httptest.ResponseRecorder
				if x.method == http.MethodGet {
					w = n.get(path)
				} else {
					w = n.post(path, url.Values{"queue": {"orders"}})
				}
				switch lines := strings.Count(log.String(), "refused a request"); {
				case may.has(x.need) && (w.Code == http.StatusForbidden || lines > 0):
					t.Errorf("%s %s with %v: %d, %d lines", x.method, x.path, may, w.Code, lines)
				case !may.has(x.need) && (w.Code != http.StatusForbidden || lines != 1 || w.Body.String() != "refused\n"):
					t.Errorf("%s %s with %v: %d %q, %d lines in the log; want a 403 and one", x.method, x.path, may, w.Code, w.Body, lines)
				}
			}
		}
		for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch, "TRACE"} {
			r := httptest.NewRequest(method, "http://localhost"+n.paths(x, values), nil)
			if w := n.ask(r); w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, x.path, w.Code)
			}
		}
	}
	if got := n.acts(); len(got) > 0 {
		t.Errorf("the audit has %v", got)
	}
}

// acts are those in the audit.
func (n *night) acts() (got []string) {
	for e, err := range n.ops.Audit(n.t.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)) {
		if err != nil {
			n.t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s by %s: %s", e.Act, e.By, e.Reason))
	}
	return got
}

// Whoever has no name acts under none, so he may look at most.
func TestWithoutANameNobodyActs(t *testing.T) {
	n := newNight(t, &Options{Access: who("", All)}).usual()
	if w := n.post("/q/orders/pause", url.Values{"for": {"1h"}, "reason": {"x"}}); w.Code != http.StatusForbidden {
		t.Errorf("a pause by nobody: %d", w.Code)
	}
	if w := n.get("/q/orders"); w.Code != 200 || strings.Contains(w.Body.String(), "/pause") {
		t.Errorf("the screen of who has no name: %d, %s", w.Code, w.Body)
	}
}

var (
	postForm = regexp.MustCompile(`<form[^>]*method="post"[^>]*action="([^"]*)"`)
	download = regexp.MustCompile(`href="([^"]*)"[^>]* download`)
)

// needs is what a path needs by the table.
func needs(t *testing.T, method, path string) Permission {
	t.Helper()
	path, _, _ = strings.Cut(path, "?")
	for _, x := range routes() {
		pattern := regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(x.path), `[^/]+`)
		if x.method == method && regexp.MustCompile("^"+pattern+"$").MatchString(path) {
			return x.need
		}
	}
	t.Errorf("no route has %s %s", method, path)
	return 0
}

// The rule: a screen has no button that the one who sees it may not press.
func TestNoButtonForWhatIsRefused(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	rule := control.Rule{Queue: "orders", Type: "charge", Until: time.Now().Add(time.Hour), Reason: "r"}
	if _, err := n.ops.Pause(t.Context(), rule, &ops.RuleOptions{Follow: -1}); err != nil {
		t.Fatal(err)
	}
	screens := n.screens()
	all := map[string]bool{}
	for may := Permission(1); may <= All; may += 2 { // each set that has Look
		n.page.o.Access = who("ana", may)
		for _, path := range screens {
			w := n.get(path)
			if w.Code != 200 && !strings.Contains(path, "/plans/") {
				t.Fatalf("%s with %v: %d", path, may, w.Code)
			}
			for _, m := range postForm.FindAllStringSubmatch(w.Body.String(), -1) {
				need := needs(t, http.MethodPost, m[1])
				if all[need.String()] = true; !may.has(need) {
					t.Errorf("%s with %v has a form for %s, which needs %v", path, may, m[1], need)
				}
			}
			for _, m := range download.FindAllStringSubmatch(w.Body.String(), -1) {
				if need := needs(t, http.MethodGet, m[1]); !may.has(need) {
					t.Errorf("%s with %v leads to %s, which needs %v", path, may, m[1], need)
				}
			}
			if hiddenTexts := []string{"context deadline exceeded", "card declined", "cents"}; !may.has(Bodies) {
				for _, text := range hiddenTexts {
					if strings.Contains(w.Body.String(), text) {
						t.Errorf("%s with %v shows %q", path, may, text)
					}
				}
			}
		}
	}
	for _, x := range routes() {
		if x.method == http.MethodPost && !all[x.need.String()] {
			t.Errorf("no screen has a form that needs %v, so this test cannot fail for it", x.need)
		}
	}
}

// screens are addresses of all kinds.
func (n *night) screens() []string {
	n.t.Helper()
	letters := n.waitLetters()
	group := regexp.MustCompile(`/q/orders/letters/([0-9a-f]{8})`).FindAllStringSubmatch(letters, -1)
	if len(group) == 0 {
		n.t.Fatalf("no group: %s", letters)
	}
	return []string{
		"/", "/q/orders", "/q/orders/letters", "/q/orders/letters/" + group[0][1],
		"/key?queue=orders&scope=shop%3Acharge&key=order-1", "/key?queue=orders&scope=shop%3Acharge&key=parked-1", "/key?key=nothing",
		"/keys", "/keys?status=failed", "/audit", n.planned("plan", group[0][1]), n.planned("edit", group[0][1]), n.planned("purge", group[0][1]),
	}
}

// waitLetters is the screen of letters when the first pass is over.
func (n *night) waitLetters() string {
	n.t.Helper()
	was := must(n.page.board.Letters("orders"))
	began, _ := n.page.board.Pass("orders") // an act may have the letters
	for {
		changed := n.page.board.Changed()
		l := must(n.page.board.Letters("orders"))
		if l != nil && !l.Ended.IsZero() && !(began && was != nil && l.Number == was.Number) { // the look before
			break
		}
		<-changed
	}
	w := n.get("/q/orders/letters")
	if w.Code != 200 {
		n.t.Fatalf("letters: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// planned is the address of a plan, when it is made.
func (n *night) planned(kind, group string) string {
	n.t.Helper()
	w := n.post("/q/orders/"+kind, url.Values{"group": {group}, "patch": {`{"currency": "EUR"}`}})
	if w.Code != http.StatusSeeOther {
		n.t.Fatalf("a plan: %d %s", w.Code, w.Body)
	}
	return n.made(w.Header().Get("Location"))
}

func (n *night) made(path string) string {
	n.t.Helper()
	for {
		changed := n.page.life.change()
		w := n.get(path)
		if w.Code != 200 {
			n.t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		if !strings.Contains(w.Body.String(), "being frozen") {
			return path
		}
		<-changed
	}
}

// The rule: what another site's page sends, or a page that reaches this host under a name of its
// own, is refused with one line in the log, and nothing is in the queue or in the audit.
func TestForeignRequests(t *testing.T) {
	var log bytes.Buffer
	n := newNight(t, &Options{
		Hosts: []string{"ops.example", "other.example:8443"}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Access: HeaderAccess("X-Forwarded-User", []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}, func(name string) Access { return Access{May: All} }),
	}).usual()
	good := func(r *http.Request) {
		r.Host, r.RemoteAddr = "ops.example", "10.0.0.7:1"
		r.Header.Set("X-Forwarded-User", "ana")
	}
	form := url.Values{"group": {"3eb5d239"}, "for": {"1h"}, "reason": {"x"}, "queue": {"orders"}}
	for name, c := range map[string]struct {
		change func(*http.Request)
		get    bool
	}{
		"another site":                {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, false},
		"another origin of this site": {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, false},
		"another origin, old browser": {func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Origin", "https://evil.example")
		}, false},
		"no origin":                   {func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "null") }, false},
		"a rebound host":              {func(r *http.Request) { r.Host = "evil.example" }, true},
		"a rebound host with port":    {func(r *http.Request) { r.Host = "evil.example:8443" }, true},
		"another port":                {func(r *http.Request) { r.Host = "other.example:1" }, true},
		"no host":                     {func(r *http.Request) { r.Host = "" }, true},
		"a host's address":            {func(r *http.Request) { r.Host = "127.0.0.1" }, true},
		"a forged header":             {func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" }, true},
		"a forged header by a mapped": {func(r *http.Request) { r.RemoteAddr = "[::ffff:192.0.2.1]:1" }, true},
		"a header and no address":     {func(r *http.Request) { r.RemoteAddr = "@" }, true},
		"no header":                   {func(r *http.Request) { r.Header.Del("X-Forwarded-User") }, true},
		"an empty header":             {func(r *http.Request) { r.Header.Set("X-Forwarded-User", " ") }, true},
		"a header twice":              {func(r *http.Request) { r.Header.Add("X-Forwarded-User", "ben") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/q/orders/pause", "/q/orders/plan", "/key/forget"} {
				log.Reset()
				w := n.post(path, form, good, c.change)
				if lines := strings.Count(log.String(), "refused a request"); w.Code != http.StatusForbidden || lines != 1 || strings.Count(log.String(), "\n") != 1 {
					t.Errorf("POST %s: %d %s, log %q", path, w.Code, w.Body, log.String())
				}
			}
			if w := n.get("/", good, c.change); c.get && w.Code != http.StatusForbidden || !c.get && w.Code != 200 {
				t.Errorf("GET /: %d %s", w.Code, w.Body)
			}
		})
	}
	if d, err := n.orders.Depth(t.Context()); err != nil || d != (broker.Depth{}) {
		t.Errorf("the queue has %v, %v", d, err)
	}
	if got := n.acts(); len(got) > 0 || len(n.page.plans.m) > 0 {
		t.Errorf("the audit has %v, and there are %d plans", got, len(n.page.plans.m))
	}
	if w := n.post("/q/orders/pause", form, good); w.Code != http.StatusSeeOther {
		t.Errorf("the right one: %d %s", w.Code, w.Body)
	}
	if got := n.acts(); !slices.Equal(got, []string{"pause by ana: x"}) {
		t.Errorf("the audit has %v", got)
	}
}

// Nobody who may see some queues finds another one under any address.
func TestOtherQueuesAreNotThere(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All, "invoices")}).usual()
	n.card("invoices", "w-7/1", control.WorkerStatus{Scope: "bill", Types: []string{"send"}})
	for _, path := range []string{
		"/q/orders", "/q/orders/letters", "/keys?queue=orders", "/key?queue=orders&scope=shop%3Acharge&key=order-1",
		"/key?queue=invoices&scope=shop%3Acharge&key=order-1", "/api/letters.json?queue=orders",
	} {
		if w := n.get(path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	form := url.Values{"for": {"1h"}, "reason": {"x"}, "queue": {"invoices"}, "scope": {"shop:charge"}, "key": {"order-1"}, "fence": {"1"}}
	for _, path := range []string{"/q/orders/pause", "/q/orders/plan", "/q/orders/look", "/key/forget", "/key/resolve", "/key/plan", "/key/look"} {
		if w := n.post(path, form); w.Code != http.StatusNotFound {
			t.Errorf("POST %s: %d %s", path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/", "/keys?status=failed", "/key?key=order-1", "/audit", "/api/queues.json"} {
		if w := n.get(path); w.Code != 200 || strings.Contains(w.Body.String(), "/q/orders") || strings.Contains(w.Body.String(), "shop:charge") {
			t.Errorf("%s: %d, and shows what is of another queue: %s", path, w.Code, w.Body)
		}
	}
	if got := n.acts(); len(got) > 0 {
		t.Errorf("the audit has %v", got)
	}
}

// The rule: who sees some queues sees that a rule of all queues holds for his. Who made it and why
// is not shown to him, nor an id, in no banner, no plan, no refusal and no JSON; and he does not
// end it, because it is not there for him.
func TestRuleOfAllQueues(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All, "orders")}).usual()
	made, err := n.ops.As("zoe").Pause(t.Context(), control.Rule{Until: time.Now().Add(time.Hour), Reason: "the vault burns"}, &ops.RuleOptions{Follow: -1})
	if err != nil {
		t.Fatal(err)
	}
	id := made.Rules[0].ID
	end := "/rules/" + id + "/end"
	plan := n.planned("plan", n.groupOf("timeout"))
	form := url.Values{"queue": {"orders"}, "reason": {"over"}, "canary": {"1"}, "number": {"5"}}
	secrets := []string{"zoe", "vault", id, "all queues</bdi>"}
	for _, queues := range [][]string{{"orders"}, nil} {
		n.page.o.Access = who("ana", All, queues...)
		seen := map[string]bool{}
		for _, w := range []*httptest.ResponseRecorder{n.get("/"), n.get("/q/orders"), n.get(plan), n.post(plan+"/run", form), n.get("/audit"), n.get("/api/queues.json"), n.get("/api/audit.json")} {
			for _, text := range secrets {
				if strings.Contains(w.Body.String(), text) {
					if seen[text] = true; queues != nil {
						t.Errorf("who sees one queue reads %q: %s", text, w.Body)
					}
				}
			}
		}
		if queues == nil && len(seen) != len(secrets) {
			t.Errorf("who sees all queues reads %v alone, so this cannot fail", seen)
		}
	}
	n.page.o.Access = who("ana", All, "orders")
	for _, path := range []string{"/", "/q/orders", plan} {
		if body := n.get(path).Body.String(); !strings.Contains(body, "<b>Paused</b> <bdi>queue orders</bdi>") || strings.Contains(body, "/end") {
			t.Errorf("%s does not say that the queue is paused, or leads to its end: %s", path, body)
		}
	}
	said := regexp.MustCompile(`no such rule[^<]*`)
	for _, end := range []string{end, "/rules/none/end"} {
		if w := n.post(end, form); w.Code != http.StatusNotFound || said.FindString(w.Body.String()) == "" {
			t.Errorf("%s by who sees one queue: %d %s", end, w.Code, w.Body)
		}
	}
	n.page.o.Access = who("ben", All)
	if w := n.post(end, form); w.Code != http.StatusSeeOther {
		t.Errorf("ended by who sees all: %d %s", w.Code, w.Body)
	}
}

// The rule: who lacks Bodies reads no part of one in the audit, nor in its JSON, and who has it
// does: what an edited replay has set stands there.
func TestEditInTheAudit(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	plan := n.planned("edit", n.groupOf("timeout"))
	n.ended(n.begun(plan+"/run-edited", url.Values{"reason": {"r"}, "canary": {"0"}}))
	for may, shown := range map[Permission]bool{All: true, All &^ Bodies: false, Look: false, Look | Bodies: true} {
		n.page.o.Access = who("ben", may)
		for _, path := range []string{"/audit", "/api/audit.json"} {
			body := n.get(path).Body.String()
			if strings.Contains(body, "currency") != shown || strings.Contains(body, "needs the permission") == shown {
				t.Errorf("%s with %v: %s", path, may, body)
			}
		}
	}
}

// New names what is wrong, and its limit.
func TestBadOptions(t *testing.T) {
	o := newNight(t, nil).ops
	for want, c := range map[string]*Options{
		`Options.Base is "onceq"`:             {Base: "onceq"},
		`Options.Base is "/onceq/"`:           {Base: "/onceq/"},
		`Options.Base is "/{a}"`:              {Base: "/{a}"},
		"Options.Title has 65 bytes":          {Title: strings.Repeat("a", 65)},
		"Options.Protected needs":             {Protected: true},
		"Options.Hosts has an empty name":     {Hosts: []string{""}},
		`Hosts has "https://ops.example"`:     {Hosts: []string{"localhost", "https://ops.example"}},
		`Hosts has "*.example"`:               {Hosts: []string{"*.example"}},
		"webonceq: New: Ops is nil, want one": nil,
	} {
		of := o
		if c == nil {
			of = nil
		}
		if _, err := New(of, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// The frame of each answer holds what a browser may do.
func TestHeaders(t *testing.T) {
	n := newNight(t, nil)
	for _, path := range []string{"/", "/none", "/robots.txt", n.page.o.Base + staticPath() + "page.css"} {
		h := n.get(path).Header()
		if h.Get("Content-Security-Policy") != policy || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, h)
		}
		if stored := h.Get("Cache-Control"); (stored == "no-store") == strings.Contains(path, "static") {
			t.Errorf("%s: Cache-Control is %q", path, stored)
		}
	}
	for _, name := range []string{"home", "queue"} {
		path := map[string]string{"home": "/", "queue": "/q/orders"}[name]
		if body := n.get(path).Body.String(); regexp.MustCompile(`<script>|<style|style=|\son\w+=|javascript:`).MatchString(body) {
			t.Errorf("%s has something inline, which its own policy refuses: %s", path, body)
		}
	}
}
