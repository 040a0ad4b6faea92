package dynamostore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
)

// TestAttentionIndex: with the index a list of what failed, was parked or released reads these
// alone, whatever else is in the table; a list of anything else still works, and both give the
// same.
func TestAttentionIndex(t *testing.T) {
	t.Parallel()
	c := openClient(t)
	table := newTable(t)
	s, err := New(c, table, &Options{AttentionIndex: "attention"})
	if err := errors.Join(err, s.CreateTable(t.Context()), s.CreateTable(t.Context())); err != nil {
		t.Fatal(err)
	}
	plain := must.Get(New(c, table, nil))
	for n := range 60 {
		for _, to := range []dedupe.Status{dedupe.Claimed, dedupe.Done, dedupe.Failed, dedupe.Parked, dedupe.Released} {
			if to != dedupe.Done && n >= 5 {
				continue
			}
			q := request(fmt.Sprintf("%v-%02d", to, n))
			q.Key.Scope = fmt.Sprint("scope-", n%2)
			l := claimOne(t, s, q)
			if to != dedupe.Claimed {
				settleOne(t, s, l, to)
			}
		}
	}
	list := func(s *Store, q dedupe.Query) (keys []string) {
		for r, err := range s.List(t.Context(), q) {
			if err != nil {
				t.Fatalf("List of %+v: %v", q, err)
			}
			keys = append(keys, r.Key.String())
		}
		return keys
	}
	for st := dedupe.Status(0); st <= dedupe.Parked; st++ {
		for _, q := range []dedupe.Query{
			{Status: st},
			{Status: st, Scope: "scope-1"},
			{Status: st, Prefix: st.String() + "-01"},
			{Status: st, Limit: 2},
			{Status: st, Before: time.Now().Add(time.Hour)},
			{Status: st, Before: time.Now().Add(-time.Hour)},
		} {
			got, want := list(s, q), list(plain, q)
			if !slices.Equal(got, want) || !slices.IsSorted(got) {
				t.Errorf("List of %+v gave %q by the index, %q without", q, got, want)
			}
		}
	}
	if n := len(list(s, dedupe.Query{Status: dedupe.Failed})); n != 5 {
		t.Errorf("%d failed records, want 5", n)
	}

	// The record leaves the index when its state ends.
	q := request("failed-00")
	q.Key.Scope = "scope-0"
	q.Reopen = get(t, s, q.Key).Fence
	l := claimOne(t, s, q)
	if it := rawItem(t, s, q.Key); it[attrAttention] != nil {
		t.Errorf("a claimed record has the attribute %v", it[attrAttention])
	}
	settleOne(t, s, l, dedupe.Parked)
	if it := rawItem(t, s, q.Key); it[attrAttention] == nil {
		t.Error("a parked record has no attribute")
	}
	settleOne(t, s, l, dedupe.Done) // its late word
	if it := rawItem(t, s, q.Key); it[attrAttention] != nil || it[attrMessage] != nil {
		t.Errorf("a done record has the attributes %v and %v", it[attrAttention], it[attrMessage])
	}
	if n := len(list(s, dedupe.Query{Status: dedupe.Failed})); n != 4 {
		t.Errorf("%d failed records, want 4", n)
	}
	// What the index still has of an older state is not given. A worker of an older version leaves
	// it so.
	it := rawItem(t, s, q.Key)
	it[attrAttention] = text(attention(q.Key, dedupe.Failed))
	if _, err := c.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: it}); err != nil {
		t.Fatal(err)
	}
	if n := len(list(s, dedupe.Query{Status: dedupe.Failed})); n != 4 {
		t.Errorf("%d failed records, want 4", n)
	}
}

// TestAttentionIndexReadsFew: the requests of a list by the index, counted.
func TestAttentionIndexReadsFew(t *testing.T) {
	s, st := warmed(t, func(stubCall) stubAnswer { return stubAnswer{out: object{"Items": []any{}}} })
	s.attentionIndex = "attention"
	list := func(q dedupe.Query) {
		for _, err := range s.List(t.Context(), q) {
			t.Fatal(err)
		}
	}
	for _, to := range []dedupe.Status{dedupe.Failed, dedupe.Parked, dedupe.Released} {
		list(dedupe.Query{Status: to})
	}
	if scans, queries := len(st.of("Scan")), len(st.of("Query")); scans != 0 || queries != 3*shards {
		t.Errorf("%d scans and %d queries, want none and %d", scans, queries, 3*shards)
	}
	list(dedupe.Query{Status: dedupe.Done})
	if scans := len(st.of("Scan")); scans != 1 {
		t.Errorf("the list of done records made %d scans, want 1", scans)
	}
}

// TestNow: the service's time, also where it is not known yet.
func TestNow(t *testing.T) {
	s, st := stubbed(t, func(stubCall) stubAnswer { return applied })
	st.ahead = time.Hour
	for range 2 {
		at, err := s.Now(t.Context())
		if ahead := time.Until(at); err != nil || (ahead-time.Hour).Abs() > time.Minute {
			t.Errorf("Now is %v ahead, %v; want an hour", ahead, err)
		}
	}
	if n := len(st.of("GetItem")); n != 1 {
		t.Errorf("%d reads for two answers, want 1", n)
	}
}

// TestNoAttentionIndex: a table without the index that is named is refused, by the setup and by a
// list.
func TestNoAttentionIndex(t *testing.T) {
	t.Parallel()
	c := openClient(t)
	plain := newStore(t, c, newTable(t))
	s := must.Get(New(c, plain.table, &Options{AttentionIndex: "attention"}))
	if err := s.CreateTable(t.Context()); err == nil || !strings.Contains(err.Error(), "no index attention") || !strings.Contains(err.Error(), "KEYS_ONLY") {
		t.Errorf("CreateTable: %v", err)
	}
	for _, err := range s.List(t.Context(), dedupe.Query{Status: dedupe.Failed}) {
		if err == nil || !strings.Contains(err.Error(), "Options.AttentionIndex") {
			t.Errorf("List: %v", err)
		}
	}
	for _, name := range []string{"a", "a b", strings.Repeat("a", 256), "arn:aws:dynamodb:x:1:table/attention"} {
		if _, err := New(c, plain.table, &Options{AttentionIndex: name}); err == nil || !strings.Contains(err.Error(), "Options.AttentionIndex") {
			t.Errorf("New with the index %q: %v", name, err)
		}
	}
}

// TestShards: keys of one status are spread over all values of the attribute.
func TestShards(t *testing.T) {
	seen := make(map[string]int)
	for n := range 1600 {
		seen[attention(dedupe.Key{Scope: "orders", Key: fmt.Sprint(n)}, dedupe.Released)]++
	}
	for n := range shards {
		if k := seen[shard(dedupe.Released, n)]; k < 50 || k > 200 {
			t.Errorf("%d of 1600 keys have the value %s", k, shard(dedupe.Released, n))
		}
	}
	if len(seen) != shards || attention(dedupe.Key{}, dedupe.Done) != "" || attention(dedupe.Key{}, dedupe.Claimed) != "" {
		t.Errorf("%d values", len(seen))
	}
}
