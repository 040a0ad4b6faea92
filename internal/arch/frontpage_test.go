package arch

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// The README is the front page: whoever reads it has five minutes. What does not fit goes to a page
// under docs, and docs/README.md names each by what its reader wants to do.
const (
	frontPage      = "README.md"
	indexPage      = "docs/README.md"
	frontPageWords = 1500 // as wc -w counts them, code included
)

// frontPageProblems reports a front page that is too long, and pages that the index does not link.
func frontPageProblems(root fs.FS) (bad []string, err error) {
	front, err := fs.ReadFile(root, frontPage)
	if err != nil {
		return nil, err
	}
	if n := len(strings.Fields(string(front))); n > frontPageWords {
		bad = append(bad, frontPage+" has too many words: move a part to a page under docs")
	}
	index, err := fs.ReadFile(root, indexPage)
	if err != nil {
		return nil, err
	}
	var linked []string
	for _, m := range linkPattern.FindAllStringSubmatch(string(index), -1) {
		target, _, _ := strings.Cut(m[1], "#")
		linked = append(linked, path.Join(path.Dir(indexPage), target))
	}
	list, err := fs.Glob(root, "docs/*.md")
	if err != nil {
		return nil, err
	}
	for _, name := range list {
		if name != indexPage && !slices.Contains(linked, name) {
			bad = append(bad, indexPage+" does not link "+name)
		}
	}
	return bad, nil
}

func TestFrontPage(t *testing.T) {
	bad, err := frontPageProblems(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bad {
		t.Error(b)
	}
}

func TestFrontPageIsRead(t *testing.T) {
	bad, err := frontPageProblems(fstest.MapFS{
		frontPage:      {Data: []byte(strings.Repeat("word ", frontPageWords+1))},
		indexPage:      {Data: []byte("[a](a.md#x) [up](../README.md)")},
		"docs/a.md":    {},
		"docs/b.md":    {},
		"docs/in/c.md": {},
	})
	want := []string{frontPage + " has too many words: move a part to a page under docs", indexPage + " does not link docs/b.md"}
	if err != nil || !slices.Equal(bad, want) {
		t.Errorf("got %q, %v, want %q", bad, err, want)
	}
}
