package sqlitebroker

import "strings"

// This file owns the SQL of one table. New makes the statements, which never change afterwards.
//
// Triggers keep the one rule of groups: of a group exactly one message does not wait, its head. So
// the rule holds for whoever writes, also by hand.

// statements is the SQL of one table.
type statements struct {
	table string

	schema                                      []string
	columns, makeVersion, readVersion           string
	beginNumbers, raiseNumbers                  string
	insert, first, due, take, redrive           string
	ack, nack, extend, depth, peek, setVersion1 string
}

// named is what stands in for the table's name in names.
const named = "{name}"

func newStatements(table string) *statements {
	fill := strings.NewReplacer(
		"{table}", `"`+table+`"`, named, table, "{ready}", `INDEXED BY "`+table+`_ready"`, "{message}", columns,
		"{given}", givenReceipt, "{visible}", "queue = ?1 AND waits = 0", "{now}", nowText,
	).Replace
	st := &statements{table: table}
	for _, s := range schema {
		st.schema = append(st.schema, fill(s))
	}
	for to, s := range map[*string]string{
		&st.columns:      `SELECT name FROM pragma_table_info('{name}')`,
		&st.makeVersion:  `CREATE TABLE IF NOT EXISTS "{name}_version" (id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL) STRICT`,
		&st.readVersion:  `SELECT version FROM "{name}_version" WHERE id = 1`,
		&st.setVersion1:  `INSERT OR IGNORE INTO "{name}_version" (id, version) VALUES (1, 1)`,
		&st.beginNumbers: `INSERT INTO sqlite_sequence (name, seq) SELECT '{name}', ?1 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = '{name}')`,
		&st.raiseNumbers: `UPDATE sqlite_sequence SET seq = ?1 WHERE name = '{name}' AND seq < ?1`,
		&st.insert:       `INSERT INTO {table} (queue, due, grp, published, meta, attributes, body) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		&st.first:        `SELECT due FROM {table} {ready} WHERE {visible} ORDER BY due LIMIT 1`,
		&st.due:          `SELECT {message} FROM {table} {ready} WHERE {visible} AND due <= ?2 ORDER BY due, seq LIMIT ?3`,
		&st.take:         `UPDATE {table} SET due = ?2, attempts = CASE WHEN attempts >= 0 AND attempts < 2147483647 THEN attempts + 1 ELSE 1 END, held = 1 WHERE seq = ?1`,
		&st.redrive:      `UPDATE {table} SET queue = ?2, due = ?3, attempts = 0, held = 0 WHERE seq = ?1`,
		&st.ack:          `DELETE FROM {table} WHERE {given}`,
		&st.nack:         `UPDATE {table} SET due = ?4, held = 0 WHERE {given}`,
		&st.extend:       `UPDATE {table} SET due = ?4 WHERE {given} AND due > ?5`,
		&st.depth:        depthOf,
		&st.peek:         `SELECT due > ?2, due, {message} FROM {table} {ready} WHERE {visible} ORDER BY due, seq LIMIT ?3`,
	} {
		*to = fill(s)
	}
	return st
}

const (
	// columns are those of a message, in the order in which row holds them.
	columns = `seq, attempts, grp, published, meta, attributes, body`
	// givenReceipt finds the row that a receipt names. Its deadline does not matter, as long as
	// nobody has received the message since.
	givenReceipt = `seq = ?1 AND queue = ?2 AND attempts = ?3 AND held = 1`
	// nowText is sqlitewriter.TimeLayout of this moment, for rows that others insert.
	nowText = `(strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000000Z')`
)

// schema makes version 1. One index serves what is ready, delayed or held: a held row becomes
// visible when its due passes, so expiry needs nobody. Of a group only the head is in it. In the
// group's index the head comes first, then the followers in order, so that both are found by one
// look each, however many there are.
//
// The numbers of rows are never used again, because a receipt is a number and a count.
var schema = []string{
	`CREATE TABLE IF NOT EXISTS {table} (
	seq INTEGER PRIMARY KEY AUTOINCREMENT,
	queue TEXT NOT NULL,
	due TEXT NOT NULL DEFAULT {now} CHECK (due GLOB '????-??-??T??:??:??*Z'),
	attempts INTEGER NOT NULL DEFAULT 0,
	held INTEGER NOT NULL DEFAULT 0,
	waits INTEGER NOT NULL DEFAULT 0 CHECK (waits = 0 OR grp IS NOT NULL),
	grp TEXT,
	published TEXT NOT NULL DEFAULT {now},
	meta TEXT,
	attributes TEXT,
	body ANY NOT NULL
) STRICT`,
	`CREATE INDEX IF NOT EXISTS "{name}_ready" ON {table} (queue, due) WHERE waits = 0`,
	`CREATE INDEX IF NOT EXISTS "{name}_group" ON {table} (queue, grp, waits) WHERE grp IS NOT NULL`,
	`CREATE TRIGGER IF NOT EXISTS "{name}_joined" AFTER INSERT ON {table}
WHEN NEW.grp IS NOT NULL AND NEW.waits <> ` + follows + ` BEGIN
	UPDATE {table} SET waits = 1 - NEW.waits WHERE seq = NEW.seq;
END`,
	`CREATE TRIGGER IF NOT EXISTS "{name}_left" AFTER DELETE ON {table} WHEN OLD.grp IS NOT NULL AND OLD.waits = 0 BEGIN
	UPDATE {table} SET waits = 0 WHERE seq = ` + nextOfOld + `;
END`,
	`CREATE TRIGGER IF NOT EXISTS "{name}_moved" AFTER UPDATE OF queue, grp ON {table}
WHEN OLD.queue IS NOT NEW.queue OR OLD.grp IS NOT NEW.grp BEGIN
	UPDATE {table} SET waits = 0 WHERE OLD.waits = 0 AND seq = ` + nextOfOld + `;
	UPDATE {table} SET waits = ` + follows + ` WHERE seq = NEW.seq;
END`,
}

const (
	// follows reports whether the group of a new row has a head besides it.
	follows = `EXISTS (SELECT 1 FROM {table} h WHERE h.queue = NEW.queue AND h.grp = NEW.grp AND h.waits = 0 AND h.seq <> NEW.seq)`
	// nextOfOld is the first follower in the group that a row has left.
	nextOfOld = `(SELECT n.seq FROM {table} n WHERE n.queue = OLD.queue AND n.grp = OLD.grp AND n.waits = 1 ORDER BY n.seq LIMIT 1)`
)

// depthOf counts, of each kind, the first rows in the index. What is held is due within 12 hours,
// so it stands before long delays. A group's followers count as visible.
const depthOf = `SELECT
	(SELECT count(*) FROM (SELECT 1 FROM {table} {ready} WHERE {visible} AND due <= ?2 LIMIT ?3)),
	(SELECT count(*) FROM (SELECT 1 FROM {table} INDEXED BY "{name}_group" WHERE queue = ?1 AND grp IS NOT NULL AND waits = 1 LIMIT ?3)),
	(SELECT count(*) FROM (SELECT held FROM {table} {ready} WHERE {visible} AND due > ?2 ORDER BY due LIMIT ?3) WHERE held = 1),
	(SELECT count(*) FROM (SELECT held FROM {table} {ready} WHERE {visible} AND due > ?2 ORDER BY due LIMIT ?3) WHERE held = 0),
	(SELECT due FROM {table} {ready} WHERE {visible} AND due <= ?2 ORDER BY due LIMIT 1)`
