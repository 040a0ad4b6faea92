package sqlitebroker

import (
	"bytes"
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/sqlitewriter"
	"github.com/onceq/onceq/internal/tablequeue"
)

// This file owns what enters the queue: which messages are refused, and how the others become rows.
// Producers call Send from many goroutines; tx.go puts what is packed here in the user's
// transaction. A parcel belongs to one call, so nothing is locked.

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
// [broker.ErrThrottled] means that others held the file's write lock for longer than the store's
// BusyTimeout, and nothing was put. Within a transaction of your own on the file it always comes to
// that: use [Queue.Tx]. After any other error that is not by position, all of them may be there, or
// none.
func (q *Queue) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	if len(ms) == 0 {
		return nil, nil
	}
	if err := q.ready(ctx, tablequeue.CallSend, len(ms), tablequeue.SendBatch); err != nil {
		return nil, err
	}
	p := q.pack(ms)
	if len(p.rows) > 0 {
		p.own()
		err := q.write(ctx, tablequeue.CallSend, len(p.rows), func(t *sqlitewriter.Txn) error {
			return p.put(t.Now, func(args ...any) (sql.Result, error) { return t.Exec(q.sql.insert, args...) })
		})
		if err != nil {
			return nil, err
		}
		q.wakes.Wake()
	}
	return p.ids, broker.JoinEntries(p.errs)
}

// parcel is a batch on its way into the table.
type parcel struct {
	queue string
	ids   []string
	errs  []error // nil where none was refused
	rows  []outgoing
}

// outgoing is a message that becomes a row.
type outgoing struct {
	at                      int // its place in the batch
	delay                   time.Duration
	notBefore               time.Time
	group, meta, attributes string
	body                    []byte
}

// pack checks the messages.
func (q *Queue) pack(ms []broker.Outgoing) *parcel {
	p := &parcel{queue: q.name, ids: make([]string, len(ms)), rows: make([]outgoing, 0, len(ms))}
	for i := range ms {
		m := &ms[i]
		attributes, meta, err := q.s.Check(m)
		if err != nil {
			if p.errs == nil {
				p.errs = make([]error, len(ms))
			}
			p.errs[i] = q.wrap(tablequeue.CallSend, err)
			continue
		}
		p.rows = append(p.rows, outgoing{i, m.Delay, tablequeue.NotBefore(m.Meta), m.Group, meta, attributes, m.Body})
	}
	return p
}

// own copies what the caller may use again while the transaction still reads it.
func (p *parcel) own() {
	for i := range p.rows {
		p.rows[i].body = bytes.Clone(p.rows[i].body)
	}
}

// put inserts the rows, in their order. Triggers find out who follows whom.
func (p *parcel) put(now time.Time, insert func(args ...any) (sql.Result, error)) error {
	published := sqlitewriter.TimeText(now)
	for i := range p.rows {
		o := &p.rows[i]
		due := now.Add(o.delay)
		if o.notBefore.After(due) {
			due = o.notBefore
		}
		body := o.body
		if body == nil {
			body = []byte{} // nil would be NULL
		}
		res, err := insert(p.queue, sqlitewriter.TimeText(due), orNull(o.group), published, orNull(o.meta), orNull(o.attributes), body)
		if err != nil {
			return err
		}
		seq, err := res.LastInsertId()
		if err != nil {
			return err
		}
		p.ids[o.at] = strconv.FormatInt(seq, 10)
	}
	return nil
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
