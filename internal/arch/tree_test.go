package arch

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// tree is every Go file below a folder with a go.mod.
type tree struct {
	module string
	fset   *token.FileSet
	pkgs   map[string]*pkg   // by folder; "." is the root
	mods   map[string]string // what the go.mod files say, by folder
	// circled is what circles has found.
	circled map[string][]string
}

var readOurs = sync.OnceValues(func() (*tree, error) { return load(os.DirFS("../..")) })

// ours is the tree that this package stands in. It is read once, and no test changes it.
func ours(t *testing.T) *tree {
	t.Helper()
	tr, err := readOurs()
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// pkg is the Go files of one folder: the package, its tests, and its external tests.
type pkg struct {
	dir string
	// module is the folder of the module that it belongs to.
	module string
	files  []*file
}

type file struct {
	name  string // path from the root
	test  bool
	lines int
	ast   *ast.File
	// imports maps each imported path to the name it has in the file.
	imports map[string]string
}

// load reads the tree as the go command would walk it: without testdata, vendor and folders
// that begin with a dot or an underscore, but into nested modules.
func load(root fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet(), pkgs: map[string]*pkg{}, mods: map[string]string{}}
	mod, err := fs.ReadFile(root, "go.mod")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mod)) {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			t.module = strings.TrimSpace(name)
		}
	}
	if t.module == "" {
		return nil, errors.New("go.mod names no module")
	}
	err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if name != "." && (base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_') {
				return fs.SkipDir
			}
			if mod, err := fs.ReadFile(root, path.Join(name, "go.mod")); err == nil {
				t.mods[name] = string(mod)
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		src, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		return t.add(name, src)
	})
	return t, err
}

func (t *tree) add(name string, src []byte) error {
	a, err := parser.ParseFile(t.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f := &file{
		name: name, test: strings.HasSuffix(name, "_test.go"), lines: bytes.Count(src, []byte("\n")),
		ast: a, imports: map[string]string{},
	}
	for _, s := range a.Imports {
		p, err := strconv.Unquote(s.Path.Value)
		if err != nil {
			return fmt.Errorf("%s: import %s: %w", name, s.Path.Value, err)
		}
		f.imports[p] = path.Base(p)
		if s.Name != nil {
			f.imports[p] = s.Name.Name
		}
	}
	dir := path.Dir(name)
	if t.pkgs[dir] == nil {
		t.pkgs[dir] = &pkg{dir: dir, module: t.moduleOf(dir)}
	}
	t.pkgs[dir].files = append(t.pkgs[dir].files, f)
	return nil
}

// with is the tree with another text in one of its files. The others are shared.
func (t *tree) with(name string, src []byte) (*tree, error) {
	dir := path.Dir(name)
	changed := *t
	changed.pkgs, changed.circled = maps.Clone(t.pkgs), nil
	p := *t.pkgs[dir]
	p.files = slices.DeleteFunc(slices.Clone(p.files), func(f *file) bool { return f.name == name })
	changed.pkgs[dir] = &p
	return &changed, changed.add(name, src)
}

// moduleOf returns the folder of the module that a folder belongs to.
func (t *tree) moduleOf(dir string) string {
	for dir != "." {
		if _, ok := t.mods[dir]; ok {
			return dir
		}
		dir = path.Dir(dir)
	}
	return "."
}

// own returns the packages of all modules but those that are apart, by folder.
func (t *tree) own() []*pkg {
	var out []*pkg
	for _, dir := range slices.Sorted(maps.Keys(t.pkgs)) {
		if p := t.pkgs[dir]; !slices.Contains(apart, p.module) {
			out = append(out, p)
		}
	}
	return out
}

// local returns the folder of an import path of this module.
func (t *tree) local(imp string) (dir string, ok bool) {
	if imp == t.module {
		return ".", true
	}
	return strings.CutPrefix(imp, t.module+"/")
}

// short is an import path as the tables write it: this module's as a folder.
func (t *tree) short(imp string) string {
	if dir, ok := t.local(imp); ok {
		return dir
	}
	return imp
}

// importsOf lists what a package's code imports, or its tests, as short paths.
func (t *tree) importsOf(p *pkg, test bool) []string {
	seen := map[string]bool{}
	for _, f := range p.files {
		if f.test == test {
			for imp := range f.imports {
				seen[t.short(imp)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// std tells whether a short path is the standard library's: their first element has no dot.
func (t *tree) std(short string) bool {
	if t.pkgs[short] != nil || short == "." {
		return false
	}
	first, _, _ := strings.Cut(short, "/")
	return !strings.Contains(first, ".")
}

func (t *tree) at(p token.Pos) string {
	pos := t.fset.Position(p)
	return fmt.Sprintf("%s:%d", pos.Filename, pos.Line)
}

func match(pattern, name string) bool {
	if pattern == "..." {
		return true
	}
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == below || strings.HasPrefix(name, below+"/")
	}
	return pattern == name
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, name) })
}
