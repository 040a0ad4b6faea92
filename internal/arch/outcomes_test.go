package arch

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/must"
)

var (
	outcomeConst = regexp.MustCompile(`(?m)^const Outcome\w+ Outcome = "([^"]+)"$`)
	outcomeWord  = regexp.MustCompile("`([a-z-]+)`")
)

// TestOutcomesPage: the tables of docs/outcomes.md name each outcome once, and no other word. An
// alert on another word would never fire.
func TestOutcomesPage(t *testing.T) {
	api := must.Get(os.ReadFile("../../api/onceq.txt"))
	page := must.Get(os.ReadFile("../../docs/outcomes.md"))
	var want, got []string
	for _, m := range outcomeConst.FindAllStringSubmatch(string(api), -1) {
		want = append(want, m[1])
	}
	if len(want) < 20 {
		t.Fatalf("%d outcomes found in api/onceq.txt", len(want))
	}
	tables, _, ok := strings.Cut(string(page), "\n## Lines that are no outcome\n")
	if !ok {
		t.Fatal("docs/outcomes.md has no section of lines that are no outcome")
	}
	for line := range strings.Lines(tables) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, m := range outcomeWord.FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			got = append(got, m[1])
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("docs/outcomes.md has the outcomes\n%q\nand the constants are\n%q", got, want)
	}
}
