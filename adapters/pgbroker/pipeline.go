package pgbroker

import "github.com/onceq/onceq/internal/pgkit"

// steady adds to [pgkit.Plain] what the planner needs, so that each statement goes down the index
// that was made for it. Left alone, the planner reads a small table without statistics whole, and a
// prepared statement would go on doing so as the table grows. A bitmap or a sort would read a whole
// backlog for its first hundred rows. lock_timeout bounds the waits that are left: for a lock on
// the whole table, and for another transaction of ours that orders the same group.
const steady = pgkit.Plain + `, pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('enable_hashjoin', 'off', true), ` +
	`pg_catalog.set_config('enable_mergejoin', 'off', true), pg_catalog.set_config('enable_bitmapscan', 'off', true), ` +
	`pg_catalog.set_config('enable_tidscan', 'on', true), pg_catalog.set_config('enable_nestloop', 'on', true), ` +
	`pg_catalog.set_config('enable_sort', 'off', true), pg_catalog.set_config('jit', 'off', true), ` +
	`pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true), pg_catalog.set_config('lock_timeout', $1::pg_catalog.text, true)`

// swift lets a transaction not wait for the disk.
const swift = `SELECT pg_catalog.set_config('synchronous_commit', 'off', true)`

// How long a statement waits for a lock: settlements first try it for a moment.
const (
	lockTimeout   = "4s"
	settleTimeout = "300ms"
)

func newPipeline() *pgkit.Pipeline { return newPipelineWith(lockTimeout) }

func newPipelineWith(lockTimeout string) *pgkit.Pipeline {
	return pgkit.NewPipeline(isBusy, steady, lockTimeout)
}
