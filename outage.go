package onceq

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// tellAgain is how often an outage is told of while it lasts: each line is to wake somebody, and none of them may be missed.
const tellAgain = 5 * time.Minute

// outage is what a log is told of something that is away: when it has failed a few times, again while that lasts, and once
// when it is over.
type outage struct {
	mu          sync.Mutex
	since, told time.Time // zero = it is there, or nobody was told
	last        time.Time // failure
	failing     part      // what has not succeeded since
}

// part is what may fail of one thing by itself: an outage is over when none of it does.
type part uint8

const (
	whole      part = 1 << iota // of what has no parts
	partClaims                  // of the store
	partEnds
)

// fails is told of a failure. Where that is worth a line, it answers how long they have lasted.
func (o *outage) fails(of part, worth bool) (lasts time.Duration, tell bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.since.IsZero() || now.Sub(o.last) > tellAgain { // what failed last was given up, and nobody has asked since
		o.since, o.told, o.failing = now, time.Time{}, 0
	}
	o.last = now
	o.failing |= of
	if !worth || !o.told.IsZero() && now.Sub(o.told) < tellAgain {
		return 0, false
	}
	o.told = now
	return now.Sub(o.since), true
}

// succeeds is told of a success. Where an outage was told of, it answers how long that has lasted.
func (o *outage) succeeds(of part) (lasted time.Duration, tell bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failing &^= of; o.failing != 0 {
		return 0, false
	}
	if !o.told.IsZero() {
		lasted, tell = time.Since(o.since), true
	}
	o.since, o.told = time.Time{}, time.Time{}
	return lasted, tell
}

// forSo is what all lines about outages tell.
func forSo(lasts time.Duration) slog.Attr { return slog.Duration("since", lasts.Round(time.Second)) }

// receivesAgain is told of a receive that had an answer.
func (p *pollers) receivesAgain(ctx context.Context) {
	if lasted, tell := p.out.succeeds(whole); tell {
		p.w.c.Logger.LogAttrs(ctx, slog.LevelInfo, "onceq: receiving works again", forSo(lasted))
	}
}

// lettersFail is told of a letter that was not taken, and of no other either.
func (p *Processor) lettersFail(r *run, err error) {
	if lasts, tell := p.lettersOut.fails(whole, r.tries >= 3); tell {
		p.c.Logger.LogAttrs(r.f.t.base, slog.LevelError, "onceq: the dead-letter queue takes nothing; it is tried again",
			forSo(lasts), slog.String("job", r.name()), slog.Any("error", err))
	}
}

// lettersAgain is told of a letter that was taken.
func (p *Processor) lettersAgain(ctx context.Context) {
	if lasted, tell := p.lettersOut.succeeds(whole); tell {
		p.c.Logger.LogAttrs(ctx, slog.LevelInfo, "onceq: the dead-letter queue takes letters again", forSo(lasted))
	}
}

// storeFails is told of a call that the store did not answer. One outage is one line, whatever calls meet it.
func (p *Processor) storeFails(r *run, of part, worth bool, err error) {
	if lasts, tell := p.storeOut.fails(of, worth); tell {
		p.c.Logger.LogAttrs(r.f.t.base, slog.LevelError, "onceq: the store does not answer; claims and the ends of jobs are tried again until it does",
			forSo(lasts), slog.String("job", r.name()), slog.String("key", r.key.String()), slog.Any("error", err))
	}
}

// storeAgain is told of an answer to a claim, or to the end of a job, that had none before.
func (p *Processor) storeAgain(ctx context.Context, of part) {
	if lasted, tell := p.storeOut.succeeds(of); tell {
		p.c.Logger.LogAttrs(ctx, slog.LevelInfo, "onceq: the store answers again", forSo(lasted))
	}
}
