// Package sweep removes expired records, where the store is a dedupe.Sweeper. The workers of one
// store take turns.
package sweep

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	mrand "math/rand/v2"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns the turns. Worker.Run starts one goroutine by Start, which owns everything here,
// so there is no lock.
//
// The workers of one store take turns by a claim, whatever their queues and scopes. A turn is over
// when the record of that claim is done, and the record's retention is the time until the next
// turn. Nothing that must be right depends on the claim, because any number of sweeps may go on at
// once.

// sweepKey is what a turn claims.
var sweepKey = dedupe.Key{Scope: ":onceq", Key: "sweep"}

// The bounds of one turn. A store that has more to remove gets its next turn soon.
const (
	sweepBatch = 1000             // records of one call
	sweepCalls = 20               // calls of a turn
	sweepCall  = 30 * time.Second // a call
	sweepLease = time.Minute      // the claim, renewed before each call
	sweepMore  = time.Second      // the pause after a turn that has left some
)

// Config is what sweeps, of one worker. All of it is set.
type Config struct {
	Store       dedupe.Store
	Every       time.Duration // between turns; < 0 = never
	CallTimeout time.Duration // of a call that claims, renews or settles
	Owner       string        // whose the claim of a turn is
	Logger      *slog.Logger
}

// sweeper removes the expired records for one Run.
type sweeper struct {
	c     Config
	s     dedupe.Sweeper
	every time.Duration
	out   engine.Outage
}

// Start begins to sweep, until ctx ends; it does nothing where the store sweeps by itself. wait
// waits for the end of that, but not beyond a time.
func Start(ctx context.Context, c Config) (wait func(until time.Time)) {
	s, ok := broker.As[dedupe.Sweeper](c.Store)
	if !ok || c.Every < 0 {
		return func(time.Time) {}
	}
	sw, ended := &sweeper{c: c, s: s, every: c.Every}, make(chan struct{})
	go func() {
		defer close(ended)
		sw.run(ctx)
	}()
	return func(until time.Time) {
		late, stop := context.WithDeadline(context.Background(), until)
		defer stop()
		select {
		case <-ended:
		case <-late.Done():
		}
	}
}

func (s *sweeper) run(ctx context.Context) {
	pause := s.every/2 + mrand.N(s.every/2+1) // drawn, because a deploy starts all workers at once
	for retry.Rest(ctx, pause) {
		pause = s.turn(ctx)
	}
}

// turn sweeps, unless another worker does or just has. It answers how long to wait for the next
// turn.
func (s *sweeper) turn(ctx context.Context) (next time.Duration) {
	var token dedupe.Token
	rand.Read(token[:])
	c, err := s.claim(ctx, token)
	next = s.every
	if err != nil || ctx.Err() != nil {
		// The store may have taken the claim, and a call that ignores its context may win it late.
		s.end(dedupe.Settlement{Token: token, To: dedupe.Released, Uncounted: true})
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.failed(ctx, err)
	case c.Outcome == dedupe.Won:
		next = s.work(ctx, token)
	case c.Outcome == dedupe.InProgress:
		next = c.Left
	case c.Record != nil && !c.Record.Expires.IsZero():
		next = time.Until(c.Record.Expires)
	}
	// Bounded, because a store may answer anything; and drawn, because the other workers wait for
	// the same time.
	next = min(max(next, 0), s.every) + time.Second
	return next + mrand.N(next/8+time.Second)
}

func (s *sweeper) claim(ctx context.Context, token dedupe.Token) (dedupe.Claim, error) {
	one, cancel := context.WithTimeout(ctx, s.c.CallTimeout)
	defer cancel()
	cs, err := engine.Guard(func() ([]dedupe.Claim, error) {
		return s.c.Store.Claim(one, []dedupe.ClaimRequest{{Key: sweepKey, Token: token, TTL: sweepLease, Owner: s.c.Owner}})
	})
	switch {
	case err != nil:
		return dedupe.Claim{}, err
	case len(cs) != 1:
		return dedupe.Claim{}, errors.New("onceq: the store did not answer one claim")
	}
	return cs[0], cs[0].Err
}

// work is a turn that was won. It answers how long to wait for the next one.
func (s *sweeper) work(ctx context.Context, token dedupe.Token) time.Duration {
	swept, more, err := s.sweep(ctx, token)
	end := dedupe.Settlement{Token: token, To: dedupe.Done, Retain: s.every}
	switch {
	case ctx.Err() != nil: // another worker goes on
		end.To, end.Uncounted = dedupe.Released, true
	case err != nil:
		s.failed(ctx, err)
		end.To, end.ErrClass, end.ErrText = dedupe.Released, verdict.Plain, verdict.Text(err)
	case more:
		end.Retain = sweepMore
	}
	s.end(end)
	if err != nil || ctx.Err() != nil {
		return s.every
	}
	if lasted, tell := s.out.Succeeds(engine.Whole); tell {
		s.c.Logger.LogAttrs(ctx, slog.LevelInfo, "onceq: expired records are removed again", engine.ForSo(lasted))
	}
	if swept > 0 {
		s.c.Logger.LogAttrs(ctx, slog.LevelDebug, "onceq: expired records were removed", slog.Int("records", swept), slog.Bool("more", more))
	}
	return end.Retain
}

// end writes how a turn has ended. Where that fails the lease runs out, and somebody sweeps again.
// Its call goes on when Run's context has ended, because another worker waits for the end.
func (s *sweeper) end(to dedupe.Settlement) {
	ctx := engine.CallContext(context.Background(), s.c.CallTimeout)
	defer ctx.Close()
	to.Key, to.Retain = sweepKey, cmp.Or(to.Retain, s.every)
	_, _ = engine.Guard(func() ([]dedupe.Settled, error) { return s.c.Store.Settle(ctx, []dedupe.Settlement{to}) })
}

// sweep makes the calls of a turn. more reports whether it has left some records. After each call
// it rests for as long as the call took, a second at most. So quick calls take no more than half of
// what the store can do for one caller.
func (s *sweeper) sweep(ctx context.Context, token dedupe.Token) (swept int, more bool, err error) {
	for n := range sweepCalls {
		if n > 0 && !s.renews(ctx, token) {
			return swept, true, nil
		}
		began := time.Now()
		gone, err := s.call(ctx)
		swept += gone
		if err != nil || gone < sweepBatch {
			return swept, false, err
		}
		if !retry.Rest(ctx, min(time.Since(began), time.Second)) {
			return swept, true, nil
		}
	}
	return swept, true, nil
}

func (s *sweeper) call(ctx context.Context) (int, error) {
	one, cancel := context.WithTimeout(ctx, sweepCall)
	defer cancel()
	return engine.Guard(func() (int, error) { return s.s.Sweep(one, sweepBatch) })
}

func (s *sweeper) renews(ctx context.Context, token dedupe.Token) bool {
	one, cancel := context.WithTimeout(ctx, s.c.CallTimeout)
	defer cancel()
	rs, err := engine.Guard(func() ([]dedupe.Renewed, error) {
		return s.c.Store.Renew(one, []dedupe.Renewal{{Key: sweepKey, Token: token, TTL: sweepLease}})
	})
	return err == nil && len(rs) == 1 && rs[0].Err == nil
}

func (s *sweeper) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if lasts, tell := s.out.Fails(engine.Whole, true); tell {
		s.c.Logger.LogAttrs(ctx, slog.LevelWarn, "onceq: expired records are not removed, and take room; it is tried again", engine.ForSo(lasts), slog.Any("error", err))
	}
}
