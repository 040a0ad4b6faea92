package dlq

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
)

// This file owns List, Get and Group, which look at letters and leave them in the queue. Each call
// walks the queue in its caller's goroutine, and hands everything back when it has seen enough.
// There is no lock here; the keeper has one.

// List gives the letters that the filter chooses: the oldest failure first, each failure once, with
// the number of its copies. It goes in three steps:
//
//  1. It receives all that is there, and holds it, so that nothing comes twice.
//  2. It hands everything back with delay 0.
//  3. It yields the entries. Whatever the loop does, and however it ends, List leaves no letter
//     hidden.
//
// The broker counts a receive for each letter. Where the answer of a receive was lost, List waits
// for Options.Visibility, until the letters that the receive took come again.
//
// An error is the last thing that List yields, after the entries that it has found. It is one of
// these:
//
//   - a mistake in f;
//   - [ErrIncomplete], where there are more letters than Filter.Max lets through by default, more
//     than can be held, or some that could not be reached;
//   - the context's cause;
//   - the broker's, after Options.RetryFor.
//
// On a queue with ordered groups a letter waits for those before it in its group. So List sees
// about one receive batch of each group.
func (q *Queue) List(ctx context.Context, f Filter) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		es, err := q.list(ctx, f)
		for _, e := range es {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(Entry{}, err)
		}
	}
}

// Get gives the letters of one job, the newest failure first. The name is the job's key, its id, or
// the id of a letter's message; an empty one is refused. There is more than one letter when a job
// failed again before its first letter was removed. Get goes through the whole queue, as List does.
//
// The error is [ErrNoLetter] where there is no such letter. With another error, such as
// [ErrIncomplete], there may be more letters than those that are returned.
func (q *Queue) Get(ctx context.Context, name string) ([]Entry, error) {
	if name == "" {
		return nil, bad("Get", "the name is empty; it is a key, a job's id or a message's")
	}
	var found []Entry
	at := make(map[identity]int)
	err := q.look(ctx, Filter{}, visit{
		one: func(l *item) {
			m := l.m
			if m.ID == name || m.Meta != nil && (m.Meta.Key == name || m.Meta.ID == name) {
				at[l.id] = len(found)
				found = append(found, entryOf(l))
			}
		},
		copied: func(l *item) {
			if i, ok := at[l.id]; ok {
				found[i].Copies++
			}
		},
	})
	slices.SortStableFunc(found, func(a, b Entry) int {
		return cmp.Or(b.At().Compare(a.At()), cmp.Compare(b.Ref().Fence, a.Ref().Fence))
	})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %q", ErrNoLetter, name)
	}
	return found, err
}

func (q *Queue) list(ctx context.Context, f Filter) (es []Entry, err error) {
	if err := f.check("Filter"); err != nil {
		return nil, err
	}
	most := cmp.Or(f.Max, DefaultMaxListed)
	at := make(map[identity]int)
	more := false
	err = q.look(ctx, f, visit{
		one: func(l *item) {
			if len(es) == most {
				more = f.Max == 0
				return
			}
			at[l.id] = len(es)
			es = append(es, entryOf(l))
		},
		copied: func(l *item) {
			if i, ok := at[l.id]; ok {
				es[i].Copies++
			}
		},
		enough: func() bool { return more || f.Max > 0 && len(es) == most },
	})
	slices.SortStableFunc(es, func(a, b Entry) int {
		x, y := a.Ref(), b.Ref()
		return cmp.Or(a.At().Compare(b.At()), strings.Compare(x.Key, y.Key), cmp.Compare(x.Fence, y.Fence))
	})
	if err == nil && more {
		err = fmt.Errorf("%w: the filter chooses more than %d; set Filter.Max, or choose fewer", ErrIncomplete, most)
	}
	return es, err
}

// visit is what look does with the letters that a filter chooses.
type visit struct {
	one    func(*item) // the first of each failure
	copied func(*item) // each further one
	enough func() bool // ends the walk early; may be nil
}

// look goes through the queue and hands back what it has met.
func (q *Queue) look(ctx context.Context, f Filter, v visit) error {
	w := q.walk(ctx)
	w.eager = true
	defer w.k.handBack() //nolint:contextcheck // it outlives the end of ctx
	seen := make(map[identity]bool)
	for v.enough == nil || !v.enough() {
		ls, _, drained, err := w.next(ctx, w.q.l.ReceiveBatch, q.o.Wait)
		for _, l := range ls {
			switch {
			case !f.chooses(l.m):
			case seen[l.id]:
				v.copied(l)
			default:
				seen[l.id] = true
				v.one(l)
			}
			l.m = nil
		}
		if err != nil {
			return err
		}
		if drained {
			_, err := w.rest(ctx)
			return err
		}
	}
	return nil
}

func entryOf(l *item) Entry {
	m := *l.m
	m.Receipt, m.Deadline = "", time.Time{}
	return Entry{Message: &m, Unsigned: l.unsigned}
}

// Group is the letters of one kind of failure: of one class, whose errors differ only in what
// belongs to one job.
type Group struct {
	// Group is the fingerprint of these failures; see [Fingerprint]. [Filter].Group chooses them.
	Group string
	Class string
	// Error is what their errors have in common, as [Normalize] gives it. Print it through
	// [Printable].
	Error string
	// Count is how many failures there are. Copies is how many more letters there are of them.
	Count, Copies  int
	Types, Sources map[string]int // how many failures of each
	Oldest, Newest time.Time
	// Sample is the last error of the newest failure, whole, and Key the key of its job.
	Sample, Key string
}

// Groups are the groups of a queue, the largest first.
type Groups []Group

// Group counts the letters that the filter chooses, by kind of failure. It goes through the queue
// as List does. Filter.Max has no default here. With an error come the groups of what was seen.
func (q *Queue) Group(ctx context.Context, f Filter) (Groups, error) {
	return q.GroupWith(ctx, GroupOptions{Filter: f})
}

// GroupOptions say what GroupWith counts, and who hears of it.
type GroupOptions struct {
	// Filter chooses the letters.
	Filter
	// Show, when set, is for readers who may not see everything. What the groups hold of their
	// messages (Error, Types, Sources, Sample and Key) is taken from what Show makes of each; it
	// gets a message that must not be changed. The filter, the group's name and its class go by the
	// letters as they are.
	Show func(*broker.Message) *broker.Message
	// Each, when set, is called for each failure when it was counted, with its letter as Show has
	// made it, and its group so far, which the next letters change. It is called in the goroutine
	// of the call.
	Each func(Entry, *Group)
	// Stop, once it is closed, ends the look in order, with [ErrStopped].
	Stop <-chan struct{}
}

// GroupWith is Group for who shows the groups while they are counted.
func (q *Queue) GroupWith(ctx context.Context, o GroupOptions) (Groups, error) {
	f := o.Filter
	if err := f.check("Filter"); err != nil {
		return nil, err
	}
	by, of := make(map[string]*Group), make(map[identity]*Group)
	n, stopped := 0, false
	err := q.look(ctx, f, visit{
		one: func(l *item) {
			if f.Max > 0 && n == f.Max {
				return
			}
			n++
			name, e := groupOf(l.m), entryOf(l)
			if o.Show != nil {
				e.Message = o.Show(e.Message)
			}
			g := by[name]
			if g == nil {
				g = &Group{
					Group: name, Class: classOf(l.m), Error: Normalize(lastErrOf(e.Message.Meta)),
					Types: make(map[string]int), Sources: make(map[string]int),
				}
				by[name] = g
			}
			g.add(e, failedAt(l.m))
			of[l.id] = g
			if o.Each != nil {
				o.Each(e, g)
			}
		},
		copied: func(l *item) {
			if g := of[l.id]; g != nil { // its own text may be cut
				g.Copies++
			}
		},
		enough: func() bool {
			select {
			case <-o.Stop:
				stopped = true
			default:
			}
			return stopped || f.Max > 0 && n == f.Max
		},
	})
	if err == nil && stopped {
		err = ErrStopped
	}
	gs := make(Groups, 0, len(by))
	for _, g := range by {
		gs = append(gs, *g)
	}
	gs.sort()
	return gs, err
}

// sort puts the largest first.
func (gs Groups) sort() {
	slices.SortFunc(gs, func(a, b Group) int {
		return cmp.Or(b.Count-a.Count, strings.Compare(a.Class, b.Class), strings.Compare(a.Group, b.Group))
	})
}

func (g *Group) add(e Entry, at time.Time) {
	g.Count++
	m := e.Message
	g.Types[typeOf(m.Meta)]++
	g.Sources[sourceOf(m.Meta)]++
	if g.Oldest.IsZero() || at.Before(g.Oldest) {
		g.Oldest = at
	}
	if g.Newest.IsZero() || at.After(g.Newest) {
		g.Newest, g.Key = at, keyOf(m.Meta)
		g.Sample = lastErrOf(m.Meta)
	}
}

// String is a table for people. Where the letters come from more than one source, the sources of
// each group stand below it: they are what [Filter].Source takes.
func (gs Groups) String() string {
	rows := [][]string{{"group", "class", "letters", "copies", "oldest", "newest", "types", "last error"}}
	for _, g := range gs {
		rows = append(rows, []string{
			g.Group, Printable(g.Class), strconv.Itoa(g.Count), strconv.Itoa(g.Copies), stamp(g.Oldest), stamp(g.Newest), counted(g.Types), line(g.Sample),
		})
	}
	t := table(rows)
	sources := make(map[string]bool)
	for _, g := range gs {
		for s := range g.Sources {
			sources[s] = true
		}
	}
	delete(sources, "") // no filter can choose it
	if len(sources) < 2 {
		return t
	}
	var all strings.Builder
	all.WriteString(t)
	for _, g := range gs {
		all.WriteString(filled("sources of "+strings.TrimSpace(g.Group+" "+Printable(g.Class))+":", counts(g.Sources)))
	}
	return all.String()
}
