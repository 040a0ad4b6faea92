package onceq_test

import (
	"os"
	"strings"
	"testing"
)

// TestReadme: the README's program is the one that is compiled and run, to the letter, and so are the functions that it shows
// after it.
func TestReadme(t *testing.T) {
	_, blocks, _ := strings.Cut(read(t, "README.md"), "```go\n")
	for i, block := range strings.Split(blocks, "```go\n") {
		block, _, closed := strings.Cut(block, "```\n")
		switch {
		case !closed:
			t.Errorf("README.md's go block %d has no end", i+1)
		case i == 0 && block != read(t, "examples/first/main.go"):
			t.Errorf("README.md's first go block is not examples/first/main.go:\n%s", block)
		case i > 0 && !strings.Contains(read(t, "examples/snippets/snippets.go"), block):
			t.Errorf("README.md's go block %d does not stand in examples/snippets/snippets.go:\n%s", i+1, block)
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
