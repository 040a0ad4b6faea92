// Package dedupe is the contract between onceq and the place where idempotency keys are
// recorded: a [Store], the records it keeps, and the state machine that every store obeys. Users
// make a store and hand it on:
//
//	store, err := pgstore.New(pool, nil) // a Store
//	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Handler: h, Store: store, Scope: "orders"})
//	records, err := store.Get(ctx, []dedupe.Key{{Scope: "orders", Key: "A-1"}}) // what became of a job
//
// A key is claimed before any side effect. The winner of a claim holds a lease on the key, with a
// deadline, and a fence: a number that rises with every claim. It renews the lease while it
// works and settles it at the end. Whoever was overtaken finds its token stale, and changes
// nothing.
//
// # The state machine
//
// A record is claimed, released, done, failed or parked. What a call answers and changes is a table
// of rules, one each for the claim, the renewal and the settlement. Package dedupe/machine holds
// the tables as data, for those who write a store. Package dedupetest checks every row of them on
// any store.
//
// # What a store must keep
//
//   - At most one live (token, fence) exists for a key. The fence only rises, also over Forget.
//   - A done record never changes until its retention ends. A failed or parked one changes only
//     by the claim that names its fence, or by an operator.
//   - A stale token changes nothing.
//   - Every entry of a batch is one conditional write, alone: it succeeds or fails without
//     its neighbours.
//   - Repeating a call whose answer was lost is always safe. It gives the answer that was lost, or
//     [ErrLeaseLost] where the key has moved on since: it was released and claimed by another, or
//     forgotten. A claim whose record was forgotten meanwhile wins anew. An ambiguous outcome is
//     resolved by repeating the conditional write, never by a read, because a read may see the
//     state from before a commit in flight.
//   - What arrives late changes nothing that came after it: a stale token, a shorter lease, a state
//     of a lower number.
//   - Safety rests on token and fence. A clock decides only when a lease is dead.
package dedupe
