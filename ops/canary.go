package ops

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/values"
)

// This file owns what canaries prove: whether anybody would run them, and what became of their jobs
// by their records. Replay calls it. Nothing is locked, and nothing here writes.

// canaries refuses a replay with canaries that nobody would run.
func (t *target) canaries(ctx context.Context, to broker.Sender, p *dlq.Plan) error {
	if t.Store == nil || !values.Same(to, t.Queue) {
		return nil
	}
	rules, err := controlstore.Read(ctx, t.Store)
	if err != nil {
		return fmt.Errorf("asking whether the canaries would run: %w", err)
	}
	now := time.Now()
	if v, ok := rules.For(t.known, "", "", now); ok && v.Do == control.Pause {
		return paused(t.known, &rules, &v)
	}
	type part struct{ scope, typ string }
	seen := map[part]bool{}
	for i := range p.Letters {
		l := &p.Letters[i]
		of := part{l.Record.Scope, l.Type}
		if seen[of] || l.Decision != dlq.Take {
			continue
		}
		seen[of] = true
		if v, ok := rules.For(t.known, of.scope, of.typ, now); ok && v.Do == control.Pause {
			return paused(fmt.Sprintf("type %s of %s (scope %s)", orNone(of.typ), t.known, orNone(of.scope)), &rules, &v)
		}
	}
	seats, err := t.seats(ctx)
	if err != nil {
		return fmt.Errorf("asking whether the canaries would run: %w", err)
	}
	for i := range seats {
		if seats[i].Alive() {
			return nil
		}
	}
	if len(seats) == 0 {
		return nil // its workers may have no seats; the watch says whether the jobs are done
	}
	return fmt.Errorf("%w: no worker of %s lives, so the canaries would not run", ErrRefused, t.known)
}

// PausedError refuses a replay whose canaries a pause would keep waiting. It wraps ErrRefused.
type PausedError struct {
	// What is paused: a queue, or a type in its scope.
	What  string
	Until time.Time
	// By and Reason are those of the rule. AllQueues: it is a rule of all queues.
	By, Reason string
	AllQueues  bool
}

// Error says what is paused, until when, and by whom, where By is set.
func (e *PausedError) Error() string {
	by := ""
	if e.By != "" {
		by = fmt.Sprintf(" by %s (%s)", e.By, e.Reason)
	}
	return fmt.Sprintf("%v: %s is paused until %s UTC%s, so the canaries would not run", ErrRefused, e.What, e.Until.UTC().Format("15:04:05"), by)
}

// Unwrap is ErrRefused.
func (e *PausedError) Unwrap() error { return ErrRefused }

func paused(what string, rules *controlstore.Rules, v *control.Verdict) error {
	all := slices.ContainsFunc(rules.Rules, func(r control.Rule) bool { return r.ID == v.Rule && r.Queue == "" })
	return &PausedError{What: what, Until: v.Until, By: v.By, Reason: v.Reason, AllQueues: all}
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// became tells by the records what became of the jobs of a batch. before is when the replay began,
// by the store's clock. A store that does not answer says nothing of the jobs.
func became(ctx context.Context, s dedupe.Store, batch []dlq.Ref, before time.Time) (all dlq.Became) {
	var ks []dedupe.Key
	var of []dlq.Ref
	for _, r := range batch {
		k := dedupe.Key(r.Record)
		if k.Validate() != nil {
			all.Unknown++
			continue
		}
		ks, of = append(ks, k), append(of, r)
	}
	most := max(1, s.Limits().MaxBatch)
	for from := 0; from < len(ks); from += most {
		part := ks[from:min(from+most, len(ks))]
		rs, err := s.Get(ctx, part)
		if err != nil || len(rs) != len(part) {
			all.Unknown += len(part)
			continue
		}
		for i, r := range rs {
			count(&all, of[from+i], r, before)
		}
	}
	return all
}

// count counts a job by its record.
func count(all *dlq.Became, of dlq.Ref, r *dedupe.Record, before time.Time) {
	since := func(fence uint64, claimed time.Time) bool {
		if of.Fence != 0 {
			return fence > of.Fence
		}
		return claimed.After(before)
	}
	switch {
	case r != nil && r.Status == dedupe.Done:
		all.Done++
	case r == nil || !since(r.Fence, r.ClaimedAt):
		all.Waiting++
	case hasFailed(r, since):
		all.Failed = append(all.Failed, of)
	case r.Status == dedupe.Released: // given back, as by a worker that ends
		all.Waiting++
	default:
		all.Running++
	}
}

// hasFailed reports whether an attempt of the job ended with an error since the letter was sent.
func hasFailed(r *dedupe.Record, since func(fence uint64, claimed time.Time) bool) bool {
	for _, a := range r.Past {
		if since(a.Fence, a.Claimed) && a.Class != "" {
			return true
		}
	}
	return r.Status == dedupe.Failed || r.Status == dedupe.Parked || r.Status == dedupe.Released && r.ErrClass != ""
}
