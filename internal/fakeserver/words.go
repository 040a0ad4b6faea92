package fakeserver

import (
	"fmt"
	"slices"
	"strings"
)

// Words are the texts of an option's values, by value.
type Words []string

// Text is the word of the i-th value; name is the server's.
func (ws Words) Text(name string, i int) ([]byte, error) {
	if i >= len(ws) {
		return nil, fmt.Errorf("%s: %d is none of %s", name, i, strings.Join(ws, ", "))
	}
	return []byte(ws[i]), nil
}

// Value is the value that a word stands for.
func (ws Words) Value(text []byte) (int, error) {
	i := slices.Index(ws, string(text))
	if i < 0 {
		return 0, fmt.Errorf("%q is none of %s", text, strings.Join(ws, ", "))
	}
	return i, nil
}
