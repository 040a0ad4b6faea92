package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/onceq/onceq/adapters/webonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
)

// serveAdmin serves the operator's page at ADMIN_ADDR, where that is set. It knows nobody, so
// nobody acts through it, and it shows no body and no text of an error. It is no part of a Service:
//
//	kubectl port-forward deploy/orders-worker 8081
//
// brings it to somebody's own machine. A page for many people stands behind a proxy that knows them
// (webonceq.HeaderAccess), in a program of its own.
func serveAdmin(ctx context.Context, s settings, q queues, store dedupe.Store, log *slog.Logger) (end func(), err error) {
	if s.admin == "" {
		return func() {}, nil
	}
	t := ops.Target{Name: "orders", Queue: q.from, Store: store, Scopes: []string{"orders"}}
	if dead, ok := q.dead.(broker.Broker); ok && s.subscription == "" { // a topic alone cannot be read
		t.DeadLetters = dead
	}
	o, err := ops.New([]ops.Target{t}, nil)
	if err != nil {
		return nil, err
	}
	page, err := webonceq.New(o, &webonceq.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.admin)
	if err != nil {
		return nil, fmt.Errorf("ADMIN_ADDR: %w", err)
	}
	server := &http.Server{Handler: page, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }()
	log.Info("looking", "admin", l.Addr().String())
	return func() {
		ending, cancel := context.WithTimeout(context.Background(), margin/2)
		defer cancel()
		_ = page.Close(ending) // it holds letters at most, which come back
		_ = server.Close()
	}, nil
}
