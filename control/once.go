package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/storecall"
)

// This file owns what one of many processes does: once (RunOnce), or alone (WithLock). Any program
// may call them. The lock is the claim of a record, which a goroutine of the call renews.

// scopeOnce has what one of many processes does, under names of its callers' choice.
const scopeOnce = storecall.ScopeOnce

// onceTTL is for how long the claim of a [RunOnce] holds without a beat, and onceBeat the pause
// between beats. A call of the store may take half of that.
const (
	onceTTL  = 30 * time.Second
	onceBeat = onceTTL / 3
	// onceKept is for how long the record of an [WithLock] is kept that nobody holds.
	onceKept = time.Hour
)

// RunOnce runs f in one of all processes that call it with the same name, and reports whether it
// was this one. While f runs, its claim is renewed; a claim that is lost ends f's context. If f
// fails or its process dies, another call may run it. A name that is done stays so for retain, or
// for 31 days where retain is 0. Put the period into the name, such as "reconcile/2026-11-22T03".
func RunOnce(ctx context.Context, s dedupe.Store, name string, retain time.Duration, f func(context.Context) error) (ran bool, err error) {
	k := dedupe.Key{Scope: scopeOnce, Key: name}
	token := storecall.NewToken()
	c, err := storecall.Claim(ctx, s, dedupe.ClaimRequest{Key: k, Token: token, TTL: onceTTL, Owner: "control"})
	if err != nil {
		return false, fmt.Errorf("control: claiming %q: %w", name, err)
	}
	if c.Outcome != dedupe.Won {
		return false, nil
	}
	err = whileHeld(ctx, s, k, token, f)
	end := dedupe.Settlement{Key: k, Token: token, To: dedupe.Done, Retain: retain}
	if err != nil {
		end.To, end.ErrClass, end.ErrText = dedupe.Released, "error", storecall.Text(err)
	}
	// Also where ctx has ended: what was done must not be done again.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), onceBeat)
	defer cancel()
	if failed := storecall.Settle(last, s, end); failed != nil {
		return true, errors.Join(err, fmt.Errorf("control: settling %q: %w", name, failed))
	}
	return true, err
}

// whileHeld runs f beside the beats of its claim.
func whileHeld(ctx context.Context, s dedupe.Store, k dedupe.Key, token dedupe.Token, f func(context.Context) error) error {
	held, lose := context.WithCancelCause(ctx)
	beating, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		hold(beating, s, k, token, lose)
	}()
	defer func() {
		stop()
		<-stopped
		lose(nil)
	}()
	return f(held)
}

// hold renews a claim until ctx ends, and tells lose where it is lost. Where the store has not
// answered for so long that it may be, hold goes on: while f runs, nobody else should.
func hold(ctx context.Context, s dedupe.Store, k dedupe.Key, token dedupe.Token, lose context.CancelCauseFunc) {
	every := time.NewTicker(onceBeat)
	defer every.Stop()
	until := time.Now().Add(onceTTL)
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		sent := time.Now()
		a, err := renewOnce(ctx, s, dedupe.Renewal{Key: k, Token: token, TTL: onceTTL})
		switch {
		case err == nil && a.Err == nil:
			until = sent.Add(onceTTL)
		case errors.Is(a.Err, dedupe.ErrLeaseLost), time.Until(until) <= onceBeat/2:
			lose(fmt.Errorf("control: the claim of %q is lost: %w", k.Key, dedupe.ErrLeaseLost))
			if errors.Is(a.Err, dedupe.ErrLeaseLost) {
				return
			}
		}
	}
}

// renewOnce makes one call of Renew, in a goroutine of its own. So a store that ignores the end of
// the context keeps nobody: neither f's end from being told, nor the end of a claim that is lost. A
// panic of the store's is an error, because nobody could recover it.
func renewOnce(ctx context.Context, s dedupe.Store, n dedupe.Renewal) (dedupe.Renewed, error) {
	call, cancel := context.WithTimeout(ctx, onceBeat/2)
	defer cancel()
	type answer struct {
		renewed dedupe.Renewed
		err     error
	}
	answered := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			if v := recover(); v != nil {
				a = answer{err: fmt.Errorf("control: the store panicked: %v", v)}
			}
			answered <- a
		}()
		a.renewed, a.err = storecall.First(s.Renew(call, []dedupe.Renewal{n}))
	}()
	select {
	case a := <-answered:
		return a.renewed, a.err
	case <-call.Done():
		return dedupe.Renewed{}, call.Err()
	}
}

// A HeldError says that another process holds a name that [WithLock] was asked for.
type HeldError struct {
	// Name is what is held. Left is how long its holder may be silent until the name is free.
	Name string
	Left time.Duration
}

// Error names what is held.
func (e *HeldError) Error() string { return fmt.Sprintf("control: another process holds %q", e.Name) }

// WithLock runs f while no other process runs one under the same name. While f runs, its claim is
// renewed, and it is given back at f's end; where the process dies, it ends after 30 seconds. A
// claim that is lost on the way does not end f, so f must do no harm beside another one.
//
// The error is f's, a [*HeldError], or the store's. Unless it is f's, f has not run.
func WithLock(ctx context.Context, s dedupe.Store, name string, f func(context.Context) error) error {
	k := dedupe.Key{Scope: scopeOnce, Key: name}
	token := storecall.NewToken()
	c, err := storecall.Claim(ctx, s, dedupe.ClaimRequest{Key: k, Token: token, TTL: onceTTL, Owner: "control"})
	switch {
	case err != nil:
		return fmt.Errorf("control: claiming %q: %w", name, err)
	case c.Outcome == dedupe.InProgress:
		return &HeldError{Name: name, Left: c.Left}
	case c.Outcome != dedupe.Won:
		return fmt.Errorf("control: claiming %q: it is %v", name, c.Outcome)
	}
	defer func() { // also where f panics, and where ctx has ended: the name is free at once
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), onceBeat/2)
		defer cancel()
		// Where this fails, the claim ends by itself.
		_ = storecall.Settle(last, s, dedupe.Settlement{Key: k, Token: token, To: dedupe.Released, Uncounted: true, Retain: onceKept})
	}()
	return whileHeld(ctx, s, k, token, func(context.Context) error { return f(ctx) })
}
