package pgbroker

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/broker/brokertest"
	"github.com/onceq/onceq/internal/must"
)

// TestConformance runs each case on a queue of its own, all in one table.
func TestConformance(t *testing.T) {
	pool := openPool(t, func(c *pgxpool.Config) { c.MaxConns = 40 })
	brokertest.Run(t, harness(func(t testing.TB) *pgxpool.Pool { return pool }))
}

// harness makes queues on a pool.
func harness(pool func(t testing.TB) *pgxpool.Pool) brokertest.Harness {
	return brokertest.Harness{
		// A receipt is void once its message was delivered again.
		StaleReceiptsVoid: true,
		Open: func(t testing.TB, o brokertest.QueueOptions) brokertest.Queue {
			db := pool(t)
			name := newName()
			opts := &Options{Visibility: o.Visibility}
			var dead broker.Receiver
			if o.MaxReceives > 0 {
				opts.MaxReceives, opts.DeadLetters = o.MaxReceives, name+"-dead"
				dead = newQueue(t, db, opts.DeadLetters, &Options{Visibility: o.Visibility})
			}
			q := newQueue(t, db, name, opts)
			return brokertest.Queue{Broker: q, Close: q.Close, DeadLetters: dead, SendRaw: func(ctx context.Context, body []byte, attributes map[string]string) error {
				text, err := json.Marshal(attributes)
				if err != nil {
					return err
				}
				if body == nil {
					body = []byte{}
				}
				_, err = db.Exec(ctx, `INSERT INTO onceq_messages (queue, attributes, body) VALUES ($1, $2::text::json, $3)`, name, string(text), body)
				return err
			}}
		},
		Missing: func(t testing.TB) broker.Broker {
			return must.Get(New(pool(t), "missing", &Options{Table: "no_such_table", Poll: 10 * time.Millisecond}))
		},
	}
}
