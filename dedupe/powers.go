package dedupe

import (
	"context"
	"time"
)

// This file owns the optional interfaces of stores. Who needs one asks the store by a type
// assertion, from any goroutine.

// Count is how many records of a scope have a status.
type Count struct {
	Scope  string
	Status Status
	N      int64
	// Exact is false where N is an estimate, because counting would have read a large table.
	Exact bool
}

// Counter is an optional interface of stores: it counts records without reading each.
type Counter interface {
	// Count answers how many records q selects, by scope and status, in that order; what has none
	// is left out. q.After and q.Limit are not looked at. Expired records do not count. Counts of
	// Failed, Parked and Released are exact, and cost what [Query] says of them. Those of Claimed
	// and Done may be estimates: [Count].Exact.
	Count(ctx context.Context, q Query) ([]Count, error)
}

// FenceRaiser is an optional interface of stores whose fences come in order
// ([Limits].OrderedFences).
type FenceRaiser interface {
	// RaiseFence sets the next fence above all that were ever given out, as Migrate does at the
	// start, because a fence seemed to come a second time. known is the highest that the caller has
	// seen; the next one will be far above it, because others may have seen more. back reports
	// whether the store has found no other reason, such as a sequence that gives each connection
	// numbers in advance.
	RaiseFence(ctx context.Context, known uint64) (back bool, err error)
}

// Clock is an optional interface of stores: it tells the time by which they judge leases.
type Clock interface {
	// Now is the time of the store's own clock: the server's, the service's, or, where the store is
	// a file or the memory of this host, the host's. It comes late by what the answer took.
	Now(ctx context.Context) (time.Time, error)
}

// Indexed is an optional interface of stores, and of what wraps one: it reports whether an index
// answers a query. Without it a store in a database is taken to have the index that [Query] speaks
// of.
type Indexed interface {
	// Indexed does no I/O.
	Indexed(q Query) bool
}

// BusyTeller is an optional interface of stores, and of what wraps one: it knows the errors by
// which its database refuses a transaction, because another one holds a lock. Handlers' own
// transactions on the store's database get such errors as well.
type BusyTeller interface {
	// IsBusy reports whether err says that a transaction was refused, and nothing of it was
	// written. It does no I/O. Many goroutines call it.
	IsBusy(err error) bool
}

// Sized is an optional interface of stores, and of what wraps one: it reads how large the table is.
// A store that bills reads should have it.
type Sized interface {
	// Size may be hours old.
	Size(ctx context.Context) (TableSize, error)
}

// TableSize is how large a store's table is.
type TableSize struct{ Records, Bytes int64 }

// Checker is an optional interface of stores, and of what wraps one: it tells what is wrong with
// the table that the store uses.
type Checker interface {
	// Check reads settings and catalogues, and changes nothing. No fault means that the table has
	// what the store needs, and the caller the rights that can be asked for. An error says that it
	// could not be asked.
	Check(ctx context.Context) ([]Fault, error)
}

// Fault is what is wrong with a table, or a queue.
type Fault struct {
	// Text says what is wrong, and what follows from it.
	Text string
	// Mend is the command or the setting that mends it.
	Mend string
}
