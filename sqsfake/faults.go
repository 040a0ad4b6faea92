package sqsfake

import (
	"slices"
	"time"

	"github.com/onceq/onceq/internal/fakeserver"
)

// Fault makes calls go wrong. The first part says which calls, the second what happens to
// them; the parts of the second combine. The zero Fault hits every call and does nothing.
//
// Of the faults that a server has, the first that fits a call is used.
type Fault struct {
	// Action is the API's name for the calls, such as "ReceiveMessage"; "" means all.
	Action string
	// Queue is the name of their queue; "" means all queues, and calls without one.
	Queue string
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
	// Code answers with an error: a code or a shape of the API such as "RequestThrottled",
	// "OverLimit", "AccessDenied", "ReceiptHandleIsInvalid", "ServiceUnavailable",
	// "InternalFailure"; one that is not known is answered as it stands. With Entries it is
	// the answer to these entries alone.
	Code string
	// Message goes with Code; "" means AWS's usual one.
	Message string
	// Status is the HTTP status; 0 means the code's own. One of 500 and more needs no Code.
	Status int
	// Reset ends the connection instead of an answer.
	Reset bool
	// Silence gives no answer at all, until the caller gives up or the server is closed.
	Silence bool
	// Applied applies the call all the same: with Reset, Silence, Code or Status the reply
	// is lost and the change is made. Of a receive, the messages are in flight though nobody
	// has them.
	Applied bool
	// Entries fails these entries of a batch, counted from 0, with Code ("InternalError" if
	// that is empty). The others go through.
	Entries []int
	// Stale takes the receipt handles of the call for those of an earlier receive, which do
	// nothing: on a standard queue the call succeeds, on a FIFO queue it fails.
	Stale bool
	// BadMD5 answers a wrong checksum of the bodies at these places of a send or a receive.
	BadMD5 []int
	// Most is how many messages a receive brings at most; 0 means as many as it asks for. AWS may
	// always bring fewer.
	Most int
	// Duplicate leaves the messages of a receive visible: the next receive gets them again,
	// as at-least-once delivery allows at any time.
	Duplicate bool
}

// outcome is what the transport does with a call.
type outcome uint8

const (
	answered outcome = iota
	reset
	silent
)

// whole reports whether the call as a whole fails.
func (f *Fault) whole() bool {
	return f.Reset || f.Silence || len(f.Entries) == 0 && (f.Code != "" || f.Status != 0)
}

func (f *Fault) outcome() outcome {
	switch {
	case f.Silence:
		return silent
	case f.Reset:
		return reset
	default:
		return answered
	}
}

// entry is the error of the i-th entry, if it has one.
func (f *Fault) entry(i int) *apiError {
	if !slices.Contains(f.Entries, i) {
		return nil
	}
	if f.Code == "" {
		return injected("InternalError", "We encountered an internal error. Please try again.", 500)
	}
	return injected(f.Code, f.Message, f.Status)
}

// spoilMD5 is the checksum of the i-th body.
func (f *Fault) spoilMD5(i int, sum string) string {
	if slices.Contains(f.BadMD5, i) {
		return "00000000000000000000000000000000"
	}
	return sum
}

var noFault Fault

// when is what fakeserver.Table decides by.
func (f *Fault) when() fakeserver.When {
	return fakeserver.When{Skip: f.Skip, Count: f.Count, Rate: f.Rate, For: f.For}
}
