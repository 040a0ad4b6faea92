package dedupe

import "context"

// Sweeper is an optional interface of stores: it removes expired records. Leaving it out costs only
// space, because an expired record counts as absent. A worker calls it by itself. A database that
// removes them by a rule of its own needs none.
type Sweeper interface {
	// Sweep removes at most limit records that have expired, the oldest first where that costs
	// nothing, and says how many. 0 or less = all. It removes no other record, whatever its status.
	// It waits for no record that a call or a transaction holds, so any number of callers may sweep
	// at once. On an error the count is of those that are gone all the same.
	Sweep(ctx context.Context, limit int) (int, error)
}
