package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestChangelog: the tagged commit has the version's section, whose heading the workflow looks for,
// and the next one an empty Unreleased above it. A version with nothing to tell is refused.
func TestChangelog(t *testing.T) {
	day := time.Date(2026, 12, 1, 0, 30, 0, 0, time.FixedZone("", 3600))
	const head, old = "# Changelog\n\n", "\n## 0.0.9 - 2026-01-01\n\n- old\n"
	root := t.TempDir()
	file := filepath.Join(root, "CHANGELOG.md")
	is := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("CHANGELOG.md is %q, %v; want %q", got, err, want)
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(head + "## Unreleased\n\n- new\n" + old)
	if err := dateChangelog(root, "v0.1.0", day); err != nil {
		t.Fatal(err)
	}
	is(head + "## 0.1.0 - 2026-11-30\n\n- new\n" + old)
	if err := reopenChangelog(root, "v0.1.0"); err != nil {
		t.Fatal(err)
	}
	is(head + "## Unreleased\n\n## 0.1.0 - 2026-11-30\n\n- new\n" + old)
	for _, text := range []string{head + "## Unreleased\n" + old, head + "## Unreleased\n\n", head + old} {
		write(text)
		if err := dateChangelog(root, "v0.1.0", day); err == nil {
			t.Errorf("%q is released", text)
		}
		is(text)
	}
}
