package onceq

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/steering"
	"github.com/onceq/onceq/internal/values"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns Processor: how it is made, what it refuses of its Workers and Batches, and the
// calls of Do that share an answer. p.mu guards unnamed alone; flights have a lock of their own.

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
	oneScope   bool                // of all types, those of other workers included
	storeOut   engine.Outage       // for all intakes: one outage is told of once
	storePulse engine.StorePulse   // the same
	fences     engine.Fences       // the same
	events     WorkerObserver      // nil = the Observer is none
	all        engine.Roll         // what is under way, of all intakes
	book       *steering.Rulebook  // the operators' rules
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
type asked struct{ retryAfter, minTime, outage, unsteered atomic.Bool }

// NewProcessor validates the configuration; it does no I/O. A mistake is a *[ConfigError], which
// names the field and its limit.
func NewProcessor(c ProcessorConfig) (*Processor, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	c.Control = controlOn(c.Store, c.Control)
	p := &Processor{c: c, book: steering.NewRulebook(steering.BookConfig{
		Store: c.Store, Every: c.Control.Every, Required: c.Control.Required, CallTimeout: c.CallTimeout, Logger: c.Logger,
	})}
	p.events, _ = broker.As[WorkerObserver](c.Observer)
	if m := muxIn(c.Handler); m != nil {
		p.types, p.oneScope = m.snapshot(c.scopes())
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

// checkRelayed is checkRelay for what is said of a queue; nil = nobody knows the queue.
func (p *Processor) checkRelayed(of string, letters broker.Sender, queue broker.Receiver) error {
	to := relayIn(p.c.Handler)
	switch {
	case to == nil:
		return nil
	case letters != KeepInQueue:
		return badConfig(of+".DeadLetter", "a Forward needs KeepInQueue: a letter of a message that was not sent could not be replayed, because no key was claimed")
	case queue != nil && values.Same(to.to, queue):
		return badConfig("Forward", "the destination is the queue itself, which would send its messages to itself for ever")
	}
	return nil
}

// checkRoom refuses a Worker that has too few slots for a full batch.
func (p *Processor) checkRoom(slots int) error {
	check := func(h Handler, of string) error {
		if k := knownIn(h); k != nil && slots < k.slots() {
			return badConfig("WorkerConfig.Concurrency", "%d is below %d, the Max of the Bulk handler%s: no batch could be full", slots, k.slots(), of)
		}
		return nil
	}
	m := muxIn(p.c.Handler)
	if m == nil {
		return check(p.c.Handler, "")
	}
	return m.each(func(typ string, h Handler) error {
		return check(h, fmt.Sprintf(" of type %q", verdict.Clip(typ, verdict.MaxClass)))
	})
}

// typeNames are the types of the Mux, in order.
func (p *Processor) typeNames() []string {
	names := make([]string, 0, len(p.types))
	for t := range p.types {
		if t == "" {
			continue // Mux.Untyped
		}
		names = append(names, t)
	}
	slices.Sort(names)
	return names
}

func (p *Processor) retention() time.Duration { return p.c.Retention }

func (p *Processor) relaying() (to *relay, timeout time.Duration, keyed bool) {
	return relayIn(p.c.Handler), p.c.CallTimeout, p.c.Key != nil
}

// MaxResult is how long a result may be that the Processor's store keeps, in bytes; 0 = any length.
// It does no I/O.
func (p *Processor) MaxResult() int { return p.mostResult() }

func (p *Processor) mostResult() int { return p.c.Store.Limits().MaxResult }

// serves reports whether the Mux is the Processor's Handler, and whether it had a handler of the
// type when the Processor was made.
func (p *Processor) serves(m *Mux, typ string) (own, knows bool) {
	return muxIn(p.c.Handler) == m, p.types[typ] != nil
}

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
