package pubsubfake

import (
	"time"

	"google.golang.org/grpc/codes"
)

// Request is one call as the server saw it.
type Request struct {
	// Method is the API's name, such as "ModifyAckDeadline".
	Method string
	// Resource is the full name of the topic or subscription, or of what else the call is about.
	Resource string
	// At is when it came, Took how long the answer took; a pull's wait is part of it.
	At   time.Time
	Took time.Duration
	// Entries is the number of messages of a publish, or of ack ids.
	Entries int
	// Seconds is the new ack deadline of a ModifyAckDeadline.
	Seconds int32
	// Messages is how many messages a pull brought. Those of a streaming pull are not counted.
	Messages int
	// Code is the answer's.
	Code codes.Code
	// Faulty tells that a Fault was at work.
	Faulty bool
}
