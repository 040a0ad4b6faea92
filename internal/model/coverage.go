package model

import (
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
)

// The rows of the tables. They are read in each step, so they are copied once.
var claimRows, renewRows, settleRows = machine.ClaimTable(), machine.RenewTable(), machine.SettleTable()

// Coverage counts how often each row of the tables decided, by the row's place.
type Coverage struct {
	Claim, Renew, Settle []int
}

// NewCoverage makes a Coverage that has counted nothing.
func NewCoverage() *Coverage {
	return &Coverage{
		Claim:  make([]int, len(claimRows)),
		Renew:  make([]int, len(renewRows)),
		Settle: make([]int, len(settleRows)),
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
	s := machine.Meet(&rec, &req, now)
	for i := range claimRows {
		if row := &claimRows[i]; row.Matches(s) {
			m.c.Coverage.Claim[i]++
			return
		}
	}
}

func (m *model) noteRenew(before *record, t token) {
	if m.c.Coverage == nil {
		return
	}
	s := machine.Situation{At: before.at(), Own: before.token == t && before.status != 0}
	for i := range renewRows {
		if row := &renewRows[i]; row.Matches(s) {
			m.c.Coverage.Renew[i]++
			return
		}
	}
}

func (m *model) noteSettle(before *record, t *dedupe.Settlement, own bool) {
	if m.c.Coverage == nil {
		return
	}
	s := machine.Situation{At: before.at(), Own: own && before.status != 0, Unparks: t.Unparks}
	for i := range settleRows {
		if row := &settleRows[i]; row.Matches(s, t.To, t.Joined) {
			m.c.Coverage.Settle[i]++
			return
		}
	}
}

func (r *record) at() machine.At {
	switch r.status {
	case dedupe.Claimed:
		if r.dead {
			return machine.AtDead
		}
		return machine.AtLive
	case dedupe.Released:
		return machine.AtReleased
	case dedupe.Done:
		return machine.AtDone
	case dedupe.Failed:
		return machine.AtFailed
	case dedupe.Parked:
		return machine.AtParked
	}
	return machine.AtNone
}
