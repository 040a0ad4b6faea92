//go:build unix

package chromium

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// This file owns a page: what a person does on it, and what the browser says of it. A test's
// goroutine calls it; events come from the browser's. mu guards what they have told.

// patience is how long a test waits for what must come. It is long because machines are busy.
const patience = 2 * time.Minute

// Look is how somebody sees a page. Zero is 1280 by 800 pixels with a mouse, in light colours.
type Look struct {
	Width, Height  int
	Touch          bool // a finger, and a phone's layout
	Dark, NoScript bool
}

// A Page is a tab. It is its test's own, but for Wrong.
type Page struct {
	t       testing.TB
	b       *Browser
	session string
	look    Look
	// Taps counts what a person has tapped or clicked.
	Taps int

	mu      sync.Mutex
	left    bool
	wrong   []string
	hosts   []string
	loaded  []string // the documents that were there whole, by their loaders
	changed chan struct{}
}

// A Person has cookies of its own, and any number of tabs.
type Person struct {
	b       *Browser
	context string
}

// Person is somebody who has not been here before.
func (b *Browser) Person(t testing.TB) *Person {
	t.Helper()
	var made struct{ BrowserContextID string }
	if err := b.call("", "Target.createBrowserContext", map[string]any{"disposeOnDetach": true}, &made); err != nil {
		t.Fatal(err)
	}
	return &Person{b, made.BrowserContextID}
}

// watch tells of each change of what stands there.
const watch = `new MutationObserver(() => changed("")).observe(document, {subtree: true, childList: true, attributes: true, characterData: true})`

// Tab opens an empty tab. The test fails at its end for each error on it.
func (o *Person) Tab(t testing.TB, look Look) *Page {
	t.Helper()
	if look.Width == 0 {
		look.Width, look.Height = 1280, 800
	}
	var target struct{ TargetID string }
	if err := o.b.call("", "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": o.context}, &target); err != nil {
		t.Fatal(err)
	}
	var on struct{ SessionID string }
	if err := o.b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &on); err != nil {
		t.Fatal(err)
	}
	p := &Page{t: t, b: o.b, session: on.SessionID, look: look, changed: make(chan struct{}, 1)}
	o.b.mu.Lock()
	o.b.tabs[p.session] = p.event
	o.b.mu.Unlock()
	type is = map[string]any
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "Audits"} {
		p.Call(domain+".enable", is{}, nil)
	}
	p.Call("Page.setLifecycleEventsEnabled", is{"enabled": true}, nil)
	p.Call("Runtime.addBinding", is{"name": "changed", "executionContextName": "watch"}, nil)
	p.Call("Page.addScriptToEvaluateOnNewDocument", is{"source": watch, "worldName": "watch"}, nil)
	p.Call("Emulation.setDeviceMetricsOverride", is{"width": look.Width, "height": look.Height, "deviceScaleFactor": 1, "mobile": look.Touch}, nil)
	p.Call("Emulation.setTouchEmulationEnabled", is{"enabled": look.Touch, "maxTouchPoints": 1}, nil)
	scheme := "light"
	if look.Dark {
		scheme = "dark"
	}
	p.Call("Emulation.setEmulatedMedia", is{"features": []is{{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}}}, nil)
	p.Call("Emulation.setFocusEmulationEnabled", is{"enabled": true}, nil) // another tab does not hide it
	p.Call("Emulation.setScriptExecutionDisabled", is{"value": look.NoScript}, nil)
	t.Cleanup(func() {
		for _, w := range p.Wrong() {
			t.Errorf("chromium: %s", w)
		}
	})
	return p
}

// Call sends a command of the Chrome DevTools Protocol to the tab.
func (p *Page) Call(method string, params, into any) {
	p.t.Helper()
	if err := p.b.call(p.session, method, params, into); err != nil {
		p.t.Fatal(err)
	}
}

// Close takes the tab away, as somebody who leaves. What happens on it from now on he does not see.
func (p *Page) Close() {
	p.t.Helper()
	p.mu.Lock()
	p.left = true
	p.mu.Unlock()
	p.Call("Page.close", map[string]any{}, nil)
}

// event is what the browser tells of the page.
func (p *Page) event(m *message) {
	var e struct {
		Type    string
		Name    string
		Loader  string `json:"loaderId"`
		Request struct{ URL string }
		Entry   struct{ Level, Text, URL string }
		Issue   struct {
			Code    string
			Details json.RawMessage
		}
		Args             []struct{ Value, Description any }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	_ = json.Unmarshal(m.Params, &e)
	p.mu.Lock()
	if p.left {
		p.mu.Unlock()
		return
	}
	switch m.Method {
	case "Page.lifecycleEvent": // the page has no frames, so it is the page's own
		if e.Name == "load" {
			p.loaded = append(p.loaded, e.Loader)
		}
	case "Runtime.exceptionThrown":
		p.wrong = append(p.wrong, "exception: "+e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	case "Runtime.consoleAPICalled":
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			p.wrong = append(p.wrong, fmt.Sprintf("console.%s: %v", e.Type, e.Args))
		}
	case "Page.javascriptDialogOpening":
		p.wrong = append(p.wrong, "a dialog has opened")
	case "Log.entryAdded":
		if e.Entry.Level == "error" {
			p.wrong = append(p.wrong, e.Entry.Text+" "+e.Entry.URL)
		}
	case "Audits.issueAdded":
		if e.Issue.Code == "ContentSecurityPolicyIssue" {
			p.wrong = append(p.wrong, fmt.Sprintf("CSP: %s", e.Issue.Details))
		}
	case "Network.requestWillBeSent":
		if u, err := url.Parse(e.Request.URL); err == nil && u.Host != "" && !slices.Contains(p.hosts, u.Host) {
			p.hosts = append(p.hosts, u.Host)
		}
	}
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Wrong is what went wrong on the page since it was asked last: errors of scripts, lines of the
// console, reports of the content security policy, and answers of 400 and more.
func (p *Page) Wrong() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, p.wrong = p.wrong, nil
	return all
}

// Hosts are those that the page has asked for something.
func (p *Page) Hosts() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.hosts)
}

// Go opens an address, and waits until it is there whole.
func (p *Page) Go(address string) {
	p.t.Helper()
	var went struct{ ErrorText, LoaderID string }
	p.Call("Page.navigate", map[string]any{"url": address}, &went)
	if went.ErrorText != "" {
		p.t.Fatalf("chromium: %s: %s", address, went.ErrorText)
	}
	// The answer comes before the browser shows the page: until then an expression finds the one
	// before.
	p.wait("that it loads "+address, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.Contains(p.loaded, went.LoaderID)
	})
}

// Follow taps what leads to another page, or sends a form, and waits until the page after it is
// there whole. What both pages show is then read from the second one.
func (p *Page) Follow(what string) {
	p.t.Helper()
	loads := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.loaded)
	}
	was := loads()
	p.Tap(what)
	p.wait("another page, after "+what, func() bool { return loads() > was })
}

// wait waits for what events or the page bring about. Not all of it is told by an event, such as
// where the focus is, so it looks again by itself as well.
func (p *Page) wait(what string, came func() bool) {
	p.t.Helper()
	late, tick := time.NewTimer(patience), time.NewTicker(100*time.Millisecond)
	defer late.Stop()
	defer tick.Stop()
	for !came() {
		select {
		case <-p.changed:
		case <-tick.C:
		case <-late.C:
			var text string
			_, err := p.eval("document.body.innerText", &text)
			p.t.Fatalf("chromium: it never came: %s; there stands (%v)\n%s", what, err, text)
		}
	}
}

// eval answers what a script's expression is on a whole page; not there = it is not whole, or the
// page was left meanwhile.
func (p *Page) eval(script string, into any) (there bool, err error) {
	var got struct {
		Result           struct{ Value []json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	script = "document.readyState == 'complete' ? [(" + script + ")] : []"
	err = p.b.call(p.session, "Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true, "userGesture": false}, &got)
	if refused := (*refusedError)(nil); errors.As(err, &refused) {
		return false, nil
	}
	if e := got.ExceptionDetails; e != nil && err == nil {
		err = fmt.Errorf("chromium: %s: %s %s", script, e.Text, e.Exception.Description)
	}
	if err != nil || len(got.Result.Value) == 0 {
		return false, err
	}
	if into != nil && string(got.Result.Value[0]) != "null" {
		err = json.Unmarshal(got.Result.Value[0], into)
	}
	return true, err
}

// Eval answers what a script's expression is, once a page is there whole. An expression that errs
// fails the test.
func (p *Page) Eval(script string, into any) {
	p.t.Helper()
	p.wait(script, func() bool {
		p.t.Helper()
		there, err := p.eval(script, into)
		if err != nil {
			p.t.Fatal(err)
		}
		return there
	})
}

// Text is what a person reads on the page.
func (p *Page) Text() (text string) {
	p.t.Helper()
	p.Eval("document.body.innerText", &text)
	return text
}

// Until waits until a script's expression is true.
func (p *Page) Until(script string) {
	p.t.Helper()
	p.wait(script, func() bool {
		p.t.Helper()
		holds := false
		p.Eval("Boolean("+script+")", &holds)
		return holds
	})
}

// See waits until the page shows a text.
func (p *Page) See(text string) {
	p.t.Helper()
	p.Until("document.body.innerText.includes(" + quote(text) + ")")
}

func quote(s string) string {
	text, _ := json.Marshal(s)
	return string(text)
}

// reach answers where an element is that a person can tap: by a selector, or by a part of its words
// after "=". The one with the fewest words is meant.
const reach = `((what) => {
	let all = what[0] == "=" ? [...document.querySelectorAll("a, button, summary, label, input, select, [role=button]")].
		filter(e => (e.innerText || e.ariaLabel || e.value || "").includes(what.slice(1))).
		sort((a, b) => (a.innerText || "").length - (b.innerText || "").length) : [...document.querySelectorAll(what)];
	let e = all.find(e => e.checkVisibility({visibilityProperty: true}));
	if (!e) return {};
	e.scrollIntoView({block: "center", behavior: "instant"});
	let r = e.getClientRects()[0], x = r.x + r.width / 2, y = r.y + r.height / 2, top = document.elementFromPoint(x, y);
	if (e.disabled || top != e && !e.contains(top) && !(top && top.contains(e) && top.matches("label"))) return {below: top ? top.outerHTML.slice(0, 200) : "nothing"};
	return {x, y, w: r.width, h: r.height};
})`

// Tap taps or clicks in the middle of an element, once it can be reached. What is a selector of
// CSS, or "=" and words that it shows.
func (p *Page) Tap(what string) {
	p.t.Helper()
	var at struct{ X, Y, W, H float64 }
	p.wait("something to tap: "+what, func() bool {
		p.t.Helper()
		p.Eval(reach+"("+quote(what)+")", &at)
		return at.W > 0
	})
	p.Taps++
	type is = map[string]any
	if p.look.Touch {
		p.Call("Input.dispatchTouchEvent", is{"type": "touchStart", "touchPoints": []is{{"x": at.X, "y": at.Y}}}, nil)
		p.Call("Input.dispatchTouchEvent", is{"type": "touchEnd", "touchPoints": []is{}}, nil)
		return
	}
	p.Click(at.X, at.Y, 1)
}

// Click presses the mouse's button so often, as fast as it goes.
func (p *Page) Click(x, y float64, times int) {
	p.t.Helper()
	for n := range times {
		for _, kind := range []string{"mousePressed", "mouseReleased"} {
			p.Call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": y, "button": "left", "clickCount": n + 1}, nil)
		}
	}
}

// Type taps a field, and writes into it.
func (p *Page) Type(what, text string) {
	p.t.Helper()
	p.Tap(what)
	p.Until("document.activeElement.matches('input, textarea, select')")
	p.Call("Input.insertText", map[string]any{"text": text}, nil)
}

// Picture is a PNG of what is in sight.
func (p *Page) Picture() []byte {
	p.t.Helper()
	var shot struct{ Data string }
	p.Call("Page.captureScreenshot", map[string]any{"format": "png", "optimizeForSpeed": false}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil || !strings.HasPrefix(string(png), "\x89PNG") {
		p.t.Fatal("chromium: no picture: ", err)
	}
	return png
}
