package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns one way through the queue: what was met, what is new, and when all has been seen.
// List, Get, Group, Replay and Purge each make a walk, and call it in their own goroutine. A walk
// has no lock; the letters that it holds are the keeper's.

// item is one message of the dead-letter queue, on its way through a call.
type item struct {
	m    *broker.Message // nil once nobody needs it
	name string          // its message id
	id   identity
	fate Result // 0 = not decided
	// unsigned: it would reopen a failure, and no key of ours has signed it
	unsigned bool

	out    broker.Outgoing // what a replay sends
	fit    letter.Fit      // how far that was cut down
	copies []*item         // to be acked with it
}

// staleReceives is how many receives may bring only letters that are known, and no new one between,
// before a walk ends.
const staleReceives = 5

// lostWaits bounds how long a walk waits, with nothing new, for letters that lost answers have
// hidden: this many times Options.Visibility.
const lostWaits = 3

// walk goes through the queue once. It holds what it has met, so that each receive brings something
// else.
type walk struct {
	q     *Queue
	k     *keeper
	gone  map[string]bool  // by message id: those that are known and were let go
	known map[string]*item // by message id
	quiet time.Time        // since when we ask and nothing new comes; zero = something did
	stale int              // how many receives have brought only what was known
	idle  int              // how many have come back empty without waiting
	lost  time.Time        // until when a receive with a lost answer may have hidden letters
	seen  int              // how many letters were met
	about int              // how many there are, by the broker; 0 = it has not told

	eager  bool              // the walk ends as soon as the broker says that nothing is left
	probed bool              // it was asked since something new came, and has not said so
	heads  map[string]string // by group: the last letter of a full receive; there may be more behind it
}

func (q *Queue) walk(ctx context.Context) *walk {
	return &walk{q: q, k: newKeeper(context.WithoutCancel(ctx), q), known: make(map[string]*item), gone: make(map[string]bool), heads: make(map[string]string)}
}

// next receives once. fresh are the letters that are new. again are those that came again although
// they were held, or acked. drained says that nothing came for long enough, and that what a lost
// answer may have hidden would have come again by now.
func (w *walk) next(ctx context.Context, most int, wait time.Duration) (fresh, again []*item, drained bool, err error) {
	room := w.room()
	if room <= 0 {
		return nil, nil, false, fmt.Errorf("%w: %d letters are held, which is Options.MaxHeld: raise it, or replay or purge those that were seen first", ErrIncomplete, w.q.o.MaxHeld)
	}
	w.k.lengthen() //nolint:contextcheck // it outlives the end of ctx
	if ctx.Err() != nil {
		return nil, nil, false, context.Cause(ctx)
	}
	asked := time.Now()
	if w.quiet.IsZero() {
		w.quiet = asked
	}
	probes := w.eager && !w.probed
	if probes {
		wait = min(wait, w.probe())
	}
	most = min(room, max(1, most), w.q.l.ReceiveBatch)
	ms, err := w.receive(ctx, most, wait)
	stray := false // a letter came again that we had in our hands
	for i, m := range ms {
		if m == nil {
			continue
		}
		name := cmp.Or(m.ID, string(m.Receipt))
		w.k.keep(name, m, asked)
		if w.q.l.OrderedGroups && m.Group != "" && i+1 >= most {
			w.heads[m.Group] = name
		}
		if l := w.known[name]; l != nil {
			stray = stray || !w.gone[name]
			delete(w.gone, name)
			again = append(again, l)
			continue
		}
		l := &item{m: m, name: name, id: identityOf(m), unsigned: w.q.isUnsigned(m)}
		if l.unsigned {
			// It is never a copy of a signed one, which would then be removed in its stead.
			l.id = identify("unsigned", 0, l.id.String())
		}
		w.known[name] = l
		fresh = append(fresh, l)
	}
	if err != nil {
		return fresh, again, false, err
	}
	w.progress(ctx, len(fresh))
	now := time.Now()
	switch {
	case len(fresh) > 0:
		w.quiet, w.stale, w.idle, w.probed = time.Time{}, 0, 0, false
	case len(again) > 0:
		if stray {
			w.stale++
		}
		if w.stale == staleReceives {
			return nil, again, false, fmt.Errorf("%w: letters come again faster than the others are reached, for the queue does not let them be held long enough", ErrIncomplete)
		}
	case probes:
		w.probed = true
		return nil, nil, !asked.Before(w.lost) && w.isLast(ctx), nil
	case now.Sub(w.quiet) >= w.q.o.Wait && !asked.Before(w.lost):
		return nil, nil, true, nil
	case now.Sub(w.quiet) >= w.q.o.Wait+lostWaits*w.q.o.Visibility:
		return nil, nil, false, fmt.Errorf("%w: the answers of receives are lost again and again, with what they took", ErrIncomplete)
	case now.Sub(asked) < wait/2:
		// The broker does not wait, and must not be asked without a pause.
		w.idle++
		retry.Rest(ctx, min(retry.Pause(w.idle), max(w.q.o.Wait-now.Sub(w.quiet), w.lost.Sub(now))))
	}
	return fresh, again, false, nil
}

// probe is how long an eager walk waits before it asks the broker whether anything is left. One
// that asks SQS for less than a second looks at a part of the queue alone.
func (w *walk) probe() time.Duration {
	if w.q.l.PerRequestCost {
		return time.Second
	}
	return 0
}

// isLast reports whether the broker says that all that is left is in our hands.
func (w *walk) isLast(ctx context.Context) bool {
	d, ok := w.depth(ctx)
	return ok && d.Visible == 0 && d.Delayed == 0 && d.InFlight <= int64(w.k.len())
}

// room is how many letters more can be held.
func (w *walk) room() int { return w.q.o.MaxHeld - w.k.len() }

// progress tells how far the walk has come.
func (w *walk) progress(ctx context.Context, fresh int) {
	if fresh == 0 || w.q.o.Progress == nil {
		return
	}
	if w.seen == 0 {
		if d, ok := w.depth(ctx); ok {
			w.about = int(d.Visible) + w.k.len()
		}
	}
	w.seen += fresh
	w.about = max(w.about, min(w.about, 1)*w.seen) // the broker's number is not exact
	w.q.o.Progress(w.seen, w.about)
}

// depth is what the broker tells of its numbers; false = nothing.
func (w *walk) depth(ctx context.Context) (broker.Depth, bool) {
	d, ok := broker.As[broker.Depther](w.q.b)
	if !ok {
		return broker.Depth{}, false
	}
	one, cancel := w.q.ctx(ctx)
	defer cancel()
	depth, err := d.Depth(one)
	return depth, err == nil // a number that only helps is not worth an error
}

// mayGo reports whether a letter that is held is of no use any more.
func (w *walk) mayGo(id string) bool {
	l := w.known[id]
	return l != nil && (l.fate == Unchosen || l.fate == Skipped)
}

// letGo gives letters back that stay, and they come again after a while. It forgets those that
// nobody has chosen, so that they are looked at again then, and answers how many they are.
func (w *walk) letGo(n int, after time.Duration) (forgotten int) {
	for _, id := range w.k.giveSome(n, after, w.mayGo) {
		if w.known[id].fate == Unchosen {
			delete(w.known, id)
			forgotten++
		} else {
			w.gone[id] = true
		}
	}
	w.stale = 0
	return forgotten
}

// receive repeats a receive that fails.
func (w *walk) receive(ctx context.Context, n int, wait time.Duration) ([]*broker.Message, error) {
	if l := w.q.l.MaxWait; l > 0 {
		wait = min(wait, l)
	}
	for t := (tries{}); ; {
		one, cancel := context.WithTimeout(ctx, wait+w.q.o.CallTimeout)
		ms, err := w.q.b.Receive(one, broker.ReceiveOptions{Max: n, Wait: wait, Visibility: w.q.o.Visibility})
		cancel()
		switch {
		case err == nil:
			return ms, nil
		case ctx.Err() != nil:
			return ms, context.Cause(ctx)
		case isFinal(err) || len(ms) > 0:
			return ms, err
		}
		if !errors.Is(err, broker.ErrThrottled) {
			w.lost = time.Now().Add(w.q.o.Visibility)
		}
		if !t.again(ctx, w.q.o.RetryFor) {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, err
		}
	}
}

// rest says what a drained walk has not seen. elsewhere is about how many letters are in other
// hands. An error says that letters wait behind others of their group that we hold. A broker
// without Depth tells neither.
func (w *walk) rest(ctx context.Context) (elsewhere int, err error) {
	depth, ok := w.depth(ctx)
	if !ok {
		return 0, nil
	}
	elsewhere = max(0, int(depth.InFlight+depth.Delayed)-w.k.len())
	for _, name := range w.heads {
		if depth.Visible > 0 && w.k.has(name) {
			return elsewhere, fmt.Errorf("%w: the queue tells of %d more, which wait behind letters of their groups that were not taken", ErrIncomplete, depth.Visible)
		}
	}
	if held := w.k.len(); held >= fewestInFlight && depth.Visible > int64(held)/100 {
		return elsewhere, fmt.Errorf("%w: the queue tells of %d more, which it does not hand out while %d are held", ErrIncomplete, depth.Visible, held)
	}
	return elsewhere, nil
}

// fewestInFlight is below the least number of messages that a service lets be in flight: SQS
// answers nothing beyond 20,000 on a FIFO queue, and beyond 120,000 on others.
const fewestInFlight = 15_000
