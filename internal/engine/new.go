package engine

import (
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/onceq/onceq/internal/batch"
	"github.com/onceq/onceq/internal/verdict"
	"github.com/onceq/onceq/visibility"
)

// Batches in flight at once. More would not fill the batches.
const (
	storeFlight  = 4
	joinFlight   = 16
	letterFlight = 2
	holdFlight   = 16 // they hold up none of the calls that renew claims
)

// New makes an Engine. It does no I/O. all lists its flows beside those of other engines.
func New[J any](o Options, all *Roll) (*Engine[J], error) {
	timeout := min(o.Lease, o.Visibility)
	en := &Engine[J]{o: o, all: all, epoch: time.Now(), probeKey: "onceq-probe-" + strings.ToLower(rand.Text()), margin: min(o.CallTimeout, timeout/6)}
	en.begin, en.giveBack, en.unreachable, en.release = en.beginClaims, en.giveUnbegun, en.giveUnanswered, en.Release
	en.beginOne = en.beginClaim
	store := o.Store.Limits().MaxBatch
	var err error
	en.leases, err = visibility.New(en.extend, visibility.Options[*Run[J]]{
		Timeout:     timeout,
		Margin:      en.margin,
		CallTimeout: min(o.CallTimeout, timeout/3), // a call that hangs leaves time for another
		MaxBatch:    min(store, MaxStoreBatch),
		IsLost:      func(err error) bool { return errors.Is(err, verdict.ErrTaken) },
		OnLost:      en.lost,
		OnTimeout:   func(r *Run[J]) { r.stopHandler(verdict.ErrTimeout) },
		Revives:     true,
	})
	if err != nil {
		return nil, err
	}
	en.claims = batch.New(batch.Options{Max: min(store, claimBatchFor(o.Slots)), Flight: storeFlight}, en.claimBatch)
	en.settles = batch.New(batch.Options{Max: min(store, MaxStoreBatch), Flight: storeFlight}, en.settleBatch)
	en.joins = batch.New(batch.Options{Max: 1, Flight: joinFlight}, en.settleBatch)
	en.saves = batch.New(batch.Options{Max: min(store, MaxStoreBatch), Flight: storeFlight}, en.saveBatch)
	en.gone = batch.New(batch.Options{Max: min(store, MaxStoreBatch), Flight: storeFlight}, en.stopGone)
	en.letters = batch.New(batch.Options{Max: o.DeadLetter.Limits().SendBatch, Flight: letterFlight}, en.putBatch)
	en.holds = batch.New(batch.Options{Max: o.Limits.SettleBatch, Flight: holdFlight}, en.holdBatch)
	return en, nil
}

// claimBatchFor bounds a batch of claims by half of the slots, so that handlers run in one half
// while the other half is claimed. With one batch for all slots the two take turns, and fast
// handlers wait for the store (a fifth more time a job). A batch of fewer than least costs the
// store more than it wins.
func claimBatchFor(slots int) int {
	const least = 16
	if slots == 0 {
		return MaxStoreBatch
	}
	return min(MaxStoreBatch, max(least, slots/2))
}

// Keep makes the goroutines that carry claims and settlements outlast a lack of entries, until
// Keep(false).
func (en *Engine[J]) Keep(on bool) {
	en.claims.Keep(on)
	en.settles.Keep(on)
	en.joins.Keep(on)
	en.saves.Keep(on)
}

// NewFlow makes a flow of runs that h brings. h calls its Close when all is over.
func (en *Engine[J]) NewFlow(h Host[J], t Terms, o SlotOptions[J]) *Flow[J] {
	f := &Flow[J]{en: en, Host: h, Terms: t, o: o, epoch: time.Now()}
	f.room.L, f.idle.L = &f.mu, &f.mu
	f.ends = f.endsRoom[:0]
	en.Own.enter(f)
	en.all.enter(f)
	return f
}
