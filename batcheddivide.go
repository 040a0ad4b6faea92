package onceq

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns BatchedOptions.Divide: how a call that failed for all of its jobs is divided. The
// goroutine that has taken the batch calls divide. Each call of the user's function has a goroutine
// of its own, because it may end that. There is no lock.

// wholeParts is how many parts may fail as a whole before one does not: both halves, and all
// quarters.
const wholeParts = 6

// divide calls the user's function for the jobs at these places, or for all where at is nil, and
// where that fails for all of them, for parts of them. It goes by levels, both halves before a
// quarter. So the parts without a bad job are done early, and an outage shows early.
func (b *gathering) divide(at []int) {
	if at == nil {
		at = make([]int, len(b.jobs))
		for i := range at {
			at[i] = i
		}
	}
	failed, some := 0, false
	for parts := [][]int{at}; len(parts) > 0; parts = parts[1:] {
		part := parts[0]
		if failed > 0 {
			part = b.repeatable(part)
		}
		if len(part) == 0 || failed > wholeParts && !some && !b.isLastTry(part) {
			continue
		}
		b.callApart(part)
		if !b.hasFailed(part) {
			some = true
			continue
		}
		failed++
		if n := len(part) / 2; n > 0 {
			parts = append(parts, part[:n], part[n:])
		}
	}
}

// callApart is callUser in a goroutine of its own.
func (b *gathering) callApart(part []int) {
	for _, i := range part {
		b.errs[i] = nil
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		b.callUser(part)
	}()
	<-over
	for _, i := range part {
		if b.ctxs[i].Err() != nil { // its error may be the end of its context in other words
			if b.cut == nil {
				b.cut = make(map[int]bool)
			}
			b.cut[i] = true
		}
	}
}

// hasFailed reports whether each of these jobs was answered an error.
func (b *gathering) hasFailed(part []int) bool {
	for _, i := range part {
		if b.errs[i] == nil {
			return false
		}
	}
	return true
}

// repeatable are those of the jobs, all of which have failed, for which the function may be called
// again.
func (b *gathering) repeatable(part []int) (again []int) {
	for _, i := range part {
		err, parks := b.errs[i], b.parks(i)
		var unknown *verdict.UnknownError
		var later *verdict.RetryError
		switch {
		case parks && errors.As(err, &unknown), errors.As(err, &later):
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		case b.ctxs[i].Err() == nil:
			again = append(again, i)
		case parks && !b.cut[i] && errors.Is(context.Cause(b.ctxs[i]), verdict.ErrDraining):
			// The function has said that nothing happened, and said so before the context ended.
			// Otherwise the end of the context would leave that open, and park the job.
			b.errs[i] = &verdict.NotBegunError{Err: fmt.Errorf("onceq: it failed with its whole batch, and its context ended before it was tried in a smaller one: %w", err)}
		}
	}
	return again
}

func (b *gathering) parks(i int) bool {
	r := b.jobs[i].r
	return r != nil && r.Opts.Policy == dedupe.Park && r.Fence != 0
}

// isLastTry reports whether one of the jobs has no attempt left.
func (b *gathering) isLastTry(part []int) bool {
	for _, i := range part {
		if r := b.jobs[i].r; r != nil && r.Opts.Most > 0 && r.Attempt >= r.Opts.Most {
			return true
		}
	}
	return false
}
