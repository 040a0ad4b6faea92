package broker

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// This file owns the reading of JSON, as strict as metadata needs it: an error names the member and
// its byte. codec_decode.go calls it, and so does checkExtra before unknown members are written
// again. A metaReader belongs to one call, so nothing is locked. The members are codec_decode.go's.

// maxMetaDepth bounds the nesting of members that a newer version wrote.
const maxMetaDepth = 32

const (
	maxInt = 1<<(bits.UintSize-1) - 1
	minInt = -maxInt - 1
)

// metaReader reads JSON from s, at i. It keeps the name of the member it is in, for errors.
type metaReader struct {
	s      string
	i      int
	in     string // "dead." inside that object
	member string
}

func (r *metaReader) fail(at int, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if r.member == "" {
		return fmt.Errorf("%w: at byte %d: %s", ErrBadMeta, at, what)
	}
	const shown = 40
	name := r.member
	if len(name) > shown {
		name = strings.ToValidUTF8(name[:shown], "") + "…"
	}
	return fmt.Errorf("%w: member %q at byte %d: %s", ErrBadMeta, r.in+name, at, what)
}

// object reads an object, whose members errors call in + name. For each member it calls set, which
// reads the value of a member that it knows and returns its bit, or returns 0 and reads nothing.
// The members that set does not know are returned as they came.
func (r *metaReader) object(in string, set func(name string) (uint32, error)) (extra string, err error) {
	r.space()
	if !r.take('{') {
		return "", r.fail(r.i, "want an object, have %s", r.here())
	}
	defer func(outer string) { r.in = outer }(r.in)
	r.in = in
	r.space()
	if r.take('}') {
		return "", nil
	}
	var seen uint32
	run := -1 // start of the run of unknown members that ends before the current one
	end := 0
	for {
		r.space()
		start := r.i
		r.member = ""
		name, err := r.quoted()
		if err != nil {
			return "", err
		}
		r.member = name
		r.space()
		if !r.take(':') {
			return "", r.fail(r.i, "want a colon, have %s", r.here())
		}
		r.space()
		bit, err := set(name)
		if err != nil {
			return "", err
		}
		r.member = name
		switch {
		case bit == 0:
			if err := r.skip(1); err != nil {
				return "", err
			}
			if run < 0 {
				run = start
			}
			end = r.i
		case seen&bit != 0:
			return "", r.fail(start, "given twice")
		default:
			extra, run = joinMembers(extra, r.s, run, end), -1
		}
		seen |= bit
		r.space()
		if r.take(',') {
			continue
		}
		if r.take('}') {
			return joinMembers(extra, r.s, run, end), nil
		}
		return "", r.fail(r.i, "want a comma or the end of the object, have %s", r.here())
	}
}

func (r *metaReader) space() {
	for r.i < len(r.s) {
		switch r.s[r.i] {
		case ' ', '\t', '\n', '\r':
			r.i++
		default:
			return
		}
	}
}

func (r *metaReader) take(c byte) bool {
	if r.i < len(r.s) && r.s[r.i] == c {
		r.i++
		return true
	}
	return false
}

// word takes w, which null, true and false are.
func (r *metaReader) word(w string) bool {
	if strings.HasPrefix(r.s[r.i:], w) {
		r.i += len(w)
		return true
	}
	return false
}

func (r *metaReader) null() bool { return r.word("null") }

// here names what stands at the reader's place.
func (r *metaReader) here() string {
	if r.i >= len(r.s) {
		return "the end of the text"
	}
	c, _ := utf8.DecodeRuneInString(r.s[r.i:])
	return strconv.QuoteRune(c)
}

func (r *metaReader) text() (string, error) {
	if r.null() {
		return "", nil
	}
	return r.quoted()
}

// texts reads an object of texts.
func (r *metaReader) texts() (map[string]string, error) {
	if r.null() {
		return nil, nil
	}
	if !r.take('{') {
		return nil, r.fail(r.i, "want an object, have %s", r.here())
	}
	r.space()
	if r.take('}') {
		return nil, nil
	}
	texts := make(map[string]string)
	for {
		r.space()
		name, err := r.quoted()
		if err != nil {
			return nil, err
		}
		r.space()
		if !r.take(':') {
			return nil, r.fail(r.i, "want a colon, have %s", r.here())
		}
		r.space()
		if texts[name], err = r.quoted(); err != nil {
			return nil, err
		}
		r.space()
		if r.take('}') {
			return texts, nil
		}
		if !r.take(',') {
			return nil, r.fail(r.i, "want a comma or the end of the object, have %s", r.here())
		}
	}
}

func (r *metaReader) time() (time.Time, error) {
	if r.null() {
		return time.Time{}, nil
	}
	ms, err := r.int64(minMillis, maxMillis)
	if err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(ms).UTC(), nil
}

func (r *metaReader) integer(lowest int64) (int, error) {
	n, err := r.int64(lowest, maxInt)
	return int(n), err
}

func (r *metaReader) int64(lowest, highest int64) (int64, error) {
	if r.null() {
		return 0, nil
	}
	start := r.i
	digits, err := r.whole()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < lowest || n > highest {
		return 0, r.fail(start, "want a number from %d to %d", lowest, highest)
	}
	return n, nil
}

func (r *metaReader) uint64() (uint64, error) {
	if r.null() {
		return 0, nil
	}
	start := r.i
	digits, err := r.whole()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(digits, "-"), 10, 64)
	if err != nil || digits[0] == '-' && n > 0 {
		return 0, r.fail(start, "want a number from 0 to %d", uint64(1<<64-1))
	}
	return n, nil
}

// whole takes a number that has no fraction and no exponent.
func (r *metaReader) whole() (string, error) {
	start := r.i
	if err := r.number(); err != nil {
		return "", err
	}
	n := r.s[start:r.i]
	if strings.ContainsAny(n, ".eE") {
		return "", r.fail(start, "want a whole number, without fraction or exponent")
	}
	return n, nil
}

func (r *metaReader) number() error {
	start := r.i
	r.take('-')
	if !r.take('0') && !r.digits() {
		return r.fail(start, "want a number, have %s", r.here())
	}
	if r.take('.') && !r.digits() {
		return r.fail(r.i, "want a digit, have %s", r.here())
	}
	if r.take('e') || r.take('E') {
		if !r.take('+') {
			r.take('-')
		}
		if !r.digits() {
			return r.fail(r.i, "want a digit, have %s", r.here())
		}
	}
	return nil
}

func (r *metaReader) digits() bool {
	start := r.i
	for r.i < len(r.s) && '0' <= r.s[r.i] && r.s[r.i] <= '9' {
		r.i++
	}
	return r.i > start
}

// skip reads a value of any kind that stands inside depth objects or arrays.
func (r *metaReader) skip(depth int) error {
	if r.i >= len(r.s) {
		return r.fail(r.i, "want a value, have %s", r.here())
	}
	switch c := r.s[r.i]; c {
	case '"':
		return r.skipQuoted()
	case '{', '[':
		if depth >= maxMetaDepth {
			return r.fail(r.i, "nested deeper than %d", maxMetaDepth)
		}
		r.i++
		return r.skipNested(c, depth+1)
	default:
		if r.word("true") || r.word("false") || r.word("null") {
			return nil
		}
		return r.number()
	}
}

func (r *metaReader) skipNested(opened byte, depth int) error {
	closing := byte('}')
	if opened == '[' {
		closing = ']'
	}
	r.space()
	if r.take(closing) {
		return nil
	}
	for {
		r.space()
		if opened == '{' {
			if err := r.skipQuoted(); err != nil {
				return err
			}
			r.space()
			if !r.take(':') {
				return r.fail(r.i, "want a colon, have %s", r.here())
			}
			r.space()
		}
		if err := r.skip(depth); err != nil {
			return err
		}
		r.space()
		if r.take(closing) {
			return nil
		}
		if !r.take(',') {
			return r.fail(r.i, "want a comma or %q, have %s", closing, r.here())
		}
	}
}

// plain takes the characters of a string up to its end or its next escape.
func (r *metaReader) plain() error {
	for ; r.i < len(r.s); r.i++ {
		switch c := r.s[r.i]; {
		case c == '"' || c == '\\':
			return nil
		case c < 0x20:
			return r.fail(r.i, "a control character, unescaped: %s", r.here())
		}
	}
	return r.fail(r.i, "a string without an end")
}

func (r *metaReader) skipQuoted() error {
	if !r.take('"') {
		return r.fail(r.i, "want a string, have %s", r.here())
	}
	for {
		if err := r.plain(); err != nil {
			return err
		}
		if r.take('"') {
			return nil
		}
		if _, err := r.escape(); err != nil {
			return err
		}
	}
}

// quoted reads a string. One without escapes shares the input's memory.
func (r *metaReader) quoted() (string, error) {
	start := r.i + 1
	if err := r.skipQuoted(); err != nil {
		return "", err
	}
	raw := r.s[start : r.i-1]
	if strings.IndexByte(raw, '\\') < 0 {
		return raw, nil
	}
	var b strings.Builder
	b.Grow(len(raw))
	for e := (metaReader{s: raw}); e.i < len(raw); {
		n := strings.IndexByte(raw[e.i:], '\\')
		if n < 0 {
			n = len(raw) - e.i
		}
		b.WriteString(raw[e.i : e.i+n])
		if e.i += n; e.i < len(raw) {
			c, err := e.escape()
			if err != nil {
				return "", err
			}
			b.WriteRune(c)
		}
	}
	return b.String(), nil
}

// escape reads an escape. Half a surrogate pair is U+FFFD.
func (r *metaReader) escape() (rune, error) {
	start := r.i
	r.i++
	if r.i >= len(r.s) {
		return 0, r.fail(r.i, "a string without an end")
	}
	c := r.s[r.i]
	r.i++
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		u, ok := r.hex4(r.i)
		if !ok {
			return 0, r.fail(start, "an escape without four hexadecimal digits")
		}
		r.i += 4
		if !utf16.IsSurrogate(u) {
			return u, nil
		}
		if strings.HasPrefix(r.s[r.i:], `\u`) {
			if low, ok := r.hex4(r.i + 2); ok {
				if pair := utf16.DecodeRune(u, low); pair != utf8.RuneError {
					r.i += 6
					return pair, nil
				}
			}
		}
		return utf8.RuneError, nil
	}
	return 0, r.fail(start, "an unknown escape")
}

func (r *metaReader) hex4(at int) (rune, bool) {
	if at+4 > len(r.s) {
		return 0, false
	}
	var u rune
	for _, c := range []byte(r.s[at : at+4]) {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		u = u<<4 | rune(c)
	}
	return u, true
}
