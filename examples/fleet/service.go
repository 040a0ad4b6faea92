package main

import (
	"context"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/examples/internal/shop"
)

// service is where the queues of a run are: a server in the demo's own process, or a database.
type service interface {
	name() string
	make(ctx context.Context, o *shop.Settings) (place, error)
	queues(ctx context.Context, p place, t till) (queue, dead counted, err error)
}

// counting is a service that can tell how many messages it gave away from the queue.
type counting interface{ received() int }

// counted is a queue of which the demo can tell how many messages it has.
type counted interface {
	broker.Broker
	broker.Depther
}

// place tells a process of the fleet where its queues are.
type place struct {
	Service, Endpoint, Queue, Dead string
	MaxReceives                    int // of a queue in a table, without the library
}

// receive takes what comes within a second or two, gives it to charge, and deletes it if there is
// no error. It answers how many messages it has deleted.
type receive func(ctx context.Context, charge func(body []byte) error) (deleted int, err error)

const queueName = "orders"
