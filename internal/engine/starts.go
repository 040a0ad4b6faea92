package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns the starts that handlers have recorded themselves, because they wait before they
// do anything. The goroutine that begins for all of these runs calls ConfirmStarts, while theirs
// wait for it. It holds no lock. confirmStart (work.go) is the same for one run whose handler does
// not wait.

// ConfirmStarts records, under Park, that handlers which have waited are about to begin. The runs
// may be of several engines. errs[i] says why the i-th must not begin; nil = it may, as far as its
// record is concerned. What it answers has not begun, so it is neither an attempt nor in doubt.
func ConfirmStarts[J any](rs []*Run[J]) (errs []error) {
	errs = make([]error, len(rs))
	var left []int
	for i, r := range rs {
		if r.Opts.StartsLater && r.Opts.Policy == dedupe.Park && r.Fence != 0 {
			left = append(left, i)
		}
	}
	for len(left) > 0 {
		en := rs[left[0]].f.en
		var own, others []int
		for _, i := range left {
			if rs[i].f.en == en {
				own = append(own, i)
			} else {
				others = append(others, i)
			}
		}
		en.confirmStarts(rs, own, errs)
		left = others
	}
	return errs
}

// confirmStarts is ConfirmStarts for the runs at these places, which are of this engine.
func (en *Engine[J]) confirmStarts(rs []*Run[J], at []int, errs []error) {
	var calls sync.WaitGroup
	turn := make(chan struct{}, storeFlight)
	for part := range slices.Chunk(at, min(en.o.Store.Limits().MaxBatch, MaxStoreBatch)) {
		turn <- struct{}{}
		calls.Go(func() {
			defer func() { <-turn }()
			en.confirmPart(rs, part, errs)
		})
	}
	calls.Wait()
}

// confirmPart asks the store until it has confirmed the starts. It gives up those whose flow has
// stopped or paused, and all that are left after SettleTimeout: they come again, and nobody else of
// their batch waits for them any longer.
func (en *Engine[J]) confirmPart(rs []*Run[J], at []int, errs []error) {
	begin := time.Now()
	for n := 1; ; n++ {
		asked := make([]*Run[J], len(at))
		for k, i := range at {
			asked[k] = rs[i]
		}
		answers := en.askStarts(asked, n)
		again := at[:0:0]
		for k, i := range at {
			switch err := answers[k]; {
			case err == nil:
				errs[i] = nil
			case errors.Is(err, verdict.ErrTaken):
				asked[k].stopHandler(verdict.ErrTaken)
				errs[i] = err
			default:
				errs[i] = err
				if asked[k].MayBegin() && time.Since(begin) < en.o.SettleTimeout {
					again = append(again, i)
				}
			}
		}
		if len(again) == 0 {
			return
		}
		at = again
		retry.Rest(context.Background(), min(retry.Pause(n), time.Second)) // a drain waits for it
	}
}

// askStarts makes the n-th call, or one for each run where the calls before have failed for all of
// them: one record on which the call fails must not keep the others from beginning.
func (en *Engine[J]) askStarts(rs []*Run[J], n int) (errs []error) {
	errs, err := en.askSomeStarts(rs)
	if err == nil {
		return errs
	}
	if dividable(rs, err, func(*Run[J]) int { return n }) {
		errs, _ = apart(rs, err, func(i int) error {
			one, err := en.askSomeStarts(rs[i : i+1])
			if err == nil {
				err = one[0]
			}
			return err
		})
		return errs
	}
	return slices.Repeat([]error{err}, len(rs))
}

// askSomeStarts makes one call. An error that is ErrTaken means that the claim is somebody else's.
func (en *Engine[J]) askSomeStarts(rs []*Run[J]) ([]error, error) {
	starts := make([]dedupe.Renewal, len(rs))
	for i, r := range rs {
		starts[i] = dedupe.Renewal{Key: r.Key, Token: r.Token, TTL: en.leaseFor(r), Started: true}
	}
	ctx := CallContext(context.Background(), en.o.CallTimeout)
	defer ctx.Close()
	answers, err := en.askRenewal(ctx, starts)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(rs))
	for i, r := range rs {
		switch e := answers[i].Err; {
		case e == nil:
			en.renewed(r, answers[i].Deadline)
		case errors.Is(e, dedupe.ErrLeaseLost):
			errs[i] = verdict.ErrTaken
		default:
			errs[i] = e
		}
	}
	return errs, nil
}
