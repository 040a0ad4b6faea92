package firestorestore

import (
	"context"
	"iter"

	"cloud.google.com/go/firestore"
	apiv1 "cloud.google.com/go/firestore/apiv1"

	"github.com/onceq/onceq/dedupe"
)

// Options tune a [Store]. The zero value and nil are usable.
type Options struct {
	// TTLField is the timestamp by which a TTL policy deletes what has expired. Default
	// "expires_at".
	TTLField string
	// Sweep lets [Store.Sweep] remove expired records, for a database without a TTL policy.
	Sweep bool
}

// Store keeps records in a Firestore collection. Make one with [New].
type Store struct {
	client *firestore.Client
	api    *apiv1.Client
}

var _ dedupe.Store = (*Store)(nil)

// New returns a store in collection of client's database. It does no I/O.
func New(client *firestore.Client, api *apiv1.Client, collection string, o *Options) (*Store, error) {
	return &Store{client: client, api: api}, nil
}

// Claim tries to win each key.
func (s *Store) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	return nil, dedupe.ErrClosed
}

// Renew prolongs leases.
func (s *Store) Renew(ctx context.Context, ns []dedupe.Renewal) ([]dedupe.Renewed, error) {
	return nil, dedupe.ErrClosed
}

// Settle ends claims.
func (s *Store) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	return nil, dedupe.ErrClosed
}

// Get reads records.
func (s *Store) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	return nil, dedupe.ErrClosed
}

// List goes through records in the order of their keys.
func (s *Store) List(ctx context.Context, q dedupe.Query) iter.Seq2[*dedupe.Record, error] {
	return func(func(*dedupe.Record, error) bool) {}
}

// Forget removes records.
func (s *Store) Forget(ctx context.Context, fs []dedupe.Forgotten) ([]error, error) {
	return nil, dedupe.ErrClosed
}

// Commit makes the writes of f and completes job in one transaction.
func (s *Store) Commit(ctx context.Context, job dedupe.Owned, result any, f func(context.Context, *firestore.Transaction) error) error {
	return dedupe.ErrClosed
}

// Sweep removes expired records where Options.Sweep says so.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) { return 0, nil }

// Limits says what the store can hold.
func (s *Store) Limits() dedupe.Limits { return dedupe.Limits{MaxResult: 1 << 20, MaxBatch: 500, Durable: true} }

// Close ends the store.
func (s *Store) Close() error { return nil }
