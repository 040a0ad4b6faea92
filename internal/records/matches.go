package records

import (
	"strings"

	"github.com/onceq/onceq/dedupe"
)

// Matches reports whether List gives r to who asks with q, apart from the order and the limit.
func Matches(r *dedupe.Record, q *dedupe.Query) bool {
	return (q.Scope == "" || r.Key.Scope == q.Scope) &&
		strings.HasPrefix(r.Key.Key, q.Prefix) &&
		(q.Status == 0 || r.Status == q.Status) &&
		(q.Before.IsZero() || r.Updated.Before(q.Before)) &&
		(q.LeaseBefore.IsZero() || r.Status == dedupe.Claimed && r.LeaseUntil.Before(q.LeaseBefore))
}
