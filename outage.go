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
}

// fails is told of a failure. Where that is worth a line, it answers how long they have lasted.
func (o *outage) fails(worth bool) (lasts time.Duration, tell bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.since.IsZero() {
		o.since = now
	}
	if !worth || !o.told.IsZero() && now.Sub(o.told) < tellAgain {
		return 0, false
	}
	o.told = now
	return now.Sub(o.since), true
}

// ends is told of a success. Where an outage was told of, it answers how long that has lasted.
func (o *outage) ends() (lasted time.Duration, tell bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
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
	if lasted, tell := p.out.ends(); tell {
		p.w.c.Logger.LogAttrs(ctx, slog.LevelInfo, "onceq: receiving works again", forSo(lasted))
	}
}

// lettersAgain is told of a letter that was taken.
func (p *Processor) lettersAgain(ctx context.Context) {
	if lasted, tell := p.lettersOut.ends(); tell {
		p.c.Logger.LogAttrs(ctx, slog.LevelInfo, "onceq: the dead-letter queue takes letters again", forSo(lasted))
	}
}

// storeAgain is told of an answer to a claim that had none before.
func (p *Processor) storeAgain(f *flow) {
	if lasted, tell := f.trouble.ends(); tell {
		p.c.Logger.LogAttrs(f.o.base, slog.LevelInfo, "onceq: the store answers again", forSo(lasted))
	}
}
