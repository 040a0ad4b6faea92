package onceq

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/values"
)

// Processor knows what is done with jobs, and keeps what it knows of their store. It does nothing
// by itself. Jobs come to it in three ways, and one Processor can serve any number of them at once:
//
//   - [Processor.Worker] receives the messages of a queue, in a process that stays;
//   - [Processor.Batches] takes messages that somebody else has received, as the caller of a
//     serverless function does;
//   - [Do] runs a function of the caller's, without a queue.
type Processor struct {
	c          ProcessorConfig
	types      map[string]*jobType // under a Mux
	storeOut   engine.Outage       // for all intakes: one outage is told of once
	storePulse engine.StorePulse   // the same
	events     WorkerObserver      // nil = the Observer is none
	all        engine.Roll         // what is under way, of all intakes
	calls      *intake             // of Do
	flights    flights             // of Do

	asked    asked
	hidesMux atomic.Bool // a job has shown that the Handler wraps a Mux
	handled  atomic.Bool // another job was handled all the same, so not all jobs go to that Mux

	mu      sync.Mutex
	unnamed any // the queue or the Batches that has no Name; nil = each has one
}

// asked is what a WARN has asked about: a time without its unit, which has come where no error can
// be answered. Each is asked about once.
type asked struct{ retryAfter, minTime, outage atomic.Bool }

// NewProcessor validates the configuration; it does no I/O. A mistake is a *[ConfigError], which
// names the field and its limit.
func NewProcessor(c ProcessorConfig) (*Processor, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	p := &Processor{c: c}
	p.events, _ = broker.As[WorkerObserver](c.Observer)
	if m := muxIn(c.Handler); m != nil {
		p.types = m.snapshot(c.Scope)
		tellSharedScopes(c.Logger, p.types)
	}
	var err error
	p.calls, err = p.newIntake(deliveries{letters: KeepInQueue, visibility: min(c.Lease, DefaultVisibility)})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// checkName lets one queue at most do without a Name, whatever its Workers. Otherwise neither the
// log nor a dead letter would tell which of two queues it is about.
func (p *Processor) checkName(of, name string, source any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case name != "" || p.unnamed != nil && values.Same(p.unnamed, source):
	case p.unnamed != nil:
		return badConfig(of+".Name", "is empty, and another queue of the Processor has none either; logs and dead letters tell queues apart by it")
	default:
		p.unnamed = source
	}
	return nil
}

// checkHandler refuses to take deliveries where nobody would handle them.
func (p *Processor) checkHandler() error {
	if values.IsNil(p.c.Handler) {
		return badConfig("ProcessorConfig.Handler", "is nil; give a *Mux or a Handler (only Do needs none)")
	}
	return nil
}

func (p *Processor) retention() time.Duration { return p.c.Retention }

func (p *Processor) mostResult() int { return p.c.Store.Limits().MaxResult }

// serves reports whether the Mux is the Processor's Handler, and whether it had a handler of the
// type when the Processor was made.
func (p *Processor) serves(m *Mux, typ string) (own, knows bool) {
	return muxIn(p.c.Handler) == m, p.types[typ] != nil
}
