package pgstore

import "testing"

func TestArray(t *testing.T) {
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
		{func(a *array) { a.int(-1); a.null(); a.int(7) }, `{-1,NULL,7}`},
	} {
		var a array
		if c.fill(&a); a.arg() != c.want {
			t.Errorf("got %v, want %v", a.arg(), c.want)
		}
	}
}
