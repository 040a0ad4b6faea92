package dlq

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// This file owns the fingerprint of a failure: which parts of an error's text differ from one job
// to the next, so that they do not count. List, Group, Plan, Replay and Purge ask for it through
// Filter.Group and Group.Group. Tickets, alerts and plans name fingerprints, so the function never
// changes what it answers: testdata/fingerprints.txt holds it. It keeps no state.

// normalBytes is how much of a normalized text counts.
const normalBytes = 300

// Fingerprint is the name of a kind of failure: 8 hex digits, equal for failures whose errors
// differ only in what belongs to one job. It is the beginning of the SHA-256 of class, a line feed,
// and [Normalize] of the text. It is the same in every version and on every machine, so alerts and
// tickets may name it. It is not ProcessorConfig.Fingerprint, which is of payloads.
func Fingerprint(class, text string) string {
	var buf [1024]byte
	b := append(append(buf[:0], class...), '\n')
	sum := sha256.Sum256(appendNormal(b, text))
	return hex.EncodeToString(sum[:4])
}

// Normalize is the first line of an error's text, with # for each part that differs from one job to
// the next, and at most 300 bytes of that. These parts are:
//
//   - UUIDs, 0x and hex digits, 12 or more hex digits;
//   - numbers, with the dots, colons and dashes in them: addresses, times, amounts. A unit of
//     [time.Duration] belongs to its number;
//   - hex digits with two colons or more, which are addresses, too;
//   - words of 8 or more letters and digits in which these alternate twice or more, such as ULIDs;
//   - what stands in quotes (", ' or `).
//
// These stay: a number from 100 to 599 that stands alone, because it may be a status of HTTP; the
// five characters behind the word SQLSTATE; quoted words of two or more letters a to z and
// underscores, because they may name a constraint. Bytes that are not UTF-8 become U+FFFD, as in a
// letter.
//
// The time that it takes grows with the text's first line, and never faster.
func Normalize(text string) string {
	var buf [normalBytes + 64]byte
	return string(appendNormal(buf[:0], text))
}

// appendNormal appends Normalize(text) to dst.
func appendNormal(dst []byte, text string) []byte {
	text, _, _ = strings.Cut(text, "\n")
	text = strings.TrimSuffix(text, "\r")
	start := len(dst)
	var unclosed [3]bool // by kind of quotes: none of them ends from here on
	for i := 0; i < len(text) && len(dst)-start < normalBytes; {
		c := text[i]
		switch kind := strings.IndexByte("\"'`", c); {
		case kind >= 0:
			n := 0
			if opens(text, i) && !unclosed[kind] {
				n = quoted(text[i:])
				unclosed[kind] = n == 0
			}
			switch {
			case n == 0:
				dst = append(dst, c)
				n = 1
			case isName(text[i+1 : i+n-1]), n == 7 && isState(text[i+1:i+6], text[:i]):
				dst = keep(dst, text[i:i+n])
			default:
				dst = append(dst, '#')
			}
			i += n
		case isAlnum(c), c == ':' && opens(text, i) && addressed(text[i:]) > 0:
			n := 0
			dst, n = appendWord(dst, text, i)
			i += n
		case c < utf8.RuneSelf:
			dst = append(dst, c)
			i++
		default:
			r, n := utf8.DecodeRuneInString(text[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
		}
	}
	if len(dst)-start <= normalBytes {
		return dst
	}
	end := start + normalBytes
	for end > start && !utf8.RuneStart(dst[end]) {
		end--
	}
	return dst[:end]
}

// appendWord appends what stands for the letters and digits that begin at i, which is not within a
// word. It says how many bytes of the text that was.
func appendWord(dst []byte, text string, i int) ([]byte, int) {
	rest := text[i:]
	m := number(rest)
	if n := addressed(rest); n > m {
		if m := port(rest[n:]); m > 0 && strings.HasSuffix(text[:i], "[") {
			return append(dst[:len(dst)-1], '#'), n + m
		}
		return append(dst, '#'), n
	}
	if n := uuid(rest); n > m {
		return append(dst, '#'), n
	}
	n, digits, changes, hex := word(rest)
	switch {
	case digits == 0 && (!hex || n < 12), n == 5 && isState(rest[:n], text[:i]):
		return keep(dst, rest[:n]), n
	case m >= n: // what was measured is used up, so nothing is measured twice
		if m == 3 && '1' <= rest[0] && rest[0] <= '5' && isAlone(text, i, i+m) {
			return keep(dst, rest[:m]), m
		}
		return append(dst, '#'), m
	case n > 2 && rest[0] == '0' && rest[1]|0x20 == 'x' && hexRun(rest[2:n]) == n-2:
		return append(dst, '#'), n
	case hex && n >= 12, n >= 8 && changes >= 2:
		return append(dst, '#'), n
	}
	// Only the digits of the word go.
	for j := 0; j < n; {
		if !isDigit(rest[j]) {
			dst = append(dst, rest[j])
			j++
			continue
		}
		m := number(rest[j:])
		dst = append(dst, '#')
		if j += m; j >= n {
			return dst, j
		}
	}
	return dst, n
}

// keep appends s, or as much of it as counts.
func keep(dst []byte, s string) []byte { return append(dst, s[:min(len(s), normalBytes)]...) }

// word measures the letters and digits at the beginning of s: how many there are, how many are
// digits, how often the two kinds change, and whether all are hex digits.
func word(s string) (n, digits, changes int, hex bool) {
	hex = true
	for n < len(s) && isAlnum(s[n]) {
		d := isDigit(s[n])
		if d {
			digits++
		}
		if n > 0 && d != isDigit(s[n-1]) {
			changes++
		}
		hex = hex && isHex(s[n])
		n++
	}
	return n, digits, changes, hex
}

// number measures a number at the beginning of s: digits, joined by single dots, colons or dashes,
// and the units of a duration behind them.
func number(s string) int {
	n := 0
	for {
		from := n
		for n < len(s) && isDigit(s[n]) {
			n++
		}
		if n == from || n == len(s) {
			return n
		}
		if u := unit(s[n:]); u > 0 {
			n += u
			if n == len(s) || !isDigit(s[n]) {
				return n
			}
			continue
		}
		if c := s[n]; c != '.' && c != ':' && c != '-' || n+1 == len(s) || !isDigit(s[n+1]) {
			return n
		}
		n++
	}
}

// unit measures a unit of time.Duration at the beginning of s, behind which the word ends or the
// next number begins.
func unit(s string) int {
	for _, u := range [...]string{"ns", "us", "µs", "μs", "ms", "s", "m", "h"} {
		if strings.HasPrefix(s, u) && (len(s) == len(u) || !isLetter(s[len(u)])) {
			return len(u)
		}
	}
	return 0
}

// isAlone reports whether the number s[from:to] belongs to nothing beside it, such as a name.
func isAlone(s string, from, to int) bool {
	return (from == 0 || strings.IndexByte("_.-/#", s[from-1]) < 0) && (to == len(s) || strings.IndexByte("_%", s[to]) < 0)
}

// uuid measures a UUID at the beginning of s.
func uuid(s string) int {
	const n = 36
	if len(s) < n {
		return 0
	}
	for i := range n {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash && s[i] != '-' || !dash && !isHex(s[i]) {
			return 0
		}
	}
	if len(s) > n && isAlnum(s[n]) {
		return 0
	}
	return n
}

// addressed measures hex digits with two colons or more among them, and at least one digit: an
// address of IPv6, or of a network card.
func addressed(s string) int {
	const most = 64 // bytes; an address is shorter
	n, colons, digits := 0, 0, 0
	for since := 0; n < min(len(s), most); n++ {
		switch c := s[n]; {
		case isHex(c):
			if since++; since > 4 {
				return 0
			}
			if isDigit(c) {
				digits++
			}
			continue
		case c == ':':
			colons++
			since = 0
			continue
		case isAlnum(c):
			return 0
		}
		break
	}
	for n > 0 && s[n-1] == ':' { // a sentence goes on
		n--
		colons--
	}
	if colons < 2 || digits == 0 {
		return 0
	}
	return n
}

// port measures the end of an address in brackets at the beginning of s, and the port behind it.
func port(s string) int {
	if !strings.HasPrefix(s, "]") {
		return 0
	}
	n := 1
	if strings.HasPrefix(s[1:], ":") {
		for n++; n < len(s) && isDigit(s[n]); n++ {
		}
	}
	if n == 2 {
		n = 1 // the colon is not the address's
	}
	return n
}

// isState reports whether the five characters are a code of SQL, because the text before them ends
// in the word for that.
func isState(code, before string) bool {
	const name = "sqlstate"
	for i := range len(code) {
		if !isAlnum(code[i]) {
			return false
		}
	}
	before = strings.TrimRight(before[max(0, len(before)-len(name)-4):], " :=[(\"'")
	return len(before) >= len(name) && strings.EqualFold(before[len(before)-len(name):], name)
}

// opens reports whether the quote at i may begin something. An apostrophe within a word does not.
func opens(s string, i int) bool { return i == 0 || !isAlnum(s[i-1]) }

// quoted measures what stands in quotes at the beginning of s, with both of them; 0 = there is no
// second one. Where there is none, there is none for a quote that comes later either.
func quoted(s string) int {
	q := s[0]
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && q == '"':
			i++
		case s[i] != q:
		case q != '\'' || i+1 == len(s) || !isAlnum(s[i+1]):
			return i + 1
		}
	}
	return 0
}

func isName(s string) bool {
	for i := range len(s) {
		if !isLetter(s[i]) && s[i] != '_' {
			return false
		}
	}
	return len(s) > 1 // a single letter is what the error was about, rather than a name
}

func hexRun(s string) (n int) {
	for n < len(s) && isHex(s[n]) {
		n++
	}
	return n
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isAlnum(c byte) bool  { return isDigit(c) || isLetter(c) }
func isHex(c byte) bool    { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }
