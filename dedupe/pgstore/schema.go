package pgstore

import (
	"strings"

	"github.com/onceq/onceq/internal/pgkit"
)

// This file owns the names of one table, its versions, and how a statement gets them.

const (
	defaultTable = "onceq_dedupe"
	// version is that of the table that this package makes and reads.
	version = 2
	// oldestReader is the oldest version of this package that works on such a table. The older
	// ones leave alone what was added since, because their statements name their columns.
	oldestReader = 1
	// mark begins the table's comment, before oldestReader: a package refuses a table whose number
	// is above its own version.
	mark = "onceq dedupe records, version "
	// added goes behind the number.
	added = "; with what version 2 adds"
)

// columns are those of a record beside its key, in the order in which row holds them.
const columns = `t.status, t.fence, t.token, t.attempt, t.started, t.policy, t.owner, t.message_id, t.lease_until, t.fingerprint,
	t.result, t.state, t.error_class, t.first_error, t.last_error, t.created, t.claimed_at, t.updated, t.finished, t.expires, t.past, t.sent`

// statements is the SQL of one table. They name the schema of all functions, types and operators
// that the grammar does not name itself. So they mean PostgreSQL's own, whatever the search_path is
// and whoever may create in its schemas.
type statements struct {
	name                                                                string // as people write it
	table, fence                                                        string // as statements do
	insert, read, readState, change, renew, lock, settle, remove, sweep string
	word, note                                                          string
	finish, commit                                                      [plans]string // by plan
}

// fill puts the table's names and PostgreSQL's operators into a statement.
func (st *statements) fill(sql string) string {
	fence := strings.ReplaceAll(st.fence, "'", "''")
	return pgkit.Operators(strings.NewReplacer("{table}", st.table, "{sequence}", st.fence, "{fence}", fence, "{columns}", columns).Replace(sql))
}

// createTable makes a table of this version. The columns of a fixed size come first, because
// PostgreSQL would align each that stands behind a text: 7 bytes a row.
const createTable = `CREATE TABLE {table} (
	fence bigint NOT NULL,
	created pg_catalog.timestamptz NOT NULL,
	claimed_at pg_catalog.timestamptz NOT NULL,
	updated pg_catalog.timestamptz NOT NULL,
	sent pg_catalog.timestamptz,
	lease_until pg_catalog.timestamptz,
	finished pg_catalog.timestamptz,
	expires pg_catalog.timestamptz,
	token pg_catalog.uuid NOT NULL,
	attempt integer NOT NULL,
	started boolean NOT NULL,
	scope pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	key pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	status pg_catalog.text NOT NULL CHECK (status {=} 'claimed' OR status {=} 'released' OR status {=} 'done' OR status {=} 'failed' OR status {=} 'parked'),
	policy pg_catalog.text NOT NULL CHECK (policy {=} 'rerun' OR policy {=} 'park'),
	owner pg_catalog.text NOT NULL,
	message_id pg_catalog.text NOT NULL,
	error_class pg_catalog.text NOT NULL,
	first_error pg_catalog.text NOT NULL,
	last_error pg_catalog.text NOT NULL,
	fingerprint pg_catalog.bytea,
	result pg_catalog.bytea,
	state pg_catalog.bytea,
	past pg_catalog.bytea,
	PRIMARY KEY (scope, key)
)`

// addColumns leads from version 1 to version 2. Columns without a default touch no row.
const addColumns = `ALTER TABLE {table} ADD COLUMN IF NOT EXISTS past pg_catalog.bytea, ADD COLUMN IF NOT EXISTS sent pg_catalog.timestamptz`

// createAttention makes the index of what people look for: what failed, was parked, or waits for
// another attempt. A job that is claimed and done never enters it.
const createAttention = `(status, scope, key) WHERE status {=} 'failed' OR status {=} 'parked' OR status {=} 'released'`
