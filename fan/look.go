package fan

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns a look: what the parent reads of its children, what that means, and how long it
// waits for the next one. Results reads what they have left. The parent's handler calls both.

// How long a parent waits from look to look, how many records it reads at once, after how many such
// calls it saves, and how far its clock and its children's may be apart.
const (
	shortest = time.Second
	longest  = 10 * time.Hour
	atOnce   = 100
	looks    = 100
	apart    = time.Hour
)

// pause is how long a parent waits that has waited for so long: 144 looks are 14 days.
func pause(passed time.Duration) time.Duration {
	return min(max(passed/10, shortest), longest)
}

// look reads the children's records, from the frontier on, up to the first that is not done. wait
// is what gives the parent back; nil = all are done.
func (f *fan) look(ctx context.Context) (wait, err error) {
	for n := 1; f.Done < f.N; n++ {
		from := f.Done
		rs, err := f.read(ctx, from, f.N)
		if err != nil {
			return nil, fmt.Errorf("fan %q: %w", f.name, err)
		}
		f.learn(rs)
		for _, rec := range rs {
			if rec == nil || rec.Status != dedupe.Done {
				break
			}
			f.Done++
		}
		if f.Done < from+len(rs) {
			return f.wait(ctx, from, rs)
		}
		if n%looks == 0 {
			if err := f.rest(ctx, f.Done < f.N); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// wait judges the children of which rs tells, and whose first is number from. Under FailParent it
// looks at some further ones, too, in turn.
func (f *fan) wait(ctx context.Context, from int, rs []*dedupe.Record) (wait, err error) {
	now := time.Now()
	if err := f.judge(now, from, rs); err != nil {
		return nil, err
	}
	why := f.why(now, rs[f.Done-from])
	if beyond := from + len(rs); f.c.Failed == FailParent && beyond < f.N {
		if f.Ahead < beyond || f.Ahead >= f.N {
			f.Ahead = beyond
		}
		rs, err := f.read(ctx, f.Ahead, f.N)
		if err != nil {
			return nil, fmt.Errorf("fan %q: %w", f.name, err)
		}
		if err := f.judge(now, f.Ahead, rs); err != nil {
			return nil, err
		}
		f.Ahead += len(rs)
	}
	return onceq.Postpone(pause(now.Sub(f.Since)), why), nil
}

// judge is why the parent has failed; nil = it goes on.
func (f *fan) judge(now time.Time, from int, rs []*dedupe.Record) error {
	keeps := f.j.Retain()
	if f.Keeps > 0 {
		keeps = f.Keeps + apart
	}
	due := f.At
	if f.Due.After(due) {
		due = f.Due
	}
	// What was due so long before has no record because its message is lost, or because it is done,
	// and that is forgotten. The children's workers judge by the same rule: whom they refuse has a
	// record of that moment, and no attempt.
	gone := func(at time.Time) bool { return due.Before(at.Add(-keeps)) }
	for n, r := range rs {
		k := f.key(from + n)
		switch {
		case r == nil && gone(now), r != nil && r.Status == dedupe.Released && r.Attempt == 0 && r.ErrClass == "" && gone(r.Created),
			r != nil && r.Status == dedupe.Claimed && r.LeaseUntil.Before(now.Add(-keeps)):
			return f.end(onceq.ClassUnproven, "child %d has no end on record, %v: it was due at %s, and may have been done and forgotten since. Do its workers use the scope %q?",
				from+n, k, due.Format(time.RFC3339), f.Scope)
		case f.c.Failed == FailParent && f.isOver(now, r):
			return f.end(ClassChild, "child %d has no end on record, and may not begin after %s: %v", from+n, f.Ends.Format(time.RFC3339), k)
		case r == nil:
		case r.Status == dedupe.Failed && (f.c.Failed == FailParent || r.ErrClass == onceq.ClassCancelled): // that has no letter
			return f.end(ClassChild, "child %d: %w", from+n, &onceq.FailedError{Key: k, Fence: r.Fence, Class: r.ErrClass, Text: r.LastErr, At: r.Finished})
		case r.Status == dedupe.Parked && f.c.Failed == FailParent:
			return f.end(ClassChild, "child %d: %w", from+n, &onceq.ParkedError{Key: k, Fence: r.Fence, Class: r.ErrClass, Text: r.LastErr, At: r.Finished})
		}
	}
	return nil
}

// learn notes the Retention of the children's workers, which may be another than the parent's.
func (f *fan) learn(rs []*dedupe.Record) {
	for _, r := range rs {
		if r != nil && r.Status == dedupe.Done {
			f.Keeps = max(f.Keeps, r.Expires.Sub(r.Finished).Round(time.Second))
		}
	}
}

// isOver reports whether a child with that record can begin no more, because each has expired. Its
// letter may be replayed.
func (f *fan) isOver(now time.Time, r *dedupe.Record) bool {
	return !f.Ends.IsZero() && now.Sub(f.Ends) > apart && (r == nil || r.Status == dedupe.Released)
}

func (f *fan) end(class, format string, args ...any) error {
	return onceq.Permanent(verdict.Classed(class, "fan %q: "+format, append([]any{f.name}, args...)...))
}

// why says what the parent waits for; r is the record of the first child that is not done. The key
// stands last, because a log may cut the text.
func (f *fan) why(now time.Time, r *dedupe.Record) error {
	state := "has no record yet"
	switch {
	case f.isOver(now, r):
		state = "has expired and waits for its replay"
	case r != nil && (r.Status == dedupe.Failed || r.Status == dedupe.Parked):
		state = fmt.Sprintf("is %v (%s) and waits for its replay", r.Status, r.ErrClass)
	case r != nil:
		state = "is " + r.Status.String()
	case f.Done == 0 && now.Sub(f.At) >= time.Minute && now.After(f.Due):
		state = fmt.Sprintf("has no record after %v: do their workers use the scope %q?", now.Sub(f.At).Round(time.Second), f.Scope)
	}
	return fmt.Errorf("fan %q: %d of %d children are done; child %d %s: %v", f.name, f.Done, f.N, f.Done, state, f.key(f.Done))
}

// reader reads children's records.
type reader struct {
	s             dedupe.Store
	scope, prefix string
	keys          []dedupe.Key
}

func readerOf(j *onceq.Job, s dedupe.Store, name, scope string) reader {
	return reader{s, scope, prefixOf(j.Key(), name), nil}
}

func (r *reader) key(i int) dedupe.Key {
	return dedupe.Key{Scope: r.scope, Key: r.prefix + strconv.Itoa(i)}
}

// read reads the next records from child from on, below n.
func (r *reader) read(ctx context.Context, from, n int) ([]*dedupe.Record, error) {
	n = min(n, from+atOnce, from+max(1, r.s.Limits().MaxBatch))
	r.keys = r.keys[:0]
	for i := from; i < n; i++ {
		r.keys = append(r.keys, r.key(i))
	}
	rs, err := r.s.Get(ctx, r.keys)
	if err == nil && len(rs) != len(r.keys) {
		err = fmt.Errorf("the store answered %d of %d keys", len(rs), len(r.keys))
	}
	return rs, err
}

// Results are what the children have left, in their order, once Out has answered nil: what
// onceq.JSONResult or a CompleteTx has stored with their keys, decoded. A child without a result
// gives the zero R. The sequence ends after its first error, which is permanent where a result does
// not decode (class "result"), where a child's record is gone (class "unproven"), or where the fan
// is not over (class "config"). It reads 100 records at a time.
func Results[R any](ctx context.Context, j *onceq.Job, s dedupe.Store, name string) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		var zero R
		st, _, err := onceq.Saved[saved](j, stepOf(name))
		if err == nil && (st.At.IsZero() || st.Done < st.N) {
			err = onceq.Permanent(verdict.Classed(onceq.ClassConfig, "fan %q: there are no results before Out has answered nil", name))
		}
		if err != nil {
			yield(zero, err)
			return
		}
		r := readerOf(j, s, name, st.Scope)
		for i := 0; i < st.N; {
			rs, err := r.read(ctx, i, st.N)
			if err != nil {
				yield(zero, fmt.Errorf("fan %q: %w", name, err))
				return
			}
			for n, rec := range rs {
				v, err := resultOf[R](r.keys[n], rec)
				if err != nil {
					err = fmt.Errorf("fan %q: child %d: %w", name, i+n, err)
				}
				if !yield(v, err) || err != nil {
					return
				}
			}
			i += len(rs)
		}
	}
}

func resultOf[R any](k dedupe.Key, r *dedupe.Record) (v R, err error) {
	switch {
	case r == nil || r.Status != dedupe.Done:
		return v, onceq.Permanent(verdict.Classed(onceq.ClassUnproven, "%v was done, and its record is gone: results are kept for Retention", k))
	case r.Result == nil:
		return v, nil
	}
	if err := json.Unmarshal(r.Result, &v); err != nil {
		return v, onceq.Permanent(verdict.Classed(onceq.ClassResult, "the result of %v does not decode into %T: %w", k, v, err))
	}
	return v, nil
}
