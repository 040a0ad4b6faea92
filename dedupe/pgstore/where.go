package pgstore

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/onceq/onceq/dedupe"
)

// This file owns what a [dedupe.Query] is in SQL. List and Count build it anew for each statement.

// possible reports whether there can be a key of the scope; empty selects all.
func possible(scope string) bool {
	return scope == "" || (dedupe.Key{Scope: scope, Key: "any"}).Validate() == nil
}

// conditions are those of a statement, with its arguments.
type conditions struct {
	text strings.Builder
	args []any
}

// add adds a condition in which each ? stands for a value.
func (w *conditions) add(cond string, values ...any) {
	for _, v := range values {
		w.args = append(w.args, v)
		cond = strings.Replace(cond, "?", fmt.Sprintf("$%d", len(w.args)), 1)
	}
	if w.text.Len() > 0 {
		w.text.WriteString(" AND ")
	}
	w.text.WriteString(cond)
}

// where is what q selects, apart from its limit. The status is a part of the statement and no
// argument: only so the planner can see that the index of that status will do.
func where(q *dedupe.Query) *conditions {
	w := new(conditions)
	w.add("(t.expires IS NULL OR t.expires {>} pg_catalog.clock_timestamp())")
	if q.Scope != "" {
		w.add("t.scope {=} ?::pg_catalog.text", q.Scope)
	}
	w.addPrefix(q.Prefix)
	if s := q.Status; s >= dedupe.Claimed && s <= dedupe.Parked {
		w.add("t.status {=} '" + s.String() + "'")
	} else if s != 0 {
		w.add("false")
	}
	if !q.Before.IsZero() {
		w.add("t.updated {<} ?::pg_catalog.timestamptz", q.Before)
	}
	if !q.LeaseBefore.IsZero() {
		w.add("t.status {=} 'claimed' AND t.lease_until {<} ?::pg_catalog.timestamptz", q.LeaseBefore)
	}
	return w
}

// addPrefix compares byte by byte. A prefix that is no text, because it ends in half a character
// for instance, can only be compared as bytes. Its part that is text narrows the search in the
// index.
func (w *conditions) addPrefix(prefix string) {
	text := prefix
	for i, r := range prefix {
		if _, size := utf8.DecodeRuneInString(prefix[i:]); r == 0 || r == utf8.RuneError && size == 1 {
			text = prefix[:i]
			break
		}
	}
	if text != prefix {
		w.add("pg_catalog.substr(pg_catalog.convert_to(t.key, 'UTF8'), 1, ?::integer) {=} ?::pg_catalog.bytea", len(prefix), []byte(prefix))
	}
	if text == "" {
		return
	}
	w.add("t.key {>=} ?::pg_catalog.text", text)
	if end := follower(text); end != "" {
		w.add("t.key {<} ?::pg_catalog.text", end)
	}
}

// follower is the least text above all that begin with s. It is empty if there is none.
func follower(s string) string {
	for s != "" {
		r, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
		switch r {
		case utf8.MaxRune: // none is above it
		case 0xd7ff: // the surrogates behind it are no characters
			return s + "\ue000"
		default:
			return s + string(r+1)
		}
	}
	return ""
}
