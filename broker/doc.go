// Package broker is the contract between onceq and a queue: a small [Receiver], a
// small [Sender], and the words both use. A driver's New makes one, and users hand it on:
//
//	orders, err := awssqs.New(client, url, nil) // a Broker: Receiver and Sender
//	err = onceq.SendOne(ctx, orders, &broker.Outgoing{Body: body, Meta: &broker.Meta{Key: "A-1"}})
//	worker, err := processor.Worker(orders, onceq.WorkerConfig{DeadLetter: dead})
//
// The rest of this page is for who writes a driver.
//
// A driver is thin on purpose. It does not retry, buffer, prefetch or start goroutines
// of its own; the portable code above it does that once, for all drivers. What differs
// between queues is stated by [Limits], never discovered by failing.
//
// # Batches answer by position
//
// Every call that changes something takes a batch. A nil error means that every entry
// was applied. A [*BatchError] answers by position: Errs[i] belongs to entry i, and nil
// there means that entry i was applied. Any other error says nothing about any entry:
// each may or may not have been applied, and repeating the call is the only way to
// know. [ErrAt] reads both shapes.
//
// A batch larger than the driver's limit, or an empty one, is the caller's concern: an
// empty batch is applied without a call, and a larger one is answered [ErrUnsupported]
// with nothing applied.
//
// # What a driver must keep
//
//   - A received message is hidden from every other receiver until its Deadline, unless it is
//     acked, nacked or extended.
//   - Deadline is early, unless the answer was more than 5 s on its way: the time of the answer,
//     less the smaller of the poll's length, 5 s and a quarter of the timeout, plus the timeout.
//   - ID is the same in every delivery of a message. Receipt is new in each.
//   - A receipt settles its own message only. Once the message has been delivered again, the old
//     receipt may or may not work: it may remove, show or hide what somebody else holds by now. The
//     answer may be [ErrReceiptExpired], and then nothing has changed, or success, which proves
//     nothing.
//   - Extending a message whose deadline has passed never hides it again. The answer may be
//     [ErrReceiptExpired] or success.
//   - A Receive whose context ends lets the call in flight end, for a bounded time, and
//     returns what it brought; it strands nothing.
//   - [Message.Attributes] holds the user's attributes only; our own travel in one attribute
//     named [MetaAttribute].
//
// The package brokertest holds a suite that checks each of these on a real driver.
package broker
