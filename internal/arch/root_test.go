package arch

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// maxAtRoot is how many names the repository's root may list: who opens it reads them all.
const maxAtRoot = 70

// atRoot are the names that the root lists. One that comes goes to newAtRoot.
var atRoot = []string{
	".ci", ".dockerignore", ".editorconfig", ".gitattributes", ".github", ".gitignore",
	"CHANGELOG.md", "CONTRIBUTING.md", "DESIGN.md", "LICENSE", "Makefile",
	"README.md", "SECURITY.md", "adapters", "api", "broker", "cmd", "control",
	"dedupe", "dlq", "docs", "examples", "go.mod", "go.sum", "go.work", "go.work.sum", "internal",
	"localstack", "onceqtest", "ops", "sqsfake", "visibility",
	"ahead.go", "bulk.go", "batches.go", "config.go", "do.go", "doc.go",
	"errors.go", "example_do_test.go", "example_errors_test.go", "example_mux_test.go",
	"example_observe_test.go", "example_test.go", "example_worker_test.go", "forward.go",
	"handler.go", "health.go", "hosts.go", "intake.go", "internal_test.go", "job.go",
	"mux.go", "observe.go", "poll.go", "processor.go",
	"send.go", "worker.go",
	"workerconfig.go",
}

// newAtRoot are the names that came later, each with the reason why it cannot stand in a folder.
var newAtRoot = map[string]string{
	"limit":     "a package of the core that users import",
	"bounds.go": "methods of Worker that users call: Limit, Brake",
	"fan":       "a package that users import, as control and ops are",
	"wait.go":   "functions that users call beside Result and Send: Wait, SendOnce",
	"steps.go":  "functions of a Job that users call: Step, Save, Saved, Sleep, Postpone",
	"schedule":  "a package that users import, as they do ops and control",
}

// checkRoot reports what the root lists and no table knows, and what a table knows in vain. A name
// that begins with a dot and that no table knows may be an editor's, or git's own.
func checkRoot(root fs.FS, known []string, later map[string]string, most int) (bad []string) {
	entries, err := fs.ReadDir(root, ".")
	if err != nil {
		return []string{err.Error()}
	}
	listed := map[string]bool{}
	for _, e := range entries {
		name := e.Name()
		if name == "bin" { // git leaves it out; a run of the tests keeps its seconds there
			continue
		}
		_, isLater := later[name]
		if isLater || slices.Contains(known, name) {
			listed[name] = true
		} else if !strings.HasPrefix(name, ".") {
			bad = append(bad, name+": the root's list is short: put it into a folder, or into newAtRoot with the reason")
		}
	}
	for _, name := range known {
		if !listed[name] {
			bad = append(bad, name+": atRoot knows it in vain")
		}
	}
	for name, why := range later {
		if !listed[name] || why == "" {
			bad = append(bad, name+": newAtRoot knows it in vain, or without a reason")
		}
	}
	if n := len(listed); n > most {
		bad = append(bad, fmt.Sprintf("the root lists %d names, at most %d may be", n, most))
	}
	return bad
}

// TestRoot: the root stays a list that one can read.
func TestRoot(t *testing.T) {
	for _, bad := range checkRoot(os.DirFS("../.."), atRoot, newAtRoot, maxAtRoot) {
		t.Error(bad)
	}
}

func TestRootFalls(t *testing.T) {
	root := fstest.MapFS{"a.go": {}, "b.go": {}, "c/d.go": {}, ".git/x": {}}
	for name, c := range map[string]struct {
		known []string
		later map[string]string
		most  int
		want  string
	}{
		"a name that nobody listed": {[]string{"a.go", "c"}, nil, 3, "b.go: the root's list"},
		"a name that is gone":       {[]string{"a.go", "b.go", "c", "e"}, nil, 4, "e: atRoot knows"},
		"a name without a reason":   {[]string{"a.go", "c"}, map[string]string{"b.go": ""}, 3, "b.go: newAtRoot knows"},
		"too many":                  {[]string{"a.go", "b.go", "c"}, nil, 2, "the root lists 3 names"},
	} {
		if got := checkRoot(root, c.known, c.later, c.most); len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
			t.Errorf("%s: got %q, want one that begins with %q", name, got, c.want)
		}
	}
	if got := checkRoot(root, []string{"a.go", "c"}, map[string]string{"b.go": "a reason"}, 3); len(got) != 0 {
		t.Errorf("a root within its bounds: %q", got)
	}
}

// places are the folders and files that DESIGN.md's table of places names.
func places(text string) (names []string) {
	_, table, _ := strings.Cut(text, "## Where to change what")
	table, _, _ = strings.Cut(table, "\n## ")
	for i, word := range strings.Split(table, "`") {
		if i%2 == 1 && strings.Contains(word, "/") && !strings.ContainsAny(word, " :*…") {
			names = append(names, word)
		}
	}
	return names
}

// TestPlaces: what the table of places names exists.
func TestPlaces(t *testing.T) {
	root := os.DirFS("../..")
	text, err := fs.ReadFile(root, "DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	names := places(string(text))
	if len(names) < 8 {
		t.Fatalf("the table names %q: it is not read", names)
	}
	for _, name := range names {
		if _, err := fs.Stat(root, name); err != nil {
			t.Errorf("DESIGN.md, table of places: %v", err)
		}
	}
	for _, want := range []string{"internal/coretest/life/drain_test.go", "internal/coretest/operating/rules_test.go", "internal/tests/matrix/queues_test.go"} {
		if !slices.Contains(names, want) {
			t.Errorf("DESIGN.md's table of places does not name %s", want)
		}
	}
}
