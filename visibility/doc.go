// Package visibility keeps leases alive while their holders work: a message's visibility timeout, a
// claim on a key, or both at once.
//
// One [Manager] serves any number of leases. It keeps them in one heap by the time at which
// something is due, and has one timer and no goroutine while nothing is. When a lease is due, what
// is due soon goes along, so that the calls are full batches; at most sixteen calls are in flight.
//
// A beat goes out at about a third of the timeout. A beat that fails is repeated until the deadline
// comes near; then, and never after the deadline, the holder is told that its lease was not
// confirmed. The beats go on even so, for a lease that nobody else took may still be renewed. Where
// calls are scarce, the lease with the nearest deadline goes first.
package visibility
