package pgbroker

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/onceq/onceq/broker"
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
func (w *row) message() (*broker.Message, receipt) {
	r := receipt{w.seq, w.attempts, w.grp.Valid}
	m := &broker.Message{
		ID: strconv.FormatInt(w.seq, 10), Body: w.body, Receipt: broker.Receipt(r.String()),
		Attempt: int(w.attempts), Group: w.grp.String, Published: instant(w.published),
	}
	w.body = nil // it belongs to m now
	if w.attributes.Valid {
		m.Attributes, m.MetaErr = attributesOf(w.attributes.String)
	}
	switch text, beside := m.Attributes[broker.MetaAttribute]; {
	case m.MetaErr != nil:
	case w.meta.Valid:
		if readMeta(m, w.meta.String); m.MetaErr != nil {
			if m.Attributes == nil {
				m.Attributes = make(map[string]string, 1)
			}
			m.Attributes[broker.MetaAttribute] = w.meta.String
		}
	case beside: // a producer that uses no driver has put it there
		if readMeta(m, text); m.MetaErr == nil {
			delete(m.Attributes, broker.MetaAttribute)
			m.Attributes = nonEmpty(m.Attributes)
		}
	}
	return m, r
}

// endOfTime is where the calendar of JSON, and of most programs, ends.
var endOfTime = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// instant is a time of the table. People write 'infinity' for never, and '-infinity' for at once,
// which Go's times have not.
func instant(at pgtype.Timestamptz) time.Time {
	switch at.InfinityModifier {
	case pgtype.Infinity:
		return endOfTime
	case pgtype.NegativeInfinity:
		return time.Unix(0, 0).UTC()
	}
	return at.Time.UTC()
}

// attributesOf reads an object. A producer of plain SQL may have put other values than texts, which
// are their JSON then.
func attributesOf(text string) (map[string]string, error) {
	var as map[string]string
	if err := json.Unmarshal([]byte(text), &as); err == nil {
		return nonEmpty(as), nil
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return nil, fmt.Errorf("%w: the column attributes holds no object of JSON: %w", broker.ErrBadMeta, err)
	}
	as = make(map[string]string, len(raw))
	for name, v := range raw {
		var s string
		if json.Unmarshal(v, &s) != nil {
			s = string(v)
		}
		as[name] = s
	}
	return nonEmpty(as), nil
}

func nonEmpty(as map[string]string) map[string]string {
	if len(as) == 0 {
		return nil
	}
	return as
}

// readMeta decodes metadata, and undoes the encoding of the body that another service's driver
// needed, where a message was copied here as it was. After an error the message is as it came.
func readMeta(m *broker.Message, text string) {
	meta, err := broker.DecodeMeta(text)
	body := m.Body
	if err == nil {
		switch meta.BodyEncoding {
		case "":
		case "base64":
			if body, err = base64.StdEncoding.AppendDecode(nil, m.Body); err != nil {
				err = fmt.Errorf("%w: body: %w", broker.ErrBadMeta, err)
			}
		default:
			err = fmt.Errorf("%w: unknown body encoding %q", broker.ErrBadMeta, meta.BodyEncoding)
		}
	}
	if err != nil {
		m.MetaErr = err
		return
	}
	meta.BodyEncoding = ""
	m.Meta, m.Body = meta, body
}
