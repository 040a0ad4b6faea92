package pgbroker

import (
	"encoding/hex"
	"strconv"
)

// array is an argument of a statement: an array of PostgreSQL in its text form, "{a,b}". That works
// in every mode of execution and with every driver of database/sql. It is ASCII alone, so that no
// client_encoding changes it, and it holds no NULL, which array_nulls = off would spoil.
type array []byte

func newArray(size int) array { return append(make(array, 0, size+2), '{') }

func (a *array) next() {
	if len(*a) > 1 {
		*a = append(*a, ',')
	}
}

func (a *array) int(n int64) {
	a.next()
	*a = strconv.AppendInt(*a, n, 10)
}

// blob adds an element of an array of bytea.
func (a *array) blob(b []byte) {
	a.next()
	*a = append(*a, `"\\x`...)
	*a = hex.AppendEncode(*a, b)
	*a = append(*a, '"')
}

// arg is the argument. The array must not be used afterwards.
func (a array) arg() string { return string(append(a, '}')) }

// blobText is one value of bytea.
func blobText(s string) string { return `\x` + hex.EncodeToString([]byte(s)) }
