package out

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"
)

// osc52 writes to a terminal's clipboard, csi is one character that begins a sequence, and the last
// one turns the text around.
const osc52, csi, turn = "\x1b]52;c;aGk=\x07", "\u009b2J", "\u202e"

func TestTerminal(t *testing.T) {
	if got, want := Text("a"+osc52+csi+turn), `a\x1b]52;c;aGk=\x07\u009b2J\u202e`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, f := range []Format{JSON, NDJSON} {
		var b bytes.Buffer
		p := &Printer{Out: &b, Err: io.Discard, Format: f}
		if err := p.Print(Result{Value: map[string]string{"body": "<a>" + osc52 + csi + turn}}); err != nil {
			t.Fatal(err)
		}
		for _, raw := range []string{"\x1b", "\x07", "\u009b", "\u202e"} {
			if strings.Contains(b.String(), raw) {
				t.Errorf("%s: %q stands in %q", f, raw, b.String())
			}
		}
		var back map[string]string
		if err := json.Unmarshal(b.Bytes(), &back); err != nil || back["body"] != "<a>"+osc52+csi+turn {
			t.Errorf("%q %v", back, err)
		}
	}
}

func TestForms(t *testing.T) {
	type item struct {
		N int `json:"n"`
	}
	r := Result{
		Title: "two | things", Columns: Columns("NAME", "N>"), Rows: [][]string{{"a|b", "1"}, {"日本", "20"}},
		Items: []any{item{1}, item{20}}, IDs: []string{"a|b", "日本"}, Next: "onceq more",
	}
	for f, want := range map[Format]string{
		Table:    "two | things\nNAME   N\na|b    1\n日本  20\n",
		Markdown: "**two \\| things**\n\n| NAME | N |\n|---|---:|\n| a\\|b | 1 |\n| 日本 | 20 |\n",
		JSON:     "[\n  {\n    \"n\": 1\n  },\n  {\n    \"n\": 20\n  }\n]\n",
		NDJSON:   "{\"n\":1}\n{\"n\":20}\n",
	} {
		var b, e bytes.Buffer
		if err := (&Printer{Out: &b, Err: &e, Format: f}).Print(r); err != nil || b.String() != want {
			t.Errorf("%s: %v\n%s, want\n%s", f, err, b.String(), want)
		}
		if next := strings.Contains(e.String(), "next: onceq more"); next != (f == Table) {
			t.Errorf("%s: %q", f, e.String())
		}
	}
	var b bytes.Buffer
	if err := (&Printer{Out: &b, Format: JSON, Quiet: true}).Print(r); err != nil || b.String() != "a|b\n日本\n" {
		t.Errorf("%v %q", err, b.String())
	}
	b.Reset()
	if err := (&Printer{Out: &b, Format: JSON}).Print(Result{}); err != nil || b.String() != "[]\n" {
		t.Errorf("%v %q", err, b.String())
	}
}

type gone struct{ n int }

func (g *gone) Write([]byte) (int, error) { g.n++; return 0, syscall.EPIPE }

// TestClosed: who does not read any longer ends the command quietly, and is not written to again.
func TestClosed(t *testing.T) {
	g := &gone{}
	p := &Printer{Out: g, Err: io.Discard, Format: NDJSON}
	for range 3 {
		if err := p.Item(1); err != ErrClosed {
			t.Error(err)
		}
	}
	if g.n != 1 {
		t.Errorf("%d writes", g.n)
	}
}

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 300 * time.Microsecond: "<1ms", 38200 * time.Millisecond: "38.2s", 252 * time.Second: "4m12s",
		2*time.Hour + 14*time.Minute: "2h14m", 80 * time.Hour: "3d8h", 3 * time.Second: "3s", 59*time.Minute + 59900*time.Millisecond: "60m",
	} {
		if got := Span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -51330: "-51,330", 1234567: "1,234,567"} {
		if got := Int(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	for s, want := range map[string]string{"abcdef": "abcd…", "abc": "abc", "日本語です": "日本…"} {
		if got := Cut(s, 5); got != want || Width(got) > 5 {
			t.Errorf("%s: %s, want %s", s, got, want)
		}
	}
	if IntOr(nil) != None || Or("") != None {
		t.Error("what is not known is no number")
	}
}

// TestZones: a column of times names their zone, because a table has none beside each.
func TestZones(t *testing.T) {
	for _, utc := range []bool{true, false} {
		var b bytes.Buffer
		now := time.Date(2026, 7, 1, 3, 0, 0, 0, time.UTC)
		p := &Printer{Out: &b, Format: Table, UTC: utc, Now: func() time.Time { return now }}
		cs := Columns("AT@", "N>")
		for range 2 { // the caller's columns stay as they are
			b.Reset()
			if err := p.Print(Result{Columns: p.Zoned(cs), Rows: [][]string{{p.Time(now), "1"}}}); err != nil || !strings.HasPrefix(b.String(), "AT "+p.Zone(now)+" ") || utc && p.Zone(now) != "UTC" {
				t.Errorf("%v: %q", err, b.String())
			}
		}
	}
}
