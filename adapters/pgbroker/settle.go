package pgbroker

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/tablequeue"
)

// This file owns acks, nacks and extensions, and the receipts that they name. A worker's calls come
// from many goroutines; a settling belongs to one call, so nothing is locked here.

// Ack removes the messages. An ack is late only when the message was delivered again, or given
// back: then it answers [broker.ErrReceiptExpired] and changes nothing. So does an ack that is
// repeated.
//
// An entry is answered [broker.ErrThrottled] where somebody holds its row, or that of the next
// message of its group: nothing has happened then.
func (q *Queue) Ack(ctx context.Context, rs []broker.Receipt) error {
	s := settling{call: tablequeue.CallAck, Settling: tablequeue.Acks(rs, q.wrapper(tablequeue.CallAck))}
	return q.settle(ctx, &s, &q.sql().ack, &q.sql().ackGrouped)
}

// Nack gives the messages back after their delay, 0 to Limits.MaxNack. A message of a group stays
// the head of its group, which waits for it. The receipt is void afterwards.
func (q *Queue) Nack(ctx context.Context, hs []broker.Hold) error {
	err := q.hold(ctx, tablequeue.CallNack, hs, tablequeue.Nacks(hs, q.wrapper(tablequeue.CallNack)), &q.sql().nack)
	if err == nil && slices.ContainsFunc(hs, func(h broker.Hold) bool { return h.For == 0 }) {
		q.wakes.Wake()
	}
	return err
}

// Extend hides the messages for their time from now, 100 ms to 12 h, as often as the caller likes.
// The time may be shorter than what was left. An extension that comes after the deadline answers
// [broker.ErrReceiptExpired] and changes nothing.
func (q *Queue) Extend(ctx context.Context, hs []broker.Hold) error {
	return q.hold(ctx, tablequeue.CallExtend, hs, tablequeue.Extensions(hs, q.wrapper(tablequeue.CallExtend)), &q.sql().extend)
}

func (q *Queue) hold(ctx context.Context, call string, hs []broker.Hold, of tablequeue.Settling, sql *settlement) error {
	s := settling{call: call, Settling: of, last: func(of []tablequeue.Entry) any {
		ds := newArray(12 * len(of))
		for _, e := range of {
			ds.int(pgkit.Micros(hs[e.I].For))
		}
		return ds.arg()
	}}
	return q.settle(ctx, &s, sql, nil)
}

// wrapper is wrap for a call.
func (q *Queue) wrapper(call string) func(error) error {
	return func(err error) error { return q.wrap(call, err) }
}

// settling is one call.
type settling struct {
	tablequeue.Settling
	call string
	last func(of []tablequeue.Entry) any // the statement's last argument; nil = there is none
}

// portion is what one transaction settles.
type portion struct {
	es      []tablequeue.Entry
	args    []any
	applied []bool
	done    bool // its COMMIT was answered
}

// split takes the first portion: it names no row twice, because a receipt's place is found by the
// row's number, and no more rows of groups than a transaction may lock.
func split(es []tablequeue.Entry, ofGroups bool) (first, rest []tablequeue.Entry) {
	locks := 0
	first = es[:0] // written where es was read already
	for _, e := range es {
		twin := len(first) > 0 && first[len(first)-1].Seq == e.Seq
		locked := ofGroups && e.Grouped
		if twin || locked && locks == maxLocks {
			rest = append(rest, e)
			continue
		}
		if locked {
			locks++
		}
		first = append(first, e)
	}
	return first, rest
}

// settle runs the statement: that for groups where a receipt has one and there is such a statement.
func (q *Queue) settle(ctx context.Context, s *settling, plain, grouped *settlement, more ...any) error {
	if s.N == 0 {
		return nil
	}
	if err := q.ready(ctx, s.call, s.N, tablequeue.SettleBatch); err != nil {
		return err
	}
	es := s.Entries()
	if len(es) == 0 {
		return s.Answer()
	}
	sql := plain
	ofGroups := grouped != nil && slices.ContainsFunc(es, func(e tablequeue.Entry) bool { return e.Grouped })
	if ofGroups {
		sql = grouped
	}
	ps := make([]portion, 0, 1) // mostly it is one
	for first, rest := split(es, ofGroups); len(first) > 0; first, rest = split(rest, ofGroups) {
		ps = append(ps, portion{es: first, args: s.args(q.name, first, more), applied: make([]bool, len(first))})
	}
	err := q.settlePortions(ctx, ps, ofGroups, settleTimeout, sql.waits)
	if pgkit.State(err) == pgkit.LockNotAvailable && ctx.Err() == nil {
		err = q.settlePortions(ctx, ps, ofGroups, lockTimeout, sql.skips)
	}
	if err = q.explain(ctx, s.call, err); err != nil && !ps[0].done {
		return err
	}
	if ofGroups {
		q.wakes.Wake() // the next of a group is there
	}
	for _, p := range ps {
		switch {
		case !p.done:
			for _, e := range p.es {
				s.Fail(e.I, err)
			}
		case slices.Contains(p.applied, false):
			q.leftOut(ctx, s, p.es, p.applied, p.args[:3])
		}
	}
	return s.Answer()
}

// args are the statement's for these entries.
func (s *settling) args(queue string, es []tablequeue.Entry, more []any) []any {
	seqs, ns := newArray(12*len(es)), newArray(3*len(es))
	for _, e := range es {
		seqs.int(e.Seq)
		ns.int(int64(e.N))
	}
	args := append(make([]any, 0, 4), queue, seqs.arg(), ns.arg())
	if s.last != nil {
		args = append(args, s.last(es))
	}
	return append(args, more...)
}

// settlePortions settles those that are not done, together in one round trip, each in a transaction
// of its own.
func (q *Queue) settlePortions(ctx context.Context, ps []portion, ofGroups bool, timeout, sql string) error {
	left := ps
	for len(left) > 0 && left[0].done {
		left = left[1:]
	}
	p := newPipelineWith(timeout)
	for i := range left {
		if i > 0 {
			p.Another()
		}
		l := &left[i]
		if ofGroups {
			p.Exec(q.sql().lockGiven, q.name, l.args[1])
		}
		clear(l.applied)
		p.Query(sql, l.args, positions(l.applied))
	}
	err := p.Run(ctx, q.db)
	for i := range p.Committed {
		left[i].done = true
	}
	return err
}

// positions notes the entries that a statement answers, from 1.
func positions(of []bool) func(pgx.Rows) error {
	var ord int64
	to := []any{&ord}
	return func(rows pgx.Rows) error {
		if err := rows.Scan(to...); err != nil {
			return err
		}
		if ord < 1 || ord > int64(len(of)) {
			return errors.New("the database answered for an entry that was not asked for")
		}
		of[ord-1] = true
		return nil
	}
}

// leftOut answers the entries that the statement did not apply. Where the receipt still names its
// row, somebody holds it.
func (q *Queue) leftOut(ctx context.Context, s *settling, es []tablequeue.Entry, applied []bool, args []any) {
	there := make([]bool, len(es))
	p := newPipeline()
	p.Query(q.sql().still, args, positions(there))
	err := q.explain(ctx, s.call, p.Run(ctx, q.db))
	for n, e := range es {
		switch {
		case applied[n]:
		case err != nil:
			s.Fail(e.I, err)
		case there[n] && s.call != tablequeue.CallExtend:
			s.Fail(e.I, errHeld)
		case there[n]: // its deadline has passed, or somebody holds it; only time tells
			s.Fail(e.I, broker.ErrReceiptExpired)
		default:
			s.Fail(e.I, broker.ErrReceiptExpired)
		}
	}
}

var errHeld = &heldError{}

// heldError is the answer where another transaction holds the row.
type heldError struct{}

func (*heldError) Error() string {
	return broker.ErrThrottled.Error() + ": another transaction holds the message's row, or that of the next one of its group"
}

func (*heldError) Unwrap() error { return broker.ErrThrottled }
