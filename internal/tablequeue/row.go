package tablequeue

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/onceq/onceq/broker"
)

// Row is a message as it was read. A nil pointer is NULL.
type Row struct {
	Seq              int64
	Attempts         int32
	Group            *string
	Published        time.Time
	Meta, Attributes *string
	Body             []byte
}

// Message is what was read, and takes the body. Its deadline is not known here.
func (w *Row) Message() (*broker.Message, Receipt) {
	r := Receipt{Seq: w.Seq, N: w.Attempts, Grouped: w.Group != nil}
	m := &broker.Message{
		ID: strconv.FormatInt(w.Seq, 10), Body: w.Body, Receipt: broker.Receipt(r.String()),
		Attempt: int(w.Attempts), Published: w.Published.UTC(),
	}
	if w.Group != nil {
		m.Group = *w.Group
	}
	if w.Attributes != nil {
		m.Attributes, m.MetaErr = attributesOf(*w.Attributes)
	}
	switch text, beside := m.Attributes[broker.MetaAttribute]; {
	case m.MetaErr != nil:
	case w.Meta != nil:
		if readMeta(m, *w.Meta); m.MetaErr != nil {
			if m.Attributes == nil {
				m.Attributes = make(map[string]string, 1)
			}
			m.Attributes[broker.MetaAttribute] = *w.Meta
		}
	case beside: // a producer that uses no driver has put it there
		if readMeta(m, text); m.MetaErr == nil {
			delete(m.Attributes, broker.MetaAttribute)
			m.Attributes = nonEmpty(m.Attributes)
		}
	}
	return m, r
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
