package onceq

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/verdict"
)

// pollers are the goroutines of one Run that receive. Where requests are billed there are only as
// many as messages come for: of many polls that wait on a quiet queue each message ends one, and
// one poll brings what came while it was on its way.
type pollers struct {
	w     *Worker
	f     *flow
	fatal func(error)
	once  atomic.Bool   // something was received, so the queue is there
	out   engine.Outage // of receiving, for all of them
	all   sync.WaitGroup

	mu     sync.Mutex
	active int // that may be relied on
	late   int // whose receive is overdue
}

// manyCame is how many messages of one receive are a reason for one more poller; fewer than two are
// one to leave.
const manyCame = 5

// stepIn is how much longer than the longest wait a receive may take before another poller steps in
// for it.
const stepIn = 2 * time.Second

// trusted is how often in a row a receive that brought many, but less than it might, is taken for
// all there was. Some queues give less than they have, again and again.
const trusted = 3

func (p *pollers) start(ctx context.Context) {
	first := p.w.c.Pollers
	if p.adapts() {
		first = 1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for range first {
		p.join(ctx)
	}
}

// adapts: where requests cost nothing, all pollers wait, and a message waits for none of them.
func (p *pollers) adapts() bool { return p.w.l.PerRequestCost && p.w.c.Pollers > 1 }

// join adds a poller, unless there are enough; called with the lock held, and by one of them after
// the first.
func (p *pollers) join(ctx context.Context) {
	if p.active+p.late >= p.w.c.Pollers {
		return
	}
	p.active++
	p.all.Go(func() {
		if err := p.poll(ctx); err != nil {
			p.fatal(err)
		}
	})
}

// more adds a poller, if there may be more.
func (p *pollers) more(ctx context.Context) {
	if p.adapts() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.join(ctx)
	}
}

// leaves tells a poller whether the others suffice.
func (p *pollers) leaves() bool {
	if !p.adapts() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active < 2 {
		return false
	}
	p.active--
	return true
}

// watch lets another poller step in when a receive for n messages is overdue, and have its room:
// one dead connection must not hold up the queue. The answer is to be called after the receive, and
// tells for how many of n there is still room reserved.
func (p *pollers) watch(ctx context.Context, n int) (done func() int) {
	if p.w.c.Pollers == 1 {
		return func() int { return n }
	}
	late, over := false, false
	t := time.AfterFunc(durations.Sum(p.w.l.MaxWait, stepIn), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !over {
			late = true
			p.active, p.late = p.active-1, p.late+1
			p.f.Unreserve(n)
			p.join(ctx)
		}
	})
	return func() int {
		t.Stop()
		p.mu.Lock()
		defer p.mu.Unlock()
		if over = true; late {
			p.active, p.late = p.active+1, p.late-1
			return 0
		}
		return n
	}
}

// poll receives as long as ctx lasts, and messages come for it: when enough slots are free, for as
// many messages as may be held. It ends with an error where receiving can never succeed.
func (p *pollers) poll(ctx context.Context) error {
	w, f := p.w, p.f
	few := max(1, min(w.l.ReceiveBatch, w.c.Concurrency/2))
	failed, hasty, parts, since := 0, 0, 0, time.Now() // the last pause, or the last poller that joined
	for ctx.Err() == nil {
		n := f.Reserve(few, w.l.ReceiveBatch)
		if n == 0 {
			return nil
		}
		asked := time.Now()
		done := p.watch(ctx, n)
		ms, err := w.receive(ctx, n)
		reserved := done()
		rs := w.taken(f, ms)
		kept := f.Offer(reserved, rs)
		switch {
		case err == nil:
			p.once.Store(true)
			p.receivesAgain(ctx)
			failed = 0
			many := len(rs) >= min(n, manyCame)
			if many && time.Since(since) >= w.c.PollPause { // what piles up in a pause is no reason
				p.more(ctx)
				since = time.Now()
			}
			if len(rs) <= 1 && !many && p.leaves() {
				return nil
			}
			pause := w.c.PollPause
			if kept == 0 && (len(rs) > 0 || time.Since(asked) < noWait) {
				hasty++
				pause = max(pause, min(time.Second, retry.Pause(hasty)))
			} else {
				hasty = 0
			}
			switch {
			case !many:
				parts = 0
			case len(rs) < n:
				parts++
			}
			if pause > 0 && (kept == 0 || len(rs) < n && parts <= trusted) {
				retry.Rest(ctx, pause)
				since = time.Now()
			}
			continue
		case ctx.Err() != nil:
			return nil //nolint:nilerr // a poll that the drain cut short is no failure
		case errors.Is(err, broker.ErrClosed), errors.Is(err, broker.ErrNotFound) && !p.once.Load():
			return err
		}
		failed++
		if lasts, tell := p.out.Fails(engine.Whole, failed >= 3); tell {
			w.p.log.LogAttrs(ctx, slog.LevelError, "onceq: receiving fails; it is tried again", engine.ForSo(lasts), slog.Any("error", err))
		}
		retry.Rest(ctx, retry.Pause(failed))
	}
	return nil
}

// noWait is what an empty receive takes at least if it has waited for a message at all. Some
// brokers do not, and must not be asked without a pause; nor must one that brings only followers
// for which there is no room.
const noWait = 10 * time.Millisecond

func (w *Worker) receive(ctx context.Context, n int) (ms []*broker.Message, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = verdict.Classed(ClassPanic, "onceq: the broker panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return w.queue.Receive(ctx, broker.ReceiveOptions{Max: n, Wait: -1, Visibility: w.c.Visibility})
}

// taken makes the runs of what was received; offer holds them, until their ack or nack is through.
func (w *Worker) taken(f *flow, ms []*broker.Message) []*run {
	if len(ms) == 0 {
		return nil
	}
	rs, copies, now := make([]*run, 0, len(ms)), make([]given, len(ms)), time.Now()
	for i, m := range ms {
		if m == nil {
			continue
		}
		w.p.foreign.meet(m)
		r := newRun(f, m, &copies[i], now)
		r.SetDelivery(cmp.Or(m.Deadline, now.Add(w.c.Visibility)))
		rs = append(rs, r)
	}
	return rs
}

// receivesAgain is told of a receive that had an answer.
func (p *pollers) receivesAgain(ctx context.Context) {
	if lasted, tell := p.out.Succeeds(engine.Whole); tell {
		p.w.p.log.LogAttrs(ctx, slog.LevelInfo, "onceq: receiving works again", engine.ForSo(lasted))
	}
}
