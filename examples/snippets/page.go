package snippets

import (
	"log/slog"
	"net/http"
	"net/netip"
	"slices"

	"github.com/onceq/onceq/adapters/webonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
)

// shown names the queues that the page shows, each with its dead letters and its workers' store.
func shown(orders, dead broker.Broker, store dedupe.Store) (*ops.Ops, error) {
	return ops.New([]ops.Target{{Name: "orders", Queue: orders, DeadLetters: dead, Store: store}}, nil)
}

// onlooking mounts the page for people of this host, who look.
func onlooking(mux *http.ServeMux, o *ops.Ops) (*webonceq.Page, error) {
	page, err := webonceq.New(o, &webonceq.Options{Title: "prod", Base: "/onceq"})
	if err != nil {
		return nil, err
	}
	mux.Handle("/onceq/", page)
	return page, nil
}

// onCall is what somebody may do whom the proxy names.
func onCall(name string) webonceq.Access {
	if slices.Contains([]string{"ana", "ben"}, name) {
		return webonceq.Access{May: webonceq.Look | webonceq.Bodies | webonceq.Pause | webonceq.Replay}
	}
	return webonceq.Access{May: webonceq.Look}
}

// behindProxy makes the page for people whom a proxy knows.
func behindProxy(o *ops.Ops, proxy netip.Prefix, log *slog.Logger) (*webonceq.Page, error) {
	access := webonceq.HeaderAccess("X-Forwarded-User", []netip.Prefix{proxy}, onCall)
	return webonceq.New(o, &webonceq.Options{Hosts: []string{"ops.example"}, Access: access, Logger: log})
}
