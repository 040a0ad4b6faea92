package dynamooutbox

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/broker"
)

// This file owns how an item is read. What cannot be read becomes a message with a MetaErr, which
// no relay sends and none removes. Nothing is locked.

// message is what the item of a partition holds. Its receipt and its deadline are not known here.
func message(part int, it item) *broker.Message {
	m := &broker.Message{ID: strconv.Itoa(part) + "/" + textOf(it[attrSK]), Group: textOf(it[attrGroup])}
	switch b := it[attrBody].(type) {
	case *types.AttributeValueMemberB:
		m.Body = b.Value
	case *types.AttributeValueMemberS: // by hand
		m.Body = []byte(b.Value)
	}
	if at := numberOf(it[attrAt]); at > 0 {
		m.Published = time.UnixMilli(at).UTC()
	}
	if as, ok := it[attrAttrs].(*types.AttributeValueMemberM); ok && len(as.Value) > 0 {
		m.Attributes = make(map[string]string, len(as.Value))
		for name, v := range as.Value {
			m.Attributes[name] = textOf(v)
		}
	}
	if s, ok := it[attrMeta].(*types.AttributeValueMemberS); ok {
		if readMeta(m, s.Value); m.MetaErr != nil {
			if m.Attributes == nil {
				m.Attributes = make(map[string]string, 1)
			}
			m.Attributes[broker.MetaAttribute] = s.Value
		}
	}
	return m
}

// readMeta decodes metadata, and undoes the encoding of a body that another service's driver
// needed. After an error the message is as it came.
func readMeta(m *broker.Message, meta string) {
	read, err := broker.DecodeMeta(meta)
	body := m.Body
	if err == nil {
		switch read.BodyEncoding {
		case "":
		case "base64":
			if body, err = base64.StdEncoding.AppendDecode(nil, m.Body); err != nil {
				err = fmt.Errorf("%w: body: %w", broker.ErrBadMeta, err)
			}
		default:
			err = fmt.Errorf("%w: unknown body encoding %q", broker.ErrBadMeta, read.BodyEncoding)
		}
	}
	if err != nil {
		m.MetaErr = err
		return
	}
	read.BodyEncoding = ""
	m.Meta, m.Body = read, body
}

// textOf is a text, or a number as it is written; empty for all else.
func textOf(v value) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	}
	return ""
}

func numberOf(v value) int64 {
	n, _ := v.(*types.AttributeValueMemberN)
	if n == nil {
		return 0
	}
	i, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil {
		return 0
	}
	return i
}

// groupOf is the part of a sort key that all messages of its group begin with; empty where the
// message has no group.
func groupOf(sk string) string {
	const n = len(regionGroup) + digestText
	if !strings.HasPrefix(sk, regionGroup) || len(sk) < n {
		return ""
	}
	return sk[:n]
}

// behind is a sort key behind all those that begin with prefix and a '#'.
func behind(prefix string) string { return prefix + "$" }
