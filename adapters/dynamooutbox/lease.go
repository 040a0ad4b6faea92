package dynamooutbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// This file owns the claims of partitions: which are renewed, which are claimed, and what their
// answers change. Receive and Extend call keep. keeping lets one of them at a time ask the store;
// Outbox.mu guards what the answers change.

// leaseScope is the scope of the claims. Those of users never begin with a ':'.
const leaseScope = ":outbox"

const (
	// keepPause is how long receives leave a store alone that has failed.
	keepPause = time.Second
	// leaseKept is how long the record of a claim that was given back is kept.
	leaseKept = 24 * time.Hour
)

func newToken() (t dedupe.Token) {
	_, _ = rand.Read(t[:]) // it never fails
	return t
}

// newOwner names this relay, for people.
func newOwner() string {
	var b [4]byte
	_, _ = rand.Read(b[:])
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return strings.ToValidUTF8(host, "_") + "/" + hex.EncodeToString(b[:])
}

// keepForReceive renews and claims what is due. While the store is away, the claims that are left
// go on.
func (b *Outbox) keepForReceive(ctx context.Context, need time.Duration) error {
	b.mu.Lock()
	now := time.Now()
	wait := now.Before(b.keepAt)
	b.mu.Unlock()
	if wait {
		return nil
	}
	err := b.keep(ctx, need, nil)
	if err != nil {
		b.mu.Lock()
		b.keepAt = time.Now().Add(keepPause)
		b.mu.Unlock()
	}
	return err
}

// keep renews the claims that have less than need left, of those in of alone where that is not nil.
// Where it is nil, keep also claims the partitions whose turn it is.
func (b *Outbox) keep(ctx context.Context, need time.Duration, of map[int]bool) error {
	if renew, claim := b.toKeep(need, of); len(renew)+len(claim) == 0 {
		return nil
	}
	select {
	case b.keeping <- struct{}{}:
		defer func() { <-b.keeping }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if b.wakes.isClosed() { // the claims were given back
		return broker.ErrClosed
	}
	renew, claim := b.toKeep(need, of) // somebody else may have done it meanwhile
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var failed error
	for part := range slices.Chunk(renew, b.leases.Limits().MaxBatch) {
		failed = errors.Join(failed, b.renew(ctx, part))
	}
	for part := range slices.Chunk(claim, b.leases.Limits().MaxBatch) {
		failed = errors.Join(failed, b.claim(ctx, part))
	}
	return failed
}

// toKeep are the partitions whose claims are due, in the order of their keys.
func (b *Outbox) toKeep(need time.Duration, of map[int]bool) (renew, claim []*partition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, p := range b.parts {
		switch {
		case of != nil && !of[p.n]:
		case p.deadline.IsZero():
			if of == nil && !now.Before(p.tryAt) {
				claim = append(claim, p)
			}
		case !p.isHeld(now, max(need, b.o.maxHold())-1):
			renew = append(renew, p)
		}
	}
	slices.SortFunc(claim, func(a, b *partition) int { return strings.Compare(a.key.Key, b.key.Key) })
	return renew, claim
}

func (b *Outbox) renew(ctx context.Context, ps []*partition) error {
	rs := make([]dedupe.Renewal, len(ps))
	b.mu.Lock()
	for i, p := range ps {
		rs[i] = dedupe.Renewal{Key: p.key, Token: p.token, TTL: b.o.Lease}
	}
	b.mu.Unlock()
	as, err := b.leases.Renew(ctx, rs)
	if err = answered("renewing", err, len(as), len(rs)); err != nil {
		b.dropDead(ps)
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var failed error
	for i, p := range ps {
		switch {
		case p.token != rs[i].Token:
		case as[i].Err == nil:
			p.deadline = as[i].Deadline
		case errors.Is(as[i].Err, dedupe.ErrLeaseLost):
			p.drop()
			p.tryAt = time.Now() // who has won it tells how long
		default:
			failed = errors.Join(failed, p.failed("renewing", as[i].Err))
			p.dropIfDead(time.Now())
		}
	}
	return failed
}

// dropDead forgets the partitions whose lease is over, and whose renewal has failed.
func (b *Outbox) dropDead(ps []*partition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range ps {
		p.dropIfDead(time.Now())
	}
}

func (p *partition) dropIfDead(now time.Time) {
	if !p.isHeld(now, 0) {
		p.drop()
	}
}

func (b *Outbox) claim(ctx context.Context, ps []*partition) error {
	rs := make([]dedupe.ClaimRequest, len(ps))
	b.mu.Lock()
	for i, p := range ps {
		if p.token == (dedupe.Token{}) {
			p.token = newToken()
		}
		rs[i] = dedupe.ClaimRequest{Key: p.key, Token: p.token, TTL: b.o.Lease, Owner: b.owner}
	}
	b.mu.Unlock()
	as, err := b.leases.Claim(ctx, rs)
	if err = answered("claiming", err, len(as), len(rs)); err != nil {
		return err // the same tokens are sent again
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var failed error
	now := time.Now()
	for i, p := range ps {
		failed = errors.Join(failed, p.claimed(&as[i], now, b.o.Lease/3))
	}
	return failed
}

// claimed takes the answer to a claim. Outbox.mu is held.
func (p *partition) claimed(a *dedupe.Claim, now time.Time, again time.Duration) error {
	if a.Err != nil {
		p.tryAt = now.Add(keepPause)
		return p.failed("claiming", a.Err)
	}
	if a.Outcome == dedupe.Won {
		p.deadline, p.soon = a.Lease.Deadline, true
		return nil
	}
	p.token = dedupe.Token{}
	switch a.Outcome {
	case dedupe.InProgress:
		// A claim that is given back is found before its lease would be over.
		p.tryAt = now.Add(min(max(a.Left, keepPause/10), again))
		return nil
	case dedupe.Stale:
		p.tryAt = now
		return nil
	}
	p.tryAt = now.Add(again)
	return fmt.Errorf("partition %d is read by nobody: the record of its claim is %v; forget the key %q in the scope %q of the store",
		p.n, a.Outcome, p.key.Key, p.key.Scope)
}

func (p *partition) failed(what string, err error) error {
	return &leaseError{fmt.Errorf("%s partition %d: %w", what, p.n, err)}
}

// answered checks a batch of the store's.
func answered(what string, err error, n, want int) error {
	switch {
	case err != nil:
		return &leaseError{fmt.Errorf("%s partitions: %w", what, err)}
	case n != want:
		return &leaseError{fmt.Errorf("%s partitions: the store gave %d answers to %d entries", what, n, want)}
	}
	return nil
}

// giveBack ends the claims.
func (b *Outbox) giveBack(ctx context.Context) error {
	select {
	case b.keeping <- struct{}{}:
		defer func() { <-b.keeping }()
	case <-ctx.Done():
		return b.wrap("Close", ctx.Err())
	}
	var ss []dedupe.Settlement
	b.mu.Lock()
	for _, p := range b.parts {
		if p.token != (dedupe.Token{}) { // a claim's answer may have been lost
			ss = append(ss, dedupe.Settlement{Key: p.key, Token: p.token, To: dedupe.Released, Uncounted: true, ErrClass: "closed", Retain: leaseKept})
		}
		p.drop()
	}
	b.mu.Unlock()
	var failed error
	for part := range slices.Chunk(ss, b.leases.Limits().MaxBatch) {
		as, err := b.leases.Settle(ctx, part)
		failed = errors.Join(failed, err)
		for _, a := range as {
			if a.Err != nil && !errors.Is(a.Err, dedupe.ErrLeaseLost) {
				failed = errors.Join(failed, a.Err)
			}
		}
	}
	if failed != nil {
		return b.wrap("Close", fmt.Errorf("giving back the partitions: %w", failed))
	}
	return nil
}

// errNotKept is the answer for a message whose partition this relay does not hold any more.
var errNotKept = fmt.Errorf("%w: the relay has lost the claim of its partition", broker.ErrReceiptExpired)
