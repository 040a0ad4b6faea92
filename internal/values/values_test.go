package values

import "testing"

func TestIsNil(t *testing.T) {
	type empty struct{}
	for _, v := range []any{nil, (*empty)(nil), (func())(nil), (map[int]int)(nil), (chan int)(nil), ([]int)(nil)} {
		if !IsNil(v) {
			t.Errorf("%T: a nil is not seen", v)
		}
	}
	for _, v := range []any{empty{}, &empty{}, func() {}, map[int]int{}, make(chan int), []int{}, 0, ""} {
		if IsNil(v) {
			t.Errorf("%T: taken for nil", v)
		}
	}
}

type wrapper struct{ v any }

func (w *wrapper) Unwrap() any { return w.v }

func TestSame(t *testing.T) {
	type one struct{ n int }
	type some struct{ v any }
	p := &one{1}
	for _, c := range []struct {
		a, b any
		want bool
	}{
		{p, p, true},
		{p, &one{1}, false},
		{one{1}, one{1}, true},
		{one{1}, 1, false},
		{[]int{1}, []int{1}, false},             // not comparable: no panic
		{some{[]int{1}}, some{[]int{1}}, false}, // its type is comparable, it is not: no panic
		{some{1}, some{1}, true},
		{nil, p, false},
		{nil, nil, true},
		{&wrapper{p}, p, true},
		{&wrapper{&wrapper{p}}, &wrapper{p}, true},
		{&wrapper{p}, &wrapper{&one{1}}, false},
		{&wrapper{}, &wrapper{}, false},
		{(*wrapper)(nil), p, false},
	} {
		if got := Same(c.a, c.b); got != c.want {
			t.Errorf("Same(%v, %v) is %v", c.a, c.b, got)
		}
	}
}
