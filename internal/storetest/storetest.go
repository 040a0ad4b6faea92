// Package storetest has what the tests of several stores share: claims and what follows on them,
// each of which fails the test when it goes wrong, a running job, and workers on a real store.
package storetest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// This file owns claims and what follows on them. Tests of stores call it from any goroutine, with
// tokens of their own. It holds no lock and keeps nothing.

// Token is a token that nobody else has.
func Token() (t dedupe.Token) {
	rand.Read(t[:])
	return t
}

// Request asks for a key for a minute.
func Request(key string) dedupe.ClaimRequest {
	return dedupe.ClaimRequest{
		Key: dedupe.Key{Scope: "orders", Key: key}, Token: Token(), TTL: time.Minute,
		Owner: "worker-1", MessageID: "m-" + key,
	}
}

// ClaimAll claims a batch in which every entry is to be answered.
func ClaimAll(tb testing.TB, s dedupe.Store, qs ...dedupe.ClaimRequest) []dedupe.Claim {
	tb.Helper()
	cs, err := s.Claim(tb.Context(), qs)
	if err == nil {
		for _, c := range cs {
			err = errors.Join(err, c.Err)
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
	return cs
}

// Claim wins the key or fails the test.
func Claim(tb testing.TB, s dedupe.Store, q dedupe.ClaimRequest) dedupe.Lease {
	tb.Helper()
	c := ClaimAll(tb, s, q)[0]
	if c.Outcome != dedupe.Won {
		tb.Fatalf("claim of %v: %v, want won", q.Key, c.Outcome)
	}
	return c.Lease
}

// Get reads the record, which must be there.
func Get(tb testing.TB, s dedupe.Store, k dedupe.Key) *dedupe.Record {
	tb.Helper()
	rs, err := s.Get(tb.Context(), []dedupe.Key{k})
	if err != nil {
		tb.Fatal(err)
	}
	if rs[0] == nil {
		tb.Fatalf("no record under %v", k)
	}
	return rs[0]
}

// Settle settles one claim.
func Settle(tb testing.TB, s dedupe.Store, t dedupe.Settlement) (dedupe.Status, error) {
	tb.Helper()
	as, err := s.Settle(tb.Context(), []dedupe.Settlement{t})
	if err != nil {
		tb.Fatal(err)
	}
	return as[0].Status, as[0].Err
}

// End settles a claim that is good, with a result.
func End(tb testing.TB, s dedupe.Store, l dedupe.Lease, to dedupe.Status) {
	tb.Helper()
	st, err := Settle(tb, s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: to, Result: []byte(`"ok"`)})
	if err != nil || st != to {
		tb.Fatalf("settle %v to %v: %v, %v", l.Key, to, st, err)
	}
}

// Renew renews one claim.
func Renew(tb testing.TB, s dedupe.Store, n dedupe.Renewal) error {
	tb.Helper()
	rs, err := s.Renew(tb.Context(), []dedupe.Renewal{n})
	if err != nil {
		tb.Fatal(err)
	}
	return rs[0].Err
}

// Job is a running job, as the processor shows it.
type Job struct {
	Of     dedupe.Lease
	Keep   time.Duration
	joined atomic.Bool
}

var _ dedupe.Owned = (*Job)(nil)

// Lease is the job's claim.
func (j *Job) Lease() dedupe.Lease { return j.Of }

// Retain is how long the store is to keep the record.
func (j *Job) Retain() time.Duration { return j.Keep }

// Join notes that the store has joined the job to a transaction.
func (j *Job) Join() { j.joined.Store(true) }

// Joined reports whether the store has joined the job to a transaction.
func (j *Job) Joined() bool { return j.joined.Load() }

// Rival is what somebody else does to a record between the reading of it and the writing, and what
// a claim is answered then.
type Rival struct {
	Act  func(l dedupe.Lease)
	Want dedupe.Outcome
}

// Rivals act through other on a dead claim under Park; age lets two hours go by for a record.
func Rivals(tb testing.TB, other dedupe.Store, age func(k dedupe.Key)) map[string]Rival {
	renew := func(started bool) func(l dedupe.Lease) {
		return func(l dedupe.Lease) {
			if err := Renew(tb, other, dedupe.Renewal{Key: l.Key, Token: l.Token, TTL: time.Hour, Started: started}); err != nil {
				tb.Error(err)
			}
		}
	}
	end := func(to dedupe.Status) func(l dedupe.Lease) {
		return func(l dedupe.Lease) { End(tb, other, l, to) }
	}
	return map[string]Rival{
		"the owner renews":      {renew(false), dedupe.InProgress},
		"the owner is done":     {end(dedupe.Done), dedupe.AlreadyDone},
		"the owner has failed":  {end(dedupe.Failed), dedupe.AlreadyFailed},
		"the owner releases":    {end(dedupe.Released), dedupe.Won},
		"another takes it over": {func(l dedupe.Lease) { Claim(tb, other, Request(l.Key.Key)) }, dedupe.InProgress},
		"the owner started, and died": {func(l dedupe.Lease) {
			renew(true)(l)
			age(l.Key)
		}, dedupe.IsParked},
		"it is forgotten": {func(l dedupe.Lease) {
			errs, err := other.Forget(tb.Context(), []dedupe.Forgotten{{Key: l.Key, Fence: l.Fence}})
			if err != nil || errs[0] != nil {
				tb.Error(errs, err)
			}
		}, dedupe.Won},
	}
}

// Result is what a handler gives as its result, and the bytes that are kept of it.
type Result struct {
	Given any
	Kept  []byte
}

// Results are the results that a store may take for none, or for one another.
func Results() map[string]Result {
	return map[string]Result{
		"none":       {nil, nil},
		"empty":      {[]byte{}, []byte{}},
		"bytes":      {[]byte("\x00raw\xff"), []byte("\x00raw\xff")},
		"json null":  {(*int)(nil), []byte("null")},
		"json false": {false, []byte("false")},
		"json zero":  {0, []byte("0")},
		"json empty": {"", []byte(`""`)},
	}
}

// Done counts how often each of so many keys was done, by workers of different versions.
type Done []atomic.Int64

// Work is one worker's, in three rounds over all keys. It releases some claims in the first two
// rounds and ends the others as done. request makes the claim of a key.
func (d Done) Work(t *testing.T, request func(key string) dedupe.ClaimRequest,
	claim func(dedupe.ClaimRequest) (won bool, err error), settle func(dedupe.ClaimRequest, dedupe.Status) error,
) {
	t.Helper()
	for round := range 3 {
		for n := range d {
			q := request(fmt.Sprintf("job-%04d", n))
			won, err := claim(q)
			if err != nil {
				t.Error(err)
				return
			}
			if !won {
				continue
			}
			to := dedupe.Done
			if (n+round)%3 == 0 && round < 2 {
				to = dedupe.Released
			} else {
				d[n].Add(1)
			}
			if err := settle(q, to); err != nil {
				t.Error(err)
				return
			}
		}
	}
}

// WantOnce fails where a key was done twice, or not at all.
func (d Done) WantOnce(t *testing.T) {
	t.Helper()
	for n := range d {
		if k := d[n].Load(); k != 1 {
			t.Errorf("job %d was done %d times", n, k)
		}
	}
}
