// Package instant marks what answers its calls at once: it does no I/O, and waits for nobody. Such
// a call may be made where one that hangs would hold up somebody.
package instant

// Mark is embedded, under a name that is not exported, by what is instant.
type Mark struct{ of any }

// Of is the mark of v, a pointer.
func Of(v any) Mark { return Mark{v} }

func (m Mark) marked() any { return m.of }

// Is reports whether v itself is marked. What wraps or embeds something marked is not, because
// nobody knows what it does besides.
func Is(v any) (is bool) {
	m, ok := v.(interface{ marked() any })
	if !ok {
		return false
	}
	defer func() { _ = recover() }() // v embeds a pointer that is nil: it is opened later
	return m.marked() == v
}
