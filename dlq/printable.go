package dlq

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Printable is s as a terminal may show it: a line of text that steers nothing. It writes these as
// \xNN, \uNNNN or \UNNNNNNNN:
//
//   - control characters;
//   - characters that change the direction of the text, or end a line;
//   - characters that show nothing, so that two keys look alike: those without a width, and tags;
//   - bytes that are not UTF-8.
//
// Print nothing of a message without it. Otherwise whoever may send a message may clear an
// operator's screen, hide a line, or write to the clipboard.
func Printable(s string) string {
	clean := 0
	for clean < len(s) {
		r, n := utf8.DecodeRuneInString(s[clean:])
		if steers(r, n) {
			break
		}
		clean += n
	}
	if clean == len(s) {
		return s
	}
	var b strings.Builder
	b.WriteString(s[:clean])
	for i := clean; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case !steers(r, n):
			b.WriteString(s[i : i+n])
		case n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += n
	}
	return b.String()
}

// steers reports whether a terminal does anything else with a character, of n bytes, than show it,
// or shows nothing at all of it.
func steers(r rune, n int) bool {
	switch {
	case r == utf8.RuneError && n == 1, r < 0x20, 0x7f <= r && r <= 0x9f:
		return true
	case r == 0x061c, 0x2028 <= r && r <= 0x202e, 0x2066 <= r && r <= 0x206f:
		return true
	case r == 0x00ad, r == 0x034f, r == 0x180e, 0x200b <= r && r <= 0x200f, 0x2060 <= r && r <= 0x2065, r == 0xfeff, 0xfff0 <= r && r <= 0xfffb,
		r == 0x115f, r == 0x1160, r == 0x3164, r == 0xffa0, 0x1d173 <= r && r <= 0x1d17a, 0xe0000 <= r && r <= 0xe0fff:
		return true
	}
	return false
}

// paragraph is Printable for a text of several lines. The indent stands before each line but the
// first. A tab becomes four blanks.
func paragraph(s, indent string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = Printable(strings.ReplaceAll(l, "\t", "    "))
	}
	return strings.Join(lines, "\n"+indent)
}
