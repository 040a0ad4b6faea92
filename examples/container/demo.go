package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/sqsfake"
)

// serveDemo brings what the environment did not name: SQS in memory, a bank, a database in a folder
// that is removed, and twenty orders, of which each comes twice. A worker in earnest has no such
// file.
func serveDemo(s *settings) (end func(), err error) {
	dir, err := os.MkdirTemp("", "onceq-container-")
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	fake := sqsfake.New(nil)
	fake.URL = "http://" + l.Addr().String()
	all := http.NewServeMux()
	all.Handle("/", fake)
	all.HandleFunc("POST /bank", func(_ http.ResponseWriter, r *http.Request) {
		<-time.After(500 * time.Millisecond)
		fmt.Printf("the bank charges once for the key %s\n", r.Header.Get("Idempotency-Key"))
	})
	server := &http.Server{Handler: all, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }()
	end = func() {
		fake.Close()
		_ = server.Close()
		_ = os.RemoveAll(dir)
	}

	s.region, s.endpoint, s.bank = "us-east-1", &fake.URL, fake.URL+"/bank"
	s.anyKeys = true
	s.postgres, s.file = "", filepath.Join(dir, "keys.db")
	for name, url := range map[string]*string{"orders": &s.queue, "orders-dead": &s.dead} {
		if *url, err = fake.CreateQueue(name, nil); err != nil {
			end()
			return nil, err
		}
	}
	if err := sendOrders(s); err != nil {
		end()
		return nil, err
	}
	fmt.Println("no QUEUE_URL: a queue in memory, with 20 orders that come twice\n" +
		"ask the address that the log names as health for /livez and /readyz; ctrl-C drains, a second one ends at once")
	return end, nil
}

func sendOrders(s *settings) error {
	ctx := context.Background()
	client, err := newClient(ctx, *s)
	if err != nil {
		return err
	}
	queue, err := awssqs.New(client, s.queue, nil)
	if err != nil {
		return err
	}
	var ms []broker.Outgoing
	for n := range 40 {
		id := fmt.Sprint("order-", n%20)
		ms = append(ms, broker.Outgoing{Body: fmt.Appendf(nil, `{"order": %q, "cents": 1250}`, id), Meta: &broker.Meta{Key: id}})
	}
	return onceq.Send(ctx, queue, ms)
}
