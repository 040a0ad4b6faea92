package records

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/onceq/onceq/dedupe"
)

// Batch is what the entries of one of a store's calls have in common. Each entry fails alone, and
// answer i belongs to entry i.
type Batch[Q, A any] struct {
	// store begins the text of a refusal.
	store string
	// check refuses an entry that no store takes, or this one does not.
	check func(*Q) error
	// Failed is the answer to an entry that failed.
	Failed func(error) A
}

// refuse answers an entry that is not to be tried, and reports whether it did.
func (b *Batch[Q, A]) refuse(q *Q, a *A) bool {
	err := b.check(q)
	if err != nil {
		*a = b.Failed(fmt.Errorf("%s: %w", b.store, err))
	}
	return err != nil
}

// Each answers one entry after the other.
func (b *Batch[Q, A]) Each(qs []Q, answer func(q *Q, a *A)) []A {
	as := make([]A, len(qs))
	for i := range qs {
		if !b.refuse(&qs[i], &as[i]) {
			answer(&qs[i], &as[i])
		}
	}
	return as
}

// Parts answers the entries in the parts that divide makes of those that were not refused, by
// position. answer fills in the answers of a part. Where its error is [dedupe.ErrBusy], it is the
// answer to each entry of the part; any other ends the call.
func (b *Batch[Q, A]) Parts(qs []Q, divide func(valid []int) [][]int, answer func(part []int, as []A) error) ([]A, error) {
	as := make([]A, len(qs))
	valid := make([]int, 0, len(qs))
	for i := range qs {
		if !b.refuse(&qs[i], &as[i]) {
			valid = append(valid, i)
		}
	}
	for _, part := range divide(valid) {
		err := answer(part, as)
		if err != nil && !errors.Is(err, dedupe.ErrBusy) {
			return nil, err
		}
		for _, i := range part {
			if err != nil {
				as[i] = b.Failed(err)
			}
		}
	}
	return as, nil
}

// Whole is one part of all; none where there is no entry.
func Whole(valid []int) [][]int {
	if len(valid) == 0 {
		return nil
	}
	return [][]int{valid}
}

// Calls are the batches of the calls that all stores have alike.
type Calls struct {
	Claims      Batch[dedupe.ClaimRequest, dedupe.Claim]
	Renewals    Batch[dedupe.Renewal, dedupe.Renewed]
	Settlements Batch[dedupe.Settlement, dedupe.Settled]
	Removals    Batch[dedupe.Forgotten, error]
}

// NewCalls makes the batches of a store, whose results and states have most bytes or fewer.
func NewCalls(store string, most int) *Calls {
	return &Calls{
		Claims: Batch[dedupe.ClaimRequest, dedupe.Claim]{
			store:  store,
			check:  (*dedupe.ClaimRequest).Validate,
			Failed: func(err error) dedupe.Claim { return dedupe.Claim{Err: err} },
		},
		Renewals: Batch[dedupe.Renewal, dedupe.Renewed]{
			store: store,
			check: func(n *dedupe.Renewal) error {
				return cmp.Or(n.Validate(), CheckSize("Renewal.State", n.State, most))
			},
			Failed: func(err error) dedupe.Renewed { return dedupe.Renewed{Err: err} },
		},
		Settlements: Batch[dedupe.Settlement, dedupe.Settled]{
			store: store,
			check: func(t *dedupe.Settlement) error {
				return cmp.Or(t.Validate(), CheckSize("Settlement.Result", t.Result, most))
			},
			Failed: func(err error) dedupe.Settled { return dedupe.Settled{Err: err} },
		},
		Removals: Batch[dedupe.Forgotten, error]{
			store:  store,
			check:  func(f *dedupe.Forgotten) error { return f.Key.Validate() },
			Failed: func(err error) error { return err },
		},
	}
}
