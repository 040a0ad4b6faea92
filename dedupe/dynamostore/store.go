package dynamostore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/records"
)

const (
	// maxBatch keeps a call's requests few enough for one connection each.
	maxBatch = 100
	// parallel is how many requests of one call are under way at once.
	parallel = 50
	// maxItem is DynamoDB's limit on an item, names and values together.
	maxItem = 400 << 10
	// maxResult leaves the rest of the item to the key, the owner, the message id and the times.
	maxResult = maxItem - 10<<10
	// maxLabels bounds what a claim brings besides its key, so that a record with the largest state
	// can be claimed again and settled. With the longest key and scope 961 bytes are left for the
	// names (an expiry's has up to 255), the times and three errors of tightErr bytes.
	maxLabels = 8000
	// margin is added to each lease, because two clocks may both be off. Each is off by half of the
	// margin at most: half a second that a Date header leaves open, and half of the time that its
	// answer took.
	margin = 2 * time.Second
)

// Store keeps records in a DynamoDB table. Make one with [New].
type Store struct {
	client *dynamodb.Client
	table  string
	ttl    string
	// attentionIndex is the name of the index; empty = none.
	attentionIndex string

	clock  clock
	closed atomic.Bool
	// keySeen: the table has the key that the store needs, because DynamoDB has taken a request
	// that names the key.
	keySeen atomic.Bool
	written writtenCommits
	// leaveOut lets tests take one clause out of one kind of write; see clause.
	leaveOut func(kind string, c *clause) bool
}

var _ dedupe.Store = (*Store)(nil)

// Close ends the store: later calls answer [dedupe.ErrClosed]. Calls under way go on. It may be
// called more than once.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}

// Limits says what the store can hold.
func (s *Store) Limits() dedupe.Limits {
	return dedupe.Limits{MaxResult: maxResult, MaxBatch: maxBatch, Durable: true}
}

// ready tells why a call of n entries cannot begin.
func (s *Store) ready(ctx context.Context, n int) error {
	return records.Ready(ctx, "dynamostore", s.closed.Load(), n, maxBatch)
}

// each calls do for 0 to n-1, many at once. So entries do not wait for each other, and a batch
// takes no longer than its slowest write.
func each(n int, do func(i int)) {
	var next atomic.Int64
	work := func() {
		for {
			i := int(next.Add(1) - 1)
			if i >= n {
				return
			}
			do(i)
		}
	}
	var wg sync.WaitGroup
	for range min(n, parallel) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}

// silent marks an error that says nothing of the entry: nobody knows whether it was applied, or the
// error is of the call or the service.
type silent struct{ error }

func (e silent) Unwrap() error { return e.error }

// answers makes a call of entries, each with writes of its own, all at once. one answers an entry
// and returns its error a second time, so that answers can see it.
func answers[Q, A any](ctx context.Context, s *Store, qs []Q, one func(*Q) (A, error)) ([]A, error) {
	if err := s.ready(ctx, len(qs)); err != nil {
		return nil, err
	}
	as, errs := make([]A, len(qs)), make([]error, len(qs))
	each(len(qs), func(i int) { as[i], errs[i] = one(&qs[i]) })
	if err := unanswered(errs); err != nil {
		return nil, err
	}
	return as, nil
}

// unanswered is the error of a whole call in which no entry had an answer.
func unanswered(errs []error) error {
	for _, err := range errs {
		if !errors.As(err, new(silent)) {
			return nil
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}
