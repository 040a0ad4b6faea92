// Package otelonceq tells OpenTelemetry what onceq does: metrics, spans, and the ids of a trace in
// every log line of a handler. The core knows nothing of it. This package is an Observer and a few
// decorators around the contracts that are there already.
//
//	tel, err := otelonceq.New(nil)                       // OpenTelemetry's global providers
//	queue, store := tel.Broker(sqs), tel.Store(postgres) // send, receive, settle; claims
//	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
//		Handler: mux, Store: store, Scope: "orders", Observer: tel.Observer(),
//		Logger: slog.New(otelonceq.LogHandler(slog.NewJSONHandler(os.Stderr, nil))),
//	})
//	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead})
//	_, err = tel.Worker(w)                               // busy, slots, state
//	stop, err := tel.Queues(otelonceq.QueueOptions{}, otelonceq.Queue{Broker: queue})
//
// # Metrics
//
// The page docs/metrics.md lists every metric, what it means and when to look at it. The names are
// made so that OpenTelemetry's Prometheus exporter answers jobs_completed_total,
// jobs_failed_total, job_duration_seconds and so on. Give the exporter WithoutScopeInfo, because
// each line carries three labels more without it.
//
// No label ever holds a key, an id, an owner or the text of an error. A job's type is the choice of
// whoever sends it, so at most Options.MaxTypes of them become labels, and at most
// Options.MaxClasses classes of errors. The others are "_other".
//
// # Traces
//
// A decorated sender makes a span for each message and puts its context into the message, in the
// attribute "traceparent". The handler's span is a trace of its own with a link to that, or, under
// Options.Parent, a child. A message that has a traceparent already keeps it: so a job's dead
// letter and its replay lead to the send, too.
//
// Where no provider of traces is set, nothing of that is done. A context that a caller has is
// passed on all the same.
//
// # Dashboards and alerts
//
// [Files] has a dashboard for Grafana and rules for Prometheus.
package otelonceq
