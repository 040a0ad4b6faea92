package arch

import (
	"fmt"
	"slices"
	"strings"
)

// layerOf returns the first layer that fits, nil when none does.
func layerOf(dir string) *layer {
	i := slices.IndexFunc(layers, func(l layer) bool { return match(l.pkgs, dir) })
	if i < 0 {
		return nil
	}
	return &layers[i]
}

// checkLayers reports the packages that reach what their layer may not.
func checkLayers(t *tree) []string {
	var bad []string
	for _, p := range t.own() {
		l := layerOf(p.dir)
		if l == nil {
			bad = append(bad, p.dir+": belongs to no layer: add it to the table in internal/arch")
			continue
		}
		may := slices.Concat([]string{p.dir, "internal/..."}, l.may)
		t.walk(p, false, func(imp, chain string) {
			if t.isLocal(imp) && !matches(may, imp) || !t.isLocal(imp) && !matches(l.others, imp) {
				bad = append(bad, fmt.Sprintf("%s: must not import %s (%s): %s", p.dir, imp, chain, l.why))
			}
		})
		others := slices.Concat(l.others, l.testOthers)
		t.walk(p, true, func(imp, chain string) {
			if !t.isLocal(imp) && !matches(others, imp) {
				bad = append(bad, fmt.Sprintf("%s: its tests must not import %s (%s): %s", p.dir, imp, chain, l.why))
			}
		})
	}
	return bad
}

func (t *tree) isLocal(short string) bool { return short == "." || t.pkgs[short] != nil }

// walk calls visit once for each package beyond the standard library that p's code reaches,
// or its tests, with the chain of imports that leads there.
func (t *tree) walk(p *pkg, test bool, visit func(imp, chain string)) {
	seen := map[string]bool{}
	var from func(p *pkg, test bool, chain []string)
	from = func(p *pkg, test bool, chain []string) {
		for _, imp := range t.importsOf(p, test) {
			if seen[imp] || t.std(imp) {
				continue
			}
			seen[imp] = true
			chain := append(slices.Clone(chain), imp)
			visit(imp, strings.Join(chain, " -> "))
			if q := t.pkgs[imp]; q != nil {
				from(q, false, chain)
			}
		}
	}
	from(p, test, []string{p.dir})
}

// checkConfined reports imports outside the packages they are confined to.
func checkConfined(t *tree) []string {
	var bad []string
	for _, p := range t.own() {
		for _, f := range p.files {
			for imp, name := range f.imports {
				imp = t.short(imp)
				for _, c := range confinements {
					if c.code && f.test {
						continue
					}
					if matches(c.imports, imp) && !matches(c.only, p.dir) {
						bad = append(bad, fmt.Sprintf("%s: must not import %s: %s", f.name, imp, c.why))
					}
				}
				if name == "." {
					bad = append(bad, fmt.Sprintf("%s: imports %s under the name \".\": readers and these tests lose sight of its names", f.name, imp))
				}
			}
		}
	}
	return bad
}

// idle lists the patterns that fit no package: a wall that guards nothing.
func idle(t *tree) []string {
	patterns := slices.Concat(core, programs, testSupport, undocumented)
	for _, l := range layers {
		patterns = append(patterns, l.pkgs)
	}
	for _, c := range confinements {
		patterns = append(patterns, c.only...)
	}
	for _, b := range bans {
		patterns = slices.Concat(patterns, b.pkgs, b.except)
	}
	slices.Sort(patterns)
	return slices.DeleteFunc(slices.Compact(patterns), func(pattern string) bool {
		return slices.ContainsFunc(t.own(), func(p *pkg) bool { return match(pattern, p.dir) })
	})
}
