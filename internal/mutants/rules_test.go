package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/must"
)

const root = "../.."

// The rule: each row of the state machine is broken once, by its name.
func TestMachineRowsHaveMutants(t *testing.T) {
	var names []string
	for _, r := range machine.ClaimTable() {
		names = append(names, "claim: "+r.Name)
	}
	for _, r := range machine.RenewTable() {
		names = append(names, "renew: "+r.Name)
	}
	for _, r := range machine.SettleTable() {
		names = append(names, "settle: "+r.Name)
	}
	for _, name := range names {
		if !hasRule(func(rule string) bool { return rule == name }) {
			t.Errorf("no mutant has the rule %q", name)
		}
	}
	for _, m := range mutants() {
		area, _, _ := strings.Cut(m.Rule, ":")
		if slices.Contains([]string{"claim", "renew", "settle"}, area) && !slices.Contains(names, m.Rule) {
			t.Errorf("%s: %q: no row of the machine has the name %q", m.File, short(m.Text), m.Rule)
		}
	}
}

// The rule: each case of the table of endings is broken once, where it stands.
func TestVerdictsHaveMutants(t *testing.T) {
	for file, funcs := range map[string][]string{
		"internal/verdict/verdict.go": {"Judge", "class"},
		"internal/verdict/handled.go": {"ending", "cutBy"},
	} {
		text := must.Get(os.ReadFile(root + "/" + file))
		var broken []int // where the texts of the mutants end
		for _, m := range mutants() {
			if m.File == file {
				broken = append(broken, strings.Index(string(text), m.Text)+len(strings.TrimRight(m.Text, "\n")))
			}
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		cases := 0
		ast.Inspect(parsed, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncDecl); ok && !slices.Contains(funcs, f.Name.Name) {
				return false
			}
			c, ok := n.(*ast.CaseClause)
			if !ok {
				return true
			}
			cases++
			from, to := set.Position(c.Pos()), set.Position(c.End())
			if !slices.ContainsFunc(broken, func(at int) bool { return from.Offset < at && at <= to.Offset }) {
				t.Errorf("%s:%d: no mutant breaks this case", file, from.Line)
			}
			return true
		})
		if cases < 5 {
			t.Errorf("%s: %d cases found", file, cases)
		}
	}
}

// The rule: a mutant's rule stands on its page.
func TestRulesStandOnTheirPages(t *testing.T) {
	units := map[string][]unit{}
	for _, page := range rulePages {
		units[page] = readUnits(t, page)
	}
	for _, m := range mutants() {
		page, text, _ := strings.Cut(m.Rule, ": ")
		if m.Rule == "" || slices.Contains([]string{"claim", "renew", "settle"}, page) {
			continue
		}
		n := 0
		for _, u := range units[page] {
			if strings.Contains(u.text, text) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s: %q: the rule %q stands in %d rules of docs/%s.md, not in one", m.File, short(m.Text), text, n, page)
		}
	}
}

func mutants() (all []mutant) {
	for _, table := range tables {
		all = append(all, table...)
	}
	return all
}

func hasRule(is func(rule string) bool) bool {
	return slices.ContainsFunc(mutants(), func(m mutant) bool { return is(m.Rule) })
}

// rulePages are the pages whose rules have mutants.
var rulePages = []string{"contracts", "protocol", "replay"}

// unit is a rule of a page: a row of a table, or an entry of a list.
type unit struct {
	line    int
	heading string
	text    string
}

// readUnits reads the rules of a page, each in one line.
func readUnits(t *testing.T, page string) (units []unit) {
	t.Helper()
	b := must.Get(os.ReadFile(root + "/docs/" + page + ".md"))
	heading, code, list := "", false, false
	for i, line := range strings.Split(string(b), "\n") {
		bare := strings.TrimSpace(line)
		if strings.HasPrefix(bare, "```") {
			code = !code
		}
		entry := strings.HasPrefix(bare, "- ") || len(bare) > 3 && bare[1:3] == ". "
		switch {
		case code, strings.HasPrefix(bare, "```"):
		case strings.HasPrefix(line, "#"):
			heading, list = strings.TrimLeft(line, "# "), false
		case strings.HasPrefix(line, "| "), entry:
			units = append(units, unit{i + 1, heading, bare})
			list = entry
		case bare == "":
			list = false
		case list && len(units) > 0:
			units[len(units)-1].text += " " + bare
		default: // prose: each paragraph is one
			units, list = append(units, unit{i + 1, heading, bare}), true
		}
	}
	return units
}

// suiteCases returns the names of the cases of brokertest and dedupetest. Each of them has a broken
// driver or store that it must refuse, as the suites' own tests see to.
func suiteCases(t *testing.T) map[string]bool {
	t.Helper()
	cases := map[string]bool{}
	name := regexp.MustCompile("Name: +\"([a-z0-9-]+)\"")
	for _, dir := range []string{"broker/brokertest", "dedupe/dedupetest"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text := must.Get(os.ReadFile(f))
			for _, m := range name.FindAllStringSubmatch(string(text), -1) {
				cases[m[1]] = true
			}
		}
	}
	return cases
}

var quoted = regexp.MustCompile("`([^`]+)`")

// namesCase reports whether a rule names a case, or all of an area as `i5-…` does.
func namesCase(text string, cases map[string]bool) bool {
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		area, all := strings.CutSuffix(m[1], "…")
		if cases[m[1]] || all && area != "" {
			return true
		}
	}
	return false
}

// noRules are headings of the three pages under which no rule of the product's stands: what is
// introduced or measured, habits of those who write code, what a change of a letter's form breaks
// (dlq/form_test.go holds that), speed (make bench), and the tables that are held row by row above.
var noRules = []string{
	"The contracts: broker, dedupe store, visibility manager", "Habits of every package",
	"The protocol: a key's states, how runs end, and in which order", "Claim, renew, settle", "Throughput",
	"Dead letters and replay", "In code",
}

// isRule reports whether a unit of a page states a rule: a row of a table, an entry of a list, or a
// paragraph with a name.
func isRule(u unit) bool {
	text := strings.TrimSpace(u.text)
	switch {
	case slices.Contains(noRules, u.heading):
		return false
	case strings.HasPrefix(text, "|"):
		return !slices.Contains(heads, text) && !strings.HasPrefix(text, "|---")
	}
	return strings.HasPrefix(text, "- ") || strings.HasPrefix(text, "**") || text[1:3] == ". "
}

// The rule: each rule of the three pages has something broken that a test refuses: a mutant, or a
// broken driver or store of the case that it names. open has those that have none. It may only
// shrink.
func TestRulesHaveMutants(t *testing.T) {
	cases := suiteCases(t)
	held, rest := 0, maps.Clone(open)
	for _, page := range rulePages {
		for _, u := range readUnits(t, page) {
			if !isRule(u) {
				continue
			}
			if namesCase(u.text, cases) || hasRule(func(rule string) bool {
				of, text, _ := strings.Cut(rule, ": ")
				return of == page && strings.Contains(u.text, text)
			}) {
				held++
				continue
			}
			name := ""
			for text := range open {
				if strings.HasPrefix(text, page+": ") && strings.Contains(u.text, strings.TrimPrefix(text, page+": ")) {
					name = text
				}
			}
			if name == "" {
				t.Errorf("docs/%s.md:%d: no mutant breaks this rule: %.100s", page, u.line, u.text)
			}
			delete(rest, name)
		}
	}
	for text := range rest {
		t.Errorf("%q is no rule without a mutant any more: take it out of the list", text)
	}
	t.Logf("%d rules are held, %d have no mutant yet", held, len(open))
}
