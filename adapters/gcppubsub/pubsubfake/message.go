package pubsubfake

import "github.com/onceq/onceq/internal/fakeserver"

// state is what may happen to a message next.
type state uint8

const (
	gone     state = iota // it has left the subscription
	ready                 // it may be delivered, when its ordering key lets it
	held                  // it was delivered, and its ack deadline has not passed
	delayed               // a retry policy keeps it back
	settled               // it is acked, and an earlier one of its ordering key is not yet
	retained              // it is acked, and kept for a Seek
)

// consumer is a streaming pull, as far as messages know it.
type consumer interface {
	hand(m *message)
	release(m *message)
	finish(err error)
}

// message is one message of one subscription.
type message struct {
	*content
	q   *subscription
	num uint64 // its place in the order of the subscription's messages
	// serial counts the deliveries; it is in each ack id.
	serial uint32
	state  state
	// attempts are the deliveries that a dead-letter policy counts, failures the ends of holds
	// without an ack.
	attempts, failures int32
	place              int32 // in the server's heap
	lane               *lane
	stream             consumer                   // that has it, while it is held
	inOrder            fakeserver.Place[*message] // among the ready ones, or in its lane
	inAll              fakeserver.Place[*message]
}
