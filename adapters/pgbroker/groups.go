package pgbroker

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/tablequeue"
)

// This file owns the order of groups on the reader's side, and what is moved to the dead letters.
// Looks call it. In the database the groups' advisory locks guard the order, until the end of each
// transaction.
//
// A producer writes a message of a group as fresh, and waiting. A look that goes for fresh rows
// gives their groups heads, in a transaction of its own. So no producer's open transaction ever
// holds a reader back, and an ack looks at nothing but the next row.

// maxFresh is how many rows are ordered at once.
const maxFresh = 500

type groups struct {
	// hint: messages with groups were sent through this Queue, so the next look goes for them.
	hint atomic.Bool
}

// freshRow is a message that nobody has looked at.
type freshRow struct {
	seq int64
	grp string
}

// readFresh adds the reading of fresh rows.
func (q *Queue) readFresh(p *pipeline, to *[]freshRow) {
	var r freshRow
	targets := []any{&r.seq, &r.grp}
	p.query(q.sql().fresh, []any{q.name, int64(maxFresh)}, func(rows pgx.Rows) error {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		*to = append(*to, r)
		return nil
	})
}

// orderGroups gives the groups of fresh rows their heads.
func (q *Queue) orderGroups(ctx context.Context, fresh []freshRow) error {
	names := make([]string, len(fresh))
	seqs := newArray(12 * len(fresh))
	for i, r := range fresh {
		names[i] = r.grp
		seqs.int(r.seq)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	grps := newArray(32 * len(names))
	for _, name := range names {
		grps.blob([]byte(name))
	}
	p := newPipeline()
	given := grps.arg()
	p.exec(q.sql().lockGroups, q.name, given)
	p.exec(q.sql().heads, q.name, given)
	p.exec(q.sql().seen, q.name, seqs.arg())
	if err := p.run(ctx, q.db); err != nil {
		return q.explain(ctx, tablequeue.CallReceive, err)
	}
	if len(fresh) == maxFresh {
		q.groups.hint.Store(true)
	}
	return nil
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
