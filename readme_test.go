package onceq_test

import (
	"os"
	"strings"
	"testing"
)

// TestReadme: the README's program is the one that is compiled and run, to the letter.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("examples/first/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```go\n")
	block, _, ok := strings.Cut(rest, "```\n")
	if !ok || block != string(program) {
		t.Errorf("README.md's first go block is not examples/first/main.go:\n%s", block)
	}
}
