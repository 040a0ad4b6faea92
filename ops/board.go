package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// This file owns the board: what many viewers look at, asked for once. One goroutine looks at the
// queues while somebody calls Look, and boardpass.go has one for each pass through letters.
// Board.mu guards the fields below it. It is held for no call of a queue, a store or a user's
// function. What was published is never changed again, so all viewers share it.

// ErrClosed says that a Board or a Running was closed.
var ErrClosed = errors.New("ops: closed")

// BoardOptions set up a Board. The zero value, and nil, mean the defaults.
type BoardOptions struct {
	// Every is how often the queues are looked at while somebody looks at the board. Default 5 s,
	// at least 1 s. A look takes a second more at most: what has not answered by then has an error.
	// When nobody has called Look for four times as long, nothing is asked any more.
	Every time.Duration
	// Samples is how many samples of each queue are kept. Default 720, an hour of the default
	// Every; at most 10,000. Each takes up to 160 bytes.
	Samples int
}

// Board is what many viewers look at. It asks the queues and the store for all of them once. What
// one of them sees the others see: it is the board of an [Ops], with its Redact, and of no person.
// It asks nothing until somebody calls Look or Pass. Its methods may be called from many
// goroutines.
type Board struct {
	o  *Ops
	bo BoardOptions

	looking, passing context.Context // end all calls of looks, and of passes
	endLooks, cut    context.CancelFunc
	stop             chan struct{} // closed by Close: ends all in order
	all              sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	last    *Snapshot // nil = nobody has looked yet
	number  uint64
	looked  time.Time // when somebody looked last
	looks   bool      // the goroutine that looks is there,
	live    bool      // and has looked
	changed chan struct{}
	samples map[string][]Sample
	turns   map[*target]*turn
	reread  time.Time              // when rules were read again, and
	ruled   map[*target]QueueState // what they were
}

// Snapshot is what a look at the queues has seen. Viewers share it, so it must not be changed.
type Snapshot struct {
	// Number is another one for each look, and rises.
	Number uint64
	// At is when the look began, and Took how long it took.
	At   time.Time
	Took time.Duration
	// Queues are in the order of the targets.
	Queues []BoardQueue
}

// BoardQueue is a queue on the board.
type BoardQueue struct {
	QueueState
	// Sum is what Totals answers.
	Sum WorkerTotals
	// Samples are the last ones, the oldest first. There is none of the time when nobody looked.
	Samples []Sample
}

// Sample is a queue at a moment, in numbers.
type Sample struct {
	At time.Time
	// Waiting is Depth.Visible, and Letters is that of the queue's state; -1 = not known.
	Waiting, Letters int64
	// PerMinute is how many deliveries ended a minute, and Failing the share of the last minute's
	// handlers that failed, from 0 to 1; -1 = not known.
	PerMinute, Failing float64
	// Live and Dead count the workers.
	Live, Dead int
}

// NewBoard makes a board. It does no I/O and starts no goroutine. Close it before the queues and
// stores are closed.
func NewBoard(o *Ops, bo *BoardOptions) (*Board, error) {
	b := &Board{
		o: o, stop: make(chan struct{}), changed: make(chan struct{}),
		samples: make(map[string][]Sample), turns: make(map[*target]*turn), ruled: make(map[*target]QueueState),
	}
	if bo != nil {
		b.bo = *bo
	}
	if b.bo.Every == 0 {
		b.bo.Every = 5 * time.Second
	}
	if b.bo.Samples == 0 {
		b.bo.Samples = 720
	}
	switch {
	case o == nil:
		return nil, errors.New("ops: NewBoard: the Ops is nil")
	case b.bo.Every < time.Second:
		return nil, fmt.Errorf("ops: BoardOptions.Every is %v, want 1s or more", b.bo.Every)
	case b.bo.Samples < 1 || b.bo.Samples > 10_000:
		return nil, fmt.Errorf("ops: BoardOptions.Samples is %d, want 1 to 10000", b.bo.Samples)
	}
	b.looking, b.endLooks = context.WithCancel(context.Background())
	b.passing, b.cut = context.WithCancel(context.Background())
	return b, nil
}

// Look is what was seen last. It returns at once while the board is being looked at: Snapshot.At
// says how old it is, which is up to twice BoardOptions.Every where something does not answer.
// Where nobody has looked for a while it waits for a look, or for the end of ctx. The error is
// ctx's cause, or [ErrClosed]; those of the queues stand beside their parts.
func (b *Board) Look(ctx context.Context) (*Snapshot, error) {
	for {
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			return nil, ErrClosed
		}
		b.looked = time.Now()
		seen, changed := b.last, b.changed
		fresh := b.live || seen != nil && b.looked.Sub(seen.At) < b.bo.Every
		if !b.looks {
			b.looks = true
			b.all.Go(b.watch)
		}
		b.mu.Unlock()
		if fresh {
			return seen, nil
		}
		select {
		case <-changed:
		case <-b.stop:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Changed is closed when anything on the board changes: a new Snapshot, or what a pass has found.
// Take it before Look and Letters, so that no change is missed. To wait for it does not count as
// looking: call Look after each change.
func (b *Board) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// change wakes all who wait. The caller holds mu.
func (b *Board) change() {
	close(b.changed)
	b.changed = make(chan struct{})
	b.number++
}

// watch looks at the queues until nobody has looked at the board for long enough.
func (b *Board) watch() {
	next := time.NewTimer(b.sleep())
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-b.stop:
			return
		}
		b.look()
		b.mu.Lock()
		if time.Since(b.looked) >= 4*b.bo.Every {
			b.looks, b.live = false, false
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		next.Reset(b.sleep())
	}
}

// sleep is how long it is until the next look.
func (b *Board) sleep() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		return 0
	}
	return max(0, b.bo.Every-time.Since(b.last.At))
}

// look asks the queues once, and publishes what they say.
func (b *Board) look() {
	ctx, cancel := context.WithTimeout(b.looking, b.bo.Every)
	defer cancel()
	s := &Snapshot{At: time.Now()}
	states, _ := b.o.Overview(ctx) // the error is that of a name
	s.Took = time.Since(s.At)
	s.Queues = make([]BoardQueue, len(states))
	for i := range states {
		s.Queues[i] = BoardQueue{QueueState: states[i], Sum: states[i].Totals()}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range s.Queues {
		q := &s.Queues[i]
		q.Samples = b.sampled(q.Queue, q.sample())
	}
	b.publish(s)
	b.live = true
}

// publish makes s the last snapshot. Rules that were read since it began are the newer ones. The
// caller holds mu.
func (b *Board) publish(s *Snapshot) {
	if s.At.After(b.reread) {
		clear(b.ruled)
	}
	for t, q := range b.ruled {
		if to := s.Queue(t.Name); to != nil {
			to.Rules, to.Version, to.Paused, to.Limited = q.Rules, q.Version, q.Paused, q.Limited
		}
	}
	b.change()
	s.Number, b.last = b.number, s
}

// ReadRules reads the rules of all queues again, so that whoever has just changed one sees it on
// the board when it returns. It costs each queue a read of its store. Rules that cannot be read
// stay as they were.
func (b *Board) ReadRules(ctx context.Context) {
	at, ruled := time.Now(), make(map[*target]QueueState, len(b.o.ts))
	for _, t := range b.o.ts {
		if t.Store == nil {
			continue
		}
		var q QueueState
		if q.rules(ctx, t); q.RulesErr == nil {
			ruled[t] = q
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || at.Before(b.reread) {
		return
	}
	b.reread, b.ruled = at, ruled
	if b.last == nil {
		return
	}
	s := *b.last
	s.Queues = slices.Clone(s.Queues)
	b.publish(&s)
}

// sampled adds a sample, and answers the last ones. Those who got the others before keep them: what
// they can see is never written again. The caller holds mu.
func (b *Board) sampled(queue string, x Sample) []Sample {
	l, most := b.samples[queue], b.bo.Samples
	if len(l) == cap(l) && len(l) >= most { // most of it is older than what is kept
		l = append(make([]Sample, 0, 2*most), l[len(l)-most+1:]...)
	}
	l = append(l, x)
	b.samples[queue] = l
	return l[max(0, len(l)-most):len(l):len(l)]
}

// sample is the queue in numbers.
func (q *BoardQueue) sample() Sample {
	x := Sample{At: q.At, Waiting: -1, Letters: -1, PerMinute: -1, Failing: -1, Live: q.Sum.Live, Dead: q.Sum.Dead}
	if q.Depth != nil {
		x.Waiting = q.Depth.Visible
	}
	if q.Letters != nil {
		x.Letters = *q.Letters
	}
	if q.Sum.PerMinute != nil {
		x.PerMinute = *q.Sum.PerMinute
	}
	if share, ok := q.Sum.Failing(); ok {
		x.Failing = share
	}
	return x
}

// Queue is the state of a target; nil = there is none of that name.
func (s *Snapshot) Queue(name string) *BoardQueue {
	for i := range s.Queues {
		if s.Queues[i].Queue == name {
			return &s.Queues[i]
		}
	}
	return nil
}

// Close ends the looks, and the passes: the letters that one holds go back. It waits until all of
// them have ended, which takes seconds, or until ctx ends, and then cuts off what is left. The
// error is ctx's cause.
func (b *Board) Close(ctx context.Context) error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.stop)
		b.endLooks()
		b.change()
	}
	b.mu.Unlock()
	return closing(ctx, &b.all, b.cut)
}

// closing waits for goroutines that were asked to end.
func closing(ctx context.Context, all *sync.WaitGroup, cut func()) error {
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	select {
	case <-ended:
		cut()
		return nil
	case <-ctx.Done():
		cut()
		return context.Cause(ctx)
	}
}
