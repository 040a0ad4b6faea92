package memstore

import (
	"math"
	"time"
	"unique"

	"github.com/onceq/onceq/dedupe"
)

// This file owns the small form of a done record. Most records are done, and nobody asks a done
// record for most fields: packed it takes a third of the memory, and the garbage collector has
// fewer pointers to follow. The shard decides what is packed, under its mutex.

// packed is a done record without what its entry and its status tell. Times are the wall clock's,
// in nanoseconds since 1970, because people read them.
type packed struct {
	fence   uint64
	token   dedupe.Token
	owner   unique.Handle[string]
	sent    int64 // unknown = not known
	created int64
	claimed int64
	ended   int64
	rest    *rest // nil where all of it is nil
	attempt int32
	started bool
	policy  dedupe.Policy
}

// rest is what few done records have.
type rest struct {
	result, fingerprint []byte
	past                []dedupe.Attempt
}

const unknown = math.MinInt64

// fits reports whether a time has a number of nanoseconds. It takes one step where UnixNano's range
// would take two comparisons of times.
func fits(t time.Time) bool {
	const most = math.MaxInt64/int64(time.Second) - 1
	s := t.Unix()
	return -most < s && s < most
}

// pack fills p from a record. A record that has anything that packed has no room for is refused,
// and stays whole.
func (p *packed) pack(r *dedupe.Record, owner unique.Handle[string]) bool {
	if r.Status != dedupe.Done || r.Attempt < 0 || r.Attempt > math.MaxInt32 || !r.LeaseUntil.IsZero() || !r.Updated.Equal(r.Finished) ||
		r.MessageID != "" || r.State != nil || r.StateNo != 0 || r.ErrClass != "" || r.FirstErr != "" || r.LastErr != "" ||
		!fits(r.Created) || !fits(r.ClaimedAt) || !fits(r.Finished) || !r.Sent.IsZero() && !fits(r.Sent) {
		return false
	}
	*p = packed{
		fence: r.Fence, token: r.Token, owner: owner, sent: unknown, created: r.Created.UnixNano(), claimed: r.ClaimedAt.UnixNano(),
		ended: r.Finished.UnixNano(), attempt: int32(r.Attempt), started: r.Started, policy: r.Policy,
	}
	if !r.Sent.IsZero() {
		p.sent = r.Sent.UnixNano()
	}
	if r.Result != nil || r.Fingerprint != nil || r.Past != nil {
		p.rest = &rest{result: r.Result, fingerprint: r.Fingerprint, past: r.Past}
	}
	return true
}

// unpack fills r. The record shares its bytes with p. expires is by the monotonic clock, so that
// a wall clock that is set does not end a retention.
func (p *packed) unpack(r *dedupe.Record, k dedupe.Key, expires time.Time) {
	ended := time.Unix(0, p.ended)
	*r = dedupe.Record{
		Key: k, Status: dedupe.Done, Fence: p.fence, Token: p.token, Attempt: int(p.attempt), Started: p.started, Policy: p.policy,
		Owner: p.owner.Value(), Created: time.Unix(0, p.created), ClaimedAt: time.Unix(0, p.claimed), Updated: ended, Finished: ended, Expires: expires,
	}
	if p.sent != unknown {
		r.Sent = time.Unix(0, p.sent)
	}
	if p.rest != nil {
		r.Result, r.Fingerprint, r.Past = p.rest.result, p.rest.fingerprint, p.rest.past
	}
}

// names hands out one string for all records that have it. A process has few owners and scopes, and
// nearly always the last one comes again.
type names struct {
	last unique.Handle[string]
	made bool
}

func (n *names) of(s string) unique.Handle[string] {
	if !n.made || n.last.Value() != s {
		n.last, n.made = unique.Make(s), true
	}
	return n.last
}
