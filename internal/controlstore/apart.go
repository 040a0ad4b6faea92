package controlstore

import (
	"maps"
	"slices"

	"github.com/onceq/onceq/control"
)

// Apart is a type of jobs that two workers of one Scope have the keys of in different scopes, and
// these; ok is false where there is none that is known. Who has no types has one handler for all
// jobs. A type that takes its place has its scope, and then the other types are new.
func Apart(own, other *control.WorkerStatus) (typ, ownScope, otherScope string, ok bool) {
	if own.Partial || other.Partial || slices.Equal(own.Types, other.Types) && maps.Equal(own.Scopes, other.Scopes) && own.Scope == other.Scope {
		return "", "", "", false
	}
	types := []string{""}
	switch single, mux := own, other; {
	case len(own.Types) > 0 && len(other.Types) > 0:
		types = append(types, own.Types...) // messages without one are of a type, too
	case len(own.Types) == len(other.Types):
	default:
		if len(own.Types) > 0 {
			single, mux = other, own
		}
		types = mux.Types
		if slices.ContainsFunc(types, func(t string) bool { return ScopeOf(mux, t) == ScopeOf(single, "") }) {
			return "", "", "", false
		}
	}
	for _, t := range types {
		if a, b := ScopeOf(own, t), ScopeOf(other, t); a != b && a != "" && b != "" {
			return t, a, b, true
		}
	}
	return "", "", "", false
}

// ScopeOf is where a worker has the keys of a type; empty = it does not know the type.
func ScopeOf(c *control.WorkerStatus, typ string) string {
	if len(c.Types) == 0 {
		typ = ""
	}
	switch own, ok := c.Scopes[typ]; {
	case ok:
		return own
	case typ == "" && len(c.Types) == 0:
		return c.Scope
	case slices.Contains(c.Types, typ):
		return c.Scope + ":" + typ
	}
	return ""
}
