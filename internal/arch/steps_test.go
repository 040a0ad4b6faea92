package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
)

// checkSteps reports what reads an atomic and stores in it, in two steps, what it made of the
// answer: X.Store(max(X.Load(), n)), or if n > X.Load() { X.Store(n) }. Of two that do so at once
// one is lost, and the race detector is silent. In tests it makes a wrong maximum, and so a failure
// now and then.
func checkSteps(t *tree) []string {
	var bad []string
	for _, p := range t.own() {
		for _, f := range p.files {
			for _, d := range f.ast.Decls {
				read := loadedIn(d)
				report := func(at ast.Node, name string) {
					bad = append(bad, fmt.Sprintf("%s: %s.Store follows from %s.Load: another may store in between;"+
						" internal/peak counts what is under way, and Add or CompareAndSwap take one step", t.at(at.Pos()), name, name))
				}
				ast.Inspect(d, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.CallExpr:
						if name := calledOf(n, "Store"); name != "" && len(n.Args) == 1 && loads(n.Args[0], name, read) {
							report(n, name)
						}
					case *ast.IfStmt:
						storesUnder(n.Cond, n.Body, read, report)
					case *ast.ForStmt:
						storesUnder(n.Cond, n.Body, read, report)
					}
					return true
				})
			}
		}
	}
	return bad
}

// storesUnder calls report for each X.Store in the body that a comparison of sizes with X.Load()
// decides. A store below a nearer comparison is reported once, by that one.
func storesUnder(cond ast.Expr, body *ast.BlockStmt, read map[string]string, report func(ast.Node, string)) {
	if cond == nil {
		return
	}
	var compared []ast.Expr
	ast.Inspect(cond, func(n ast.Node) bool {
		if b, ok := n.(*ast.BinaryExpr); ok {
			switch b.Op {
			case token.LSS, token.GTR, token.LEQ, token.GEQ:
				compared = append(compared, b.X, b.Y)
			}
		}
		return true
	})
	for _, s := range body.List {
		e, ok := s.(*ast.ExprStmt)
		if !ok {
			continue
		}
		call, ok := e.X.(*ast.CallExpr)
		if !ok {
			continue
		}
		name := calledOf(call, "Store")
		for _, c := range compared {
			if name != "" && loads(c, name, read) {
				report(call, name)
				break
			}
		}
	}
}

// loadedIn returns, with X, the variables of a declaration that hold what X.Load() answered and
// nothing else.
func loadedIn(d ast.Decl) map[string]string {
	read, more := map[string]string{}, map[string]bool{}
	ast.Inspect(d, func(n ast.Node) bool {
		s, ok := n.(*ast.AssignStmt)
		if !ok || len(s.Lhs) != len(s.Rhs) {
			return true
		}
		for i, right := range s.Rhs {
			name := types.ExprString(s.Lhs[i])
			if call, ok := right.(*ast.CallExpr); ok && calledOf(call, "Load") != "" {
				read[name] = calledOf(call, "Load")
			} else {
				more[name] = true
			}
		}
		return true
	})
	maps.DeleteFunc(read, func(name, _ string) bool { return more[name] })
	return read
}

// loads reports whether the expression has name.Load() in it, or a variable that holds its answer.
func loads(e ast.Expr, name string, read map[string]string) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			found = found || calledOf(n, "Load") == name
		case *ast.Ident:
			found = found || read[n.Name] == name
		}
		return !found
	})
	return found
}

// calledOf returns X of a call X.method(), else "".
func calledOf(call *ast.CallExpr, method string) string {
	if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == method {
		return types.ExprString(s.X)
	}
	return ""
}
