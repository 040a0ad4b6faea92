package snippets

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/fan"
)

// invoice is the kind of the children; a child needs no Key, because the fan makes it.
var invoice = onceq.Kind[string]{Type: "invoice"}

// handle has each child keep its sum for the parent.
func handle(mux *onceq.Mux, bill func(ctx context.Context, j *onceq.Job, customer string) (cents int, err error)) {
	mux.On(invoice.Type, onceq.JSONResult(bill), nil)
}

func month(store dedupe.Store, queue broker.Sender, book func(ctx context.Context, key string, cents int) error) func(context.Context, *onceq.Job, []string) error {
	return func(ctx context.Context, j *onceq.Job, customers []string) error {
		err := fan.Out(ctx, j, store, "invoices", fan.Children{
			To: queue, Scope: "billing:invoice", N: len(customers),
			Message: func(i int) (broker.Outgoing, error) { return invoice.Message(customers[i]) },
		})
		if err != nil {
			return err // until all are done
		}
		sum := 0
		for cents, err := range fan.Results[int](ctx, j, store, "invoices") {
			if err != nil {
				return err
			}
			sum += cents
		}
		return book(ctx, j.EffectKey("book"), sum)
	}
}

func total(w http.ResponseWriter, r *http.Request, store dedupe.Store) {
	ctx, cancel := context.WithTimeout(r.Context(), 20*time.Second)
	defer cancel()
	cents, err := onceq.Wait[int](ctx, store, dedupe.Key{Scope: "billing:invoice", Key: r.URL.Query().Get("id")})
	var failed *onceq.FailedError
	switch {
	case err == nil:
		fmt.Fprintln(w, cents)
	case errors.As(err, &failed):
		http.Error(w, failed.Class, http.StatusConflict)
	default: // the job goes on
		http.Error(w, "not yet", http.StatusAccepted)
	}
}

func onClick(ctx context.Context, store dedupe.Store, queue broker.Sender, order string, body []byte) error {
	m := onceq.Message("order", "", body)
	rec, err := onceq.SendOnce(ctx, store, queue, dedupe.Key{Scope: "shop:order", Key: order}, &m)
	if rec != nil && err == nil {
		return nil // it is done, or runs now
	}
	return err
}
