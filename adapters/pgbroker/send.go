package pgbroker

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/tablequeue"
)

// This file owns what enters the queue: which messages are refused, and how the others become the
// arguments of insertions. Producers call Send from many goroutines; tx.go sends what is packed
// here in the user's transaction. A parcel belongs to one call, so nothing is locked.

// maxBytes of bodies go into one statement; a batch that has more takes several.
const maxBytes = 8 << 20

// Send puts the messages, in one transaction: all that are not refused, or none. Their order in ms
// is their order in the queue. Delay and Meta.NotBefore decide when a message is due, however far
// away that is; a letter and its replay are due at once. DedupID is ignored.
//
// An entry is answered
//
//   - [broker.ErrTooLarge]: a body above [Options].MaxBody, more than 100 attributes with our own,
//     or more than 1 MiB of attributes, or of metadata,
//   - [broker.ErrUnsupported]: a Delay that is not within 0 and 10 years, a Group above 1,024 bytes
//     or with a NUL, or a Group or an attribute that is not UTF-8,
//   - [broker.ErrBadMeta]: both a Meta and an attribute named [broker.MetaAttribute].
//
// [broker.ErrThrottled] means that the server has refused the statement because of others, and
// nothing was put. After any other error that is not by position, all of them may be there, or
// none.
func (q *Queue) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	if len(ms) == 0 {
		return nil, nil
	}
	if err := q.ready(ctx, tablequeue.CallSend, len(ms), tablequeue.SendBatch); err != nil {
		return nil, err
	}
	p := q.pack(ms)
	if len(p.parts) > 0 {
		var b pgx.Batch
		for _, part := range p.parts {
			pgkit.AddQuery(&b, q.sql().insert, part.args, part.read)
		}
		// Without a BEGIN the statements of a batch are one transaction, too.
		if err := pgkit.SendBatch(ctx, ctx, q.db, &b, isBusy); err != nil {
			return nil, q.explain(ctx, tablequeue.CallSend, err)
		}
		if p.grouped {
			q.groups.hint.Store(true)
		}
		q.wakes.Wake()
		q.notify()
	}
	return p.ids, broker.JoinEntries(p.errs)
}

// parcel is a batch on its way into the table.
type parcel struct {
	ids     []string
	errs    []error // nil where none was refused
	parts   []*part
	grouped bool // one of them has a group
}

// part is one statement of a parcel.
type part struct {
	args []any
	at   []int // the entries' places in the batch
	ids  []string
	next int
	seq  int64
	to   []any
}

// read takes the next id; they come in the order of the arrays.
func (p *part) read(rows pgx.Rows) error {
	if err := rows.Scan(p.to...); err != nil {
		return err
	}
	return p.took(p.seq)
}

func (p *part) took(seq int64) error {
	if p.next == len(p.at) {
		return fmt.Errorf("the database answered more than %d rows", len(p.at))
	}
	p.ids[p.at[p.next]] = strconv.FormatInt(seq, 10)
	p.next++
	return nil
}

// pack checks the messages and copies what goes into the statements.
func (q *Queue) pack(ms []broker.Outgoing) *parcel {
	p := &parcel{ids: make([]string, len(ms))}
	size := 0
	var at []int
	var beside []string // attributes, then metadata, of each of at
	flush := func() {
		if len(at) > 0 {
			p.parts = append(p.parts, q.part(ms, at, beside, p.ids))
		}
		size, at, beside = 0, nil, nil
	}
	for i := range ms {
		attributes, meta, err := q.s.Check(&ms[i])
		if err != nil {
			if p.errs == nil {
				p.errs = make([]error, len(ms))
			}
			p.errs[i] = q.wrap(tablequeue.CallSend, err)
			continue
		}
		n := len(ms[i].Body) + len(attributes) + len(meta)
		if size+n > maxBytes {
			flush()
		}
		if at == nil {
			at, beside = make([]int, 0, len(ms)-i), make([]string, 0, 2*(len(ms)-i))
		}
		size += n
		at, beside = append(at, i), append(beside, attributes, meta)
		p.grouped = p.grouped || ms[i].Group != ""
	}
	flush()
	return p
}

func (q *Queue) part(ms []broker.Outgoing, at []int, beside, ids []string) *part {
	bodies, metas := 0, 0
	for n, i := range at {
		bodies += 2*len(ms[i].Body) + 8
		metas += 2*len(beside[2*n+1]) + 8
	}
	var (
		delays, times = newArray(2 * len(at)), newArray(2 * len(at))
		grps, metaTo  = newArray(8 * len(at)), newArray(metas)
		attributes    = newArray(8 * len(at))
		bodyTo        = newArray(bodies)
	)
	for n, i := range at {
		m := &ms[i]
		delays.int(pgkit.Micros(m.Delay))
		at := int64(0) // at once
		if t := tablequeue.NotBefore(m.Meta); !t.IsZero() {
			at = max(0, t.UnixMicro())
		}
		times.int(at)
		grps.blob([]byte(m.Group))
		metaTo.blob([]byte(beside[2*n+1]))
		attributes.blob([]byte(beside[2*n]))
		bodyTo.blob(m.Body)
	}
	p := &part{at: at, ids: ids}
	p.to = []any{&p.seq}
	p.args = []any{blobText(q.name), delays.arg(), times.arg(), grps.arg(), metaTo.arg(), attributes.arg(), bodyTo.arg()}
	return p
}
