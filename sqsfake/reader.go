package sqsfake

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// This file owns the reading of a request's JSON. input.go and msgattributes.go call it. A reader
// belongs to one request, so nothing is locked. writer.go writes the answers.

// reader reads one JSON document. It knows what a request may hold, so that a wrong type or
// an unknown parameter is an error with a name, and it costs a tenth of encoding/json: the
// server shall not be what a benchmark measures. After an error every call does nothing.
type reader struct {
	data []byte
	pos  int
	err  *apiError
}

func (r *reader) failf(format string, args ...any) {
	if r.err == nil {
		r.err = errSerialization.withf(format, args...)
	}
	r.pos = len(r.data)
}

// peek skips white space and returns the next byte; 0 at the end.
func (r *reader) peek() byte {
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

func (r *reader) take(c byte) bool {
	if r.peek() == c {
		r.pos++
		return true
	}
	return false
}

// null reads a null, if one comes next: it means that the parameter is absent.
func (r *reader) null() bool {
	if r.peek() == 'n' && bytes.HasPrefix(r.data[r.pos:], []byte("null")) {
		r.pos += 4
		return true
	}
	return false
}

// object calls each with every key; each reads the value. A null never reaches it.
func (r *reader) object(what string, each func(key []byte)) {
	if !r.take('{') {
		r.failf("%s must be an object", what)
		return
	}
	if r.take('}') {
		return
	}
	for r.err == nil {
		if r.peek() != '"' {
			r.failf("an object's key must be a string")
			return
		}
		key := r.raw()
		if !r.take(':') {
			r.failf("a key without a value")
			return
		}
		if !r.null() {
			each(key)
		}
		if r.take(',') {
			continue
		}
		if !r.take('}') {
			r.failf("the request ends within an object")
		}
		return
	}
}

// array calls each before every element; each reads it.
func (r *reader) array(what string, each func()) {
	if !r.take('[') {
		r.failf("%s must be an array", what)
		return
	}
	if r.take(']') {
		return
	}
	for r.err == nil {
		each()
		if r.take(',') {
			continue
		}
		if !r.take(']') {
			r.failf("the request ends within an array")
		}
		return
	}
}

// raw reads a string without its quotes. Where it has no escapes it is a part of the data.
func (r *reader) raw() []byte {
	r.pos++ // the quote
	start := r.pos
	for ; r.pos < len(r.data); r.pos++ {
		switch c := r.data[r.pos]; {
		case c == '"':
			r.pos++
			return r.data[start : r.pos-1]
		case c == '\\':
			return r.escaped(start)
		case c < ' ':
			r.failf("a control character within a string")
			return nil
		}
	}
	r.failf("the request ends within a string")
	return nil
}

// escaped reads on from a string's first escape; start is where the string began. The rare
// case is left to the standard library.
func (r *reader) escaped(start int) []byte {
	for ; r.pos < len(r.data); r.pos++ {
		switch r.data[r.pos] {
		case '\\':
			r.pos++
		case '"':
			r.pos++
			var s string
			if json.Unmarshal(r.data[start-1:r.pos], &s) != nil {
				r.failf("a string with a wrong escape")
				return nil
			}
			return []byte(s)
		}
	}
	r.failf("the request ends within a string")
	return nil
}

func (r *reader) text(what string) string {
	if r.peek() != '"' {
		r.failf("%s must be a string", what)
		return ""
	}
	s := string(r.raw())
	if !utf8.ValidString(s) {
		r.failf("%s is not valid UTF-8", what)
	}
	return s
}

func (r *reader) blob(what string) []byte {
	b, err := base64.StdEncoding.DecodeString(r.text(what))
	if err != nil {
		r.failf("%s is not valid base64", what)
	}
	return b
}

func (r *reader) number(what string) int64 {
	r.peek()
	start := r.pos
	for r.pos < len(r.data) && bytes.IndexByte([]byte("+-.eE0123456789"), r.data[r.pos]) >= 0 {
		r.pos++
	}
	n, err := strconv.ParseInt(string(r.data[start:r.pos]), 10, 64)
	if err != nil {
		r.failf("%s must be an integer", what)
	}
	return n
}

func (r *reader) list(what string) []string {
	s := []string{}
	r.array(what, func() { s = append(s, r.text(what)) })
	return s
}

func (r *reader) dict(what string) map[string]string {
	m := map[string]string{}
	r.object(what, func(key []byte) {
		k := string(key)
		m[k] = r.text(what + "." + k)
	})
	return m
}

// end checks that nothing follows the document.
func (r *reader) end() {
	if r.err == nil && r.peek() != 0 {
		r.failf("something follows the request's object")
	}
}
