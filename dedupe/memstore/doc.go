// Package memstore is a [dedupe.Store] in the memory of one process: for tests, and for programs
// whose broker does not outlive them either.
//
// It is bounded ([Options].MaxRecords), and it forgets everything when the process ends; a durable
// queue behind it is then read by a program that remembers nothing. Records of failed, released and
// parked jobs are never dropped to make room before they expire: whoever may send messages that
// fail can fill it, and claims of new keys are then answered with [dedupe.ErrFull]. Where senders
// are not trusted, use a store on disk.
//
// It starts no goroutine and no timer: records that have expired are dropped in passing, by the
// claims of new keys. Its time is [time.Now], so it works inside a testing/synctest bubble.
package memstore
