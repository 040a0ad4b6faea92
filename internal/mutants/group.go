package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// This file owns how the rows of one test package are played with one build. Each function that a
// row breaks is there whole and once for each of its breaks, and a variable of the environment says
// which of them runs. Rows whose text is in no function, or that cannot be put so, are played one
// by one. A player calls it, with a folder of its own.

// choice is the variable that names the break to run.
const choice = "ONCEQ_MUTANT"

// playGroup plays the rows of one test package.
func playGroup(dir string, rows []row, done func(played)) {
	began := time.Now()
	bin, in, cpu := build(dir, rows)
	took, sound := time.Since(began), map[string]time.Duration{}
	for i := range rows {
		r, began := rows[i], time.Now()
		if _, asked := sound[r.Test]; in[i] && !asked {
			var spent time.Duration
			sound[r.Test], spent = soundFor(bin, r.mutant)
			cpu += spent
		}
		if !in[i] || sound[r.Test] == 0 {
			how, spent, err := kill(dir, r.mutant)
			done(played{r, how, err, time.Since(began) + took, spent + cpu})
			took, cpu = 0, 0
			continue
		}
		// A break may make the test hang, which is a way of turning red.
		out, spent, err := runTest(bin, r.mutant, fmt.Sprint(i), max(20*time.Second, 10*sound[r.Test]))
		how, err := verdictOf(out, err)
		done(played{r, how, err, time.Since(began) + took, spent + cpu})
		took, cpu = 0, 0 // the first row has paid for the build
	}
}

// soundFor tells how long the test takes where no break is chosen; 0 = it does not pass then. The
// copies of the functions disturb it, as they do who counts allocations.
func soundFor(bin string, m mutant) (took, cpu time.Duration) {
	began := time.Now()
	out, cpu, err := runTest(bin, m, "none", limit)
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		return 0, cpu
	}
	return max(1, time.Since(began)), cpu
}

func runTest(bin string, m mutant, which string, most time.Duration) (out []byte, cpu time.Duration, err error) {
	cmd := exec.Command(bin, "-test.v", "-test.count=1", "-test.timeout="+most.String(), "-test.run="+pattern(m.Test))
	cmd.Dir, cmd.Env = m.Package, append(os.Environ(), choice+"="+which)
	out, err = cmd.CombinedOutput()
	if s := cmd.ProcessState; s != nil {
		cpu = s.UserTime() + s.SystemTime()
	}
	return out, cpu, err
}

// build builds the test package with the breaks of all rows that can be put so. in says which these
// are. None is where a single row is not worth it, or where they do not build together.
func build(dir string, rows []row) (bin string, in []bool, cpu time.Duration) {
	in = make([]bool, len(rows))
	byFile := map[string][]int{}
	for i, r := range rows {
		byFile[r.File] = append(byFile[r.File], i)
	}
	replace, count := map[string]string{}, 0
	if os.MkdirAll(dir, 0o700) != nil {
		return "", in, 0
	}
	for n, file := range slices.Sorted(maps.Keys(byFile)) {
		text, put, err := withAll(file, rows, byFile[file])
		if err != nil || len(put) == 0 {
			continue
		}
		if write(dir, fmt.Sprint("all", n), file, text, replace) != nil {
			continue
		}
		for _, i := range put {
			in[i] = true
		}
		count += len(put)
	}
	if count < 2 {
		return "", make([]bool, len(rows)), 0
	}
	list := filepath.Join(dir, "all.json")
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	bin, abs := filepath.Abs(filepath.Join(dir, "all.test"))
	if errors.Join(err, abs, os.WriteFile(list, overlay, 0o600)) != nil {
		return "", make([]bool, len(rows)), 0
	}
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", list, "-o", bin, "./"+rows[0].Package)
	out, err := cmd.CombinedOutput()
	if s := cmd.ProcessState; s != nil {
		cpu = s.UserTime() + s.SystemTime()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: the breaks do not build together, and are played one by one: %v\n%s", rows[0].Package, err, out)
		return "", make([]bool, len(rows)), cpu
	}
	return bin, in, cpu
}

// write puts a file's text, and the reading of the choice beside it, into the overlay.
func write(dir, name, file, text string, replace map[string]string) error {
	at, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	pkg, _, _ := strings.Cut(text[strings.Index("\n"+text, "\npackage ")+len("package "):], "\n")
	ours := filepath.Join(filepath.Dir(at), "zz_mutants_of_onceq.go")
	replace[at], replace[ours] = filepath.Join(dir, name+".go"), filepath.Join(dir, name+"_choice.go")
	chosen := "package " + pkg + "\n\nimport \"os\"\n\nvar mutantOfOnceq = os.Getenv(\"" + choice + "\")\n"
	return errors.Join(os.WriteFile(replace[at], []byte(text), 0o600), os.WriteFile(replace[ours], []byte(chosen), 0o600))
}

// withAll returns a file with the breaks of these rows in it, and which of the rows they are.
func withAll(file string, rows []row, of []int) (text string, put []int, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", nil, err
	}
	text = string(b)
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, b, 0)
	if err != nil {
		return "", nil, err
	}
	breaks := map[*ast.FuncDecl][]int{}
	for _, i := range of {
		from := strings.Index(text, rows[i].Text)
		if from < 0 || strings.Count(text, rows[i].Text) != 1 {
			continue // playing it alone says so
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || !canDouble(f) {
				continue
			}
			if begin, end := offset(set, f.Body.Lbrace), offset(set, f.Body.Rbrace); begin < from && from+len(rows[i].Text) <= end {
				breaks[f] = append(breaks[f], i)
				put = append(put, i)
			}
		}
	}
	funcs := slices.SortedFunc(maps.Keys(breaks), func(a, b *ast.FuncDecl) int { return int(b.Pos() - a.Pos()) })
	var copies strings.Builder
	for _, f := range funcs { // from the last one on, so that the places before it stay
		name, end := offset(set, f.Name.Pos()), offset(set, f.Body.Rbrace)+1
		whole := text[offset(set, f.Pos()):end]
		cut := name - offset(set, f.Pos())
		call := func(suffix string) string { return callOf(f, suffix) }
		double := func(suffix, of string) {
			copies.WriteString("\n" + of[:cut] + f.Name.Name + suffix + of[cut+len(f.Name.Name):] + "\n")
		}
		var body strings.Builder
		body.WriteString("{\n\tswitch mutantOfOnceq {\n")
		for _, i := range breaks[f] {
			suffix := fmt.Sprintf("__%d", i)
			double(suffix, strings.Replace(whole, rows[i].Text, rows[i].With, 1))
			fmt.Fprintf(&body, "\tcase \"%d\":\n\t\t%s\n", i, call(suffix))
		}
		double("__whole", whole)
		fmt.Fprintf(&body, "\tdefault:\n\t\t%s\n\t}\n}", call("__whole"))
		text = text[:offset(set, f.Pos())] + named(set, text, f) + body.String() + text[end:]
	}
	return text + copies.String(), put, nil
}

// canDouble reports whether a function does the same when another one calls it in its place.
func canDouble(f *ast.FuncDecl) bool {
	if f.Recv == nil && (f.Name.Name == "init" || f.Name.Name == "main") {
		return false
	}
	can := true
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false
		}
		if c, ok := n.(*ast.CallExpr); ok {
			if id, ok := c.Fun.(*ast.Ident); ok && id.Name == "recover" {
				can = false // it works in what is deferred alone
			}
		}
		return true
	})
	return can
}

func offset(set *token.FileSet, p token.Pos) int { return set.Position(p).Offset }

// named is a function's head with a name for each of its parameters.
func named(set *token.FileSet, text string, f *ast.FuncDecl) string {
	at := func(p token.Pos) string { return text[offset(set, p):] }
	var b strings.Builder
	b.WriteString("func ")
	if f.Recv != nil {
		t := f.Recv.List[0].Type
		b.WriteString("(self__ " + at(t.Pos())[:t.End()-t.Pos()] + ") ")
	}
	b.WriteString(f.Name.Name)
	if p := f.Type.TypeParams; p != nil {
		b.WriteString(at(p.Pos())[:p.End()-p.Pos()])
	}
	b.WriteString("(")
	n := 0
	for _, p := range f.Type.Params.List {
		for range max(1, len(p.Names)) {
			fmt.Fprintf(&b, "p%d__ %s, ", n, at(p.Type.Pos())[:p.Type.End()-p.Type.Pos()])
			n++
		}
	}
	b.WriteString(") ")
	if r := f.Type.Results; r != nil {
		b.WriteString(at(r.Pos())[:r.End()-r.Pos()] + " ")
	}
	return b.String()
}

// callOf is the call of a function's copy with the parameters that named has given it.
func callOf(f *ast.FuncDecl, suffix string) string {
	var b strings.Builder
	if f.Type.Results != nil {
		b.WriteString("return ")
	}
	if f.Recv != nil {
		b.WriteString("self__.")
	}
	b.WriteString(f.Name.Name + suffix)
	if p := f.Type.TypeParams; p != nil {
		var names []string
		for _, l := range p.List {
			for _, n := range l.Names {
				names = append(names, n.Name)
			}
		}
		b.WriteString("[" + strings.Join(names, ", ") + "]")
	}
	b.WriteString("(")
	n := 0
	for _, p := range f.Type.Params.List {
		for range max(1, len(p.Names)) {
			fmt.Fprintf(&b, "p%d__", n)
			if _, ok := p.Type.(*ast.Ellipsis); ok {
				b.WriteString("...")
			}
			b.WriteString(", ")
			n++
		}
	}
	b.WriteString(")")
	return b.String()
}
