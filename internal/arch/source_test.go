package arch

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/token"
	"strings"
)

// checkBans reports the names that a ban forbids, called or only mentioned.
func checkBans(t *tree) []string {
	var bad []string
	for _, p := range t.own() {
		for _, f := range p.files {
			report := func(n ast.Node, name string) {
				for _, b := range bans {
					if !matches(b.pkgs, p.dir) || matches(b.except, p.dir) || f.test && !b.tests {
						continue
					}
					for _, banned := range b.names {
						all, ok := strings.CutSuffix(banned, "*")
						if name == banned || ok && strings.HasPrefix(name, all) {
							bad = append(bad, fmt.Sprintf("%s: %s: %s", t.at(n.Pos()), name, b.why))
						}
					}
				}
			}
			paths := map[string]string{}
			for imp, name := range f.imports {
				paths[name] = imp
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && paths[x.Name] != "" {
						report(n, paths[x.Name]+"."+n.Sel.Name)
					}
				case *ast.CallExpr:
					if id, ok := n.Fun.(*ast.Ident); ok {
						report(n, id.Name)
					}
				}
				return true
			})
		}
	}
	return bad
}

// checkInit reports init functions in the core's code.
func checkInit(t *tree) []string {
	var bad []string
	for _, p := range t.own() {
		for _, f := range p.files {
			for _, d := range f.ast.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if ok && fn.Recv == nil && fn.Name.Name == "init" && !f.test && matches(noInit, p.dir) {
					bad = append(bad, t.at(fn.Pos())+": func init: importing the core has no effect, nothing registers itself")
				}
			}
		}
	}
	return bad
}

// checkPanics reports panics in the core's code that are neither passed on nor explained.
func checkPanics(t *tree) []string {
	var bad []string
	for _, p := range t.own() {
		for _, f := range p.files {
			if f.test || !matches(noPanic, p.dir) {
				continue
			}
			explained, recovered := t.invariants(f), recoveredIn(f.ast)
			ast.Inspect(f.ast, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !isBuiltin(call, "panic") {
					return true
				}
				line := t.fset.Position(call.Pos()).Line
				if !explained[line] && !explained[line-1] && !recovered[call] {
					bad = append(bad, t.at(call.Pos())+`: panic: return an error; where only a bug of ours leads here, say so with "// invariant: ..."`)
				}
				return true
			})
		}
	}
	return bad
}

// invariants returns the last lines of the comments that begin with "invariant:".
func (t *tree) invariants(f *file) map[int]bool {
	lines := map[int]bool{}
	for _, g := range f.ast.Comments {
		if strings.HasPrefix(g.Text(), "invariant: ") {
			lines[t.fset.Position(g.End()).Line] = true
		}
	}
	return lines
}

// recoveredIn returns the panics of a variable that holds what recover returned, in the
// function that recovered it.
func recoveredIn(a *ast.File) map[*ast.CallExpr]bool {
	found := map[*ast.CallExpr]bool{}
	ast.Inspect(a, func(n ast.Node) bool {
		var body *ast.BlockStmt
		switch n := n.(type) {
		case *ast.FuncDecl:
			body = n.Body
		case *ast.FuncLit:
			body = n.Body
		}
		if body == nil {
			return true
		}
		held := map[string]bool{}
		inspectOwn(body, func(n ast.Node) {
			s, ok := n.(*ast.AssignStmt)
			if !ok || len(s.Lhs) != 1 || len(s.Rhs) != 1 {
				return
			}
			call, ok := s.Rhs[0].(*ast.CallExpr)
			if id, isID := s.Lhs[0].(*ast.Ident); ok && isID && isBuiltin(call, "recover") {
				held[id.Name] = true
			}
		})
		inspectOwn(body, func(n ast.Node) {
			call, ok := n.(*ast.CallExpr)
			if !ok || !isBuiltin(call, "panic") || len(call.Args) != 1 {
				return
			}
			if id, ok := call.Args[0].(*ast.Ident); ok && held[id.Name] {
				found[call] = true
			}
		})
		return true
	})
	return found
}

// inspectOwn visits the nodes of a function's body without those of functions inside it.
func inspectOwn(body *ast.BlockStmt, visit func(ast.Node)) {
	ast.Inspect(body, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false
		}
		if n != nil {
			visit(n)
		}
		return true
	})
}

func isBuiltin(call *ast.CallExpr, name string) bool {
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == name
}

// checkLength reports files that are too long, in nested modules too.
func checkLength(t *tree) []string {
	var bad []string
	for _, p := range t.pkgs {
		for _, f := range p.files {
			if f.lines > maxLines {
				bad = append(bad, fmt.Sprintf("%s: %d lines, at most %d: split it by job", f.name, f.lines, maxLines))
			}
		}
	}
	return bad
}

// checkExamples reports examples that only compile: without an Output comment they never run.
func checkExamples(t *tree) []string {
	var bad []string
	for _, p := range t.own() {
		var files []*ast.File
		for _, f := range p.files {
			if f.test {
				files = append(files, f.ast)
			}
		}
		for _, e := range doc.Examples(files...) {
			if e.Output == "" && !e.EmptyOutput {
				bad = append(bad, fmt.Sprintf("%s: Example%s has no \"// Output:\", so no test runs it", t.at(e.Code.Pos()), e.Name))
			}
		}
	}
	return bad
}

// checkDocs reports exported names of public packages without a doc comment.
func checkDocs(t *tree) []string {
	var bad []string
	for _, p := range t.own() {
		if !matches(documented, p.dir) || matches(undocumented, p.dir) {
			continue
		}
		var code int
		var commented bool
		for _, f := range p.files {
			if f.test || f.ast.Name.Name == "main" {
				continue
			}
			code++
			commented = commented || f.ast.Doc != nil
			missing := func(pos token.Pos, name string) {
				bad = append(bad, fmt.Sprintf("%s: %s has no doc comment", t.at(pos), name))
			}
			for _, d := range f.ast.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					if d.Doc == nil && d.Name.IsExported() && exportedReceiver(d) {
						missing(d.Pos(), d.Name.Name)
					}
				case *ast.GenDecl:
					undocumentedSpecs(d, missing)
				}
			}
		}
		if code > 0 && !commented {
			bad = append(bad, p.dir+": the package has no doc comment")
		}
	}
	return bad
}

func exportedReceiver(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return true
	}
	typ := fn.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

// undocumentedSpecs calls missing for the exported names of a declaration that neither it
// nor its own line explains, and for the fields of a Config or Options struct.
func undocumentedSpecs(d *ast.GenDecl, missing func(token.Pos, string)) {
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					missing(name.Pos(), name.Name)
				}
			}
		case *ast.TypeSpec:
			if !s.Name.IsExported() {
				continue
			}
			if d.Doc == nil && s.Doc == nil && s.Comment == nil {
				missing(s.Pos(), s.Name.Name)
			}
			st, ok := s.Type.(*ast.StructType)
			if !ok || !strings.HasSuffix(s.Name.Name, "Config") && !strings.HasSuffix(s.Name.Name, "Options") {
				continue
			}
			for _, field := range st.Fields.List {
				for _, name := range field.Names {
					if name.IsExported() && field.Doc == nil && field.Comment == nil {
						missing(name.Pos(), s.Name.Name+"."+name.Name)
					}
				}
			}
		}
	}
}
