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
// That is the cheapest form: it begins and commits the transaction itself, on the store's pool.
// Where the transaction is somebody else's (of another pool, a framework, database/sql), or its
// options are the user's, complete the job within it; that is one statement more:
//
//	return pgx.BeginTxFunc(ctx, h.pool, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
//		if err := h.store.CompleteTx(ctx, tx, job, nil); err != nil {
//			return err
//		}
//		_, err := tx.Exec(ctx, "UPDATE stock SET pieces = pieces - 1 WHERE item = $1", item)
//		return err
//	})
//
// Under REPEATABLE READ and SERIALIZABLE, CompleteTx must be the first statement, as here; under
// READ COMMITTED it had better be the last, for it locks the job's row. Commit's completion is the
// last in any case.
//
// # What waits for what
//
// A call of the store is one transaction that is sent as a whole: one round trip for a batch of
// renewals or settlements, and for claims of new keys; a claim that takes over, or reopens, needs
// two. None waits for a row that another transaction holds. A renewal or settlement that meets one
// answers [dedupe.ErrBusy], a claim "in progress", and the rest of the batch goes on, so that a
// business transaction that is held open costs no other job its lease. Only the settlement of a job
// that the handler has joined to a transaction waits, by itself, for that one to end, until its
// context's deadline. And the claim of a new key waits for a rival's that is just being committed:
// for 250 ms at most, or a twentieth of the call's time; then that key alone is busy. Where hosts
// may vanish in mid-transaction, set tcp_keepalives_idle on the server to a minute or so, for on
// its defaults it keeps what they held for hours.
//
// Give the store a pool of its own, of two to four connections. In one that it shares with the
// handlers, their transactions can hold every connection; the renewals then wait with all other
// calls, the leases run out, and other workers begin the same jobs anew. CompleteTx runs on the
// connection of the handler's transaction, so the store's pool need only lead to the same database.
// Commit runs on its store's pool, so give the handlers a second store, on theirs:
//
//	store, err := pgstore.New(pool, nil)       // the worker's
//	theirs, err := pgstore.New(handlers, nil)  // the handlers call theirs.Commit
//
// Leases are judged by the server's clock alone; those of the workers may differ. The store names
// its isolation level (READ COMMITTED), the client's encoding, the forms of results and the planner
// settings it needs in each transaction but that of a Commit or a CompleteTx, whose statement
// depends on none; so the defaults of the role or the database do not matter (with
// QueryExecModeSimpleProtocol pgx itself wants client_encoding UTF8). Poolers in transaction mode
// (PgBouncer) work with every [pgx.QueryExecMode]; below PgBouncer 1.21 use QueryExecModeExec or
// QueryExecModeCacheDescribe.
//
// A lock on the whole table (ALTER TABLE, VACUUM FULL, LOCK TABLE) is waited for: by renewals and
// settlements until the deadline of their context, 5 s in a worker, which then costs their
// connection; by claims for 250 ms, but on a connection that has not prepared their statements yet
// until the deadline, too. Such a lock that is held for longer than a third of the lease costs
// leases: do it with lock_timeout set, and in seconds. Do not send the store to a replica. With
// synchronous_commit = off, or a failover to a replica that lags, the server may forget what it has
// confirmed, and a job may then run twice.
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
// Beside the table stand an index on expires and a sequence, from which every claim takes its
// fence. The sequence starts at the clock's microseconds and survives the records, so that a dead
// letter never matches a failure that is not its own. A copy of the database that came without its
// sequences (logical replication, pg_dump --schema-only), or an older state of it, would give out
// fences a second time. So [Store.Migrate] keeps the sequence a minute ahead of the clock. That
// takes UPDATE on the sequence. Where no role that runs Migrate has it, raise the sequence by hand
// before the first worker starts:
//
//	SELECT setval('onceq_dedupe_fence', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 70000000);
//
// Call
// [Store.Sweep] now and then, from a cron job or a ticker, to delete what has expired.
//
// # Rights and versions
//
// A worker's role needs SELECT, INSERT, UPDATE and DELETE on the table and USAGE on the sequence
// and the schema. [Store.Migrate] needs CREATE on the schema only when something is missing, so
// that another role may run it beforehand. The database's encoding must be UTF8, and its version 13
// or later; columns scope and key of a table that was made by hand need COLLATE "C".
//
// The statements name the schema of each function, type and operator, and of the table when Migrate
// was called, so that nobody who may create in a schema of the search_path can put anything in
// their place. But who can make the table itself before Migrate does, with triggers of his own,
// could. Give it a schema in which others may not create ([Options].Table "jobs.records"), and on
// databases that come from version 14 or before, where every role may create in the schema public:
//
//	REVOKE CREATE ON SCHEMA public FROM PUBLIC;
package pgstore
