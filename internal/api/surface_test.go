package api

import (
	"fmt"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// surface prints what a user of p can name: a line for each constant with its value, variable,
// function, type, exported field and method. A package that exports nothing has no surface.
func surface(p *types.Package) string {
	s := &printer{pkg: p}
	for _, name := range p.Scope().Names() {
		if token.IsExported(name) {
			s.object(p.Scope().Lookup(name))
		}
	}
	if len(s.lines) == 0 {
		return ""
	}
	slices.Sort(s.lines)
	return fmt.Sprintf("package %s // import %q\n\n%s\n", p.Name(), p.Path(), strings.Join(slices.Compact(s.lines), "\n"))
}

// printer prints types in a form of its own, because that of go/types may change with Go's version.
type printer struct {
	pkg   *types.Package
	lines []string
}

func (s *printer) add(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *printer) object(o types.Object) {
	switch o := o.(type) {
	case *types.Const:
		s.add("const %s %s = %s", o.Name(), s.typ(o.Type()), o.Val().ExactString())
	case *types.Var:
		s.add("var %s %s", o.Name(), s.typ(o.Type()))
	case *types.Func:
		sig := o.Signature()
		s.add("func %s%s%s", o.Name(), s.params(sig.TypeParams()), s.signature(sig))
	case *types.TypeName:
		s.declared(o)
	}
}

func (s *printer) declared(o *types.TypeName) {
	if alias, ok := o.Type().(*types.Alias); ok && o.IsAlias() {
		s.add("type %s%s = %s", o.Name(), s.params(alias.TypeParams()), s.typ(alias.Rhs()))
		return
	}
	named, ok := o.Type().(*types.Named)
	if !ok {
		s.add("type %s = %s", o.Name(), s.typ(o.Type()))
		return
	}
	head := "type " + o.Name() + s.params(named.TypeParams())
	switch u := named.Underlying().(type) {
	case *types.Struct:
		s.add("%s struct%s", head, hidden(u))
		s.fields("type "+o.Name()+" struct", u, map[*types.Struct]bool{})
	case *types.Interface:
		s.add("%s interface", head)
		s.interfaceLines("type "+o.Name()+" interface", u)
	default:
		s.add("%s %s", head, s.typ(u))
	}
	s.methods(o.Name(), named, map[*types.Named]bool{})
}

// hidden says whether a struct has unexported fields: where it has, nobody outside of the package
// writes it without the names of its fields.
func hidden(u *types.Struct) string {
	for f := range u.Fields() {
		if !f.Exported() {
			return ", with unexported fields"
		}
	}
	return ""
}

// fields prints exported fields, and those of unexported structs that are embedded, because users
// reach these as well.
func (s *printer) fields(head string, u *types.Struct, seen map[*types.Struct]bool) {
	if seen[u] {
		return
	}
	seen[u] = true
	for f := range u.Fields() {
		switch {
		case f.Exported() && f.Embedded():
			s.add("%s, embedded %s", head, s.typ(f.Type()))
		case f.Exported():
			s.add("%s, %s %s", head, f.Name(), s.typ(f.Type()))
		case f.Embedded():
			if inner, ok := pointed(f.Type()).Underlying().(*types.Struct); ok {
				s.fields(head, inner, seen)
			}
		}
	}
}

func (s *printer) interfaceLines(head string, u *types.Interface) {
	for e := range u.EmbeddedTypes() {
		s.add("%s, embedded %s", head, s.typ(e))
	}
	for m := range u.ExplicitMethods() {
		if m.Exported() {
			s.add("%s, %s%s", head, m.Name(), s.signature(m.Signature()))
		} else {
			s.add("%s, with unexported methods", head)
		}
	}
}

// methods prints the exported methods of a type under name, and those of the unexported types that
// it embeds.
func (s *printer) methods(name string, named *types.Named, seen map[*types.Named]bool) {
	if seen[named] {
		return
	}
	seen[named] = true
	for m := range named.Methods() {
		if !m.Exported() {
			continue
		}
		receiver := name
		if _, ok := m.Signature().Recv().Type().(*types.Pointer); ok {
			receiver = "*" + name
		}
		s.add("method (%s) %s%s", receiver, m.Name(), s.signature(m.Signature()))
	}
	u, ok := named.Underlying().(*types.Struct)
	if !ok {
		return
	}
	for f := range u.Fields() {
		if inner, ok := pointed(f.Type()).(*types.Named); ok && f.Embedded() && !f.Exported() {
			s.methods(name, inner, seen)
		}
	}
}

func pointed(t types.Type) types.Type {
	t = types.Unalias(t)
	if p, ok := t.(*types.Pointer); ok {
		return types.Unalias(p.Elem())
	}
	return t
}

func (s *printer) params(list *types.TypeParamList) string {
	if list.Len() == 0 {
		return ""
	}
	var all []string
	for p := range list.TypeParams() {
		all = append(all, p.Obj().Name()+" "+s.typ(p.Constraint()))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// signature is what follows a function's name: types alone, without names.
func (s *printer) signature(sig *types.Signature) string {
	in := s.tuple(sig.Params())
	if sig.Variadic() {
		last := sig.Params().At(sig.Params().Len() - 1).Type().(*types.Slice)
		in[len(in)-1] = "..." + s.typ(last.Elem())
	}
	out := s.tuple(sig.Results())
	text := "(" + strings.Join(in, ", ") + ")"
	switch len(out) {
	case 0:
		return text
	case 1:
		return text + " " + out[0]
	}
	return text + " (" + strings.Join(out, ", ") + ")"
}

func (s *printer) tuple(t *types.Tuple) []string {
	var all []string
	for v := range t.Variables() {
		all = append(all, s.typ(v.Type()))
	}
	return all
}

func (s *printer) typ(t types.Type) string {
	switch t := t.(type) {
	case *types.Basic:
		return t.Name()
	case *types.Alias:
		return s.name(t.Obj(), t.TypeArgs())
	case *types.Named:
		return s.name(t.Obj(), t.TypeArgs())
	case *types.TypeParam:
		return t.Obj().Name()
	case *types.Pointer:
		return "*" + s.typ(t.Elem())
	case *types.Slice:
		return "[]" + s.typ(t.Elem())
	case *types.Array:
		return fmt.Sprintf("[%d]%s", t.Len(), s.typ(t.Elem()))
	case *types.Map:
		return "map[" + s.typ(t.Key()) + "]" + s.typ(t.Elem())
	case *types.Chan:
		return [...]string{"chan ", "chan<- ", "<-chan "}[t.Dir()] + s.typ(t.Elem())
	case *types.Signature:
		return "func" + s.signature(t)
	case *types.Union:
		var all []string
		for term := range t.Terms() {
			tilde := ""
			if term.Tilde() {
				tilde = "~"
			}
			all = append(all, tilde+s.typ(term.Type()))
		}
		return strings.Join(all, " | ")
	case *types.Struct:
		return "struct{" + s.inline(func(in *printer) { in.fields("", t, map[*types.Struct]bool{}) }) + hidden(t) + "}"
	case *types.Interface:
		if t.NumEmbeddeds() == 1 && t.NumExplicitMethods() == 0 {
			return s.typ(t.EmbeddedType(0)) // a constraint that is written in place
		}
		if t.Empty() {
			return "any"
		}
		return "interface{" + s.inline(func(in *printer) { in.interfaceLines("", t) }) + "}"
	}
	return fmt.Sprintf("unknown type %T", t)
}

// inline prints the lines of a type that has no name between braces.
func (s *printer) inline(f func(*printer)) string {
	in := &printer{pkg: s.pkg}
	f(in)
	for i, line := range in.lines {
		in.lines[i] = strings.TrimPrefix(line, ", ")
	}
	return strings.Join(in.lines, "; ")
}

func (s *printer) name(o *types.TypeName, args *types.TypeList) string {
	text := o.Name()
	if p := o.Pkg(); p != nil && p != s.pkg {
		text = p.Name() + "." + text
	}
	if args.Len() == 0 {
		return text
	}
	var all []string
	for t := range args.Types() {
		all = append(all, s.typ(t))
	}
	return text + "[" + strings.Join(all, ", ") + "]"
}
