package schedule

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/storecall"
)

// This file owns what a scheduler does with the store: it tells it the entries (adopt), asks which
// instants are open, and sends them (pass). The loop begins both, a goroutine for each does the
// work on copies, and the loop takes the results.

const (
	// seenEach is how often an entry is marked as seen in the store's list, by whoever is first.
	seenEach = time.Hour
	// keptBeyond is for how long the record of an instant is kept beyond CatchUp, and beyond the
	// next instant: so operators see the last one, and a count of missed ones is right.
	keptBeyond = 24 * time.Hour
	// mostOpen bounds the instants of an entry that one pass looks at: those that wait for another
	// try, and new ones.
	mostOpen = 1000
	// sendsAtOnce bounds the sends of one queue that run at once.
	sendsAtOnce = 64
	// beside is when an instant is looked at again that another process has begun.
	beside = 2 * time.Second
)

// adopt tells the store the entries, and learns since when it knows each.
func (r *runner) adopt(now time.Time) {
	r.adopting = true
	r.adopts = now.Add(seenEach*9/10 + rand.N(seenEach/5)) // a take may set it back meanwhile
	var es []*entry
	var told []*controlstore.Scheduled
	var fresh []bool
	for _, e := range r.on {
		es, fresh = append(es, e), append(fresh, !e.known)
		told = append(told, &controlstore.Scheduled{Name: e.Name, Spec: e.spec, Own: e.own, Scope: e.Scope})
	}
	r.fly(func() func() {
		ctx, cancel := context.WithTimeout(r.work, tryFor)
		defer cancel()
		opens, err := engine.Guard(func() ([]time.Time, error) { return adopted(ctx, r.s, told, fresh, now) })
		return func() {
			if r.adopting = false; opens == nil {
				r.storeSays(err)
				r.adopts = r.now().Add(retry.Within(time.Second, 15*time.Second, r.down))
				return
			}
			r.storeSays(nil)
			r.tellFull(err)
			for i, e := range es {
				if e.known || opens[i].IsZero() {
					continue
				}
				e.known = true
				// Not after now: the list may be by a clock that is a day ahead.
				e.done = earliest(now, latest(told[i].Born, earliest(opens[i], now.Add(-e.CatchUp))))
				r.later(e, now)
			}
		}
	})
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// adopted writes what has changed of the entries into the list, and answers for each since when its
// instants may be open: since a scheduler was last seen to have it, and not before it was born. An
// error beside an answer is of parts of the list that are full: their new entries are left out.
func adopted(ctx context.Context, s dedupe.Store, told []*controlstore.Scheduled, fresh []bool, now time.Time) ([]time.Time, error) {
	index, parts := map[string]int{}, map[int][]int{} // of names, and the entries of each part
	for i, e := range told {
		index[e.Name] = i
		n := controlstore.SchedulePart(e.Name)
		parts[n] = append(parts[n], i)
	}
	numbers := slices.Sorted(maps.Keys(parts))
	listed, err := controlstore.ReadSchedules(ctx, s, numbers)
	if err != nil {
		return nil, err
	}
	have := make([]*controlstore.Scheduled, len(told))
	for l := range listed {
		if i, ok := index[listed[l].Name]; ok {
			have[i] = &listed[l]
		}
	}
	opens := make([]time.Time, len(told))
	// chooses decides between what stands in the list and our entry.
	chooses := func(old, e *controlstore.Scheduled) bool {
		i := index[e.Name]
		e.Seen = now.UTC().Truncate(time.Second)
		switch {
		case old == nil, fresh[i] && (old.Spec != e.Spec || old.Own != e.Own):
			e.Born = e.Seen
			opens[i] = e.Born
			return true
		case old.Spec != e.Spec || old.Own != e.Own:
			return false // a newer deployment has changed it
		}
		e.Born = old.Born
		opens[i] = latest(old.Born, old.Seen)
		return now.Sub(old.Seen).Abs() >= seenEach || old.Scope != e.Scope || fresh[i] && now.Sub(old.Seen) > askEach
	}
	var full error
	for _, n := range numbers {
		var changed []*controlstore.Scheduled
		for _, i := range parts[n] {
			if chooses(have[i], told[i]) {
				changed = append(changed, told[i])
			}
		}
		if len(changed) == 0 {
			continue
		}
		err := controlstore.ChangeSchedules(ctx, s, n, changed, chooses)
		switch {
		case errors.Is(err, control.ErrInvalid): // others' entries go on
			full = err
			for _, i := range parts[n] {
				if have[i] == nil || have[i].Spec != told[i].Spec {
					opens[i] = time.Time{}
				}
			}
		case err != nil:
			return nil, err
		}
	}
	return opens, full
}

// A look is what a pass finds of an entry, and what is to become of it.
type look struct {
	e      *entry
	open   []time.Time // not known to be sent, the oldest first
	left   []time.Time // of those: what is still open after the pass
	missed int         // too late to be sent
	full   bool        // there is more than one pass looks at
	failed error       // of the schedule, or of a send
	beside bool        // another process has begun one
	done   time.Time   // no instant up to here is open, but for left
	wake   time.Time   // when to look again
}

// pass looks at entries that are due, and sends what is open.
func (r *runner) pass(now time.Time, due []*entry) {
	r.passing = true
	looks := make([]*look, len(due))
	was := make([]entry, len(due)) // what the goroutines read
	lanes := make([]chan struct{}, len(due))
	for i, e := range due {
		was[i], looks[i], lanes[i] = *e, &look{e: e, done: e.done}, r.lane(e.To)
	}
	r.fly(func() func() {
		ctx, cancel := context.WithTimeout(r.work, tryFor)
		defer cancel()
		_, err := engine.Guard(func() (any, error) { return nil, r.find(ctx, now, was, looks) })
		return func() {
			if r.passing = false; err != nil {
				r.storeSays(err)
				r.passes = r.now().Add(retry.Within(time.Second, 15*time.Second, r.down))
				for _, e := range due {
					r.later(e, now)
				}
				return
			}
			r.storeSays(nil)
			r.tellMissed(looks)
			for i, l := range looks {
				if len(l.open) == 0 {
					r.ended(l)
					continue
				}
				r.fly(func() func() {
					r.send(&was[i], l, lanes[i])
					return func() { r.ended(l) }
				})
			}
		}
	})
}

// lane is the room for sends to a queue: one that hangs shall not hold up others.
func (r *runner) lane(to broker.Sender) chan struct{} {
	var of any
	if reflect.ValueOf(to).Comparable() {
		of = to
	}
	l, ok := r.lanes[of]
	if !ok {
		l = make(chan struct{}, sendsAtOnce)
		r.lanes[of] = l
	}
	return l
}

// find fills in which instants are open. An error is the store's.
func (r *runner) find(ctx context.Context, now time.Time, es []entry, looks []*look) error {
	var ks []dedupe.Key
	for i := range es {
		e, l := &es[i], looks[i]
		l.open = slices.Clone(e.left)
		for t := e.done; len(l.open) < mostOpen; {
			if t, l.failed = e.after(t); l.failed != nil || t.IsZero() || t.After(now) {
				break
			}
			if l.done = t; e.Latest {
				l.open = l.open[:0]
			}
			l.open = append(l.open, t)
		}
		l.full = len(l.open) >= mostOpen
		for _, at := range l.open {
			ks = append(ks, controlstore.InstantKey(Key(e.Name, at)))
		}
	}
	rs, err := storecall.ReadAll(ctx, r.s, ks)
	if err != nil {
		return err
	}
	for i := range es {
		e, l := &es[i], looks[i]
		found := l.open
		l.open = nil
		for _, at := range found {
			sent := rs[0] != nil && rs[0].Status == dedupe.Done
			switch rs = rs[1:]; {
			case sent:
			case now.Sub(at) > e.CatchUp:
				l.missed++
			default:
				l.open = append(l.open, at)
			}
		}
		if len(l.open) == 0 {
			l.plan(e, now)
		}
	}
	return nil
}

// send sends what is open of an entry, in the order of the instants.
func (r *runner) send(e *entry, l *look, lane chan struct{}) {
	for _, at := range l.open {
		sent, err := false, context.Cause(r.ctx) // what has not begun is another process's
		if err == nil {
			sent, err = r.sendOne(e, at, lane)
		}
		if l.failed = cmp.Or(l.failed, err); !sent {
			l.left = append(l.left, at)
		}
		l.beside = l.beside || !sent && err == nil
	}
	l.plan(e, r.now())
}

// sendOne sends one instant, unless another process does; then sent is false, and so it is where an
// error leaves that open.
func (r *runner) sendOne(e *entry, at time.Time, lane chan struct{}) (sent bool, err error) {
	select {
	case lane <- struct{}{}:
	case <-r.work.Done():
		return false, context.Cause(r.work)
	}
	defer func() { <-lane }()
	ctx, cancel := context.WithTimeout(r.work, tryFor)
	defer cancel()
	keep := durations.Sum(e.CatchUp, keptBeyond)
	if next, _ := e.after(at); !next.IsZero() {
		keep = durations.Sum(keep, min(next.Sub(at), dedupe.DefaultRetention))
	}
	return engine.Guard(func() (bool, error) {
		ran, err := control.RunOnce(ctx, r.s, controlstore.InstantName(Key(e.Name, at)), keep, func(ctx context.Context) error {
			m, err := e.message(at)
			if err != nil {
				return err
			}
			return onceq.SendOne(ctx, e.To, &m)
		})
		return ran && err == nil, err
	})
}

// plan says when an entry is looked at again.
func (l *look) plan(e *entry, now time.Time) {
	from := l.done
	var retried time.Time
	switch {
	case l.failed != nil:
		retried = now.Add(retry.Within(time.Second, 30*time.Second, e.tries+1))
	case l.beside:
		retried = now.Add(retry.Within(beside, 10*time.Second, e.tries+1))
	}
	if !retried.IsZero() && (!l.full || len(l.left) == len(l.open)) {
		from = now // what is open waits for the next try, or goes with the next instant
	}
	next, err := e.after(from)
	l.failed = cmp.Or(l.failed, err)
	switch {
	case err != nil:
		next = now.Add(askEach)
	case next.IsZero():
		next = now.AddDate(100, 0, 0) // never
	}
	if l.wake = next; !retried.IsZero() && retried.Before(next) {
		l.wake = retried
	}
}

// ended takes what became of an entry.
func (r *runner) ended(l *look) {
	e := l.e
	e.done, e.left = l.done, l.left
	switch {
	case l.failed != nil || l.beside:
		e.tries++
	default:
		e.tries = 0
	}
	err := l.failed
	if e.gone || r.ctx.Err() != nil {
		err = nil
	}
	if delete(r.failing, e.Name); err != nil {
		r.failing[e.Name] = true
	}
	if err != nil || len(r.failing) == 0 && !l.beside {
		r.tell(&r.sendOut, err, "onceq: a schedule's job cannot be sent; it is tried again until CatchUp is over", "onceq: the schedules' jobs are sent again",
			slog.String("entry", e.Name), slog.Int("entries", len(r.failing)))
	}
	r.later(e, l.wake)
}

// tellMissed logs what is too late to be sent, in one line for all entries.
func (r *runner) tellMissed(looks []*look) {
	more := false
	for _, l := range looks {
		if more = more || l.full && l.missed > 0; l.missed > 0 {
			if r.missed == nil {
				r.missed = map[string]int{}
			}
			r.missed[l.e.Name] += l.missed
		}
	}
	if more || len(r.missed) == 0 {
		return
	}
	n, most := 0, ""
	for name, of := range r.missed {
		if n += of; of > r.missed[most] || of == r.missed[most] && name < most {
			most = name
		}
	}
	r.log.LogAttrs(r.ctx, slog.LevelWarn, "onceq: instants of schedules were missed, and their jobs are not sent: they were due longer ago than CatchUp",
		slog.Int("missed", n), slog.Int("entries", len(r.missed)), slog.String("entry", most))
	r.missed = nil
}

// tellFull logs that there is no room for new entries, and has them tried again each minute.
func (r *runner) tellFull(err error) {
	if err != nil {
		r.adopts = r.now().Add(askEach)
	}
	r.tell(&r.fullOut, err, "onceq: the store's list of schedules is full; the jobs of some new entries are not sent", "onceq: the store's list of schedules has room again")
}

func (r *runner) storeSays(err error) {
	if r.down++; err == nil {
		r.down = 0
	}
	r.tell(&r.storeOut, err, "onceq: the store does not answer the scheduler, which sends nothing until it does", "onceq: the store answers the scheduler again")
}

// tell logs that something fails, or, where err is nil, that it does no more; and neither of them
// too often.
func (r *runner) tell(o *engine.Outage, err error, fails, again string, more ...slog.Attr) {
	if err == nil {
		if lasted, tell := o.Succeeds(engine.Whole); tell {
			r.log.LogAttrs(r.ctx, slog.LevelInfo, again, engine.ForSo(lasted))
		}
		return
	}
	if lasts, tell := o.Fails(engine.Whole, r.ctx.Err() == nil); tell {
		r.log.LogAttrs(r.ctx, slog.LevelWarn, fails, append(more, engine.ForSo(lasts), slog.Any("error", err))...)
	}
}
