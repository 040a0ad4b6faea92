package pgbroker

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/internal/records"
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
	// good. Nothing is ever notified within the transaction of a [Queue.Tx], because a pending
	// notification holds a lock over all commits of the server; call [Queue.Wake] after the commit.
	// It needs a [*pgxpool.Pool] that leads to the server itself, not through a pooler in
	// transaction mode. Default false: Poll alone.
	//
	// [*pgxpool.Pool]: https://pkg.go.dev/github.com/jackc/pgx/v5/pgxpool#Pool
	Notify bool
	// MaxReceives moves a message to the queue DeadLetters, instead of delivering it once more,
	// when it was received so often and not acked: 1 to 1,000,000. Default 0: never.
	MaxReceives int
	// DeadLetters is the name of that queue, in the same table. It is needed with MaxReceives, and
	// refused without.
	DeadLetters string
	// MaxBody is the most bytes of a body: 1 to 64 MiB. Default 1 MiB.
	MaxBody int
}

const (
	defaultTable      = "onceq_messages"
	defaultVisibility = 30 * time.Second
	defaultPoll       = 100 * time.Millisecond
	defaultMaxBody    = 1 << 20

	minHold, maxHold = 100 * time.Millisecond, 12 * time.Hour
	minPoll, maxPoll = 5 * time.Millisecond, 10 * time.Second
	maxBody          = 64 << 20
	maxReceives      = 1_000_000
	// longest is the longest delay: years, and no overflow.
	longest = 10 * 365 * 24 * time.Hour
	// maxQueue and maxGroup keep an entry of the group's index within the 2,704 bytes that a B-tree
	// takes.
	maxQueue, maxGroup = 255, 1024
)

// complete fills in the defaults and refuses the rest.
func (o Options) complete(queue string) (Options, error) {
	o.Table = cmp.Or(o.Table, defaultTable)
	o.Visibility = cmp.Or(o.Visibility, defaultVisibility)
	o.Poll = cmp.Or(o.Poll, defaultPoll)
	o.MaxBody = cmp.Or(o.MaxBody, defaultMaxBody)
	switch {
	case o.Visibility < minHold || o.Visibility > maxHold:
		return o, fmt.Errorf("pgbroker: Options.Visibility: %v is not within %v and %v%s", o.Visibility, minHold, maxHold, unitHint(o.Visibility, minHold))
	case o.Poll < minPoll || o.Poll > maxPoll:
		return o, fmt.Errorf("pgbroker: Options.Poll: %v is not within %v and %v%s", o.Poll, minPoll, maxPoll, unitHint(o.Poll, minPoll))
	case o.MaxBody < 0 || o.MaxBody > maxBody:
		return o, fmt.Errorf("pgbroker: Options.MaxBody: %d is not within 1 and %d", o.MaxBody, maxBody)
	case o.MaxReceives < 0 || o.MaxReceives > maxReceives:
		return o, fmt.Errorf("pgbroker: Options.MaxReceives: %d is not within 0 and %d", o.MaxReceives, maxReceives)
	case o.MaxReceives == 0 && o.DeadLetters != "":
		return o, fmt.Errorf("pgbroker: Options.MaxReceives: 0, which moves nothing to the queue %q of Options.DeadLetters; set it, to 10 for instance", o.DeadLetters)
	case o.MaxReceives > 0 && o.DeadLetters == "":
		return o, errors.New("pgbroker: Options.DeadLetters: empty; it names the queue that takes what was received Options.MaxReceives times")
	case o.MaxReceives > 0 && o.DeadLetters == queue:
		return o, fmt.Errorf("pgbroker: Options.DeadLetters: %q is the queue itself", queue)
	}
	if o.MaxReceives > 0 {
		return o, checkQueue("Options.DeadLetters", o.DeadLetters)
	}
	return o, nil
}

// unitHint asks about durations that were written without their unit.
func unitHint(d, least time.Duration) string {
	if d > 0 && d < least && d < time.Microsecond {
		return "; is its unit missing?"
	}
	return ""
}

// checkQueue refuses a queue's name that the table cannot hold.
func checkQueue(field, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("pgbroker: %s: the queue's name is empty", field)
	case len(name) > maxQueue:
		return fmt.Errorf("pgbroker: %s: the queue's name has %d bytes, the limit is %d", field, len(name), maxQueue)
	}
	if why := notText(name); why != "" {
		return fmt.Errorf("pgbroker: %s: the queue's name %q has %s, which PostgreSQL's text cannot hold", field, name, why)
	}
	return nil
}

// notText says what of s PostgreSQL's text cannot hold; empty when it can.
func notText(s string) string {
	switch {
	case strings.IndexByte(s, 0) >= 0:
		return "a NUL"
	case !utf8.ValidString(s):
		return "bytes that are not UTF-8"
	}
	return ""
}

// splitTable finds names that cannot stand in a statement as they are.
func splitTable(name string) (schema, table string, err error) {
	table = name
	if before, after, ok := strings.Cut(name, "."); ok {
		schema, table = before, after
		if err := records.CheckName("pgbroker: Options.Table: the name of the schema", schema); err != nil {
			return "", "", err
		}
		if strings.HasPrefix(schema, "pg_") || schema == "information_schema" {
			return "", "", fmt.Errorf("pgbroker: Options.Table is %q; the schema %s is PostgreSQL's own", name, schema)
		}
	}
	return schema, table, records.CheckName("pgbroker: Options.Table: the name of the table", table)
}

// micros is a duration as the statements take it, rounded up: what was granted is never cut.
func micros(d time.Duration) int64 {
	n := d / time.Microsecond
	if d%time.Microsecond > 0 {
		n++
	}
	return int64(n)
}
