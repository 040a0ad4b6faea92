package bench

import (
	"strconv"
	"sync/atomic"
	"time"
)

// work is n messages on their way. It is over when all are acked.
type work struct {
	n         int64
	handled   atomic.Int64
	settled   atomic.Int64
	all, gone chan struct{}
	// waits are the times from a message's send to its handler, in nanoseconds, where the bodies
	// are the times of the sends; else nil.
	waits []int64
}

func newWork(n int) *work {
	return &work{n: int64(n), all: make(chan struct{}), gone: make(chan struct{})}
}

// handle is every variant's handler.
func (w *work) handle(body []byte) {
	at := w.handled.Add(1)
	if w.waits != nil && at <= w.n {
		sent, _ := strconv.ParseInt(string(body), 10, 64)
		w.waits[at-1] = time.Now().UnixNano() - sent
	}
	if at == w.n {
		close(w.all)
	}
}

// acked is told how many messages the service has just removed.
func (w *work) acked(n int) {
	if n > 0 && w.settled.Add(int64(n)) == w.n {
		close(w.gone)
	}
}
