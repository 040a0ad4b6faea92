package rig

import (
	"context"
	"errors"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/onceqtest"
)

// Mortal is a process that a test kills, and the store and the queue as it has them.
func Mortal(s dedupe.Store, q broker.Receiver) (*onceqtest.Process, dedupe.Store, broker.Receiver) {
	p := new(onceqtest.Process)
	// Claims take a while, as those of real stores do, so that a lease ends after its delivery.
	p.At(onceqtest.Fault{Op: onceqtest.Claim, Times: -1, Kind: onceqtest.Slow, Delay: 5 * time.Millisecond})
	return p, p.Store(s), shortPolls{p.Receiver(q)}
}

// shortPolls is a queue whose receives do not wait: a poll that waits would outlive the crash.
// Those of the dead are never answered.
type shortPolls struct{ broker.Receiver }

func (q shortPolls) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	o.Wait = -1
	ms, err := q.Receiver.Receive(ctx, o)
	switch {
	case errors.Is(err, onceqtest.ErrDead):
		<-ctx.Done()
	case len(ms) == 0 && err == nil:
		Takes(100 * time.Millisecond)
	}
	return ms, err
}

// Beside runs another worker until the end of the bubble.
func (r *Rig) Beside(set func(c *Setup)) (stop func()) {
	w, done := r.Worker(set), make(chan error, 1)
	ctx, cancel := context.WithCancel(r.Context())
	go func() { done <- w.Run(ctx) }()
	return func() {
		cancel()
		<-done
	}
}
