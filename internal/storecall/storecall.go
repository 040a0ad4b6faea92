// Package storecall makes one call of a store for one record, and repeats it until it has an
// answer.
package storecall

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/retry"
)

// ScopeOnce is the scope of control.RunOnce and control.WithLock.
const ScopeOnce = ":once"

// tries bound how often a call that failed is repeated, over about a second and a half. A caller
// who wants to wait longer calls again: all that its callers do may be done again.
const tries = 6

// NewToken is a token that nobody else has.
func NewToken() (t dedupe.Token) {
	_, _ = rand.Read(t[:]) // it never fails
	return t
}

// repeat makes a call until it has an answer. What cannot get better is not repeated.
func repeat[A any](ctx context.Context, call func() (A, error)) (a A, err error) {
	for n := 1; ; n++ {
		a, err = call()
		switch {
		case err == nil || n == tries || !retry.Rest(ctx, retry.Pause(n)):
			return a, err
		case errors.Is(err, dedupe.ErrLeaseLost), errors.Is(err, dedupe.ErrBadKey), errors.Is(err, dedupe.ErrBadRequest),
			errors.Is(err, dedupe.ErrResultSize), errors.Is(err, dedupe.ErrClosed), errors.Is(err, dedupe.ErrFull):
			return a, err
		}
	}
}

// First is the one answer of a call. A store that gives another number of answers is broken.
func First[A any](as []A, err error) (a A, _ error) {
	if err == nil && len(as) != 1 {
		err = fmt.Errorf("control: the store gave %d answers to one entry", len(as))
	}
	if err != nil {
		return a, err
	}
	return as[0], nil
}

// Read is the record under k; nil = none.
func Read(ctx context.Context, s dedupe.Store, k dedupe.Key) (*dedupe.Record, error) {
	return repeat(ctx, func() (*dedupe.Record, error) { return First(s.Get(ctx, []dedupe.Key{k})) })
}

// ReadAll is Get for any number of keys.
func ReadAll(ctx context.Context, s dedupe.Store, ks []dedupe.Key) ([]*dedupe.Record, error) {
	rs := make([]*dedupe.Record, 0, len(ks))
	for most := max(1, s.Limits().MaxBatch); len(ks) > 0; {
		n := min(most, len(ks))
		got, err := repeat(ctx, func() ([]*dedupe.Record, error) {
			got, err := s.Get(ctx, ks[:n])
			if err == nil && len(got) != n {
				err = fmt.Errorf("control: the store gave %d answers to %d entries", len(got), n)
			}
			return got, err
		})
		if err != nil {
			return nil, err
		}
		rs, ks = append(rs, got...), ks[n:]
	}
	return rs, nil
}

// Claim claims one record.
func Claim(ctx context.Context, s dedupe.Store, q dedupe.ClaimRequest) (dedupe.Claim, error) {
	return repeat(ctx, func() (dedupe.Claim, error) {
		c, err := First(s.Claim(ctx, []dedupe.ClaimRequest{q}))
		if err == nil {
			err = c.Err
		}
		return c, err
	})
}

// Renew renews one claim.
func Renew(ctx context.Context, s dedupe.Store, n dedupe.Renewal) error {
	_, err := repeat(ctx, func() (dedupe.Renewed, error) {
		a, err := First(s.Renew(ctx, []dedupe.Renewal{n}))
		if err == nil {
			err = a.Err
		}
		return a, err
	})
	return err
}

// Settle settles one claim.
func Settle(ctx context.Context, s dedupe.Store, t dedupe.Settlement) error {
	_, err := repeat(ctx, func() (dedupe.Settled, error) {
		a, err := First(s.Settle(ctx, []dedupe.Settlement{t}))
		if err == nil {
			err = a.Err
		}
		return a, err
	})
	return err
}
