package dlq_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/letter/lettertest"
)

func TestPrintable(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"order-7 é 世界 😀", "order-7 é 世界 😀"},
		{"\x1b]0;title\a\x1b[2J", `\x1b]0;title\x07\x1b[2J`},
		{"a\r\n\tb\x7f", `a\x0d\x0a\x09b\x7f`},
		{"\u009b31m", `\u009b31m`},
		{"\u202Efdp.exe\u2066\u200f\u2028", `\u202efdp.exe\u2066\u200f\u2028`},
		{"A\u200b-1\ufeff\u2060\u00ad\u3164\U000e0041\U000e0100", `A\u200b-1\ufeff\u2060\u00ad\u3164\U000e0041\U000e0100`},
		{"\xff\xc3", `\xff\xc3`},
		{"\uFFFD", "\uFFFD"},
	} {
		if got := dlq.Printable(c.in); got != c.want {
			t.Errorf("%q became %q, want %q", c.in, got, c.want)
		}
	}
}

// FuzzPrinted: whatever a message brings, nothing of it steers a terminal, in whatever is printed
// of a letter.
func FuzzPrinted(f *testing.F) {
	f.Add("order-7", "charge", "permanent", "no such account", "x", []byte("body"))
	f.Add("\x1b]52;c;Zm9v\a", "\u009b2J", "a\rb", "one\ntwo\tthree\x1b[8m", "\u202e", []byte("\x1b[2J\n\r\x00"))
	f.Add("\xff", "\xc2\x1b", "", "\n", "\x7f", []byte{0x9b})
	f.Fuzz(func(t *testing.T, key, typ, class, text, attribute string, body []byte) {
		m := &broker.Message{
			ID: key, Body: body, Attributes: map[string]string{attribute: text}, MetaErr: errors.New(text), Group: key,
			Meta: &broker.Meta{ID: key, Key: key, Type: typ, CorrelationID: text, Created: lettertest.Published, Dead: &broker.Letter{
				Fence: 1, Class: class, FirstErr: text, LastErr: text + "x", Source: typ, At: lettertest.Failed, Attributes: map[string]string{attribute: key},
			}},
		}
		e := dlq.Entry{Message: m, Copies: 1, Unsigned: true}
		var show strings.Builder
		if err := e.Show(&show); err != nil {
			t.Fatal(err)
		}
		left := []dlq.Left{{Ref: e.Ref(), Reason: text}}
		for what, s := range map[string]string{
			"Entry.String": e.String(),
			"Ref.String":   e.Ref().String(),
			"Entry.Show":   show.String(),
			"Groups.String": dlq.Groups{{
				Class: class, Count: 1, Types: map[string]int{typ: 1}, Sources: map[string]int{typ: 1}, Oldest: lettertest.Failed, Newest: lettertest.Failed, Sample: text, Key: key,
			}}.String(),
			"Report.String": dlq.Report{Seen: 1, Skipped: left, Failed: left}.String(),
			"CanaryError":   (&dlq.CanaryError{Back: []dlq.Ref{e.Ref()}, Sent: 1}).Error(),
		} {
			if !utf8.ValidString(s) {
				t.Errorf("%s is not UTF-8: %q", what, s)
			}
			for _, r := range s {
				if r < 0x20 && r != '\n' || 0x7f <= r && r <= 0x9f || 0x202a <= r && r <= 0x202e || 0x2066 <= r && r <= 0x2069 {
					t.Errorf("%s holds %U: %q", what, r, s)
				}
			}
		}
		for _, s := range []string{e.String(), e.Ref().String()} {
			if strings.Contains(s, "\n") {
				t.Errorf("more than a line: %q", s)
			}
		}
	})
}

// Show writes the beginning of a body, and how long it is.
func TestShowClipsTheBody(t *testing.T) {
	e := dlq.Entry{Message: &broker.Message{ID: "m", Published: time.Time{}, Body: []byte(strings.Repeat("b", 100_000))}}
	var b strings.Builder
	if err := e.Show(&b); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); len(s) > dlq.ShownBody+200 || !strings.Contains(s, "(100000 bytes)") {
		t.Errorf("%d bytes: …%s", len(s), s[max(0, len(s)-80):])
	}
}
