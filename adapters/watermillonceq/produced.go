package watermillonceq

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// Produced is what a handler returns, in the form in which the middleware keeps it with the record
// of a key. A handler needs it where it completes its job in a transaction, because what is stored
// there is published at the next delivery:
//
//	err := store.CompleteTx(ctx, tx, watermillonceq.Job(ctx), watermillonceq.Produced(ms))
//
// It keeps UUID, metadata and payload of each message, whatever bytes they hold. Contexts are not
// kept.
type Produced []*message.Message

// kept is a message in JSON. The texts that JSON would change go as bytes.
type kept struct {
	UUID     text      `json:"u,omitzero"`
	Metadata [][2]text `json:"m,omitempty"`
	Payload  []byte    `json:"p,omitempty"`
}

// text is a string in JSON; as an array of one base64 string where it is not UTF-8.
type text string

// MarshalJSON writes the text.
func (t text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal([][]byte{[]byte(t)})
}

// UnmarshalJSON reads it.
func (t *text) UnmarshalJSON(b []byte) error {
	var raw [][]byte
	if len(b) > 0 && b[0] == '[' {
		if err := json.Unmarshal(b, &raw); err != nil {
			return err
		}
		if len(raw) != 1 {
			return fmt.Errorf("watermillonceq: a text of %d parts", len(raw))
		}
		*t = text(raw[0])
		return nil
	}
	return json.Unmarshal(b, (*string)(t))
}

// MarshalJSON is the form that is kept.
func (p Produced) MarshalJSON() ([]byte, error) {
	ks := make([]kept, len(p))
	for i, m := range p {
		if m == nil {
			return nil, fmt.Errorf("watermillonceq: the handler's message %d is nil", i)
		}
		ks[i] = kept{UUID: text(m.UUID), Payload: m.Payload}
		for k, v := range m.Metadata {
			ks[i].Metadata = append(ks[i].Metadata, [2]text{text(k), text(v)})
		}
	}
	return json.Marshal(ks)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *Produced) UnmarshalJSON(b []byte) error {
	var ks []kept
	if err := json.Unmarshal(b, &ks); err != nil {
		return err
	}
	*p = nil
	for _, k := range ks {
		m := message.NewMessage(string(k.UUID), k.Payload)
		for _, pair := range k.Metadata {
			m.Metadata.Set(string(pair[0]), string(pair[1]))
		}
		*p = append(*p, m)
	}
	return nil
}

// withKeys is copies of the messages, each with a key. from is the metadata that the handler got.
// One that passes on its message, or copies of it, has chosen no key: they would all be one job.
// Their contexts may be the job's, which has ended, and the publish is still to come.
func (p Produced) withKeys(k dedupe.Key, from message.Metadata) []*message.Message {
	if len(p) == 0 {
		return nil
	}
	out := make([]*message.Message, len(p))
	for i, m := range p {
		if m == nil {
			continue
		}
		m = m.CopyWithContext()
		m.SetContext(context.WithoutCancel(m.Context()))
		if of := m.Metadata.Get(broker.MetaAttribute); of != "" && of == from.Get(broker.MetaAttribute) {
			delete(m.Metadata, broker.MetaAttribute) // of the job that was received
		}
		if own := m.Metadata.Get(KeyMetadata); own == "" || own == from.Get(KeyMetadata) {
			m.Metadata.Set(KeyMetadata, onceq.EffectKey(k, "produced-"+strconv.Itoa(i)))
		}
		delete(m.Metadata, FenceMetadata)
		out[i] = m
	}
	return out
}
