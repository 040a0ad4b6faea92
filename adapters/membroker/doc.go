// Package membroker is a queue in memory with the behaviour of a real one: visibility
// timeouts, receipts, delivery counts, delays, message groups, deduplication, native
// redrive and limits. It is a queue, not a channel: what is received and not acked comes
// back.
//
//	queue, err := membroker.New(&membroker.Options{Preset: membroker.SQSStandard}) // nil: Memory
//	worker, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead})
//
// It is for unit tests, the demo and benchmarks. It is not durable: the messages end with
// the process, and [broker.Limits.Durable] says so.
//
// A [Preset] gives a broker the limits and the habits of SQS or Pub/Sub, so that a test
// meets what production will answer. The preset Memory has generous limits and is the
// strictest about receipts: a receipt is dead once its delivery was nacked or has expired.
//
//	                          Memory       SQSStandard   SQSFIFO       PubSub
//	late ack                  expired      removes       expired       removes
//	late extension, nack      expired      ok, nothing   expired       ok, nothing
//	ack of an old receipt     expired      ok, nothing   expired       ok, nothing
//	ack once more             ok           ok            ok            ok
//	receipt after a nack      dead         valid until the nack's delay has passed
//	groups                    in order     carried only  required      in order
//	deduplication             none         none          5 minutes     none
//	over the in-flight limit  –            throttled     no messages   –
//	redrive keeps the ID      yes          yes           yes           no
//
// What the rows mean:
//
//   - A late ack comes after the deadline and before the next delivery.
//   - An old receipt is that of an earlier delivery: its message has been delivered again. It
//     changes nothing under any preset. On a standard queue of SQS it may also work, as sqsfake
//     shows.
//   - A receipt that this broker never gave out is answered ErrReceiptExpired.
//   - "Throttled" is for a receive with Wait 0. A receive that waits gets no messages.
//
// # Order
//
// Messages without a group are delivered in the order in which they became visible. A message that
// comes back goes to the end. In a group, a message that is in flight or delayed holds the later
// ones of its group and no others. One receive may bring several messages of a group, in order.
// Depth counts held followers as visible, as SQS does.
//
// # Time
//
// Nothing polls. A call, or the one timer, makes messages visible, and hands them to the receives
// that wait, in the order in which these came. The broker has no goroutine of its own, so it works
// inside a testing/synctest bubble and may be dropped there without [Broker.Close]. It belongs to
// the bubble in which it was made.
//
// It never fails by itself. A test that wants it to fail wraps it in an onceqtest.Process.
package membroker
