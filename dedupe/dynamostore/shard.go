package dynamostore

import (
	"hash/fnv"
	"strconv"

	"github.com/onceq/onceq/dedupe"
)

// This file owns the attribute that a record has only while it is failed, parked or released. All
// writes of a status call attention.

// shards are the values of the attribute for each status. An index takes 1,000 writes a second for
// one value, and would hold up the table's own writes beyond that: when every job is retried, for
// instance.
const shards = 16

// needsAttention reports whether people look for records of that status.
func needsAttention(st dedupe.Status) bool {
	return st == dedupe.Failed || st == dedupe.Parked || st == dedupe.Released
}

// attention is the attribute's value, empty = it is absent.
func attention(k dedupe.Key, st dedupe.Status) string {
	if !needsAttention(st) {
		return ""
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(k.Scope + "\x00" + k.Key)) // it never fails
	return shard(st, int(h.Sum32()%shards))
}

func shard(st dedupe.Status, n int) string {
	return st.String() + "." + strconv.FormatInt(int64(n), shards)
}
