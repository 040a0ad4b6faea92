package arch

import (
	_ "embed"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/must"
)

// docker matches what only tests with servers need.
var docker = regexp.MustCompile(`(?i)docker|testcontainers|moby`)

// intakeText has what each program takes in: the modules of others that its go.mod names, the lines
// of its go.sum, and all modules of others that "go list -m all" shows. -update writes it, and a
// review asks why a number has risen.
//
//go:embed intake.txt
var intakeText string

const library = "github.com/onceq/onceq"

// A program imports some of the library.
type program struct {
	name    string
	imports []string
	row     string // its first cell in docs/modules.md; empty = none
}

// usersPrograms are those that are worth a word, and one for each driver and store that none of
// these imports.
func usersPrograms(t *tree) []program {
	all := []program{
		{"the core", []string{"", "/adapters/membroker", "/dedupe/memstore", "/dlq", "/onceqtest"}, "the core, `membroker`, `memstore`"},
		{"awssqs", []string{"", "/adapters/awssqs"}, "`awssqs`"},
		{"sqlitestore", []string{"", "/adapters/membroker", "/dedupe/sqlitestore"}, ""},
		{"sqlitestore and its driver", []string{"", "/adapters/membroker", "/dedupe/sqlitestore", sqliteDriver}, "`sqlitestore`, and `modernc.org/sqlite`"},
		{"awssqs and pgstore", []string{"", "/adapters/awssqs", "/dedupe/pgstore"}, "`awssqs` and `pgstore`"},
		{"gcppubsub", []string{"", "/adapters/gcppubsub"}, "`gcppubsub`, a module of its own"},
		{"pubsubpush", []string{"", "/adapters/gcppubsub/pubsubpush"}, "`pubsubpush`, in the module of `gcppubsub`"},
		{"firestorestore", []string{"", "/dedupe/firestorestore"}, "`firestorestore`, a module of its own"},
		{"otelonceq", []string{"", "/adapters/otelonceq"}, ""},
		{"watermillonceq", []string{"", "/adapters/watermillonceq"}, "`watermillonceq`, a module of its own"},
		{"gocloudpubsub", []string{"", "/adapters/gocloudpubsub"}, ""},
	}
	known := map[string]bool{}
	for _, p := range all {
		for _, imported := range p.imports {
			known[strings.TrimPrefix(imported, "/")] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(t.pkgs)) {
		parent, name := path.Dir(dir), path.Base(dir)
		if !known[dir] && (parent == "adapters" || parent == "dedupe" && strings.HasSuffix(name, "store")) {
			all = append(all, program{name: name, imports: []string{"", "/" + dir}})
		}
	}
	return all
}

// An intake is one line of intake.txt.
type intake struct{ named, sums, all int }

func readIntakes(text string) map[string]intake {
	out := map[string]intake{}
	for line := range strings.Lines(text) {
		var n intake
		name, numbers, _ := strings.Cut(line, ":")
		if _, err := fmt.Sscan(numbers, &n.named, &n.sums, &n.all); err == nil {
			out[name] = n
		}
	}
	return out
}

// writeIntakes is intake.txt, and the page with the numbers of its table.
func writeIntakes(ps []program, ns map[string]intake, page string) (text, table string) {
	text = "# What a program takes in that imports some of the library: modules of others in its go.mod, lines\n" +
		"# of its go.sum, modules of others in its graph. go test ./internal/arch -run TestIntake -update\n# writes it, and the table in docs/modules.md.\n"
	var lines []string
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		for _, p := range ps {
			if n := ns[p.name]; p.row != "" && len(cells) == 6 && strings.TrimSpace(cells[1]) == p.row {
				cells[2], cells[3] = fmt.Sprintf(" %d ", n.sums), fmt.Sprintf(" %d ", n.all)
				line = strings.Join(cells, "|")
			}
		}
		lines = append(lines, line)
	}
	for _, p := range ps {
		n := ns[p.name]
		text += fmt.Sprintf("%s: %d %d %d\n", p.name, n.named, n.sums, n.all)
	}
	return text, strings.Join(lines, "")
}

// TestIntakeIsWritten: intake.txt has each program, and the table in docs/modules.md its numbers.
func TestIntakeIsWritten(t *testing.T) {
	if *update {
		t.Skip("TestIntake writes them")
	}
	const page = "docs/modules.md"
	ps, was := usersPrograms(ours(t)), readPage(t, page)
	text, table := writeIntakes(ps, readIntakes(intakeText), was)
	if text != intakeText || table != was {
		t.Errorf("intake.txt or %s is not as the other says: go test ./internal/arch -run TestIntake -update writes both", page)
	}
	for _, p := range ps {
		if p.row != "" && !strings.Contains(was, "\n| "+p.row+" |") {
			t.Errorf("%s has no row %q", page, p.row)
		}
	}
}

// TestIntake keeps what a program takes in that imports the library. With -update it writes that.
func TestIntake(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	ps, kept := usersPrograms(ours(t)), readIntakes(intakeText)
	for _, c := range ps {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var mod strings.Builder
			mod.WriteString("module user.test/program\n\ngo 1.26.0\n\nrequire " + library + " v0.0.0\n")
			for _, m := range modules {
				mod.WriteString("\nreplace " + path.Join(library, m.dir) + " => " + filepath.Join(root, m.dir) + "\n")
			}
			write("go.mod", mod.String())
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
			tidy := must.Get(os.ReadFile(filepath.Join(dir, "go.mod")))
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
			got := intake{named, strings.Count(string(sum), "\n"), others}
			if *update {
				kept[c.name] = got
			}
			if want, ok := kept[c.name]; !ok || got != want {
				t.Errorf("%d modules of others in go.mod, %d lines in go.sum, %d modules of others in the graph; intake.txt has %v. "+
					"Raise a number only with a reason: -update writes it", got.named, got.sums, got.all, want)
			}
			for line := range strings.Lines(string(sum) + all) {
				if docker.MatchString(line) {
					t.Errorf("a user takes in %s", line)
				}
			}
			if named > 0 {
				return
			}
			for line := range strings.Lines(run("list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")) {
				if !ours(line) && !strings.HasPrefix(line, "user.test/") {
					t.Errorf("the core compiles %s", line)
				}
			}
		})
	}
	if !*update || t.Failed() {
		return
	}
	text, table := writeIntakes(ps, kept, readPage(t, "docs/modules.md"))
	for name, text := range map[string]string{"intake.txt": text, filepath.Join(root, "docs", "modules.md"): table} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
