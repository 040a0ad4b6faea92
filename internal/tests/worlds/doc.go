// Package worlds is all tests: the random worlds of internal/coretest/worlds on a store in SQLite
// and on queues of our own servers of SQS and Pub/Sub, in virtual time.
package worlds
