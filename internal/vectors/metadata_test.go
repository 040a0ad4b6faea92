package vectors

import (
	"errors"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
)

// written is metadata, and the text as which it travels.
type written struct {
	Name string `json:"name"`
	Meta meta   `json:"meta"`
	Text string `json:"text"`
}

// meta has the names of the page, and every number in a unit of its own.
type meta struct {
	ID            string  `json:"id,omitempty"`
	Type          string  `json:"type,omitempty"`
	Key           string  `json:"key,omitempty"`
	CorrelationID string  `json:"correlation_id,omitempty"`
	CreatedMS     int64   `json:"created_ms,omitempty"`
	NotBeforeMS   int64   `json:"not_before_ms,omitempty"`
	PostponedMS   int64   `json:"postponed_ms,omitempty"`
	ExpiresMS     int64   `json:"expires_ms,omitempty"`
	MaxAttempts   int     `json:"max_attempts,omitempty"`
	TimeoutMS     int64   `json:"timeout_ms,omitempty"`
	BodyEncoding  string  `json:"body_encoding,omitempty"`
	Dead          *letter `json:"dead,omitempty"`
}

type letter struct {
	Fence      uint64            `json:"fence,omitempty"`
	Class      string            `json:"class,omitempty"`
	FirstErr   string            `json:"first_error,omitempty"`
	LastErr    string            `json:"last_error,omitempty"`
	Attempts   int               `json:"attempts,omitempty"`
	Saved      string            `json:"saved,omitempty"`
	Source     string            `json:"source,omitempty"`
	Scope      string            `json:"scope,omitempty"`
	Key        string            `json:"key,omitempty"`
	AtMS       int64             `json:"at_ms,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Signature  string            `json:"signature,omitempty"`
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func metaOf(m *broker.Meta) meta {
	out := meta{
		ID: m.ID, Type: m.Type, Key: m.Key, CorrelationID: m.CorrelationID,
		CreatedMS: millis(m.Created), NotBeforeMS: millis(m.NotBefore), PostponedMS: millis(m.Postponed), ExpiresMS: millis(m.Expires),
		MaxAttempts: m.MaxAttempts, TimeoutMS: m.Timeout.Milliseconds(), BodyEncoding: m.BodyEncoding,
	}
	if d := m.Dead; d != nil {
		out.Dead = &letter{
			Fence: d.Fence, Class: d.Class, FirstErr: d.FirstErr, LastErr: d.LastErr, Attempts: d.Attempts, Saved: d.Saved,
			Source: d.Source, Scope: d.Scope, Key: d.Key, AtMS: millis(d.At), Attributes: d.Attributes, Signature: d.Signature,
		}
	}
	return out
}

// dead is a letter as a worker puts it.
func dead() *broker.Letter {
	return &broker.Letter{
		Fence: 41, Class: "permanent", FirstErr: "card expired", LastErr: "card expired", Attempts: 1,
		Source: "https://sqs.eu-central-1.amazonaws.com/1/orders", Scope: "orders", Key: "order-7", At: at,
	}
}

func TestMetadataWritten(t *testing.T) {
	folded := dead()
	folded.Attributes, folded.Saved, folded.Signature = map[string]string{"tenant": "acme", "source": "shop"}, "charge", "c2ln"
	other := dead()
	other.Key = "order-8"
	all := []written{
		{Name: "the least that gives a job a key of its own", Meta: metaOf(&broker.Meta{Key: "order-7"})},
		{Name: "an id is the key where there is no key", Meta: metaOf(&broker.Meta{ID: "0190e1b2"})},
		{Name: "what onceq.Send writes", Meta: metaOf(&broker.Meta{ID: "0190e1b2", Type: "charge", Key: "order-7", CorrelationID: "request-9", Created: at})},
		{Name: "every member of a job", Meta: metaOf(&broker.Meta{
			ID: "0190e1b2", Type: "charge", Key: "order-7", CorrelationID: "request-9", Created: at, NotBefore: at.Add(time.Hour),
			Postponed: at.Add(2 * time.Hour), Expires: at.Add(24 * time.Hour), MaxAttempts: 5, Timeout: 1500 * time.Millisecond, BodyEncoding: "base64",
		})},
		{Name: "never retried", Meta: metaOf(&broker.Meta{Key: "order-7", MaxAttempts: 1})},
		{Name: "retried without end", Meta: metaOf(&broker.Meta{Key: "order-7", MaxAttempts: -1})},
		{Name: "quotes, controls and lines are escaped", Meta: metaOf(&broker.Meta{Key: "a\"b\\c\n\r\t\x01\x7f"})},
		{Name: "letters of all languages are not", Meta: metaOf(&broker.Meta{Key: "größe 東京 🎉"})},
		{Name: "what XML 1.0 cannot carry is escaped", Meta: metaOf(&broker.Meta{Key: "\u0085\uffff"})},
		{Name: "a dead letter, whose key is the job's", Meta: metaOf(&broker.Meta{ID: "0190e1b2", Key: "order-7", Created: at, Dead: dead()})},
		{Name: "a dead letter of a record under another key", Meta: metaOf(&broker.Meta{ID: "0190e1b2", Key: "order-7", Created: at, Dead: other})},
		{Name: "a dead letter with the user's attributes folded in", Meta: metaOf(&broker.Meta{ID: "0190e1b2", Key: "order-7", Created: at, Dead: folded})},
	}
	for i := range all {
		m := &all[i].Meta
		all[i].Text = broker.EncodeMeta(m.broker())
		back, err := broker.DecodeMeta(all[i].Text)
		if err != nil || broker.EncodeMeta(back) != all[i].Text {
			t.Errorf("%s: %s is read as %v, %v", all[i].Name, all[i].Text, back, err)
		}
	}
	hold(t, "metadata.json", all)
}

// broker is m as the code has it.
func (m *meta) broker() *broker.Meta {
	out := &broker.Meta{
		ID: m.ID, Type: m.Type, Key: m.Key, CorrelationID: m.CorrelationID,
		Created: moment(m.CreatedMS), NotBefore: moment(m.NotBeforeMS), Postponed: moment(m.PostponedMS), Expires: moment(m.ExpiresMS),
		MaxAttempts: m.MaxAttempts, Timeout: time.Duration(m.TimeoutMS) * time.Millisecond, BodyEncoding: m.BodyEncoding,
	}
	if d := m.Dead; d != nil {
		out.Dead = &broker.Letter{
			Fence: d.Fence, Class: d.Class, FirstErr: d.FirstErr, LastErr: d.LastErr, Attempts: d.Attempts, Saved: d.Saved,
			Source: d.Source, Scope: d.Scope, Key: d.Key, At: moment(d.AtMS), Attributes: d.Attributes, Signature: d.Signature,
		}
	}
	return out
}

func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// read is a text that another program may have written, and the text as which a reader sends it on.
type read struct {
	Name    string `json:"name"`
	Text    string `json:"text"`
	Written string `json:"written,omitempty"`
	Refused bool   `json:"refused,omitempty"`
}

func TestMetadataRead(t *testing.T) {
	all := []read{
		{Name: "the least", Text: `{"v":1}`},
		{Name: "any spacing and any order", Text: "{ \"k\" : \"order-7\",\n\t\"v\" : 1 }"},
		{Name: "null is absent", Text: `{"v":1,"k":null,"cr":null,"dead":null}`},
		{Name: "an empty text is absent", Text: `{"v":1,"k":"","t":""}`},
		{Name: "any escape", Text: `{"v":1,"k":"\u006f\u0072der\/7 \ud83c\udf89"}`},
		{Name: "an unknown member is kept", Text: `{"v":1,"k":"order-7","tenant":{"id":[1,2.5e3,null]}}`},
		{Name: "a newer version is read, and kept", Text: `{"v":3,"k":"order-7","new":true}`},
		{Name: "an unknown member of a letter is kept", Text: `{"v":1,"k":"order-7","dead":{"f":41,"x":"y"}}`},
		{Name: "the largest fence", Text: `{"v":1,"dead":{"f":18446744073709551615}}`},
		{Name: "no version", Text: `{"k":"order-7"}`, Refused: true},
		{Name: "version 0", Text: `{"v":0}`, Refused: true},
		{Name: "a member given twice", Text: `{"v":1,"k":"a","k":"b"}`, Refused: true},
		{Name: "a number for a text", Text: `{"v":1,"k":7}`, Refused: true},
		{Name: "a text for a number", Text: `{"v":1,"cr":"2026-01-02"}`, Refused: true},
		{Name: "a fraction", Text: `{"v":1,"cr":1.5}`, Refused: true},
		{Name: "an exponent", Text: `{"v":1,"cr":1e3}`, Refused: true},
		{Name: "a time beyond the year 9999", Text: `{"v":1,"cr":253402300800000}`, Refused: true},
		{Name: "a timeout below zero", Text: `{"v":1,"to":-1}`, Refused: true},
		{Name: "a fence above 64 bits", Text: `{"v":1,"dead":{"f":18446744073709551616}}`, Refused: true},
		{Name: "text behind the object", Text: `{"v":1} x`, Refused: true},
		{Name: "a list", Text: `[1]`, Refused: true},
		{Name: "nothing", Text: ``, Refused: true},
	}
	for i := range all {
		r := &all[i]
		m, err := broker.DecodeMeta(r.Text)
		if r.Refused != errors.Is(err, broker.ErrBadMeta) || !r.Refused && err != nil {
			t.Errorf("%s: %s is answered %v", r.Name, r.Text, err)
		}
		if err == nil {
			r.Written = broker.EncodeMeta(m)
		}
	}
	hold(t, "metadata-read.json", all)
}
