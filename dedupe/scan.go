package dedupe

import "context"

// Indexed is an optional interface of a store, or of what wraps one: it says whether an index
// answers a query. Without it a store in a database is taken to have the index that [Query] speaks
// of.
type Indexed interface {
	// Indexed does no I/O.
	Indexed(q Query) bool
}

// Sized is an optional interface of a store, or of what wraps one: it says how large its table is.
// A store that bills reads should have it.
type Sized interface {
	// Size may be hours old.
	Size(ctx context.Context) (records, bytes int64, err error)
}
