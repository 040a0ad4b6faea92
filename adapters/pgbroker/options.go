package pgbroker

import (
	"time"

	"github.com/onceq/onceq/internal/tablequeue"
)

// This file owns the options and what may stand in them. New calls complete; nothing changes
// afterwards, so nothing is locked.

// Options tune a [Queue]. The zero value and nil are usable.
type Options struct {
	// Table is the name of the table of messages, alone or with its schema ("jobs.messages"); the
	// indexes beside it are named after it. Any number of queues share one table. Each part has
	// letters, digits and underscores, no digit first, and at most 48 bytes; case counts. Default
	// "onceq_messages".
	//
	// Name the schema if others may create in a schema of the search_path; see the package comment.
	// Without a schema the connection's search_path decides where [Queue.Migrate] finds or makes
	// the table, and the queue then names that schema in each statement, also in those of
	// [Queue.Tx]. If Migrate is not called, each connection decides.
	Table string
	// Visibility is how long a received message stays hidden when the receive does not say: 100 ms
	// to 12 h. Default 30 s.
	Visibility time.Duration
	// Poll is how often a waiting Receive looks for messages: 5 ms to 10 s. All receives of a Queue
	// share one look. Default 100 ms. What is sent through the same Queue is found at once,
	// whatever Poll is.
	Poll time.Duration
	// Notify wakes the receives of other processes: Send notifies after its commit, at most 20
	// times a second, and waiting receives listen, on one connection, which leaves the pool for
	// good. Whatever others notify, at most 20 looks a second come of it. Nothing is ever notified
	// within the transaction of a [Queue.Tx], because a pending notification holds a lock over all
	// commits of the server; call [Queue.Wake] after the commit. It needs a [*pgxpool.Pool] that
	// leads to the server itself, not through a pooler in transaction mode. Default false: Poll
	// alone.
	//
	// [*pgxpool.Pool]: https://pkg.go.dev/github.com/jackc/pgx/v5/pgxpool#Pool
	Notify bool
	// MaxReceives moves a message to the queue DeadLetters, instead of delivering it once more,
	// when it was received so often and not acked: 1 to 1,000,000. Default 0: never.
	MaxReceives int
	// DeadLetters is the name of that queue, in the same table. It is needed with MaxReceives, and
	// refused without.
	DeadLetters string
	// MaxBody is the most bytes of a body: 1 to 64 MiB. Default 1 MiB. A receive has no limit on
	// bytes, so that a worker needs memory for as many of them as it receives at once.
	MaxBody int
}

const defaultTable = "onceq_messages"

// complete fills in the defaults and refuses the rest.
func (o *Options) complete(queue string) (tablequeue.Settings, error) {
	return tablequeue.Settings{
		Driver: "pgbroker", Database: "PostgreSQL", Visibility: o.Visibility, Poll: o.Poll,
		MaxBody: o.MaxBody, MaxReceives: o.MaxReceives, DeadLetters: o.DeadLetters,
	}.Complete(queue)
}
