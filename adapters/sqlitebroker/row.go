package sqlitebroker

import (
	"database/sql"
	"math"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/tablequeue"
)

// row is a message as it is read.
type row struct {
	seq              int64
	attempts         int64
	grp              sql.NullString
	published        string
	meta, attributes sql.NullString
	body             []byte
}

// targets are what the columns are read into.
func (w *row) targets() []any {
	return []any{&w.seq, &w.attempts, &w.grp, &w.published, &w.meta, &w.attributes, &w.body}
}

// message is what was read. Its deadline is not known here.
func (w *row) message() (*broker.Message, tablequeue.Receipt) {
	r := tablequeue.Row{
		Seq: w.seq, Attempts: attemptsOf(w.attempts), Group: text(&w.grp), Published: parseTime(w.published),
		Meta: text(&w.meta), Attributes: text(&w.attributes), Body: w.body,
	}
	w.body = nil // it belongs to the message now
	return r.Message()
}

// attemptsOf is the number of deliveries; a number that somebody wrote by hand, and that counts
// nothing, is none.
func attemptsOf(n int64) int32 {
	if n < 0 || n > math.MaxInt32 {
		return 0
	}
	return int32(n)
}

// nextAttempt is what the statement that takes a row makes of its number.
func nextAttempt(n int64) int64 {
	if n < 0 || n >= math.MaxInt32 {
		return 1
	}
	return n + 1
}

// text is nil for NULL.
func text(s *sql.NullString) *string {
	if !s.Valid {
		return nil
	}
	t := s.String
	return &t
}

// parseTime is zero for what is no time, because a row that somebody wrote by hand must not keep
// the others waiting.
func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
