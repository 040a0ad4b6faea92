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
	fate Fate // 0 = not decided
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
	known map[string]*item  // by message id
	quiet time.Time         // since when we ask and nothing new comes; zero = something did
	stale int               // how many receives have brought only what was known
	idle  int               // how many have come back empty without waiting
	lost  time.Time         // until when a receive with a lost answer may have hidden letters
	heads map[string]string // by group: the last letter of a full receive; there may be more behind it
}

func (q *Queue) walk(ctx context.Context) *walk {
	return &walk{q: q, k: newKeeper(context.WithoutCancel(ctx), q), known: make(map[string]*item), heads: make(map[string]string)}
}

// next receives once. fresh are the letters that are new. again are those that came again although
// they were held, or acked. drained says that nothing came for long enough, and that what a lost
// answer may have hidden would have come again by now.
func (w *walk) next(ctx context.Context, most int, wait time.Duration) (fresh, again []*item, drained bool, err error) {
	room := w.q.o.MaxHeld - w.k.len()
	if room <= 0 {
		return nil, nil, false, fmt.Errorf("%w: %d letters are held, which is Options.MaxHeld; raise it, or take letters out of the queue", ErrIncomplete, w.q.o.MaxHeld)
	}
	if ctx.Err() != nil {
		return nil, nil, false, context.Cause(ctx)
	}
	asked := time.Now()
	if w.quiet.IsZero() {
		w.quiet = asked
	}
	most = min(room, max(1, most), w.q.l.ReceiveBatch)
	ms, err := w.receive(ctx, most, wait)
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
	now := time.Now()
	switch {
	case len(fresh) > 0:
		w.quiet, w.stale, w.idle = time.Time{}, 0, 0
	case len(again) > 0:
		if w.stale++; w.stale == staleReceives {
			return nil, again, false, fmt.Errorf("%w: letters come again faster than the others are reached, for the queue does not let them be held long enough", ErrIncomplete)
		}
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
		if !t.again(ctx, w.q.o.Patience) {
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
	d, ok := broker.As[broker.Depther](w.q.b)
	if !ok {
		return 0, nil
	}
	one, cancel := w.q.ctx(ctx)
	defer cancel()
	depth, err := d.Depth(one)
	if err != nil {
		return 0, nil // a number that only helps is not worth an error
	}
	elsewhere = max(0, int(depth.InFlight+depth.Delayed)-w.k.len())
	for _, name := range w.heads {
		if depth.Visible > 0 && w.k.has(name) {
			return elsewhere, fmt.Errorf("%w: the queue tells of %d more, which wait behind letters of their groups that were not taken", ErrIncomplete, depth.Visible)
		}
	}
	return elsewhere, nil
}
