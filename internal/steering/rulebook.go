package steering

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/backoff"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns the rules that a Processor obeys: reading them, and which jobs they hold back.
// Each Worker reads them by a goroutine of its own (steward.go); Batches and Do read them before a
// call where nobody else has for a while. Runs that are admitted ask for a pause of their scope or
// type; while there is none that is one atomic load. b.mu guards what was read; no store is called
// under it.

// BookConfig is what a rulebook is made of. All of it is set.
type BookConfig struct {
	Store       dedupe.Store
	Every       time.Duration // between two reads; <= 0 = no rules are read
	Required    bool          // nothing starts before the rules were read once
	CallTimeout time.Duration // of one call of the store
	Logger      *slog.Logger
}

// Rulebook is what a Processor knows of the rules.
type Rulebook struct {
	c     BookConfig
	store *timedStore // each call has CallTimeout
	out   engine.Outage

	held atomic.Pointer[controlstore.Rules] // those that pause a scope or a type; nil = there are none
	turn chan struct{}                      // who may read for a batch, or a call of Do

	mu    sync.Mutex
	rules controlstore.Rules
	asked time.Time // when the read of rules began
	came  time.Time // when it was answered
	tried time.Time // when the last read began that somebody has waited for to its end
	known bool      // they were read once
	err   error     // of the last read; nil = it had an answer
	fails int       // reads in a row
}

// NewRulebook makes a Processor's rulebook. It does no I/O.
func NewRulebook(c BookConfig) *Rulebook {
	return &Rulebook{c: c, store: &timedStore{c.Store, c.CallTimeout}, turn: make(chan struct{}, 1)}
}

// IsOn reports whether rules are read.
func (b *Rulebook) IsOn() bool { return b.c.Every > 0 }

// Store is the store of the rules, which gives each call its time.
func (b *Rulebook) Store() dedupe.Store { return b.store }

// fetch reads the rules once. Where that fails, the last ones stay in force.
func (b *Rulebook) fetch(ctx context.Context) error {
	sent := time.Now()
	cameBack := b.watchCall(ctx)
	rs, err := controlstore.Read(ctx, b.store)
	cameBack()
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil && err != nil {
		return err // nobody wants it any more; whoever comes next reads again
	}
	if b.tried.Before(sent) {
		b.tried = sent
	}
	if b.fails++; err == nil {
		b.fails = 0
	}
	// Two reads may overtake each other on the way there and back. An older version counts only
	// where it was asked for after the newer one had come: then the store has gone back.
	if b.err = err; err == nil && !sent.Before(b.asked) && (rs.Version >= b.rules.Version || sent.After(b.came)) {
		b.rules, b.asked, b.came, b.known = rs, sent, time.Now(), true
		b.held.Store(heldBy(&rs, sent))
	}
	return err
}

// deafAfter is how long after its time a call may come back before it is told of.
const deafAfter = time.Second

var errDeaf = errors.New("onceq: the store has not come back from a call, although its time is over")

// watchCall tells of a call that does not come back in its time, until cameBack. A store that
// ignores its context may never come back, and nobody else would know.
func (b *Rulebook) watchCall(ctx context.Context) (cameBack func()) {
	back := false // under the lock
	late := time.AfterFunc(b.store.timeout+deafAfter, func() {
		b.mu.Lock()
		deaf := !back && ctx.Err() == nil
		if deaf {
			b.err, b.fails = errDeaf, max(2, b.fails+1)
		}
		b.mu.Unlock()
		if deaf {
			b.logReading(ctx, errDeaf)
		}
	})
	return func() {
		late.Stop()
		b.mu.Lock()
		back = true
		b.mu.Unlock()
	}
}

// heldBy are the rules that pause a scope or a type; nil = none does.
func heldBy(all *controlstore.Rules, now time.Time) *controlstore.Rules {
	var some []control.Rule
	for _, r := range all.Rules {
		if r.Do == control.Pause && !r.OfQueue() && now.Before(r.Until) {
			some = append(some, r)
		}
	}
	if some == nil {
		return nil
	}
	return &controlstore.Rules{Version: all.Version, Rules: some}
}

// failing is why the rules cannot be read, although they were read before; "" = they can. One read
// that fails says nothing.
func (b *Rulebook) failing() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known && b.err != nil && b.fails > 1 {
		return b.err.Error()
	}
	return ""
}

// InForce are the rules in force. known is false where they were never read, and err is why the
// last read failed.
func (b *Rulebook) InForce() (rs controlstore.Rules, known bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rules, b.known, b.err
}

// firstTries is how often the first read is tried for a batch or a call. One lost packet must not
// make it begin during a pause; a store that refuses reads must not hold it up for long.
const firstTries = 3

// Refresh reads the rules for somebody who has no Worker, where nobody has read them for Every. One
// caller reads, and the others go on with what is known. While nothing is known they wait for him,
// and he repeats a read that fails.
func (b *Rulebook) Refresh(ctx context.Context) {
	if !b.IsOn() {
		return
	}
	stale, known := b.isStale()
	switch {
	case !known: // also where a read has failed, because it may be repeated just now
		select {
		case b.turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
	case !stale:
		return
	default:
		select {
		case b.turn <- struct{}{}:
		default:
			return
		}
	}
	defer func() { <-b.turn }()
	if stale, _ = b.isStale(); !stale {
		return
	}
	began := time.Now()
	for n := 1; ; n++ {
		err := b.fetch(ctx)
		b.logReading(ctx, err)
		if err == nil || known || n == firstTries || time.Since(began) >= b.store.timeout || !retry.Rest(ctx, retry.Pause(n)) {
			return
		}
	}
}

// errNeverRead is why a job does not start whose rules are required.
var errNeverRead = errors.New("onceq: ProcessorConfig.Control.Required: operators' rules were never read")

// Require is nil where a job may start, as far as it is known whether rules hold it back.
func (b *Rulebook) Require(ctx context.Context) error {
	_, known, err := b.InForce()
	switch {
	case known || !b.c.Required:
		return nil
	case err == nil:
		err = context.Cause(ctx)
	}
	if err == nil {
		return errNeverRead
	}
	return fmt.Errorf("%w: %w", errNeverRead, err)
}

func (b *Rulebook) isStale() (stale, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tried.IsZero() || time.Since(b.tried) >= b.c.Every, b.known
}

// logReading logs how the reading of rules goes, when it is worth a line.
func (b *Rulebook) logReading(ctx context.Context, err error) {
	switch {
	case err == nil:
		if lasted, tell := b.out.Succeeds(engine.Whole); tell {
			b.c.Logger.LogAttrs(ctx, slog.LevelInfo, "onceq: operators' rules are read again", engine.ForSo(lasted))
		}
	case ctx.Err() == nil:
		b.mu.Lock()
		known, again := b.known, b.fails > 1
		b.mu.Unlock()
		if lasts, tell := b.out.Fails(engine.Whole, again); tell && known {
			b.c.Logger.LogAttrs(ctx, slog.LevelWarn, "onceq: operators' rules cannot be read; the last ones stay in force", engine.ForSo(lasts), slog.Any("error", err))
		} else if tell {
			b.c.Logger.LogAttrs(ctx, slog.LevelError, "onceq: operators' rules cannot be read", engine.ForSo(lasts), slog.Any("error", err))
		}
	}
}

// Holds reports whether some rule pauses a scope or a type. It is one atomic load.
func (b *Rulebook) Holds() bool { return b.held.Load() != nil }

// PausedJob is the rule that holds a job back, if there is one. It is asked for each job.
func (b *Rulebook) PausedJob(queue, scope, typ string) (control.Verdict, bool) {
	rs := b.held.Load()
	if rs == nil {
		return control.Verdict{}, false
	}
	return rs.For(queue, scope, typ, time.Now())
}

// BackFor is how long a message is given back that a rule holds: 1 min, doubled with each receive,
// at most 15 min and what is left of the rule, and an eighth more or less.
func BackFor(v *control.Verdict, receives int) time.Duration {
	d := max(time.Second, backoff.For(time.Until(v.Until), receives))
	return d - d/8 + mrand.N(d/4+1)
}

// timedStore gives each call of a store its time, and turns its panics into errors.
type timedStore struct {
	dedupe.Store
	timeout time.Duration
}

func timed[Q, A any](ctx context.Context, s *timedStore, qs Q, call func(context.Context, Q) (A, error)) (A, error) {
	one, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return engine.Guard(func() (A, error) { return call(one, qs) })
}

func (s *timedStore) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	return timed(ctx, s, ks, s.Store.Get)
}

func (s *timedStore) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	return timed(ctx, s, rs, s.Store.Claim)
}

func (s *timedStore) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	return timed(ctx, s, rs, s.Store.Renew)
}

func (s *timedStore) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	return timed(ctx, s, ss, s.Store.Settle)
}

func (s *timedStore) Forget(ctx context.Context, fs []dedupe.Forgotten) ([]error, error) {
	return timed(ctx, s, fs, s.Store.Forget)
}
