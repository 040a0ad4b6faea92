package dlq

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/visibility"
)

// This file owns the letters that one call has in its hands. A walk adds them with keep, a pass
// takes them out with ack, and what is left goes back with handBack when the call ends. The call's
// own goroutine calls all three. Meanwhile a visibility.Manager extends the deliveries, and calls
// extend from goroutines of its own. keeper.mu guards the letters. It is taken before the Manager's
// lock, and no broker is called under it.
//
// No failure of a keeper does harm, because a letter that it loses comes again.

// held is a letter that is in our hands.
type held struct {
	visibility.Held[*held]
	order    int
	receipt  broker.Receipt
	received time.Time
}

// keeper keeps the letters of one call hidden until each is acked, or handed back.
type keeper struct {
	q      *Queue
	base   context.Context // values only
	leases *visibility.Manager[*held]

	mu    sync.Mutex
	held  map[string]*held // by message id
	taken int
}

// errTotal says that a delivery cannot be held any longer.
var errTotal = errors.New("dlq: the broker holds a delivery no longer than this")

func newKeeper(ctx context.Context, q *Queue) *keeper {
	k := &keeper{q: q, base: ctx, held: make(map[string]*held)}
	k.leases, _ = visibility.New(k.extend, q.leases()) // the New of this package has checked them
	return k
}

// leases are the options of a Manager that holds letters.
func (q *Queue) leases() visibility.Options[*held] {
	return visibility.Options[*held]{
		Timeout: q.o.Visibility, CallTimeout: q.o.CallTimeout, MaxBatch: q.l.SettleBatch,
		IsLost: func(err error) bool {
			return errors.Is(err, broker.ErrReceiptExpired) || errors.Is(err, broker.ErrUnsupported) || errors.Is(err, errTotal)
		},
	}
}

// keep takes a delivery of a letter into our hands. A letter that is there already could not be
// held, so it came again. From now on its new receipt counts.
func (k *keeper) keep(id string, m *broker.Message, asked time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.held[id]
	if h == nil {
		h = &held{order: k.taken}
		h.Lease = h
		k.taken++
		k.held[id] = h
	}
	h.receipt, h.received = m.Receipt, asked
	if !k.q.l.Extends {
		return
	}
	k.leases.Release(&h.Held) // the answer to a beat for the old receipt says nothing of the new one
	if h.Deadline = m.Deadline; h.Deadline.IsZero() {
		h.Deadline = asked.Add(k.q.o.Visibility)
	}
	k.leases.Hold(&h.Held)
}

func (k *keeper) len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.held)
}

// has reports whether a letter is in our hands.
func (k *keeper) has(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held[id] != nil
}

// extend is the Extender of the leases.
func (k *keeper) extend(ctx context.Context, hs []*held) error {
	now := time.Now()
	errs := make([]error, len(hs))
	var req []broker.Hold
	var at []int
	k.mu.Lock()
	for i, h := range hs {
		d := k.q.o.Visibility
		if most := k.q.l.MaxTotal; most > 0 {
			// A second less than what is left, because the broker counts from a moment that we do
			// not know.
			d = min(d, most-now.Sub(h.received)-time.Second)
		}
		if d < k.q.l.MinHold || d < k.q.o.Visibility && d <= k.leases.Left(&h.Held) {
			errs[i] = errTotal // it comes again when its time is over
			continue
		}
		req, at = append(req, broker.Hold{Receipt: h.receipt, For: d}), append(at, i)
	}
	k.mu.Unlock()
	if len(req) == 0 {
		return broker.Batch(errs)
	}
	ends, _ := ctx.Deadline()
	one, cancel := context.WithDeadline(k.base, ends) // of the caller's context it takes the time alone
	defer cancel()
	err := k.q.b.Extend(one, req) //nolint:contextcheck // one is made for it above
	for n, i := range at {
		if errs[i] = broker.ErrAt(err, n); errs[i] == nil && req[n].For < k.q.o.Visibility {
			errs[i] = errTotal // no further extension follows
		}
	}
	return broker.Batch(errs)
}

// ack takes letters out of the queue. It repeats acks that are not known to have been applied.
// unacked are the letters that are not known to have left, which may come again. An error says that
// the broker takes no acks.
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
	k.mu.Lock()
	// A receive may bring a letter twice, and the ack of one delivery may have dropped the letter
	// already.
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
	for i, id := range ids {
		switch e := broker.ErrAt(all, i); {
		case e == nil:
			k.drop(id)
		case errors.Is(e, broker.ErrReceiptExpired):
			k.drop(id) // its delivery is over, and there is nothing to hand back
			expired = append(expired, id)
		default:
			left, err = append(left, id), e
		}
	}
	return left, expired, err
}

// drop ends the holding of a letter.
func (k *keeper) drop(id string) {
	k.mu.Lock()
	h := k.held[id]
	delete(k.held, id)
	k.mu.Unlock()
	if h != nil {
		k.leases.Release(&h.Held)
	}
}

// handBack ends the holding and gives all letters back, to be delivered again at once. A letter
// that cannot be given back comes by itself when its visibility is over.
func (k *keeper) handBack() {
	k.mu.Lock()
	hs := slices.SortedFunc(maps.Values(k.held), func(a, b *held) int { return cmp.Compare(a.order, b.order) })
	k.mu.Unlock()
	ls := make([]*visibility.Held[*held], len(hs))
	for i, h := range hs {
		ls[i] = &h.Held
	}
	// An extension that landed after a nack would undo it. No call is longer than CallTimeout.
	ctx, cancel := context.WithTimeout(k.base, 2*k.q.o.CallTimeout)
	defer cancel()
	_ = k.leases.Quiesce(ctx, ls...)
	for from := 0; from < len(hs); from += k.q.l.SettleBatch {
		if !k.nack(hs[from:min(from+k.q.l.SettleBatch, len(hs))]) {
			return
		}
	}
}

// nack gives letters back, and tries three times for those that fail. It reports false when the
// broker takes none.
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
