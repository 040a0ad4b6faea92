package model

import (
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns the record: package machine decides what a call does to it, as in a real store,
// and then the change is checked. The steps of worker.go, handler.go and environment.go call it, on
// the copy that a step makes, so nothing is locked. To leave a rule out, it changes what the
// machine is shown.

var (
	key = dedupe.Key{Scope: "model", Key: "job"}
	now = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
)

const ttl = time.Hour

// strange is a token that nothing in the model has.
const strange token = 9

func (t token) real() dedupe.Token { return dedupe.Token{0: 1, 1: byte(t)} }

// real is the record as a store keeps it.
func (r *record) real(payloads bool) dedupe.Record {
	d := dedupe.Record{
		Key: key, Status: r.status, Token: r.token.real(), Attempt: int(r.attempt),
		Started: r.started, Policy: r.policy, Owner: "worker",
		Created: now.Add(-2 * ttl), ClaimedAt: now.Add(-ttl),
	}
	switch r.status {
	case 0:
		return dedupe.Record{}
	case dedupe.Claimed:
		d.LeaseUntil = now.Add(ttl)
		if r.dead {
			d.LeaseUntil = now.Add(-ttl)
		}
	case dedupe.Done, dedupe.Failed, dedupe.Released:
		d.Expires = now.Add(ttl)
		if r.expired {
			d.Expires = now.Add(-ttl)
		}
	case dedupe.Parked: // it has neither a lease nor an end
	}
	d.Fence = uint64(curFence)
	if r.fresh {
		d.Created = d.ClaimedAt
	}
	if r.saved > 0 {
		d.State, d.StateNo = []byte{r.saved}, int(r.saved)
	}
	if r.class {
		d.ErrClass = verdict.Postponed
	}
	if r.cancelled {
		d.ErrClass = verdict.Cancelled
	}
	if payloads {
		d.Fingerprint = []byte{r.payload}
	}
	return d
}

// take makes r what the store keeps after a change. Fields that cannot matter any more are cleared.
func (r *record) take(d *dedupe.Record, m *model) {
	r.status, r.started, r.policy = d.Status, d.Started, d.Policy
	r.attempt = min(uint8(d.Attempt), m.c.MaxAttempts+1)
	r.dead = d.Status == dedupe.Claimed && !now.Before(d.LeaseUntil)
	r.expired = d.Expired(now)
	r.fresh = m.c.Retention && d.Created.Equal(d.ClaimedAt)
	if m.c.Payloads && d.Fingerprint != nil {
		r.payload = d.Fingerprint[0]
	}
	r.saved, r.class = 0, m.c.Steps && m.c.Payloads && d.ErrClass == verdict.Postponed
	r.cancelled = d.Status == dedupe.Failed && d.ErrClass == verdict.Cancelled
	if len(d.State) > 0 {
		r.saved = d.State[0]
	}
	if d.Status == dedupe.Done {
		r.attempt = 0
	}
	if d.Status != dedupe.Claimed {
		r.started = false
	}
}

// claimCall is a claim's request.
type claimCall struct {
	token   token
	reopens fence
	payload uint8
	policy  dedupe.Policy
	word    bool // the message is a replay that an operator has decided on
}

// claim applies a claim, and checks the invariants that it could break.
func (m *model) claim(s *state, q claimCall) dedupe.Claim {
	if s.tx.phase != noTx {
		return dedupe.Claim{Outcome: dedupe.InProgress} // a claim does not wait for the lock of a transaction
	}
	before := s.rec
	own := before.token == q.token && before.status != 0
	rec := before.real(m.c.Payloads)
	req := dedupe.ClaimRequest{Key: key, Token: q.token.real(), TTL: ttl, Policy: q.policy, Reopen: uint64(q.reopens)}
	if m.c.Payloads {
		req.Fingerprint = []byte{q.payload}
	}
	m.forgetClaimRules(&before, &rec, &req, own)
	next := newFence
	if s.ghost.forgotten && m.without(FenceOutlivesRecord) {
		next = curFence
	}
	state, no := rec.State, rec.StateNo
	if m.without(SavedTouches) {
		rec.State, rec.StateNo = nil, 0
	}
	c, changed := machine.ApplyClaim(&rec, &req, now, func() uint64 { return uint64(next) })
	if m.without(SavedTouches) && before.status != 0 && !before.expired {
		rec.State, rec.StateNo = state, no
	}
	m.noteClaim(&before, q)
	if c.Err != nil {
		m.markBroken(EveryCallAnswered)
	}
	if own && before.status == dedupe.Claimed && c.Outcome != dedupe.Won {
		m.markBroken(NotBlockedByOneself)
	}
	if !changed {
		return c
	}
	anew := c.Outcome == dedupe.Won && rec.Fence != uint64(curFence) || before.status == 0
	reopened := anew && (before.status == dedupe.Failed || before.status == dedupe.Parked)
	if anew {
		rec.Policy = q.policy // leaving a rule out may have changed it
	}
	if reopened && m.without(ReopenStartsAnew) {
		rec.Attempt = int(before.attempt) + 1
	}
	died := anew && before.status == dedupe.Claimed
	if died && m.without(DeadClaimsCount) {
		rec.Attempt = int(before.attempt)
	}
	if died && rec.Attempt != int(before.attempt)+1 {
		m.markBroken(AttemptsCount)
	}
	if anew && before.status != 0 && m.without(SavedStepsGoOn) {
		rec.State, rec.StateNo = nil, 0
	}
	s.rec.take(&rec, m)
	if anew {
		m.wonAnew(s, &before, q, next)
		if m.without(SeenAfterEffect) {
			s.rec.status, s.rec.dead = dedupe.Done, false
			s.ghost.done |= 1 << s.rec.payload
		}
	}
	m.compare(&before, &s.rec, q.reopens == curFence, false)
	return c
}

// wonAnew renames the fences after one was given, and checks that it was the highest.
func (m *model) wonAnew(s *state, before *record, q claimCall, next fence) {
	if before.status == dedupe.Claimed && !before.dead {
		m.markBroken(OneLiveClaim)
	}
	if before.token == q.token && before.status != 0 && !before.expired {
		m.markBroken(OneLiveClaim)
	}
	if next <= s.highestFence() {
		m.markBroken(FenceRises)
	}
	if before.status == 0 || before.expired {
		s.ghost.stored, s.ghost.of = 0, 0
	}
	reopens := before.status == dedupe.Failed || before.status == dedupe.Parked
	if s.rec.saved > 0 && s.ghost.of != q.payload && !reopens {
		m.markBroken(StepsOfPayload)
	}
	if s.rec.saved > 0 {
		s.ghost.of = q.payload
	}
	if s.ghost.cancelled && !(s.ghost.failed && q.reopens == curFence) {
		m.markBroken(CancelledStays)
	}
	s.ghost.cancelled, s.ghost.failed = false, false
	s.rec.token = q.token
	s.rec.reborn = m.c.Retention && (before.reborn || before.expired)
	if next == newFence {
		s.age()
	}
	if q.reopens == curFence && !before.expired && (before.status == dedupe.Failed || before.status == dedupe.Parked) || s.ghost.forgotten || q.word {
		m.decided(s)
	}
	s.ghost.forgotten = false
	for i := range s.w {
		w := &s.w[i]
		switch {
		case q.token == ownToken(i) && w.pc == starting:
			// A late packet gives a worker's old token another claim: its run begins under that
			// one.
			w.overtaken, w.effects = false, 0
		case m.c.counts() && !m.c.Calm && !m.parks(i) && w.pc == running && !w.overtaken:
			// Under Rerun who was taken over may act beside its successor; nothing else was
			// promised.
			w.overtaken, w.effects = true, 0
		}
	}
}

// decided is told that an operator has decided: the effects of the runs before are accounted for.
func (m *model) decided(s *state) {
	for i := range s.w {
		w := &s.w[i]
		if (w.pc == starting || w.pc == running) && !w.overtaken {
			w.overtaken, w.effects = m.c.counts(), s.ghost.effects
		}
	}
	s.ghost.effects = 0
}

func (s *state) highestFence() (f fence) {
	if s.rec.status != 0 {
		f = curFence
	}
	for i := range s.items {
		f = max(f, s.items[i].fence)
	}
	for i := range s.w {
		f = max(f, s.w[i].fence, s.w[i].reopens)
	}
	return max(f, s.late.fence)
}

// forgetClaimRules changes what the store sees so that it behaves as one that lacks the left-out
// rules.
func (m *model) forgetClaimRules(before *record, rec *dedupe.Record, req *dedupe.ClaimRequest, own bool) {
	switch {
	case own && before.status == dedupe.Claimed && m.without(OwnClaimAgain),
		own && before.status == dedupe.Released && m.without(LatePacketStale):
		rec.Token = strange.real()
	}
	if m.without(ReopenOwnFence) && req.Reopen != 0 {
		req.Reopen = uint64(curFence)
	}
	if m.without(ParkByRecord) {
		rec.Policy = req.Policy
	}
	if m.without(ParkByClaimer) && rec.Policy == dedupe.Rerun {
		req.Policy = dedupe.Rerun
	}
	if m.without(ReopensOrDiffers) && req.Reopen != 0 && req.Reopen != rec.Fence && rec.Fingerprint != nil {
		rec.Fingerprint = req.Fingerprint
	}
	if m.without(MismatchFirst) && before.status == dedupe.Done {
		req.Fingerprint = nil
	}
}

// settleCall is a settlement's request.
type settleCall struct {
	token             token
	to                dedupe.Status
	uncounted, joined bool
	unstarted         bool
	postponed         bool
	cancels           bool
}

// settle applies a settlement. It is not called while a transaction locks the record.
func (m *model) settle(s *state, q settleCall) dedupe.Settled {
	before := s.rec
	own := before.token == q.token
	rec := before.real(m.c.Payloads)
	t := dedupe.Settlement{
		Key: key, Token: q.token.real(), To: q.to,
		Uncounted: q.uncounted && !m.without(DrainUncounted) && !(q.unstarted && m.without(UnstartedUncounted)),
		Joined:    q.joined && !m.without(JoinedNeverDone),
	}
	if q.postponed {
		t.Uncounted = t.Uncounted && !m.without(PostponedUncounted)
		if !m.without(PostponedTouches) {
			t.ErrClass = verdict.Postponed
		}
	}
	if q.cancels {
		t.ErrClass = verdict.Cancelled
	}
	if m.without(SettleByToken) && rec.Status != 0 {
		t.Token = rec.Token
		if !own && q.to != rec.Status {
			rec.Status, rec.LeaseUntil = dedupe.Claimed, now.Add(ttl)
		}
	}
	t.Unparks = m.without(LateReleaseNoted) || m.c.HoldsBack
	m.noteSettle(&before, &t, own)
	a, changed := machine.ApplySettle(&rec, &t, now)
	if own && a.Err != nil && before.status != 0 && before.status != dedupe.Parked {
		m.markBroken(NotBlockedByOneself)
	}
	if !changed {
		return a
	}
	if !own {
		m.markBroken(StaleChangesNothing)
	}
	s.rec.take(&rec, m)
	if q.unstarted && before.status == dedupe.Claimed && s.rec.attempt >= before.attempt && before.attempt > 0 {
		m.markBroken(AttemptsCount)
	}
	m.compare(&before, &s.rec, false, own)
	m.finished(s)
	return a
}

// finished remembers a payload that has been done.
func (m *model) finished(s *state) {
	if s.rec.status == dedupe.Done {
		s.ghost.done |= 1 << s.rec.payload
	}
}

// renew applies a renewal, which saves so many steps; 0 = none. It is not called while a
// transaction locks the record.
func (m *model) renew(s *state, t token, started bool, saved uint8) error {
	before := s.rec
	if before.dead && m.without(DeadLeaseRenewed) {
		return dedupe.ErrLeaseLost
	}
	rec := before.real(m.c.Payloads)
	n := dedupe.Renewal{Key: key, Token: t.real(), TTL: ttl, Started: started}
	if saved > 0 {
		n.State, n.StateNo = []byte{saved}, int(saved)
		if m.without(LateSaveLeftOut) {
			rec.StateNo = 0
		}
		if m.without(SaveByToken) && rec.Status == dedupe.Claimed {
			n.Token = rec.Token
		}
	}
	m.noteRenew(&before, t)
	if err := machine.ApplyRenew(&rec, &n, now); err != nil {
		return err
	}
	if before.token != t {
		m.markBroken(StaleChangesNothing)
	}
	s.rec.take(&rec, m)
	if s.rec.saved > s.ghost.stored {
		s.ghost.stored, s.ghost.of = s.rec.saved, s.rec.payload
	}
	return nil
}

// completeTx is what CompleteTx finds, and whether the transaction may go on. The record is written
// when the transaction commits. Until then it is locked, so that what was found stays true.
func (m *model) completeTx(s *state, t token) txPhase {
	before := s.rec
	rec := before.real(m.c.Payloads)
	q := dedupe.Settlement{Key: key, Token: t.real(), To: dedupe.Done}
	if m.without(CompleteByToken) && rec.Status != 0 {
		q.Token = rec.Token
		if rec.Status != dedupe.Done {
			rec.Status = dedupe.Claimed
		}
	}
	a, changed := machine.ApplySettle(&rec, &q, now)
	switch {
	case changed:
		if before.token != t {
			m.markBroken(StaleChangesNothing)
		}
		return txOpen
	case a.Err == nil && a.Status == dedupe.Done && m.without(CompleteOnce):
		return txEmpty
	}
	return noTx
}

// commit lets the transaction take effect.
func (m *model) commit(s *state, phase txPhase) {
	if s.ghost.cancelled {
		m.markBroken(CancelledStays)
	}
	s.tx = tx{}
	s.ghost.txEffects = min(2, s.ghost.txEffects+1)
	s.ghost.acted = true
	if phase == txEmpty {
		return
	}
	before := s.rec
	s.rec.status, s.rec.dead, s.rec.started, s.rec.attempt = dedupe.Done, false, false, 0
	m.compare(&before, &s.rec, false, true)
	m.finished(s)
}
