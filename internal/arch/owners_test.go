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

	"github.com/onceq/onceq/internal/must"
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

// An ownersRow is one owner of a run: its phase, and the fields that it writes.
type ownersRow struct {
	phase  string
	writes []string
}

// ownersRows are the rows of a table, in their order. cells cuts a line into the phase, the owner
// and what the owner writes; ok = false: the line is not of the table. A row without a phase has
// that of the row above, and a line without an owner goes on with the row above.
func ownersRows(text string, fields []string, cells func(line string) (c [3]string, ok bool)) (rows []ownersRow) {
	word := regexp.MustCompile(`\w+`)
	for line := range strings.Lines(text) {
		c, ok := cells(line)
		if !ok || c[0] == "phase" {
			continue
		}
		if c[0] != "" && !slices.Contains(ownersPhases, c[0]) {
			break // the next table
		}
		if c[1] != "" {
			if c[0] == "" && len(rows) > 0 {
				c[0] = rows[len(rows)-1].phase
			}
			rows = append(rows, ownersRow{phase: c[0]})
		}
		last := &rows[len(rows)-1]
		for _, w := range word.FindAllString(c[2], -1) {
			if slices.Contains(fields, w) && !slices.Contains(last.writes, w) {
				last.writes = append(last.writes, w)
			}
		}
		slices.Sort(last.writes)
	}
	return rows
}

// pageCells cuts a line of DESIGN.md's table.
func pageCells(line string) (c [3]string, ok bool) {
	cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
	if len(cells) != 3 || strings.Contains(line, "---") {
		return c, false
	}
	for i := range c {
		c[i] = strings.TrimSpace(cells[i])
	}
	return c, true
}

// commentCells cuts a line of the package comment's table, whose columns have a fixed width.
func commentCells(line string) (c [3]string, ok bool) {
	const owner, writes = 19, 62
	line, ok = strings.CutPrefix(strings.TrimRight(line, "\n"), "//\t")
	if !ok {
		return c, false
	}
	line += strings.Repeat(" ", writes)
	for i, cell := range []string{line[:owner], line[owner:writes], line[writes:]} {
		c[i] = strings.TrimSpace(cell)
	}
	return c, true
}

// TestOwners: DESIGN.md and the engine's package comment say the same, owner by owner, of who may
// write a run's fields, and leave none out.
func TestOwners(t *testing.T) {
	all, first := runFields(t)
	section := func(name, from, to string) string {
		b := must.Get(os.ReadFile(name))
		_, text, found := strings.Cut(string(b), from)
		text, _, ended := strings.Cut(text, to)
		if !found || !ended {
			t.Fatalf("%s has no section %q", name, from)
		}
		return text
	}
	page := section("../../DESIGN.md", "\n## Who owns what\n", "\n## ")
	comment := section("../engine/doc.go", "\n// # Who may write what\n", "\npackage engine")
	inPage, inComment := ownersRows(page, all, pageCells), ownersRows(comment, all, commentCells)
	var phases []string
	for _, row := range inPage {
		phases = append(phases, row.phase)
	}
	if phases = slices.Compact(phases); !slices.Equal(phases, ownersPhases) {
		t.Errorf("DESIGN.md has the phases %q, want %q", phases, ownersPhases)
	}
	if len(inPage) != len(inComment) {
		t.Fatalf("DESIGN.md has %d rows, internal/engine/doc.go %d", len(inPage), len(inComment))
	}
	for i, row := range inPage {
		if other := inComment[i]; row.phase != other.phase || !slices.Equal(row.writes, other.writes) {
			t.Errorf("row %d: DESIGN.md has %s %q, internal/engine/doc.go %s %q", i+1, row.phase, row.writes, other.phase, other.writes)
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
