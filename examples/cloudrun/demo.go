package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubpush"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// orders is how many are pushed, each twice at once.
const orders = 10

// demo serves on this machine alone, with a bank and a store in memory, and plays Pub/Sub. A
// service in earnest has no such file.
func demo(log *slog.Logger, signals <-chan os.Signal) error {
	store, err := memstore.New(nil)
	if err != nil {
		return err
	}
	box, err := membroker.New(nil)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	bank := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println("the bank is asked")
		<-time.After(500 * time.Millisecond)
		fmt.Printf("the bank charges once for the key %s\n", r.Header.Get("Idempotency-Key"))
	})}
	go func() { _ = bank.Serve(l) }()
	defer bank.Close()
	fmt.Println("no DEAD_LETTER_TOPIC: a bank and a store in memory, and ten orders that are pushed twice; ctrl-C ends it")
	s := settings{addr: "127.0.0.1:" + os.Getenv("PORT"), bank: "http://" + l.Addr().String(), auth: pubsubpush.None{}, store: store, box: box}
	return serve(s, log, signals, func(addr string) { go pushAll("http://" + addr + "/push") })
}

// pushAll pushes each order twice at the same time.
func pushAll(url string) {
	var pushes sync.WaitGroup
	answers := make([]string, 2*orders)
	for i := range answers {
		pushes.Go(func() { answers[i] = push(url, fmt.Sprint("order-", i%orders)) })
	}
	pushes.Wait()
	fmt.Printf("%d pushes were answered: %s\n", len(answers), strings.Join(answers, " "))
}

func push(url, order string) (status string) {
	text, err := json.Marshal(map[string]any{
		"message":      map[string]any{"data": []byte("995 cents"), "attributes": map[string]string{"order": order}, "messageId": order},
		"subscription": "projects/demo/subscriptions/orders",
	})
	if err != nil {
		return err.Error()
	}
	res, err := http.Post(url, "application/json", strings.NewReader(string(text))) //nolint:noctx // the demo ends with its process
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	return fmt.Sprint(res.StatusCode)
}
