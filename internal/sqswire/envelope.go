package sqswire

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
)

// Envelope is a set of envelopes. The packages that users import have a type of their own, with the words for them.
type Envelope uint8

// What may be around a producer's own body, or in its place.
const (
	SNS Envelope = 1 << iota
	EventBridge
	S3
)

// Unwrap opens what it knows. A body that only looks like an envelope stays as it is.
func Unwrap(m *broker.Message, which Envelope) {
	if which&SNS != 0 && unwrapSNS(m) {
		return
	}
	var meta *broker.Meta
	if which&EventBridge != 0 {
		meta = unwrapEventBridge(m)
	}
	if meta == nil && which&S3 != 0 {
		meta = readS3(m.Body)
	}
	if meta != nil {
		m.Meta = meta
	}
}

// mayHold is a cheap look before a body is parsed.
func mayHold(body []byte, names ...string) bool {
	b := bytes.TrimLeft(body, " \t\r\n")
	if len(b) == 0 || b[0] != '{' {
		return false
	}
	for _, n := range names {
		if !bytes.Contains(b, []byte(`"`+n+`"`)) {
			return false
		}
	}
	return true
}

// unwrapSNS tells whether the message turned out to be one of ours.
func unwrapSNS(m *broker.Message) (ours bool) {
	if !mayHold(m.Body, "Type", "TopicArn", "Message") {
		return false
	}
	var n struct {
		Type, MessageID, TopicArn string
		Message                   *string
		Timestamp                 time.Time
		MessageAttributes         map[string]struct{ Type, Value string }
	}
	if json.Unmarshal(m.Body, &n) != nil || n.Type != "Notification" || n.Message == nil || !strings.HasPrefix(n.TopicArn, "arn:") {
		return false
	}
	m.Body = []byte(*n.Message)
	if m.Attributes == nil {
		m.Attributes = make(map[string]string, len(n.MessageAttributes)+1)
	}
	for name, v := range n.MessageAttributes {
		value := v.Value
		if v.Type == "Binary" {
			if raw, err := base64.StdEncoding.DecodeString(value); err == nil {
				value = string(raw)
			}
		}
		m.Attributes[name] = value
	}
	m.Attributes["sns-topic"] = n.TopicArn
	if text, ok := m.Attributes[broker.MetaAttribute]; ok {
		delete(m.Attributes, broker.MetaAttribute)
		ReadMeta(m, text)
		return true
	}
	if n.MessageID != "" {
		m.Meta = &broker.Meta{ID: n.MessageID, Created: n.Timestamp}
	}
	return false
}

func unwrapEventBridge(m *broker.Message) *broker.Meta {
	if !mayHold(m.Body, "detail-type", "detail", "source", "id") {
		return nil
	}
	var e struct {
		ID         string          `json:"id"`
		DetailType string          `json:"detail-type"`
		Source     string          `json:"source"`
		Account    string          `json:"account"`
		Region     string          `json:"region"`
		Time       time.Time       `json:"time"`
		Detail     json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(m.Body, &e) != nil || e.ID == "" || e.Source == "" || len(e.Detail) == 0 {
		return nil
	}
	m.Body = []byte(e.Detail)
	if m.Attributes == nil {
		m.Attributes = make(map[string]string, 3)
	}
	for name, v := range map[string]string{"source": e.Source, "account": e.Account, "region": e.Region} {
		if v != "" {
			m.Attributes["eventbridge-"+name] = v
		}
	}
	return &broker.Meta{ID: e.ID, Type: e.DetailType, Created: e.Time}
}

// readS3 is nil where the body is not a notification of S3.
func readS3(body []byte) *broker.Meta {
	if !mayHold(body) {
		return nil
	}
	var n struct {
		Service, Event, RequestID string
		Time                      time.Time
		Records                   []struct {
			Source string    `json:"eventSource"`
			Name   string    `json:"eventName"`
			Time   time.Time `json:"eventTime"`
			S3     struct {
				Bucket struct{ Name string }
				Object struct{ Key, VersionID, Sequencer string }
			}
		}
	}
	if json.Unmarshal(body, &n) != nil {
		return nil
	}
	if n.Service == "Amazon S3" && n.Event == "s3:TestEvent" && n.RequestID != "" {
		return &broker.Meta{ID: n.RequestID, Type: n.Event, Created: n.Time}
	}
	if len(n.Records) == 0 {
		return nil
	}
	h := sha256.New()
	for _, r := range n.Records {
		if r.Source != "aws:s3" || r.S3.Bucket.Name == "" {
			return nil
		}
		for _, part := range []string{r.Name, r.S3.Bucket.Name, r.S3.Object.Key, r.S3.Object.VersionID, r.S3.Object.Sequencer} {
			h.Write([]byte(part))
			h.Write([]byte{0})
		}
	}
	first := n.Records[0]
	return &broker.Meta{ID: hex.EncodeToString(h.Sum(nil)[:16]), Type: "s3:" + first.Name, Created: first.Time}
}
