package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/retry"
)

// held is a letter that is in our hands.
type held struct {
	order    int
	receipt  broker.Receipt
	received time.Time
	deadline time.Time
	due      time.Time // when it is extended next; zero = it cannot be
}

// keeper keeps the letters of one call hidden until each is acked, or handed back. Whatever it fails at is no harm: a letter
// that it loses comes again.
type keeper struct {
	q    *Queue
	base context.Context // values only

	// call has room for one: who settles or extends holds it through the call, for an extension that landed behind a nack
	// would undo it. It is a channel, so that virtual time goes on.
	call chan struct{}

	mu     sync.Mutex
	held   map[string]*held // by message id
	taken  int
	awake  bool // the goroutine runs
	closed bool

	wake chan struct{}
	gone sync.WaitGroup
}

func newKeeper(ctx context.Context, q *Queue) *keeper {
	return &keeper{q: q, base: ctx, call: make(chan struct{}, 1), held: make(map[string]*held), wake: make(chan struct{}, 1)}
}

// keep takes a delivery of a letter into our hands. A letter that was there already came again because it could not
// be held; its new receipt is what counts.
func (k *keeper) keep(id string, m *broker.Message, asked time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.held[id]
	if h == nil {
		h = &held{order: k.taken}
		k.taken++
		k.held[id] = h
	}
	h.receipt, h.received, h.deadline = m.Receipt, asked, m.Deadline
	if h.deadline.IsZero() {
		h.deadline = asked.Add(k.q.o.Visibility)
	}
	if !k.q.l.Extends {
		return
	}
	h.due = halfway(time.Now(), h.deadline)
	if !k.awake {
		k.awake = true
		k.gone.Go(k.run)
		return
	}
	k.rouse()
}

func halfway(from, to time.Time) time.Time { return from.Add(to.Sub(from) / 2) }

func (k *keeper) rouse() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *keeper) len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.held)
}

func (k *keeper) run() {
	for {
		due, next, ok := k.next()
		if !ok {
			return
		}
		if len(due) == 0 {
			k.sleep(next)
		}
		for from := 0; from < len(due); from += k.q.l.SettleBatch {
			k.extend(due[from:min(from+k.q.l.SettleBatch, len(due))])
		}
	}
}

func (k *keeper) sleep(until time.Time) {
	if until.IsZero() {
		<-k.wake
		return
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-k.wake:
	case <-t.C:
	}
}

// next gives what is due, the most urgent first, or else when something will be. It is not ok when the keeper is closed.
func (k *keeper) next() (due []string, at time.Time, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, at, false
	}
	now := time.Now()
	for id, h := range k.held {
		switch {
		case h.due.IsZero():
		case !now.Before(h.due):
			due = append(due, id)
		case at.IsZero() || h.due.Before(at):
			at = h.due
		}
	}
	slices.SortFunc(due, func(a, b string) int {
		return cmp.Or(k.held[a].deadline.Compare(k.held[b].deadline), cmp.Compare(k.held[a].order, k.held[b].order))
	})
	return due, at, true
}

// has tells whether a letter is in our hands.
func (k *keeper) has(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held[id] != nil
}

// extend makes one call for what is still held.
func (k *keeper) extend(ids []string) {
	k.call <- struct{}{}
	defer func() { <-k.call }()
	now := time.Now()
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return
	}
	var hs []*held
	var req []broker.Hold
	for _, id := range ids {
		h := k.held[id]
		if h == nil {
			continue
		}
		d, left := k.q.o.Visibility, h.deadline.Sub(now)
		if most := k.q.l.MaxTotal; most > 0 {
			// A little less than the rest: the broker counts from a moment that we do not know.
			d = min(d, most-now.Sub(h.received)-time.Second)
		}
		if d < k.q.l.MinHold || d < k.q.o.Visibility && d <= left {
			h.due = time.Time{} // it comes again when its time is over
			continue
		}
		hs, req = append(hs, h), append(req, broker.Hold{Receipt: h.receipt, For: d})
	}
	k.mu.Unlock()
	if len(req) == 0 {
		return
	}
	err := k.ask(req)
	answered := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, h := range hs {
		if h.receipt != req[i].Receipt {
			continue // it came again in the meantime
		}
		switch e := broker.ErrAt(err, i); {
		case e == nil && answered.Before(h.deadline):
			h.deadline = now.Add(req[i].For)
			h.due = halfway(answered, h.deadline)
		case e == nil, errors.Is(e, broker.ErrReceiptExpired), errors.Is(e, broker.ErrUnsupported), answered.After(h.deadline):
			h.due = time.Time{}
		default:
			h.due = answered.Add(max(h.deadline.Sub(answered)/4, 50*time.Millisecond))
		}
	}
}

func (k *keeper) ask(req []broker.Hold) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("dlq: the broker panicked: %v", v)
		}
	}()
	ctx, cancel := k.q.ctx(k.base)
	defer cancel()
	return k.q.b.Extend(ctx, req)
}

// ack takes letters out of the queue, repeating what is not known to have been done. It answers those that are not known
// to have left: they may come again. An error says that the broker takes no acks.
func (k *keeper) ack(ctx context.Context, ids []string) (unacked []string, err error) {
	for from := 0; from < len(ids); from += k.q.l.SettleBatch {
		to := min(from+k.q.l.SettleBatch, len(ids))
		left := slices.Clone(ids[from:to])
		for t := (tries{}); ; {
			var expired []string
			left, expired, err = k.ackOnce(ctx, left)
			unacked = append(unacked, expired...)
			if len(left) == 0 || isFinal(err) || !t.again(ctx, k.q.o.Patience) {
				break
			}
		}
		unacked = append(unacked, left...)
		if len(left) == to-from && ctx.Err() == nil {
			return append(unacked, ids[to:]...), err
		}
	}
	return unacked, nil
}

func (k *keeper) ackOnce(ctx context.Context, ids []string) (left, expired []string, err error) {
	k.call <- struct{}{}
	defer func() { <-k.call }()
	k.mu.Lock()
	// A receive may bring one letter twice, and the other of the two may have been acked already.
	ids = slices.DeleteFunc(ids, func(id string) bool { return k.held[id] == nil })
	receipts := make([]broker.Receipt, 0, len(ids))
	for _, id := range ids {
		receipts = append(receipts, k.held[id].receipt)
	}
	k.mu.Unlock()
	if len(ids) == 0 {
		return nil, nil, nil
	}
	one, cancel := k.q.ctx(ctx)
	all := k.q.b.Ack(one, receipts)
	cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, id := range ids {
		switch e := broker.ErrAt(all, i); {
		case e == nil:
			delete(k.held, id)
		case errors.Is(e, broker.ErrReceiptExpired):
			delete(k.held, id) // its delivery is over, and there is nothing to hand back
			expired = append(expired, id)
		default:
			left, err = append(left, id), e
		}
	}
	return left, expired, err
}

// handBack ends the holding and gives everything back, to be delivered again at once. What cannot be given back comes by
// itself when its visibility is over.
func (k *keeper) handBack() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.rouse()
	k.gone.Wait()
	hs := make([]*held, 0, len(k.held))
	for _, h := range k.held {
		hs = append(hs, h)
	}
	slices.SortFunc(hs, func(a, b *held) int { return cmp.Compare(a.order, b.order) })
	for from := 0; from < len(hs); from += k.q.l.SettleBatch {
		if !k.nack(hs[from:min(from+k.q.l.SettleBatch, len(hs))]) {
			return
		}
	}
}

// nack is false when the broker takes none.
func (k *keeper) nack(hs []*held) bool {
	req := make([]broker.Hold, len(hs))
	for i, h := range hs {
		req[i].Receipt = h.receipt
	}
	for n := 1; ; n++ {
		ctx, cancel := k.q.ctx(k.base)
		err := k.q.b.Nack(ctx, req)
		cancel()
		var left []broker.Hold
		for i, h := range req {
			if e := broker.ErrAt(err, i); e != nil && !errors.Is(e, broker.ErrReceiptExpired) && !errors.Is(e, broker.ErrUnsupported) {
				left = append(left, h)
			}
		}
		if len(left) == 0 {
			return true
		}
		if n == 3 || isFinal(err) {
			return len(left) < len(hs)
		}
		retry.Rest(context.WithoutCancel(k.base), retry.Pause(n))
		req = left
	}
}
