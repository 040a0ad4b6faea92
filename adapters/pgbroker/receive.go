package pgbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/tablequeue"
)

// This file owns receives: a look at the table, and how a receive waits from look to look. A
// worker's pollers call Receive, each in a goroutine of its own. floor.go says where a look begins,
// internal/tablequeue when there is one, and groups.go what a look does for groups; each has its
// own lock.

const (
	// lookTimeout bounds a look whatever the network does; grace is what is left of it when the
	// caller's context has ended, because what the server has marked as delivered would be stranded
	// until its timeout.
	lookTimeout = 10 * time.Second
	grace       = 3 * time.Second
)

// Receive brings up to o.Max messages, those first that were due first. Of a group it brings one at
// a time. Where nothing is there it looks again each [Options].Poll until o.Wait is over, and at
// once when something is sent through this Queue, or [Queue.Wake] is called.
//
// A look that takes longer than 10 s is given up. When ctx ends, the look in flight goes on for up
// to 3 s, and what it brings is returned.
//
// An empty answer to a receive with Wait 0 means that nothing was there. While it waits, a receive
// may find what a slow transaction has committed a few looks later: see the package comment.
func (q *Queue) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	if err := q.ready(ctx, tablequeue.CallReceive, 1, 1); err != nil {
		return nil, err
	}
	if err := q.s.CompleteReceive(&o); err != nil {
		return nil, q.wrap(tablequeue.CallReceive, err)
	}
	end := time.Now().Add(o.Wait)
	for first := true; ; first = false {
		if q.wakes.Turn(q.s.Poll) || first {
			ms, err := q.receive(ctx, &o, o.Wait == 0)
			if err != nil || len(ms) > 0 {
				if len(ms) == o.Max {
					q.wakes.Wake() // there may be more, for another receive
				}
				return ms, err
			}
		}
		left := time.Until(end)
		if left <= 0 {
			return nil, nil
		}
		if err := q.rest(ctx, left); err != nil {
			return nil, q.wrap(tablequeue.CallReceive, err)
		}
	}
}

// rest waits until there may be something, at most left.
func (q *Queue) rest(ctx context.Context, left time.Duration) error {
	if !q.notifies || !q.listen(ctx, min(left, q.s.Poll)) {
		q.wakes.Wait(ctx, q.closing.C(), min(left, q.wakes.UntilTurn(q.s.Poll)))
	}
	if q.closing.IsClosed() {
		return broker.ErrClosed
	}
	return ctx.Err()
}

// receive looks once, or twice where the first look was from the floor, has found nothing, and the
// caller wants to be certain.
func (q *Queue) receive(ctx context.Context, o *broker.ReceiveOptions, certain bool) ([]*broker.Message, error) {
	from := q.floor.begin()
	hinted := q.groups.hint.Swap(false)
	// All groups are ordered once: where a row is in somebody's hands, it would be looked at for
	// ever. Before that, those that the hint is for may be.
	for ordered := false; ; {
		l := look{q: q, o: o, from: from, groups: hinted || from.full && !ordered}
		if err := l.take(ctx); err != nil {
			if hinted {
				q.groups.hint.Store(true)
			}
			if len(l.ms) == 0 {
				return nil, err
			}
		}
		hinted = false
		ordered = ordered || l.ordered && from.full
		switch {
		case len(l.ms) > 0:
			return l.ms, nil
		case l.ordered || l.moved: // there may be something behind that
			from = q.floor.begin()
		case certain && !from.full:
			from = q.floor.beginFull()
		default:
			return nil, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, q.wrap(tablequeue.CallReceive, err)
		}
	}
}

// look is one round trip that takes messages, and what it has found.
type look struct {
	q      *Queue
	o      *broker.ReceiveOptions
	from   start
	groups bool // it also looks for messages of groups that nobody has looked at
	ms     []*broker.Message
	// ordered: groups may have got heads. moved: messages went to the dead letters.
	ordered, moved bool
	rows           []taken
}

// taken is a row of the answer.
type taken struct {
	m   *broker.Message
	due time.Time // that it had
	tablequeue.Receipt
}

func (l *look) take(ctx context.Context) error {
	q := l.q
	patient, cancel := patience(ctx)
	defer cancel()
	p := newPipeline()
	var fresh []freshRow
	var behind freshStart
	if l.groups {
		behind = q.groups.beginFresh(l.from.full)
		q.readFresh(p, behind.behind, &fresh)
	}
	p.Query(q.sql().receive, []any{q.name, int64(l.o.Max), l.from.text(), pgkit.Micros(l.o.Visibility)}, l.reader())
	sent := time.Now()
	err := p.RunPatient(ctx, patient, q.db)
	answered := time.Now()
	took := answered.Sub(sent)
	if err != nil {
		l.rows = nil
		if ctx.Err() == nil && errors.Is(patient.Err(), context.DeadlineExceeded) {
			return q.wrap(tablequeue.CallReceive, fmt.Errorf("no answer within %v: %w", lookTimeout, err))
		}
		return q.explain(ctx, tablequeue.CallReceive, err)
	}
	slices.SortFunc(l.rows, func(a, b taken) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.Seq, b.Seq))
	})
	var highest time.Time
	if n := len(l.rows); n > 0 {
		highest = l.rows[n-1].due
	}
	q.floor.end(l.from, took, highest, len(l.rows) == l.o.Max)
	deadline := answered.Add(l.o.Visibility - min(took, 5*time.Second, l.o.Visibility/4))
	l.ms = make([]*broker.Message, 0, len(l.rows))
	var spent []taken
	for _, t := range l.rows {
		if most := q.s.MaxReceives; most > 0 && t.m.Attempt > most {
			spent = append(spent, t)
			continue
		}
		t.m.Deadline = deadline
		l.ms = append(l.ms, t.m)
	}
	if len(spent) > 0 {
		l.moved = true
		err = q.redrive(patient, spent)
	}
	if len(fresh) > 0 && err == nil {
		l.ordered = true
		err = q.order(patient, behind, fresh)
	}
	return err
}

// patience is a context that goes on for the grace when ctx has ended, and ends with lookTimeout.
func patience(ctx context.Context) (context.Context, context.CancelFunc) {
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	stop := context.AfterFunc(ctx, func() {
		late := time.AfterFunc(grace, cancel)
		context.AfterFunc(patient, func() { late.Stop() })
	})
	return patient, func() {
		stop()
		cancel()
	}
}

// reader reads the rows of the answer.
func (l *look) reader() func(pgx.Rows) error {
	var w row
	var due pgtype.Timestamptz
	to := append([]any{&due}, w.targets()...)
	return func(rows pgx.Rows) error {
		if err := rows.Scan(to...); err != nil {
			return err
		}
		m, r := w.message()
		l.rows = append(l.rows, taken{m, instant(due), r})
		return nil
	}
}
