package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// dateChangelog makes the section of a version out of what stands under "Unreleased". A version of
// which nothing is told is not released.
func dateChangelog(root, version string, day time.Time) error {
	return editChangelog(root, "## Unreleased\n", func(section string) (string, error) {
		if told, _, _ := strings.Cut(section, "\n## "); strings.TrimSpace(told) == "" {
			return "", fmt.Errorf("CHANGELOG.md says nothing under Unreleased, which is to be %s", version)
		}
		return fmt.Sprintf("## %s - %s\n%s", version[1:], day.UTC().Format(time.DateOnly), section), nil
	})
}

// reopenChangelog puts an empty "Unreleased" above the version's section.
func reopenChangelog(root, version string) error {
	head := "## " + version[1:] + " "
	return editChangelog(root, head, func(section string) (string, error) { return "## Unreleased\n\n" + head + section, nil })
}

// editChangelog replaces a heading, and what follows it.
func editChangelog(root, head string, edit func(rest string) (string, error)) error {
	file := filepath.Join(root, "CHANGELOG.md")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), head)
	if !found {
		return fmt.Errorf("CHANGELOG.md has no heading %q", strings.TrimSpace(head))
	}
	out, err := edit(rest)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(before+out), 0o644)
}
