package onceq_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadme: the README's program is the one that is compiled and run, to the letter, and so are
// the functions that it and the pages under docs show.
func TestReadme(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("docs: %v, %d pages", err, len(pages))
	}
	snippets := read(t, "examples/snippets/snippets.go") + read(t, "examples/snippets/keys.go")
	for _, page := range append(pages, "README.md") {
		_, blocks, _ := strings.Cut(read(t, page), "```go\n")
		if blocks == "" {
			continue
		}
		for i, block := range strings.Split(blocks, "```go\n") {
			block, _, closed := strings.Cut(block, "```\n")
			switch {
			case !closed:
				t.Errorf("%s: go block %d has no end", page, i+1)
			case page == "README.md" && i == 0 && block != read(t, "examples/first/main.go"):
				t.Errorf("README.md's first go block is not examples/first/main.go:\n%s", block)
			case (page != "README.md" || i > 0) && !strings.Contains(snippets, block):
				t.Errorf("%s: go block %d does not stand in examples/snippets:\n%s", page, i+1, block)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
