// Package sqlitestore is a [dedupe.Store] in a SQLite file, over database/sql: durable, shared by
// the processes of one host, and able to complete a job in the user's own transaction
// ([Store.CompleteTx]). The driver is the user's choice; the package imports none.
//
//	db, err := sql.Open("sqlite", sqlitestore.DSN("orders.db")) // modernc.org/sqlite
//	store, err := sqlitestore.New(db, nil)
//	err = store.Migrate(ctx)
//
// # One writer at a time
//
// SQLite lets one transaction write to a file at a time. So the store keeps one connection of the
// pool for its own writes. The calls of all goroutines that wait together go out in one BEGIN
// IMMEDIATE transaction: a batch forms while the one before it is in flight. Other processes on the
// same file take turns with it. The pool needs two connections or more, so that reads and the
// user's transactions have one too. A database in memory (":memory:") is another one on every
// connection, and [Store.Migrate] refuses it.
//
// If the file is locked for longer than [Options].BusyTimeout, the entries of the call answer
// [dedupe.ErrBusy]. Then nothing was written, and nothing is lost, because nobody else can take the
// key meanwhile either. While a transaction of the user's is open for writing, every renewal, claim
// and settlement on that file waits for it. Keep such a transaction shorter than a third of the
// lease, with nothing slow inside it. One that is held longer costs other jobs their leases.
//
// A transaction of the user's is best run by [Store.Commit], or without a job by [Store.Write]: it
// takes its turn with the store's own. One that just begins waits in SQLite's busy handler, which
// looks ten times a second, and a busy worker leaves the file free for an instant only. For such
// ones, as for other programs, the store pauses for 80 ms each 2 s, and more often once somebody
// came.
//
// The write-ahead log (journal_mode=WAL) is recommended, because without it readers and writers
// wait for each other. [DSN] sets it.
//
// # Rows that people can read
//
// The table has a column for each field of [dedupe.Record]. Status and policy are words, times are
// UTC text with nanoseconds ("2026-01-31T09:00:00.000000000Z"), which sorts as time does.
//
//	SELECT key, status, attempt, last_error FROM onceq_dedupe WHERE status = 'failed';
//
// The first 8 bytes of state are its number. Column past holds the earlier attempts of a job that
// was tried again, in a form of its own ([dedupe.DecodePast] reads it).
//
// Stop all processes before you replace the file, by a restore or mv. A process that runs would go
// on with the file that is gone, while another one wins the same keys in the new one. After a
// restore [Store.Migrate] raises the fence to the clock, above all that was given out since the
// backup.
//
// The store's clock is [time.Now]: one file means one host. It works inside a testing/synctest
// bubble that opens and closes the *sql.DB itself.
package sqlitestore
