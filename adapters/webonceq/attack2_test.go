package webonceq

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// The rule: whoever plans again and again pushes out plans of his own alone, and their letters have
// a bound in memory.
func TestPlansOfOthersStay(t *testing.T) {
	n := newNight(t, nil).usual()
	n.open(&Options{Access: who("ana", All)})
	n.waitLetters()
	ana := n.planned("plan", n.group())
	n.page.o.Access = who("ben", All)
	for range maxPlans + 1 {
		n.planned("plan", n.group())
	}
	if kept := len(n.page.plans.m); kept > ownPlans+1 {
		t.Errorf("%d plans are kept", kept)
	}
	n.page.o.Access = who("ana", All)
	if w := n.get(ana); w.Code != http.StatusOK {
		t.Errorf("ana's plan: %d", w.Code)
	}
	s := &plans{m: map[string]*plan{}}
	for i, by := range []string{"ana", "ben", "ben", "ben", "ana"} {
		id := string(rune('a' + i))
		s.m[id] = &plan{id: id, by: by, asked: time.Now().Add(time.Duration(i)), purge: &dlq.Plan{Letters: make([]dlq.Planned, planLetters/8)}}
	}
	if s.forget("ben"); s.m["b"] != nil || len(s.m) != 4 {
		t.Errorf("of three large plans of ben's there are %v", s.m)
	}
}

// The rule: another site's page begins no pass and no export, though these are GETs. A link from
// there to a screen works.
func TestForeignGet(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	from := func(site, mode string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", site)
			r.Header.Set("Sec-Fetch-Mode", mode)
		}
	}
	export := "/q/orders/letters/00000000/export"
	for _, c := range []struct {
		path, site, mode string
		want             int
	}{
		{"/q/orders/letters", "cross-site", "no-cors", 403},
		{"/q/orders/letters", "same-site", "no-cors", 403},
		{"/events", "cross-site", "cors", 403},
		{export, "cross-site", "navigate", 403},
		{export, "same-site", "navigate", 403},
		{export, "same-origin", "navigate", 404},
		{export, "none", "navigate", 404},
		{"/", "cross-site", "navigate", 200},
		{"/", "same-origin", "cors", 200},
		{"/", "none", "navigate", 200},
	} {
		if w := n.get(c.path, from(c.site, c.mode)); w.Code != c.want {
			t.Errorf("%+v: %d", c, w.Code)
		}
		if look := must(n.page.board.Letters("orders")); look != nil {
			t.Fatalf("%+v: a pass has begun", c)
		}
	}
}

// The rule: where a rule's end leads to is a screen of the page.
func TestWhereAnEndLeads(t *testing.T) {
	n := newNight(t, &Options{Base: "/onceq", Access: who("ana", All)})
	for _, back := range []string{
		"//evil.example", "/onceq//evil.example", "/\\evil", "/onceq/..//evil.example", "/onceq/../..//evil.example/x", "/onceq/%2e%2e/x", "https://evil",
		"/onceq/\t/evil", "/onceq/%2f%2fevil", "/.//evil.example", "/onceq/..", "/onceq/?a=//evil", "",
	} {
		rule := must(n.ops.Pause(t.Context(), control.Rule{Queue: "orders", Type: "charge", Until: time.Now().Add(time.Hour), Reason: "r"}, unfollowed))
		w := n.post("/onceq/rules/"+rule.Rules[0].ID+"/end", url.Values{"queue": {"orders"}, "reason": {"x"}, "back": {back}})
		if to := w.Header().Get("Location"); w.Code != http.StatusSeeOther || !strings.HasPrefix(to, "/onceq/") {
			t.Errorf("%q leads to %q, with %d", back, to, w.Code)
		}
	}
}

// The rule: a Redact that leaves nothing, and a Keep that panics, cost the screen its text and the
// act its end, and the letters stay.
func TestBadCallbacks(t *testing.T) {
	n := newNight(t, nil).usual()
	letters := must(dlq.New(n.dead, &dlq.Options{Wait: 5 * time.Millisecond}))
	n.ops = must(ops.New([]ops.Target{{Name: "orders", Queue: n.orders, DeadLetters: n.dead, Letters: letters, Store: n.store}}, &ops.Options{
		Redact: func(m *broker.Message) { *m = broker.Message{} },
	}))
	n.open(&Options{Access: who("ana", All), Keep: func(dlq.Entry) error { panic("keep") }})
	n.waitLetters()
	for _, path := range append(n.screens(), "/q/orders/letters/"+n.group()+"/export") {
		if w := n.get(path); w.Code != 200 && w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	w := n.post(n.planned("purge", "")+"/purge", url.Values{"reason": {"x"}, "number": {"7"}})
	id := strings.TrimPrefix(w.Header().Get("Location"), "/acts/")
	for {
		changed := n.page.running.Changed()
		x, ok := n.page.running.Act(id)
		if !ok || !x.Ended.IsZero() {
			if x.Err == nil || x.Purged > 0 {
				t.Errorf("%d: %+v", w.Code, x)
			}
			return
		}
		<-changed
	}
}

// The rule: a number that a pass does not know exactly is told as a bound.
func TestNumberOfTwoFilters(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	n.letter("refund-1", "refund", "timeout", "context deadline exceeded", "{}")
	n.waitLetters()
	for query, rough := range map[string]bool{"": false, "?type=charge": false, "?class=timeout&type=charge": false, "?since=1h": true, "?type=charge&since=1h": true, "?type=charge&source=shop%3Aorders": true} {
		for _, path := range []string{"/q/orders/letters", "/q/orders/letters/" + n.group()} {
			if w := n.get(path + query); w.Code != 200 || strings.Contains(w.Body.String(), "≤ ") != rough || strings.Contains(w.Body.String(), "of up to") != (rough && !strings.Contains(path, n.group())) {
				t.Errorf("%s: %d %s", path+query, w.Code, w.Body)
			}
		}
	}
}
