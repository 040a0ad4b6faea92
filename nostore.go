package onceq

import (
	"context"
	"iter"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/values"
)

// NoStore runs jobs without dedupe: at least once. Every claim wins, with fence 0. The broker
// counts the attempts. EffectKey works. What needs a record fails: Do, Result, CompleteTx.
var NoStore dedupe.Store = noStore{}

type noStore struct{}

// isNoStore also finds a NoStore that is decorated, and one that a test has wrapped so that its
// faults befall the calls: that wrapper has no Unwrap, and says Storeless.
func isNoStore(s dedupe.Store) bool {
	n, ok := values.As[interface{ Storeless() bool }](s)
	return ok && n.Storeless()
}

func (noStore) Claim(_ context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	cs := make([]dedupe.Claim, len(rs))
	for i, r := range rs {
		cs[i] = dedupe.Claim{Outcome: dedupe.Won, Lease: dedupe.Lease{Key: r.Key, Token: r.Token}}
	}
	return cs, nil
}

func (noStore) Renew(_ context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	return make([]dedupe.Renewed, len(rs)), nil
}

func (noStore) Settle(_ context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	as := make([]dedupe.Settled, len(ss))
	for i, s := range ss {
		as[i].Status = s.To
	}
	return as, nil
}

func (noStore) Get(_ context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	return nil, ErrNoStore
}

func (noStore) List(context.Context, dedupe.Query) iter.Seq2[*dedupe.Record, error] {
	return func(yield func(*dedupe.Record, error) bool) { yield(nil, ErrNoStore) }
}

func (noStore) Forget(_ context.Context, fs []dedupe.Forgotten) ([]error, error) {
	return nil, ErrNoStore
}

// Storeless tells who knows NoStore by more than its value: see [isNoStore].
func (noStore) Storeless() bool { return true }

func (noStore) Limits() dedupe.Limits {
	return dedupe.Limits{MaxBatch: engine.MaxStoreBatch, Durable: true}
}
