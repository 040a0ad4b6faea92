package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/onceq/onceq/internal/must"
)

// openedFrom is the length from which on a file needs an opening: what it owns, who calls it, and
// under which lock. Up to this length a reader sees that faster in the code.
const openedFrom = 151

// checkOpenings reports long files without an opening, in nested modules too. Whether an opening
// says the three things is for its reviewer.
func checkOpenings(t *tree) []string {
	var bad []string
	for _, dir := range slices.Sorted(maps.Keys(t.pkgs)) {
		p := t.pkgs[dir]
		code := 0
		for _, f := range p.files {
			if !f.test {
				code++
			}
		}
		for _, f := range p.files {
			if f.test || f.lines < openedFrom {
				continue
			}
			// The comment of a package of several files says what they do together, not what this
			// file does; only doc.go has nothing else to say.
			packages := code == 1 || path.Base(f.name) == "doc.go"
			if !t.opened(f, packages) {
				bad = append(bad, fmt.Sprintf("%s: %d lines: say in a comment of its own, above the package clause or "+
					"below the imports, what the file owns, who calls it, and under which lock", f.name, f.lines))
			}
		}
	}
	return bad
}

// opened reports whether a comment of the file's own stands above the package clause, or between
// the imports and the first declaration. The package comment counts if packages is true.
func (t *tree) opened(f *file, packages bool) bool {
	head := f.ast.Name.End()
	var first ast.Decl
	for _, d := range f.ast.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
			head = g.End()
			continue
		}
		first = d
		break
	}
	for _, c := range f.ast.Comments {
		switch {
		case c.Text() == "": // Directives alone, such as go:build.
		case c == f.ast.Doc:
			if packages {
				return true
			}
		case c.End() < f.ast.Package:
			return true
		case t.line(c.Pos()) > t.line(head) && (first == nil || c.End() < first.Pos()) && c != docOf(first):
			return true
		}
	}
	return false
}

func (t *tree) line(p token.Pos) int { return t.fset.Position(p).Line }

func docOf(d ast.Decl) *ast.CommentGroup {
	switch d := d.(type) {
	case *ast.GenDecl:
		return d.Doc
	case *ast.FuncDecl:
		return d.Doc
	}
	return nil
}

// TestOpenings: a file over 150 lines opens with what it owns, who calls it, and under which lock.
func TestOpenings(t *testing.T) {
	for _, bad := range checkOpenings(ours(t)) {
		t.Error(bad)
	}
}

func TestOpeningsAreFound(t *testing.T) {
	long := "\nfunc f() {\n" + strings.Repeat("\n", 150) + "}\n"
	const own = "// This file owns nothing.\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"nothing", map[string]string{"x/a.go": "package x\n" + long}, []string{"x/a.go"}},
		{"150 lines", map[string]string{"x/a.go": "package x\n" + strings.Repeat("\n", 149)}, nil},
		{"151 lines", map[string]string{"x/a.go": "package x\n" + strings.Repeat("\n", 150)}, []string{"x/a.go"}},
		{"a test", map[string]string{"x/a_test.go": "package x\n" + long}, nil},
		{"another module's file", map[string]string{
			"y/go.mod": "module m.test/m/y", "y/z/a.go": "package z\n" + long,
		}, []string{"y/z/a.go"}},
		{"above the package clause", map[string]string{"x/a.go": own + "\npackage x\n" + long}, nil},
		{"below a build tag", map[string]string{"x/a.go": "//go:build unix\n\n" + own + "\npackage x\n" + long}, nil},
		{"a build tag alone", map[string]string{"x/a.go": "//go:build unix\n\npackage x\n" + long}, []string{"x/a.go"}},
		{"below the package clause", map[string]string{"x/a.go": "package x\n\n" + own + long}, nil},
		{"beside the package clause", map[string]string{"x/a.go": "package x " + own + long}, []string{"x/a.go"}},
		{"below the imports", map[string]string{
			"x/a.go": "package x\n\nimport \"a\"\nimport (\n\t\"b\"\n)\n\n" + own + long,
		}, nil},
		{"above the imports", map[string]string{
			"x/a.go": "package x\n\n" + own + "\nimport \"a\"\n" + long,
		}, []string{"x/a.go"}},
		{"within the imports", map[string]string{
			"x/a.go": "package x\n\nimport (\n\t" + own + "\n\t\"a\"\n)\n" + long,
		}, []string{"x/a.go"}},
		{"beside the imports", map[string]string{
			"x/a.go": "package x\n\nimport \"a\" " + own + long,
		}, []string{"x/a.go"}},
		{"a function's doc", map[string]string{
			"x/a.go": "package x\n\nimport \"a\"\n\n// f is." + long,
		}, []string{"x/a.go"}},
		{"a type's doc", map[string]string{
			"x/a.go": "package x\n\n// T is.\ntype T int\n" + long,
		}, []string{"x/a.go"}},
		{"an opening and a doc", map[string]string{
			"x/a.go": "package x\n\n" + own + "\n// T is.\ntype T int\n" + long,
		}, nil},
		{"within the first declaration", map[string]string{
			"x/a.go": "package x\n\nconst (\n\t" + own + "\n\ta = 1\n)\n" + long,
		}, []string{"x/a.go"}},
		{"between later declarations", map[string]string{
			"x/a.go": "package x\n\nvar a int\n\n" + own + long,
		}, []string{"x/a.go"}},
		{"the comment of a package of one file", map[string]string{
			"x/a.go": "// Package x is.\npackage x\n" + long, "x/a_test.go": "package x",
		}, nil},
		{"the comment of a package of two files", map[string]string{
			"x/a.go": "// Package x is.\npackage x\n" + long, "x/b.go": "package x",
		}, []string{"x/a.go"}},
		{"doc.go", map[string]string{
			"x/doc.go": "// Package x is.\npackage x\n" + long, "x/b.go": "package x",
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := fstest.MapFS{"go.mod": {Data: []byte("module m.test/m")}}
			for name, src := range c.files {
				root[name] = &fstest.MapFile{Data: []byte(src)}
			}
			tr := must.Get(load(root))
			var got []string
			for _, bad := range checkOpenings(tr) {
				name, _, _ := strings.Cut(bad, ":")
				got = append(got, name)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("reported %q, want %q", got, c.want)
			}
		})
	}
}
