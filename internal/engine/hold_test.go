package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// quietHost brings runs, and acts on nothing.
type quietHost struct{}

func (quietHost) Admit(*Run[job]) *Refusal               { return nil }
func (quietHost) Takeover(*Run[job], *dedupe.Claim) bool { return false }
func (quietHost) StoreErred(*Run[job], error, bool)      {}
func (quietHost) Start(*Run[job])                        {}
func (quietHost) Handle(*Run[job]) error                 { return nil }
func (quietHost) Broke(*Run[job], any)                   {}
func (quietHost) Carry(*Run[job])                        {}
func (quietHost) Observe(*Run[job])                      {}
func (quietHost) Ended(r *Run[job])                      { r.f.letGo(r) }

// bareStore has limits and no more, bareQueue counts extensions.
type bareStore struct{ dedupe.Store }

func (bareStore) Limits() dedupe.Limits { return dedupe.Limits{MaxBatch: 10} }

type bareQueue struct {
	broker.Receiver
	broker.Sender
	extended int
}

func (q *bareQueue) Limits() broker.Limits {
	return broker.Limits{SendBatch: 10, SettleBatch: 10, Extends: true}
}

func (q *bareQueue) Extend(_ context.Context, hs []broker.Hold) error {
	q.extended += len(hs)
	return nil
}

const visible = 30 * time.Second

// newBareRun is a run whose delivery ends after visible, and whose claim is held.
func newBareRun(t *testing.T) (*Engine[job], *Run[job], *bareQueue) {
	t.Helper()
	q := &bareQueue{}
	en, err := New[job](Options{
		Store: bareStore{}, DeadLetter: q, Lease: visible, Visibility: visible, CallTimeout: 5 * time.Second, SettleTimeout: 5 * time.Second,
		Limits: q.Limits(),
	}, &Roll{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	f := en.NewFlow(quietHost{}, Terms{Base: t.Context(), Deliveries: q}, SlotOptions[job]{})
	r := f.NewRun(&broker.Message{Receipt: "now", Deadline: now.Add(visible)}, now)
	r.SetDelivery(now.Add(visible))
	r.claimHeld = true
	return en, r, q
}

// An answer to an extension counts only for the delivery that it is about, and only before its
// deadline: a standard SQS queue answers OK afterwards, and does nothing.
func TestAnswerToAnExtension(t *testing.T) {
	for name, c := range map[string]struct {
		receipt broker.Receipt // that the call had
		after   time.Duration
		err     error

		lost, extended, again bool
	}{
		"in time":                {"now", visible - 1, nil, false, true, false},
		"OK, late":               {"now", visible, nil, true, false, false},
		"expired":                {"now", time.Second, broker.ErrReceiptExpired, true, false, false},
		"fails":                  {"now", time.Second, errors.New("fails"), false, false, true},
		"fails, late":            {"now", visible, errors.New("fails"), true, false, false},
		"expired, handed over":   {"before", time.Second, broker.ErrReceiptExpired, false, false, false},
		"OK, handed over":        {"before", time.Second, nil, false, false, false},
		"OK, late, handed over":  {"before", visible, nil, false, false, false},
		"fails, and handed over": {"before", time.Second, errors.New("fails"), false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				en, r, _ := newBareRun(t)
				ends, now := r.DeliveryEnd(), time.Now()
				h := holding[job]{
					en: en, runs: []*Run[job]{r}, batch: []broker.Hold{{Receipt: c.receipt, For: visible}},
					ends: []time.Time{now.Add(2 * visible)}, done: make(chan struct{}), err: c.err,
				}
				follows := h.extended(0, now.Add(c.after))
				if r.deliveryLost != c.lost || !r.deliveryEnds.Equal(ends) != c.extended || (follows == holdAgain) != c.again {
					t.Errorf("lost %v, extended %v, again %v; want %+v", r.deliveryLost, !r.deliveryEnds.Equal(ends), follows == holdAgain, c)
				}
			})
		})
	}
}

// A delivery that has lapsed while it waited for its extension is lost, and no call is made for it:
// its receipt may hide the message from whoever has it now.
func TestLapsedDeliveryIsNotExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			late time.Duration
			want int
		}{{-10 * time.Second, 1}, {0, 0}, {time.Second, 0}} {
			en, r, q := newBareRun(t)
			r.mu.Lock()
			r.deliveryEnds = time.Now().Add(-c.late)
			r.mu.Unlock()
			en.holdBatch([]*Run[job]{r})
			if q.extended != c.want || r.deliveryLost != (c.want == 0) {
				t.Errorf("%v after its deadline: %d extensions, lost %v", c.late, q.extended, r.deliveryLost)
			}
			en.Release(r)
		}
	})
}

// A store that hangs says nothing of one entry, whatever it has answered to others meanwhile.
func TestHangingStoreIsNoErrorOfTheEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		en, r, _ := newBareRun(t)
		rs, sent := []*Run[job]{r}, time.Now()
		r.ensureLater().failing = 1
		en.lastClaim.Store(int64(time.Hour)) // others were answered
		if at := en.aloneSince(rs, sent, errors.New("row is damaged")); at == nil {
			t.Error("an error of a call of its own is not the entry's")
		}
		if at := en.aloneSince(rs, sent, context.DeadlineExceeded); at != nil {
			t.Error("a store that hangs is taken for the entry's error")
		}
	})
}
