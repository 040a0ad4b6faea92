package sqsfake

// Options set up a server; the zero value is AWS's behaviour, what AWS leaves to chance included.
type Options struct {
	// Account is the account id in queue URLs and ARNs. Default 000000000000.
	Account string
	// Region is the region in ARNs. Default us-east-1.
	Region string
	// MaxInFlight is how many messages of one queue may be in flight. Default and AWS's
	// limit 120,000; lower it to see what happens there.
	MaxInFlight int
	// ReportLostLeases answers a ChangeMessageVisibility that comes after the timeout with
	// MessageNotInflight. AWS answers OK and does nothing, so that nobody notices: switch it
	// on to find the callers who extend too late.
	ReportLostLeases bool
	// StrandCancelled lets a long poll whose caller went away go on until its end, as AWS
	// does: what it finds is in flight, and nobody has it. Off, it ends with its caller.
	StrandCancelled bool
	// RecreateAtOnce allows a queue to be created within 60 seconds of deleting one of the
	// same name. AWS refuses that with QueueDeletedRecently.
	RecreateAtOnce bool
	// StaleHandles is what becomes of receipt handles of earlier receives on standard queues.
	// Default StaleRandom.
	StaleHandles StaleHandles
	// ShortPolls is what a receive that does not wait brings from a standard queue. Default
	// ShortPollsSampled.
	ShortPolls ShortPolls
	// Seed makes what is random play again: stale handles, short polls, the order of a batch's
	// answers, the rates of faults. Each queue draws for itself, in the order of its calls.
	// Default 0: the server draws one, which [Server.Seed] tells, and [Start] logs when the test
	// has failed.
	Seed uint64
	// LogSize is how many requests [Server.Requests] remembers. Default 10,000; negative
	// means none. [Server.Counts] counts all.
	LogSize int
	// Faults are those that the server begins with; see [Server.SetFaults].
	Faults []Fault
}
