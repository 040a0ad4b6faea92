package snippets

import (
	"context"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
)

// Purchase is what a bare message says, and the payload of a kind.
type Purchase struct{ OrderID string }

// Purchases takes the place of a single handler.
var Purchases = onceq.Kind[Purchase]{
	Type:    "order",
	Key:     func(o Purchase) string { return o.OrderID },
	Options: onceq.JobOptions{Was: onceq.OneHandler}, // its keys stay where the handler had them
}

func ordersMux(charge func(context.Context, *onceq.Job, Purchase) error) *onceq.Mux {
	mux := new(onceq.Mux)
	Purchases.On(mux, charge)
	mux.Untyped(Purchases.Type) // bare messages are orders
	return mux
}

func remind(ctx context.Context, queue broker.Sender, o Purchase, due time.Time) error {
	return Purchases.SendAt(ctx, queue, due.Add(-24*time.Hour), o) // a day before
}
