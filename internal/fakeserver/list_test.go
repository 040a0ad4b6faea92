package fakeserver_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/onceq/onceq/internal/fakeserver"
)

type item struct {
	n  int
	at fakeserver.Place[*item]
}

func inOrder(l *fakeserver.List[*item]) (ns []int) {
	for i := l.First(); i != nil; i = i.at.Next() {
		ns = append(ns, i.n)
	}
	return ns
}

// A list is a slice from which items go at any place.
func TestList(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var l fakeserver.List[*item]
	var want []*item
	for n := range 2000 {
		if len(want) == 0 || rnd.IntN(20) > 9 {
			i := &item{n: n}
			l.Append(&i.at, i)
			want = append(want, i)
		} else {
			at := rnd.IntN(len(want))
			i := want[at]
			want = slices.Delete(want, at, at+1)
			l.Remove(&i.at)
			l.Remove(&i.at) // again does nothing
			if i.at.Listed() || i.at.Next() != nil {
				t.Fatalf("%d is still there", i.n)
			}
		}
		var ns []int
		for _, i := range want {
			if !i.at.Listed() {
				t.Fatalf("%d is gone", i.n)
			}
			ns = append(ns, i.n)
		}
		if got := inOrder(&l); !slices.Equal(got, ns) {
			t.Fatalf("after %d steps: %v, want %v", n, got, ns)
		}
	}
}
