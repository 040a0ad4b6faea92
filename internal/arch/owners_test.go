package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ownersPhases are a run's phases, as the first column of both tables has them.
var ownersPhases = []string{"waiting", "claiming", "claimed, running", "settling, settled", "over"}

// runFields are the fields of the engine's Run: all of them, and those of its first block, which
// change hands by the phase.
func runFields(t *testing.T) (all, first []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../engine/run.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.TypeSpec)
		if !ok || s.Name.Name != "Run" {
			return true
		}
		for _, field := range s.Type.(*ast.StructType).Fields.List {
			for _, name := range field.Names {
				all = append(all, name.Name)
			}
		}
		return false
	})
	from, to := slices.Index(all, "held"), slices.Index(all, "prev")
	if from < 0 || to < from {
		t.Fatalf("the first block of Run's fields is not found in %q", all)
	}
	return all, append(slices.Clone(all[from:to]), "Attempt")
}

// ownersWrite is what a text says that is written in each phase, as far as they are fields of a
// run. mark is what stands before a phase in its row.
func ownersWrite(t *testing.T, text, mark string, fields []string) map[string][]string {
	t.Helper()
	word := regexp.MustCompile(`\w+`)
	writes := map[string][]string{}
	for i, phase := range ownersPhases {
		_, rows, ok := strings.Cut(text, mark+phase+" ")
		if !ok {
			t.Fatalf("no row of the phase %q", phase)
		}
		ends := []string{"\n\n", "\n//\n"} // of a page, and of a comment
		if i+1 < len(ownersPhases) {
			ends = []string{mark + ownersPhases[i+1] + " "}
		}
		for _, end := range ends {
			rows, _, _ = strings.Cut(rows, end)
		}
		for _, w := range word.FindAllString(rows, -1) {
			if slices.Contains(fields, w) && !slices.Contains(writes[phase], w) {
				writes[phase] = append(writes[phase], w)
			}
		}
		slices.Sort(writes[phase])
	}
	return writes
}

// TestOwners: DESIGN.md and the engine's package comment say the same of who may write a run's
// fields, and leave none out.
func TestOwners(t *testing.T) {
	all, first := runFields(t)
	section := func(name, from, to string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, text, found := strings.Cut(string(b), from)
		text, _, ended := strings.Cut(text, to)
		if !found || !ended {
			t.Fatalf("%s has no section %q", name, from)
		}
		return text
	}
	page := section("../../DESIGN.md", "\n## Who owns what\n", "\n## ")
	comment := section("../engine/doc.go", "\n// # Who may write what\n", "\npackage engine")
	inPage := ownersWrite(t, page, "\n| ", all)
	inComment := ownersWrite(t, comment, "\n//\t", all)
	for _, phase := range ownersPhases {
		if !slices.Equal(inPage[phase], inComment[phase]) {
			t.Errorf("%s: DESIGN.md has %q, internal/engine/doc.go %q", phase, inPage[phase], inComment[phase])
		}
	}
	for name, text := range map[string]string{"DESIGN.md": page, "internal/engine/doc.go": comment} {
		for _, f := range first {
			if !regexp.MustCompile(`\b` + f + `\b`).MatchString(text) {
				t.Errorf("%s does not say who may write a run's %s", name, f)
			}
		}
	}
}
