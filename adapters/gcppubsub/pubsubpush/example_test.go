package pubsubpush_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubpush"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// Pub/Sub pushes a message twice, because it did not get the first answer: the order is charged
// once.
func Example() {
	store, err := memstore.New(nil) // a service has a durable one
	if err != nil {
		log.Fatal(err)
	}
	dead, err := membroker.New(nil) // and a topic for its dead letters
	if err != nil {
		log.Fatal(err)
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			fmt.Printf("charging %s\n", j.Message.Body)
			return nil
		}),
		Store: store, Scope: "payments",
		// the producers do not use onceq
		Key: func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: m.Attributes["order"]}, nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	batches, err := p.Batches(onceq.BatchConfig{DeadLetter: dead})
	if err != nil {
		log.Fatal(err)
	}
	h, err := pubsubpush.New(batches, pubsubpush.Options{
		Auth:        pubsubpush.IAM{}, // Cloud Run lets only the subscription's account through
		AckDeadline: 60 * time.Second, // the subscription's
	})
	if err != nil {
		log.Fatal(err)
	}
	const body = `{"message": {"data": "OTk1IGNlbnRz", "attributes": {"order": "7"}, "messageId": "1"}, "subscription": "projects/p/subscriptions/s"}`
	for range 2 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/push", strings.NewReader(body)))
		fmt.Println(w.Code)
	}
	// Cloud Run sends SIGTERM, and ends the instance after ten seconds.
	ctx, cancel := context.WithTimeout(context.Background(), 9*time.Second)
	defer cancel()
	fmt.Println("drained:", h.Shutdown(ctx) == nil)
	// Output:
	// charging 995 cents
	// 204
	// 204
	// drained: true
}
