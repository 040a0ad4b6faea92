package steering

import (
	"fmt"
	"slices"
	"time"

	"github.com/onceq/onceq/control"
)

// This file owns what makes two workers of a queue unlike. It keeps nothing.

// unlike says in what the settings of another worker differ from the card of this one; empty = in
// nothing. keys reports whether that has jobs done twice. A card of an earlier version does not say
// all.
func unlike(own, other *control.WorkerStatus) (text string, keys bool) {
	if other == nil {
		return "", false
	}
	switch text = apart(own, other); {
	case own.Scope != other.Scope:
		return fmt.Sprintf("Scope %q, and this one %q", other.Scope, own.Scope), true
	case text != "":
		return text, true
	case other.Retention == 0:
	case own.Retention.Truncate(time.Second) != other.Retention:
		return fmt.Sprintf("Retention %v, and this one %v", other.Retention, own.Retention), false
	case own.Interrupted != other.Interrupted:
		return fmt.Sprintf("Defaults.Interrupted %q, and this one %q", other.Interrupted, own.Interrupted), false
	}
	return "", false
}

// apart says of which jobs two workers of one Scope have the keys in different scopes; empty = of
// none that is known. Who has no types has one handler for all jobs. A type that takes its place
// has its scope, and then the other types are new.
func apart(own, other *control.WorkerStatus) string {
	if own.Partial || other.Partial {
		return ""
	}
	types, told := []string{""}, ""
	switch single, mux := own, other; {
	case len(own.Types) > 0 && len(other.Types) > 0:
		types = append(types, own.Types...) // messages without one are of a type, too
	case len(own.Types) == len(other.Types):
	default:
		if len(own.Types) > 0 {
			single, mux = other, own
		}
		types = mux.Types
		if slices.ContainsFunc(types, func(t string) bool { return scopeOf(mux, t) == scopeOf(single, "") }) {
			return ""
		}
	}
	for _, t := range types {
		a, b := scopeOf(own, t), scopeOf(other, t)
		if a != b && a != "" && b != "" && told == "" {
			told = fmt.Sprintf("the keys of type %q in the scope %q, and this one in %q (JobOptions.Was, Mux.OneScope)", t, b, a)
		}
	}
	return told
}

// scopeOf is where a worker has the keys of a type; empty = it does not know the type.
func scopeOf(c *control.WorkerStatus, typ string) string {
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
