//go:build unix

package page

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/chromium"
)

// This file owns what people need who do not see well, have no mouse, or are amid a word when the
// screen changes.

// faults are those of a screen: a field without a label, a link without words, an id twice, a text
// that is too pale, a target that no finger hits. 4.5 and 3 are the contrasts that WCAG asks for.
const faults = `(() => {
	document.querySelectorAll("details").forEach(d => d.open = true); // here, because a part may be replaced meanwhile
	let bad = [], seen = e => e.checkVisibility({visibilityProperty: true, opacityProperty: true});
	let say = (e, what) => bad.push(what + ": " + e.outerHTML.slice(0, 120));
	if (!document.documentElement.lang) bad.push("no language");
	if (document.querySelectorAll("h1").length != 1) bad.push("it has not one h1");
	for (let e of document.querySelectorAll("input:not([type=hidden]), select, textarea")) if (![...e.labels].some(l => l.innerText.trim())) say(e, "no label");
	for (let e of document.querySelectorAll("a, button, summary")) if (!(e.innerText || e.ariaLabel || "").trim()) say(e, "no words");
	for (let e of document.querySelectorAll("svg[role=img]")) if (!e.ariaLabel) say(e, "no words");
	let ids = [...document.querySelectorAll("[id]")].map(e => e.id);
	for (let id of ids) if (ids.indexOf(id) != ids.lastIndexOf(id)) bad.push("an id twice: " + id);
	for (let e of document.querySelectorAll("a[href]:not(.skip), button, summary, input:not([type=hidden], [type=checkbox]), label.check, select")) {
		let r = e.getBoundingClientRect();
		if (seen(e) && (r.height < 43.5 || r.width < 24)) say(e, "a small target, " + r.width + " by " + r.height);
	}
	let rgb = c => (c.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
	let light = c => { let [r, g, b] = c.map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b };
	let under = e => { for (; e; e = e.parentElement) { let c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] == 1) return c } return [255, 255, 255] };
	let words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; n = words.nextNode();) {
		let e = n.parentElement, s = getComputedStyle(e);
		if (!n.data.trim() || !seen(e) || e.closest("script, noscript, option, [disabled]")) continue;
		let a = light(rgb(s.color)), b = light(under(e)), size = parseFloat(s.fontSize);
		let ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (ratio < (size >= 24 || size >= 18.66 && s.fontWeight >= 700 ? 3 : 4.5)) say(e, "contrast " + ratio.toFixed(1));
	}
	return bad.slice(0, 5).join("\n");
})()`

func forAllEyes(t *testing.T, b *chromium.Browser) {
	s := newScene(t, nil)
	s.outage(200)
	g := s.groups("orders")
	for _, dark := range []bool{false, true} {
		look := phone
		look.Dark = dark
		p := s.enter(t, b, "ana", look)
		for _, path := range []string{"/", "/q/orders", "/q/orders/letters", "/q/orders/letters/" + g[0], "/keys?queue=refunds&status=parked", "/key?queue=refunds&scope=refunds:refund&key=R-199", "/audit"} {
			p.Go(s.url + path)
			var found string
			p.Eval(faults, &found)
			if found != "" {
				t.Errorf("%s, dark %v:\n%s", path, dark, found)
			}
			narrow(t, p, path)
		}
	}
}

// keepsFocus: a part that is replaced keeps the focus, and what somebody types stays.
func keepsFocus(t *testing.T, b *chromium.Browser) {
	s := newScene(t, nil)
	f := timeout
	f.n = 3
	s.fail(f)
	p := s.enter(t, b, "ana", chromium.Look{})
	p.Eval(`before = document.querySelector("article[data-queue=orders]"), before.querySelector("h2 a").focus()`, nil)
	s.card("orders", "w-1", nil)
	p.Until("!document.contains(before)")
	p.Until("document.activeElement.closest('article[data-queue=orders]')")

	// What a finger is on stays until it is lifted: else the click would be nobody's.
	var at struct{ X, Y float64 }
	p.Eval(`before = document.querySelector("article[data-queue=orders]"), (r => ({x: r.x + 5, y: r.y + 5}))(before.querySelector("h2 a").getClientRects()[0])`, &at)
	mouse := func(kind string) {
		p.Call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}, nil)
	}
	mouse("mousePressed")
	s.card("orders", "w-3", nil)
	s.card("mails", "w-3", nil)
	p.Eval(`other = document.querySelector(".who time"), 1`, nil)
	p.Until("!document.contains(other)") // the screen was fetched anew
	mouse("mouseReleased")
	p.Until("location.pathname == '/q/orders'")

	p.Tap("=Pause")
	p.Type("form[action$='/pause'] [name=reason]", "INC-3")
	p.Eval(`before = document.querySelector("#workers").firstElementChild`, nil)
	s.card("orders", "w-2", nil)
	p.Until("!document.contains(before)")
	var typed, focused string
	p.Eval("document.querySelector('form[action$=\"/pause\"] [name=reason]').value", &typed)
	p.Eval("document.activeElement.name", &focused)
	if typed != "INC-3" || focused != "reason" {
		t.Errorf("typed is %q, and the focus is on %q", typed, focused)
	}
}

// silentWhenHidden: a tab that nobody sees asks for nothing, and catches up when it is seen again.
func silentWhenHidden(t *testing.T, b *chromium.Browser) {
	s := newScene(t, nil)
	hidden, seen := s.enter(t, b, "ana", chromium.Look{}), s.enter(t, b, "ben", chromium.Look{})
	mark := `before = document.querySelector("article[data-queue=orders]"), 1`
	hidden.Eval(`Object.defineProperty(document, "hidden", {get: () => away}), away = true, document.dispatchEvent(new Event("visibilitychange")), `+mark, nil)
	for i := range 2 { // the second look begins when all have heard of the first
		seen.Eval(mark, nil)
		s.card("orders", fmt.Sprint("w-", i), nil)
		seen.Until("!document.contains(before)")
	}
	var stays bool
	hidden.Eval("document.contains(before)", &stays)
	if !stays {
		t.Error("a hidden tab was brought up to date")
	}
	hidden.Eval(`away = false, document.dispatchEvent(new Event("visibilitychange")), 1`, nil)
	hidden.Until("!document.contains(before)")
}

// twoTabs: a plan is its maker's alone, and a double click sends once.
func twoTabs(t *testing.T, b *chromium.Browser) {
	s := newScene(t, nil)
	f := timeout
	f.n = 12
	s.fail(f)
	s.work("orders", "w-1")
	ana := b.Person(t)
	p, second := ana.Tab(t, chromium.Look{}), ana.Tab(t, chromium.Look{})
	p.Go(s.url + "/?as=ana")
	p.Go(s.url + "/q/orders/letters")
	p.Until("document.querySelector('article.group') && !document.querySelector('#pass .busy')")
	p.Follow("article.group h2 a")
	p.Follow("=Plan a replay")
	p.See("reopen their failure")
	var plan string
	p.Eval("location.href", &plan)
	ben := s.enter(t, b, "ben", chromium.Look{})
	ben.Go(plan)
	ben.See("somebody else's")
	if got := strings.Join(ben.Wrong(), " "); !strings.Contains(got, "403") {
		t.Errorf("ben's browser says %q", got)
	}
	second.Go(plan)
	second.See("reopen their failure")
	for _, tab := range []*chromium.Page{p, second} {
		tab.Type("form[action*='/plans/'] [name=reason]", "INC-9")
	}
	var at struct{ X, Y float64 }
	p.Eval(`(b => { b.scrollIntoView({block: "center"}); let r = b.getBoundingClientRect(); return {x: r.x + r.width / 2, y: r.y + r.height / 2} })(document.querySelector("form[action*='/plans/'] button"))`, &at)
	p.Click(at.X, at.Y, 2)
	p.See("It has ended")
	second.Tap("form[action*='/plans/'] button, #go a.button")
	second.See("It has ended")
	s.once(f.n)
	if acts := s.acts(); len(acts) != 1 || acts[0].Result["sent"] != "12" {
		t.Errorf("%+v", acts)
	}
}
