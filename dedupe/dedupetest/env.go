package dedupetest

import (
	"errors"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/suite"
)

// This file owns what a case works with: the store, the model beside it, and the words of the
// rules. A case calls its methods from one goroutine. Other goroutines of a case call the store
// itself, so nothing is locked.

const (
	// ttl and retain are far from what a slow machine needs for a case.
	ttl    = time.Hour
	retain = 10 * time.Hour
)

// env is what a case works with: the harness under both suites, and a store of its own with a model
// beside it. Its calls check every answer against the model.
type env struct {
	*suite.Env
	h       Harness
	subject Subject
	s       dedupe.Store
	l       dedupe.Limits
	m       *model
	// slack is how far a time may be from the model's, besides what the calls took.
	slack time.Duration
}

var _ player = (*env)(nil)

func newEnv(c *suite.Env, h Harness) *env {
	c.Helper()
	e := &env{Env: c, h: h, m: newModel(), slack: time.Minute}
	if h.Virtual {
		e.slack = time.Millisecond
	}
	e.subject = h.Open(c.TB)
	e.s = e.subject.Store
	switch {
	case e.s == nil:
		e.Harnessf("Harness.Open gave a Subject without a Store")
	case e.subject.Age == nil && !h.Virtual:
		e.Harnessf("Harness.Open gave a Subject without Age, and Harness.Virtual is false")
	case (e.subject.Begin == nil) != (e.subject.Rows == nil):
		e.Harnessf("Harness.Open gave a Subject with one of Begin and Rows; they belong together")
	}
	e.l = e.s.Limits()
	return e
}

// tolerance is how far a time may be from the model's, because the model takes the time at which a
// call began.
func (e *env) tolerance() time.Duration { return e.slack + e.m.drift }

// on is e with another handle onto the same data, and the same model.
func (e *env) on(s dedupe.Store) *env {
	c := *e
	c.s = s
	return &c
}

func (e *env) token() dedupe.Token            { return e.m.token() }
func (e *env) at(k dedupe.Key) *dedupe.Record { return e.m.at(k) }
func (e *env) request(k dedupe.Key) dedupe.ClaimRequest {
	return dedupe.ClaimRequest{Key: k, Token: e.token(), TTL: ttl, Owner: "worker-1", MessageID: "message-1", Sent: sent}
}

// sent is when the jobs of the suite were sent.
var sent = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

// key is a key of the case.
func key(name string) dedupe.Key { return dedupe.Key{Scope: "suite", Key: name} }

// age lets d go by for k's record, and in virtual time for all others.
func (e *env) age(k dedupe.Key, d time.Duration) {
	e.Helper()
	if e.h.Virtual {
		e.Pause(d)
		return
	}
	e.subject.Age(e.TB, k, d)
	e.m.age(k, d)
}

// claim claims, and checks answer and record.
func (e *env) claim(q dedupe.ClaimRequest) dedupe.Claim {
	e.Helper()
	start := time.Now()
	cs, err := e.s.Claim(e.Context(), []dedupe.ClaimRequest{q})
	end := time.Now()
	e.m.drift += end.Sub(start)
	e.OK(err, "Claim")
	if len(cs) != 1 {
		e.Fatalf("Claim of 1 entry gave %d answers", len(cs))
	}
	e.expectClaim(&q, &cs[0], start, end)
	e.stored(q.Key)
	return cs[0]
}

// expectClaim applies q to the model and compares the answer.
func (e *env) expectClaim(q *dedupe.ClaimRequest, got *dedupe.Claim, start, end time.Time) {
	e.Helper()
	r := e.at(q.Key)
	before := r.Clone()
	taken := false
	want, _ := machine.ApplyClaim(r, q, start, func() uint64 { taken = true; return got.Lease.Fence })
	switch {
	case got.Err != nil:
		e.Fatalf("Claim of %s was answered %v, want %v; the record was %s", q.Key, got.Err, want.Outcome, brief(before))
	case got.Outcome != want.Outcome:
		e.Fatalf("Claim of %s was answered %v, want %v; the record was %s", q.Key, got.Outcome, want.Outcome, brief(before))
	}
	if got.Outcome == dedupe.Won {
		e.wonWell(q, got, &want, before, taken, start, end)
	}
	if got.Fresh != want.Fresh {
		e.Errorf("Claim of %s: Fresh is %v, want %v; the record was %s", q.Key, got.Fresh, want.Fresh, brief(before))
	}
	if got.FirstErr != want.FirstErr {
		e.Errorf("Claim of %s: FirstErr is %q, want %q", q.Key, got.FirstErr, want.FirstErr)
	}
	if !same(got.State, want.State) || got.StateNo != want.StateNo {
		e.Errorf("Claim of %s: State is %s, number %d; want %s, %d", q.Key, show(got.State), got.StateNo, show(want.State), want.StateNo)
	}
	if got.ErrClass != want.ErrClass || got.From != want.From {
		e.Errorf("Claim of %s: ErrClass is %q and From %q, want %q and %q; the record was %s", q.Key, got.ErrClass, got.From, want.ErrClass, want.From, brief(before))
	}
	e.near("Claim: DeadFor", got.DeadFor, want.DeadFor)
	e.near("Claim: LastEnd", got.LastEnd.Sub(want.LastEnd), 0)
	if got.Outcome == dedupe.InProgress {
		e.near("Claim: Left", got.Left, want.Left)
		e.near("Claim: Age", got.Age, want.Age)
		e.near("Claim: Term", got.Term, want.Term)
	}
	switch {
	case (got.Record == nil) != (want.Record == nil):
		e.Errorf("Claim answered %v with record %s, want %s", got.Outcome, brief(got.Record), brief(want.Record))
	case got.Record != nil:
		e.equal("the record that Claim answered", got.Record, want.Record)
	}
}

func (e *env) wonWell(q *dedupe.ClaimRequest, got, want *dedupe.Claim, before *dedupe.Record, taken bool, start, end time.Time) {
	e.Helper()
	g, w := got.Lease, want.Lease
	if taken && g.Fence <= e.m.top[q.Key] {
		e.Fatalf("a new claim of %s has fence %d; the key had %d before, and the fence only rises", q.Key, g.Fence, e.m.top[q.Key])
	}
	if !taken && g.Fence != before.Fence {
		e.Fatalf("the same claim of %s again has fence %d, want the same as before, %d", q.Key, g.Fence, before.Fence)
	}
	e.m.top[q.Key] = g.Fence
	if g.Key != w.Key || g.Token != w.Token || g.Attempt != w.Attempt {
		e.Errorf("Claim answered a lease on %s, token %v, attempt %d; want %s, %v, %d", g.Key, g.Token.Hex(), g.Attempt, w.Key, w.Token.Hex(), w.Attempt)
	}
	e.near("Claim: Created", got.Created.Sub(start), want.Created.Sub(start))
	e.deadline("Claim", g.Deadline, q.Key, start.Add(q.TTL), end.Add(q.TTL))
}

// deadline checks an owner's view of its lease: early, never late.
func (e *env) deadline(call string, got time.Time, k dedupe.Key, from, until time.Time) {
	e.Helper()
	latest := until
	if l := e.at(k).LeaseUntil; l.After(latest) {
		latest = l
	}
	switch {
	case got.After(latest):
		e.Errorf("%s: Deadline is %v after the lease may be dead; an owner's view is early, never late", call, got.Sub(latest))
	case time.Until(got) < time.Until(from)/2-e.tolerance():
		e.Errorf("%s: Deadline is in %v, want about %v", call, time.Until(got), time.Until(from))
	}
}

// renew renews, and checks answer and record.
func (e *env) renew(n dedupe.Renewal) error {
	e.Helper()
	number(&n, e.at(n.Key))
	start := time.Now()
	as, err := e.s.Renew(e.Context(), []dedupe.Renewal{n})
	end := time.Now()
	e.m.drift += end.Sub(start)
	e.OK(err, "Renew")
	if len(as) != 1 {
		e.Fatalf("Renew of 1 entry gave %d answers", len(as))
	}
	e.expectRenew(&n, &as[0], start, end)
	e.stored(n.Key)
	return as[0].Err
}

func (e *env) expectRenew(n *dedupe.Renewal, got *dedupe.Renewed, start, end time.Time) {
	e.Helper()
	r := e.at(n.Key)
	before := r.Clone()
	want := machine.ApplyRenew(r, n, start)
	if !suite.SameErr(got.Err, want) {
		e.Fatalf("Renew of %s was answered %v, want %v; the record was %s", n.Key, got.Err, want, brief(before))
	}
	if want == nil {
		e.deadline("Renew", got.Deadline, n.Key, start.Add(n.TTL), end.Add(n.TTL))
	}
}

// settle settles, and checks answer and record.
func (e *env) settle(s dedupe.Settlement) dedupe.Settled {
	e.Helper()
	start := time.Now()
	as, err := e.s.Settle(e.Context(), []dedupe.Settlement{s})
	e.m.drift += time.Since(start)
	e.OK(err, "Settle")
	if len(as) != 1 {
		e.Fatalf("Settle of 1 entry gave %d answers", len(as))
	}
	e.expectSettle(&s, &as[0], start)
	e.stored(s.Key)
	return as[0]
}

func (e *env) expectSettle(s *dedupe.Settlement, got *dedupe.Settled, start time.Time) {
	e.Helper()
	r := e.at(s.Key)
	before := r.Clone()
	want, _ := machine.ApplySettle(r, s, start)
	if before.Expired(start) && errors.Is(got.Err, dedupe.ErrLeaseLost) {
		// The store may have removed it.
		return
	}
	if !suite.SameErr(got.Err, want.Err) || got.Status != want.Status {
		e.Fatalf("Settle of %s to %v was answered %v, %v; want %v, %v; the record was %s",
			s.Key, s.To, got.Status, got.Err, want.Status, want.Err, brief(before))
	}
}

// forget forgets, and checks answer and record.
func (e *env) forget(f dedupe.Forgotten) error {
	e.Helper()
	errs, err := e.s.Forget(e.Context(), []dedupe.Forgotten{f})
	e.OK(err, "Forget")
	if len(errs) != 1 {
		e.Fatalf("Forget of 1 entry gave %d answers", len(errs))
	}
	before := e.at(f.Key).Clone()
	if want := e.m.forget(f); !suite.SameErr(errs[0], want) {
		e.Fatalf("Forget of %s with fence %d was answered %v, want %v; the record was %s", f.Key, f.Fence, errs[0], want, brief(before))
	}
	e.stored(f.Key)
	return errs[0]
}

// get reads one record.
func (e *env) get(k dedupe.Key) *dedupe.Record {
	e.Helper()
	rs, err := e.s.Get(e.Context(), []dedupe.Key{k})
	e.OK(err, "Get")
	if len(rs) != 1 {
		e.Fatalf("Get of 1 key gave %d answers", len(rs))
	}
	return rs[0]
}

// stored compares k's record with the model's.
func (e *env) stored(k dedupe.Key) {
	e.Helper()
	got, want := e.get(k), e.m.live(k)
	if (got == nil) != (want == nil) {
		e.Fatalf("the store now holds %s, want %s", brief(got), brief(want))
	}
	if got != nil {
		e.equal("the record that is now stored", got, want)
	}
}
