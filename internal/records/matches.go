package records

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/onceq/onceq/dedupe"
)

// Matches reports whether List gives r to who asks with q, apart from the order, After
// and the limit.
func Matches(r *dedupe.Record, q *dedupe.Query) bool {
	return (q.Scope == "" || r.Key.Scope == q.Scope) &&
		strings.HasPrefix(r.Key.Key, q.Prefix) &&
		(q.Status == 0 || r.Status == q.Status) &&
		(q.Before.IsZero() || r.Updated.Before(q.Before)) &&
		(q.LeaseBefore.IsZero() || r.Status == dedupe.Claimed && r.LeaseUntil.Before(q.LeaseBefore))
}

// CheckAfter refuses an After that is no key: a database would refuse its text by an error of its
// own.
func CheckAfter(q *dedupe.Query) error {
	if q.After == (dedupe.Key{}) {
		return nil
	}
	if err := q.After.Validate(); err != nil {
		return fmt.Errorf("Query.After: %w", err)
	}
	return nil
}

// Compare is the order of List: by scope, then key, byte by byte.
func Compare(a, b dedupe.Key) int {
	return cmp.Or(strings.Compare(a.Scope, b.Scope), strings.Compare(a.Key, b.Key))
}

// Behind sorts the keys that q selects, and leaves out those up to its After.
func Behind(q *dedupe.Query, keys []dedupe.Key) []dedupe.Key {
	slices.SortFunc(keys, Compare)
	n, found := slices.BinarySearchFunc(keys, q.After, Compare)
	if found {
		n++
	}
	return keys[n:]
}

// ReadMatching is the second part of a List whose first found the keys of what q selects, in order:
// it reads n records at a time with get, when their turn comes, and yields those that still match.
func ReadMatching(q *dedupe.Query, keys []dedupe.Key, n int, get func([]dedupe.Key) ([]*dedupe.Record, error), yield func(*dedupe.Record, error) bool) {
	left := q.Limit
	for len(keys) > 0 {
		n := min(len(keys), n)
		if q.Limit > 0 {
			n = min(n, left)
		}
		var part []dedupe.Key
		part, keys = keys[:n], keys[n:]
		rs, err := get(part)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, r := range rs {
			if r == nil || !Matches(r, q) {
				continue
			}
			if !yield(r, nil) {
				return
			}
			if left--; left == 0 {
				return
			}
		}
	}
}
