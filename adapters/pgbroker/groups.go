package pgbroker

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/tablequeue"
)

// This file owns the order of groups on the reader's side, and what is moved to the dead letters.
// Looks call it. In the database the groups' advisory locks guard the order, until the end of each
// transaction.
//
// A producer writes a message of a group as fresh, and waiting. A look that goes for fresh rows
// gives their groups heads, in a transaction of its own. So no producer's open transaction ever
// holds a reader back, and an ack looks at nothing but the next row.

const (
	// maxFresh is how many rows are read at once, and maxWindows how often a look reads on.
	maxFresh   = 500
	maxWindows = 20
	// maxLocks is how many groups a transaction locks; see schema.go.
	maxLocks = 50
)

// groups knows behind which row's number a look for fresh rows begins, for the reason that floor.go
// gives: every message of a group leaves a dead entry in the index of fresh rows. What lies before
// that, such as what a slow transaction has committed, or what somebody holds, is found by a full
// look. mu guards it.
type groups struct {
	// hint: messages with groups were sent through this Queue, so the next look goes for them.
	hint atomic.Bool

	mu sync.Mutex
	// Looks begin behind at. latest was seen last; next was seen at since, and becomes at when the
	// slack has passed: who has a lower number has committed by then, or is late.
	at, next, latest int64
	since            time.Time
	lowered          int // as a floor's
}

// freshStart is where the reading of fresh rows begins.
type freshStart struct {
	full    bool
	behind  int64
	lowered int
}

// front is before all rows.
const front = math.MinInt64

func (g *groups) beginFresh(full bool) freshStart {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.since) >= slack {
		g.at, g.next, g.since = g.next, g.latest, now
	}
	if full {
		return freshStart{full: true, behind: front, lowered: g.lowered}
	}
	return freshStart{behind: g.at, lowered: g.lowered}
}

// endFresh notes the last row that was read and ordered, and whether there may be more behind it.
func (g *groups) endFresh(s freshStart, last int64, filled bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case s.full && filled && last < g.at:
		g.at, g.next, g.latest = last, last, last
		g.lowered++
	case s.lowered == g.lowered && last > g.latest:
		g.latest = last
	}
	if filled {
		g.hint.Store(true)
	}
}

// freshRow is a message that nobody has looked at.
type freshRow struct {
	seq int64
	grp string
}

// readFresh adds the reading of fresh rows.
func (q *Queue) readFresh(p *pgkit.Pipeline, behind int64, to *[]freshRow) {
	var r freshRow
	targets := []any{&r.seq, &r.grp}
	p.Query(q.sql().fresh, []any{q.name, int64(maxFresh), behind}, func(rows pgx.Rows) error {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		*to = append(*to, r)
		return nil
	})
}

// order gives the groups of fresh rows their heads. Where most of a full window cannot be changed,
// because somebody holds the first row of a group, it reads on behind them, so that they stop no
// other group.
func (q *Queue) order(ctx context.Context, from freshStart, fresh []freshRow) error {
	begun := time.Now()
	stuck := false
	for windows := 1; ; windows++ {
		n, err := q.orderGroups(ctx, fresh)
		if err != nil {
			return err
		}
		filled := len(fresh) == maxFresh
		most := n >= int64(len(fresh)+1)/2
		stuck = stuck || !most
		if last := fresh[len(fresh)-1].seq; filled && !most && windows < maxWindows {
			if fresh, err = q.freshBehind(ctx, last); err != nil {
				return err
			}
			if len(fresh) > 0 {
				continue
			}
			q.groups.endFresh(from, last, false)
		} else {
			q.groups.endFresh(from, last, filled)
		}
		if stuck && from.full {
			q.floor.putOff(time.Since(begun))
		}
		return nil
	}
}

func (q *Queue) freshBehind(ctx context.Context, seq int64) (fresh []freshRow, err error) {
	p := newPipeline()
	q.readFresh(p, seq, &fresh)
	return fresh, q.explain(ctx, tablequeue.CallReceive, p.Run(ctx, q.db))
}

// orderGroups gives the groups of these rows their heads, and answers how many rows that has
// changed. It goes through the groups by maxLocks, each a transaction, and does not wait for the
// disk: of what a crash of the server undoes, it undoes all that came later, too.
func (q *Queue) orderGroups(ctx context.Context, fresh []freshRow) (changed int64, err error) {
	byGroup := slices.Clone(fresh)
	slices.SortFunc(byGroup, func(a, b freshRow) int { return cmp.Or(cmp.Compare(a.grp, b.grp), cmp.Compare(a.seq, b.seq)) })
	var p *pgkit.Pipeline
	for len(byGroup) > 0 {
		seqs, grps := newArray(12*len(byGroup)), newArray(32*maxLocks)
		n := 0
		for locks := 0; n < len(byGroup); n++ {
			if n == 0 || byGroup[n].grp != byGroup[n-1].grp {
				if locks++; locks > maxLocks {
					break
				}
				grps.blob([]byte(byGroup[n].grp))
			}
			seqs.int(byGroup[n].seq)
		}
		byGroup = byGroup[n:]
		if p == nil {
			p = newPipeline()
		} else {
			p.Another()
		}
		given := grps.arg()
		p.Exec(swift)
		p.Exec(q.sql().lockGroups, q.name, given)
		p.Count(&changed, q.sql().heads, q.name, given)
		p.Count(&changed, q.sql().seen, q.name, seqs.arg())
	}
	if err := p.Run(ctx, q.db); err != nil {
		return 0, q.explain(ctx, tablequeue.CallReceive, err)
	}
	return changed, nil
}

// redrive moves deliveries that were one too many to the dead letters, as an ack would remove them.
// What it leaves, because somebody holds it, comes again when its timeout ends, and is moved then.
func (q *Queue) redrive(ctx context.Context, spent []taken) error {
	s := settling{call: tablequeue.CallReceive, Settling: tablequeue.Settling{
		N: len(spent), Receipt: func(i int) broker.Receipt { return spent[i].m.Receipt }, Wrap: q.wrapper(tablequeue.CallReceive),
	}}
	err := q.settle(ctx, &s, &q.sql().redrive, &q.sql().redriveGrouped, q.s.DeadLetters)
	if e := (*broker.BatchError)(nil); errors.As(err, &e) {
		return nil // by position: left for the next time
	}
	return err
}
