package otelonceq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/otelonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// A worker with metrics, and what Prometheus reads of it.
func Example() {
	registry := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	if err != nil {
		log.Fatal(err)
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	tel, err := otelonceq.New(&otelonceq.Options{MeterProvider: meters})
	if err != nil {
		log.Fatal(err)
	}

	memory, err := membroker.New(&membroker.Options{Name: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	store, err := memstore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	queue := tel.Broker(memory)

	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	var left atomic.Int32
	left.Store(3)
	var mux onceq.Mux
	mux.On("charge", onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
		if left.Add(-1) == 0 {
			stop() // three runs are enough for an example
		}
		if j.Key().Key == "order-2" {
			return onceq.Permanent(errors.New("card declined"))
		}
		return nil
	}), nil)
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: &mux, Scope: "orders", Store: tel.Store(store), Observer: tel.Observer(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	letters, err := membroker.New(&membroker.Options{Name: "orders-dead"})
	if err != nil {
		log.Fatal(err)
	}
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: letters})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := tel.Worker(w); err != nil {
		log.Fatal(err)
	}
	if err := onceq.Send(ctx, queue, []broker.Outgoing{
		onceq.Message("charge", "order-1", nil), onceq.Message("charge", "order-2", nil), onceq.Message("charge", "order-3", nil),
	}); err != nil {
		log.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}

	scrape := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(scrape, httptest.NewRequestWithContext(context.Background(), "GET", "/metrics", nil))
	for line := range strings.Lines(scrape.Body.String()) {
		if strings.HasPrefix(line, "jobs_completed") || strings.HasPrefix(line, "jobs_failed") || strings.HasPrefix(line, "jobs_enqueued") {
			fmt.Print(line)
		}
	}
	// Output:
	// jobs_completed_total{queue="orders",type="charge"} 2
	// jobs_enqueued_total{queue="orders",source="send",type="charge"} 3
	// jobs_failed_total{error_class="permanent",final="true",queue="orders",type="charge"} 1
}

// The lines that a handler logs say which job they are of.
func ExampleLogHandler() {
	var out bytes.Buffer
	logger := slog.New(otelonceq.LogHandler(slog.NewTextHandler(&out, nil)))
	tel, err := otelonceq.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	queue, err := membroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	store, err := memstore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Scope: "orders", Store: store, Observer: tel.Observer(), Logger: slog.New(slog.DiscardHandler),
		Handler: onceq.HandlerFunc(func(ctx context.Context, _ *onceq.Job) error {
			logger.InfoContext(ctx, "charging")
			stop()
			return nil
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue})
	if err != nil {
		log.Fatal(err)
	}
	m := broker.Outgoing{Meta: &broker.Meta{ID: "j-1", Key: "order-7"}}
	if err := onceq.SendOne(ctx, queue, &m); err != nil {
		log.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
	_, line, _ := strings.Cut(out.String(), "level=")
	fmt.Print(line)
	// Output:
	// INFO msg=charging job=j-1 key=order-7 attempt=1
}

// The dashboard and the rules are in the program, for whoever sets up Grafana and Prometheus.
func ExampleFiles() {
	names, err := fs.Glob(otelonceq.Files(), "*")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(names)
	// Output:
	// [onceq.json rules.yaml]
}
