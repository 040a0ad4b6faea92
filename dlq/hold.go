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
	id       string
	order    int
	long     bool // it is under keeper.long
	receipt  broker.Receipt
	received time.Time
}

// keeper keeps the letters of one call hidden until each is acked, or handed back.
type keeper struct {
	q      *Queue
	base   context.Context // values only
	leases *visibility.Manager[*held]
	long   *visibility.Manager[*held] // of those that came first, where there are many

	mu    sync.Mutex
	held  map[string]*held // by message id
	brief []*held          // those under leases in the order in which they came, and some that have gone
	taken int
}

const (
	// holdBriefly is how many letters have leases of Options.Visibility. Where more are held, those
	// that came first have longer ones, because the beats would be hundreds of requests a second.
	holdBriefly = 15_000
	// holdLong is a longer lease. A program that dies leaves its letters hidden for so long.
	holdLong = 10 * time.Minute
	// lengthened is how many letters go over to longer leases at once.
	lengthened = 1000
)

// errTotal says that a delivery cannot be held any longer.
var errTotal = errors.New("dlq: the broker holds a delivery no longer than this")

func newKeeper(ctx context.Context, q *Queue) *keeper {
	k := &keeper{q: q, base: ctx, held: make(map[string]*held)}
	// The New of this package has checked the options.
	k.leases, _ = visibility.New(func(ctx context.Context, hs []*held) error { return k.extend(ctx, hs, q.o.Visibility) }, q.leases(q.o.Visibility))
	k.long, _ = visibility.New(func(ctx context.Context, hs []*held) error { return k.extend(ctx, hs, q.longer()) }, q.leases(q.longer()))
	return k
}

// longer is the lease of letters that are held beyond holdBriefly.
func (q *Queue) longer() time.Duration {
	d := max(holdLong, q.o.Visibility)
	if q.l.MaxHold > 0 {
		d = min(d, q.l.MaxHold)
	}
	return d
}

// leases are the options of a Manager that holds letters for a time.
func (q *Queue) leases(each time.Duration) visibility.Options[*held] {
	return visibility.Options[*held]{
		Timeout: each, CallTimeout: q.o.CallTimeout, MaxBatch: q.l.SettleBatch,
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
		h = &held{id: id, order: k.taken}
		h.Lease = h
		k.taken++
		k.held[id] = h
		if k.q.l.Extends {
			k.brief = append(k.brief, h)
		}
	}
	h.receipt, h.received = m.Receipt, asked
	if !k.q.l.Extends {
		return
	}
	leases := k.of(h)
	leases.Release(&h.Held) // the answer to a beat for the old receipt says nothing of the new one
	if h.Deadline = m.Deadline; h.Deadline.IsZero() {
		h.Deadline = asked.Add(k.q.o.Visibility)
	}
	leases.Hold(&h.Held)
}

// of is the manager of a letter.
func (k *keeper) of(h *held) *visibility.Manager[*held] {
	if h.long {
		return k.long
	}
	return k.leases
}

// lengthen gives longer leases to the letters that came first, where there are many.
func (k *keeper) lengthen() {
	k.mu.Lock()
	if len(k.brief) < holdBriefly+lengthened {
		k.mu.Unlock()
		return
	}
	hs := make([]*held, 0, lengthened)
	for _, h := range k.brief[:lengthened] {
		if k.held[h.id] == h {
			hs = append(hs, h)
		}
	}
	k.brief = slices.Clone(k.brief[lengthened:])
	k.mu.Unlock()
	ls, ends := leasesOf(hs), make([]time.Time, len(hs))
	for i, l := range ls {
		ends[i] = k.leases.Deadline(l)
	}
	// A short extension that landed after a long one would undo it.
	ctx, cancel := context.WithTimeout(k.base, 2*k.q.o.CallTimeout)
	defer cancel()
	err := k.leases.Quiesce(ctx, ls...)
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, h := range hs {
		h.Deadline, h.long = ends[i], err == nil
	}
	if err != nil { // a beat that nobody answers has them still
		k.brief = append(k.brief, hs...)
		k.leases.Hold(ls...)
		return
	}
	k.long.Hold(ls...)
}

func leasesOf(hs []*held) []*visibility.Held[*held] {
	ls := make([]*visibility.Held[*held], len(hs))
	for i, h := range hs {
		ls[i] = &h.Held
	}
	return ls
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

// extend is the Extender of the leases: each is prolonged to a whole one.
func (k *keeper) extend(ctx context.Context, hs []*held, whole time.Duration) error {
	now := time.Now()
	errs := make([]error, len(hs))
	var req []broker.Hold
	var at []int
	k.mu.Lock()
	for i, h := range hs {
		d := whole
		if most := k.q.l.MaxTotal; most > 0 {
			// A second less than what is left, because the broker counts from a moment that we do
			// not know.
			d = min(d, most-now.Sub(h.received)-time.Second)
		}
		if d < k.q.l.MinHold || d < whole && d <= k.of(h).Left(&h.Held) {
			errs[i] = errTotal // it comes again when its time is over
			continue
		}
		req, at = append(req, broker.Hold{Receipt: h.receipt, For: d}), append(at, i)
	}
	k.mu.Unlock()
	if len(req) == 0 {
		return broker.JoinEntries(errs)
	}
	ends, _ := ctx.Deadline()
	one, cancel := context.WithDeadline(k.base, ends) // of the caller's context it takes the time alone
	defer cancel()
	err := k.q.b.Extend(one, req) //nolint:contextcheck // one is made for it above
	for n, i := range at {
		if errs[i] = broker.ErrAt(err, n); errs[i] == nil && req[n].For < whole {
			errs[i] = errTotal // no further extension follows
		}
	}
	return broker.JoinEntries(errs)
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
			if len(left) == 0 || isFinal(err) || !t.again(ctx, k.q.o.RetryFor) {
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
		k.of(h).Release(&h.Held)
	}
}

// handBack ends the holding and gives all letters back, to be delivered again at once. A letter
// that cannot be given back comes by itself when its visibility is over.
func (k *keeper) handBack() {
	k.mu.Lock()
	hs := slices.Collect(maps.Values(k.held))
	k.mu.Unlock()
	k.giveBack(hs, 0)
}

// giveSome gives up to n of the letters back that came first and that may go: each comes again
// after a while. It answers their ids.
func (k *keeper) giveSome(n int, after time.Duration, may func(id string) bool) (ids []string) {
	k.mu.Lock()
	var hs []*held
	for id, h := range k.held {
		if may(id) {
			hs = append(hs, h)
		}
	}
	if len(hs) > n {
		slices.SortFunc(hs, inOrder)
		hs = hs[:n]
	}
	for _, h := range hs {
		delete(k.held, h.id)
		ids = append(ids, h.id)
	}
	k.mu.Unlock()
	k.giveBack(hs, after)
	return ids
}

func inOrder(a, b *held) int { return cmp.Compare(a.order, b.order) }

// giveBack ends the holding of letters, those that came first before the others.
func (k *keeper) giveBack(hs []*held, after time.Duration) {
	slices.SortFunc(hs, inOrder)
	// An extension that landed after a nack would undo it. No call is longer than CallTimeout.
	ctx, cancel := context.WithTimeout(k.base, 2*k.q.o.CallTimeout)
	defer cancel()
	var brief, long []*visibility.Held[*held]
	for _, h := range hs {
		if h.long {
			long = append(long, &h.Held)
		} else {
			brief = append(brief, &h.Held)
		}
	}
	_ = k.leases.Quiesce(ctx, brief...)
	_ = k.long.Quiesce(ctx, long...)
	for from := 0; from < len(hs); from += k.q.l.SettleBatch {
		if !k.nack(hs[from:min(from+k.q.l.SettleBatch, len(hs))], after) {
			return
		}
	}
}

// nack gives letters back, and tries three times for those that fail. It reports false when the
// broker takes none.
func (k *keeper) nack(hs []*held, after time.Duration) bool {
	req := make([]broker.Hold, len(hs))
	for i, h := range hs {
		req[i] = broker.Hold{Receipt: h.receipt, For: after}
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
