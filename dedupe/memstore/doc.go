// Package memstore is a [dedupe.Store] in the memory of one process: for tests, and for programs
// whose broker does not outlive them either.
//
//	store, err := memstore.New(nil)
//	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Handler: h, Store: store, Scope: "orders"})
//
// It is bounded ([Options].MaxRecords), and it forgets everything when the process ends. If the
// queue is durable, its messages are then read by a program that remembers nothing. To make room,
// the store never drops records of failed, released and parked jobs before they expire. So whoever
// may send messages that fail can fill it, and claims of new keys are then answered with
// [dedupe.ErrFull]. If you do not trust the senders, use a store on disk.
//
// It starts no goroutine and no timer. Claims of new keys drop records that have expired in
// passing. Its time is [time.Now], so it works inside a testing/synctest bubble.
package memstore
