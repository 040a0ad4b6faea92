//go:build unix

package page

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/chromium"
)

// This file owns letters that want to be more than text.

// lures are texts of messages, each with what a person reads of it.
var lures = []struct{ text, read string }{
	{`<script>alert(1)</script>`, `<script>alert(1)</script>`},
	{`"><img src=x onerror=alert(1)>`, `"><img src=x onerror=alert(1)>`},
	{`" onmouseover="alert(1)`, `" onmouseover="alert(1)`},
	{"javascript:alert(1)", "javascript:alert(1)"},
	{"\u202egnp.exe", `\u202egnp.exe`}, // what turns the direction of reading is written out
	{"a\x1b[2Jb", `a\x1b[2Jb`},
	{"{{.Who}}", "{{.Who}}"},
	{"</title></style><!--", "</title></style><!--"},
}

// calm fails the test if anything but the page's own is on it.
func calm(t *testing.T, p *chromium.Page, where string) {
	t.Helper()
	var found string
	p.Eval(`(() => {
		let all = [...document.querySelectorAll("*")];
		let bad = all.filter(e => e.matches("img, iframe, object, embed, base, style, link:not([rel=stylesheet]):not([rel=icon]), a[href^='javascript' i]") || [...e.attributes].some(a => a.name.startsWith("on") || a.name == "style"));
		let scripts = [...document.scripts].filter(s => !s.src.startsWith(location.origin + "/") || s.text);
		return [...bad, ...scripts].map(e => e.outerHTML.slice(0, 100)).join(" ");
	})()`, &found)
	if found != "" {
		t.Errorf("%s has %s", where, found)
	}
	narrow(t, p, where)
}

func hostileLetters(t *testing.T, b *chromium.Browser) {
	s := newScene(t, nil)
	for i, l := range lures {
		s.fail(failure{queue: "orders", typ: l.text, class: fmt.Sprint(l.text, i), text: l.text + " failed", body: l.text + " body", key: l.text, n: 1})
	}
	long := strings.Repeat("A", 200<<10)
	s.fail(failure{queue: "orders", typ: "charge", class: "long", text: long[:2000], body: long, key: long[:200], n: 1})
	s.fail(failure{queue: "orders", typ: "charge", class: "bytes", text: "bytes", body: "\xff\xfe\x00", key: "bytes", n: 1})
	p := s.enter(t, b, "ana <b>'", phone)
	p.See("orders")
	calm(t, p, "/")
	groups := s.groups("orders")
	if len(groups) != len(lures)+2 {
		t.Errorf("%d groups", len(groups))
	}
	read := func(where, text string) {
		t.Helper()
		calm(t, p, where)
		if got := p.Text(); !strings.Contains(got, text) {
			t.Errorf("%s has no %q:\n%.2000s", where, text, got)
		}
	}
	p.Go(s.url + "/q/orders/letters")
	for _, l := range lures {
		read("the groups", l.read)
	}
	for _, g := range groups {
		p.Go(s.url + "/q/orders/letters/" + g)
		p.Eval(`document.querySelectorAll("details").forEach(d => d.open = true)`, nil)
		calm(t, p, "the group "+g)
		if strings.Contains(p.Text(), long) {
			t.Error("a body of 200 KB is on the screen")
		}
	}
	for i, l := range lures {
		key := url.Values{"queue": {"orders"}, "scope": {"orders:charge"}, "key": {fmt.Sprint(l.text, i+1)}}
		p.Go(s.url + "/key?" + key.Encode())
		read("the key", fmt.Sprint(l.read, i+1))
	}
	p.Go(s.url + "/keys?queue=orders&status=failed")
	calm(t, p, "the keys")
	p.Go(s.url + "/q/orders/letters?class=" + url.QueryEscape(lures[1].text) + "&type=" + url.QueryEscape(lures[0].text))
	calm(t, p, "a filter")
	p.Go(s.url + "/audit?by=" + url.QueryEscape(lures[0].text))
	calm(t, p, "the audit")
	wide := s.enter(t, b, "ana", chromium.Look{})
	for _, path := range []string{"/keys?queue=orders&status=failed", "/q/orders"} {
		wide.Go(s.url + path)
		calm(t, wide, path)
		var cut string
		wide.Eval(`[...document.querySelectorAll(".rows *")].filter(e => e.getBoundingClientRect().right > e.closest("table").parentElement.getBoundingClientRect().right + 1).map(e => e.outerHTML.slice(0, 100)).join(" ")`, &cut)
		if cut != "" {
			t.Errorf("%s cuts off %s", path, cut)
		}
	}
}
