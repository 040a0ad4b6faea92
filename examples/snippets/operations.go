package snippets

import (
	"context"

	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/otelonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
)

// observed is a worker that tells all it has to tell. stop ends the looks at the queues.
func observed(mux *onceq.Mux, orders, letters broker.Broker, store dedupe.Store) (w *onceq.Worker, stop func(), err error) {
	exporter, err := prometheus.New(prometheus.WithoutScopeInfo())
	if err != nil {
		return nil, nil, err
	}
	meters := metric.NewMeterProvider(metric.WithReader(exporter))
	tel, err := otelonceq.New(&otelonceq.Options{MeterProvider: meters})
	if err != nil {
		return nil, nil, err
	}
	queue := tel.Broker(orders) // what is sent, received and settled
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: mux, Scope: "orders", Store: tel.Store(store), Observer: tel.Observer(),
	})
	if err != nil {
		return nil, nil, err
	}
	w, err = p.Worker(queue, onceq.WorkerConfig{DeadLetter: letters})
	if err != nil {
		return nil, nil, err
	}
	if _, err = tel.Worker(w); err != nil { // busy, slots, state
		return nil, nil, err
	}
	stop, err = tel.Queues(otelonceq.QueueOptions{},
		otelonceq.Queue{Broker: orders.(broker.Depther), Store: store},
		otelonceq.Queue{Broker: letters.(broker.Depther), DeadLetterOf: "orders"})
	return w, stop, err
}

// replayGroup replays the letters of one error: the plan is frozen, so letters that come meanwhile
// stay where they are.
func replayGroup(ctx context.Context, letters *dlq.Queue, orders broker.Sender, group string, ask func(*dlq.Plan) bool) (dlq.Report, error) {
	plan, err := letters.PlanReplay(ctx, dlq.ReplayOptions{To: orders, Filter: dlq.Filter{Group: group}})
	if err != nil || !ask(plan) { // somebody reads plan.Count(dlq.Take), plan.Skipped, and says yes
		return dlq.Report{}, err
	}
	return letters.Replay(ctx, dlq.ReplayOptions{To: orders, Plan: plan, Canary: 5, Ramp: true, PerSecond: 50})
}
