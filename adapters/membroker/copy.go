package membroker

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"

	"github.com/onceq/onceq/broker"
)

// handOut makes the messages their receiver's own, with few allocations for the batch.
func handOut(ms []broker.Message) []*broker.Message {
	if len(ms) == 0 {
		return nil
	}
	bytes, metas := 0, 0
	for i := range ms {
		bytes += shared(ms[i].Body)
		if ms[i].Meta != nil {
			metas++
		}
	}
	a := arena{bytes: make([]byte, 0, bytes), metas: make([]broker.Meta, 0, metas)}
	out := make([]*broker.Message, len(ms))
	for i := range ms {
		m := &ms[i]
		m.Body = a.body(m.Body)
		m.Attributes = maps.Clone(m.Attributes)
		if m.Meta != nil {
			m.Meta = a.meta(m.Meta)
		} else {
			readMeta(m)
		}
		out[i] = m
	}
	return out
}

// readMeta decodes the metadata attribute of a message that came through SendRaw.
func readMeta(m *broker.Message) {
	text, ok := m.Attributes[broker.MetaAttribute]
	if !ok {
		return
	}
	meta, err := broker.DecodeMeta(text)
	if err == nil {
		err = decodeBody(m, meta.BodyEncoding)
	}
	if err != nil {
		m.MetaErr = err
		return
	}
	meta.BodyEncoding = ""
	m.Meta = meta
	delete(m.Attributes, broker.MetaAttribute)
	if len(m.Attributes) == 0 {
		m.Attributes = nil
	}
}

func decodeBody(m *broker.Message, encoding string) error {
	switch encoding {
	case "":
		return nil
	case "base64":
		body, err := base64.StdEncoding.AppendDecode(nil, m.Body)
		if err != nil {
			return fmt.Errorf("%w: body: %w", broker.ErrBadMeta, err)
		}
		m.Body = body
		return nil
	}
	return fmt.Errorf("%w: unknown body encoding %q", broker.ErrBadMeta, encoding)
}

// maxShared is the longest body that shares one allocation with others of its batch, because a
// small neighbour must not keep a longer one alive.
const maxShared = 1 << 10

func shared(body []byte) int {
	if len(body) > maxShared {
		return 0
	}
	return len(body)
}

// arena holds the copies of a batch. Its capacities are those needed, so it never moves.
type arena struct {
	bytes []byte
	metas []broker.Meta
}

func (a *arena) body(body []byte) []byte {
	if len(body) > maxShared {
		return slices.Clone(body)
	}
	from := len(a.bytes)
	a.bytes = append(a.bytes, body...)
	return a.bytes[from:len(a.bytes):len(a.bytes)]
}

// meta is m.Clone() without an allocation for the common case, because a plain copy shares nothing
// but Dead.
func (a *arena) meta(m *broker.Meta) *broker.Meta {
	a.metas = append(a.metas, *m)
	c := &a.metas[len(a.metas)-1]
	if m.Dead != nil {
		c.Dead = m.Clone().Dead
	}
	return c
}
