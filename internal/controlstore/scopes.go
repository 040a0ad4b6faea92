package controlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/storecall"
)

// This file owns what is kept of where a queue's workers have had their keys. A seat shows it while
// a worker lives, and this record for as long as those keys are kept. Workers call ShowScopes at
// their start and about once an hour.

const (
	// mostKeyed bounds the entries of a queue: services that share it, and what they were.
	mostKeyed = 8
	// maxKeyed bounds them in bytes.
	maxKeyed = 16 << 10
)

// keyed is where some worker has had the keys of its jobs.
type keyed struct {
	Scope  string            `json:"scope"`
	Types  []string          `json:"types,omitempty"`
	Scopes map[string]string `json:"scopes,omitempty"`
	Until  time.Time         `json:"until"` // until then the keys are kept
}

// wireKeyed is the record's form; as with the rules, a new field does not change its number.
type wireKeyed struct {
	Form    int     `json:"v"`
	Entries []keyed `json:"entries"`
}

// ShowScopes notes where a worker of the queue has its keys, which are kept for that long. others
// are those that isOther says have had them elsewhere. They are forgotten, so one worker tells of
// each. Where all is noted it costs a read.
func ShowScopes(ctx context.Context, s dedupe.Store, queue string, own *control.WorkerStatus, kept time.Duration, isOther func(*control.WorkerStatus) bool) (others []*control.WorkerStatus, err error) {
	w := &swap{s: s, key: dedupe.Key{Scope: ScopeControl, Key: "scopes/" + queue}, what: "where the queue's keys are"}
	now := time.Now()
	mine := keyed{own.Scope, own.Types, own.Scopes, now.Add(kept).UTC().Truncate(time.Second)}
	edit := func(state []byte, no int) (next []byte, nextNo int, err error) {
		var was wireKeyed
		if state != nil {
			if err = json.Unmarshal(state, &was); err == nil && was.Form != form {
				err = fmt.Errorf("its form is %d, and this version reads %d", was.Form, form)
			}
			if err != nil {
				return nil, 0, fmt.Errorf("control: %v cannot be read: %w", w.key, err)
			}
		}
		others = nil
		all, changed := []keyed{mine}, true
		for _, e := range was.Entries {
			c := &control.WorkerStatus{Scope: e.Scope, Types: e.Types, Scopes: e.Scopes}
			switch {
			case e.Scope == mine.Scope && slices.Equal(e.Types, mine.Types) && maps.Equal(e.Scopes, mine.Scopes):
				changed = mine.Until.Sub(e.Until) > kept/4
			case !now.Before(e.Until):
			case isOther(c):
				others = append(others, c)
			case len(all) < mostKeyed:
				all = append(all, e)
			}
		}
		if !changed && len(others) == 0 {
			return nil, 0, nil
		}
		next, err = json.Marshal(wireKeyed{form, all})
		if len(next) > min(maxKeyed, s.Limits().MaxResult) { // so many types: seats alone tell
			return nil, 0, err
		}
		return next, no + 1, err
	}
	rec, err := storecall.Read(ctx, s, w.key)
	if err != nil {
		return nil, fmt.Errorf("control: reading %s: %w", w.what, err)
	}
	if rec != nil {
		if next, _, err := edit(rec.State, rec.StateNo); next == nil {
			return nil, err
		}
	}
	for n := 1; ; n++ {
		if made, err := w.try(ctx, edit); err != nil || made {
			return others, err
		}
		if !retry.Rest(ctx, retry.Within(takeFirst, takeMost, n)) {
			return nil, fmt.Errorf("control: others change %s all the time: %w", w.what, context.Cause(ctx))
		}
	}
}
