package onceq

// Who brings runs is a host: a Worker, a batch or a call of Do. What differs between them stands here,
// once each, as data (terms) and as methods; nobody else asks who it is. The methods are called by the
// goroutine that has the run; start is called under the flow's lock.

import (
	"context"
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// host is who brought a run.
type host interface {
	// admit finds out what the run asks for, its key above all; or why no claim is made.
	admit(r *run) *refusal
	// takeover is told that another run holds the key. It is true when that one has taken over what
	// this one brought.
	takeover(r *run, c *dedupe.Claim) bool
	// storeErred is told of each call of the store that has failed; open tells that the call may
	// have had its effect all the same.
	storeErred(r *run, err error, open bool)
	// start gives a claimed run to a goroutine that calls Processor.work.
	start(r *run)
	// handle runs the handler.
	handle(r *run) error
	// broke is told, by the handler's goroutine, that it has panicked with v, or was ended (nil),
	// when the end is on its way.
	broke(r *run, v any)
	// observe tells of the run's end, before ended.
	observe(r *run)
	// ended acts on the disposition, and has the flow forget the run.
	ended(r *run)
}

// terms are what differs between hosts and needs no method.
type terms struct {
	base       context.Context // the handlers' values
	deliveries broker.Receiver // extends what the manager holds; nil = who brought the runs holds them
	ordered    bool            // deliveries of one group run one after the other
	letters    letterTo
	caller     context.Context // its end is the handler's, also where the handler notices first; nil = none
	deadline   time.Time       // when the handlers' contexts end; zero = never
	oneLease   bool            // a claim lasts as long as its delivery can be held, and is not renewed
	outage     time.Duration   // how long a store that does not answer is asked for a claim; 0 = as long as it takes
	confirm    time.Duration   // how long it is asked to confirm a start; 0 = as long as it takes
	waits      bool            // somebody waits for the end: no call is repeated beyond his bounds
	keepsEvery bool            // a result that is too large fails the job: later callers must not take its lack for one
	abandons   bool            // a stop has a hard end: what has not been settled by then is abandoned
}

// holds tells whether the manager keeps the deliveries.
func (t *terms) holds() bool { return t.deliveries != nil }

// letterTo is what becomes of a job that cannot be done.
type letterTo uint8

const (
	toQueue  letterTo = iota // its letter is put
	toNobody                 // it stays in its queue
	toCaller                 // its caller is told
)

// deliveryHost is what a Worker and a batch have in common.
type deliveryHost struct{ p *Processor }

func (h deliveryHost) admit(r *run) *refusal {
	p := h.p
	if p.doOnly {
		return p.misuse(r)
	}
	left := early(r.message)
	if left == 0 {
		return p.admit(r)
	}
	if no := p.tooEarly(r, left); no != nil {
		return no
	}
	return &refusal{back: OutcomeEarly, delay: left}
}

func (h deliveryHost) takeover(*run, *dedupe.Claim) bool { return false }
func (h deliveryHost) storeErred(*run, error, bool)      {}
func (h deliveryHost) broke(*run, any)                   {}
func (h deliveryHost) observe(r *run)                    { h.p.observeEnd(r) }
func (h deliveryHost) handle(r *run) error {
	return h.p.c.Handler.Handle(h.p.observeStart(r), &r.job)
}

// letters is where letters go, as far as the Processor's configuration says.
func (p *Processor) lettersTo() letterTo {
	if p.c.DeadLetter == KeepInQueue {
		return toNobody
	}
	return toQueue
}

// workerHost brings what a Worker has received. It is held, extended, acked and nacked here.
type workerHost struct {
	deliveryHost
	w     *Worker
	ready chan<- *run
}

func (h *workerHost) start(r *run) { h.ready <- r }

// ended acts on a disposition: what is to be acked or nacked stays held until that is known.
func (h *workerHost) ended(r *run) {
	switch w := h.w; r.action {
	case Ack:
		w.acks.Add(r)
	case Nack:
		if !w.delays(r) {
			w.nacks.Add(r)
		}
	default:
		w.p.release(r)
		r.f.gone(r)
	}
}

// takeover gives the receipt of a redelivery to the job that runs for the same message.
func (h *workerHost) takeover(again *run, _ *dedupe.Claim) bool {
	return again.f.handOver(again, func(r *run, m *broker.Message) {
		again.mu.Lock()
		// It may have been extended while it waited. From now on the running job extends it.
		ends, extending := again.deliveryEnds, again.extending
		again.keeping |= keepStopped
		again.mu.Unlock()
		r.mu.Lock()
		r.receipt, r.deliveryEnds, r.deliveryLost, r.received = m.Receipt, ends, false, again.received
		r.awaits(extending)
		r.mu.Unlock()
	})
}

// batchHost brings deliveries that somebody else holds: a call of Process or ProcessBatch.
type batchHost struct {
	deliveryHost
	starts sync.WaitGroup
	tell   func(i int, d Disposition)
}

func (h *batchHost) start(r *run) { h.starts.Go(func() { h.p.work(r) }) }

func (h *batchHost) ended(r *run) {
	h.p.leases.Release(&r.held)
	h.tell(int(r.index), Disposition{Action: r.action, Delay: r.verdict.Delay, Outcome: r.said, Record: h.p.timing(r)})
	r.f.gone(r)
}

// callHost brings the one run of a call of Do, whose goroutine runs it.
type callHost struct{ *try }

// admit has nothing to look up: a call knows its key.
func (h callHost) admit(*run) *refusal { return nil }

func (h callHost) takeover(_ *run, c *dedupe.Claim) bool {
	h.inWait, h.age = c.Left, c.Age
	return false
}

func (h callHost) storeErred(r *run, err error, open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.storeErr, h.asking = err, open && r.at() < claimed
}

func (h callHost) start(r *run) { h.try.start(r) }

func (h callHost) handle(r *run) error {
	h.err = h.c.f(h.c.p.observeStart(r), &r.job)
	return h.err
}

// broke passes a panic on to the caller, while its stack is still there.
func (h callHost) broke(_ *run, v any) {
	<-h.try.ended
	if v != nil {
		// invariant: v is what the caller's own function has panicked with
		panic(v)
	}
}

// observe leaves out a call that asks again: there is one record for a call.
func (h callHost) observe(r *run) {
	if r.said != dedupe.InProgress || !h.c.waits(time.Now()) {
		h.c.p.observeEnd(r)
	}
}

func (h callHost) ended(*run) { h.try.end() }
