package arch

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docker matches what only tests with servers need.
var docker = regexp.MustCompile(`(?i)docker|testcontainers|moby`)

// TestIntake keeps what a program takes in that imports the library: the modules that its
// go.mod names, the lines of its go.sum, and all modules that Go looks at. Raise a number only
// with a reason.
func TestIntake(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	const library = "github.com/onceq/onceq"
	for _, c := range []struct {
		name    string
		imports []string
		// named are the modules of others in go.mod, sums the lines of go.sum, all the modules of
		// others that "go list -m all" shows.
		named, sums, all int
	}{
		{"the core", []string{"", "/adapters/membroker", "/dedupe/memstore", "/dlq", "/onceqtest"}, 0, 0, 27},
		{"awssqs", []string{"", "/adapters/awssqs"}, 5, 16, 27},
		{"sqlitestore", []string{"", "/adapters/membroker", "/dedupe/sqlitestore"}, 0, 20, 27},
		{"sqlitestore and its driver", []string{"", "/adapters/membroker", "/dedupe/sqlitestore", sqliteDriver}, 10, 50, 40},
		{"awssqs and pgstore", []string{"", "/adapters/awssqs", "/dedupe/pgstore"}, 12, 39, 35},
		{"gcppubsub", []string{"", "/adapters/gcppubsub"}, 32, 90, 109},
		{"pubsubpush", []string{"", "/adapters/gcppubsub/pubsubpush"}, 0, 0, 56},
		{"otelonceq", []string{"", "/adapters/otelonceq"}, 8, 59, 54},
		{"watermillonceq", []string{"", "/adapters/watermillonceq"}, 5, 19, 50},
		{"gocloudpubsub", []string{"", "/adapters/gocloudpubsub"}, 43, 138, 177},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			mod := "module user.test/program\n\ngo 1.26.0\n\nrequire " + library + " v0.0.0\n"
			for _, m := range modules {
				mod += "\nreplace " + path.Join(library, m.dir) + " => " + filepath.Join(root, m.dir) + "\n"
			}
			write("go.mod", mod)
			var text strings.Builder
			text.WriteString("package main\n\nimport (\n")
			for _, imported := range c.imports {
				if imported != sqliteDriver {
					imported = library + imported
				}
				text.WriteString("\t_ \"" + imported + "\"\n")
			}
			write("main.go", text.String()+")\n\nfunc main() {}\n")
			run := func(args ...string) string {
				cmd := exec.CommandContext(t.Context(), "go", args...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "PWD="+dir)
				var errs strings.Builder
				cmd.Stderr = &errs
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, errs.String())
				}
				return string(out)
			}
			run("mod", "tidy")
			tidy, err := os.ReadFile(filepath.Join(dir, "go.mod"))
			if err != nil {
				t.Fatal(err)
			}
			ours := func(line string) bool { return strings.HasPrefix(line, library) }
			named := 0
			for _, d := range directives(string(tidy)) {
				if d.verb == "require" && !ours(d.path) {
					named++
				}
			}
			sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			all := run("list", "-m", "all")
			others := -1 // the program itself
			for line := range strings.Lines(all) {
				if !ours(line) {
					others++
				}
			}
			for what, n := range map[string][2]int{
				"modules of others in go.mod":             {named, c.named},
				"lines in go.sum":                         {strings.Count(string(sum), "\n"), c.sums},
				"modules of others that Go has looked at": {others, c.all},
			} {
				if n[0] != n[1] {
					t.Errorf("%d %s, the table has %d", n[0], what, n[1])
				}
			}
			for line := range strings.Lines(string(sum) + all) {
				if docker.MatchString(line) {
					t.Errorf("a user takes in %s", line)
				}
			}
			if c.named > 0 {
				return
			}
			for line := range strings.Lines(run("list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")) {
				if !ours(line) && !strings.HasPrefix(line, "user.test/") {
					t.Errorf("the core compiles %s", line)
				}
			}
		})
	}
}
