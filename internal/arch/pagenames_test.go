package arch

import (
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/onceq/onceq/internal/must"
)

// pageNamePattern is a function as the pages name it: `file.go: function`.
var pageNamePattern = regexp.MustCompile("`([a-z_/]+\\.go): (\\w+)`")

// A file as the pages name it, alone: `file.go`, or `file.go`, `other.go` in `folder`.
var (
	pageFilePattern  = regexp.MustCompile("`([\\w./-]+\\.(?:go|md|txt|sh))`")
	pagePlacePattern = regexp.MustCompile("^(?:(?:,| and|, and)\\s+`[^`\n]+`)*\\s+in\\s+`([\\w/-]+)`")
)

// checkPageFiles reports files that a page names and that are not there. A page names a file by its
// path, or says in which folder it is. A path begins at the root, or in the page's own folder.
func checkPageFiles(root fs.FS, list []page) []string {
	var bad []string
	for _, p := range list {
		if p.name == "docs/renames.md" { // it names what is gone
			continue
		}
		for _, at := range pageFilePattern.FindAllStringSubmatchIndex(p.text, -1) {
			name, places := p.text[at[2]:at[3]], []string{".", path.Dir(p.name)}
			if m := pagePlacePattern.FindStringSubmatch(p.text[at[1]:]); m != nil {
				places = m[1:]
			}
			if !slices.ContainsFunc(places, func(dir string) bool {
				_, err := fs.Stat(root, path.Join(dir, name))
				return err == nil
			}) {
				line := 1 + strings.Count(p.text[:at[0]], "\n")
				bad = append(bad, fmt.Sprintf("%s:%d: there is no file %s in %s", p.name, line, name, places[0]))
			}
		}
	}
	return bad
}

// checkPageNames reports functions that a page names and no such file declares. A page names a file
// by the end of its path, so that a package may move, and a function by its name, letter by letter,
// so that a search finds it.
func checkPageNames(t *tree, list []page) []string {
	funcs := map[string][]string{}
	for _, p := range t.pkgs {
		for _, f := range p.files {
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok {
					funcs[f.name] = append(funcs[f.name], fn.Name.Name)
				}
			}
		}
	}
	declared := func(file, name string) bool {
		for f, names := range funcs {
			if (f == file || strings.HasSuffix(f, "/"+file)) && slices.Contains(names, name) {
				return true
			}
		}
		return false
	}
	var bad []string
	for _, p := range list {
		for n, line := range strings.Split(p.text, "\n") {
			for _, m := range pageNamePattern.FindAllStringSubmatch(line, -1) {
				if !declared(m[1], m[2]) {
					bad = append(bad, fmt.Sprintf("%s:%d: no %s declares a function %s", p.name, n+1, m[1], m[2]))
				}
			}
		}
	}
	return bad
}

// TestPageNames: the functions and files that the pages name exist.
func TestPageNames(t *testing.T) {
	tr, root := ours(t), os.DirFS("../..")
	list, err := pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range append(checkPageNames(tr, list), checkPageFiles(root, list)...) {
		t.Error(bad)
	}
}

func TestPageNamesAreFound(t *testing.T) {
	root := fstest.MapFS{
		"go.mod":  {Data: []byte("module m.test/m")},
		"x/a.go":  {Data: []byte("package x\nfunc (t) Moved() {}")},
		"page.md": {Data: []byte("`a.go: Moved` `x/a.go: Moved`\n`a.go: gone` `b.go: Moved` `a.go: moved`")},
	}
	tr := must.Get(load(root))
	list, err := pages(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"page.md:2: no a.go declares a function gone", "page.md:2: no b.go declares a function Moved",
		"page.md:2: no a.go declares a function moved",
	}
	if got := checkPageNames(tr, list); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPageFilesAreFound(t *testing.T) {
	root := fstest.MapFS{
		"a.go": {}, "x/b.go": {}, "docs/c.md": {}, "docs/in/d.txt": {},
		"docs/page.md": {Data: []byte("`a.go`, `x/b.go` and `c.md`, `in/d.txt`; `b.go`, `Word`\nin `x`\n" +
			"`b.go`\n`a.go` in `x`\n`gone.go`, and `A.go`, not `gone.exe`")},
	}
	list, err := pages(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"docs/page.md:3: there is no file b.go in .", "docs/page.md:4: there is no file a.go in x",
		"docs/page.md:5: there is no file gone.go in .", "docs/page.md:5: there is no file A.go in .",
	}
	if got := checkPageFiles(root, list); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A name of ours in the last column of a table, there in code: behind a point, or alone.
var (
	lastColumnPattern = regexp.MustCompile(`(?m)^\|.*\|([^|\n]*)\|$`)
	exportedPattern   = regexp.MustCompile(`\b[A-Z]\w*`)
)

// checkOurColumn reports exported names that the last column of a page's tables has and that
// no public package declares: as a function, type, method, field, constant or variable.
func checkOurColumn(t *tree, p page, others []string) (bad []string) {
	ours := map[string]bool{}
	for _, pkg := range t.pkgs {
		for _, f := range pkg.files {
			if f.test || strings.Contains("/"+f.name, "/internal/") {
				continue
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				switch d := n.(type) {
				case *ast.FuncDecl:
					ours[d.Name.Name] = true
				case *ast.TypeSpec:
					ours[d.Name.Name] = true
				case *ast.ValueSpec:
					for _, name := range d.Names {
						ours[name.Name] = true
					}
				case *ast.Field:
					for _, name := range d.Names {
						ours[name.Name] = true
					}
				}
				return true
			})
		}
	}
	for _, row := range lastColumnPattern.FindAllStringSubmatch(p.text, -1) {
		for _, code := range codePattern.FindAllString(row[1], -1) {
			for _, name := range exportedPattern.FindAllString(code, -1) {
				if !ours[name] && !slices.Contains(others, name) {
					bad = append(bad, fmt.Sprintf("%s: nothing is named %s: %s", p.name, name, code))
				}
			}
		}
	}
	return bad
}

// TestComingFrom: what the pages for users of other libraries say that something is here exists.
// Their blocks of code are compiled in examples/snippets.
func TestComingFrom(t *testing.T) {
	tr := ours(t)
	list, err := pages(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range list {
		if !strings.HasPrefix(p.name, "docs/coming-from-") {
			continue
		}
		n++
		// Invoices is the page's own; the others are of fmt and Watermill.
		for _, bad := range checkOurColumn(tr, p, []string{"Invoices", "Sprint", "PoisonQueueWithFilter"}) {
			t.Error(bad)
		}
	}
	if n < 6 {
		t.Errorf("%d pages", n)
	}
	if bad := checkOurColumn(tr, page{"p", "| `Gone` | `Gone.Kind`, Gone |\n| `x` | `limit.Gone(Kind)` |"}, nil); len(bad) != 2 {
		t.Errorf("found %q", bad)
	}
}

// testCases lists the names of a suite's cases: in its source, what has a name and a rule.
func testCases(p *pkg) []string {
	var names []string
	for _, f := range p.files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok || f.test {
				return true
			}
			name, rule := "", false
			for _, e := range lit.Elts {
				kv, ok := e.(*ast.KeyValueExpr)
				if !ok {
					continue
				}
				key, ok := kv.Key.(*ast.Ident)
				if !ok {
					continue
				}
				if value, ok := kv.Value.(*ast.BasicLit); ok && key.Name == "Name" {
					name = strings.Trim(value.Value, `"`)
				}
				rule = rule || key.Name == "Rule"
			}
			if rule && name != "" {
				names = append(names, name)
			}
			return true
		})
	}
	return names
}

// TestContractsNameTheirCases: docs/contracts.md and docs/protocol.md name every case of the two
// suites, and those that fit "i5-…" together.
func TestContractsNameTheirCases(t *testing.T) {
	tr := ours(t)
	var text strings.Builder
	for _, name := range []string{"contracts", "protocol"} {
		b := must.Get(os.ReadFile("../../docs/" + name + ".md"))
		text.WriteString(string(b))
	}
	for _, dir := range []string{"broker/brokertest", "dedupe/dedupetest"} {
		names := testCases(tr.pkgs[dir])
		if len(names) < 30 {
			t.Errorf("%s: %d cases found", dir, len(names))
		}
		for _, name := range names {
			area, _, _ := strings.Cut(name, "-")
			if !strings.Contains(text.String(), "`"+name+"`") && !strings.Contains(text.String(), "`"+area+"-…`") {
				t.Errorf("%s: the case %q stands with no rule in docs/contracts.md", dir, name)
			}
		}
	}
}
