package arch

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/onceq/onceq/internal/must"
)

// The texts of outcomes and of error classes stand in several packages, because go doc shows a
// user each of them with its text, and because a lower package cannot name a higher one's. The
// checks here compare what stands where, by name and by value.

// class is an error class under the name that each package has for it; "" = it has none.
type class struct{ onceq, verdict, dlq string }

var classes = []class{
	{"ClassAttempts", "Attempts", ""},
	{"ClassBadKey", "BadKey", "classBadKey"},
	{"ClassBadMeta", "", "classBadMeta"},
	{"ClassCancelled", "Cancelled", ""},
	{"ClassClaimRefused", "ClaimRefused", "classClaimRefused"},
	{"ClassConfig", "", "classConfig"},
	{"ClassDecode", "", ""},
	{"ClassDuplicate", "Duplicate", "classDuplicate"},
	{"ClassError", "Plain", "classError"},
	{"ClassExpired", "Expired", "classExpired"},
	{"ClassInterrupted", "Interrupted", ""},
	{"ClassLease", "Unconfirmed", ""},
	{"ClassMismatch", "Mismatch", "classMismatch"},
	{"ClassNoHandler", "", "classNoHandler"},
	{"ClassNoKey", "", "classNoKey"},
	{"ClassPanic", "Panicked", ""},
	{"ClassPermanent", "Final", ""},
	{"ClassPostponed", "Postponed", ""},
	{"ClassResult", "Result", ""},
	{"ClassTimeout", "TimedOut", ""},
	{"ClassTooEarly", "", "classTooEarly"},
	{"ClassTxNotCommitted", "NotCommitted", ""},
	{"ClassUnproven", "Unproven", "classUnproven"},
}

// refusedAs are the outcomes of messages that are refused: each is the class of the letter.
var refusedAs = map[string]string{
	"OutcomeBadKey":       "ClassBadKey",
	"OutcomeBadMeta":      "ClassBadMeta",
	"OutcomeClaimRefused": "ClassClaimRefused",
	"OutcomeConfig":       "ClassConfig",
	"OutcomeDuplicate":    "ClassDuplicate",
	"OutcomeExpired":      "ClassExpired",
	"OutcomeMismatch":     "ClassMismatch",
	"OutcomeNoHandler":    "ClassNoHandler",
	"OutcomeNoKey":        "ClassNoKey",
	"OutcomeTooEarly":     "ClassTooEarly",
	"OutcomeUnproven":     "ClassUnproven",
}

// hostsOwn are the outcomes that package onceq gives by itself.
var hostsOwn = []string{"OutcomeEarly", "OutcomePaused"}

// outcomePage tells operators what each outcome means.
const outcomePage = "docs/outcomes.md"

// texts are the constants of one kind that a package declares: name to text.
type texts map[string]string

func checkTexts(t *tree, outcomes string) []string {
	m := &importer{t: t, done: map[string]*types.Package{}}
	refused := m.refusals(".")
	maps.Copy(refused, m.refusals("internal/engine"))
	ours, onceq := m.textsOf(".", "Outcome"), m.textsOf(".", "").called("Class")
	replays := m.textsOf("dlq", "").called("class")
	// The letter of a Fingerprint that panicked has a class that runs have, too. So its outcome has
	// a text of its own.
	maps.DeleteFunc(refused, func(_, text string) bool { return text == onceq["ClassError"] && ours["OutcomeBadFingerprint"] != "" })
	return slices.Concat(
		checkClasses(onceq, m.textsOf("internal/verdict", ""), replays),
		checkOutcomes(ours, m.textsOf("internal/engine", "Outcome"), onceq),
		checkShown(ours, refused, outcomes),
	)
}

// checkClasses compares the three lists with the table, and so with each other.
func checkClasses(onceq, verdict, dlq texts) (bad []string) {
	named := map[string][]string{}
	for _, c := range classes {
		text, ok := onceq[c.onceq]
		if !ok {
			bad = append(bad, fmt.Sprintf("onceq: %s is gone; classes in internal/arch names it", c.onceq))
		}
		for _, other := range []struct {
			pkg, name string
			has       texts
		}{{"internal/verdict", c.verdict, verdict}, {"dlq", c.dlq, dlq}} {
			got, there := other.has[other.name]
			switch {
			case other.name == "":
			case !there:
				bad = append(bad, fmt.Sprintf("%s: %s is gone, the class onceq.%s", other.pkg, other.name, c.onceq))
			case got != text:
				bad = append(bad, fmt.Sprintf("%s: %s is %q, and onceq.%s is %q", other.pkg, other.name, got, c.onceq, text))
			}
		}
		named["onceq"] = append(named["onceq"], c.onceq)
		named["internal/verdict"] = append(named["internal/verdict"], c.verdict)
		named["dlq"] = append(named["dlq"], c.dlq)
	}
	for pkg, has := range map[string]texts{"onceq": onceq, "internal/verdict": verdict, "dlq": dlq} {
		for name, text := range has {
			if !slices.Contains(named[pkg], name) {
				bad = append(bad, fmt.Sprintf("%s: the class %s, %q, is new: say in classes what the other packages call it", pkg, name, text))
			}
		}
	}
	return append(bad, onceq.twice("onceq")...)
}

// checkOutcomes finds out where each outcome of package onceq comes from, and that the engine's
// have a name there.
func checkOutcomes(outcomes, engine, classes texts) (bad []string) {
	for name, text := range outcomes {
		is := func(what, want string) {
			if text != want {
				bad = append(bad, fmt.Sprintf("onceq: %s is %q, and %s is %q", name, text, what, want))
			}
		}
		their := strings.TrimPrefix(name, "Outcome")
		given, isEngines := engine[their]
		if isEngines {
			is("engine."+their, given)
		}
		if c := refusedAs[name]; c != "" {
			is(c, classes[c])
		} else if !isEngines && !slices.Contains(hostsOwn, name) {
			bad = append(bad, fmt.Sprintf("onceq: nothing gives %s, %q: the engine has no %s; name it in refusedAs or hostsOwn", name, text, their))
		}
	}
	for name, text := range engine {
		if _, ok := outcomes["Outcome"+name]; !ok {
			bad = append(bad, fmt.Sprintf("internal/engine: users cannot name %s, %q: there is no onceq.Outcome%s", name, text, name))
		}
	}
	for _, name := range slices.Concat(hostsOwn, slices.Collect(maps.Keys(refusedAs))) {
		if _, ok := outcomes[name]; !ok {
			bad = append(bad, fmt.Sprintf("onceq: %s is gone; refusedAs or hostsOwn names it", name))
		}
	}
	return append(bad, outcomes.twice("onceq")...)
}

// outcomeRow is the first cell of a row of the page, with one outcome or several.
var outcomeRow = regexp.MustCompile("(?m)^\\| ((?:`[a-z-]+`(?:, )?)+) \\|")

// checkShown compares the outcomes with what refusals give, and with the page for operators.
func checkShown(outcomes, refused texts, shown string) (bad []string) {
	known := slices.Collect(maps.Values(outcomes))
	for at, text := range refused {
		if !slices.Contains(known, text) {
			bad = append(bad, at+", and no onceq.Outcome… says so")
		}
	}
	var rows []string
	for _, m := range outcomeRow.FindAllStringSubmatch(shown, -1) {
		rows = append(rows, strings.Split(strings.ReplaceAll(m[1], "`", ""), ", ")...)
	}
	for name, text := range outcomes {
		if !slices.Contains(rows, text) {
			bad = append(bad, fmt.Sprintf("%s: has no row for `%s`, %s", outcomePage, text, name))
		}
	}
	for _, row := range rows {
		if !slices.Contains(known, row) {
			bad = append(bad, fmt.Sprintf("%s: `%s` is no outcome", outcomePage, row))
		}
	}
	return bad
}

// textsOf are the constants of a type that a package declares; "" = the untyped strings.
func (m *importer) textsOf(dir, typ string) texts {
	out := texts{}
	if m.t.pkgs[dir] == nil {
		return out
	}
	if m.done[dir] == nil {
		m.check(m.t.pkgs[dir])
	}
	for _, name := range m.done[dir].Scope().Names() {
		c, ok := m.done[dir].Scope().Lookup(name).(*types.Const)
		if !ok || c.Val().Kind() != constant.String {
			continue
		}
		named, _ := c.Type().(*types.Named)
		if typ == "" && c.Type() == types.Typ[types.UntypedString] || named != nil && named.Obj().Name() == typ {
			out[name] = constant.StringVal(c.Val())
		}
	}
	return out
}

// refusals are the classes in a package's Refusals, by what a report says of them.
func (m *importer) refusals(dir string) texts {
	out := texts{}
	info := m.check(m.t.pkgs[dir])
	for _, f := range m.t.pkgs[dir].files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok || last(lit.Type) != "Refusal" || f.test {
				return true
			}
			for _, e := range lit.Elts {
				kv, ok := e.(*ast.KeyValueExpr)
				if !ok || last(kv.Key) != "Class" {
					continue
				}
				text := textOf(info, kv.Value)
				out[fmt.Sprintf("%s: a message is refused as %q", f.name, text)] = text
			}
			return true
		})
	}
	return out
}

// textOf is the text of a constant's name; what is none shows as its own form.
func textOf(info *types.Info, e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		e = s.Sel
	}
	if id, ok := e.(*ast.Ident); ok {
		if c, ok := info.Uses[id].(*types.Const); ok && c.Val().Kind() == constant.String {
			return constant.StringVal(c.Val())
		}
	}
	return fmt.Sprintf("%T, not a constant", e)
}

// last is the last name of a selector, or the name itself.
func last(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// called are the texts whose names begin so.
func (ts texts) called(prefix string) texts {
	out := texts{}
	for name, text := range ts {
		if strings.HasPrefix(name, prefix) {
			out[name] = text
		}
	}
	return out
}

// twice reports texts that two names have.
func (ts texts) twice(pkg string) (bad []string) {
	first := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(ts)) {
		if was := first[ts[name]]; was != "" {
			bad = append(bad, fmt.Sprintf("%s: %s and %s are both %q", pkg, was, name, ts[name]))
		}
		first[ts[name]] = name
	}
	return bad
}

// TestTexts: an outcome, or a class, has one text wherever it stands.
func TestTexts(t *testing.T) {
	tr, shown := textsTree(t, "", nil)
	for _, bad := range checkTexts(tr, shown) {
		t.Error(bad)
	}
}

// TestTextsFall changes one list at a time: each change must be noticed.
func TestTextsFall(t *testing.T) {
	for _, c := range []struct{ name, file, old, new, want string }{
		{
			"a class of users' is misspelled", "errors.go", `"no-key"`, `"nokey"`,
			`dlq: classNoKey is "no-key", and onceq.ClassNoKey is "nokey"`,
		},
		{
			"two classes change places", "errors.go", "ClassPanic          = \"panic\"", "ClassPanic          = \"timeout\"",
			`internal/verdict: Panicked is "panic", and onceq.ClassPanic is "timeout"`,
		},
		{
			"the table's class is misspelled", "internal/verdict/words.go", `"lease"`, `"leese"`,
			`internal/verdict: Unconfirmed is "leese", and onceq.ClassLease is "lease"`,
		},
		{
			"a replay's class is misspelled", "dlq/doc.go", `"no-handler"`, `"no-handlers"`,
			`dlq: classNoHandler is "no-handlers", and onceq.ClassNoHandler is "no-handler"`,
		},
		{
			"a class of users' is dropped", "errors.go", "ClassResult ", "classResult ",
			"onceq: ClassResult is gone; classes in internal/arch names it",
		},
		{
			"a replay's class is dropped", "dlq/doc.go", "classMismatch =", "mismatch =",
			"dlq: classMismatch is gone, the class onceq.ClassMismatch",
		},
		{
			"a class is added for users", "errors.go", "const (\n", "const (\n\tClassNew = \"new\"\n",
			`onceq: the class ClassNew, "new", is new: say in classes what the other packages call it`,
		},
		{
			"a class is added to the table", "internal/verdict/words.go", "const (\n", "const (\n\tNew = \"new\"\n",
			`internal/verdict: the class New, "new", is new: say in classes what the other packages call it`,
		},
		{
			"a class is added to replays", "dlq/doc.go", "const (\n", "const (\n\tclassNew = \"new\"\n",
			`dlq: the class classNew, "new", is new: say in classes what the other packages call it`,
		},
		{
			"two classes have one text", "errors.go", `"decode"`, `"config"`,
			`onceq: ClassConfig and ClassDecode are both "config"`,
		},
		{
			"an outcome of users' is misspelled", "handler.go", `"handed-back"`, `"handedback"`,
			`onceq: OutcomeHandedBack is "handedback", and engine.HandedBack is "handed-back"`,
		},
		{
			"an outcome of the engine's is misspelled", "internal/engine/outcome.go", `"kept"`, `"keep"`,
			`onceq: OutcomeKept is "kept", and engine.Kept is "keep"`,
		},
		{
			"an outcome of users' is dropped", "handler.go", "OutcomeStale Outcome", "outcomeStale Outcome",
			`internal/engine: users cannot name Stale, "stale": there is no onceq.OutcomeStale`,
		},
		{
			"the outcome of a refusal is dropped", "handler.go", "OutcomeNoKey Outcome", "outcomeNoKey Outcome",
			"onceq: OutcomeNoKey is gone; refusedAs or hostsOwn names it",
		},
		{
			"an outcome of the engine's is dropped", "internal/engine/outcome.go", "NoMessage        Outcome", "NoMessage        string ",
			`onceq: nothing gives OutcomeNoMessage, "no-message": the engine has no NoMessage; name it in refusedAs or hostsOwn`,
		},
		{
			"an outcome is added for users", "handler.go", "const (\n", "const (\n\tOutcomeNew Outcome = \"new\"\n",
			`onceq: nothing gives OutcomeNew, "new": the engine has no New; name it in refusedAs or hostsOwn`,
		},
		{
			"an outcome is added to the engine", "internal/engine/outcome.go", "const (\n\tDone", "const (\n\tFresh Outcome = \"new\"\n\tDone",
			`internal/engine: users cannot name Fresh, "new": there is no onceq.OutcomeFresh`,
		},
		{
			"a refusal has another class", "internal/engine/age.go", "Class: verdict.Expired", "Class: verdict.Attempts",
			"internal/engine/age.go: a message is refused as \"attempts\", and no onceq.Outcome… says so",
		},
		{
			"a refusal's class is computed", "intake.go", "Class: ClassNoKey", "Class: ClassOf(err)",
			"intake.go: a message is refused as \"*ast.CallExpr, not a constant\", and no onceq.Outcome… says so",
		},
		{
			"the page has lost a row", outcomePage, "| `early` |", "| early |",
			"docs/outcomes.md: has no row for `early`, OutcomeEarly",
		},
		{
			"the page has a row too many", outcomePage, "| `early` |", "| `early`, `late` |",
			"docs/outcomes.md: `late` is no outcome",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr, shown := textsTree(t, c.file, func(text string) string {
				if !strings.Contains(text, c.old) {
					t.Fatalf("%s does not hold %q", c.file, c.old)
				}
				return strings.Replace(text, c.old, c.new, 1)
			})
			if bad := checkTexts(tr, shown); !slices.Contains(bad, c.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(bad, "\n\t"), c.want)
			}
		})
	}
}

// readTexts reads the four packages, and the page, once: no test changes them.
var readTexts = sync.OnceValues(func() (*tree, error) {
	root, files := os.DirFS("../.."), fstest.MapFS{}
	for _, pattern := range []string{"go.mod", "*.go", "internal/engine/*.go", "internal/verdict/*.go", "dlq/*.go"} {
		names, err := fs.Glob(root, pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := fs.ReadFile(root, name)
			if err != nil {
				return nil, err
			}
			files[path.Clean(name)] = &fstest.MapFile{Data: text}
		}
	}
	return load(files)
})

// textsTree is the four packages and the page, after change has gone over the file of that name.
func textsTree(t *testing.T, file string, change func(text string) string) (tr *tree, shown string) {
	t.Helper()
	tr, err := readTexts()
	if err != nil {
		t.Fatal(err)
	}
	page := must.Get(os.ReadFile(filepath.Join("../..", outcomePage)))
	switch file {
	case "":
		return tr, string(page)
	case outcomePage:
		return tr, change(string(page))
	}
	text := must.Get(os.ReadFile(filepath.Join("../..", file)))
	if tr, err = tr.with(file, []byte(change(string(text)))); err != nil {
		t.Fatal(err)
	}
	return tr, string(page)
}
