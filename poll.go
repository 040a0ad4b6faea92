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

// This file owns receiving: the pollers of one Run, how many there are, and when each receives or
// rests. Worker.Run makes them; the goroutines are theirs. pollers.mu guards active and late, and
// what watch shares with its timer. Flow.Unreserve is called under it, no queue and no log.

// pollers are the goroutines of one Run that receive. Where requests are billed, there are only as
// many as the messages need. Many polls that wait on a quiet queue cost more, because each message
// ends one of them, while a single poll brings all that came while it was on its way.
type pollers struct {
	w     *Worker
	f     *flow
	fatal func(error)
	once  atomic.Bool   // something was received, so the queue is there
	out   engine.Outage // of receiving, for all of them
	pulse engine.Pulse  // the same
	began atomic.Int64  // when the first receive was answered, in nanoseconds of the wall clock; 0 = none was
	all   sync.WaitGroup

	mu     sync.Mutex
	active int       // pollers that receive, or are about to
	late   int       // pollers whose receive is overdue
	inside int       // receives under way
	moved  time.Time // when one of them last began or came back
}

// manyCame is how many messages of one receive are a reason for one more poller. Fewer than two are
// a reason for one to leave.
const manyCame = 5

// stepIn is how much longer than the queue's longest wait a receive may take. After that another
// poller steps in for it.
const stepIn = 2 * time.Second

// trusted is for receives that bring many messages, but fewer than they might: so many of them in a
// row are taken for all there was. After that there is no pause, because some queues give less than
// they have, again and again.
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

// adapts reports whether the number of pollers follows the messages. Where requests cost nothing,
// all of them wait on the queue, so that no message waits for a poller.
func (p *pollers) adapts() bool { return p.w.l.PerRequestCost && p.w.c.Pollers > 1 }

// join adds a poller, unless there are enough. It is called with the lock held: by start, and then
// only while a poller runs, so that p.all cannot fall to zero meanwhile.
func (p *pollers) join(ctx context.Context) {
	if p.active+p.late >= p.w.c.Pollers {
		return
	}
	p.active++
	p.all.Go(func() {
		one := poller{pollers: p, least: max(1, min(p.w.l.ReceiveBatch, p.w.c.Concurrency/2)), since: time.Now()}
		if err := one.poll(ctx); err != nil {
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

// leaves reports whether the poller that asks is to end, because the others suffice.
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

// overdue is the watch over the receives of one poller: it lets another poller step in when a
// receive is overdue, because one dead connection must not hold up the queue. The other one gets
// the room that was reserved.
type overdue struct {
	t          *time.Timer
	n          int // for how many messages the receive is
	late, over bool
}

// watch begins the watch over a receive for n messages. The caller calls unwatch after it. o is the
// watch that unwatch gave back last, or nil. Where there is one poller, there is nobody to step in,
// and no watch.
func (p *pollers) watch(ctx context.Context, o *overdue, n int) *overdue {
	if p.w.c.Pollers == 1 {
		return nil
	}
	limit := durations.Sum(p.w.l.MaxWait, stepIn)
	if o != nil {
		p.mu.Lock()
		o.n, o.over = n, false
		p.mu.Unlock()
		o.t.Reset(limit)
		return o
	}
	o = &overdue{n: n}
	o.t = time.AfterFunc(limit, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !o.over {
			o.late = true
			p.active, p.late = p.active-1, p.late+1
			p.f.Unreserve(o.n)
			p.join(ctx)
		}
	})
	return o
}

// unwatch ends the watch o. It answers for how many of the messages there is still room, and the
// watch that the next receive may use; nil = none, because the timer has rung: its function may
// still be on its way, and must not take the next receive for the one that it was set for.
func (p *pollers) unwatch(o *overdue, n int) (room int, next *overdue) {
	if o == nil {
		return n, nil
	}
	if o.t.Stop() {
		next = o
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.over = true; o.late {
		p.active, p.late = p.active+1, p.late-1
		return 0, nil
	}
	return n, next
}

// countInside notes that a receive begins, or has come back, now.
func (p *pollers) countInside(n int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inside += n
	p.moved = now
}

// running is how many pollers there are.
func (p *pollers) running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.active + p.late
}

// silent is for how long no receive has come back beyond its time, while all pollers are receiving.
// A poller that rests, or waits for room, is not silent.
func (p *pollers) silent(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inside == 0 || p.inside < p.active+p.late {
		return 0
	}
	return max(0, now.Sub(p.moved)-durations.Sum(p.w.l.MaxWait, stepIn))
}

// vital tells how receives go. One that failed counts until the next would have waited long enough
// for its messages, because some queues answer only then.
func (p *pollers) vital(now time.Time) engine.Vital {
	return p.pulse.Read(now, min(max(durations.Sum(p.w.l.MaxWait, stepIn), failsFor), 3*failsFor))
}

// failsFor is for how long a receive that failed counts at least. By then there was another.
const failsFor = 10 * time.Second

// firstWait is how long receives wait for messages until one was answered. A worker is ready by
// that answer, and on an empty queue a rollout would wait for the whole of a long poll. It is not
// shorter, because Pub/Sub gives what a pull brings too late to nobody until its deadline is over.
const firstWait = 5 * time.Second

// first is when the first receive was answered; zero = none was.
func (p *pollers) first() time.Time {
	if at := p.began.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// poller is one of the pollers, with what it has seen of its last receives.
type poller struct {
	*pollers
	least  int       // it waits until there is room for as many
	failed int       // receives that failed in a row
	hasty  int       // receives in a row that brought nothing to keep, and took no time
	parts  int       // receives in a row that brought many, and less than they might
	since  time.Time // the last pause, or the last poller that joined

	overdue *overdue // the watch over the last receive, to be used again; nil = there is none
}

// received is what one receive brought.
type received struct {
	asked time.Time
	back  time.Time // when it came back
	most  int       // messages that it might bring
	came  int       // that it brought
	kept  int       // of these, that the flow has room for
}

// many reports whether so much came that one more poller is needed.
func (b *received) many() bool { return b.came >= min(b.most, manyCame) }

// few reports whether so little came that the other pollers may suffice.
func (b *received) few() bool { return b.came <= 1 && !b.many() }

// poll receives as long as ctx lasts, and messages come for it. It ends with an error where
// receiving can never succeed.
//
// Here a message's life begins: poll waits for room (Flow.Reserve), receives, makes a run of each
// message, and hands the runs to the flow, which holds them (Flow.Offer). The engine goes on from
// there: it claims when there is a slot, and gives the run to a hand of the Worker.
func (p *poller) poll(ctx context.Context) error {
	for ctx.Err() == nil {
		n := p.f.Reserve(p.least, p.w.l.ReceiveBatch)
		if n == 0 {
			return nil // the flow is stopped
		}
		b, err := p.take(ctx, n)
		switch {
		case err == nil:
			p.noteReceive(ctx, b.back)
			if p.addPoller(ctx, &b); b.few() && p.leaves() {
				return nil
			}
			p.rest(ctx, &b)
		case ctx.Err() != nil:
			return nil //nolint:nilerr // a poll that the drain cut short is no failure
		case errors.Is(err, broker.ErrClosed), errors.Is(err, broker.ErrNotFound) && !p.once.Load():
			return err
		default:
			p.noteFailure(ctx, err)
		}
	}
	return nil
}

// take receives at most n messages, for which there is room, and offers them to the flow.
func (p *poller) take(ctx context.Context, n int) (received, error) {
	b := received{asked: time.Now(), most: n}
	p.overdue = p.watch(ctx, p.overdue, n)
	p.countInside(1, b.asked)
	wait := time.Duration(-1)
	if most := p.w.l.MaxWait; most > 0 && !p.once.Load() {
		wait = min(firstWait, most)
	}
	ms, err := p.w.receive(ctx, n, wait)
	b.back = time.Now()
	p.countInside(-1, b.back)
	var reserved int
	reserved, p.overdue = p.unwatch(p.overdue, n)
	rs := p.w.taken(p.f, ms, b.back)
	b.came, b.kept = len(rs), p.f.Offer(reserved, rs)
	return b, err
}

// addPoller adds a poller after a receive that brought many. What piles up in a pause is no reason.
func (p *poller) addPoller(ctx context.Context, b *received) {
	if b.many() && b.back.Sub(p.since) >= p.w.c.PollPause {
		p.more(ctx)
		p.since = b.back
	}
}

// rest pauses after a receive where the next one would come too soon: it brought nothing that
// could be kept and took no time, or it was part-full and there is a PollPause.
func (p *poller) rest(ctx context.Context, b *received) {
	pause := p.w.c.PollPause
	if b.kept == 0 && (b.came > 0 || b.back.Sub(b.asked) < noWait) {
		p.hasty++
		pause = max(pause, min(time.Second, retry.Pause(p.hasty)))
	} else {
		p.hasty = 0
	}
	switch {
	case !b.many():
		p.parts = 0
	case b.came < b.most:
		p.parts++
	}
	if pause > 0 && (b.kept == 0 || b.came < b.most && p.parts <= trusted) {
		retry.Rest(ctx, pause)
		p.since = time.Now()
	}
}

// noteFailure logs a receive that failed, when it is time to, and pauses before the next.
func (p *poller) noteFailure(ctx context.Context, err error) {
	p.failed++
	p.pulse.Misses(err)
	if lasts, tell := p.out.Fails(engine.Whole, p.failed >= 3); tell {
		p.w.p.log.LogAttrs(ctx, slog.LevelError, "onceq: receiving fails; it is tried again", engine.ForSo(lasts), slog.Any("error", err))
		p.w.p.tellEvent(p.f.Terms.Base, WorkerEvent{Kind: EventOutage, Reason: ReasonQueue, Err: err, Since: time.Now().Add(-lasts)})
	}
	retry.Rest(ctx, retry.Pause(p.failed))
}

// noteReceive notes a receive that had an answer, and logs it where receives had failed.
func (p *poller) noteReceive(ctx context.Context, now time.Time) {
	if !p.once.Swap(true) {
		p.began.Store(now.UnixNano())
	}
	p.pulse.Answers(now)
	p.failed = 0
	if lasted, tell := p.out.Succeeds(engine.Whole); tell {
		p.w.p.log.LogAttrs(ctx, slog.LevelInfo, "onceq: receiving works again", engine.ForSo(lasted))
		p.w.p.tellEvent(p.f.Terms.Base, WorkerEvent{Kind: EventOutageOver, Reason: ReasonQueue, Since: time.Now().Add(-lasted)})
	}
}

// noWait is the shortest time of an empty receive that has waited for a message. Some brokers do
// not wait, and must not be asked without a pause. Nor must one that brings only messages of groups
// for which there is no room.
const noWait = 10 * time.Millisecond

func (w *Worker) receive(ctx context.Context, n int, wait time.Duration) (ms []*broker.Message, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = verdict.Classed(ClassPanic, "onceq: the broker panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return w.queue.Receive(ctx, broker.ReceiveOptions{Max: n, Wait: wait, Visibility: w.c.Visibility})
}

// taken makes the runs of what was received now. Offer then holds them, until their ack or nack is
// through.
func (w *Worker) taken(f *flow, ms []*broker.Message, now time.Time) []*run {
	if len(ms) == 0 {
		return nil
	}
	rs, copies := make([]*run, 0, len(ms)), make([]given, len(ms))
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
