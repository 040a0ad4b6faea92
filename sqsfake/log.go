package sqsfake

import (
	"time"
)

// Request is one call as the server saw it.
type Request struct {
	// Action is the API's name, such as "SendMessageBatch"; "" if the request had none.
	Action string
	// Queue is the name of the queue, "" where the action has none.
	Queue string
	// At is when it came, Took how long the answer took; a long poll's wait is part of it.
	At   time.Time
	Took time.Duration
	// Entries is the number of a batch's entries; 1 for a call about one message, 0 else.
	Entries int
	// Messages is how many messages a receive brought.
	Messages int
	// Code is the error's, "" for a call that succeeded, "(no answer)" where a fault left its
	// caller without one. The failed entries of a batch do not make it fail.
	Code string
	// Faulty tells that a Fault was at work.
	Faulty bool
}
