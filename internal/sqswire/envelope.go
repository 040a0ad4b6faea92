package sqswire

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
)

// This file owns what stands around a body that another service sent: SNS is opened here, and
// services.go has EventBridge and S3. awssqs and sqslambda call Read for each message, from many
// goroutines. An Opener never changes after NewOpener, so nothing is locked.

// Envelope is a set of envelopes. The packages that users import have a type of their own, with the
// words for them.
type Envelope uint8

// What may be around a producer's own body, or in its place.
const (
	SNS Envelope = 1 << iota
	EventBridge
	S3
	eventBridgeInSNS
	s3InSNS

	EventBridgeInSNS = SNS | eventBridgeInSNS
	S3InSNS          = SNS | s3InSNS

	known = EventBridgeInSNS | S3InSNS | EventBridge | S3
)

// has reports whether all of those were asked for.
func (e Envelope) has(those Envelope) bool { return e&those == those }

// Opener reads the metadata of messages, and opens their envelopes. nil opens none.
type Opener struct {
	which  Envelope
	topics []string // whose notifications may carry metadata of ours
}

// NewOpener checks what a user's Options ask for. An error begins with the field's name.
func NewOpener(which Envelope, topics []string) (*Opener, error) {
	switch within := eventBridgeInSNS | s3InSNS; {
	case which&^known != 0:
		return nil, fmt.Errorf("Options.Unwrap: %#x holds bits that name no envelope", uint8(which))
	case which&within != 0 && !which.has(SNS):
		return nil, fmt.Errorf("Options.Unwrap: %#x holds what is within a notification of SNS, and not SNS", uint8(which))
	case len(topics) > 0 && !which.has(SNS):
		return nil, errors.New("Options.TrustTopics: Options.Unwrap does not open the notifications of SNS")
	}
	for _, t := range topics {
		if !isTopic(t) || strings.ContainsAny(t, "*?") {
			return nil, fmt.Errorf("Options.TrustTopics: %q is not of the form arn:aws:sns:REGION:ACCOUNT:NAME, without wildcards", t)
		}
	}
	if which == 0 {
		return nil, nil //nolint:nilnil // nil is the one that opens nothing
	}
	return &Opener{which: which, topics: slices.Clone(topics)}, nil
}

func isTopic(arn string) bool {
	p := strings.Split(arn, ":")
	return len(p) == 6 && p[0] == "arn" && p[2] == "sns" && p[3] != "" && p[4] != "" && p[5] != ""
}

// Where an envelope came from, as it says itself.
const (
	fromTopic  = "sns-topic"
	fromSource = "eventbridge-source"
	fromAcct   = "eventbridge-account"
	fromRegion = "eventbridge-region"
	fromReplay = "eventbridge-replay-name"
)

// reserved are the names that no sender may give to an attribute where envelopes are opened.
var reserved = [...]string{fromTopic, fromSource, fromAcct, fromRegion, fromReplay}

// Read reads our metadata, where the message brought it in an attribute of its own, and opens its
// envelope otherwise. What has metadata is never opened: its body is the user's own, whatever it
// looks like.
func (o *Opener) Read(m *broker.Message, ours string, has bool) {
	switch {
	case has:
		ReadMeta(m, ours)
		// A letter brings what was found when its message was opened.
		if o != nil && (m.Meta == nil || m.Meta.Dead == nil) {
			dropReserved(m)
		}
	case o != nil:
		dropReserved(m)
		o.open(m)
	}
}

func dropReserved(m *broker.Message) {
	for _, name := range reserved {
		delete(m.Attributes, name)
	}
	if len(m.Attributes) == 0 {
		m.Attributes = nil
	}
}

// open opens what it knows. A body that only looks like an envelope stays as it is.
func (o *Opener) open(m *broker.Message) {
	if o.which.has(SNS) {
		if n := readSNS(m.Body); n != nil {
			o.openSNS(m, n)
			return
		}
	}
	openOne(m, o.which.has(EventBridge), o.which.has(S3))
}

// openOne tries the envelopes that have none within.
func openOne(m *broker.Message, eventBridge, s3 bool) {
	var meta *broker.Meta
	if eventBridge {
		meta = openEventBridge(m)
	}
	if meta == nil && s3 {
		meta = readS3(m.Body)
	}
	if meta != nil {
		m.Meta = meta
	}
}

// openSNS takes the body out of a notification.
func (o *Opener) openSNS(m *broker.Message, n *notification) {
	ours, has := n.MessageAttributes[broker.MetaAttribute]
	if has && !slices.Contains(o.topics, n.TopicArn) {
		// Under another key it would be another job. It stays as it came, and the metadata does not
		// get among the attributes, from where a replay would make it real.
		m.MetaErr = fmt.Errorf("%w: it came through the topic %q, which Options.TrustTopics does not list", broker.ErrBadMeta, n.TopicArn)
		return
	}
	m.Body = []byte(*n.Message)
	if m.Attributes == nil {
		m.Attributes = make(map[string]string, len(n.MessageAttributes)+1)
	}
	for name, v := range n.MessageAttributes {
		_, beside := m.Attributes[name]
		if !beside && name != broker.MetaAttribute && name != dlq.UnreadableAttribute && !slices.Contains(reserved[:], name) {
			m.Attributes[name] = v.text()
		}
	}
	m.Attributes[fromTopic] = n.TopicArn
	if has {
		ReadMeta(m, ours.text())
		return
	}
	m.Meta = &broker.Meta{ID: "sns:" + n.MessageID, Created: n.Timestamp}
	openOne(m, o.which.has(EventBridgeInSNS), o.which.has(S3InSNS))
}

// notification is what SNS sends.
type notification struct {
	Type, MessageID, TopicArn string
	Message                   *string
	Timestamp                 time.Time
	MessageAttributes         map[string]snsAttribute
}

type snsAttribute struct{ Type, Value string }

func (v snsAttribute) text() string {
	if v.Type == "Binary" {
		if raw, err := base64.StdEncoding.DecodeString(v.Value); err == nil {
			return string(raw)
		}
	}
	return v.Value
}

// readSNS is nil where the body is not a notification.
func readSNS(body []byte) *notification {
	var n notification
	if !mayHold(body, "Type", "MessageId", "TopicArn", "Message") || !decode(body, &n) {
		return nil
	}
	if n.Type != "Notification" || n.MessageID == "" || n.Message == nil || !isTopic(n.TopicArn) {
		return nil
	}
	return &n
}
