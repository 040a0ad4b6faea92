package pubsubpush

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pubsubwire"
)

// This file owns the forms in which a message comes: wrapped in an envelope, unwrapped, and as an
// event of Eventarc. Each request's own goroutine calls read. Nothing is locked: there is no state.

// maxID bounds the id of a message. Pub/Sub's have about 20 bytes.
const maxID = 1024

// A push is what a request brings.
type push struct {
	message      *broker.Message
	subscription string
}

// envelope is what Pub/Sub wraps a message in. It says some of it twice, in both spellings.
type envelope struct {
	Message *struct {
		Data        []byte            `json:"data"`
		Attributes  map[string]string `json:"attributes"`
		MessageID   string            `json:"messageId"`
		OtherID     string            `json:"message_id"`
		PublishTime string            `json:"publishTime"`
		OtherTime   string            `json:"publish_time"`
		OrderingKey string            `json:"orderingKey"`
	} `json:"message"`
	Subscription    string `json:"subscription"`
	DeliveryAttempt int    `json:"deliveryAttempt"`
}

// read reads the message of a request.
func (o *Options) read(w http.ResponseWriter, r *http.Request) (push, *refusal) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, o.MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return push{}, refused(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", o.MaxBody)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return push{}, refused(http.StatusServiceUnavailable, "the body comes too slowly")
	case err != nil:
		no := malformed("the body ends too early")
		no.err = err
		return push{}, no
	}
	var p push
	var no *refusal
	switch event := r.Header.Get(eventType); {
	case r.Header.Get(headerID) != "":
		p, no = o.unwrapped(r.Header, body)
	case event != "" && event != published:
		p, no = o.event(r.Header, body)
	default:
		p, no = wrapped(body)
	}
	switch {
	case no != nil:
		return push{}, no
	case len(p.message.ID) > maxID || !utf8.ValidString(p.message.ID):
		return push{}, malformed("the message's id is longer than %d bytes, or not UTF-8", maxID)
	}
	addEvent(p.message, r.Header)
	return p, nil
}

// wrapped reads an envelope.
func wrapped(body []byte) (push, *refusal) {
	if !utf8.Valid(body) { // JSON would change it
		return push{}, malformed("the body is not UTF-8")
	}
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		no := malformed("the body is no envelope of Pub/Sub")
		no.err = err
		// The error's own text may have a number that the body has, however long.
		if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) {
			no.err = fmt.Errorf("byte %d: %q is of the wrong type", wrong.Offset, wrong.Field)
		}
		return push{}, no
	}
	if e.Message == nil {
		return push{}, malformed("the body has no message")
	}
	id := e.Message.MessageID
	if id == "" {
		id = e.Message.OtherID
	}
	if id == "" {
		return push{}, malformed("the message has no messageId")
	}
	at := e.Message.PublishTime
	if at == "" {
		at = e.Message.OtherTime
	}
	when, no := timeOf(at)
	if no != nil {
		return push{}, no
	}
	m := &broker.Message{ID: id, Group: e.Message.OrderingKey, Attempt: max(0, e.DeliveryAttempt)}
	pubsubwire.Decode(m, e.Message.Data, e.Message.Attributes, when)
	return push{m, e.Subscription}, nil
}

// unwrapped reads a request whose body is the message's data alone.
func (o *Options) unwrapped(header http.Header, body []byte) (push, *refusal) {
	when, no := timeOf(header.Get(headerPublished))
	if no != nil {
		return push{}, no
	}
	m := &broker.Message{ID: header.Get(headerID), Group: header.Get(headerOrderingKey)}
	pubsubwire.Decode(m, body, o.attributes(header), when)
	return push{m, header.Get(headerSubscription)}, nil
}

// attributes are those headers that are attributes of the message: ours, and those that the options
// name.
func (o *Options) attributes(header http.Header) map[string]string {
	as := map[string]string{}
	for name, values := range header {
		name = strings.ToLower(name)
		if len(values) == 0 { // a middleware has emptied it
			continue
		}
		if name == broker.MetaAttribute || strings.HasPrefix(name, broker.MetaAttribute+".") {
			as[name] = values[0]
		}
	}
	for _, name := range o.Attributes {
		if values := header.Values(name); len(values) > 0 {
			as[name] = values[0]
		}
	}
	return as
}

// event reads an event of another service, which Eventarc delivers through a topic of its own. Its
// body is the event's data.
func (o *Options) event(header http.Header, body []byte) (push, *refusal) {
	id := header.Get(eventID)
	if id == "" {
		return push{}, malformed("the event has no ce-id")
	}
	when, no := timeOf(header.Get(eventTime))
	if no != nil {
		return push{}, no
	}
	return push{message: &broker.Message{ID: id, Body: body, Published: when}}, nil
}

// addEvent adds what Eventarc says of an event. A publisher's attributes of these names are none.
func addEvent(m *broker.Message, header http.Header) {
	if header.Get(eventType) == "" {
		return
	}
	for name, values := range header {
		name = strings.ToLower(name)
		if len(values) == 0 || !strings.HasPrefix(name, eventPrefix) || !utf8.ValidString(values[0]) {
			continue
		}
		if m.Attributes == nil {
			m.Attributes = map[string]string{}
		}
		m.Attributes[name] = values[0]
	}
}

// timeOf reads a time; zero where there is none.
func timeOf(text string) (time.Time, *refusal) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, malformed("the time of the message is none")
	}
	return at, nil
}
