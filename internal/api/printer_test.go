package api

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"github.com/onceq/onceq/internal/must"
)

// TestPrinter: each kind of declaration has its line, and what users cannot name has none.
func TestPrinter(t *testing.T) {
	const source = `package p

type Number interface{ ~int | ~float64 }

const (
	A      = 1 << 3
	B Kind = "b"
	c      = 2
)

type Kind string

var V map[string][]*T[int]

type inner struct {
	Deep int
	more bool
}

func (*inner) Reach() {}

type T[X any] struct {
	inner
	Kind
	F func(x X, rest ...string) (n int, err error)
	g int
}

func (t T[X]) M(ch <-chan X) error { return nil }
func (t *T[X]) hidden()            {}

type Iface interface {
	error
	Do(struct{ N int }, [2]any)
	private()
}

type Same = map[Kind]Iface

func F[N Number](n N, f func()) (N, bool) { return n, false }
func g()                                {}
`
	const want = `package p // import "m.test/p"

const A untyped int = 8
const B Kind = "b"
func F[N Number](N, func()) (N, bool)
method (*T) Reach()
method (T) M(<-chan X) error
type Iface interface
type Iface interface, Do(struct{N int}, [2]any)
type Iface interface, embedded error
type Iface interface, with unexported methods
type Kind string
type Number interface
type Number interface, embedded ~int | ~float64
type Same = map[Kind]Iface
type T struct, Deep int
type T struct, F func(X, ...string) (int, error)
type T struct, embedded Kind
type T[X any] struct, with unexported fields
var V map[string][]*T[int]
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	pkg := must.Get(new(types.Config).Check("m.test/p", fset, []*ast.File{file}, nil))
	if diff := differ(want, surface(pkg)); diff != "" {
		t.Error(diff)
	}
}

// TestDiffer: a line more, a line less, and a text in another order are differences.
func TestDiffer(t *testing.T) {
	for want, got := range map[string]string{"a\nb": "a", "a": "a\nb", "c\nd": "d\nc"} {
		if differ(want, got) == "" {
			t.Errorf("%q and %q do not differ", want, got)
		}
	}
	if diff := differ("a\nb", "a\nb"); diff != "" {
		t.Errorf("equal texts differ: %s", diff)
	}
}
