package pgbroker

// Wake lets a waiting receive of this Queue look at once. Call it after the COMMIT of a transaction
// in which messages were sent by [Queue.Tx] or [Queue.TxSQL], where producer and worker share the
// Queue: the message is then received in a millisecond instead of half a Poll. With
// [Options].Notify it also wakes the receives of other processes. It does no I/O that the caller
// waits for, and may be called at any time.
func (q *Queue) Wake() {
	q.groups.hint.Store(true)
	q.wakes.Wake()
	q.notify()
}
