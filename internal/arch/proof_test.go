package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/must"
)

// leftToProof returns what the tests leave to make proof: the texts that they give to
// internal/proof, as literals or as constants of the same file.
func leftToProof(t *tree) (left, bad []string) {
	for _, p := range t.own() {
		for _, f := range p.files {
			name, ok := f.imports[t.module+"/internal/proof"]
			if !ok {
				continue
			}
			texts := constantsOf(f.ast)
			ast.Inspect(f.ast, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) != 2 {
					return true
				}
				fn, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || fn.Sel.Name != "Only" && fn.Sel.Name != "Leave" {
					return true
				}
				if x, ok := fn.X.(*ast.Ident); !ok || x.Name != name {
					return true
				}
				text := literal(call.Args[1])
				if id, ok := call.Args[1].(*ast.Ident); ok {
					text = texts[id.Name]
				}
				if text == "" {
					bad = append(bad, fmt.Sprintf("%s: name what is left to make proof in a literal, or a constant of the file", t.at(call.Pos())))
				} else if !slices.Contains(left, text) {
					left = append(left, text)
				}
				return true
			})
		}
	}
	return left, bad
}

// constantsOf returns the file's constants that are plain texts.
func constantsOf(a *ast.File) map[string]string {
	texts := map[string]string{}
	ast.Inspect(a, func(n ast.Node) bool {
		if s, ok := n.(*ast.ValueSpec); ok {
			for i, v := range s.Values {
				texts[s.Names[i].Name] = literal(v)
			}
		}
		return true
	})
	return texts
}

// literal is the text that an expression stands for; empty = it is no literal.
func literal(e ast.Expr) string {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return ""
	}
	text, _ := strconv.Unquote(l.Value)
	return text
}

// TestLeftToProof: what make test leaves to make proof stands in CONTRIBUTING.md with its reason,
// and nothing else does.
func TestLeftToProof(t *testing.T) {
	page := must.Get(os.ReadFile("../../CONTRIBUTING.md"))
	_, table, ok := strings.Cut(string(page), "| left to `make proof` | because |\n|---|---|\n")
	if !ok {
		t.Fatal("CONTRIBUTING.md has no table of what is left to make proof")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	left, bad := leftToProof(ours(t))
	for _, b := range bad {
		t.Error(b)
	}
	var rows []string
	for row := range strings.Lines(table + "\n") {
		cells := strings.Split(row, "|")
		if len(cells) != 4 || strings.TrimSpace(cells[2]) == "" {
			t.Errorf("CONTRIBUTING.md: %q is no row with a reason", row)
			continue
		}
		rows = append(rows, strings.TrimSpace(cells[1]))
	}
	for _, text := range left {
		if !slices.Contains(rows, text) {
			t.Errorf("CONTRIBUTING.md has no row for what a test leaves to make proof: %s", text)
		}
	}
	for _, row := range rows {
		if !slices.Contains(left, row) {
			t.Errorf("CONTRIBUTING.md: no test leaves this to make proof: %s", row)
		}
	}
}
