package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/must"
)

// The rule: a mutant breaks what is there now. Without this test one whose text was rewritten would
// be noticed by make mutants alone, which nobody runs before a commit.
func TestMutantsFit(t *testing.T) {
	for area, table := range tables {
		for _, m := range table {
			if filepath.Ext(m.File) != ".go" {
				t.Errorf("%s: %s: an overlay replaces what is built, not what a test reads, so this survives", area, m.File)
			}
			broken, err := apply(root, m.File, m.Text, m.With)
			if err != nil {
				t.Errorf("%s: %s: %q: %v", area, m.File, short(m.Text), err)
				continue
			}
			if m.Text == m.With || len(broken) == 0 || m.Why == "" {
				t.Errorf("%s: %s: %q: it breaks nothing, or says nothing of why", area, m.File, short(m.Text))
			}
			if name, _, _ := strings.Cut(m.Test, "/"); !hasTest(t, filepath.Join(root, m.Package), name) {
				t.Errorf("%s: %s: %s has no %s", area, m.File, m.Package, name)
			}
		}
	}
}

// The rule: an equivalent is said of what is there now, too.
func TestEquivalentsFit(t *testing.T) {
	for _, e := range equivalents {
		if _, err := apply(root, e.File, e.Text, e.With); err != nil || e.Text == e.With || e.Why == "" {
			t.Errorf("%s: %q: %v", e.File, short(e.Text), err)
		}
	}
}

// hasTest reports whether a package has a test of that name.
func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text := must.Get(os.ReadFile(f))
		if strings.Contains(string(text), "func "+name+"(") {
			return true
		}
	}
	return false
}
