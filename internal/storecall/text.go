package storecall

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxErr bounds the text of an error.
const maxErr = 1024

// Text is the text of an error for a record: short, and without control characters.
func Text(err error) string { return Cut(printable(err.Error()), maxErr) }

// Cut leaves at most that many bytes of s, with a mark at its end, and is UTF-8 where s is.
func Cut(s string, most int) string {
	const mark = "…"
	if len(s) <= most {
		return s
	}
	s = s[:most-len(mark)]
	for len(s) > 0 && !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + mark
}

// printable leaves out what would move a terminal's cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
