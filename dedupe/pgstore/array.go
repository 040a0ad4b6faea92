package pgstore

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/dedupe"
)

// array is an array of PostgreSQL in its text form, "{a,b}", which a statement casts to its type. It goes
// through every mode of execution, prepared or not, and is made without reflection.
//
// An array none of whose elements has a value is sent as NULL, which unnest beside longer ones fills with NULLs.
type array struct {
	buf   []byte
	given bool
	nulls int // before the first value; they are written when it comes
}

// next begins an element that has a value.
func (a *array) next() {
	if a.given {
		a.buf = append(a.buf, ',')
		return
	}
	a.given = true
	a.buf = append(make([]byte, 0, 2048), '{')
	for range a.nulls {
		a.buf = append(a.buf, "NULL,"...)
	}
}

func (a *array) null() {
	if !a.given {
		a.nulls++
		return
	}
	a.buf = append(a.buf, ",NULL"...)
}

// text takes UTF-8 without NUL.
func (a *array) text(s string) {
	a.next()
	a.buf = append(a.buf, '"')
	if strings.IndexByte(s, '"') < 0 && strings.IndexByte(s, '\\') < 0 {
		a.buf = append(a.buf, s...)
	} else {
		for _, c := range []byte(s) {
			if c == '"' || c == '\\' {
				a.buf = append(a.buf, '\\')
			}
			a.buf = append(a.buf, c)
		}
	}
	a.buf = append(a.buf, '"')
}

// blob is NULL where b is nil.
func (a *array) blob(b []byte) {
	if b == nil {
		a.null()
		return
	}
	a.next()
	a.buf = append(a.buf, `"\\x`...)
	a.buf = hex.AppendEncode(a.buf, b)
	a.buf = append(a.buf, '"')
}

func (a *array) token(t *dedupe.Token) {
	a.next()
	a.buf = hex.AppendEncode(a.buf, t[:])
}

func (a *array) int(n int64) {
	a.next()
	a.buf = strconv.AppendInt(a.buf, n, 10)
}

// bool is NULL for false.
func (a *array) bool(v bool) {
	if !v {
		a.null()
		return
	}
	a.next()
	a.buf = append(a.buf, 't')
}

// time is NULL for the zero time.
func (a *array) time(t time.Time) {
	if t.IsZero() {
		a.null()
		return
	}
	a.next()
	a.buf = t.UTC().AppendFormat(a.buf, "2006-01-02T15:04:05.999999Z")
}

// arg is the argument of a statement.
func (a *array) arg() any {
	if !a.given {
		return nil
	}
	return string(append(a.buf, '}'))
}

// clean is s as PostgreSQL can hold it: its text is UTF-8 without NUL, and what people are to read must not fail the
// statement.
func clean(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\ufffd")
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\ufffd")
	}
	return s
}
