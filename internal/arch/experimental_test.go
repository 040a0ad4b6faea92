package arch

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	experimental = "Experimental: it may change in any minor version. docs/release.md says what that means.\n"
	// a constant or field, with the comment above it
	commented = regexp.MustCompile(`(?m)^\s*// ` + regexp.QuoteMeta(experimental) + `\s*(\w+)`)
	quoted    = regexp.MustCompile("`([^`]+)`")
)

// TestExperimental: the page and the comments call the same things experimental, a package by its
// folder, and a name within one by its last word.
func TestExperimental(t *testing.T) {
	var want, got []string
	_, page, _ := strings.Cut(readPage(t, "docs/release.md"), "\n## What is experimental\n")
	for line := range strings.SplitSeq(page[:strings.Index(page, "Experimental means")], "\n") {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
				want = append(want, m[1][strings.LastIndexByte(m[1], '.')+1:])
			}
		}
	}
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(root, name)
		switch {
		case path.Base(name) != "doc.go":
			for _, m := range commented.FindAllStringSubmatch(string(text), -1) {
				got = append(got, m[1])
			}
		case strings.Contains(string(text), "// "+experimental):
			got = append(got, path.Dir(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(want) < 5 {
		t.Errorf("comments call experimental %q, docs/release.md %q", got, want)
	}
}
