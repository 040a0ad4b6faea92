package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/storecall"
	"github.com/onceq/onceq/schedule"
)

// This file owns the list of schedules as operators see it: what is due when, and what became of
// the last job. Tools call Schedules; all is read, and nothing is locked.

// lastLooks is how many instants are looked at for the last one that was sent.
const lastLooks = 5

// silentFor is for how long nobody has marked an entry as seen that has no scheduler any more.
const silentFor = 2 * time.Hour

// A ScheduleState is an entry of the schedulers that share a store.
type ScheduleState struct {
	// Name and Spec are the entry's; Spec is its schedule's text.
	Name, Spec string
	// Born is since when it has that schedule: nothing before is due. Seen is when a scheduler last
	// said that it has the entry, which one of them does about once an hour.
	Born, Seen time.Time
	// Silent reports whether no scheduler has said so for two hours: none runs, or the entry was
	// taken out. It is forgotten a week later.
	Silent bool
	// Last is the newest of the last five instants whose job was sent; zero = none of them was, or
	// it is not known. Job is that job's record; nil where no worker has claimed it yet, or where
	// its scope is not known (schedule.Entry.Scope).
	Last time.Time
	Job  *dedupe.Record
	// Next is when it is due next; zero = never, or not known.
	Next time.Time
	// Err says why Last and Next are not known: the schedule is one of the user's own making, or
	// this host does not know its zone.
	Err error
}

// errOwn is ScheduleState.Err of a schedule that is not one of package schedule's.
var errOwn = errors.New("ops: the schedule is the program's own, so only its schedulers know when it is due")

// Schedules reads the entries of the schedulers ([schedule.Run]) in each of the targets' stores, in
// the order of their names. It costs a read of 64 numbers, 5 more for each entry, and one for each
// scope in which the last job may be.
func (o *Ops) Schedules(ctx context.Context) ([]ScheduleState, error) {
	stores := o.stores()
	if len(stores) == 0 {
		return nil, fmt.Errorf("%w: no target has a Store", ErrMissing)
	}
	var all []ScheduleState
	for _, s := range stores {
		listed, err := controlstore.AllSchedules(ctx, s)
		if err != nil {
			return nil, err
		}
		scopes, err := o.scopesIn(ctx, s, listed)
		if err != nil {
			return nil, err
		}
		of, err := scheduleStates(ctx, s, listed, scopes, time.Now())
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	slices.SortFunc(all, func(a, b ScheduleState) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// scopesIn are the scopes of the targets with that store, where an entry does not name its own.
func (o *Ops) scopesIn(ctx context.Context, s dedupe.Store, listed []controlstore.Scheduled) (all []string, err error) {
	if !slices.ContainsFunc(listed, func(e controlstore.Scheduled) bool { return e.Scope == "" }) {
		return nil, nil
	}
	for _, t := range o.sharing(s) {
		of := t.Scopes
		if t.known != "" {
			if of, err = o.Scopes(ctx, t.Name); err != nil {
				return nil, err
			}
		}
		all = append(all, of...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func scheduleStates(ctx context.Context, s dedupe.Store, listed []controlstore.Scheduled, scopes []string, now time.Time) ([]ScheduleState, error) {
	all := make([]ScheduleState, len(listed))
	dues := make([][]time.Time, len(listed)) // the newest first
	var ks []dedupe.Key
	for i, e := range listed {
		t := &all[i]
		*t = ScheduleState{Name: e.Name, Spec: e.Spec, Born: e.Born, Seen: e.Seen, Silent: now.Sub(e.Seen) > silentFor}
		if e.Own {
			t.Err = errOwn
			continue
		}
		var of schedule.Schedule
		if of, t.Err = schedule.Parse(e.Spec); t.Err != nil {
			continue
		}
		t.Next = of.Next(now)
		dues[i] = lastDue(of, e.Born, now)
		for _, at := range dues[i] {
			ks = append(ks, controlstore.InstantKey(schedule.Key(e.Name, at)))
		}
	}
	sent, err := storecall.ReadAll(ctx, s, ks)
	if err != nil {
		return nil, err
	}
	ks = ks[:0]
	var of []int
	for i, e := range listed {
		t := &all[i]
		for _, at := range dues[i] {
			if r := sent[0]; r != nil && r.Status == dedupe.Done && t.Last.IsZero() {
				t.Last = at
			}
			sent = sent[1:]
		}
		if t.Last.IsZero() {
			continue
		}
		in := scopes
		if e.Scope != "" {
			in = []string{e.Scope}
		}
		for _, scope := range in {
			ks, of = append(ks, dedupe.Key{Scope: scope, Key: schedule.Key(e.Name, t.Last)}), append(of, i)
		}
	}
	jobs, err := storecall.ReadAll(ctx, s, ks)
	if err != nil {
		return nil, err
	}
	for n, r := range jobs {
		all[of[n]].Job = cmp.Or(all[of[n]].Job, r)
	}
	return all, nil
}

// lastDue are the last instants of a schedule after it was born, the newest first.
func lastDue(s schedule.Schedule, born, now time.Time) (dues []time.Time) {
	for back := time.Hour; len(dues) < lastLooks; back *= 8 {
		from, all := now.Add(-back), back > 10*366*24*time.Hour
		if !from.After(born) {
			from, all = born, true
		}
		dues = dues[:0]
		for t := s.Next(from); !t.IsZero() && !t.After(now); t = s.Next(t) {
			dues = append(dues, t)
		}
		if all {
			break
		}
	}
	slices.Reverse(dues)
	return dues[:min(len(dues), lastLooks)]
}
