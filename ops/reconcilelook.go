package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
)

// This file owns the look of a reconciliation: what should have run, beside what the store knows,
// beside what a ledger has. Tools call Reconcile, and show the Evidence. A call has no goroutine of
// its own, and nothing is locked.

const (
	defaultGrace  = 15 * time.Minute
	defaultResend = 1000
)

// Reconcile compares what should have run with the store's records and, where there is one, with a
// ledger of effects. It changes nothing. It reads its input whole, sorts it by key (beyond 16 MB in
// a temporary file), and then reads each key once, in batches. With an error the Evidence is what
// was found so far.
func (o *Ops) Reconcile(ctx context.Context, ro ReconcileOptions) (*Evidence, error) {
	t, err := o.target(ro.Queue)
	if err != nil {
		return nil, err
	}
	s, err := t.store()
	if err != nil {
		return nil, err
	}
	switch {
	case ro.Expected == nil:
		return nil, fmt.Errorf("%w: ReconcileOptions.Expected is nil", ErrRefused)
	case ro.Max < 0:
		return nil, fmt.Errorf("%w: ReconcileOptions.Max is %d, want 0 or more", ErrRefused, ro.Max)
	}
	e := &Evidence{Queue: t.Name, Ledger: ro.Effects != nil, Counts: map[FindingKind]int{}, t: t, max: ro.Max, sendLost: ro.SendLost}
	if e.max == 0 {
		e.max = defaultResend
	}
	in := new(rows)
	defer in.close()
	n, err := in.read(ctx, &ro)
	if err != nil {
		return e, err
	}
	states, err := o.Overview(ctx, t.Name)
	if err != nil {
		return e, err
	}
	if e.State = states[0]; e.State.WorkersErr != nil {
		return e, e.State.WorkersErr // the scopes and the retention are not known
	}
	scopes := t.scopesOf(e.State.Workers)
	j := newJudge(e, &ro, t)
	if ro.Before != nil {
		audit := controlstore.LeastRead(time.Now().Add(-e.retention), time.Now().Add(time.Minute))
		if err := ro.Before(priceOf(ctx, s, n, max(0, len(scopes)-1), audit)); err != nil {
			return e, err
		}
	}
	e.At = clock(ctx, s)
	if ro.Letters {
		if j.letters, e.LettersErr = t.lettered(ctx); j.letters == nil {
			return e, e.LettersErr
		}
	}
	l := &looking{o: &ro, e: e, j: j, s: s, scopes: scopes}
	most := max(1, s.Limits().MaxBatch)
	batch := make([]*keyGroup, 0, most)
	for g, err := range in.byKey() {
		if err != nil {
			return e, err
		}
		if !l.asks(g) {
			continue
		}
		if batch = append(batch, g); len(batch) == most {
			if err := l.look(ctx, batch); err != nil {
				return e, err
			}
			batch = batch[:0]
		}
	}
	return e, l.look(ctx, batch)
}

// read reads the whole input, and counts what is expected.
func (s *rows) read(ctx context.Context, ro *ReconcileOptions) (n int, err error) {
	for x, err := range ro.Expected {
		if err = errors.Join(err, ctx.Err()); err == nil {
			err = x.Key.Validate()
		}
		if err == nil {
			err = s.expected(&x)
		}
		if err != nil {
			return n, err
		}
		n++
	}
	if ro.Effects == nil {
		return n, nil
	}
	for x, err := range ro.Effects {
		if err = errors.Join(err, ctx.Err()); err == nil {
			err = x.Key.Validate()
		}
		if err == nil {
			err = s.effect(&x)
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// priceOf is what reading n keys costs, and so many records of the audit.
func priceOf(ctx context.Context, s dedupe.Store, n, scopes int, audit int64) ReconcileCost {
	c := ReconcileCost{Keys: n, Scopes: scopes}
	t, ok := broker.As[dedupe.Sized](s)
	if !ok {
		return c
	}
	size, err := t.Size(ctx)
	if err != nil { // as in Firestore, where each key is a document whatever its size
		c.Units, c.Dollars = int64(n)+audit, -1
		return c
	}
	each := int64(1)
	if size.Records > 0 {
		each = max(1, (size.Bytes/size.Records+scanUnit-1)/scanUnit)
	}
	c.Units = int64(n)*each + audit
	c.Dollars = float64(c.Units) * scanDollars / 1e6
	return c
}

// lettered are the failures that have a letter. An error beside them says that there are more; with
// nil nothing is known.
func (t *target) lettered(ctx context.Context) (map[Failure]bool, error) {
	q, err := t.letters()
	if err != nil {
		return nil, err
	}
	all := map[Failure]bool{}
	for x, err := range q.List(ctx, dlq.Filter{}) {
		switch {
		case errors.Is(err, dlq.ErrIncomplete):
			return all, err
		case err != nil:
			return nil, err
		}
		if f, ok := failureOf(x.Message); ok {
			all[f] = true
		} else if d := deadOf(&x); d != nil && d.Key != "" {
			all[Failure{Key: dedupe.Key{Scope: d.Scope, Key: d.Key}}] = true // nothing has failed: too-early, expired
		}
	}
	return all, nil
}

// looking is one pass through the keys.
type looking struct {
	o      *ReconcileOptions
	e      *Evidence
	j      *judge
	s      dedupe.Store
	scopes []string

	knowsPast bool // the audit was read for it
}

// asks counts the input of a key, and reports whether its record is to be read.
func (l *looking) asks(g *keyGroup) bool {
	n := len(g.effects) + g.more
	if g.expected == nil {
		l.e.Others += n
		if n < 2 {
			return false
		}
		last := g.effects[len(g.effects)-1].At
		return g.more > 0 || last.IsZero() || !last.Before(l.o.Since)
	}
	l.e.Repeated += g.repeated
	if due := g.latest; !due.IsZero() && due.Before(l.o.Since) {
		l.e.Older++
		return false
	}
	l.e.Expected++
	l.e.Effects += n
	return true
}

// look reads the records of a batch and judges each key.
func (l *looking) look(ctx context.Context, batch []*keyGroup) error {
	if len(batch) == 0 {
		return nil
	}
	ks := make([]dedupe.Key, len(batch))
	for i, g := range batch {
		ks[i] = g.key
	}
	rs, err := l.get(ctx, ks)
	if err != nil {
		return err
	}
	if !l.knowsPast && slices.ContainsFunc(rs, func(r *dedupe.Record) bool { return r == nil || r.Status == dedupe.Failed && l.j.letters != nil }) {
		l.knowsPast = true
		if l.j.past, err = l.e.t.pastOf(ctx, l.e.At.Add(-l.e.retention)); err != nil {
			return err
		}
	}
	var without []int // keys without a record, which may have one elsewhere
	for i, g := range batch {
		if rs[i] == nil && g.expected != nil && !l.j.isYoung(g) {
			without = append(without, i)
		}
	}
	elsewhere, err := l.elsewhere(ctx, batch, without)
	if err != nil {
		return err
	}
	for i, g := range batch {
		f, found := l.j.of(g, rs[i], elsewhere[i])
		if !found {
			continue
		}
		if l.e.Counts[f.Kind]++; l.e.Counts[f.Kind] <= KeptFindings {
			l.e.Findings = append(l.e.Findings, f)
		}
		if f.Sends {
			if l.e.sends++; l.e.sends <= l.e.max {
				l.e.toSend = append(l.e.toSend, candidate{Finding: f, send: g.expected.Send, record: rs[i]})
			}
		}
		if l.o.Each != nil {
			l.o.Each(f)
		}
	}
	return nil
}

func (l *looking) get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	l.e.Reads += len(ks)
	return getAll(ctx, l.s, ks)
}

// getAll reads records, as many as a batch takes.
func getAll(ctx context.Context, s dedupe.Store, ks []dedupe.Key) ([]*dedupe.Record, error) {
	rs, err := s.Get(ctx, ks)
	if err == nil && len(rs) != len(ks) {
		err = fmt.Errorf("ops: the store answered %d of %d keys", len(rs), len(ks))
	}
	return rs, err
}

// elsewhere looks for keys in the queue's other scopes. The answer is by their place in the batch.
func (l *looking) elsewhere(ctx context.Context, batch []*keyGroup, at []int) (map[int]*dedupe.Record, error) {
	found := map[int]*dedupe.Record{}
	for _, scope := range l.scopes {
		var ks []dedupe.Key
		var of []int
		for _, i := range at {
			if k := batch[i].key; k.Scope != scope && found[i] == nil {
				ks, of = append(ks, dedupe.Key{Scope: scope, Key: k.Key}), append(of, i)
			}
		}
		if len(ks) == 0 {
			continue
		}
		rs, err := l.get(ctx, ks)
		if err != nil {
			return nil, err
		}
		for n, r := range rs {
			if r != nil {
				found[of[n]] = r
			}
		}
	}
	return found, nil
}
