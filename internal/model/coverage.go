package model

import "github.com/onceq/onceq/dedupe"

// Coverage counts how often each row of the tables decided, by the row's place.
type Coverage struct {
	Claim, Renew, Settle []int
}

// NewCoverage makes a Coverage that has counted nothing.
func NewCoverage() *Coverage {
	return &Coverage{
		Claim:  make([]int, len(dedupe.ClaimTable)),
		Renew:  make([]int, len(dedupe.RenewTable)),
		Settle: make([]int, len(dedupe.SettleTable)),
	}
}

func (m *model) noteClaim(before *record, q claimCall) {
	if m.c.Coverage == nil {
		return
	}
	rec := before.real(m.c.Payloads)
	req := dedupe.ClaimRequest{Key: key, Token: q.token.real(), Policy: q.policy, Reopen: uint64(q.reopens)}
	if m.c.Payloads {
		req.Fingerprint = []byte{q.payload}
	}
	s := dedupe.Meet(&rec, &req, now)
	for i := range dedupe.ClaimTable {
		if row := &dedupe.ClaimTable[i]; row.Matches(s) {
			m.c.Coverage.Claim[i]++
			return
		}
	}
}

func (m *model) noteRenew(before *record, t token) {
	if m.c.Coverage == nil {
		return
	}
	s := dedupe.Situation{At: before.at(), Own: before.token == t && before.status != 0}
	for i := range dedupe.RenewTable {
		if row := &dedupe.RenewTable[i]; row.Matches(s) {
			m.c.Coverage.Renew[i]++
			return
		}
	}
}

func (m *model) noteSettle(before *record, t *dedupe.Settlement, own bool) {
	if m.c.Coverage == nil {
		return
	}
	s := dedupe.Situation{At: before.at(), Own: own && before.status != 0}
	for i := range dedupe.SettleTable {
		if row := &dedupe.SettleTable[i]; row.Matches(s, t.To, t.Joined) {
			m.c.Coverage.Settle[i]++
			return
		}
	}
}

func (r *record) at() dedupe.At {
	switch r.status {
	case dedupe.Claimed:
		if r.dead {
			return dedupe.AtDead
		}
		return dedupe.AtLive
	case dedupe.Released:
		return dedupe.AtReleased
	case dedupe.Done:
		return dedupe.AtDone
	case dedupe.Failed:
		return dedupe.AtFailed
	case dedupe.Parked:
		return dedupe.AtParked
	}
	return dedupe.AtNone
}
