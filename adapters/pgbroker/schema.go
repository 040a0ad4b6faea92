package pgbroker

import (
	"strings"

	"github.com/onceq/onceq/internal/pgkit"
)

// This file owns the SQL of one table: its names, its version, and every statement. New and Migrate
// make the statements, which never change afterwards.
//
// A receive never waits for a row (SKIP LOCKED). But it may hold, until it ends, rows that it then
// does not take, because others took them first. So a settlement waits for its rows, for a moment
// (settleTimeout): there are no circles, because a receive that holds rows waits for nobody. Where
// that is over, an operator holds a row, and the settlement is repeated with SKIP LOCKED, without
// that row.
//
// What changes the order of a group holds that group's advisory lock, until its transaction ends;
// locks of several groups are taken in the order of their numbers, and before any row. They lie in
// a table of the server's that has room for 64 of each connection, and is shared with everybody. So
// a transaction takes maxLocks at most. A few numbers for all groups would need less room, but then
// acks of different groups would wait for each other's COMMIT; and programs of before, beside new
// ones, would hold other locks.

const (
	// version is that of the table that this package makes and reads.
	version = 1
	// mark begins the table's comment, before its version.
	mark = "onceq messages, version "
)

// statements is the SQL of one table. They name the schema of all functions, types and operators
// that the grammar does not name itself. So they mean PostgreSQL's own, whatever the search_path is
// and whoever may create in its schemas.
type statements struct {
	name  string // as people write it
	table string // as statements do

	insert, insertGuarded        string
	receive, fresh, heads, seen  string
	lockGiven, lockGroups, still string
	depth, peek                  string

	ack, ackGrouped, redrive, redriveGrouped, nack, extend settlement
}

// settlement is a statement that waits for the rows of its receipts, and one that does not.
type settlement struct{ waits, skips string }

func newStatements(schema, table string) *statements {
	st := &statements{name: pgkit.Shown(schema, table), table: pgkit.Quote(schema, table)}
	for to, sql := range map[*string]string{
		&st.insert: insertGiven, &st.insertGuarded: insertGiven + insertGuard,
		&st.receive: receiveDue, &st.fresh: freshRows,
		&st.lockGiven: lockOfGiven, &st.lockGroups: lockOfGroups,
		&st.heads: headsOfGroups, &st.seen: seenRows,
		&st.still: stillHeld,
		&st.depth: depthOf, &st.peek: peekRows,
	} {
		*to = st.fill(sql)
	}
	for to, sql := range map[*settlement]string{
		&st.ack: ackPlain, &st.ackGrouped: leaveGrouped(deleteRows),
		&st.redrive: redrivePlain, &st.redriveGrouped: leaveGrouped(moveRows),
		&st.nack: nackHeld, &st.extend: extendHeld,
	} {
		*to = settlement{st.fill(strings.ReplaceAll(sql, "{skip}", "")), st.fill(strings.ReplaceAll(sql, "{skip}", "SKIP LOCKED"))}
	}
	st.ack.waits = st.fill(ackNamed)
	st.insert += insertEnd
	st.insertGuarded += insertEnd
	return st
}

// fill puts the table's name and PostgreSQL's operators into a statement.
func (st *statements) fill(sql string) string {
	return pgkit.Operators(strings.NewReplacer("{table}", st.table, "{columns}", columns, "{now}", now, "{group}", groupHash).Replace(sql))
}

// step is what leads from one version of the table to the next; steps[0] makes version 1.
//
// One index serves what is ready, delayed or held: a held row becomes visible when its due passes,
// so expiry needs nobody. Of a group only the head is in it. In the group's index the head comes
// first, then the followers in order, so that both are found by one look each, however many there
// are.
var steps = [version][]string{{
	`CREATE TABLE {table} (
	seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	queue pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	due pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	attempts integer NOT NULL DEFAULT 0,
	held boolean NOT NULL DEFAULT false,
	waits boolean NOT NULL DEFAULT false CHECK (grp IS NOT NULL OR NOT waits),
	fresh boolean NOT NULL DEFAULT false CHECK (grp IS NOT NULL OR NOT fresh),
	grp pg_catalog.text COLLATE pg_catalog."C",
	published pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	meta pg_catalog.text,
	attributes pg_catalog.json,
	body pg_catalog.bytea NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0)`,
}}

// indexes are those beside the primary key, by what their names end with.
var indexes = []struct{ suffix, of string }{
	{"_ready", `(queue, due, seq) WHERE NOT waits`},
	{"_group", `(queue, grp, waits, seq) WHERE grp IS NOT NULL`},
	{"_fresh", `(queue, seq) WHERE fresh`},
}

const (
	// columns are those of a message, in the order in which row holds them.
	columns = `t.seq, t.attempts, t.grp, t.published, t.meta, t.attributes::pg_catalog.text, t.body`
	// now is the clock in a subquery, for which an index can be searched.
	now = `(SELECT pg_catalog.clock_timestamp())`
	// groupHash is the number of a group's advisory lock; $1 is the queue.
	groupHash = `pg_catalog.hashtextextended(x.grp, pg_catalog.hashtextextended($1::pg_catalog.text, 0::bigint))`
)

// insertGiven runs in transactions of the user's, too, whose client_encoding, isolation level and
// planner settings may be any: names come as bytes, and no table is read. A message of a group is
// fresh, and waits: only who reads the queue decides which one is the head, so that no transaction
// of a producer's ever keeps a reader waiting. Its due is a delay from now, or a time, in
// microseconds.
const insertGiven = `INSERT INTO {table} AS t (queue, due, waits, fresh, grp, meta, attributes, body)
SELECT pg_catalog.convert_from($1::pg_catalog.bytea, 'UTF8'),
	greatest(pg_catalog.clock_timestamp() {+} (g.delay::float {*} interval '1 microsecond'), pg_catalog.to_timestamp(g.not_before::float {/} 1000000::float)),
	pg_catalog.length(g.grp) {>} 0, pg_catalog.length(g.grp) {>} 0,
	CASE WHEN pg_catalog.length(g.grp) {>} 0 THEN pg_catalog.convert_from(g.grp, 'UTF8') END,
	CASE WHEN pg_catalog.length(g.meta) {>} 0 THEN pg_catalog.convert_from(g.meta, 'UTF8') END,
	CASE WHEN pg_catalog.length(g.attributes) {>} 0 THEN pg_catalog.convert_from(g.attributes, 'UTF8')::pg_catalog.json END,
	g.body
FROM unnest($2::bigint[], $3::bigint[], $4::pg_catalog.bytea[], $5::pg_catalog.bytea[], $6::pg_catalog.bytea[], $7::pg_catalog.bytea[])
	WITH ORDINALITY AS g (delay, not_before, grp, meta, attributes, body, ord)`

// insertGuard inserts nothing in a database of another name than the queue's.
const insertGuard = ` WHERE pg_catalog.current_database()::pg_catalog.text {=} pg_catalog.convert_from($8::pg_catalog.bytea, 'UTF8')`

const insertEnd = ` ORDER BY g.ord RETURNING t.seq`

// Rows whose numbers are known are found by them in an array, and by nothing that another index
// serves: t.seq = ANY (…). Then the primary key is the one way to them. A join on seq would leave
// the planner a choice, and a plan that was made while the table was empty, where all ways cost the
// same, might read the whole table for each row, until the next ANALYZE. For the same reason a look
// into a group, and one for fresh rows, is ordered by the columns of the index that it wants, with
// bounds in place of an equality, because the order of a column that is equal asks for nothing. And
// flags are compared as numbers where an index has the flag for its condition.

// receiveDue takes what is due from the floor on. Its place in the index, not the number of rows,
// decides what it costs. A row that is locked is found at its place, so it is looked up once. One
// that another call has changed since the statement began is at a place that the statement does not
// see yet: it is left for the next look. A count that somebody has set to what cannot be counted on
// begins anew: one such row would fail the statement for all.
const receiveDue = `WITH c AS MATERIALIZED (
	SELECT t.ctid AS place, t.tableoid AS part, t.due FROM {table} t
	WHERE t.queue {=} $1::pg_catalog.text AND NOT t.waits AND t.due {>=} $3::pg_catalog.timestamptz AND t.due {<=} {now}
	ORDER BY t.due, t.seq LIMIT $2::bigint FOR UPDATE SKIP LOCKED
)
UPDATE {table} t SET due = pg_catalog.clock_timestamp() {+} ($4::bigint::float {*} interval '1 microsecond'),
	attempts = CASE WHEN t.attempts {>=} 0 AND t.attempts {<} 2147483647 THEN t.attempts {+} 1 ELSE 1 END, held = true
FROM c WHERE t.ctid {=} c.place AND t.tableoid {=} c.part
RETURNING c.due, {columns}`

// freshRows are messages of groups that nobody has looked at, behind a row's number.
const freshRows = `SELECT t.seq, t.grp FROM {table} t
WHERE t.queue {>=} $1::pg_catalog.text AND t.queue {<=} $1::pg_catalog.text AND t.fresh AND t.seq {>} $3::bigint
ORDER BY t.queue, t.seq LIMIT $2::bigint`

// The locks of the groups of given rows, and of given groups.
const (
	lockOfGiven = `WITH given AS MATERIALIZED (SELECT t.queue, t.grp FROM {table} t WHERE t.seq {=} ANY ($2::bigint[]))
SELECT pg_catalog.pg_advisory_xact_lock(h.n) FROM (
	SELECT DISTINCT {group} AS n FROM given x WHERE x.queue {=} $1::pg_catalog.text AND x.grp IS NOT NULL ORDER BY n OFFSET 0
) h`
	lockOfGroups = `SELECT pg_catalog.pg_advisory_xact_lock(h.n) FROM (
	SELECT DISTINCT {group} AS n FROM (` + givenGroups + `) x ORDER BY n OFFSET 0
) h`
	givenGroups = `SELECT pg_catalog.convert_from(u.g, 'UTF8') AS grp FROM pg_catalog.unnest($2::pg_catalog.bytea[]) AS u (g)`
)

// The head of a group, and those that wait behind it. A head has the highest number of those that
// were head, so that it is found before their dead entries.
const (
	headsIn = `FROM {table} t WHERE t.queue {=} $1::pg_catalog.text AND t.grp {=} x.grp AND t.waits {<=} false`
	waitIn  = `FROM {table} t WHERE t.queue {=} $1::pg_catalog.text AND t.grp {=} x.grp AND t.waits {>=} true`
	first   = ` ORDER BY t.waits, t.seq LIMIT 1`
	last    = ` ORDER BY t.waits DESC, t.seq DESC LIMIT 1`
)

// headsOfGroups gives each group its head, under the groups' locks. It is the first message, unless
// a later one was delivered already, because the first was committed late: that one stays the head
// until it is acked. A row that somebody holds, an operator perhaps, is left for the next look.
const headsOfGroups = `WITH q AS MATERIALIZED (SELECT x.grp, h.seq AS head, n.seq AS next FROM (` + givenGroups + `) x
	LEFT JOIN LATERAL (SELECT t.seq ` + headsIn + last + `) h ON true
	LEFT JOIN LATERAL (SELECT t.seq ` + waitIn + first + `) n ON true
), undelivered AS MATERIALIZED (
	SELECT t.seq FROM {table} t WHERE t.seq {=} ANY (ARRAY(SELECT q.head FROM q WHERE q.next {<} q.head))
		AND t.attempts {=} 0 AND t.waits::integer {=} 0 FOR UPDATE OF t SKIP LOCKED
), next AS MATERIALIZED (
	SELECT t.seq FROM {table} t WHERE t.seq {=} ANY (ARRAY(
		SELECT q.next FROM q WHERE q.head IS NULL OR q.head {=} ANY (ARRAY(SELECT u.seq FROM undelivered u))
	)) AND t.waits FOR UPDATE OF t SKIP LOCKED
), back AS (
	UPDATE {table} t SET waits = true WHERE t.seq {=} ANY (ARRAY(SELECT q.head FROM q WHERE q.next {=} ANY (ARRAY(SELECT next.seq FROM next))))
)
UPDATE {table} t SET waits = false, fresh = false, due = greatest(t.due, pg_catalog.clock_timestamp())
WHERE t.seq {=} ANY (ARRAY(SELECT next.seq FROM next))`

// seenRows are fresh no longer where their group has a head.
const seenRows = `WITH seen AS MATERIALIZED (
	SELECT x.seq FROM {table} x WHERE x.seq {=} ANY ($2::bigint[]) AND x.queue {=} $1::pg_catalog.text AND x.fresh::integer {=} 1
		AND (SELECT t.seq ` + headsIn + last + `) IS NOT NULL FOR UPDATE OF x SKIP LOCKED
)
UPDATE {table} t SET fresh = false WHERE t.seq {=} ANY (ARRAY(SELECT seen.seq FROM seen))`

// locked are the rows that the receipts of a call name: $2 are their numbers, no two the same, and
// $3 their counts. at is a receipt's place in these.
const (
	at     = `pg_catalog.array_position($2::bigint[], t.seq)`
	named  = `t.seq {=} ANY ($2::bigint[]) AND t.queue {=} $1::pg_catalog.text AND t.attempts {=} ($3::integer[])[` + at + `] AND t.held`
	locked = `locked AS MATERIALIZED (
	SELECT t.seq, t.grp FROM {table} t WHERE ` + named + ` FOR UPDATE OF t {skip}
)`
	ofLocked = ` WHERE t.seq {=} ANY (ARRAY(SELECT l.seq FROM locked l))`
)

// How a row leaves the queue.
const (
	deleteRows = `DELETE FROM {table} t`
	moveRows   = `UPDATE {table} t SET queue = $4::pg_catalog.text, due = pg_catalog.clock_timestamp(), attempts = 0, held = false,
	waits = t.grp IS NOT NULL, fresh = t.grp IS NOT NULL`

	// ackNamed waits for a row by itself, and looks at what it finds there then. So each row is
	// looked up once, and is written once: it needs no lock before that.
	ackNamed     = deleteRows + ` WHERE ` + named + ` RETURNING ` + at
	ackPlain     = `WITH ` + locked + ` ` + deleteRows + ofLocked + ` RETURNING ` + at
	redrivePlain = `WITH ` + locked + ` ` + moveRows + ofLocked + ` RETURNING ` + at
)

// leaveGrouped makes the next message of each group the head in the transaction in which the head
// leaves. Where somebody holds that next row, the head stays, and its entry is busy: so no group is
// ever left without a head.
func leaveGrouped(leave string) string {
	return `WITH ` + locked + `, next AS MATERIALIZED (
	SELECT x.grp, n.seq FROM (SELECT DISTINCT l.grp FROM locked l WHERE l.grp IS NOT NULL) x CROSS JOIN LATERAL (
		SELECT t.seq ` + waitIn + first + `
	) n
), free AS MATERIALIZED (
	SELECT t.seq, t.grp FROM {table} t WHERE t.seq {=} ANY (ARRAY(SELECT next.seq FROM next)) AND t.waits FOR UPDATE OF t {skip}
), gone AS (
	` + leave + ` WHERE t.seq {=} ANY (ARRAY(SELECT l.seq FROM locked l WHERE l.grp IS NULL OR l.grp {<>} ALL (ARRAY(
		SELECT next.grp FROM next WHERE next.seq {<>} ALL (ARRAY(SELECT free.seq FROM free))
	))))
	RETURNING ` + at + ` AS ord, t.grp
), head AS (
	UPDATE {table} t SET waits = false, fresh = false, due = greatest(t.due, pg_catalog.clock_timestamp())
	WHERE t.seq {=} ANY (ARRAY(SELECT x.seq FROM free x WHERE x.grp {=} ANY (ARRAY(SELECT gone.grp FROM gone))
		AND NOT EXISTS (SELECT ` + headsIn + ` AND t.seq {<>} ALL (ARRAY(SELECT l.seq FROM locked l)) OFFSET 0)))
)
SELECT gone.ord FROM gone`
}

// nackHeld and extendHeld set when a row is visible again. An extension after the deadline finds
// nothing.
const (
	setDue = `UPDATE {table} t SET due = pg_catalog.clock_timestamp() {+} (($4::bigint[])[` + at + `]::float {*} interval '1 microsecond')`

	nackHeld   = `WITH ` + locked + ` ` + setDue + `, held = false` + ofLocked + ` RETURNING ` + at
	extendHeld = `WITH locked AS MATERIALIZED (
	SELECT t.seq FROM {table} t WHERE ` + named + ` AND t.due {>} {now} FOR UPDATE OF t {skip}
) ` + setDue + ofLocked + ` AND t.due {>} pg_catalog.clock_timestamp() RETURNING ` + at
)

// stillHeld tells which of the receipts name a row: where a settlement has left it, somebody holds
// it.
const stillHeld = `SELECT ` + at + ` FROM {table} t WHERE ` + named
