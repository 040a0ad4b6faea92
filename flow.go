package onceq

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
)

// flow is the way of the deliveries of one Worker.Run, or of one Process call, through the slots: which
// may be claimed now, which wait, and which hold their group.
type flow struct {
	p     *Processor
	host  host
	t     terms
	o     flowOptions
	epoch time.Time // from which its runs count their times

	shut      atomic.Bool // stopped or paused, to be asked without the lock
	storeAway atomic.Bool // paused because the store does not answer

	mu        sync.Mutex
	room      sync.Cond // reserve waits for it
	idle      sync.Cond // wait waits for it
	asking    int       // goroutines in reserve
	few       int       // what they ask for at least
	queue     []*run    // waiting, in the order they came; group followers are in their lane
	first     int       // of queue
	lanes     map[string]*lane
	reserved  int           // asked of the broker and not here yet
	pending   int           // here, and not in a slot; without the followers
	followers int           // here, behind one of their group
	busy      int           // slots: from the claim to the handler's return
	unsettled int           // from the handler's return to the disposition
	delayed   int           // held here for the delay of their nack
	troubled  int           // claims that the store could not answer and has not yet
	live      *run          // list of all that are not gone
	count     int           // of live
	stopped   bool          // drain: nothing new starts
	since     time.Duration // the epoch, when it stopped
	paused    bool          // as stopped, until Resume
	closed    bool          // hard end: what still happens is nobody's business any more
}

type flowOptions struct {
	slots    int        // handlers at once
	capacity int        // held at once, before their handlers have returned
	live     int        // the same, those included that wait for their ack or nack; with more nothing is received
	follow   int        // followers held at once, beside these; 0 = all that come
	nack     func(*run) // of one whose delay was waited for here
}

// lane is a group: one of its deliveries is on its way, the others wait behind it. They need no slot before it has ended,
// so they take no room from other groups, and the broker brings no more of the group meanwhile.
type lane struct {
	group     string
	followers []*run
	closed    bool // a follower was handed back: what comes behind it must not stay
}

func newFlow(p *Processor, h host, t terms, o flowOptions) *flow {
	f := &flow{p: p, host: h, t: t, o: o, epoch: time.Now()}
	f.room.L, f.idle.L = &f.mu, &f.mu
	return f
}

// reserve waits until there is room for at least few messages and takes room for up to many. It is 0
// when the flow stops.
func (f *flow) reserve(few, many int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.few = few
	f.asking++
	defer func() { f.asking-- }()
	for !f.stopped {
		if f.hasRoom() {
			n := min(f.free(), many)
			f.reserved += n
			return n
		}
		f.room.Wait()
	}
	return 0
}

// unreserve gives room back that was reserved for a receive which is overdue. What it may still bring is taken in beyond the room.
func (f *flow) unreserve(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reserved -= n
	f.tell()
}

func (f *flow) free() int { return f.o.capacity - f.reserved - f.pending - f.busy }

func (f *flow) hasRoom() bool {
	return !f.paused && f.troubled == 0 && f.unsettled < f.o.slots && f.count-f.followers < f.o.live && f.free() >= f.few
}

// tell wakes a poller if there is something for it to do; called with the lock held.
func (f *flow) tell() {
	if f.asking > 0 && (f.stopped || f.hasRoom()) {
		f.room.Broadcast()
	}
}

// offer takes deliveries in; n is what was reserved for them. They are held under the lock: the manager may find
// one lost at once, and its end must come after its beginning. It answers how many it has kept.
func (f *flow) offer(n int, rs []*run) (kept int) {
	var tooMany []*run
	f.mu.Lock()
	f.reserved -= n
	if f.t.holds() {
		f.p.leases.Hold(heldOf(rs)...)
	}
	for _, r := range rs {
		f.link(r)
		switch l := f.ahead(r); {
		case l == nil:
			f.pending++
			f.queue = append(f.queue, r)
		case l.closed || f.o.follow > 0 && f.followers >= f.o.follow:
			l.closed = true
			tooMany = append(tooMany, r)
			f.behind(r)
		default:
			l.followers = append(l.followers, r)
			f.behind(r)
		}
	}
	out := f.pump(nil)
	back := append(tooMany, f.unstarted()...)
	f.tell()
	f.mu.Unlock()
	f.send(out)
	f.handBack(back)
	return len(rs) - len(tooMany)
}

func (f *flow) behind(r *run) {
	r.follows = true
	f.followers++
}

// leaveLane is behind undone.
func (f *flow) leaveLane(r *run) {
	r.follows = false
	f.followers--
}

// ahead is the lane in which r must wait; nil = none, and where r has a group it is now the one of it that is on its way.
func (f *flow) ahead(r *run) *lane {
	if !r.grouped() {
		return nil
	}
	g := r.message.Group
	if l := f.lanes[g]; l != nil {
		return l
	}
	if f.lanes == nil {
		f.lanes = make(map[string]*lane)
	}
	r.lane = &lane{group: g}
	f.lanes[g] = r.lane
	return nil
}

// pump takes what may start from the queue. It is called with the lock held; the caller hands the answer
// to send when it has let the lock go.
func (f *flow) pump(out []*run) []*run {
	for f.first < len(f.queue) && f.busy < f.o.slots && f.unsettled < f.o.slots && !f.stopped && !f.paused {
		r := f.queue[f.first]
		f.queue[f.first] = nil
		f.first++
		if r.isOver() {
			continue // its delivery was lost while it waited
		}
		f.pending--
		f.busy++
		r.inSlot = true
		out = append(out, r)
	}
	if f.first >= len(f.queue)-f.first { // a queue that is never empty must not grow; so each is moved once on average
		n := copy(f.queue, f.queue[f.first:])
		clear(f.queue[n:])
		f.queue, f.first = f.queue[:n], 0
	}
	return out
}

// send gives what pump took to the claim.
func (f *flow) send(rs []*run) {
	if len(rs) > 0 {
		f.p.begin(rs)
	}
}

// unstarted empties the queue and the lanes when the flow has stopped or paused; called with the lock
// held.
func (f *flow) unstarted() []*run {
	if !f.stopped && !f.paused {
		return nil
	}
	back := append([]*run(nil), f.queue[f.first:]...)
	clear(f.queue)
	f.queue, f.first = f.queue[:0], 0
	for _, l := range f.lanes {
		back = append(back, l.followers...)
		l.followers = nil
	}
	return back
}

func (f *flow) handBack(rs []*run) {
	for _, r := range rs {
		if f.storeAway.Load() {
			f.p.unreachable(r)
			continue
		}
		f.p.giveBack(r, 0, OutcomeHandedBack)
	}
}

// launch gives claimed runs to goroutines, except those whose flow was abandoned meanwhile.
func launch(rs []*run) {
	for len(rs) > 0 {
		f := rs[0].f
		n := 1
		for n < len(rs) && rs[n].f == f {
			n++
		}
		f.mu.Lock()
		for _, r := range rs[:n] {
			if !f.closed {
				f.host.start(r)
			}
		}
		f.mu.Unlock()
		rs = rs[n:]
	}
}

// returned is told that the handler has returned: its slot is free.
func (f *flow) returned(r *run) {
	f.mu.Lock()
	f.leaveSlot(r)
	r.unsettled = true
	f.unsettled++
	var next [1]*run // mostly there is one, and none is to be allocated for it
	out := f.pump(next[:0])
	f.tell()
	f.mu.Unlock()
	f.send(out)
}

func (f *flow) leaveSlot(r *run) {
	if r.inSlot {
		r.inSlot = false
		f.busy--
	}
}

// disposed is told that the run's disposition is known.
func (f *flow) disposed(r *run) {
	var next [1]*run
	var back []*run
	f.mu.Lock()
	switch {
	case r.inSlot:
		f.leaveSlot(r)
	case r.unsettled:
		r.unsettled = false
		f.unsettled--
	case r.follows:
		f.leaveLane(r)
	default:
		f.pending--
	}
	f.leaveTrouble(r)
	if r.lane != nil {
		back = f.moveOn(r)
	}
	out := f.pump(next[:0])
	f.tell()
	f.mu.Unlock()
	f.send(out)
	f.handBack(back)
}

// moveOn moves a group on: after an ack the next of it may start; after anything else, and when the next one's
// delivery was lost while it waited, the followers go back, so that the broker keeps the order. Called with the
// lock held.
func (f *flow) moveOn(r *run) (back []*run) {
	l := r.lane
	r.lane = nil
	if r.action == Ack && len(l.followers) > 0 && !l.followers[0].isOver() {
		next := l.followers[0]
		l.followers = l.followers[1:]
		next.lane = l
		f.leaveLane(next)
		f.pending++
		f.queue = append(f.queue, next)
		return nil
	}
	delete(f.lanes, l.group)
	return l.followers
}

// link and unlink keep the list of all runs that are not gone; called with the lock held.
func (f *flow) link(r *run) {
	r.next = f.live
	if f.live != nil {
		f.live.prev = r
	}
	f.live = r
	f.count++
}

func (f *flow) unlink(r *run) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		f.live = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
	f.count--
}

// gone is told that nothing is left to do for the runs.
func (f *flow) gone(rs ...*run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range rs {
		f.unlink(r)
	}
	if f.count == 0 {
		f.idle.Broadcast()
	}
	f.tell()
}

// wait returns when no delivery is left, or the flow was abandoned.
func (f *flow) wait() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.count > 0 && !f.closed {
		f.idle.Wait()
	}
}

// waitAll returns when no delivery is left, also where the flow was abandoned.
func (f *flow) waitAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.count > 0 {
		f.idle.Wait()
	}
}

// stop lets nothing new start and hands back at once what has not.
func (f *flow) stop() {
	f.halt(func() {
		if !f.stopped {
			f.stopped, f.since = true, time.Since(f.epoch)
		}
	})
}

// pause is a stop that resume ends.
func (f *flow) pause() { f.halt(func() { f.paused = true }) }

// outage is a pause because the store does not answer.
func (f *flow) outage() {
	f.storeAway.Store(true)
	f.pause()
}

func (f *flow) halt(set func()) {
	f.mu.Lock()
	set()
	f.shut.Store(true)
	var delayed []*run
	back := f.unstarted()
	for r := f.live; r != nil; r = r.next {
		switch {
		case !f.unwait(r):
		case r.isOver():
			delayed = append(delayed, r)
		default:
			back = append(back, r)
		}
	}
	f.tell()
	f.mu.Unlock()
	for _, r := range delayed {
		f.o.nack(r)
	}
	f.handBack(back)
}

func (f *flow) resume() {
	f.mu.Lock()
	f.paused = false
	f.shut.Store(f.stopped)
	f.tell()
	f.mu.Unlock()
}

// isOpen tells whether a run that has not begun may still do so.
func (f *flow) isOpen() bool {
	return !f.shut.Load()
}

func (f *flow) isStopped() bool {
	stopped, _ := f.stoppedAt()
	return stopped
}

// stoppedAt tells whether the flow has stopped, and when, since its epoch.
func (f *flow) stoppedAt() (bool, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopped, f.since
}

// handOver finds the job that runs for the message of again and lets set give it the new receipt.
func (f *flow) handOver(again *run, set func(*run, *broker.Message)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := again.message
	for r := f.live; r != nil; r = r.next {
		at := r.at() // before its key is read, which is written until it is claimed
		if at >= claimed && at < settling && r.message.ID == m.ID && r.key == again.key {
			set(r, m)
			return true
		}
	}
	return false
}

// cutOff stops the flow and ends the handlers' contexts.
func (f *flow) cutOff() {
	f.cutAll(func(*run) error { return ErrDraining })
}

// timeUp is cutOff at the batch's Deadline.
func (f *flow) timeUp() { f.cutAll((*run).outOfTime) }

func (f *flow) cutAll(cause func(*run) error) {
	f.stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := f.live; r != nil; r = r.next {
		r.stopHandler(cause(r))
	}
}

// abandon gives up what has not ended: nothing of it is settled, acked or released any more, and its leases are left
// to run out. It answers those that it has ended itself.
func (f *flow) abandon() (cut []*run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	for r := f.live; r != nil; r = r.next {
		if r.giveUp() {
			cut = append(cut, r)
		}
		r.ctx.end(ErrDraining) // unless it has been, which may be a moment late where there is little time between
		f.p.release(r)
	}
	for _, r := range cut {
		f.unlink(r)
	}
	f.idle.Broadcast()
	return cut
}

// untrouble is told that the store has answered a claim that it could not answer before.
func (f *flow) untrouble(r *run) {
	f.mu.Lock()
	f.leaveTrouble(r)
	over := f.troubled == 0
	f.tell()
	f.mu.Unlock()
	if over {
		f.p.storeAgain(f.t.base, partClaims)
	}
}

func (f *flow) leaveTrouble(r *run) {
	if r.troubled {
		r.troubled = false
		f.troubled--
	}
}

// crowded tells whether more than half of the places are taken by jobs whose handlers have returned and whose ends are not known.
func (f *flow) crowded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 2*f.unsettled > f.o.slots
}

func (f *flow) abandoned() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// later repeats a claim that the store could not answer. Until it is answered, nothing is received, where that is trouble.
func (f *flow) later(r *run, d time.Duration, trouble bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || f.paused || f.closed {
		return false
	}
	switch {
	case !trouble:
		f.leaveTrouble(r)
		f.tell()
	case !r.troubled:
		r.troubled = true
		f.troubled++
	}
	r.retry = time.AfterFunc(d, func() {
		f.mu.Lock()
		mine := r.retry != nil
		r.retry = nil
		f.mu.Unlock()
		if mine {
			f.p.claims.Add(r)
		}
	})
	return true
}
