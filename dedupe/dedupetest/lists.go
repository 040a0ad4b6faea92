package dedupetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// This file has the cases of List. Run calls each in a subtest with a store of its own.

func listCases() []testCase {
	return []testCase{
		{
			Name: "list-in-order",
			Rule: "List goes through all records in the order of scope, then key, byte by byte, each once, however many there are",
			Run:  listInOrder,
		},
		{
			Name: "list-filters",
			Rule: "List selects by scope, prefix, status and time of the last change, all at once",
			Run:  listFilters,
		},
		{
			Name: "list-dead-leases",
			Rule: "List with LeaseBefore gives claimed records alone, those whose lease ended before",
			Run:  listDeadLeases,
		},
		{
			Name: "list-prefix-is-literal",
			Rule: "a prefix is compared byte by byte: wildcards and case mean nothing",
			Run:  listPrefix,
		},
		{
			Name: "list-limit-and-break",
			Rule: "List stops at its limit and when its caller does; neither harms later calls",
			Run:  listLimit,
		},
		{
			Name: "list-pages",
			Rule: "List with After gives what comes behind that key alone: page by page each record once, also where the key itself is gone; an After that is no key is ErrBadKey",
			Run:  listPages,
		},
		{
			Name: "list-and-change",
			Rule: "the caller may use the store while it lists; what is removed meanwhile is seen at most once, and so is what comes",
			Run:  listAndChange,
		},
		{
			Name: "list-cancelled",
			Rule: "when the context has ended, List gives its error once and ends",
			Run:  listCancelled,
		},
	}
}

// list collects what q selects, and compares each record with the model's.
func (e *env) list(q dedupe.Query) []dedupe.Key {
	e.Helper()
	var ks []dedupe.Key
	for r, err := range e.s.List(e.Context(), q) {
		e.OK(err, "List")
		if r == nil {
			e.Fatalf("List gave neither a record nor an error")
		}
		ks = append(ks, r.Key)
		if want := e.m.live(r.Key); want == nil {
			e.Errorf("List gave %s of %s, which is not there", brief(r), r.Key)
		} else {
			e.equal("the record that List gave", r, want)
		}
	}
	return ks
}

func compareKeys(a, b dedupe.Key) int {
	return cmp.Or(strings.Compare(a.Scope, b.Scope), strings.Compare(a.Key, b.Key))
}

// want is what q must select, by the model.
func (e *env) want(q dedupe.Query) []dedupe.Key {
	var ks []dedupe.Key
	for k := range e.m.records {
		r := e.m.live(k)
		if r == nil || q.Scope != "" && k.Scope != q.Scope || !strings.HasPrefix(k.Key, q.Prefix) || compareKeys(k, q.After) <= 0 ||
			q.Status != 0 && r.Status != q.Status || !q.Before.IsZero() && !r.Updated.Before(q.Before) ||
			!q.LeaseBefore.IsZero() && (r.Status != dedupe.Claimed || !r.LeaseUntil.Before(q.LeaseBefore)) {
			continue
		}
		ks = append(ks, k)
	}
	slices.SortFunc(ks, compareKeys)
	if q.Limit > 0 {
		ks = ks[:min(q.Limit, len(ks))]
	}
	return ks
}

func (e *env) compareList(q dedupe.Query) {
	e.Helper()
	got, want := e.list(q), e.want(q)
	if !slices.Equal(got, want) {
		e.Errorf("List of %s gave %s, want %s", describe(q), names(got), names(want))
	}
}

func describe(q dedupe.Query) string {
	return fmt.Sprintf("scope %q, prefix %q, status %v, before given %v, lease before given %v, after %q, limit %d",
		q.Scope, q.Prefix, q.Status, !q.Before.IsZero(), !q.LeaseBefore.IsZero(), q.After, q.Limit)
}

func names(ks []dedupe.Key) string {
	const most = 30
	s := fmt.Sprintf("%q", ks[:min(len(ks), most)])
	if len(ks) > most {
		s += "…"
	}
	return fmt.Sprintf("%d: %s", len(ks), s)
}

// fill claims keys, in batches that the store allows.
func (e *env) fill(ks []dedupe.Key) {
	e.Helper()
	for part := range slices.Chunk(slices.SortedFunc(slices.Values(ks), compareKeys), min(e.l.MaxBatch, 100)) {
		qs := make([]dedupe.ClaimRequest, len(part))
		for i, k := range part {
			qs[i] = e.request(k)
		}
		for i, c := range e.claimAll(qs) {
			e.won(part[i], &qs[i], &c)
		}
	}
}

func listInOrder(e *env) {
	e.compareList(dedupe.Query{})
	var ks []dedupe.Key
	for _, scope := range []string{"b", "a", "B", "ab", "a b", "é", "z", "🚀"} {
		for _, k := range []string{"b", "a", "B", "aa", "a-b", "a b", "10", "9", "é", "e\u0301", "z", "🚀", "\ufffd", "_", "-"} {
			ks = append(ks, dedupe.Key{Scope: scope, Key: k})
		}
	}
	// More than a page of any store.
	for i := range 1200 {
		ks = append(ks, dedupe.Key{Scope: "many", Key: fmt.Sprintf("k%d", i)})
	}
	e.fill(ks)
	e.compareList(dedupe.Query{})
	e.compareList(dedupe.Query{Scope: "a"})
	e.compareList(dedupe.Query{Scope: "many"})
	e.compareList(dedupe.Query{Scope: "none"})
	e.compareList(dedupe.Query{Prefix: "a"})
}

// mix makes records of every status in two scopes, half of them two hours old.
func (e *env) mix() {
	e.Helper()
	var old []dedupe.Key
	for _, age := range []string{"old", "new"} {
		for _, scope := range []string{"s1", "s2"} {
			for _, to := range []dedupe.Status{dedupe.Claimed, dedupe.Released, dedupe.Done, dedupe.Failed, dedupe.Parked} {
				k := dedupe.Key{Scope: scope, Key: fmt.Sprintf("%s-%v", age, to)}
				q := e.request(k)
				e.claim(q)
				if to != dedupe.Claimed {
					e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: to, Retain: retain})
				}
				if age == "old" {
					old = append(old, k)
				}
			}
		}
		if age == "old" {
			e.ageAll(old, 2*time.Hour)
		}
	}
}

// ageAll lets d go by once for all of ks.
func (e *env) ageAll(ks []dedupe.Key, d time.Duration) {
	e.Helper()
	if e.h.Virtual {
		ks = ks[:1]
	}
	for _, k := range ks {
		e.age(k, d)
	}
}

func listFilters(e *env) {
	e.mix()
	hourAgo := time.Now().Add(-time.Hour)
	for _, scope := range []string{"", "s1", "s", "s2"} {
		for _, prefix := range []string{"", "old", "new-d", "x"} {
			for s := dedupe.Status(0); s <= dedupe.Parked; s++ {
				for _, before := range []time.Time{{}, hourAgo, time.Now().Add(24 * time.Hour)} {
					e.compareList(dedupe.Query{Scope: scope, Prefix: prefix, Status: s, Before: before})
				}
			}
		}
	}
	e.compareList(dedupe.Query{Scope: "s1", Prefix: "old", Before: hourAgo, Limit: 2})
	e.compareList(dedupe.Query{Status: dedupe.Done, Limit: 3})
}

func listDeadLeases(e *env) {
	e.mix()
	now := time.Now()
	for _, before := range []time.Time{now.Add(-3 * time.Hour), now, now.Add(24 * time.Hour)} {
		for s := dedupe.Status(0); s <= dedupe.Parked; s++ {
			e.compareList(dedupe.Query{Status: s, LeaseBefore: before})
			e.compareList(dedupe.Query{Status: s, Scope: "s1", LeaseBefore: before, Before: now.Add(time.Hour)})
		}
	}
	if n := len(e.want(dedupe.Query{LeaseBefore: now})); n != 2 {
		e.Harnessf("%d leases are dead, want 2", n)
	}
}

func listPrefix(e *env) {
	texts := []string{
		"a", "A", "ab", "aB", "%", "%a", "_", "_a", "*", "*a", "?", "a%", "a_b", "axb", "a*", `\`, `\%`, `a\b`, "'", `"`, "[a]", "a[", "~", "^a",
		"é", "e", "e\u0301", "🚀", "🚀a", "\U0010ffff", "\U0010ffffa", "a\U0010ffff", "a\U0010ffffb", "\x7f", "a\x7f", " ", " a",
	}
	var ks []dedupe.Key
	for _, s := range texts {
		ks = append(ks, dedupe.Key{Scope: "p", Key: s}, dedupe.Key{Scope: "P", Key: s})
	}
	e.fill(ks)
	for _, s := range texts {
		e.compareList(dedupe.Query{Scope: "p", Prefix: s})
	}
	e.compareList(dedupe.Query{Prefix: "%"})
	e.compareList(dedupe.Query{Scope: "%"})
	e.compareList(dedupe.Query{Scope: "_"})
}

func listLimit(e *env) {
	e.mix()
	for _, limit := range []int{1, 2, 19, 20, 21, 1000} {
		e.compareList(dedupe.Query{Limit: limit})
	}
	// If a store held something after a break, one with few connections would run out of them.
	for range 30 {
		for _, err := range e.s.List(e.Context(), dedupe.Query{}) {
			e.OK(err, "List")
			break
		}
	}
	seq := e.s.List(e.Context(), dedupe.Query{Scope: "s1"})
	for range 2 {
		n := 0
		for _, err := range seq {
			e.OK(err, "List")
			n++
		}
		if n != 10 {
			e.Errorf("the same sequence, gone through twice, gave %d records, want 10 each time", n)
		}
	}
	k := key("after")
	q := e.request(k)
	e.claim(q)
	e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done})
}

func listPages(e *env) {
	e.mix()
	for _, q := range []dedupe.Query{{}, {Scope: "s1"}, {Prefix: "old"}, {Status: dedupe.Failed}, {Scope: "s2", Status: dedupe.Parked}, {Status: dedupe.Done, Prefix: "new"}} {
		for _, size := range []int{1, 3, 7} {
			whole := e.want(q)
			var paged []dedupe.Key
			for p := q; ; {
				p.Limit = size
				page := e.list(p)
				paged = append(paged, page...)
				if len(page) < size || len(paged) > len(whole) {
					break
				}
				p.After = page[len(page)-1]
			}
			if !slices.Equal(paged, whole) {
				e.Errorf("pages of %d of %s gave %s, want %s", size, describe(q), names(paged), names(whole))
			}
		}
	}
	for _, after := range []dedupe.Key{{Scope: "s1", Key: "nobody"}, {Scope: "s1", Key: "old-done"}, {Scope: "s11", Key: "a"}, {Scope: "s2", Key: "~"}, {Scope: "a", Key: "z"}, {Scope: "é", Key: "a"}} {
		e.compareList(dedupe.Query{After: after})
		e.compareList(dedupe.Query{After: after, Scope: "s2", Limit: 2})
		e.compareList(dedupe.Query{After: after, Status: dedupe.Released})
	}
	gone := dedupe.Key{Scope: "s1", Key: "new-failed"}
	e.forget(dedupe.Forgotten{Key: gone, Fence: e.m.live(gone).Fence})
	e.compareList(dedupe.Query{After: gone, Limit: 1})
	for _, bad := range []dedupe.Key{{Scope: "s1"}, {Key: "a"}, {Scope: "s\x00", Key: "a"}, {Scope: "s", Key: "\xff"}} {
		var err error
		for _, e := range e.s.List(e.Context(), dedupe.Query{After: bad}) {
			err = e
		}
		if !errors.Is(err, dedupe.ErrBadKey) {
			e.Errorf("List after %q gave %v, want ErrBadKey", bad, err)
		}
	}
}

func listAndChange(e *env) {
	e.mix()
	want := e.want(dedupe.Query{})
	seen := make(map[dedupe.Key]int)
	for r, err := range e.s.List(e.Context(), dedupe.Query{}) {
		e.OK(err, "List")
		if seen[r.Key]++; !slices.Contains(want, r.Key) {
			if seen[r.Key] > 1 {
				e.Fatalf("%s came while the list went on, and was seen twice", r.Key) // it may come for ever
			}
			continue
		}
		e.forget(dedupe.Forgotten{Key: r.Key, Fence: r.Fence, Force: true})
		// The list need not come to these records: one sorts before the place where it is, the
		// other one behind the last record that was there when it began.
		for _, scope := range []string{"s0", "s3"} {
			e.claim(e.request(dedupe.Key{Scope: scope, Key: r.Key.Scope + r.Key.Key}))
		}
	}
	for _, k := range want {
		if seen[k] != 1 {
			e.Errorf("%s was seen %d times, want once", k, seen[k])
		}
	}
	if n := len(e.list(dedupe.Query{Scope: "s1"})); n != 0 {
		e.Errorf("%d records are left", n)
	}
}

func listCancelled(e *env) {
	e.mix()
	ctx := e.Ended()
	errs := 0
	for r, err := range e.s.List(ctx, dedupe.Query{}) {
		switch {
		case errs > 0:
			e.Fatalf("List went on after its error with %s, %v", brief(r), err)
		case err != nil:
			errs++
		}
	}
	if errs == 0 {
		e.Errorf("List with a context that had ended gave no error")
	}
	e.compareList(dedupe.Query{})
}
