package pubsubfake

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/onceq/onceq/internal/fakeserver"
)

// Fault makes calls go wrong. The first part says which calls, the second what happens to
// them; the parts of the second combine. The zero Fault hits every call and does nothing.
//
// Of the faults that a server has, the first that fits a call is used.
type Fault struct {
	// Method is the API's name for the calls, such as "Pull"; "" means all.
	Method string
	// Resource is the full name of the topic or subscription that they are about, such as
	// "projects/p/subscriptions/s"; "" means all, and calls without one.
	Resource string
	// Skip lets so many of these calls go by before the first one is hit.
	Skip int
	// Count is how many are hit from then on; 0 means no end.
	Count int
	// Rate is the part of them that is hit, drawn anew for each: 0.1 is one in ten. 0 means
	// all.
	Rate float64
	// For ends the fault so long after it was set; 0 means never.
	For time.Duration
	// When, if set, is asked last, without a lock, by many goroutines.
	When func(Request) bool

	// Delay passes before the call is applied. When the caller gives up first, nothing is.
	Delay time.Duration
	// ReplyDelay passes after the call was applied, before its answer.
	ReplyDelay time.Duration
	// Code answers with an error, such as [codes.Unavailable], [codes.PermissionDenied] or
	// [codes.ResourceExhausted]. With Entries it is not used.
	Code codes.Code
	// Message goes with Code; "" means the service's usual one.
	Message string
	// Silence gives no answer at all, until the caller gives up or the server is closed.
	Silence bool
	// Applied applies the call all the same: with Silence or Code the reply is lost and the
	// change is made. Of a pull, the messages are held though nobody has them.
	Applied bool
	// Entries fails the ack ids at these places of an Acknowledge or a ModifyAckDeadline, counted
	// from 0, on a subscription with exactly-once delivery, and does not apply them unless Applied
	// is set. The others go through.
	Entries []int
	// EntryFailure is what ErrorInfo says of the ack ids at Entries; "" means
	// "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE".
	EntryFailure string
	// Most is how many messages a pull brings at most; 0 means as many as it asks for. The service
	// may always bring fewer.
	Most int
	// Duplicate leaves the messages of a pull ready: the next pull brings them again, as
	// at-least-once delivery allows at any time. Not of subscriptions with exactly-once delivery.
	Duplicate bool
}

// whole reports whether the call as a whole fails.
func (f *Fault) whole() bool {
	return f.Silence || len(f.Entries) == 0 && f.Code != codes.OK
}

// entry is what becomes of the i-th ack id: how it fails, "" if it does not.
func (f *Fault) entry(i int) string {
	switch {
	case !slices.Contains(f.Entries, i):
		return ""
	case f.EntryFailure == "":
		return transientUnavailable
	default:
		return f.EntryFailure
	}
}

var noFault Fault

// when is what fakeserver.Table decides by.
func (f *Fault) when() fakeserver.When {
	return fakeserver.When{Skip: f.Skip, Count: f.Count, Rate: f.Rate, For: f.For}
}
