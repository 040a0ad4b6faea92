// Package steering is how a worker obeys operators and shows itself to them: it reads their rules
// from the store, pauses and limits the worker by them, keeps its seat, and writes its card there.
// A [Steward] does so for one Run; a [Rulebook] is what a Processor knows of the rules, for calls
// and batches, too; a [Watchman] stops a queue whose store went back in time.
//
// The package knows no Worker, only what [Config] has of one. Which messages and calls a rule holds
// back is decided beside them, by what PausedJob answers: hosts.go and do.go of package onceq.
package steering
