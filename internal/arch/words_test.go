package arch

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/onceq/onceq/internal/must"
)

var lower = flag.Bool("lower", false, "write columns.txt as the comments are now, where they are better than it says")

const (
	// maxColumns is the longest line of a comment or a page. A tab counts as four columns.
	maxColumns = 100
	// maxBehind is the longest line of code with a comment behind it.
	maxBehind = 120
	// budgetFile lists the packages that still have longer comment lines, and how many.
	budgetFile = "columns.txt"
)

// longComments counts the comment lines of each folder that are longer than maxColumns, and the
// comments behind code that end beyond maxBehind. A line with a link, and one that tools read
// (//go:embed), may be as long as it must be.
func longComments(t *tree, root fs.FS) (map[string]int, []string, error) {
	count := map[string]int{}
	var where []string
	for _, dir := range slices.Sorted(maps.Keys(t.pkgs)) {
		for _, f := range t.pkgs[dir].files {
			src, err := fs.ReadFile(root, f.name)
			if err != nil {
				return nil, nil, err
			}
			lines := bytes.Split(src, []byte("\n"))
			for _, group := range f.ast.Comments {
				for _, c := range group.List {
					for n := t.fset.Position(c.Pos()).Line; n <= t.fset.Position(c.End()).Line; n++ {
						line := string(lines[n-1])
						if isLong(line) && startsComment(line, c.Text) || isLongBehind(line, t.fset.Position(c.Pos()).Column) {
							count[dir]++
							where = append(where, fmt.Sprintf("%s:%d", f.name, n))
						}
					}
				}
			}
		}
	}
	return count, where, nil
}

// startsComment reports whether the line is a comment from its first column on.
func startsComment(line, comment string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "// ") || strings.HasPrefix(comment, "/*")
}

// isLongBehind reports whether a comment, which begins at the byte from, ends too far behind code.
// Code that is too long by itself decides how long its line is.
func isLongBehind(line string, from int) bool {
	code := ""
	if from > 1 && from <= len(line) {
		code = strings.TrimSpace(line[:from-1])
	}
	switch {
	case code == "", strings.Contains(line, "://"), strings.HasPrefix(line[from-1:], "//nolint"):
		return false
	}
	return columns(line) > maxBehind && columns(strings.TrimRight(line[:from-1], " \t")) <= maxColumns
}

func isLong(line string) bool { return columns(line) > maxColumns && !strings.Contains(line, "://") }

func columns(line string) int {
	line = strings.TrimRight(line, "\r")
	return utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
}

// budget reads lines "package number".
func budget(text string) (map[string]int, error) {
	list := map[string]int{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, number, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(strings.TrimSpace(number))
		if err != nil {
			return nil, fmt.Errorf("%s: %q is no package and number", budgetFile, line)
		}
		list[name] = n
	}
	return list, nil
}

// checkColumns compares the counts with the budget. A package may exceed its number only as long as
// the sum of all does not rise: code that moves to another package takes its comments along.
func checkColumns(count, list map[string]int) (bad, lower []string) {
	sum := func(m map[string]int) (n int) {
		for v := range maps.Values(m) {
			n += v
		}
		return n
	}
	rose := sum(count) > sum(list)
	for _, dir := range slices.Sorted(maps.Keys(count)) {
		switch n, most := count[dir], list[dir]; {
		case n > most && rose:
			bad = append(bad, fmt.Sprintf("%s: %d comment lines are longer than %d columns, at most %d may be", dir, n, maxColumns, most))
		case n > most:
			lower = append(lower, fmt.Sprintf("%s: %d, the list says %d (moved, as the sum did not rise)", dir, n, most))
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(list)) {
		if count[dir] < list[dir] {
			lower = append(lower, fmt.Sprintf("%s: %d, the list says %d", dir, count[dir], list[dir]))
		}
	}
	return bad, lower
}

// TestColumns: comment lines have at most 100 columns, and comments behind code end at column 120.
// Packages from before this rule are listed with the number of their longer lines, which may only
// fall.
func TestColumns(t *testing.T) {
	tr := ours(t)
	count, where, err := longComments(tr, os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	text := must.Get(os.ReadFile(budgetFile))
	list, err := budget(string(text))
	if err != nil {
		t.Fatal(err)
	}
	bad, better := checkColumns(count, list)
	for _, b := range bad {
		t.Error(b)
		dir, _, _ := strings.Cut(b, ":")
		for _, w := range where {
			if name, _, _ := strings.Cut(w, ":"); path.Dir(name) == dir {
				t.Log("\t", w)
			}
		}
	}
	if len(better) > 0 && !*lower {
		t.Logf("the list can be lowered (go test ./internal/arch -run TestColumns -lower):\n\t%s", strings.Join(better, "\n\t"))
	}
	if *lower && len(bad) == 0 {
		var out strings.Builder
		fmt.Fprintf(&out, "# Comment lines longer than %d columns, by package. A number may only fall:\n"+
			"#   go test ./internal/arch -run TestColumns -lower\n", maxColumns)
		for _, dir := range slices.Sorted(maps.Keys(count)) {
			fmt.Fprintf(&out, "%s %d\n", dir, count[dir])
		}
		if err := os.WriteFile(budgetFile, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestColumnsAreCounted(t *testing.T) {
	long := strings.Repeat("x", 98)
	root := fstest.MapFS{
		"go.mod": {Data: []byte("module m.test/m")},
		"a.go": {Data: []byte("package m\n\n" +
			"// " + long[1:] + "\n// " + long + "\n//go:embed " + long + "\n// https://" + long + "\n" +
			"var a = 1 // " + long + "123456789\nvar c = 1 // " + long + "1234567890\nvar d = 1 //nolint:all // " + long + "\nvar b = `\n// " + long + "`\n\n/*\n" + long + long + "\n*/\n" +
			"func f() {\n\t// " + long[4:] + "\n}\n" +
			"var e" + long + "x = 1 // no code may be as long, but that is not for its comment to mend\n")},
	}
	tr := must.Get(load(root))
	_, where, err := longComments(tr, root)
	if want := []string{"a.go:4", "a.go:8", "a.go:14", "a.go:17"}; err != nil || !slices.Equal(where, want) {
		t.Errorf("long comments at %q (%v), want %q", where, err, want)
	}
}

func TestColumnsMayOnlyFall(t *testing.T) {
	list := map[string]int{"a": 3, "b": 2}
	for _, c := range []struct {
		name   string
		count  map[string]int
		bad    int
		better int
	}{
		{"as listed", map[string]int{"a": 3, "b": 2}, 0, 0},
		{"fewer", map[string]int{"a": 1, "b": 2}, 0, 1},
		{"one more", map[string]int{"a": 4, "b": 2}, 1, 0},
		{"a package that is new", map[string]int{"a": 3, "b": 2, "c": 1}, 1, 0},
		{"moved to another package", map[string]int{"a": 3, "c": 2}, 0, 2},
	} {
		if bad, better := checkColumns(c.count, list); len(bad) != c.bad || len(better) != c.better {
			t.Errorf("%s: reported %q, may be lowered %q", c.name, bad, better)
		}
	}
}

// page is a Markdown file.
type page struct {
	name, text string
}

func pages(root fs.FS) ([]page, error) {
	var list []page
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() && name != "." && (base[0] == '.' || base == "testdata" || base == "node_modules") {
			return fs.SkipDir
		}
		if d.IsDir() || path.Ext(name) != ".md" {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		list = append(list, page{name, string(text)})
		return err
	})
	return list, err
}

// prose calls visit for each line of a page that is no code.
func (p page) prose(visit func(n int, line string)) {
	code, n := false, 0
	for line := range strings.Lines(p.text) {
		n++
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
			continue
		}
		if !code {
			visit(n, strings.TrimRight(line, "\n"))
		}
	}
}

// checkPageColumns reports prose that is too wide. Rows of tables and lines with links cannot be
// broken everywhere, so they may be longer; so may code.
func checkPageColumns(list []page) []string {
	var bad []string
	for _, p := range list {
		p.prose(func(n int, line string) {
			if isLong(line) && !strings.HasPrefix(strings.TrimSpace(line), "|") && !strings.Contains(line, "](") {
				bad = append(bad, fmt.Sprintf("%s:%d: more than %d columns", p.name, n, maxColumns))
			}
		})
	}
	return bad
}

var (
	linkPattern = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	codePattern = regexp.MustCompile("`[^`]*`")
	plain       = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// checkLinks reports links of a page to a file, or to a heading, that is not there. Links to other
// hosts are not followed.
func checkLinks(root fs.FS, list []page) []string {
	var bad []string
	anchors := map[string][]string{}
	for _, p := range list {
		p.prose(func(_ int, line string) {
			if head := strings.TrimLeft(line, "#"); head != line && strings.HasPrefix(head, " ") {
				anchors[p.name] = append(anchors[p.name], anchorOf(head))
			}
		})
	}
	for _, p := range list {
		p.prose(func(n int, line string) {
			for _, m := range linkPattern.FindAllStringSubmatch(codePattern.ReplaceAllString(line, ""), -1) {
				target, anchor, _ := strings.Cut(m[1], "#")
				if strings.Contains(target, ":") {
					continue
				}
				name := p.name
				if target != "" {
					name = path.Join(path.Dir(p.name), target)
				}
				if _, err := fs.Stat(root, name); err != nil {
					bad = append(bad, fmt.Sprintf("%s:%d: %s does not exist", p.name, n, m[1]))
				} else if anchor != "" && path.Ext(name) == ".md" && !slices.Contains(anchors[name], anchor) {
					bad = append(bad, fmt.Sprintf("%s:%d: %s has no such heading", p.name, n, m[1]))
				}
			}
		})
	}
	return bad
}

// anchorOf is the name that GitHub gives a heading.
func anchorOf(head string) string {
	head = plain.ReplaceAllString(strings.ToLower(strings.TrimSpace(head)), "")
	return strings.ReplaceAll(head, " ", "-")
}

// TestPages: prose in Markdown has at most 100 columns, and links between pages lead somewhere.
func TestPages(t *testing.T) {
	root := os.DirFS("../..")
	list, err := pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range slices.Concat(checkPageColumns(list), checkLinks(root, list)) {
		t.Error(bad)
	}
}

func TestPagesAreRead(t *testing.T) {
	long := strings.Repeat("x", 101)
	root := fstest.MapFS{
		"a.md": {Data: []byte("# A head: `with` code\n\n" + long + "\n| " + long + " |\n[x](b) " + long + "\n" +
			"```\n" + long + " [x](none)\n```\n" +
			"[1](b/c.md) [2](none.md) [3](#a-head-with-code) [4](#none)\n[5](b/c.md#sub) [6](b/c.md#none) [7](https://x.test/none)\n")},
		"b/c.md": {Data: []byte("## Sub\n[up](../a.md) [bad](a.md)\n")},
	}
	list, err := pages(root)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := checkPageColumns(list), []string{"a.md:3: more than 100 columns"}; !slices.Equal(got, want) {
		t.Errorf("columns: %q, want %q", got, want)
	}
	got, want := checkLinks(root, list), []string{
		"a.md:9: none.md does not exist", "a.md:9: #none has no such heading",
		"a.md:10: b/c.md#none has no such heading", "b/c.md:2: a.md does not exist",
	}
	if !slices.Equal(got, want) {
		t.Errorf("links: %q, want %q", got, want)
	}
}
