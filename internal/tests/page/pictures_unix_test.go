//go:build unix

package page

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/onceq/onceq/internal/chromium"
	"github.com/onceq/onceq/internal/must"
)

// This file owns the pictures of docs/page.md and the README: make pictures takes them. A test
// takes each again, and asks for its size and for the browser's complaints. It does not compare
// pixels, because another machine has other fonts.

var update = flag.Bool("update", false, "write the pictures into docs/pictures")

const (
	picturesDir = "../../../docs/pictures"
	// mostBytes is how large a picture in the repository may be.
	mostBytes = 60 << 10
)

// pictures are the screens, in the order in which an operator comes to them.
var pictures = []struct {
	name string
	look chromium.Look
	show func(*scene, *chromium.Page)
}{
	{"queues-360-light", phone, func(s *scene, p *chromium.Page) { p.Go(s.url + "/") }},
	{"queues-1280-dark", chromium.Look{Width: 1280, Height: 720, Dark: true}, func(s *scene, p *chromium.Page) { p.Go(s.url + "/") }},
	{"letters-360-dark", chromium.Look{Width: 360, Height: 640, Touch: true, Dark: true}, func(s *scene, p *chromium.Page) {
		p.Go(s.url + "/q/orders/letters")
		p.Until("document.querySelectorAll('article.group').length > 1 && !document.querySelector('#pass .busy')")
	}},
	{"plan-360-light", chromium.Look{Width: 360, Height: 940, Touch: true}, planned},
	{"act-1280-light", chromium.Look{Width: 1280, Height: 560}, func(s *scene, p *chromium.Page) {
		planned(s, p)
		var take string
		p.Eval(`document.querySelector("#numbers dd").innerText.replace(/\D/g, "")`, &take)
		p.Type("form[action*='/plans/'] [name=reason]", "INC-311: the bank is mended")
		p.Type("form[action*='/plans/'] [name=number]", take)
		p.Follow("form[action*='/plans/'] button")
		p.See("10 sent · 10 done")
	}},
}

func planned(s *scene, p *chromium.Page) {
	p.Go(s.url + "/q/orders/letters")
	p.Until("document.querySelector('article.group') && !document.querySelector('#pass .busy')")
	p.Follow("article.group:first-of-type h2 a")
	p.Follow("=Plan a replay")
	p.See("reopen their failure")
}

func takePictures(t *testing.T, b *chromium.Browser) {
	s := newScene(t, nil)
	letters := 130 // so many that their number is typed
	if *update {
		letters = 2000
	}
	s.outage(letters)
	s.work("orders", "w-9/1")
	if *update { // so that there is a history
		for i := range 12 {
			s.fetch("/")
			s.crew(i)
			seen := s.fetch("/api/queues.json")
			s.until("another look", func() bool { return s.fetch("/api/queues.json") != seen })
		}
		if err := os.MkdirAll(picturesDir, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range pictures {
		s.crew(11)
		p := s.enter(t, b, "ana", x.look)
		x.show(s, p)
		p.Until("document.fonts.status == 'loaded'")
		shot := p.Picture()
		file := filepath.Join(picturesDir, x.name+".png")
		if *update {
			if err := os.WriteFile(file, small(t, shot), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		kept := must.Get(os.ReadFile(file))
		want, err := png.DecodeConfig(bytes.NewReader(shot))
		if err != nil {
			t.Fatal(err)
		}
		got, err := png.DecodeConfig(bytes.NewReader(kept))
		if err != nil || got.Width != want.Width || got.Height != want.Height || len(kept) > mostBytes {
			t.Errorf("%s: %d by %d in %d bytes (%v), want %d by %d in %d at most: make pictures", file, got.Width, got.Height, len(kept), err, want.Width, want.Height, mostBytes)
		}
	}
}

// small is a picture in the 256 colours that it has most of.
func small(t *testing.T, text []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	count := map[color.Color]int{}
	for y := range from.Bounds().Dy() {
		for x := range from.Bounds().Dx() {
			count[from.At(x, y)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	to := image.NewPaletted(from.Bounds(), all[:min(len(all), 256)])
	draw.Draw(to, to.Bounds(), from, image.Point{}, draw.Src)
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, to); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
