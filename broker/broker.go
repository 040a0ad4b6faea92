package broker

import (
	"context"
	"iter"
	"time"
)

// Receiver takes messages from a queue and settles them. Its methods may be called from
// many goroutines.
type Receiver interface {
	// Receive brings up to o.Max messages. An empty answer without an error means that
	// none came within o.Wait. When ctx ends it returns what the call in flight brought,
	// if anything, and otherwise an error that wraps the context's.
	Receive(ctx context.Context, o ReceiveOptions) ([]*Message, error)
	// Ack removes the messages from the queue for good.
	Ack(ctx context.Context, rs []Receipt) error
	// Nack gives the messages back: each is delivered again after its Hold's For, at most
	// Limits.MaxNack (above: ErrUnsupported).
	Nack(ctx context.Context, hs []Hold) error
	// Extend hides the messages for their Hold's For from now, within Limits.MinHold and
	// MaxHold (outside: ErrUnsupported). Where Limits.Extends is false, every call is
	// answered ErrUnsupported.
	Extend(ctx context.Context, hs []Hold) error
	// Limits says what the driver can do. It does no I/O and its answer never changes.
	Limits() Limits
}

// Sender puts messages into a queue. Its methods may be called from many goroutines.
type Sender interface {
	// Send puts the messages and returns the broker's ids by position; the id of an entry
	// that failed is empty. Send does not keep or change what ms refers to.
	Send(ctx context.Context, ms []Outgoing) (ids []string, err error)
	// Limits says what the driver can do. It does no I/O and its answer never changes.
	Limits() Limits
}

// Broker is a queue that can be read and written.
type Broker interface {
	Receiver
	Sender
}

// Limits states what a driver can do. A zero number means "no limit" unless its comment
// says otherwise.
type Limits struct {
	// ReceiveBatch, SettleBatch and SendBatch are the most entries of one call, at least 1.
	// SettleBatch holds for Ack, Nack and Extend.
	ReceiveBatch, SettleBatch, SendBatch int
	// MinHold and MaxHold bound one extension.
	MinHold, MaxHold time.Duration
	// MaxTotal bounds how long one delivery can be held in all, counted from the receive
	// (SQS: 12 h).
	MaxTotal time.Duration
	// MaxNack and MaxDelay are the longest delays of a nack and of a send; 0 = none is
	// possible, that is, only a delay of 0. A worker then holds the message until a nack's delay
	// is over, 12 h at most, or until the delivery ends where it cannot be extended.
	MaxNack, MaxDelay time.Duration
	// MaxWait is the longest wait of one Receive.
	MaxWait time.Duration
	// MaxBody is the most bytes of a message: its body and, where the service counts them,
	// its attributes and our metadata.
	MaxBody int
	// MaxAttributes is the most attributes of a message, ours included.
	MaxAttributes int
	// Attempts: the broker counts deliveries.
	Attempts bool
	// OrderedGroups: messages of one group are delivered in order.
	OrderedGroups bool
	// RequireGroup: every message needs a group (SQS FIFO).
	RequireGroup bool
	// Extends: a delivery can be extended. False for push, and for a Lambda function without
	// a queue handle.
	Extends bool
	// PerRequestCost: requests are billed, so acks are worth gathering.
	PerRequestCost bool
	// Durable: messages outlive the process.
	Durable bool
}

// Depther is an optional interface of brokers: it tells how many messages there are.
type Depther interface {
	Depth(ctx context.Context) (Depth, error)
}

// Depth counts messages; on real services the numbers are approximate.
type Depth struct {
	Visible, InFlight, Delayed int64
	// Oldest is since when the message that is visible for the longest has been visible, by the
	// service's clock. Its age is how far the readers are behind, in time. Zero = nothing is
	// visible, or the driver does not know.
	Oldest time.Time
}

// Peeker is an optional interface of brokers: it shows messages without receiving them.
type Peeker interface {
	// Peek gives up to n messages, those first that would be received first, and behind them those
	// that are in flight or delayed: their Deadline is when they are visible. They have no Receipt.
	// No message changes. An error ends the sequence.
	Peek(ctx context.Context, n int) iter.Seq2[*Message, error]
}

// Redriver is an optional interface of brokers: it reads how the queue itself dead-letters.
type Redriver interface {
	// Redrive reads the queue's settings. It moves no message.
	Redrive(ctx context.Context) (RedrivePolicy, error)
}

// RedrivePolicy says when a queue gives up a message by itself.
type RedrivePolicy struct {
	// MaxReceives is after how many receives the queue moves a message to Target. 0 means never.
	MaxReceives int
	// Target is where the queue moves it, as the back end names queues. Empty where MaxReceives
	// is 0.
	Target string
	// Retention is how long the queue keeps a message. 0 means for ever.
	Retention time.Duration
}
