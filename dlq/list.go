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
)

// List gives the letters that the filter chooses, the oldest failure first, each failure once, with
// the number of its copies. It first receives all that is there, holding it so that nothing comes
// twice; then it hands everything back with delay 0, and only then yields: whatever the loop does,
// and however it ends, no letter is hidden by it. A receive is counted for each letter. Where the
// answer of a receive was lost it waits for Options.Visibility, until what that took comes again.
//
// An error is the last thing that it yields, after the entries that it has found: [ErrIncomplete]
// where there are more than Filter.Max lets through by default or than can be held, the context's
// cause, or the broker's. On a queue with ordered groups a letter waits for those before it in its
// group, so that of each group about one receive batch is seen.
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

// Get gives the letters of one job, the newest failure first, by its key, its id or the id of a
// letter's message. It goes through the whole queue, as List does. There is more than one when a
// job failed again before its first letter was removed. Where there is none the error is
// [ErrNoLetter]; with another error, such as [ErrIncomplete], there may be more.
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

// visit is told of the letters that a filter chooses.
type visit struct {
	one    func(*item) // the first of each failure
	copied func(*item) // each further one
	enough func() bool // ends the walk early; may be nil
}

// look goes through the queue and hands back what it has met.
func (q *Queue) look(ctx context.Context, f Filter, v visit) error {
	w := q.walk(ctx)
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

// Group is the letters of one class.
type Group struct {
	Class string
	// Count is how many failures there are, Copies how many letters more.
	Count, Copies  int
	Types, Sources map[string]int // how many failures of each
	Oldest, Newest time.Time
	// Sample is the newest failure's last error, and Key its job's.
	Sample, Key string
}

// Groups are the classes of a queue, the largest first.
type Groups []Group

// Group counts the letters that the filter chooses by class, going through the queue as List does.
// Filter.Max has no default here. Beside an error come the groups of what was seen.
func (q *Queue) Group(ctx context.Context, f Filter) (Groups, error) {
	if err := f.check("Filter"); err != nil {
		return nil, err
	}
	by := make(map[string]*Group)
	n := 0
	err := q.look(ctx, f, visit{
		one: func(l *item) {
			if f.Max > 0 && n == f.Max {
				return
			}
			n++
			c := classOf(l.m)
			if by[c] == nil {
				by[c] = &Group{Class: c, Types: make(map[string]int), Sources: make(map[string]int)}
			}
			by[c].add(entryOf(l))
		},
		copied: func(l *item) {
			if g := by[classOf(l.m)]; g != nil {
				g.Copies++
			}
		},
		enough: func() bool { return f.Max > 0 && n == f.Max },
	})
	gs := make(Groups, 0, len(by))
	for _, g := range by {
		gs = append(gs, *g)
	}
	slices.SortFunc(gs, func(a, b Group) int {
		if a.Count != b.Count {
			return b.Count - a.Count
		}
		return strings.Compare(a.Class, b.Class)
	})
	return gs, err
}

func (g *Group) add(e Entry) {
	g.Count++
	m, at := e.Message, e.At()
	g.Types[typeOf(m.Meta)]++
	g.Sources[sourceOf(m.Meta)]++
	if g.Oldest.IsZero() || at.Before(g.Oldest) {
		g.Oldest = at
	}
	if g.Newest.IsZero() || at.After(g.Newest) {
		g.Newest, g.Key = at, keyOf(m.Meta)
		if d := deadOf(m.Meta); d != nil {
			g.Sample = d.LastErr
		}
	}
}

// String is a table for people.
func (gs Groups) String() string {
	rows := [][]string{{"class", "letters", "copies", "oldest", "newest", "types", "last error"}}
	for _, g := range gs {
		rows = append(rows, []string{
			Printable(g.Class), strconv.Itoa(g.Count), strconv.Itoa(g.Copies), stamp(g.Oldest), stamp(g.Newest), Printable(counted(g.Types)), line(g.Sample),
		})
	}
	return table(rows)
}
