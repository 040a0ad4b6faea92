package controlstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/storecall"
)

// This file owns a worker's seat: how it gets a number, keeps it, moves down and leaves. One
// goroutine of the worker calls Beat, Fence and Leave; Name may be called by any. Nothing is
// locked.
//
// Numbers take the place of a list, so that nobody needs to scan a table. A reader goes up from 0
// and stops after two batches in which nobody sits (Seats). So takers prefer low numbers, leave no
// gap of two batches, and whoever sits high moves down.

const (
	// batch is how many numbers are read at once.
	batch = 64
	// beyond is how far above the highest seat a number may be that is taken first. It doubles with
	// each collision.
	beyond = 8
	// crowded is how many collisions in one batch send a taker on to the next.
	crowded = 6
	// forgiven is for how long a dead seat is left alone, so that people see who has died.
	forgiven = 10 * time.Minute
	// shown is for how long a dead seat that nobody takes is shown.
	shown = 24 * time.Hour
	// lookEach is after how many beats a seat above the first batch looks for a lower one.
	lookEach = 6
	// left is how long the seat of a worker that has left is shown.
	left = time.Minute
	// highest bounds the numbers, for the case that each of them is refused.
	highest = 1 << 20
)

// SeatOptions say who sits where. Queue and Owner are required.
type SeatOptions struct {
	// Queue is the name of the worker's queue; at most 255 bytes.
	Queue string
	// Owner names the worker to people; at most 255 bytes.
	Owner string
	// TTL is after what time without a beat the worker counts as dead, by the store's clock.
	// Default 30 s. It must be a few times the pause between beats.
	TTL time.Duration
}

// DefaultTTL is SeatOptions.TTL where nothing else is said.
const DefaultTTL = 30 * time.Second

// ErrSeatLost is wrapped by the error of a [Seat.Beat] that found the seat taken by another worker,
// or removed. Nobody has lost a job by it. The next Beat takes another seat.
var ErrSeatLost = control.ErrSeatLost

var nowhere = place{n: -1}

// Seat is a worker's place among those of its queue. Make one with [NewSeat].
type Seat struct {
	s    dedupe.Store
	o    SeatOptions
	id   string // of this worker, drawn; it is the same in every seat that it takes
	name atomic.Pointer[string]
	place
	beats int // since the seat was taken
}

// place is where a worker sits.
type place struct {
	n     int // the number; -1 = none
	token dedupe.Token
	fence uint64
	no    int // the number of the last card
}

// NewSeat prepares a seat. It does no I/O: the first Beat takes a number. The error wraps
// [control.ErrInvalid].
func NewSeat(s dedupe.Store, o SeatOptions) (*Seat, error) {
	if err := checkText("SeatOptions.Queue", o.Queue, MaxName, true); err != nil {
		return nil, err
	}
	if err := checkText("SeatOptions.Owner", o.Owner, MaxName, true); err != nil {
		return nil, err
	}
	switch {
	case o.TTL == 0:
		o.TTL = DefaultTTL
	case o.TTL < time.Second:
		return nil, invalid("SeatOptions.TTL", "%v is below 1s; is its unit missing?", o.TTL)
	}
	return &Seat{s: s, o: o, id: storecall.NewToken().Hex()[:10], place: nowhere}, nil
}

// Name is the seat's key, such as "orders/3"; empty where the worker has none at present. Any
// goroutine may ask.
func (t *Seat) Name() string {
	if p := t.name.Load(); p != nil {
		return *p
	}
	return ""
}

// Fence is that of the claim by which the worker took its seat; 0 where it has none.
func (t *Seat) Fence() uint64 { return t.fence }

// key is where the seat n of a queue is.
func key(queue string, n int) dedupe.Key {
	return dedupe.Key{Scope: ScopeWorker, Key: queue + "/" + strconv.Itoa(n)}
}

// Beat says that the worker lives, and shows its card. Where it has no seat, it takes one first. In
// a queue of up to 64 workers that is one write. A worker that sits higher reads one more record a
// batch of 64 below it, each sixth time, and moves to a free seat that it finds there.
//
// An error says that the card may not be seen. The next Beat does all that is needed.
func (t *Seat) Beat(ctx context.Context, c *control.WorkerStatus) error {
	card, err := encodeCard(c, t.id, t.o.Owner, cardRoom(t.o.Owner, key(t.o.Queue, highest).Key))
	if err != nil {
		return err
	}
	if t.n < 0 {
		if err := t.take(ctx); err != nil {
			return err
		}
	}
	t.beats++
	if t.n >= batch && t.beats%lookEach == 0 {
		if moved, err := t.moveDown(ctx, card); moved || err != nil {
			return err
		}
	}
	return t.write(ctx, card)
}

// write renews the seat, once: a Beat that fails is repeated by the next one.
func (t *Seat) write(ctx context.Context, card []byte) error {
	t.no++
	a, err := storecall.First(t.s.Renew(ctx, []dedupe.Renewal{{Key: key(t.o.Queue, t.n), Token: t.token, TTL: t.o.TTL, State: card, StateNo: t.no}}))
	if err == nil {
		err = a.Err
	}
	if errors.Is(err, dedupe.ErrLeaseLost) {
		was := t.Name()
		t.setPlace(nowhere)
		return fmt.Errorf("%w: %s: %w", ErrSeatLost, was, err)
	}
	if err != nil {
		return fmt.Errorf("control: writing the card of %s: %w", t.Name(), err)
	}
	return nil
}

// Leave gives the seat back. Readers show it for a minute more, as left. A Seat that has none does
// nothing.
func (t *Seat) Leave(ctx context.Context) error {
	if t.n < 0 {
		return nil
	}
	k, token := key(t.o.Queue, t.n), t.token
	t.setPlace(nowhere)
	if err := t.free(ctx, k, token); err != nil {
		return fmt.Errorf("control: leaving the seat %s: %w", k.Key, err)
	}
	return nil
}

func (t *Seat) free(ctx context.Context, k dedupe.Key, token dedupe.Token) error {
	err := storecall.Settle(ctx, t.s, dedupe.Settlement{Key: k, Token: token, To: dedupe.Released, Uncounted: true, Retain: left})
	if errors.Is(err, dedupe.ErrLeaseLost) {
		return nil // it is another's, so it is not ours
	}
	return err
}

func (t *Seat) setPlace(at place) {
	t.place = at
	if at.n < 0 {
		t.name.Store(nil)
		return
	}
	name := key(t.o.Queue, at.n).Key
	t.name.Store(&name)
}

// claim claims a number, and reports whether it was free.
func (t *Seat) claim(ctx context.Context, n int) (bool, error) {
	token := storecall.NewToken()
	c, err := storecall.Claim(ctx, t.s, dedupe.ClaimRequest{Key: key(t.o.Queue, n), Token: token, TTL: t.o.TTL, Owner: t.o.Owner, MessageID: t.id})
	switch {
	case errors.Is(err, dedupe.ErrBusy):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("control: taking a seat of %s: %w", t.o.Queue, err)
	case c.Outcome != dedupe.Won:
		return false, nil
	}
	t.setPlace(place{n, token, c.Lease.Fence, c.StateNo})
	return true, nil
}

// take takes a seat: the lowest of those whose worker is long dead, else a free one that is drawn
// among the lowest. Workers that start together collide. Each collision doubles the number of seats
// that are drawn from, and several of them lead to another batch.
func (t *Seat) take(ctx context.Context) error {
	t.beats = 0
	for base := 0; base < highest; {
		p, err := t.look(ctx, base)
		if err != nil {
			return err
		}
		tried := 0
		for ; tried < crowded; tried++ {
			n, ok := p.draw(tried)
			if !ok {
				break
			}
			if won, err := t.claim(ctx, base+n); won || err != nil {
				return err
			}
			p.open[n] = false
		}
		base += batch
		if tried == crowded && rand.N(2) == 0 {
			base += batch // a gap of one batch, which readers go over
		}
	}
	return fmt.Errorf("control: there is no free seat of %s below %d", t.o.Queue, highest)
}

// places is a batch of numbers, as a taker sees it.
type places struct {
	open [batch]bool // nobody sits there, or somebody who is long dead
	dead [batch]bool
	top  int // the highest number where somebody sits; -1 = none
}

// look reads the batch of numbers from base on. It removes who has been dead for a day, because
// nobody asks for him any more. If that fails, the next taker tries again.
func (t *Seat) look(ctx context.Context, base int) (*places, error) {
	ks := make([]dedupe.Key, batch)
	for i := range ks {
		ks[i] = key(t.o.Queue, base+i)
	}
	rs, err := storecall.ReadAll(ctx, t.s, ks)
	if err != nil {
		return nil, fmt.Errorf("control: reading the seats of %s: %w", t.o.Queue, err)
	}
	p := &places{top: -1}
	now := time.Now()
	var gone []dedupe.Forgotten
	for i, r := range rs {
		p.dead[i] = r != nil && isDeadFor(r, forgiven, now)
		p.open[i] = isFree(r, now)
		if !p.open[i] {
			p.top = i
		}
		if r != nil && isDeadFor(r, shown, now) && len(gone) < t.s.Limits().MaxBatch {
			gone = append(gone, dedupe.Forgotten{Key: r.Key, Fence: r.Fence})
		}
	}
	if len(gone) > 1 { // one is about to be taken
		_, _ = t.s.Forget(ctx, gone)
	}
	return p, nil
}

// isFree reports whether nobody sits at r, as far as a reader can tell; the claim decides.
func isFree(r *dedupe.Record, now time.Time) bool {
	return r == nil || r.Status == dedupe.Released || isDeadFor(r, forgiven, now)
}

func isDeadFor(r *dedupe.Record, d time.Duration, now time.Time) bool {
	return r.Status == dedupe.Claimed && now.Sub(r.LeaseUntil) >= d
}

// draw picks a number for the next try.
func (p *places) draw(tried int) (n int, ok bool) {
	var free, dead []int
	most := min(batch, p.top+1+beyond<<tried)
	for i := range batch {
		switch {
		case !p.open[i]:
		case p.dead[i]:
			dead = append(dead, i)
		case i < most:
			free = append(free, i)
		}
	}
	switch {
	case len(dead) > 0 && tried == 0:
		return dead[0], true
	case len(dead)+len(free) == 0:
		return 0, false
	case len(dead) > 0:
		return dead[rand.N(len(dead))], true
	}
	return free[rand.N(len(free))], true
}

// moveDown looks at one number of each batch below, drawn at random, and moves to the lowest that
// is free. Where two batches or more are empty, which would hide the seat from readers, that finds
// one for sure. It may find one elsewhere.
func (t *Seat) moveDown(ctx context.Context, card []byte) (moved bool, err error) {
	var ks []dedupe.Key
	var ns []int
	for base := 0; base+batch <= t.n; base += batch {
		n := base + rand.N(batch)
		ns, ks = append(ns, n), append(ks, key(t.o.Queue, n))
	}
	rs, err := storecall.ReadAll(ctx, t.s, ks)
	if err != nil {
		return false, fmt.Errorf("control: reading the seats of %s: %w", t.o.Queue, err)
	}
	now := time.Now()
	was := t.place
	for i, r := range rs {
		if !isFree(r, now) {
			continue
		}
		if won, err := t.claim(ctx, ns[i]); err != nil {
			return false, err
		} else if !won {
			continue
		}
		here := t.place
		if err := t.write(ctx, card); err != nil {
			// It is not known whether anybody sees us there. The old seat is as good.
			_ = t.free(ctx, key(t.o.Queue, here.n), here.token)
			t.setPlace(was)
			return false, err
		}
		return true, t.free(ctx, key(t.o.Queue, was.n), was.token)
	}
	return false, nil
}
