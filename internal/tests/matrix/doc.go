// Package matrix holds the crash matrix, which is all tests: for every call that a worker makes,
// what can go wrong with it, on every store and on SQS's two kinds of queues, for every kind of
// effect. One cell lets one call go wrong one way, lets another worker take over where the first
// has died, and then looks whether the promise was kept: how often the effect happened, that
// nothing is lost, and that no live worker stood in its own way. See README's promise, and
// DESIGN.md, section 1.
//
// The calls are found, not listed: a run without faults is recorded for each scenario, so that a
// call which a worker makes one day is in the matrix on that day. One cell is run with
//
//	go test ./internal/tests/matrix -run 'TestMatrix/^sqlite$/^complete-tx$/^retry$/^settle-1$/^lose-reply$'
//
// and prints, when it fails, the calls of both workers, the effects, the letters and the records.
package matrix
