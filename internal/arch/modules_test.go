package arch

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// checkModules reports go.mod files that hold what the table of modules does not allow, and
// packages that use another module than theirs may.
func checkModules(t *tree) []string {
	var bad []string
	report := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	for _, dir := range slices.Sorted(maps.Keys(t.mods)) {
		file := path.Join(dir, "go.mod")
		m := ruleOf(dir)
		if m == nil {
			report("%s: add the module to the table in internal/arch", file)
			continue
		}
		if name := path.Join(t.module, dir); !strings.HasPrefix(t.mods[dir], "module "+name+"\n") && t.mods[dir] != "module "+name {
			report("%s: the module's name is not %s", file, name)
		}
		for _, d := range directives(t.mods[dir]) {
			short := t.short(d.path)
			_, ours := t.local(d.path)
			switch {
			case d.verb == "require" && ours && !slices.Contains(m.uses, short):
				report("%s: must not require %s: %s", file, short, m.why)
			case d.verb == "require" && !ours && !mayRequire(m, d):
				report("%s: must not require %s: %s", file, d.path, m.why)
			case d.verb == "replace" && !ours:
				report("%s: replaces %s: those who take the module would have another", file, d.path)
			case d.verb == "replace" && path.Join(dir, d.to) != short:
				report("%s: replaces %s => %s, which is not %s", file, d.path, d.to, short)
			}
		}
	}
	for _, m := range modules {
		if _, ok := t.mods[m.dir]; !ok {
			report("%s: the table in internal/arch has a module that is not there", m.dir)
		}
	}
	for _, p := range t.pkgs {
		m := ruleOf(p.module)
		if m == nil {
			continue
		}
		for _, imp := range slices.Concat(t.importsOf(p, false), t.importsOf(p, true)) {
			q := t.pkgs[imp]
			if q != nil && q.module != p.module && !slices.Contains(m.uses, q.module) {
				report("%s: belongs to the module %s, which must not use %s: %s", p.dir, p.module, q.module, m.why)
			}
		}
	}
	return bad
}

// ruleOf returns what the table says of a module. A command's module may use all that commands may.
func ruleOf(dir string) *module {
	i := slices.IndexFunc(modules, func(m module) bool { return m.dir == dir })
	if i >= 0 {
		return &modules[i]
	}
	if strings.HasPrefix(dir, "cmd/") {
		return &module{dir: dir, uses: []string{"."}, why: "who installs a command takes nothing that starts servers"}
	}
	return nil
}

// mayRequire reports whether the module may require another's: what one of ours brings, the
// others have by way of it at most.
func mayRequire(m *module, d directive) bool {
	for _, other := range modules {
		if other.dir != m.dir && matches(other.brings, d.path) {
			return d.indirect && slices.Contains(m.uses, other.dir)
		}
	}
	return true
}

// A directive is a line of a go.mod: "require path version" or "replace path => to".
type directive struct {
	verb, path, to string
	indirect       bool
}

// directives returns the require and replace lines of a go.mod, in blocks and alone.
func directives(mod string) (all []directive) {
	block := ""
	for line := range strings.Lines(mod) {
		code, comment, _ := strings.Cut(line, "//")
		words := strings.Fields(code)
		switch {
		case len(words) == 0:
			continue
		case len(words) == 2 && words[1] == "(":
			block = words[0]
			continue
		case words[0] == ")":
			block = ""
			continue
		case block != "":
			words = append([]string{block}, words...)
		}
		d := directive{verb: words[0], indirect: strings.TrimSpace(comment) == "indirect"}
		if d.verb == "require" || d.verb == "replace" {
			d.path = words[1]
			if i := slices.Index(words, "=>"); i > 0 {
				d.to = words[i+1]
			}
			all = append(all, d)
		}
	}
	return all
}
