package pgstore

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestArray(t *testing.T) {
	a := newArrays() // all go into one buffer, and none leaves anything to the next
	var want []any
	for _, c := range []struct {
		fill func(a *array)
		want any
	}{
		{func(*array) {}, nil},
		{func(a *array) { a.null(); a.bool(false); a.blob(nil) }, nil},
		{func(a *array) { a.null(); a.null(); a.text("x") }, `{NULL,NULL,"x"}`},
		{func(a *array) { a.text(""); a.null(); a.text(`NULL`); a.null() }, `{"",NULL,"NULL",NULL}`},
		{func(a *array) { a.text(`a"b\c,{}`) }, `{"a\"b\\c,{}"}`},
		{func(a *array) { a.blob([]byte{}); a.blob([]byte{0xfe}) }, `{"\\x","\\xfe"}`},
		{func(a *array) { a.null() }, nil},
		{func(a *array) { a.int(-1); a.null(); a.int(7) }, `{-1,NULL,7}`},
		{func(*array) {}, nil},
	} {
		c.fill(&a.array)
		a.end()
		want = append(want, c.want)
	}
	if got := a.args(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestSharedColumn(t *testing.T) {
	for of, want := range map[string]any{"": nil, "a": `{"a"}`, "a a a": `{"a"}`, "a a b": `{"a","a","b"}`, "b a a": `{"b","a","a"}`} {
		a := newArrays()
		shared(a, strings.Fields(of), strings.Clone, (*array).text)
		if got := a.args(); len(got) != 1 || got[0] != want {
			t.Errorf("of %q: %q, want %q", of, got, want)
		}
	}
}

// TestArgsStay: a buffer serves the next call while what was made in it is still to be sent, or
// stands in a tracer.
func TestArgsStay(t *testing.T) {
	var wg sync.WaitGroup
	for caller := range 4 {
		wg.Go(func() {
			var before []any
			var want string
			for i := range 1000 {
				a := newArrays()
				column(a, []int{caller, i}, func(n int) int64 { return int64(n) }, (*array).int)
				args := a.args()
				if before != nil && before[0] != want {
					t.Errorf("the arguments %s have become %s", want, before[0])
					return
				}
				before, want = args, fmt.Sprintf("{%d,%d}", caller, i)
			}
		})
	}
	wg.Wait()
}
