package dedupetest

import (
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
)

// player is what a script of calls works on: a store with its model, or a model alone.
type player interface {
	claim(q dedupe.ClaimRequest) dedupe.Claim
	renew(n dedupe.Renewal) error
	settle(s dedupe.Settlement) dedupe.Settled
	forget(f dedupe.Forgotten) error
	// age lets d go by for k's record.
	age(k dedupe.Key, d time.Duration)
	token() dedupe.Token
	// at is k's record in the model; the zero Record where there is none.
	at(k dedupe.Key) *dedupe.Record
}

// model is what the tables say that a store must hold.
type model struct {
	records map[dedupe.Key]*dedupe.Record
	// top is the highest fence that each key ever had.
	top    map[dedupe.Key]uint64
	fences uint64
	tokens uint64
	// drift is how long the calls have taken that changed the records.
	drift time.Duration
}

var _ player = (*model)(nil)

func newModel() *model {
	return &model{records: make(map[dedupe.Key]*dedupe.Record), top: make(map[dedupe.Key]uint64)}
}

func (m *model) at(k dedupe.Key) *dedupe.Record {
	r := m.records[k]
	if r == nil {
		r = &dedupe.Record{}
		m.records[k] = r
	}
	return r
}

func (m *model) token() dedupe.Token {
	m.tokens++
	t := dedupe.Token{0: 0xff, 15: byte(m.tokens)}
	for i := range 8 {
		t[7+i] = byte(m.tokens >> (8 * i))
	}
	return t
}

func (m *model) claim(q dedupe.ClaimRequest) dedupe.Claim {
	c, _ := machine.ApplyClaim(m.at(q.Key), &q, time.Now(), func() uint64 { m.fences++; return m.fences })
	return c
}

// number gives a state without one the number that follows on r's.
func number(n *dedupe.Renewal, r *dedupe.Record) {
	if n.State != nil && n.StateNo == 0 {
		n.StateNo = r.StateNo + 1
	}
}

func (m *model) renew(n dedupe.Renewal) error {
	number(&n, m.at(n.Key))
	return machine.ApplyRenew(m.at(n.Key), &n, time.Now())
}

func (m *model) settle(s dedupe.Settlement) dedupe.Settled {
	a, _ := machine.ApplySettle(m.at(s.Key), &s, time.Now())
	return a
}

func (m *model) forget(f dedupe.Forgotten) error {
	remove, err := machine.ApplyForget(m.at(f.Key), &f, time.Now())
	if remove {
		*m.at(f.Key) = dedupe.Record{}
	}
	return err
}

func (m *model) age(k dedupe.Key, d time.Duration) {
	r := m.at(k)
	for _, t := range []*time.Time{&r.LeaseUntil, &r.Created, &r.ClaimedAt, &r.Updated, &r.Finished, &r.Expires} {
		if !t.IsZero() {
			*t = t.Add(-d)
		}
	}
}

// live is what Get must answer.
func (m *model) live(k dedupe.Key) *dedupe.Record {
	r := m.at(k)
	if r.Status == 0 || r.Expired(time.Now()) {
		return nil
	}
	return r
}
