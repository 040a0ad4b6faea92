package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestRead(t *testing.T) {
	names, fields := read(`package onceq // import "github.com/onceq/onceq"

const A = 1
func New(Config) (*T, error)
method (*T) Close() error
type Config struct
type Config struct, Queue string
type Config struct, with unexported fields
type Config struct, Wait time.Duration
type List[E any] []E
type T struct
type T struct, Field int
var V T
`)
	if want := map[string]int{"Config": 2}; names != 6 || !maps.Equal(fields, want) {
		t.Errorf("%d names, fields %v; want A, New, Config, List, T and V, and %v", names, fields, want)
	}
}

func TestCount(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"a.go": "1\n2\n", "a_test.go": "1\n", "page.md": "1\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := []string{"a.go", "a_test.go", "b/gone.go", "page.md"}
	if n, err := count(root, files); err != nil || n != (lines{code: 2, tests: 1}) {
		t.Errorf("%+v, %v", n, err)
	}
	if got := names(files); !slices.Equal(got, []string{"a.go", "a_test.go", "b", "page.md"}) {
		t.Errorf("names %q", got)
	}
}
