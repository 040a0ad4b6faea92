package memstore_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// A Worker sweeps its store by itself. Who has none, such as a program that only calls onceq.Do,
// does so now and then.
func ExampleStore_Sweep() {
	ctx := context.Background()
	store, err := memstore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	key, token := dedupe.Key{Scope: "webhooks", Key: "event-7"}, dedupe.Token{1}
	if _, err := store.Claim(ctx, []dedupe.ClaimRequest{{Key: key, Token: token, TTL: time.Minute}}); err != nil {
		log.Fatal(err)
	}
	// The record is kept for a millisecond; a real one for weeks.
	if _, err := store.Settle(ctx, []dedupe.Settlement{{Key: key, Token: token, To: dedupe.Done, Retain: time.Millisecond}}); err != nil {
		log.Fatal(err)
	}
	for {
		n, err := store.Sweep(ctx, 1000)
		if err != nil {
			log.Fatal(err)
		}
		if n > 0 {
			fmt.Println(n, "record removed,", store.Len(), "left")
			return
		}
	}
	// Output:
	// 1 record removed, 0 left
}
