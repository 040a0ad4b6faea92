package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
)

// kind is one of the services that the flag -queue names.
type kind struct {
	serve func(context.Context) (service, error)
	// open is given the till of the process, if there is one: a queue in SQLite has its writer.
	open  func(context.Context, place, till) (queue, dead broker.Broker, err error)
	naive func(ctx context.Context, p place, visibility time.Duration) (receive, error)
	// visibility is how long a message stays hidden, slow what a slow order takes.
	visibility, slow time.Duration
}

var kinds = map[string]kind{
	"sqs": {serveSQS, openSQS, naiveSQS, 2 * time.Second, 4 * time.Second},
	// An ack deadline of Pub/Sub is 10 s at least.
	"pubsub":   {servePubSub, openPubSub, naivePubSub, 10 * time.Second, 13 * time.Second},
	"postgres": {servePostgres, openPostgres, naiveTable, 2 * time.Second, 4 * time.Second},
	"sqlite":   {serveSQLite, openSQLite, naiveTable, 2 * time.Second, 4 * time.Second},
}

// pick finds the service of the name.
func pick(name string) (kind, error) {
	k, ok := kinds[name]
	if !ok {
		return k, fmt.Errorf("-queue is %q, want one of %s", name, strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	return k, nil
}

// open gives a process of the fleet its ends of both queues.
func open(ctx context.Context, p place, t till) (queue, dead broker.Broker, err error) {
	return kinds[p.Service].open(ctx, p, t)
}
