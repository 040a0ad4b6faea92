package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
)

// This file owns pauses and limits: what is refused, how they are written, and who follows them.
// Tools call Pause, Limit and Resume, any number of them at once; controlstore.Change sees to that
// none is lost. Nothing is locked.

// followEach is how often the cards are read while somebody waits for them.
const followEach = 500 * time.Millisecond

// DefaultFollow is how long Pause, Limit and Resume wait for the workers: what a worker needs to
// read the rules, and to write its card.
const DefaultFollow = 15 * time.Second

// RuleOptions say how a rule is made. nil means the defaults.
type RuleOptions struct {
	// Force makes a pause that would use up the receives of the queue's messages, or that is longer
	// than the queue keeps them.
	Force bool
	// Follow is how long to wait until each live worker's card shows the rules. Default
	// DefaultFollow; < 0 = not at all.
	Follow time.Duration
	// Each is called after each look at the cards.
	Each func(Followed)
}

// Followed is what became of a change of the rules.
type Followed struct {
	// Rules are those that were made, or removed; Version is that of all rules now.
	Rules   []control.Rule
	Version uint64
	// Live is how many workers live, and Behind are those whose cards do not show the change yet.
	// Without a card nobody can tell.
	Live   int
	Behind []WorkerState
	// Took is how long the change took, with the wait.
	Took time.Duration
	// Audit is the act's id.
	Audit string
}

// Cost is what a pause costs, in receives and in time, and the error where the queue does not have
// so much: a *[control.CostError]. A queue that tells neither how often it lets a message be
// received, nor how long it keeps one, costs nothing: nil. It asks the queue for its policy. Of a
// rule of all queues it is the first queue's, or that of the first one that cannot pay.
//
// The pause of a whole queue costs no receives. Where the queue does not answer, such a pause is
// not refused, because it may be urgent: Cost.Unread says that nobody knows then.
func (o *Ops) Cost(ctx context.Context, r control.Rule) (p *control.Cost, err error) {
	t, err := o.ruled(r.Queue)
	if err != nil || r.Do != control.Pause {
		return nil, err
	}
	of := []*target{t}
	if r.Queue == "" {
		of = o.sharing(t.Store)
	}
	for _, t := range of {
		one, err := t.price(ctx, &r)
		if err != nil {
			return one, err
		}
		p = cmp.Or(p, one)
	}
	return p, nil
}

// price is what a pause costs on one queue.
func (t *target) price(ctx context.Context, r *control.Rule) (*control.Cost, error) {
	if t.Queue == nil {
		return nil, nil
	}
	redriver, ok := broker.As[broker.Redriver](t.Queue)
	if !ok {
		return nil, nil
	}
	p := &control.Cost{For: time.Until(r.Until).Round(time.Second), MaxAttempts: cmp.Or(t.MaxAttempts, onceq.DefaultMaxAttempts), Queue: t.Name}
	policy, err := redriver.Redrive(ctx)
	switch {
	case errors.Is(err, broker.ErrUnsupported):
		return nil, nil
	case err != nil && r.OfQueue():
		p.Unread = err
		return p, nil
	case err != nil:
		return nil, fmt.Errorf("asking how often %s lets a message be received: %w", t.Name, err)
	}
	if p.Kept = policy.Retention; !r.OfQueue() {
		p.MaxReceives, p.Target = policy.MaxReceives, policy.Target[strings.LastIndexAny(policy.Target, ":/")+1:]
	}
	if policy.Retention > 0 {
		p.Oldest = t.oldest(ctx)
	}
	return p, p.Check()
}

// oldest is for how long the oldest message waits; 0 = the queue does not tell.
func (t *target) oldest(ctx context.Context) time.Duration {
	d, ok := broker.As[broker.Depther](t.Queue)
	if !ok {
		return 0
	}
	depth, err := d.Depth(ctx)
	if err != nil || depth.Oldest.IsZero() {
		return 0
	}
	return max(0, time.Since(depth.Oldest))
}

// ruled is the target that a rule speaks of; a rule of all queues speaks of the first one's store.
func (o *Ops) ruled(queue string) (*target, error) {
	if queue == "" {
		return o.ts[0], nil
	}
	return o.target(queue)
}

// Pause pauses a queue, or a scope or a type of jobs, until Rule.Until, and waits until the workers
// have seen it. Rule.Queue is a Target's name; Rule.By may be empty for Options.By. A pause whose
// price the queue cannot pay is refused with the arithmetic; the error wraps [ErrRefused].
//
// After an error that wraps [control.ErrUnknown] the rule may be in force: look, or pause again.
func (o *Ops) Pause(ctx context.Context, r control.Rule, ro *RuleOptions) (Followed, error) {
	r.Do = control.Pause
	return o.makeRule(ctx, r, ro)
}

// Limit bounds how many handlers each worker of a queue runs at once, as Pause does otherwise.
func (o *Ops) Limit(ctx context.Context, r control.Rule, ro *RuleOptions) (Followed, error) {
	r.Do = control.Limit
	return o.makeRule(ctx, r, ro)
}

func (o *Ops) makeRule(ctx context.Context, r control.Rule, ro *RuleOptions) (f Followed, err error) {
	began := time.Now()
	if ro == nil {
		ro = &RuleOptions{}
	}
	r.By = cmp.Or(r.By, o.o.By)
	t, err := o.ruled(r.Queue)
	if err != nil {
		return f, err
	}
	s, err := t.store()
	if err != nil {
		return f, err
	}
	if _, err := o.Cost(ctx, r); err != nil && !ro.Force {
		if errors.As(err, new(*control.CostError)) {
			err = fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return f, err
	}
	of := []*target{t}
	if r.Queue != "" {
		r.Queue = t.known
	} else {
		of = o.sharing(s)
	}
	entry := AuditEntry{
		Act: string(r.Do), By: r.By, Reason: r.Reason, Queue: r.Queue, Object: cmp.Or(r.Scope, r.Type),
		Detail: map[string]string{"until": r.Until.UTC().Format(time.RFC3339)},
	}
	if r.Do == control.Limit {
		entry.Detail["slots"] = fmt.Sprint(r.Slots)
	}
	f.Audit, err = o.act(ctx, s, entry, func(ctx context.Context) (map[string]string, error) {
		var before map[string]bool
		now, err := controlstore.Change(ctx, s, func(rules *controlstore.Rules) error {
			before = map[string]bool{}
			for _, u := range rules.Rules {
				before[u.ID] = true
			}
			rules.Rules = append(rules.Rules, r)
			return nil
		})
		if err != nil {
			return nil, err
		}
		f.Version = now.Version
		for _, u := range now.Rules {
			if !before[u.ID] {
				f.Rules = append(f.Rules, u)
			}
		}
		if len(f.Rules) == 0 {
			return nil, errors.New("the new rule is not among the rules")
		}
		return map[string]string{"rule": f.Rules[0].ID, "version": fmt.Sprint(now.Version)}, nil
	})
	if err != nil {
		return f, err
	}
	return f, o.follow(ctx, of, ro, &f, began)
}

// sharing are the targets with that store.
func (o *Ops) sharing(s dedupe.Store) (ts []*target) {
	for _, t := range o.ts {
		if t.Store != nil && hasStore([]dedupe.Store{s}, t.Store) {
			ts = append(ts, t)
		}
	}
	return ts
}

// ErrNoRule says that there is no such rule to end.
var ErrNoRule = errors.New("ops: no such rule")

// ResumeSpec says which rules are ended.
type ResumeSpec struct {
	// Queue is a Target's name; empty = the rules of all queues, in the first one's store.
	Queue string
	// Rule is the rule's id. Where it is empty, each pause of this queue is ended; pauses of all
	// queues are not among these.
	Rule string
	// Reason is why. Required.
	Reason string
}

// Resume ends rules of a queue, and waits as Pause does.
func (o *Ops) Resume(ctx context.Context, spec ResumeSpec, ro *RuleOptions) (f Followed, err error) {
	began := time.Now()
	id := spec.Rule
	if ro == nil {
		ro = &RuleOptions{}
	}
	t, err := o.ruled(spec.Queue)
	if err != nil {
		return f, err
	}
	s, err := t.store()
	if err != nil {
		return f, err
	}
	ends := func(r *control.Rule) bool {
		if id != "" {
			return r.ID == id && (r.Queue == "" || r.Queue == t.known)
		}
		return r.Do == control.Pause && r.Queue == t.known
	}
	rules, err := controlstore.Read(ctx, s)
	if err != nil {
		return f, err
	}
	now := time.Now()
	if !slices.ContainsFunc(rules.Rules, func(r control.Rule) bool { return ends(&r) && now.Before(r.Until) }) {
		if id != "" {
			return f, fmt.Errorf("%w: %s has no rule %q in force", ErrNoRule, t.label(), id)
		}
		return f, fmt.Errorf("%w: %s is not paused%s", ErrNoRule, t.label(), t.others(rules.Rules, now))
	}
	entry := AuditEntry{Act: "resume", Reason: spec.Reason, Queue: t.known, Object: id}
	f.Audit, err = o.act(ctx, s, entry, func(ctx context.Context) (map[string]string, error) {
		var gone []control.Rule
		after, err := controlstore.Change(ctx, s, func(rules *controlstore.Rules) error {
			gone = nil
			rules.Rules = slices.DeleteFunc(rules.Rules, func(r control.Rule) bool {
				if !ends(&r) {
					return false
				}
				gone = append(gone, r)
				return true
			})
			return nil
		})
		if err != nil {
			return nil, err
		}
		f.Rules, f.Version = gone, after.Version
		var ids []string
		for _, r := range gone {
			ids = append(ids, r.ID)
		}
		result := map[string]string{"rules": strings.Join(ids, " "), "version": fmt.Sprint(after.Version)}
		if i := slices.IndexFunc(gone, func(r control.Rule) bool { return strings.HasPrefix(r.Reason, controlstore.WentBack) }); i >= 0 {
			result[resultWentBack] = gone[i].Reason // Resend asks for it
		}
		return result, nil
	})
	if err != nil {
		return f, err
	}
	return f, o.follow(ctx, []*target{t}, ro, &f, began)
}

// others names the rules that hold for the target, and that only their ids end.
func (t *target) others(rules []control.Rule, now time.Time) string {
	var l []string
	for _, r := range rules {
		if now.Before(r.Until) && (r.Queue == "" || r.Queue == t.known) {
			l = append(l, fmt.Sprintf("%s (%s)", r.ID, r.Do))
		}
	}
	if len(l) == 0 {
		return ""
	}
	return "; in force, and ended by their ids, are " + strings.Join(l, ", ")
}

// follow waits until the workers' cards show a version of the rules. That some do not is no error:
// they are in f.Behind.
func (o *Ops) follow(ctx context.Context, ts []*target, ro *RuleOptions, f *Followed, began time.Time) error {
	wait := cmp.Or(ro.Follow, DefaultFollow)
	if wait < 0 {
		f.Took = time.Since(began)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(followEach)
	defer tick.Stop()
	for {
		live, behind, err := 0, []WorkerState(nil), error(nil)
		for _, t := range ts {
			var seats []WorkerState
			if seats, err = t.seats(ctx); err != nil {
				break
			}
			n, late := lagging(seats, f.Version)
			live, behind = live+n, append(behind, late...)
		}
		f.Took = time.Since(began)
		if err == nil {
			f.Live, f.Behind = live, behind
			if ro.Each != nil {
				ro.Each(*f)
			}
			if len(behind) == 0 {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if err != nil && f.Live == 0 {
				return fmt.Errorf("the rule is written; who follows it is not known: %w", err)
			}
			return nil
		}
	}
}

// lagging are the live workers, and those of them whose cards do not show the version.
func lagging(seats []WorkerState, version uint64) (live int, behind []WorkerState) {
	for _, s := range seats {
		if !s.Alive() {
			continue
		}
		live++
		if s.Status == nil || s.Status.Rules < version {
			behind = append(behind, s)
		}
	}
	return live, behind
}
