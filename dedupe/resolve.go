package dedupe

import (
	"context"
	"fmt"
)

// Resolve is an operator's word on a parked record: to Done, the effect happened (result is kept as
// the job's; nil = none); to Failed, it did not and shall not; to Released, it did not, and the
// job's next message runs it. fence is the record's, as its dead letter has it: a record that was
// parked anew since, or is not parked any more, is not touched, and the error, which wraps
// [ErrLeaseLost], says what it is. A repeat after an answer that was lost is nil where the word has
// been written.
//
// The dead letter stays in its queue: replaying it finds the job done, or failed. To run the job
// again, replaying it is enough, and the word Released alone is not: the job's message was acked
// when it was parked, so the job has a next message only where its letter is replayed, where its
// queue kept the message, or where a caller of Do comes again.
func Resolve(ctx context.Context, s Store, k Key, fence uint64, to Status, result []byte) error {
	if to != Done && to != Failed && to != Released {
		return fmt.Errorf("%w: Resolve: to is %v, want done, failed or released", ErrBadRequest, to)
	}
	rs, err := s.Get(ctx, []Key{k})
	if err != nil {
		return err
	}
	if len(rs) != 1 || rs[0] == nil {
		return fmt.Errorf("%w: %v has no record", ErrLeaseLost, k)
	}
	r := rs[0]
	switch {
	case r.Fence != fence:
		return fmt.Errorf("%w: %v is %v with fence %d, not %d", ErrLeaseLost, k, r.Status, r.Fence, fence)
	case r.Status == to:
		return nil
	case r.Status != Parked:
		return fmt.Errorf("%w: %v is %v, not parked", ErrLeaseLost, k, r.Status)
	}
	t := Settlement{Key: k, Token: r.Token, To: to, Result: result, Unparks: true}
	if to != Done {
		t.ErrClass, t.ErrText = r.ErrClass, r.LastErr
	}
	as, err := s.Settle(ctx, []Settlement{t})
	switch {
	case err != nil:
		return err
	case len(as) != 1:
		return fmt.Errorf("%w: the store answered %d of 1 settlements", ErrBadRequest, len(as))
	case as[0].Err != nil:
		return as[0].Err
	case as[0].Status != to:
		return fmt.Errorf("%w: %v became %v meanwhile", ErrLeaseLost, k, as[0].Status)
	}
	return nil
}
