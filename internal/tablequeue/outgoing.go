package tablequeue

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/broker"
)

// Check refuses what the table cannot hold, and answers the texts of attributes and metadata; empty
// = none.
func (s *Settings) Check(o *broker.Outgoing) (attributes, meta string, err error) {
	switch {
	case o.Delay < 0 || o.Delay > Longest:
		return "", "", Unsupported("a Delay of %v; it is within 0 and %v", o.Delay, Longest)
	case len(o.Body) > s.MaxBody:
		return "", "", fmt.Errorf("%w: a body of %d bytes; Options.MaxBody is %d", broker.ErrTooLarge, len(o.Body), s.MaxBody)
	case len(o.Group) > maxGroup:
		return "", "", Unsupported("a Group of %d bytes; it has at most %d", len(o.Group), maxGroup)
	}
	if why := notText(o.Group); why != "" {
		return "", "", Unsupported("Group %.100q has %s, which %s's text cannot hold", o.Group, why, s.Database)
	}
	if attributes, err = textOf(o); err != nil {
		return "", "", err
	}
	if meta = broker.EncodeMeta(o.Meta); len(meta) > maxBeside {
		return "", "", fmt.Errorf("%w: metadata of %d bytes; at most %d", broker.ErrTooLarge, len(meta), maxBeside)
	}
	return attributes, meta, nil
}

// textOf is the JSON of the attributes, in which a NUL is an escape, which a column of text keeps.
func textOf(o *broker.Outgoing) (string, error) {
	n := len(o.Attributes)
	if n == 0 {
		return "", nil
	}
	if o.Meta != nil {
		n++
		if _, ok := o.Attributes[broker.MetaAttribute]; ok {
			return "", fmt.Errorf("%w: attribute %q is ours; the message has a Meta as well", broker.ErrBadMeta, broker.MetaAttribute)
		}
	}
	if n > maxAttributes {
		return "", fmt.Errorf("%w: %d attributes, with our own; at most %d", broker.ErrTooLarge, n, maxAttributes)
	}
	size := 0
	for name, value := range o.Attributes {
		if !utf8.ValidString(name) {
			return "", Unsupported("the attribute's name %.100q has bytes that are not UTF-8", name)
		}
		if !utf8.ValidString(value) {
			return "", Unsupported("attribute %.100q has bytes that are not UTF-8", name)
		}
		size += len(name) + len(value)
	}
	if size > maxBeside {
		return "", fmt.Errorf("%w: attributes of %d bytes; at most %d", broker.ErrTooLarge, size, maxBeside)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // people read it
	if err := e.Encode(o.Attributes); err != nil {
		return "", Unsupported("the attributes cannot be written: %v", err)
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// EndOfTime is where the calendar of JSON, and of most programs, ends.
var EndOfTime = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// NotBefore is when the job may start, within the years that a database writes with four digits;
// zero = at once. A letter is for people, who need not wait.
func NotBefore(m *broker.Meta) time.Time {
	if m == nil || m.Dead != nil || m.NotBefore.IsZero() {
		return time.Time{}
	}
	if m.NotBefore.After(EndOfTime) {
		return EndOfTime
	}
	return m.NotBefore
}
