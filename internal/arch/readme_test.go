package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/must"
)

// shownPrograms are the pages that show a whole program, and where it is compiled and run.
var shownPrograms = map[string]string{
	"README.md":                   "examples/first/main.go",
	"docs/worker-sqs-postgres.md": "examples/orders/main.go",
}

// TestCompared: each thing that the comparison says we have is a link to what says how.
func TestCompared(t *testing.T) {
	n := 0
	for line := range strings.Lines(readPage(t, "docs/compared.md")) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || !strings.Contains(cells[2], "●") {
			continue
		}
		if n++; strings.Count(cells[2], "●") > strings.Count(cells[2], "](") {
			t.Errorf("without a link:%s|%s", cells[1], cells[2])
		}
	}
	if n < 15 {
		t.Errorf("%d rows", n)
	}
}

// TestReadme: the programs of the pages are those that are compiled and run, to the letter, and so
// are the functions that the README and the pages under docs show.
func TestReadme(t *testing.T) {
	root := os.DirFS("../..")
	pages, err := fs.Glob(root, "docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("docs: %v, %d pages", err, len(pages))
	}
	var snippets strings.Builder
	files, err := fs.Glob(root, "examples/snippets/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("snippets: %v, %d files", err, len(files))
	}
	for _, file := range files {
		snippets.WriteString(readPage(t, file))
	}
	for _, page := range append(pages, "README.md") {
		_, blocks, _ := strings.Cut(readPage(t, page), "```go\n")
		shown := 0
		if blocks == "" {
			continue
		}
		for i, block := range strings.Split(blocks, "```go\n") {
			block, _, closed := strings.Cut(block, "```\n")
			switch {
			case !closed:
				t.Errorf("%s: go block %d has no end", page, i+1)
			case shownPrograms[page] != "" && block == readPage(t, shownPrograms[page]):
				shown++
			case !strings.Contains(snippets.String(), block):
				t.Errorf("%s: go block %d does not stand in examples/snippets:\n%s", page, i+1, block)
			}
		}
		if shownPrograms[page] != "" && shown != 1 {
			t.Errorf("%s shows %s %d times, want once", page, shownPrograms[page], shown)
		}
	}
}

// TestPackageComment: the outline in the package comment is compiled and run, to the letter.
func TestPackageComment(t *testing.T) {
	_, want, _ := strings.Cut(readPage(t, "examples/snippets/outline.go"), "to the letter.\n\n")
	var got strings.Builder
	for line := range strings.Lines(readPage(t, "doc.go")) {
		code, isCode := strings.CutPrefix(line, "//\t")
		switch {
		case isCode:
			got.WriteString(code)
		case line == "//\n" && got.Len() > 0:
			got.WriteString("\n")
		}
		if strings.HasPrefix(line, "// #") && got.Len() > 0 {
			break
		}
	}
	if got := strings.TrimRight(got.String(), "\n") + "\n"; want == "" || got != want {
		t.Errorf("doc.go shows\n%s\nand examples/snippets/outline.go is\n%s", got, want)
	}
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	b := must.Get(os.ReadFile(filepath.Join("../..", name)))
	return string(b)
}
