package ops

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
)

// This file owns what is known of a queue's workers: who lives, who died, and who of the dead may
// have left jobs. Each method reads the store in the goroutine of its caller, and answers values
// that are the caller's own. Nothing is locked.

// WorkerState is a worker as its card shows it.
type WorkerState struct {
	// Name is the key of the worker's place among those of its queue, such as "orders/3", and
	// Number its number.
	Name   string
	Number int
	// Owner names the worker.
	Owner string
	// Left says that the worker has left: it has drained.
	Left bool
	// Taken is when the worker took its place, and Seen when it wrote its card for the last time;
	// both by the store's clock. Status.At is the same moment by the worker's.
	Taken, Seen time.Time
	// Until is when the worker counts as dead unless it is seen before, by the store's clock; zero
	// where it has left.
	Until time.Time
	// Status is what the worker says of itself. nil where it has not written it yet, or where a
	// later version has written what this one cannot read.
	Status *control.WorkerStatus
	// State is what the card says, or "dead": the worker has not been seen for longer than its
	// lease, and may have left jobs; or "left": it has drained, or others have its jobs. Empty
	// where there is no card yet.
	State string
	// Ago is how long ago the worker was seen.
	Ago time.Duration
	// Skew is how far the worker's clock is ahead of the store's, as its last card shows; the time
	// of the write itself is in it. nil where there is no card.
	Skew *time.Duration
}

// The states that a card itself does not have.
const (
	StateDead = "dead"
	StateLeft = "left"
)

// Alive reports whether the worker lives.
func (s *WorkerState) Alive() bool { return s.State != StateDead && s.State != StateLeft }

// Workers are those of a queue, in the order of their numbers: those that live, those that died
// in the last day, and those that left in the last minute. It costs a Get of 64 numbers for each 64
// seats, two more, and one for each dead worker.
func (o *Ops) Workers(ctx context.Context, queue string) ([]WorkerState, error) {
	t, err := o.target(queue)
	if err != nil {
		return nil, err
	}
	return t.seats(ctx)
}

// seatedFor is for how long a worker's queue is named after its worker was seen for the last time.
const seatedFor = 24 * time.Hour

// QueuesWithWorkers are the names of the queues whose workers were seen in the last day, as the
// workers have them (ProcessorConfig.Queue), each once and in order. So a queue is found that no
// Target names. It lists the seats in each of the targets' stores. A store that bills what it reads
// answers a *[ScanError], unless it is [dedupe.Indexed] for them.
func (o *Ops) QueuesWithWorkers(ctx context.Context) ([]string, error) {
	var names []string
	for _, s := range o.stores() {
		q := dedupe.Query{Scope: controlstore.ScopeWorker}
		if err := billed(ctx, s, &q); err != nil {
			return nil, err
		}
		now := clock(ctx, s)
		for r, err := range s.List(ctx, q) {
			if err != nil {
				return nil, err
			}
			queue := r.Key.Key[:max(0, strings.LastIndexByte(r.Key.Key, '/'))]
			if now.Sub(r.Updated) < seatedFor {
				names = append(names, queue)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// billed is the price of a list where the store bills it, and no index answers.
func billed(ctx context.Context, s dedupe.Store, q *dedupe.Query) error {
	if _, bills := broker.As[dedupe.Sized](s); !bills {
		return nil // the scope is the beginning of the primary key
	}
	return priced(ctx, s, q)
}

func (t *target) seats(ctx context.Context) ([]WorkerState, error) {
	s, err := t.store()
	if err != nil {
		return nil, err
	}
	sat, err := controlstore.Seats(ctx, s, t.known)
	if err != nil || len(sat) == 0 {
		return nil, err
	}
	seats := seatsOf(sat, clock(ctx, s))
	buried(ctx, s, seats)
	return seats, nil
}

// goneAfter is how long after its death a worker counts as gone whose card names only some of its
// jobs, when others have taken these over. Their messages were delivered again by then.
const goneAfter = time.Hour

// buried makes "left" of dead workers whose jobs were all taken over, because nothing is to be done
// about them any more. It asks for the records that their cards name. A store that does not answer
// buries nobody.
func buried(ctx context.Context, s dedupe.Store, seats []WorkerState) {
	for i := range seats {
		x := &seats[i]
		if x.State != StateDead || x.Status == nil || x.Status.More > 0 && x.Ago < goneAfter {
			continue
		}
		if !isHeld(ctx, s, x) {
			x.State = StateLeft
		}
	}
}

// isHeld reports whether a job that a dead worker's card names may still be its own.
func isHeld(ctx context.Context, s dedupe.Store, x *WorkerState) bool {
	if len(x.Status.Jobs) == 0 {
		return x.Status.Busy > 0 // it runs some that it does not name
	}
	ks, found := jobKeys(x), map[string]bool{}
	for part := range slices.Chunk(ks, max(1, s.Limits().MaxBatch)) {
		rs, err := s.Get(ctx, part)
		if err != nil {
			return true
		}
		for _, r := range rs {
			if r == nil {
				continue
			}
			own := r.Owner == x.Owner || slices.ContainsFunc(x.Status.Jobs, func(j control.RunningJob) bool { return j.Fence == r.Fence })
			if found[r.Key.Key] = true; r.Status == dedupe.Claimed && own {
				return true
			}
		}
	}
	for _, j := range x.Status.Jobs {
		if !found[cmp.Or(j.Key, j.ID)] {
			return true // its record is elsewhere (JobOptions.Scope), or its key was cut
		}
	}
	return false
}

// jobKeys are the records that the jobs of a card may have: a job's scope has its type behind it
// under a Mux, and is the card's else.
func jobKeys(x *WorkerState) (ks []dedupe.Key) {
	for _, j := range x.Status.Jobs {
		name := cmp.Or(j.Key, j.ID)
		if strings.HasSuffix(name, "…") {
			continue
		}
		scope := x.Status.Scope
		if own, ok := x.Status.Scopes[j.Type]; ok {
			scope = own
		} else if j.Type != "" {
			scope += ":" + j.Type
		}
		for _, k := range [...]dedupe.Key{{Scope: scope, Key: name}, {Scope: x.Status.Scope, Key: name}} {
			if k.Validate() == nil && !slices.Contains(ks, k) {
				ks = append(ks, k)
			}
		}
	}
	return ks
}

func seatsOf(sat []controlstore.Sitting, now time.Time) []WorkerState {
	seats := make([]WorkerState, len(sat))
	for i := range sat {
		s := &sat[i]
		x := WorkerState{
			Name: s.Name, Number: s.Number, Owner: s.Owner, Left: s.Left, Taken: s.Taken, Seen: s.Seen, Until: s.Until, Status: s.Status,
			Ago: max(0, now.Sub(s.Seen)),
		}
		if c := x.Status; c != nil {
			skew := c.At.Sub(x.Seen)
			x.Skew, x.State = &skew, c.State
		}
		switch {
		case x.Left:
			x.State = StateLeft
		case s.Dead(now):
			x.State = StateDead
		}
		seats[i] = x
	}
	return seats
}

// clock is the store's time, else this host's.
func clock(ctx context.Context, s dedupe.Store) time.Time {
	if c, ok := broker.As[dedupe.Clock](s); ok {
		if now, err := c.Now(ctx); err == nil {
			return now
		}
	}
	return time.Now()
}
