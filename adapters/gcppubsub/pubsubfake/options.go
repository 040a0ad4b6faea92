package pubsubfake

// Options set up a server; the zero value is the service's behaviour, what it leaves to chance
// included.
type Options struct {
	// StrandCancelled lets a Pull whose caller went away go on until its end, as the service may:
	// what it finds is held, and nobody has it until the ack deadline. Off, it ends with its
	// caller.
	StrandCancelled bool
	// StaleAckIDs is what becomes of the ack ids of earlier deliveries while a later one is held,
	// on subscriptions without exactly-once delivery. Default StaleRandom.
	StaleAckIDs StaleAckIDs
	// Seed makes what is random play again: stale ack ids, and the rates of faults, for calls in
	// the same order. Default 0: the server draws one, which [Server.Seed] tells.
	Seed uint64
	// LogSize is how many calls [Server.Requests] remembers, and of how many messages of a
	// subscription [Server.Deliveries] tells. Default 10,000; negative means none. [Server.Counts]
	// counts all.
	LogSize int
	// Faults are those that the server begins with; see [Server.SetFaults].
	Faults []Fault
}
