package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// A key is claimed before the effect and settled after it; a duplicate finds the result.
func Example() {
	ctx := context.Background()
	store, err := memstore.New(&memstore.Options{MaxRecords: 100_000})
	if err != nil {
		fmt.Println(err)
		return
	}
	order := dedupe.Key{Scope: "orders", Key: "order-7"}
	claim := func(t dedupe.Token) dedupe.Claim {
		cs, err := store.Claim(ctx, []dedupe.ClaimRequest{{Key: order, Token: t, TTL: time.Minute}})
		if err != nil {
			return dedupe.Claim{Err: err}
		}
		return cs[0]
	}

	first, second := dedupe.Token{1}, dedupe.Token{2} // at random in a program
	fmt.Println("first delivery:", claim(first).Outcome)
	fmt.Println("its duplicate:", claim(second).Outcome)

	done := dedupe.Settlement{Key: order, Token: first, To: dedupe.Done, Result: []byte("paid")}
	as, err := store.Settle(ctx, []dedupe.Settlement{done})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("settled:", as[0].Status)

	c := claim(second)
	fmt.Printf("the duplicate again: %v, %s\n", c.Outcome, c.Record.Result)

	// Output:
	// first delivery: won
	// its duplicate: in-progress
	// settled: done
	// the duplicate again: already-done, paid
}
