package pgbroker

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/tablequeue"
)

// row is a message as it is read. One row is used for all of a result: pgx then plans the reading
// once.
type row struct {
	seq        int64
	attempts   int32
	grp        pgtype.Text
	published  pgtype.Timestamptz
	meta       pgtype.Text
	attributes pgtype.Text
	body       []byte
}

// targets are what the columns are read into.
func (w *row) targets() []any {
	return []any{&w.seq, &w.attempts, &w.grp, &w.published, &w.meta, &w.attributes, &w.body}
}

// message is what was read. Its deadline is not known here.
func (w *row) message() (*broker.Message, tablequeue.Receipt) {
	r := tablequeue.Row{
		Seq: w.seq, Attempts: w.attempts, Group: orNull(&w.grp), Published: instant(w.published),
		Meta: orNull(&w.meta), Attributes: orNull(&w.attributes), Body: w.body,
	}
	w.body = nil // it belongs to the message now
	return r.Message()
}

// instant is a time of the table. People write 'infinity' for never, and '-infinity' for at once,
// which Go's times have not.
func instant(at pgtype.Timestamptz) time.Time {
	switch at.InfinityModifier {
	case pgtype.Infinity:
		return tablequeue.EndOfTime
	case pgtype.NegativeInfinity:
		return time.Unix(0, 0).UTC()
	}
	return at.Time.UTC()
}

// orNull is nil for NULL.
func orNull(t *pgtype.Text) *string {
	if !t.Valid {
		return nil
	}
	s := t.String
	return &s
}
