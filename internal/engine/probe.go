package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns claims that no handler runs under: one of our own that shows whether the store is
// at work, and one of which nobody knows whether it was won. No lock is held.

// probe claims a key that nobody has, and gives it back. On a queue where no other claim comes, its
// answer stands for another claim's: it shows whether the store refuses one claim or all. So it is
// with ends, because the claim is given back. probe asks only when the store has answered no claim
// for refusedFor, and asks no more often than that. Nothing remains of a probe that goes well. What
// a failed one has left, the next one takes up, because an engine always asks for the same key. So
// a process leaves one record at most, for an operator to forget.
func (en *Engine[J]) probe(scope string) {
	last, now := en.probed.Load(), time.Since(en.epoch)
	if now-time.Duration(max(last, en.lastClaim.Load())) < refusedFor || !en.probed.CompareAndSwap(last, int64(now)) {
		return
	}
	var token dedupe.Token
	rand.Read(token[:])
	q := dedupe.ClaimRequest{
		Key: dedupe.Key{Scope: scope, Key: en.probeKey}, Token: token, TTL: min(en.o.Lease, refusedFor/2),
		Policy: dedupe.Rerun, Owner: en.o.Owner,
	}
	ctx := CallContext(context.Background(), en.o.CallTimeout)
	defer ctx.Close()
	cs, err := Guard(func() ([]dedupe.Claim, error) { return en.o.Store.Claim(ctx, []dedupe.ClaimRequest{q}) })
	if !en.forgoOnce(q.Key, token) || err != nil || len(cs) != 1 || cs[0].Err != nil || cs[0].Outcome != dedupe.Won {
		return
	}
	at := time.Now()
	en.lastClaim.Store(int64(at.Sub(en.epoch)))
	en.lastEnd.Store(int64(at.Sub(en.epoch)))
	en.o.Pulse.claims.Answers(at)
	_, _ = Guard(func() ([]error, error) {
		return en.o.Store.Forget(ctx, []dedupe.Forgotten{{Key: q.Key, Fence: cs[0].Lease.Fence}})
	})
}

// Forgo gives back a claim when nobody knows whether it was won, so that the key need not wait for
// a lease to run out. It blocks until the store has answered, and tries for SettleTimeout. Nothing
// depends on it.
func (en *Engine[J]) Forgo(k dedupe.Key, token dedupe.Token) {
	begin := time.Now()
	for n := 1; !en.forgoOnce(k, token); n++ {
		pause := retry.Pause(n)
		if time.Since(begin)+pause >= en.o.SettleTimeout {
			return
		}
		<-time.After(pause)
	}
}

// forgoOnce is one try of Forgo, and reports whether the store has answered it.
func (en *Engine[J]) forgoOnce(k dedupe.Key, token dedupe.Token) bool {
	ctx := CallContext(context.Background(), en.o.CallTimeout)
	defer ctx.Close()
	as, err := Guard(func() ([]dedupe.Settled, error) {
		return en.o.Store.Settle(ctx, []dedupe.Settlement{{Key: k, Token: token, To: dedupe.Released, Uncounted: true, Retain: en.o.Retention}})
	})
	return err == nil && len(as) == 1 && (as[0].Err == nil || errors.Is(as[0].Err, dedupe.ErrLeaseLost))
}
