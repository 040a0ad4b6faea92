// Package sqswire has how what SQS cannot carry as it is travels through it, and how it is read
// again: by whoever receives, and by a function that Lambda calls.
package sqswire

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"time"

	"github.com/onceq/onceq/broker"
)

// The types of an attribute: a custom label behind the type, which SQS allows and keeps.
const (
	TypeString = "String"
	TypeEmpty  = "String.onceq-empty" // SQS takes no empty value
	TypeBytes  = "Binary.onceq-text"  // a text that is not XML characters
	EmptyValue = "-"
)

// Encoding marks a body in Meta.BodyEncoding. An empty body, which SQS takes neither, is one line
// break, which base64 passes over.
const (
	Encoding  = "base64"
	EmptyBody = "\n"
)

// ReadSystem reads the attributes that SQS itself gives a message.
func ReadSystem(m *broker.Message, as map[string]string) {
	m.Attempt, _ = strconv.Atoi(as["ApproximateReceiveCount"])
	if ms, err := strconv.ParseInt(as["SentTimestamp"], 10, 64); err == nil {
		m.Published = time.UnixMilli(ms)
	}
}

// Value is what an attribute says.
func Value(typ string, text *string, raw []byte) string {
	switch {
	case typ == TypeEmpty:
		return ""
	case text != nil:
		return *text
	}
	return string(raw)
}

// ReadMeta reads our attribute, and takes the body out of its encoding. What cannot be read is put
// among the user's, as it came.
func ReadMeta(m *broker.Message, text string) {
	meta, err := broker.DecodeMeta(text)
	if err == nil {
		err = decodeBody(m, meta.BodyEncoding)
	}
	switch {
	case err != nil:
		m.MetaErr = err
		if m.Attributes == nil {
			m.Attributes = make(map[string]string, 1)
		}
		m.Attributes[broker.MetaAttribute] = text
	case text == markOnly:
		// The message was sent without metadata; the mark came with its body.
	default:
		meta.BodyEncoding = ""
		m.Meta = meta
	}
}

// markOnly is the metadata of a message that has none and whose body is encoded.
var markOnly = broker.EncodeMeta(&broker.Meta{BodyEncoding: Encoding})

func decodeBody(m *broker.Message, enc string) error {
	switch enc {
	case "":
		return nil
	case Encoding:
		body, err := base64.StdEncoding.AppendDecode(nil, m.Body)
		if err != nil {
			return fmt.Errorf("%w: body: %w", broker.ErrBadMeta, err)
		}
		m.Body = body
		return nil
	}
	return fmt.Errorf("%w: unknown body encoding %q", broker.ErrBadMeta, enc)
}
