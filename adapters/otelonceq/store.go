package otelonceq

import (
	"context"
	"errors"
	"iter"
	"path"
	"reflect"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/values"
)

// This file owns the decorated store: how long its calls take, and how they end. A worker's
// carriers call it, and beats do. It keeps no state.

// Store is s with store_call_seconds. Every optional interface of s, such as dedupe.Sweeper, is
// found through it by broker.As. What a store has beyond the contract, such as pgstore's CompleteTx
// and Commit, is called on the store itself: it works on jobs that were claimed through the
// decorated one. nil stays nil.
func (t *Telemetry) Store(s dedupe.Store) dedupe.Store {
	if values.IsNil(s) {
		return s
	}
	return &store{Store: s, t: t, name: storeName(s)}
}

// storeName is the package of the innermost store: pgstore, dynamostore.
func storeName(s any) string {
	for range 8 {
		w, ok := s.(interface{ Unwrap() any })
		if !ok {
			break
		}
		s = w.Unwrap()
	}
	typ := reflect.TypeOf(s)
	for typ != nil && typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ == nil || typ.PkgPath() == "" {
		return unknown
	}
	return label(path.Base(typ.PkgPath()))
}

type store struct {
	dedupe.Store
	t    *Telemetry
	name string
}

// Unwrap is what is decorated.
func (s *store) Unwrap() any { return s.Store }

func (s *store) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	began := time.Now()
	cs, err := s.Store.Claim(ctx, rs)
	s.called(began, "claim", whole(err, cs, func(c *dedupe.Claim) error { return c.Err }))
	return cs, err
}

func (s *store) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	began := time.Now()
	as, err := s.Store.Renew(ctx, rs)
	s.called(began, "renew", whole(err, as, func(a *dedupe.Renewed) error { return a.Err }))
	return as, err
}

func (s *store) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	began := time.Now()
	as, err := s.Store.Settle(ctx, ss)
	s.called(began, "settle", whole(err, as, func(a *dedupe.Settled) error { return a.Err }))
	return as, err
}

func (s *store) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	began := time.Now()
	rs, err := s.Store.Get(ctx, ks)
	s.called(began, "get", err)
	return rs, err
}

func (s *store) Forget(ctx context.Context, fs []dedupe.Forgotten) ([]error, error) {
	began := time.Now()
	as, err := s.Store.Forget(ctx, fs)
	s.called(began, "forget", whole(err, as, func(a *error) error { return *a }))
	return as, err
}

// List is timed until its last record, so the time of who reads them is in it.
func (s *store) List(ctx context.Context, q dedupe.Query) iter.Seq2[*dedupe.Record, error] {
	return func(yield func(*dedupe.Record, error) bool) {
		began := time.Now()
		var last error
		for r, err := range s.Store.List(ctx, q) {
			if err != nil {
				last = err
			}
			if !yield(r, err) {
				break
			}
		}
		s.called(began, "list", last)
	}
}

// whole is the error of the call, or of the first entry whose error is one of the store. What the
// store answers as it should, such as a lost lease, is no error of it.
func whole[A any](err error, as []A, of func(*A) error) error {
	if err != nil {
		return err
	}
	for i := range as {
		if err := of(&as[i]); err != nil && !answer(err) {
			return err
		}
	}
	return nil
}

// answer reports whether an entry's error is the answer that the contract asks for.
func answer(err error) bool {
	return errors.Is(err, dedupe.ErrLeaseLost) || errors.Is(err, dedupe.ErrBusy) || errors.Is(err, dedupe.ErrResultSize) ||
		errors.Is(err, dedupe.ErrBadKey) || errors.Is(err, dedupe.ErrBadRequest)
}

func (s *store) called(began time.Time, operation string, err error) {
	defer s.t.survive()
	k := storeOperation{s.name, operation, "ok"}
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		k.outcome = "timeout"
	default:
		k.outcome = "error"
	}
	of, ok := s.t.stores.get(k)
	if !ok {
		of = s.t.stores.add(k, func() set {
			return newSet(labelStore.String(k.store), labelOperation.String(k.operation), labelOutcome.String(k.outcome))
		})
	}
	record(background, s.t.m.storeCall, time.Since(began).Seconds(), of)
}
