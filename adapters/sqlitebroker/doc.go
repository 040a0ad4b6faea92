// Package sqlitebroker is a queue in a table of a SQLite file, over database/sql: the whole
// contract of package broker, and a send that is part of the user's transaction ([Queue.Tx]). A row
// that was committed has its job, a row that was rolled back has none. The driver is the user's
// choice; the package imports none.
//
//	db, err := sql.Open("sqlite", sqlitestore.DSN("orders.db")) // modernc.org/sqlite
//	store, err := sqlitestore.New(db, nil)
//	queue, err := sqlitebroker.New(store, "mail", nil)
//	err = errors.Join(store.Migrate(ctx), queue.Migrate(ctx)) // at every start
//
// The worker reads it as it reads SQS or Pub/Sub, so one line changes later. Any number of queues
// share a table. They need not be made: a queue is there when it has messages.
//
// # One writer
//
// SQLite lets one transaction write to a file at a time. So a queue writes through the store, and
// what its calls and the store's want at one time is one commit: a send, a claim, an ack. A call
// that fails takes no other with it. An idle queue only reads. Where others hold the file's write
// lock for longer than the store's BusyTimeout, a call answers [broker.ErrThrottled], and nothing
// was written.
//
// A job may complete, and send the next one, in one transaction:
//
//	err := store.Commit(ctx, j, func(tx *sql.Tx) (any, error) {
//		return nil, onceq.SendOne(ctx, queue.Tx(tx), &next)
//	})
//	queue.Wake()
//
// Commit takes its turn with the store's writes, and so does store.Write where there is no job. A
// transaction that is begun otherwise may be refused beside a busy worker ("database is locked").
//
// # Order
//
// Messages without a group come in the order in which they became due. Of a group one message is in
// flight at a time, in the order of the sends, which is that of the commits, because one
// transaction writes at a time. A message that fails and is given back stays the head of its group,
// which waits for it.
//
// # Latency
//
// A send through a Queue wakes a receive of that queue at once, through whichever Queue of the same
// store it waits. So does [Queue.Wake]. What becomes due is looked for when it is due. What another
// process has sent waits for the next look, half an [Options].Poll in the mean.
//
// # Rows that people can read
//
//	SELECT seq, queue, due, attempts, held, waits, grp, meta, attributes, CAST(body AS TEXT) FROM onceq_messages;
//
// A row with waits stands behind its group's head. held means that it was delivered and not given
// back: due is then the end of its timeout. Triggers keep the order of groups, so other programs
// may send by SQL, INSERT INTO onceq_messages (queue, grp, body) VALUES ('mail', 'order-7', '…'),
// and people may delete a row, or move it by UPDATE … SET queue. Times are UTC text like
// "2026-01-31T09:00:00.000000000Z".
//
// The clock is [time.Now]: one file means one host. Where it is set back, messages are late by as
// much.
package sqlitebroker
