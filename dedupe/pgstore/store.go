package pgstore

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/records"
)

// This file owns the store's state, its limits, and how a call's entries are divided into
// statements. A Store may be used by many goroutines: its fields are set by New, or atomic. Rows
// are locked by the database alone.

const (
	// maxBatch keeps one statement short enough for its neighbours on the server.
	maxBatch = 500
	// maxResult is far below what PostgreSQL holds, because each duplicate reads the result.
	maxResult = 1 << 20
	// maxBytes of results or states go out in one statement.
	maxBytes = 8 << 20
)

// calls are how entries are refused, and answered where they fail.
var calls = records.NewCalls("pgstore", maxResult)

// DB is the pool of connections, a [*pgxpool.Pool] or what wraps one: its methods may be called
// from many goroutines.
//
// [*pgxpool.Pool]: https://pkg.go.dev/github.com/jackc/pgx/v5/pgxpool#Pool
type DB interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// Options tune a [Store]. The zero value and nil are usable.
type Options struct {
	// Table is the name of the table of records, alone or with its schema ("jobs.records"); the
	// index and the sequence of fences beside it are named after it. Each part has letters, digits
	// and underscores, no digit first, and at most 48 bytes; case counts. Default "onceq_dedupe".
	//
	// Name the schema if others may create in a schema of the search_path; see the package
	// comment. Without a schema the connection's search_path decides where [Store.Migrate] finds
	// or makes the table, and the store then names that schema in each statement. If Migrate is
	// not called, each connection decides, also that of a [Store.CompleteTx], so all must have the
	// same path.
	Table string
}

// Store keeps records in a PostgreSQL table. Make one with [New].
type Store struct {
	db            DB
	schema, table string // as Options.Table has them
	// st is replaced by Migrate, which finds the schema where Options.Table names none.
	st     atomic.Pointer[statements]
	closed atomic.Bool
	// firstFence is that of the first completion in a transaction; 0 before it.
	firstFence atomic.Uint64
	// insertWait is the constant. Tests that look into a wait make it longer.
	insertWait time.Duration
}

var _ dedupe.Store = (*Store)(nil)

func (s *Store) sql() *statements { return s.st.Load() }

// Close ends the store: later calls answer [dedupe.ErrClosed]. Calls under way go on, and the pool
// stays open, because it is the user's. It may be called more than once.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}

// Limits says what the store can hold.
func (s *Store) Limits() dedupe.Limits {
	return dedupe.Limits{MaxResult: maxResult, MaxBatch: maxBatch, Durable: true, OrderedFences: true}
}

// ready tells why a call of n entries cannot begin.
func (s *Store) ready(ctx context.Context, n int) error {
	return records.Ready(ctx, "pgstore", s.closed.Load(), n, maxBatch)
}

// arrange divides entries, given by position, into statements. In each statement a key stands once,
// and the keys are in order, so that no two statements wait for each other in opposite orders. The
// blobs of a statement are of a size that the server takes. Entries of one key keep their order.
func arrange(at []int, key func(i int) *dedupe.Key, size func(i int) int) [][]int {
	compare := func(a, b int) int { return compareKeys(key(a), key(b)) }
	if !slices.IsSortedFunc(at, compare) {
		slices.SortStableFunc(at, compare)
	}
	var parts [][]int
	for len(at) > 0 {
		part, again := at[:0:0], []int(nil)
		bytes := 0
		for n, i := range at {
			if n > 0 && *key(at[n-1]) == *key(i) {
				again = append(again, i)
				continue
			}
			if bytes += size(i); bytes > maxBytes && len(part) > 0 {
				parts, part, bytes = append(parts, part), nil, size(i)
			}
			if part == nil {
				part = make([]int, 0, len(at)-n)
			}
			part = append(part, i)
		}
		parts, at = append(parts, part), again
	}
	return parts
}

func compareKeys(a, b *dedupe.Key) int {
	if a.Scope != b.Scope {
		return strings.Compare(a.Scope, b.Scope)
	}
	return strings.Compare(a.Key, b.Key)
}
