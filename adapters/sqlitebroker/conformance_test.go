package sqlitebroker

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/broker/brokertest"
	"github.com/onceq/onceq/internal/must"
)

// TestConformance runs in virtual time: the file's locks are waited for with Go's timers, and
// nothing else in the queue or the driver outlives a call.
func TestConformance(t *testing.T) {
	brokertest.Run(t, brokertest.Harness{
		Virtual: true,
		// A receipt is void once its message was delivered again.
		StaleReceiptsVoid: true,
		Open: func(t testing.TB, o brokertest.QueueOptions) brokertest.Queue {
			f := openFile(t, tempFile(t))
			opts := &Options{Visibility: o.Visibility, Poll: 10 * time.Second} // nothing here may need a poll
			var dead broker.Receiver
			if o.MaxReceives > 0 {
				opts.MaxReceives, opts.DeadLetters = o.MaxReceives, "orders-dead"
				dead = f.queue(opts.DeadLetters, &Options{Visibility: o.Visibility})
			}
			q := f.queue("orders", opts)
			return brokertest.Queue{Broker: q, Close: q.Close, DeadLetters: dead, SendRaw: func(ctx context.Context, body []byte, attributes map[string]string) error {
				text, err := json.Marshal(attributes)
				if err != nil {
					return err
				}
				if body == nil {
					body = []byte{}
				}
				// In a bubble SQLite's own clock, which the column's default reads, is another one.
				due := time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z")
				_, err = f.db.ExecContext(ctx, `INSERT INTO onceq_messages (queue, due, attributes, body) VALUES ('orders', ?, ?, ?)`, due, string(text), body)
				return err
			}}
		},
		Missing: func(t testing.TB) broker.Broker {
			f := openFile(t, tempFile(t))
			return must.Get(New(f.store, "missing", &Options{Table: "no_such_table", Poll: 10 * time.Millisecond}))
		},
	})
}
