package controlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/storecall"
)

// This file owns the list of schedules: which entries there are, since when, and whether a
// scheduler runs them. Schedulers call ChangeSchedules when their list changes and about once an
// hour, and operators read it. It is cut into parts, because 10,000 entries are more than one
// record holds.

// InstantKey is where control.RunOnce records that an instant was sent, whose job has that key.
func InstantKey(key string) dedupe.Key { return dedupe.Key{Scope: ":once", Key: InstantName(key)} }

// InstantName is the name that RunOnce is given for it.
func InstantName(key string) string { return "schedule/" + key }

// ScheduleParts is how many records the list has at most: one read of a batch.
const ScheduleParts = 64

// goneAfter is for how long an entry is kept that no scheduler has.
const goneAfter = 7 * 24 * time.Hour

// maxPart bounds a part in bytes: about 1,500 entries.
const maxPart = 256 << 10

// A Scheduled is an entry of the list.
type Scheduled struct {
	Name string `json:"name"`
	// Spec is the schedule's text. Own says that it is one of the user's own making, which nobody
	// else can compute.
	Spec string `json:"spec"`
	Own  bool   `json:"own,omitempty"`
	// Scope is that of the jobs' records; empty = not said.
	Scope string `json:"scope,omitempty"`
	// Born is since when this Spec stands under the name: nothing before is due.
	Born time.Time `json:"born"`
	// Seen is when a scheduler last said that it has the entry.
	Seen time.Time `json:"seen"`
}

// SchedulePart is the part of the list that has a name.
func SchedulePart(name string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int(h.Sum32() % ScheduleParts)
}

func partKey(part int) dedupe.Key {
	return dedupe.Key{Scope: ScopeControl, Key: "schedules/" + strconv.Itoa(part)}
}

// AllSchedules reads the whole list.
func AllSchedules(ctx context.Context, s dedupe.Store) ([]Scheduled, error) {
	parts := make([]int, ScheduleParts)
	for i := range parts {
		parts[i] = i
	}
	return ReadSchedules(ctx, s, parts)
}

// ReadSchedules reads parts of the list, in one call or a few.
func ReadSchedules(ctx context.Context, s dedupe.Store, parts []int) ([]Scheduled, error) {
	ks := make([]dedupe.Key, len(parts))
	for i, part := range parts {
		ks[i] = partKey(part)
	}
	rs, err := storecall.ReadAll(ctx, s, ks)
	if err != nil {
		return nil, fmt.Errorf("control: reading the list of schedules: %w", err)
	}
	var all []Scheduled
	for i, r := range rs {
		if r == nil {
			continue
		}
		of, err := decodePart(parts[i], r.State)
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return all, nil
}

// ChangeSchedules puts entries into their part of the list, in the place of those with their names,
// and drops what no scheduler has had for a week. choose is asked with the entry that stands under
// a name, nil where there is none, and answers whether the new one takes its place; it may change
// the new one before. It is asked again whenever somebody else was faster.
func ChangeSchedules(ctx context.Context, s dedupe.Store, part int, es []*Scheduled, choose func(old, e *Scheduled) bool) error {
	w := &swap{s: s, key: partKey(part), what: "the list of schedules"}
	for n := 1; ; n++ {
		made, err := w.try(ctx, func(state []byte, no int) ([]byte, int, error) {
			all, err := decodePart(part, state)
			if err != nil {
				return nil, 0, err
			}
			changed := false
			for _, e := range es {
				i := slices.IndexFunc(all, func(x Scheduled) bool { return x.Name == e.Name })
				switch {
				case i < 0 && choose(nil, e):
					all, changed = append(all, *e), true
				case i >= 0 && choose(&all[i], e):
					all[i], changed = *e, true
				}
			}
			if !changed {
				return nil, 0, nil
			}
			all = slices.DeleteFunc(all, func(x Scheduled) bool { return time.Since(x.Seen) > goneAfter })
			b, err := encodePart(all)
			if most := min(maxPart, s.Limits().MaxResult); err == nil && len(b) > most {
				err = invalid("Entry", "the list has %d bytes in one of its %d parts, the limit is %d: have fewer entries, or shorter names", len(b), ScheduleParts, most)
			}
			return b, no + 1, err
		})
		if err != nil || made {
			return err
		}
		if !retry.Rest(ctx, retry.Within(takeFirst, takeMost, n)) {
			return fmt.Errorf("control: others change the list of schedules all the time: %w", context.Cause(ctx))
		}
	}
}

// wireSchedules is the form of a part; as with the rules, a new field does not change its number.
type wireSchedules struct {
	Form    int         `json:"v"`
	Entries []Scheduled `json:"entries"`
}

func encodePart(es []Scheduled) ([]byte, error) {
	return json.Marshal(wireSchedules{Form: form, Entries: es})
}

func decodePart(part int, state []byte) ([]Scheduled, error) {
	if state == nil {
		return nil, nil
	}
	var w wireSchedules
	err := json.Unmarshal(state, &w)
	if err == nil && w.Form != form {
		err = fmt.Errorf("its form is %d, and this version reads %d", w.Form, form)
	}
	if err != nil {
		return nil, fmt.Errorf("control: the list of schedules under %v cannot be read: %w", partKey(part), err)
	}
	return w.Entries, nil
}
