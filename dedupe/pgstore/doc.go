// Package pgstore is a [dedupe.Store] in a PostgreSQL table, over pgx v5: durable, shared by any
// number of workers on any number of hosts, and able to complete a job in the user's own
// transaction: in the round trip of its COMMIT ([Store.Commit]), or as a statement of a transaction
// of pgx ([Store.CompleteTx]) or database/sql ([Store.CompleteSQL]).
//
//	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // for the store alone
//	store, err := pgstore.New(pool, nil)
//	err = store.Migrate(ctx) // at every start, by as many starters as there are
//
// # Exactly one effect
//
// A handler whose effects are rows in the same database completes its job in the transaction that
// writes them. Both are committed or neither is, whatever crashes, and a worker that was overtaken
// cannot commit at all:
//
//	func (h *handler) Handle(ctx context.Context, job *onceq.Job) error {
//		return h.store.Commit(ctx, job, func(tx pgx.Tx) (any, error) {
//			_, err := tx.Exec(ctx, "UPDATE stock SET pieces = pieces - 1 WHERE item = $1", item)
//			return nil, err // or the job's result
//		})
//	}
//
// That is the cheapest form. Commit begins and commits the transaction itself, on the store's pool.
// If the transaction comes from another pool, a framework or database/sql, or if it needs options
// of its own, complete the job within it. That is one statement more:
//
//	return pgx.BeginTxFunc(ctx, h.pool, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
//		if err := h.store.CompleteTx(ctx, tx, job, nil); err != nil {
//			return err
//		}
//		_, err := tx.Exec(ctx, "UPDATE stock SET pieces = pieces - 1 WHERE item = $1", item)
//		return err
//	})
//
// Under REPEATABLE READ and SERIALIZABLE, CompleteTx must be the first statement, as here. Under
// READ COMMITTED it should be the last, because it locks the job's row. Commit's completion is
// always the last.
//
// # What waits for what
//
// A call of the store is one transaction that is sent as a whole. A batch of renewals, settlements
// or claims of new keys takes one round trip. A claim that takes over, or reopens, takes two. So
// does a claim that meets a rival while both insert the same key.
//
// No call waits for a row that another transaction holds. A renewal or settlement that meets such a
// row answers [dedupe.ErrBusy], and a claim answers "in progress". The rest of the batch goes on.
// So a business transaction that is held open costs no other job its lease. There are two
// exceptions:
//
//   - The settlement of a job that the handler has joined to a transaction waits for the end of
//     that transaction, alone, until its context's deadline.
//   - The claim of a new key waits for a rival's claim that is just being committed, for 250 ms at
//     most, or a twentieth of the call's time. Then that key alone is busy.
//
// If hosts may vanish in the middle of a transaction, set tcp_keepalives_idle on the server to a
// minute or so, because on its defaults the server keeps their locks for hours.
//
// Give the store a pool of its own, of two to four connections. In a pool that it shares with the
// handlers, their transactions can hold every connection. Then the renewals wait, the leases run
// out, and other workers begin the same jobs anew. CompleteTx runs on the connection of the
// handler's transaction, so the store's pool need only lead to the same database. Commit runs on
// its store's pool, so give the handlers a second store, on their pool:
//
//	store, err := pgstore.New(pool, nil)       // the worker's
//	theirs, err := pgstore.New(handlers, nil)  // the handlers call theirs.Commit
//
// The server's clock alone judges leases; the workers' clocks may differ. In each transaction the
// store sets what it needs: the isolation level (READ COMMITTED), the client's encoding, the forms
// of results, the planner. So the defaults of the role or the database do not matter. The
// statements of Commit and CompleteTx run in the user's transaction and depend on none of it. (With
// QueryExecModeSimpleProtocol pgx itself wants client_encoding UTF8, and Migrate says so.) Poolers
// in transaction mode (PgBouncer) work with every [pgx.QueryExecMode]. Below PgBouncer 1.21 use
// QueryExecModeExec or QueryExecModeCacheDescribe.
//
// A lock on the whole table (ALTER TABLE, VACUUM FULL, LOCK TABLE) makes calls wait:
//
//   - Renewals and settlements wait until the deadline of their context, 5 s in a worker. That
//     costs their connection.
//   - Claims wait for 250 ms; on a connection that has not prepared their statements yet, until the
//     deadline, too.
//
// Such a lock costs leases when it is held for longer than a third of the lease. Take it with
// lock_timeout set, and for seconds. Do not send the store to a replica. With synchronous_commit =
// off, or after a failover to a replica that lags, the server may have forgotten what it had
// confirmed, and a job may run twice.
//
// # Rows that people can read
//
// The table has a column for each field of [dedupe.Record]. Status and policy are words, times
// timestamptz. The first 8 bytes of state are its number.
//
//	SELECT key, status, attempt, owner, last_error, updated FROM onceq_dedupe WHERE status = 'failed';
//
// PostgreSQL's text holds no NUL and no invalid UTF-8: in owner, message id and errors they become
// U+FFFD, and keys that have them are refused by [dedupe.Key.Validate].
//
// Column past holds the earlier attempts of a job that was tried again, in a form of its own
// ([dedupe.DecodePast] reads it).
//
// Beside the table stand an index on expires, one on what failed, is parked or was released, and a
// sequence, from which every claim takes its
// fence. The sequence starts at the clock's microseconds and survives the records, so that a dead
// letter never matches a failure that is not its own. A copy of the database that came without its
// sequences (logical replication, pg_dump --schema-only), or an older state of it, would give out
// fences a second time. So [Store.Migrate] keeps the sequence a minute ahead of the clock. That
// takes UPDATE on the sequence. Where no role that runs Migrate has it, raise the sequence by hand
// before the first worker starts:
//
//	SELECT setval('onceq_dedupe_fence', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 70000000);
//
// A worker deletes what has expired by itself, one of a fleet at a time. Where there is none, such
// as under a Lambda function or in a program that only calls onceq.Do, call [Store.Sweep] now and
// then, from a cron job or a ticker.
//
// A done job takes about 430 bytes with its index. So 100 jobs a second, kept for the default 31
// days, are 268 million rows and some 115 GB. The retention may not be shorter than the queue and
// the dead-letter queue keep a message together: shorten that first.
//
// # Rights and versions
//
// This is version 2 of the table. [Store.Migrate] leads there from version 1 beside workers of
// either version, which may also start again in any order: migrate first, then deploy. A worker of
// version 1 leaves the columns that came since as they are.
//
// A worker's role needs SELECT, INSERT, UPDATE and DELETE on the table and USAGE on the sequence
// and the schema. [Store.Migrate] needs CREATE on the schema only when something is missing, so
// that another role may run it beforehand. To change a table of an older version it needs the
// table's owner. The database's encoding must be UTF8, and its version 13 or later; columns scope
// and key of a table that was made by hand need COLLATE "C".
//
// The statements name the schema of each function, type and operator, and of the table once Migrate
// was called. So a role that may create in a schema of the search_path cannot put anything in their
// place. But it could make the table itself before Migrate does, with triggers of its own. Give it
// a schema in which others may not create ([Options].Table "jobs.records"), and on databases that
// come from version 14 or before, where every role may create in the schema public:
//
//	REVOKE CREATE ON SCHEMA public FROM PUBLIC;
package pgstore
