// Package pgbroker is a queue in a table of the user's own PostgreSQL, over pgx v5: the whole
// contract of package broker, and a send that is part of the user's transaction ([Queue.Tx],
// [Queue.TxSQL]). A row that was committed has its job, a row that was rolled back has none.
//
//	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
//	queue, err := pgbroker.New(pool, "mail", nil)
//	err = queue.Migrate(ctx) // at every start, by as many starters as there are
//
// The worker reads it as it reads SQS or Pub/Sub. So a team may begin with the database that it
// has, and change one line later. With pgstore in the same database a job may also complete and
// send the next one in one transaction:
//
//	return store.Commit(ctx, j, func(tx pgx.Tx) (any, error) {
//		next := onceq.Message("ship", "", j.Message.Body)
//		return nil, onceq.SendOne(ctx, queue.Tx(tx), &next)
//	})
//
// Any number of queues share a table. They need not be made: a queue is there when it has messages.
//
// # Order
//
// Messages without a group come in the order in which they became due. One that is given back goes
// to the end.
//
// Of a group one message is in flight at a time. Messages of a group come in the order of their
// rows' numbers, which are given when the send runs, not when its transaction is committed. That is
// the order of the commits, where the send stands behind the statement that lets the writers of the
// group take turns, such as the UPDATE of the order that the group is named after:
//
//	UPDATE orders SET state = 'paid' WHERE id = $1   -- a second writer waits here
//	INSERT INTO onceq_messages …                     -- that is Send
//	COMMIT
//
// The other way round, a writer may take the lower number and commit later. Its message then comes
// behind those of its group that were received before it was committed. It is never lost.
//
// A message that fails and is given back stays the head of its group, which waits for it.
//
// # A transaction that stays open
//
// A message whose transaction is committed late is found late, though not by much. Looks begin at
// the due time that the last one reached, because the entries before that are mostly dead. They
// pile up while somebody's long transaction keeps vacuum from removing them: a report, a backup, a
// replica with hot_standby_feedback. A full look goes when twenty times as long as the last one
// took has passed, 4 s at most. It finds what was committed late. So receives stay as fast as they
// were, and a late commit waits milliseconds on a quiet server, and up to 5 s on one whose vacuum
// is kept back. Of a group each message is found past those that the group has had since that
// transaction began: a group that has many of them meanwhile gets slower.
//
// # Latency
//
// A send through a Queue wakes a receive of the same Queue at once. So does [Queue.Wake], which is
// for the moment after the COMMIT of a transaction in which something was sent. Between processes a
// message waits for the next look, half an [Options].Poll in the mean. An idle Queue looks each
// Poll, 10 times a second unless set, whatever the number of its receives. [Options].Notify is for
// a longer Poll.
//
// # What waits for what
//
// A receive waits for no row. A settlement waits 300 ms at most for one that an operator, or a
// debugger, has locked; then that entry alone is answered [broker.ErrThrottled]. Where the whole
// table is locked (ALTER TABLE, VACUUM FULL, LOCK TABLE), calls give up after 4 s, or at the end of
// their context, with ErrThrottled: nothing was written.
//
// Give the worker's queue a pool of its own, or one that it shares with its store, of four
// connections or more: in a pool whose connections the handlers' transactions may hold, acks and
// extensions would wait for them.
//
// # Settings, rights, versions
//
// PostgreSQL 13 or later, whose database has the encoding UTF8. In each transaction of its own the
// queue sets what it needs: READ COMMITTED, the client's encoding, the forms of results, the
// planner. The insertion of [Queue.Tx] depends on none of it. So the defaults of the role or the
// database do not matter, but for default_transaction_read_only. With QueryExecModeSimpleProtocol
// pgx itself wants client_encoding UTF8, and Migrate says so. Poolers in transaction mode
// (PgBouncer) work, but not with Notify; below PgBouncer 1.21 use QueryExecModeExec or
// QueryExecModeCacheDescribe.
//
// A worker's role needs SELECT, INSERT, UPDATE and DELETE on the table, and USAGE on its schema.
// Nobody needs a right on the sequence. [Queue.Migrate] needs CREATE on the schema only when
// something is missing. The statements name the schema of each function, type and operator, and of
// the table once Migrate was called; give the table a schema in which others may not create
// ([Options].Table "jobs.messages").
//
// A producer's role needs USAGE on the schema and
//
//	GRANT INSERT (queue, due, waits, fresh, grp, meta, attributes, body), SELECT (seq) ON onceq_messages TO shop;
//
// With SELECT on the whole table it would read every queue in it, dead letters and their fences
// too. With these rights it still writes to every queue in it, that of the dead letters too. So
// give each circle of producers that trust each other a table of its own, or row policies:
//
//	ALTER TABLE onceq_messages ENABLE ROW LEVEL SECURITY;
//	CREATE POLICY workers ON onceq_messages TO worker USING (true);
//	CREATE POLICY shop_writes ON onceq_messages FOR INSERT TO shop WITH CHECK (queue = 'mail');
//	CREATE POLICY shop_reads ON onceq_messages FOR SELECT TO shop USING (queue = 'mail');
//
// Who may connect to the database may notify, because PostgreSQL has no rights on channels. With
// [Options].Notify that makes a waiting worker look, 20 times a second at most.
//
// # Rows that people can read
//
//	SELECT seq, queue, due, attempts, held, grp, meta, attributes, convert_from(body, 'UTF8') FROM onceq_messages;
//
// A row with waits stands behind its group's head; one with fresh was not looked at yet. held means
// that it was delivered and not given back: due is then the end of its timeout.
//
// Other programs may send by SQL: INSERT INTO onceq_messages (queue, body) VALUES ('mail', '…'),
// and with a group also grp, with fresh and waits true. To remove a message by hand, receive and
// ack it, or delete its row. After a group's head was deleted, its group must be told:
//
//	UPDATE onceq_messages SET fresh = true WHERE queue = 'mail' AND grp = 'order-7' AND waits;
//
// Bodies, values of attributes and metadata may hold any text, NUL included. Groups and the names
// of queues are text of PostgreSQL, which has no NUL; those are refused, as is what is not UTF-8.
package pgbroker
