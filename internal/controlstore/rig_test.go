package controlstore_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

func newStore(tb testing.TB) *memstore.Store {
	tb.Helper()
	s, err := memstore.New(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

var errCut = errors.New("the store does not answer")

// tapped is a store whose calls are counted, and may be made to fail: before is asked for each call
// by its name, and whether it is to be applied all the same.
type tapped struct {
	dedupe.Store
	mu      sync.Mutex
	calls   map[string]int
	entries map[string]int
	cut     func(op string, n int) (fails, applied bool)
}

func tap(s dedupe.Store) *tapped {
	return &tapped{Store: s, calls: map[string]int{}, entries: map[string]int{}}
}

// count counts a call.
func (s *tapped) count(op string, entries int) (fails, applied bool) {
	s.mu.Lock()
	s.calls[op]++
	s.entries[op] += entries
	n, cut := s.calls[op], s.cut
	s.mu.Unlock()
	if cut == nil {
		return false, true
	}
	return cut(op, n)
}

// counts are the calls, and their entries, since the last reset.
func (s *tapped) counts() (calls, entries map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.calls), maps.Clone(s.entries)
}

func (s *tapped) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.calls)
	clear(s.entries)
}

func tapCall[Q, A any](s *tapped, op string, qs []Q, call func() ([]A, error)) (as []A, err error) {
	fails, applied := s.count(op, len(qs))
	if applied || !fails {
		as, err = call()
	}
	if fails {
		return nil, errCut
	}
	return as, err
}

func (s *tapped) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	return tapCall(s, "get", ks, func() ([]*dedupe.Record, error) { return s.Store.Get(ctx, ks) })
}

func (s *tapped) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	return tapCall(s, "claim", rs, func() ([]dedupe.Claim, error) { return s.Store.Claim(ctx, rs) })
}

func (s *tapped) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	return tapCall(s, "renew", rs, func() ([]dedupe.Renewed, error) { return s.Store.Renew(ctx, rs) })
}

func (s *tapped) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	return tapCall(s, "settle", ss, func() ([]dedupe.Settled, error) { return s.Store.Settle(ctx, ss) })
}

func (s *tapped) Forget(ctx context.Context, fs []dedupe.Forgotten) ([]error, error) {
	return tapCall(s, "forget", fs, func() ([]error, error) { return s.Store.Forget(ctx, fs) })
}
