package pgbroker

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/broker"
)

// This file owns acks, nacks and extensions, and the receipts that they name. A worker's calls come
// from many goroutines; a settling belongs to one call, so nothing is locked here.

// receipt names one delivery: the row and its count of deliveries, which is new in each. It also
// says whether the row has a group, because then its end changes who is the group's head.
type receipt struct {
	seq     int64
	n       int32
	grouped bool
}

const groupMark = "g"

func (r receipt) String() string {
	var room [36]byte
	b := append(strconv.AppendInt(room[:0], r.seq, 10), '.')
	b = strconv.AppendInt(b, int64(r.n), 10)
	if r.grouped {
		b = append(b, groupMark...)
	}
	return string(b)
}

// parseReceipt reads what String has written, and nothing else.
func parseReceipt(r broker.Receipt) (receipt, bool) {
	text, grouped := strings.CutSuffix(string(r), groupMark)
	before, after, ok := strings.Cut(text, ".")
	seq, err1 := strconv.ParseInt(before, 10, 64)
	n, err2 := strconv.ParseInt(after, 10, 32)
	p := receipt{seq, int32(n), grouped}
	return p, ok && err1 == nil && err2 == nil && p.String() == string(r)
}

// Ack removes the messages. An ack is late only when the message was delivered again, or given
// back: then it answers [broker.ErrReceiptExpired] and changes nothing. So does an ack that is
// repeated.
//
// An entry is answered [broker.ErrThrottled] where somebody holds its row, or that of the next
// message of its group: nothing has happened then.
func (q *Queue) Ack(ctx context.Context, rs []broker.Receipt) error {
	s := settling{call: callAck, n: len(rs), receipt: func(i int) broker.Receipt { return rs[i] }}
	return q.settle(ctx, &s, &q.sql().ack, &q.sql().ackGrouped)
}

// Nack gives the messages back after their delay, 0 to Limits.MaxNack. A message of a group stays
// the head of its group, which waits for it. The receipt is void afterwards.
func (q *Queue) Nack(ctx context.Context, hs []broker.Hold) error {
	err := q.hold(ctx, callNack, hs, 0, longest, &q.sql().nack)
	if err == nil && slices.ContainsFunc(hs, func(h broker.Hold) bool { return h.For == 0 }) {
		q.wakes.wake()
	}
	return err
}

// Extend hides the messages for their time from now, 100 ms to 12 h, as often as the caller likes.
// The time may be shorter than what was left. An extension that comes after the deadline answers
// [broker.ErrReceiptExpired] and changes nothing.
func (q *Queue) Extend(ctx context.Context, hs []broker.Hold) error {
	return q.hold(ctx, callExtend, hs, minHold, maxHold, &q.sql().extend)
}

func (q *Queue) hold(ctx context.Context, call string, hs []broker.Hold, least, most time.Duration, sql *settlement) error {
	s := settling{
		call: call, n: len(hs), receipt: func(i int) broker.Receipt { return hs[i].Receipt },
		refuse: func(i int) error {
			if d := hs[i].For; d < least || d > most {
				return unsupported("%v; it is within %v and %v", d, least, most)
			}
			return nil
		},
		last: func(of []entry) any {
			ds := newArray(12 * len(of))
			for _, e := range of {
				ds.int(micros(hs[e.i].For))
			}
			return ds.arg()
		},
	}
	return q.settle(ctx, &s, sql, nil)
}

// settling is one call: its receipts, and what it knows of each.
type settling struct {
	call    string
	n       int
	receipt func(i int) broker.Receipt
	refuse  func(i int) error    // nil = nothing is refused
	last    func(of []entry) any // the statement's last argument; nil = there is none
	errs    []error
	twins   []entry // whose receipt stands in the batch before, at seq
}

// entry is a receipt and its place in the batch.
type entry struct {
	receipt
	i int
}

func (s *settling) fail(q *Queue, i int, err error) {
	if s.errs == nil {
		s.errs = make([]error, s.n)
	}
	s.errs[i] = q.wrap(s.call, err)
}

// entries are the receipts that may name a row, in order, each once.
func (s *settling) entries(q *Queue) (es []entry, grouped bool) {
	es = make([]entry, 0, s.n)
	for i := range s.n {
		if s.refuse != nil {
			if err := s.refuse(i); err != nil {
				s.fail(q, i, err)
				continue
			}
		}
		r, ok := parseReceipt(s.receipt(i))
		if !ok {
			s.fail(q, i, broker.ErrReceiptExpired)
			continue
		}
		es = append(es, entry{r, i})
		grouped = grouped || r.grouped
	}
	slices.SortStableFunc(es, func(a, b entry) int {
		if a.seq != b.seq {
			return int(max(-1, min(1, a.seq-b.seq)))
		}
		return int(a.n) - int(b.n)
	})
	return slices.CompactFunc(es, func(first, again entry) bool {
		same := first.receipt == again.receipt
		if same {
			s.twins = append(s.twins, entry{receipt{seq: int64(first.i)}, again.i})
		}
		return same
	}), grouped
}

// settle runs the statement: that for groups where a receipt has one and there is such a statement.
func (q *Queue) settle(ctx context.Context, s *settling, plain, grouped *settlement, more ...any) error {
	if s.n == 0 {
		return nil
	}
	if err := q.ready(ctx, s.call, s.n, settleBatch); err != nil {
		return err
	}
	es, ofGroups := s.entries(q)
	if len(es) == 0 {
		return broker.Batch(s.errs)
	}
	seqs, ns := newArray(12*len(es)), newArray(3*len(es))
	for _, e := range es {
		seqs.int(e.seq)
		ns.int(int64(e.n))
	}
	args := []any{q.name, seqs.arg(), ns.arg()}
	if s.last != nil {
		args = append(args, s.last(es))
	}
	args = append(args, more...)
	sql := plain
	if ofGroups = ofGroups && grouped != nil; ofGroups {
		sql = grouped
	}
	applied := make([]bool, len(es))
	run := func(timeout, sql string) error {
		p := newPipelineWith(timeout)
		if ofGroups {
			p.exec(q.sql().lockGiven, q.name, args[1])
		}
		clear(applied)
		p.query(sql, args, positions(applied))
		return p.run(ctx, q.db)
	}
	err := run(settleTimeout, sql.waits)
	if sqlState(err) == lockNotAvailable && ctx.Err() == nil {
		err = run(lockTimeout, sql.skips)
	}
	if err != nil {
		return q.explain(ctx, s.call, err)
	}
	if ofGroups {
		q.wakes.wake() // the next of a group is there
	}
	if slices.Contains(applied, false) {
		q.leftOut(ctx, s, es, applied, args[:3])
	}
	for _, t := range s.twins {
		if s.errs != nil {
			s.errs[t.i] = s.errs[t.seq]
		}
	}
	return broker.Batch(s.errs)
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
func (q *Queue) leftOut(ctx context.Context, s *settling, es []entry, applied []bool, args []any) {
	there := make([]bool, len(es))
	p := newPipeline()
	p.query(q.sql().still, args, positions(there))
	err := q.explain(ctx, s.call, p.run(ctx, q.db))
	for n, e := range es {
		switch {
		case applied[n]:
		case err != nil:
			s.fail(q, e.i, err)
		case there[n] && s.call != callExtend:
			s.fail(q, e.i, errHeld)
		case there[n]: // its deadline has passed, or somebody holds it; only time tells
			s.fail(q, e.i, broker.ErrReceiptExpired)
		default:
			s.fail(q, e.i, broker.ErrReceiptExpired)
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
