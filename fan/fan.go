package fan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/digest"
	"github.com/onceq/onceq/internal/jointctx"
	"github.com/onceq/onceq/internal/steps"
	"github.com/onceq/onceq/internal/values"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns a fan from its parent's side: what is checked, what is saved, and how its children
// are sent. look.go reads what has become of them. The handler's goroutine of the parent runs all
// of it, and nothing is locked: what is saved is stored under the parent's claim.

// Policy says what a failed child does to its parent.
type Policy uint8

// The policies. A child that an operator has cancelled fails the parent under both, because it has
// no letter.
const (
	WaitForReplay Policy = iota // the parent waits until an operator has replayed the child's letter
	FailParent                  // the parent fails, class [ClassChild]; its own letter can be replayed
)

// ClassChild is the class of a parent that FailParent has failed.
const ClassChild = "child"

// Bounds of a fan.
const (
	MaxChildren = 1_000_000
	MaxName     = 100 // bytes
)

// Children are the jobs that a parent waits for.
type Children struct {
	// To is the queue that they are sent to. Required.
	To broker.Sender
	// Scope is that of their records, as their workers have it. Of a type that a Mux serves it is
	// the Processor's, a ':' and the type, unless JobOptions.Scope says otherwise. Required.
	Scope string
	// N is how many there are, 0 to MaxChildren. It is the same in every attempt of the parent:
	// where it may change, keep it in an onceq.Step first.
	N int
	// Message makes child i, from 0. It is called again for some children after a crash, and must
	// make the same message then. Out sets Meta.Key, Meta.ID, Meta.Created and DedupID. Required.
	Message func(i int) (broker.Outgoing, error)
	// Failed says what a child does that has failed, or is parked. Default WaitForReplay.
	Failed Policy
}

// saved is what the parent keeps of a fan, as the step of that name.
type saved struct {
	N     int       `json:"n"`
	Scope string    `json:"scope"`
	At    time.Time `json:"at"`    // of the first attempt; the children's Created
	Since time.Time `json:"since"` // the parent waits since then, and has only been postponed
	Due   time.Time `json:"due"`   // before it a child may not begin
	Ends  time.Time `json:"ends"`  // after it none may: the latest Expires; zero = one has none
	// Keeps is for how long a child that is done is kept, as its record says; 0 = none was seen.
	Keeps time.Duration `json:"keeps"`
	Sent  int           `json:"sent"`  // the children before it are sent
	Done  int           `json:"done"`  // the frontier: the children before it are done
	Ahead int           `json:"ahead"` // where FailParent looks next
}

// Out sends the children, and answers nil once all of them are done. Until then it answers an
// error: return it, and the job is given back for a tenth of the time that it has waited, 1 s to
// 10 h, see [onceq.Postpone]. The next attempt calls Out again, which goes on where it was. So no
// slot is held, and no attempt is used. What stands before Out in the handler runs again each time.
//
// s is where the children's records are, and name tells the job's fans from each other, with 1 to
// MaxName bytes. A name is used once in a run. Children are sent in parts of 500, each followed by
// a save: a crash amid them sends one part again, and the keys absorb that.
//
// The other errors fail the attempt. They are permanent where repeating cannot help:
//
//   - class "config": Children is not valid, or N or Scope is another than in the attempt before;
//   - class [ClassChild]: a child failed, is parked or expired, under FailParent, or was cancelled.
//     errors.As finds an *[onceq.FailedError] or *[onceq.ParkedError] that names it;
//   - class "unproven": a child has no record, and was due longer ago than the parent's Retention,
//     or than its own where a record has told it. It may have been done.
//
// An error of To, of s or of Message counts as an attempt, unless this one came further than the
// one before. In [onceq.Do] there is no message that comes again: the error of Out is Do's, and the
// next call of Do goes on.
func Out(ctx context.Context, j *onceq.Job, s dedupe.Store, name string, c Children) error {
	if err := check(j, s, name, &c); err != nil {
		return onceq.Permanent(verdict.Classed(onceq.ClassConfig, "fan %q: %w", name, err))
	}
	// The step is given once in a run, so a second fan of the name is refused.
	begun := false
	st, err := onceq.Step(ctx, j, stepOf(name), func(context.Context) (saved, error) {
		begun = true
		now := time.Now().UTC().Truncate(time.Millisecond)
		return saved{N: c.N, Scope: c.Scope, At: now, Since: now}, nil
	})
	switch {
	case err != nil:
		return err
	case st.N != c.N || st.Scope != c.Scope:
		return onceq.Permanent(verdict.Classed(onceq.ClassConfig, "fan %q: it has begun with %d children in the scope %q, and Children says %d in %q", name, st.N, st.Scope, c.N, c.Scope))
	}
	f := &fan{c: c, j: j, name: name, saved: st, first: st, stored: st, reader: readerOf(j, s, name, st.Scope), until: until(ctx)}
	if class, _ := j.Last(); !begun && class != onceq.ClassPostponed {
		f.Since = time.Now().UTC() // a replay is not to wait for a tenth of what lies before it
	}
	if err := f.send(ctx); err != nil {
		return f.stop(ctx, err)
	}
	wait, err := f.look(ctx)
	if err != nil {
		return f.stop(ctx, err)
	}
	if err := f.save(ctx); err != nil {
		return err
	}
	return wait
}

// fan is one call of Out.
type fan struct {
	saved
	reader
	c      Children
	first  saved // when the attempt began
	stored saved
	j      *onceq.Job
	name   string
	until  time.Time // the attempt goes on until then; zero = to its end
}

func check(j *onceq.Job, s dedupe.Store, name string, c *Children) error {
	err := dedupe.Key{Scope: c.Scope, Key: "k"}.Validate()
	n, isStoreless := values.As[interface{ Storeless() bool }](s)
	switch {
	case j == nil:
		return errors.New("the job is nil")
	case values.IsNil(s):
		return errors.New("the store is nil")
	case isStoreless && n.Storeless():
		return onceq.ErrNoStore
	case len(name) > MaxName:
		return fmt.Errorf("the name has %d bytes, the limit is %d", len(name), MaxName)
	case name == "" || strings.ContainsRune(name, 0) || steps.CheckName(name) != nil:
		return errors.New("the name is empty, or not valid UTF-8 without NUL")
	case values.IsNil(c.To):
		return errors.New("the field Children.To is nil")
	case err != nil:
		return fmt.Errorf("the field Children.Scope: %w", err)
	case strings.HasPrefix(c.Scope, ":"):
		return fmt.Errorf("the field Children.Scope is %q: scopes that begin with a ':' are onceq's own", c.Scope)
	case c.N < 0 || c.N > MaxChildren:
		return fmt.Errorf("the field Children.N is %d, want 0 to %d: let a child be a parent of its own", c.N, MaxChildren)
	case c.Message == nil:
		return errors.New("the field Children.Message is nil")
	case c.Failed > FailParent:
		return fmt.Errorf("the field Children.Failed is %d, want WaitForReplay or FailParent", c.Failed)
	}
	return nil
}

// stepOf is the name under which a fan is saved.
func stepOf(name string) string { return "fan/" + name }

// Key is the key of child i of a parent's fan, as people look it up. It begins with the parent's,
// cut at 512 bytes. No other parent, in another scope neither, and no other fan has it.
func Key(parent dedupe.Key, name string, i int) string {
	return prefixOf(parent, name) + strconv.Itoa(i)
}

func prefixOf(parent dedupe.Key, name string) string {
	return verdict.Clip(parent.Key, 512) + "/" + name + "/" + digest.Of("onceq fan 1", parent.Scope, parent.Key, name) + "/"
}

// until is when an attempt gives its job back, because its time is half over: one that is cut off
// at its Timeout would count.
func until(ctx context.Context) (t time.Time) {
	if end, ok := ctx.Deadline(); ok {
		t = time.Now().Add(time.Until(end) / 2)
	}
	return t
}

// part is how many children are sent before the parent saves how far it is. A test has smaller
// ones.
var part = 500

// send sends what is not sent yet.
func (f *fan) send(ctx context.Context) error {
	for f.Sent < f.N {
		to := min(f.Sent+part, f.N)
		ms := make([]broker.Outgoing, 0, to-f.Sent)
		for i := f.Sent; i < to; i++ {
			m, err := f.child(i)
			if err != nil {
				return fmt.Errorf("fan %q: child %d: %w", f.name, i, err)
			}
			ms = append(ms, m)
		}
		err := onceq.Send(ctx, f.c.To, ms)
		for i := range ms {
			if e := broker.ErrAt(err, i); e != nil {
				err = fmt.Errorf("fan %q: child %d was not sent: %w", f.name, f.Sent, e)
				if errors.Is(e, broker.ErrTooLarge) || errors.Is(e, broker.ErrUnsupported) {
					err = onceq.Permanent(err)
				}
				return err
			}
			m := ms[i].Meta
			if m.NotBefore.After(f.Due) {
				f.Due = m.NotBefore
			}
			if m.Expires.IsZero() {
				f.Ends = time.Time{}
			} else if f.Sent == 0 || !f.Ends.IsZero() && m.Expires.After(f.Ends) {
				f.Ends = m.Expires
			}
			f.Sent++
		}
		if err := f.rest(ctx, f.Sent < f.N); err != nil {
			return err
		}
	}
	return nil
}

// child makes the message of child i. All sends of it are of one job, so they are alike.
func (f *fan) child(i int) (broker.Outgoing, error) {
	m, err := f.c.Message(i)
	if err != nil {
		return m, err
	}
	if m.Meta = m.Meta.Clone(); m.Meta == nil {
		m.Meta = new(broker.Meta)
	}
	misuse := ""
	switch to, ok := broker.As[broker.Describer](f.c.To); {
	case m.Meta.Dead != nil:
		misuse = "is a dead letter"
	case m.Group != "" && m.Group == f.j.Message.Group && f.c.To.Limits().OrderedGroups && ok && to.Describe().Name == f.j.Queue():
		misuse = fmt.Sprintf("is in its parent's ordered group %q, where it waits behind the parent, which waits for it", m.Group)
	}
	if misuse != "" {
		return m, onceq.Permanent(verdict.Classed(onceq.ClassConfig, "the message %s", misuse))
	}
	m.Meta.Key = f.key(i).Key
	m.Meta.ID, m.Meta.Created, m.DedupID = m.Meta.Key, f.At, ""
	return m, nil
}

// rest saves how far the parent is, and gives it back where its time is over, or its worker drains.
func (f *fan) rest(ctx context.Context, more bool) error {
	if err := f.save(ctx); err != nil || !more {
		return err
	}
	if drains, _ := ctx.Value(jointctx.Drains{}).(bool); drains {
		return onceq.Postpone(0, onceq.ErrDraining)
	}
	if !f.until.IsZero() && time.Now().After(f.until) {
		return onceq.Postpone(0, fmt.Errorf("fan %q: half of the attempt's time is over, and it goes on in the next one", f.name))
	}
	return nil
}

func (f *fan) save(ctx context.Context) error {
	if f.saved == f.stored {
		return nil
	}
	err := onceq.Save(ctx, f.j, stepOf(f.name), f.saved)
	if err == nil {
		f.stored = f.saved
	}
	return err
}

// stop is the end of an attempt that has failed. What it has reached is saved, and makes it none.
func (f *fan) stop(ctx context.Context, err error) error {
	_, final := errors.AsType[*verdict.PermanentError](err)
	_, back := errors.AsType[*verdict.PostponeError](err)
	further := f.Sent > f.first.Sent || f.Done > f.first.Done
	if ctx.Err() == nil {
		err = cmp.Or(f.save(ctx), err)
	}
	if final || back || !further {
		return err
	}
	return onceq.Postpone(shortest, err)
}
