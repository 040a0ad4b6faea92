//go:build unix

package page

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/chromium"
)

func TestShots(t *testing.T) {
	dir := os.Getenv("SHOTS")
	if dir == "" {
		t.Skip()
	}
	b := chromium.Start(t)
	s := newScene(t, nil)
	s.outage(2000)
	hostile(s)
	g := s.groups("orders")
	screens := map[string]string{
		"home": "/", "queue": "/q/orders", "letters": "/q/orders/letters", "group": "/q/orders/letters/" + g[0], "group2": "/q/orders/letters/" + g[1], "keys": "/keys?queue=refunds&status=parked",
		"key": "/key?queue=refunds&scope=refunds:refund&key=R-1981", "audit": "/audit", "hostile": "/q/exports/letters",
	}
	for _, look := range []chromium.Look{phone, {Width: 360, Height: 640, Touch: true, Dark: true}, {}, {Width: 1280, Height: 800, Dark: true}} {
		p := b.Person(t).Tab(t, look)
		p.Go(s.url + "/?as=ana")
		for name, path := range screens {
			p.Go(s.url + path)
			p.Until("!document.body.innerText.includes('looked at, since')")
			var bodies int
			p.Eval("document.documentElement.scrollHeight", &bodies)
			h := 640
			if look.Width == 0 || look.Width == 1280 {
				h = 800
			}
			var wide int
			p.Eval("document.documentElement.scrollWidth - innerWidth", &wide)
			if wide > 0 {
				t.Errorf("%s %v: %d too wide: %s", name, look, wide, widest(p))
			}
			p.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": max(look.Width, map[bool]int{true: 1280, false: 0}[look.Width == 0]), "height": min(max(bodies, h), 2400), "deviceScaleFactor": 1, "mobile": look.Touch}, nil)
			f := fmt.Sprintf("%s/%s-%d%s.png", dir, name, max(look.Width, map[bool]int{true: 1280, false: 0}[look.Width == 0]), map[bool]string{true: "-dark"}[look.Dark])
			if err := os.WriteFile(f, p.Picture(), 0o600); err != nil {
				t.Fatal(err)
			}
			p.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": max(look.Width, map[bool]int{true: 1280, false: 0}[look.Width == 0]), "height": h, "deviceScaleFactor": 1, "mobile": look.Touch}, nil)
		}
	}
}

// hostile letters
func hostile(s *scene) {
	for i, text := range []string{
		`<script>alert(1)</script>`, `" onmouseover="alert(1)`, "\u202egnp.exe", strings.Repeat("A", 100<<10), "\xff\xfe broken", "javascript:alert(1)", "{{.}}", "a\x1b[2Jbc",
	} {
		s.fail(failure{queue: "exports", typ: cutText(text, 100), class: fmt.Sprintf("class %d %s", i, cutText(text, 40)), text: cutText(text, 4000), body: text, key: cutText(text, 100), n: 1})
	}
}

func cutText(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "?") }
