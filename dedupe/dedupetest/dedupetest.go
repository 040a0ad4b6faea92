// Package dedupetest checks that a store keeps the contract of package dedupe.
//
// A store's test is one call:
//
//	func TestConformance(t *testing.T) {
//		dedupetest.Run(t, dedupetest.Harness{
//			Open: func(t testing.TB) dedupetest.Subject {
//				db := openEmptyDatabase(t)
//				return dedupetest.Subject{
//					Store: mystore.New(db),
//					Age:   func(t testing.TB, k dedupe.Key, d time.Duration) { /* one UPDATE */ },
//				}
//			},
//		})
//	}
//
// The suite runs the store and, beside it, the tables of package dedupe as pure code. After each
// call it compares the answer and the record. It tries:
//
//   - every row of the tables, in every situation that leads to it
//   - long random walks
//   - what the tables cannot say: many callers at once, second handles, transactions, sizes, keys,
//     listings
//
// Each case is a subtest with a store of its own, and each failure names the rule that was broken.
// The suite does not test what the harness cannot do. It reports such a case as ruled out, and the
// last line of the log counts them.
package dedupetest

import (
	"context"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/suite"
)

// Harness tells the suite how to open stores. Open is required.
type Harness struct {
	// Open opens a store that is empty and used by one case alone, and releases it through
	// t.Cleanup. It is called inside the case's bubble when Virtual is set.
	Open func(t testing.TB) Subject
	// Virtual runs each case in a testing/synctest bubble, where records age by themselves. The
	// store must take its time from time.Now and block on channels, timers and mutexes only.
	// Otherwise cases run in real time and in parallel, and records age through Subject.Age.
	Virtual bool
	// Seed makes the random walks repeatable; 0 = a new one each time. A failure prints it.
	Seed uint64
	// Known names the cases in which what stands for the database is known to differ, with
	// the reason. Such a case must fail: when it passes, the suite asks for its removal.
	Known map[string]string
}

// Subject is a store under test. Store is required; a nil hook rules out the cases that need it.
type Subject struct {
	Store dedupe.Store
	// Age moves every time of k's record d into the past, as though d had gone by since. Where
	// there is no record it does nothing. Nothing outside the suite, such as a database's own TTL,
	// may delete what has expired only by this: the fence would be gone, and a store may promise
	// that it rises only after a real retention. Required unless Harness.Virtual is set, and not
	// used then.
	Age func(t testing.TB, k dedupe.Key, d time.Duration)
	// Second opens the same data once more, as another process would, and releases it through
	// t.Cleanup.
	Second func(t testing.TB) dedupe.Store
	// Begin begins a transaction on the database that holds the records. The database has a user's
	// table. Rows is required with Begin.
	Begin func(t testing.TB) Tx
	// Rows answers the rows of the user's table that are committed, in any order.
	Rows func(t testing.TB) []string
	// Close closes the store, as its owner would.
	Close func() error
}

// Tx is a user's transaction. All of its functions are required; exactly one of Commit and
// Rollback is called, once, at the end.
type Tx struct {
	// Insert puts a row into the user's table.
	Insert func(row string) error
	// Complete completes job through the store within the transaction. The record's Result then
	// holds these bytes, which are compact JSON.
	Complete func(ctx context.Context, job dedupe.Owned, result []byte) error
	// Commit and Rollback end the transaction. A database that gathers a transaction and checks it
	// at the end answers Commit with the error.
	Commit, Rollback func() error
}

// Run checks the store that h opens, one subtest for each case.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.Open == nil {
		t.Fatal("dedupetest: Harness.Open is nil")
	}
	h.suite().Run(t)
}

// suite are the cases, on h.
func (h Harness) suite() *suite.Suite[*env, struct{}] {
	return &suite.Suite[*env, struct{}]{
		Name: "dedupetest", Virtual: h.Virtual, Known: h.Known, Cases: cases(),
		Open: func(e *suite.Env, _ struct{}) *env { return newEnv(e, h) },
	}
}
