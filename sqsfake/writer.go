package sqsfake

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// writer writes one JSON document; the commas come by themselves.
type writer struct{ b []byte }

func (w *writer) comma() {
	if n := len(w.b); n > 0 {
		switch w.b[n-1] {
		case '{', '[', ':':
		default:
			w.b = append(w.b, ',')
		}
	}
}

// open begins an object or an array, close ends it.
func (w *writer) open(c byte) {
	w.comma()
	w.b = append(w.b, c)
}

func (w *writer) close(c byte) { w.b = append(w.b, c) }

func (w *writer) key(k string) {
	w.comma()
	w.b = append(w.b, '"')
	w.b = append(w.b, k...)
	w.b = append(w.b, '"', ':')
}

func (w *writer) text(s string) {
	w.comma()
	w.b = append(w.b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				w.b = append(w.b, s[start:i]...)
				w.b = append(w.b, `\ufffd`...)
				start = i + 1
			}
			i += size
			continue
		}
		w.b = append(w.b, s[start:i]...)
		switch c {
		case '"', '\\':
			w.b = append(w.b, '\\', c)
		case '\n':
			w.b = append(w.b, '\\', 'n')
		case '\r':
			w.b = append(w.b, '\\', 'r')
		case '\t':
			w.b = append(w.b, '\\', 't')
		default:
			const digits = "0123456789abcdef"
			w.b = append(w.b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
		i++
		start = i
	}
	w.b = append(w.b, s[start:]...)
	w.b = append(w.b, '"')
}

func (w *writer) number(n int64) {
	w.comma()
	w.b = strconv.AppendInt(w.b, n, 10)
}

func (w *writer) boolean(v bool) {
	w.comma()
	w.b = strconv.AppendBool(w.b, v)
}

// field is a key with a string, entirely.
func (w *writer) field(k, s string) {
	w.key(k)
	w.text(s)
}

// optional is a field that is left out when empty.
func (w *writer) optional(k, s string) {
	if s != "" {
		w.field(k, s)
	}
}

func (w *writer) numberField(k string, n int64) {
	w.key(k)
	w.number(n)
}

func (w *writer) blobField(k string, b []byte) {
	w.key(k)
	w.b = append(w.b, '"')
	w.b = base64.StdEncoding.AppendEncode(w.b, b)
	w.b = append(w.b, '"')
}

// dict is a map of texts, by their keys; an empty one is left out, as AWS does.
func (w *writer) dict(k string, m map[string]string) {
	if len(m) == 0 {
		return
	}
	w.key(k)
	w.open('{')
	for _, name := range slices.Sorted(maps.Keys(m)) {
		w.field(name, m[name])
	}
	w.close('}')
}

func (w *writer) texts(k string, list []string) {
	w.key(k)
	w.open('[')
	for _, s := range list {
		w.text(s)
	}
	w.close(']')
}
