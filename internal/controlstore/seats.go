package controlstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/storecall"
)

// Sitting is what a reader sees of a seat.
type Sitting struct {
	// Name is the seat's key, such as "orders/3", and Number its number.
	Name   string
	Number int
	// Owner names the worker.
	Owner string
	// Left says that the worker has left: it has drained.
	Left bool
	// Taken is when the worker took the seat, and Seen when it wrote its card for the last time;
	// both by the store's clock. Status.At is the same moment by the worker's.
	Taken, Seen time.Time
	// Until is when the worker counts as dead unless it is seen before, by the store's clock; zero
	// where it has left.
	Until time.Time
	// Status is what the worker says of itself. nil where it has not written it yet, or where a later
	// version has written what this one cannot read.
	Status *control.WorkerStatus
}

// Dead reports whether the worker has not been seen for too long, at now by the store's clock.
func (t *Sitting) Dead(now time.Time) bool { return !t.Left && !now.Before(t.Until) }

// Live reports whether the worker sits there, at now by the store's clock.
func (t *Sitting) Live(now time.Time) bool { return !t.Left && now.Before(t.Until) }

// Seats reads the seats of a queue, in the order of their numbers: of workers that live, of dead
// ones for a day or until another takes their seat, and for a minute of those that have left. It
// reads numbers from 0 on, 64 at a time, and goes on for two batches beyond the last seat. So no
// table is scanned; on DynamoDB that is a read unit a number, and 128 for nobody.
func Seats(ctx context.Context, s dedupe.Store, queue string) ([]Sitting, error) {
	if err := checkText("queue", queue, MaxName, true); err != nil {
		return nil, err
	}
	seats := room{at: make(map[string]int)}
	now := time.Now()
	ks := make([]dedupe.Key, batch)
	for base, empty := 0, 0; empty < 2 && base < highest; base += batch {
		for i := range ks {
			ks[i] = key(queue, base+i)
		}
		rs, err := storecall.ReadAll(ctx, s, ks)
		if err != nil {
			return nil, fmt.Errorf("control: reading the seats of %s: %w", queue, err)
		}
		empty++
		for i, r := range rs {
			if r == nil {
				continue
			}
			empty = 0
			if !isDeadFor(r, shown, now) {
				seats.add(sitting(r, base+i, queue))
			}
		}
	}
	slices.SortFunc(seats.all, func(a, b Sitting) int { return a.Number - b.Number })
	return seats.all, nil
}

func sitting(r *dedupe.Record, n int, queue string) (t Sitting, id string) {
	t = Sitting{
		Name: r.Key.Key, Number: n, Owner: r.Owner, Left: r.Status != dedupe.Claimed,
		Taken: r.ClaimedAt, Seen: r.Updated, Until: r.LeaseUntil,
	}
	// The state of an earlier worker stays until the first card of this one.
	if c, worker, err := decodeCard(r.State); err == nil && worker == r.MessageID {
		named(c, r.Owner, queue)
		t.Status = c
	}
	return t, r.MessageID
}

// room are the seats of a queue as they are read.
type room struct {
	all []Sitting
	at  map[string]int // by the worker's id
}

// add adds a seat. A worker that moves has two for a moment, and one that lost the answer to a
// claim may have, too: the one that it was seen on last counts.
func (o *room) add(t Sitting, id string) {
	i, known := o.at[id]
	switch {
	case id == "" || !known:
		o.at[id] = len(o.all)
		o.all = append(o.all, t)
	case o.all[i].Left && !t.Left, o.all[i].Left == t.Left && t.Seen.After(o.all[i].Seen):
		o.all[i] = t
	}
}
