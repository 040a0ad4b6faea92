package arch

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// checkCycles holds the files of each package to the ratchet: how many of them know each other in a
// circle, directly or through others.
func checkCycles(t *tree) []string {
	var bad []string
	for dir, cycle := range t.circles() {
		if most := max(1, largestCycle[dir]); len(cycle) > most {
			bad = append(bad, fmt.Sprintf("%s: %d files know each other in a circle, at most %d may: %s;"+
				" move a name to the file that knows less", dir, len(cycle), most, strings.Join(cycle, " ")))
		}
	}
	return bad
}

// circles is the largest circle of files of each package.
func (t *tree) circles() map[string][]string {
	if t.circled == nil {
		t.circled = t.findCircles()
	}
	return t.circled
}

func (t *tree) findCircles() map[string][]string {
	out := map[string][]string{}
	imports := &importer{t: t, done: map[string]*types.Package{}}
	for _, p := range t.own() {
		out[p.dir] = largest(cyclesOf(imports.references(p)))
	}
	return out
}

func TestRatchetsAreTight(t *testing.T) {
	if *update {
		t.Skip("TestRatchets writes them")
	}
	tr := ours(t)
	circles := tr.circles()
	for dir, most := range largestCycle {
		if n := len(circles[dir]); n < most {
			t.Errorf("%s: its largest circle of files is %d now: lower its number, %d, in largestCycle", dir, n, most)
		}
	}
	doubles := tr.doubles()
	for dir, names := range twoMeanings {
		for _, name := range names {
			if len(doubles[dir][name]) < 2 {
				t.Errorf("%s: %s is on one type now: take it from twoMeanings", dir, name)
			}
		}
	}
}

// references tells which files of p name what which others declare.
func (m *importer) references(p *pkg) map[string][]string {
	info := m.check(p)
	refs := map[string]map[string]bool{}
	for id, obj := range info.Uses {
		switch o := obj.(type) {
		case *types.Var:
			obj = o.Origin()
		case *types.Func:
			obj = o.Origin()
		}
		if !obj.Pos().IsValid() || obj.Pkg() != m.done[p.dir] {
			continue
		}
		from, to := path.Base(m.t.fset.Position(id.Pos()).Filename), path.Base(m.t.fset.Position(obj.Pos()).Filename)
		if from == to {
			continue
		}
		if refs[from] == nil {
			refs[from] = map[string]bool{}
		}
		refs[from][to] = true
	}
	out := map[string][]string{}
	for from, tos := range refs {
		out[from] = slices.Sorted(maps.Keys(tos))
	}
	return out
}

// importer type-checks packages of the tree. The standard library and other modules are empty to
// it, which is enough to see what the files of a package name of each other, and takes no time.
type importer struct {
	t    *tree
	done map[string]*types.Package
}

func (m *importer) Import(imp string) (*types.Package, error) {
	if dir, ok := m.t.local(imp); ok && m.t.pkgs[dir] != nil {
		if m.done[dir] == nil {
			m.check(m.t.pkgs[dir])
		}
		return m.done[dir], nil
	}
	if m.done[imp] == nil {
		m.done[imp] = types.NewPackage(imp, path.Base(imp))
		m.done[imp].MarkComplete()
	}
	return m.done[imp], nil
}

func (m *importer) check(p *pkg) *types.Info {
	var files []*ast.File
	name := ""
	for _, f := range p.files {
		if !f.test {
			files, name = append(files, f.ast), f.ast.Name.Name
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	c := types.Config{Importer: m, Error: func(error) {}, FakeImportC: true}
	m.done[p.dir] = types.NewPackage(p.dir, name) // while it is being checked
	_ = types.NewChecker(&c, m.t.fset, m.done[p.dir], info).Files(files)
	return info
}

// cyclesOf are the groups of files that reach each other, by Tarjan's algorithm.
func cyclesOf(refs map[string][]string) [][]string {
	var out [][]string
	var stack []string
	index, low, on := map[string]int{}, map[string]int{}, map[string]bool{}
	var visit func(f string)
	visit = func(f string) {
		index[f] = len(index) + 1
		low[f] = index[f]
		stack, on[f] = append(stack, f), true
		for _, g := range refs[f] {
			if index[g] == 0 {
				visit(g)
				low[f] = min(low[f], low[g])
			} else if on[g] {
				low[f] = min(low[f], index[g])
			}
		}
		if low[f] != index[f] {
			return
		}
		var group []string
		for {
			g := stack[len(stack)-1]
			stack, on[g] = stack[:len(stack)-1], false
			group = append(group, g)
			if g == f {
				break
			}
		}
		slices.Sort(group)
		out = append(out, group)
	}
	for _, f := range slices.Sorted(maps.Keys(refs)) {
		if index[f] == 0 {
			visit(f)
		}
	}
	return out
}

func largest(groups [][]string) (most []string) {
	for _, g := range groups {
		if len(g) > len(most) {
			most = g
		}
	}
	return most
}
