package pgstore

import "github.com/onceq/onceq/internal/pgkit"

// steady adds to [pgkit.Plain] what the planner needs, so that the statements look up each key in
// the primary key's index, find a locked row at its place, and read nothing else. Left alone, the
// planner reads a small table without statistics whole. A prepared statement would go on doing so
// as the table grows, for a minute or more.
//
// Each key is looked up in a subquery of its own, which a lock or OFFSET 0 keeps apart: its only
// way to the row is the condition on the index. In a plain join the planner may as well walk
// through the whole index and compare the rows, because that costs nothing more while the table is
// empty.
const steady = pgkit.Plain + `, pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('enable_bitmapscan', 'off', true), ` +
	`pg_catalog.set_config('enable_indexscan', 'on', true), pg_catalog.set_config('enable_tidscan', 'on', true), ` +
	`pg_catalog.set_config('enable_nestloop', 'on', true), pg_catalog.set_config('enable_hashjoin', 'off', true), ` +
	`pg_catalog.set_config('enable_mergejoin', 'off', true), pg_catalog.set_config('jit', 'off', true), ` +
	`pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true)`

// placed is where a row stands that a statement locks, and atPlace finds it again. The partitions
// of one table have rows at equal places.
const (
	placed  = `t.ctid AS place, t.tableoid AS part`
	atPlace = `t.ctid {=} g.place AND t.tableoid {=} g.part`
)

// hasty holds for the transaction, too.
const hasty = steady + `, pg_catalog.set_config('lock_timeout', $1::pg_catalog.text, true)`

func newPipeline() *pgkit.Pipeline { return pgkit.NewPipeline(pgkit.IsBusy, steady) }

// newHasty is a pipeline that fails with SQLSTATE 55P03 when it has to wait for a row, or the
// table, longer than limit.
func newHasty(limit string) *pgkit.Pipeline { return pgkit.NewPipeline(pgkit.IsBusy, hasty, limit) }
