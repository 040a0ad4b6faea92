package broker

import "github.com/onceq/onceq/internal/values"

// As finds an optional interface of a broker, a sender or a store, such as [Depther],
// [Redriver] or [Describer]: in v itself, or in what v wraps. It is false where neither has
// it, and where v is nil.
//
// What wraps another one says so by a method
//
//	Unwrap() any
//
// and As follows it, eight levels deep at most. So a decorator that counts calls needs none of the
// optional interfaces of what it decorates. It hides one by having the method itself, and answering
// [ErrUnsupported].
func As[T any](v any) (T, bool) { return values.As[T](v) }

// Describer is an optional interface of drivers: it says what queue they drive, for people, rules
// and metrics.
type Describer interface {
	// Describe does no I/O, and its answer never changes. Of a nil driver it is the zero value.
	Describe() Description
}

// Description names a queue.
type Description struct {
	// System is the kind of service, as OpenTelemetry's conventions call it: "aws_sqs",
	// "gcp_pubsub"; "onceq_memory" for the memory driver, "gocloud" where gocloud alone knows the
	// service.
	System string
	// Name is what people call the queue: the last part of its address. For Pub/Sub it is the
	// subscription's, because that is what workers read; the topic's where there is none.
	Name string
	// Address tells the queue apart from all others of the system, such as its URL. Empty where
	// there is nothing beyond the name.
	Address string
}
