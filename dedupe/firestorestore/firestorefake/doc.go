// Package firestorefake is a Firestore server for tests: in memory, over gRPC, with the calls that
// a [dedupe.Store] on Firestore makes and those of a user's transaction.
//
//	server, address := firestorefake.Start(t, nil)
//	t.Setenv("FIRESTORE_EMULATOR_HOST", address) // Google's clients and firestorestore.NewAPI read it
//
// [Conn] connects without a network: in a bubble of testing/synctest a lease of ten minutes
// ends in a moment.
//
// BatchWrite, Commit, BeginTransaction, Rollback, BatchGetDocuments and RunQuery are there; a query
// has one filter of a field at most, an order, a limit and a cursor. What asks for more is answered
// Unimplemented. Calls are not authenticated.
//
// # What is strict, and why
//
//   - A write that changes nothing keeps the update time, so that a swap on the update time sees no
//     change.
//   - A transaction's reads lock their documents, and a write of anybody else waits for its end. So
//     it is in databases with pessimistic concurrency, which is the default. Two transactions that
//     wait for each other, and who waits longer than [Options.LockWait], are answered ABORTED. What
//     waits is written in the end also where its caller has given up, as by the emulator.
//   - A transaction ends after [Options.Idle] without a call, and its locks with it.
//   - A BatchWrite takes 500 writes, each document once, and a document 1 MiB. Each write has its
//     own answer, and none knows of the others.
//   - A TTL policy deletes what has expired when a test calls [Server.Expire]: the service does so
//     within a day, and nobody knows when.
//
// # Differences
//
// Google's emulator takes more than 500 writes, limits a value where the service limits a document,
// and says "entity" where the service says "document". The fake has the service's texts, as people
// have reported them; see [Refusals]. A test holds the fake to the emulator in all else.
//
// Experimental: it may change in any minor version. docs/release.md says what that means.
package firestorefake
