package onceq

import (
	"bytes"
	"errors"
	"sync"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// answer is what a call gets.
type answer struct {
	err    error
	stored bool   // result is what the store keeps
	result []byte // of JSON; nil = none is kept
	again  time.Time
	own    bool // it is for nobody but the call that found it
}

// flights are the claims and runs of Do that are under way in this Processor, one for each key.
// They only save questions to the store, which alone decides whether a key is free. mu guards the
// map; the channels of a flight hand its other fields over.
type flights struct {
	mu sync.Mutex
	of map[dedupe.Key]*flight
}

// flight is what the first call of a key shares with those that come while it is under way.
type flight struct {
	fingerprint []byte
	runs        chan struct{} // closed when its claim is won
	done        chan struct{} // closed at its end; answer is there then
	began       time.Time
	r           *run
	answer      answer
}

// join returns the flight of the call's key. If there is none, it starts one and this call leads.
// A call that cannot share gets none, and asks the store by itself. It cannot share if its
// fingerprint is not the first call's, or if the run has lost its claim.
func (fs *flights) join(k dedupe.Key, fingerprint []byte) (fl *flight, leads bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fl = fs.of[k]
	switch {
	case fl == nil:
		fl = &flight{fingerprint: fingerprint, runs: make(chan struct{}), done: make(chan struct{})}
		if fs.of == nil {
			fs.of = make(map[dedupe.Key]*flight)
		}
		fs.of[k] = fl
		return fl, true
	case fingerprint != nil && !bytes.Equal(fingerprint, fl.fingerprint), fl.isLost():
		return nil, false
	}
	return fl, false
}

func (fs *flights) end(k dedupe.Key, fl *flight, a answer) {
	fs.mu.Lock()
	delete(fs.of, k)
	fs.mu.Unlock()
	fl.answer = a
	close(fl.done)
}

func (fl *flight) won(r *run) {
	fl.began, fl.r = time.Now(), r
	close(fl.runs)
}

// isLost reports whether the run goes on without its claim.
func (fl *flight) isLost() bool {
	select {
	case <-fl.runs:
		return errors.Is(fl.r.Context().EndedBy(), ErrLeaseLost)
	default:
		return false
	}
}

// suits reports whether the answer to another call of the key is the answer to this one, too.
func (a *answer) suits(fingerprint []byte, reopens uint64) bool {
	var failed *FailedError
	var parked *ParkedError
	var mismatch *MismatchError
	switch {
	case a.own:
		return false
	case errors.As(a.err, &failed):
		return reopens != failed.Fence
	case errors.As(a.err, &parked):
		return reopens != parked.Fence
	case errors.As(a.err, &mismatch):
		return fingerprint != nil && reopens == 0
	}
	return true
}

var errNoAnswer = errors.New("onceq: the store gave no answer that counts")
