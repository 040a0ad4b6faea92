package sqlitewriter

import "time"

// Call is what one caller wants of a transaction.
type Call struct {
	// Apply does it. It may run again from the start, in a new transaction, where another call has
	// failed the first one. What it fails with concerns its own call alone.
	Apply func(*Txn) error
	// Wait is how long the call waits for the file's lock before it answers ErrLocked.
	Wait time.Duration
	// Grace is how long the call still waits for a transaction that is under way when the caller's
	// context has ended.
	Grace time.Duration
	// Entries is what the call counts for in a transaction of MostEntries.
	Entries int
}

// call is a Call on its way.
type call struct {
	*Call
	err  error         // set before done is closed
	done chan struct{} // closed when the call is answered
}

// turn is a transaction of the user's that waits for the writer, or has it.
type turn struct {
	granted chan struct{} // closed when the writer stands still
	over    chan struct{} // closed when the transaction has ended
	err     error         // set before granted is closed: the writer is closed
}

func answer(batch []*call, err error) {
	for _, c := range batch {
		c.err = err
		close(c.done)
	}
}
