package pgbroker

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
	"github.com/onceq/onceq/internal/tablequeue/tabletest"
)

// What the tests of the store say, too.
var (
	openPool = pgtest.Pool
	poolOn   = pgtest.PoolOn
	exec     = pgtest.Exec
	until    = pgtest.Until
	newRole  = pgtest.NewRole
)

// What the tests of all queues in tables say.
var (
	bodies = tabletest.Bodies
	send   = tabletest.Send
	take   = tabletest.Take
	none   = tabletest.None
	ack    = tabletest.Ack
)

// newQueue makes a queue with its table, which may be there already.
func newQueue(tb testing.TB, db DB, name string, o *Options) *Queue {
	tb.Helper()
	q := must.Get(New(db, name, o))
	if err := q.Migrate(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := q.Close(); err != nil {
			tb.Error(err)
		}
	})
	return q
}

var queues atomic.Int64

// newName is a queue's name that no other test of the process has.
func newName() string { return fmt.Sprintf("queue-%d", queues.Add(1)) }

func contextFor(tb testing.TB, d time.Duration) (context.Context, context.CancelFunc) {
	tb.Helper()
	return context.WithTimeout(tb.Context(), d)
}
