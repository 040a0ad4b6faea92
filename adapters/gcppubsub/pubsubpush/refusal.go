package pubsubpush

import (
	"fmt"
	"net/http"
)

// A refusal is the answer to a request that brings no job.
type refusal struct {
	status int
	reason string // one line, for the sender and the log
	err    error  // more, for the log alone
}

func refused(status int, format string, args ...any) *refusal {
	return &refusal{status: status, reason: fmt.Sprintf(format, args...)}
}

func malformed(format string, args ...any) *refusal {
	return refused(http.StatusBadRequest, format, args...)
}

func unauthorized(reason string) *refusal {
	return &refusal{status: http.StatusUnauthorized, reason: reason}
}

// The headers of an unwrapped request.
const (
	metadataPrefix     = "x-goog-pubsub-"
	headerID           = metadataPrefix + "message-id"
	headerSubscription = metadataPrefix + "subscription-name"
	headerPublished    = metadataPrefix + "publish-time"
	headerOrderingKey  = metadataPrefix + "ordering-key"
)

// The headers of a CloudEvent, in which Eventarc says what has happened.
const (
	eventPrefix = "ce-"
	eventID     = eventPrefix + "id"
	eventType   = eventPrefix + "type"
	eventTime   = eventPrefix + "time"
	// published is the type of an event that is a message of a topic: its body is the envelope.
	published = "google.cloud.pubsub.topic.v1.messagePublished"
)
