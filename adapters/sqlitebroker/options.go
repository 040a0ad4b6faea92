package sqlitebroker

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/onceq/onceq/internal/records"
	"github.com/onceq/onceq/internal/tablequeue"
)

// Options tune a [Queue]. The zero value and nil are usable.
type Options struct {
	// Table is the name of the table of messages; its companions are named after it. Any number of
	// queues share one table. Letters, digits and underscores, not beginning with a digit, at most
	// 48 bytes. Default "onceq_messages".
	Table string
	// Visibility is how long a received message stays hidden when the receive does not say: 100 ms
	// to 12 h. Default 30 s.
	Visibility time.Duration
	// Poll is how often a waiting Receive looks for what other processes have sent, and for what
	// was committed here without a [Queue.Wake]: 5 ms to 10 s. All receives of a queue in a process
	// share one look. Default 100 ms. What is sent through a Queue of the same [sqlitestore.Store]
	// is found at once, whatever Poll is, and so is what becomes due.
	//
	// [sqlitestore.Store]: https://pkg.go.dev/github.com/onceq/onceq/dedupe/sqlitestore#Store
	Poll time.Duration
	// MaxReceives moves a message to the queue DeadLetters, instead of delivering it once more,
	// when it was received so often and not acked: 1 to 1,000,000. Default 0: never.
	MaxReceives int
	// DeadLetters is the name of that queue, in the same table. It is needed with MaxReceives, and
	// refused without.
	DeadLetters string
	// MaxBody is the most bytes of a body: 1 to 64 MiB. Default 1 MiB.
	MaxBody int
}

const defaultTable = "onceq_messages"

// complete fills in the defaults and refuses the rest.
func (o *Options) complete(queue string) (table string, s tablequeue.Settings, err error) {
	table = cmp.Or(o.Table, defaultTable)
	if err := records.CheckName("sqlitebroker: Options.Table", table); err != nil {
		return "", s, err
	}
	if strings.HasPrefix(strings.ToLower(table), "sqlite_") {
		return "", s, fmt.Errorf("sqlitebroker: Options.Table is %q; names that begin with sqlite_ are SQLite's own", table)
	}
	s, err = tablequeue.Settings{
		Driver: "sqlitebroker", Database: "SQLite", Visibility: o.Visibility, Poll: o.Poll,
		MaxBody: o.MaxBody, MaxReceives: o.MaxReceives, DeadLetters: o.DeadLetters,
	}.Complete(queue)
	return table, s, err
}
