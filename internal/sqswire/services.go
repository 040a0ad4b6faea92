package sqswire

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/digest"
)

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

func decode(body []byte, v any) bool { return json.Unmarshal(body, v) == nil }

// openEventBridge takes the body out of what an event bus sent; nil where it is nothing of that
// kind.
func openEventBridge(m *broker.Message) *broker.Meta {
	if !mayHold(m.Body, "detail-type", "detail", "source", "id") {
		return nil
	}
	var e struct {
		ID         string          `json:"id"`
		DetailType string          `json:"detail-type"`
		Source     string          `json:"source"`
		Account    string          `json:"account"`
		Region     string          `json:"region"`
		ReplayName string          `json:"replay-name"`
		Time       time.Time       `json:"time"`
		Detail     json.RawMessage `json:"detail"`
	}
	// An id with a colon would make one text of two sources and ids.
	if !decode(m.Body, &e) || e.ID == "" || strings.Contains(e.ID, ":") || e.Source == "" || len(e.Detail) == 0 {
		return nil
	}
	m.Body = []byte(e.Detail)
	if m.Attributes == nil {
		m.Attributes = make(map[string]string, len(reserved))
	}
	for name, v := range map[string]string{fromSource: e.Source, fromAcct: e.Account, fromRegion: e.Region, fromReplay: e.ReplayName} {
		if v != "" {
			m.Attributes[name] = v
		}
	}
	return &broker.Meta{ID: "eb:" + e.Source + ":" + e.ID, Type: e.DetailType, Created: e.Time}
}

// maxRecords bounds the records of a notification of S3, which sends one at a time.
const maxRecords = 100

// s3Record is one happening in a bucket.
type s3Record struct {
	Source   string    `json:"eventSource"`
	Name     string    `json:"eventName"`
	Time     time.Time `json:"eventTime"`
	Response struct {
		RequestID string `json:"x-amz-request-id"`
	} `json:"responseElements"`
	S3 struct {
		Bucket struct{ Name string }
		Object struct{ Key, VersionID, Sequencer string }
	}
}

// parts are what tells it from all others.
func (r *s3Record) parts() []string {
	parts := []string{r.Name, r.S3.Bucket.Name, r.S3.Object.Key, r.S3.Object.VersionID, r.S3.Object.Sequencer}
	if r.S3.Object.Sequencer == "" {
		// Only what puts or deletes an object has one. Tagged twice, or restored twice, one version
		// would be one job.
		parts = append(parts, r.Time.UTC().Format(time.RFC3339Nano), r.Response.RequestID)
	}
	return parts
}

// readS3 is nil where the body is not a notification of S3.
func readS3(body []byte) *broker.Meta {
	if !mayHold(body) {
		return nil
	}
	var n struct {
		Service, Event, RequestID string
		Time                      time.Time
		Records                   []s3Record
	}
	if !decode(body, &n) {
		return nil
	}
	if n.Service == "Amazon S3" && n.Event == "s3:TestEvent" && n.RequestID != "" {
		return &broker.Meta{ID: "s3-test:" + n.RequestID, Type: n.Event, Created: n.Time}
	}
	if len(n.Records) == 0 || len(n.Records) > maxRecords {
		return nil
	}
	var all []byte
	for i := range n.Records {
		r := &n.Records[i]
		if r.Source != "aws:s3" || r.S3.Bucket.Name == "" {
			return nil
		}
		parts := r.parts()
		all = digest.Texts(digest.Numbers(all, uint64(len(parts))), parts...)
	}
	first := &n.Records[0]
	return &broker.Meta{ID: "s3:" + digest.Hex(all), Type: "s3:" + first.Name, Created: first.Time}
}
