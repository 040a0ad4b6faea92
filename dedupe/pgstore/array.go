package pgstore

import (
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/dedupe"
)

// This file owns the arguments of the batch statements. Each call makes arrays of its own, from a
// pool of buffers, and nobody else sees them, so nothing is locked.

// arrays are the arguments of a statement, made column by column. Each is an array of PostgreSQL in
// its text form, "{a,b}", which the statement casts to its type. That works in every mode of
// execution, prepared or not, and needs no reflection.
//
// An array in which no element has a value is sent as NULL. Beside longer arrays unnest fills it up
// with NULLs.
type arrays struct {
	array       // the one that is being made; its buffer holds those before it, too
	ends  []int // of the arrays in the buffer
}

// array is the last one in a buffer.
type array struct {
	buf   []byte
	given bool
	nulls int // before the first value; they are written when it comes
}

// made keeps the buffers: a claim of a hundred keys needs ten kilobytes.
var made = sync.Pool{New: func() any { return new(arrays) }}

// maxKept is the largest buffer that waits for the next call.
const maxKept = 64 << 10

func newArrays() *arrays { return made.Get().(*arrays) }

// column adds an array with a value of each.
func column[T, V any](a *arrays, of []T, value func(T) V, add func(*array, V)) {
	for _, e := range of {
		add(&a.array, value(e))
	}
	a.end()
}

// shared adds an array of one value if all have the same, and a column otherwise. Its statement
// takes the first element for one that is missing. It saves bytes because most batches are of one
// scope, one owner and one lease.
func shared[T any, V comparable](a *arrays, of []T, value func(T) V, add func(*array, V)) {
	for _, e := range of {
		if value(e) != value(of[0]) {
			column(a, of, value, add)
			return
		}
	}
	column(a, of[:min(1, len(of))], value, add)
}

// end begins the next array.
func (a *arrays) end() {
	if a.given {
		a.buf = append(a.buf, '}')
	}
	a.given, a.nulls = false, 0
	a.ends = append(a.ends, len(a.buf))
}

// args are the arguments of the statement. The arrays must not be used afterwards.
func (a *arrays) args() []any {
	text := string(a.buf)
	args := make([]any, len(a.ends))
	start := 0
	for i, end := range a.ends {
		if start < end {
			args[i] = text[start:end]
		}
		start = end
	}
	if cap(a.buf) <= maxKept {
		a.buf, a.ends = a.buf[:0], a.ends[:0]
		made.Put(a)
	}
	return args
}

// next begins an element that has a value.
func (a *array) next() {
	if a.given {
		a.buf = append(a.buf, ',')
		return
	}
	a.given = true
	a.buf = append(a.buf, '{')
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

func (a *array) token(t dedupe.Token) {
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

// micros is the time in microseconds since 1970, and NULL for the zero time. The server reads a
// number faster than a date.
func (a *array) micros(t time.Time) {
	if t.IsZero() {
		a.null()
		return
	}
	a.int(t.UnixMicro())
}

// clean is s as PostgreSQL can hold it: in UTF-8 and without NUL. A text that is only for people
// must not fail the statement.
func clean(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\ufffd")
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\ufffd")
	}
	return s
}
