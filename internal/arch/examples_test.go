package arch

import (
	"bytes"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"testing"
)

// partial are the examples of a file that the documentation site cannot show as whole programs:
// their bodies name what another file declares, so nobody can paste them. A file with one example
// and declarations beside it is shown as it is; of the others go/doc makes a program, where it can.
func partial(f *ast.File) (names []string) {
	for _, e := range doc.Examples(f) {
		if _, whole := e.Code.(*ast.File); e.Play == nil || whole && len(unresolved(f)) > 0 {
			names = append(names, "Example"+e.Name)
		}
	}
	return names
}

// unresolved are the names that a file uses and neither declares nor imports.
func unresolved(f *ast.File) (names []string) {
	known := make(map[string]bool)
	for _, i := range f.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		known[path.Base(p)] = true
		known[path.Base(path.Dir(p))] = true // of .../pgx/v5
		if i.Name != nil {
			known[i.Name.Name] = true
		}
	}
	for _, id := range f.Unresolved {
		if !known[id.Name] && types.Universe.Lookup(id.Name) == nil {
			names = append(names, id.Name)
		}
	}
	return names
}

// parse is with the resolution of names, which the other rules do without.
func parse(fset *token.FileSet, name string, src any) (*ast.File, error) {
	return parser.ParseFile(fset, name, src, parser.ParseComments)
}

// TestExamplesAreWhole: each example of a package can be pasted and run. What an example needs
// stands in its own file.
func TestExamplesAreWhole(t *testing.T) {
	dir := os.DirFS("../..")
	tr := ours(t)
	n := 0
	for _, p := range tr.pkgs {
		for _, f := range p.files {
			if !f.test {
				continue
			}
			src, err := fs.ReadFile(dir, f.name)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(src, []byte("func Example")) {
				continue // the others, nearly all, are not parsed again
			}
			a, err := parse(token.NewFileSet(), f.name, src)
			if err != nil {
				t.Fatal(err)
			}
			n += len(doc.Examples(a))
			for _, name := range partial(a) {
				t.Errorf("%s: %s names what another file declares; declare it beside the example", f.name, name)
			}
		}
	}
	if n < 50 {
		t.Errorf("%d examples were found, want 50 or more", n)
	}
}

func TestPartialExamplesAreFound(t *testing.T) {
	const head = "package a_test\nimport \"fmt\"\n"
	for src, want := range map[string][]string{
		head + "func ExampleA() {\n\tfmt.Println(there())\n}\n":                                                               {"ExampleA"},
		head + "func ExampleA() {\n\tfmt.Println(here(), there())\n}\nfunc here() int { return 1 }\n":                         {"ExampleA"},
		head + "func ExampleA() {\n\tfmt.Println(here())\n}\nfunc here() int { return 1 }\n":                                  nil,
		head + "func ExampleA() {\n\tfmt.Println(here())\n}\nfunc ExampleB() {\n\tthere()\n}\nfunc here() int { return 1 }\n": {"ExampleB"},
	} {
		f, err := parse(token.NewFileSet(), "a_test.go", src)
		if err != nil {
			t.Fatal(err)
		}
		if got := partial(f); !slices.Equal(got, want) {
			t.Errorf("found %q, want %q, in\n%s", got, want, src)
		}
	}
}
