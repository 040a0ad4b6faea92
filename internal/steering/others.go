package steering

import (
	"fmt"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/controlstore"
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
// none that is known.
func apart(own, other *control.WorkerStatus) string {
	t, a, b, ok := controlstore.Apart(own, other)
	if !ok {
		return ""
	}
	return fmt.Sprintf("the keys of type %q in the scope %q, and this one in %q (JobOptions.Was, Mux.OneScope)", t, b, a)
}
