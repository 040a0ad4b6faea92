// Package visibility keeps leases alive while their holders work. A lease is a message's visibility
// timeout, a claim on a key, or both at once. Workers of onceq have a Manager of their own; this
// package is for programs that keep leases of another kind.
//
//	m, err := visibility.New(extend, visibility.Options[lease]{Timeout: 30 * time.Second, OnLost: stop})
//	h := &visibility.Held[lease]{Lease: l, Deadline: l.until}
//	m.Hold(h)          // extend is called for it from now on
//	defer m.Release(h)
//
// One [Manager] serves any number of leases. It keeps them in one heap, by the time at which
// something is due. While nothing is due it has one timer and no goroutine. When a lease is due,
// those that are due soon go along, so that the calls are full batches. At most sixteen calls are
// in flight.
//
// A beat goes out at about a third of the timeout. A beat that fails is repeated. When the deadline
// comes near without an answer, the holder is told that its lease was not confirmed. That is before
// the deadline; [Options].OnLost names the exceptions. The beats go on even so, because a lease
// that nobody else took may still be renewed. Without [Options].Revives they end at the deadline.
// Where calls are scarce, the lease with the nearest deadline goes first.
package visibility
