package arch

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// checkMethods reports methods of one name on two types of a package, where no interface asks for
// it: a reader who meets the name must guess which meaning it has.
func checkMethods(t *tree) []string {
	var bad []string
	for dir, names := range t.doubles() {
		for name, on := range names {
			if !slices.Contains(twoMeanings[dir], name) {
				bad = append(bad, fmt.Sprintf("%s: the method name %s is on %s, and no interface asks for it:"+
					" give each meaning its own name", dir, name, strings.Join(on, " and ")))
			}
		}
	}
	return bad
}

// doubles are the methods of one name on two types, by package and name, that no interface asks
// for.
func (t *tree) doubles() map[string]map[string][]string {
	asked, out := t.askedFor(), map[string]map[string][]string{}
	for _, p := range t.own() {
		on := map[string][]string{}
		for _, f := range p.files {
			for _, d := range f.ast.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Recv == nil || f.test || asked[fn.Name.Name] {
					continue
				}
				if typ := receiver(fn); !slices.Contains(on[fn.Name.Name], typ) {
					on[fn.Name.Name] = append(on[fn.Name.Name], typ)
				}
			}
		}
		maps.DeleteFunc(on, func(_ string, types []string) bool { return len(types) < 2 })
		out[p.dir] = on
	}
	return out
}

// askedFor are the method names of all interfaces of the tree, and the usual ones of the standard
// library's.
func (t *tree) askedFor() map[string]bool {
	asked := map[string]bool{}
	for _, name := range stdMethods {
		asked[name] = true
	}
	for _, p := range t.pkgs {
		for _, f := range p.files {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if it, ok := n.(*ast.InterfaceType); ok {
					for _, m := range it.Methods.List {
						for _, name := range m.Names {
							asked[name.Name] = true
						}
					}
				}
				return true
			})
		}
	}
	return asked
}

// receiver is the name of a method's type.
func receiver(fn *ast.FuncDecl) string {
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
			return x.Name
		default:
			return "?"
		}
	}
}
