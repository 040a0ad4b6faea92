//go:build unix

package page

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/chromium"
)

// This file owns what is asked of the page in a browser. All tests share one browser, because its
// start takes longest; each has a scene and persons of its own, so they go on beside each other.

func TestPage(t *testing.T) {
	b := chromium.Start(t)
	for name, test := range map[string]func(*testing.T, *chromium.Browser){
		"night":                func(t *testing.T, b *chromium.Browser) { night(t, b, phone) },
		"night without script": func(t *testing.T, b *chromium.Browser) { night(t, b, withoutScript) },
		"hostile letters":      hostileLetters,
		"for all eyes":         forAllEyes,
		"keeps focus":          keepsFocus,
		"silent when hidden":   silentWhenHidden,
		"two tabs":             twoTabs,
		"the browser goes":     browserGoes,
		"the server goes":      serverGoes,
		"pictures":             takePictures,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

var withoutScript = chromium.Look{Width: 360, Height: 640, Touch: true, NoScript: true}

// mostTaps is what a night may take.
const mostTaps = 14

// narrow fails the test if a phone's screen has to be moved sideways.
func narrow(t *testing.T, p *chromium.Page, where string) {
	t.Helper()
	var wide int
	p.Eval("document.documentElement.scrollWidth - innerWidth", &wide)
	if wide > 0 {
		t.Errorf("%s is %d pixels too wide: %s", where, wide, widest(p))
	}
}

func widest(p *chromium.Page) (what string) {
	p.Eval(`[...document.querySelectorAll("main *, header *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 160)).slice(-1)[0]`, &what)
	return what
}

// night is night A of the runbook on a phone: see the failures, pause them, plan, end the pause
// when they are mended, prove the mend on five, replay the rest once, and see who did it.
func night(t *testing.T, b *chromium.Browser, look chromium.Look) {
	const letters = 120
	s := newScene(t, nil)
	f := timeout
	f.n = letters
	s.fail(f)
	s.fail(failure{queue: "orders", typ: "charge", class: "permanent", text: "no such currency", body: `{}`, n: 7})
	s.stays = 7
	s.work("orders", "w-1")
	p := s.enter(t, b, "ana", look)
	see := func(text string) {
		t.Helper()
		p.See(text)
		narrow(t, p, text)
	}

	see("orders")
	p.Follow("article[data-queue=orders] h2 a")
	see("Nothing is paused")
	p.Tap("=Pause")
	p.Type("form[action$='/pause'] [name=reason]", "INC-311")
	p.Follow("form[action$='/pause'] button")
	see("Paused")
	p.Follow("=Dead letters")
	see(fmt.Sprint(letters))
	p.Until("!document.querySelector('#pass .busy')")
	p.Follow("article.group:first-of-type h2 a")
	see("context deadline exceeded")
	p.Follow("=Plan a replay")
	see("reopen their failure")
	see("canaries")
	p.Tap("=End it")
	p.Type("form[action$='/end'] [name=reason]", "INC-311 is mended")
	p.Follow("=End this rule")
	p.Until("!document.querySelector('#banners .banner')")
	see("reopen their failure")
	p.Type("form[action*='/plans/'] [name=reason]", "INC-311 is mended")
	p.Type("form[action*='/plans/'] [name=number]", fmt.Sprint(letters))
	p.Follow(fmt.Sprint("=Replay ", letters))
	see("5 sent")
	see("It has ended")
	p.Follow("=Audit")
	see("INC-311 is mended")
	text := p.Text()
	for _, want := range []string{"pause", "replay", "ana", fmt.Sprint(letters)} {
		if !strings.Contains(text, want) {
			t.Errorf("the audit has no %q:\n%s", want, text)
		}
	}
	t.Logf("%d taps", p.Taps)
	if p.Taps > mostTaps {
		t.Errorf("it took %d taps, at most %d may be", p.Taps, mostTaps)
	}
	s.once(letters)
	if hosts := p.Hosts(); len(hosts) != 1 {
		t.Errorf("it has asked %q", hosts)
	}
}
