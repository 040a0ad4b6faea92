package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/internal/verdict"
)

// flow is the way of the deliveries of one Worker.Run, or of one Process call, through the slots:
// which may be claimed now, which wait, and which hold their group.
type Flow[J any] struct {
	en    *Engine[J]
	Host  Host[J]
	Terms Terms
	o     SlotOptions[J]
	epoch time.Time // from which its runs count their times

	shut      atomic.Bool // stopped or paused, to be asked without the lock
	storeAway atomic.Bool // paused because the store does not answer

	mu        sync.Mutex
	room      sync.Cond // reserve waits for it
	idle      sync.Cond // wait waits for it
	asking    int       // goroutines in reserve
	few       int       // what they ask for at least
	queue     []*Run[J] // waiting, in the order they came; group followers are in their lane
	first     int       // of queue
	lanes     map[string]*lane[J]
	reserved  int           // asked of the broker and not here yet
	pending   int           // here, and not in a slot; without the followers
	followers int           // here, behind one of their group
	busy      int           // slots: from the claim to the handler's return
	unsettled int           // from the handler's return to the disposition
	delayed   int           // held here for the delay of their nack
	troubled  int           // claims that the store could not answer and has not yet
	live      *Run[J]       // list of all that are not gone
	count     int           // of live
	stopped   bool          // drain: nothing new starts
	since     time.Duration // the epoch, when it stopped
	paused    bool          // as stopped, until Resume
	closed    bool          // hard end: what still happens is nobody's business any more
}

type SlotOptions[J any] struct {
	Slots    int           // handlers at once
	Capacity int           // held at once, before their handlers have returned
	Live     int           // the same, those included that wait for their ack or nack; with more nothing is received
	Follow   int           // followers held at once, beside these; 0 = all that come
	Nack     func(*Run[J]) // of one whose delay was waited for here
}

// lane is a group: one of its deliveries is on its way, the others wait behind it. They need no
// slot before it has ended, so they take no room from other groups, and the broker brings no more
// of the group meanwhile.
type lane[J any] struct {
	group     string
	followers []*Run[J]
	closed    bool // a follower was handed back: what comes behind it must not stay
}

// Reserve waits until there is room for at least few messages and takes room for up to many. It is
// 0 when the flow stops.
func (f *Flow[J]) Reserve(few, many int) int {
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

// Unreserve gives room back that was reserved for a receive which is overdue. What it may still
// bring is taken in beyond the room.
func (f *Flow[J]) Unreserve(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reserved -= n
	f.tell()
}

func (f *Flow[J]) free() int { return f.o.Capacity - f.reserved - f.pending - f.busy }

func (f *Flow[J]) hasRoom() bool {
	return !f.paused && f.troubled == 0 && f.unsettled < f.o.Slots && f.count-f.followers < f.o.Live && f.free() >= f.few
}

// tell wakes a poller if there is something for it to do; called with the lock held.
func (f *Flow[J]) tell() {
	if f.asking > 0 && (f.stopped || f.hasRoom()) {
		f.room.Broadcast()
	}
}

// Offer takes deliveries in; n is what was reserved for them. They are held under the lock: the
// manager may find one lost at once, and its end must come after its beginning. It answers how many
// it has kept.
func (f *Flow[J]) Offer(n int, rs []*Run[J]) (kept int) {
	var tooMany []*Run[J]
	f.mu.Lock()
	f.reserved -= n
	if f.Terms.Holds() {
		f.en.leases.Hold(heldOf(rs)...)
	}
	for _, r := range rs {
		f.link(r)
		switch l := f.ahead(r); {
		case l == nil:
			f.pending++
			f.queue = append(f.queue, r)
		case l.closed || f.o.Follow > 0 && f.followers >= f.o.Follow:
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

func (f *Flow[J]) behind(r *Run[J]) {
	r.follows = true
	f.followers++
}

// leaveLane is behind undone.
func (f *Flow[J]) leaveLane(r *Run[J]) {
	r.follows = false
	f.followers--
}

// ahead is the lane in which r must wait; nil = none, and where r has a group it is now the one of
// it that is on its way.
func (f *Flow[J]) ahead(r *Run[J]) *lane[J] {
	if !r.grouped() {
		return nil
	}
	g := r.Message.Group
	if l := f.lanes[g]; l != nil {
		return l
	}
	if f.lanes == nil {
		f.lanes = make(map[string]*lane[J])
	}
	r.lane = &lane[J]{group: g}
	f.lanes[g] = r.lane
	return nil
}

// pump takes what may start from the queue. It is called with the lock held; the caller hands the
// answer to send when it has let the lock go.
func (f *Flow[J]) pump(out []*Run[J]) []*Run[J] {
	for f.first < len(f.queue) && f.busy < f.o.Slots && f.unsettled < f.o.Slots && !f.stopped && !f.paused {
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
func (f *Flow[J]) send(rs []*Run[J]) {
	if len(rs) > 0 {
		f.en.begin(rs)
	}
}

// unstarted empties the queue and the lanes when the flow has stopped or paused; called with the
// lock held.
func (f *Flow[J]) unstarted() []*Run[J] {
	if !f.stopped && !f.paused {
		return nil
	}
	back := append([]*Run[J](nil), f.queue[f.first:]...)
	clear(f.queue)
	f.queue, f.first = f.queue[:0], 0
	for _, l := range f.lanes {
		back = append(back, l.followers...)
		l.followers = nil
	}
	return back
}

func (f *Flow[J]) handBack(rs []*Run[J]) {
	for _, r := range rs {
		if f.storeAway.Load() {
			f.en.unreachable(r)
			continue
		}
		f.en.giveBack(r, 0, HandedBack)
	}
}

// launch gives claimed runs to goroutines, except those whose flow was abandoned meanwhile.
func launch[J any](rs []*Run[J]) {
	for len(rs) > 0 {
		f := rs[0].f
		n := 1
		for n < len(rs) && rs[n].f == f {
			n++
		}
		f.mu.Lock()
		for _, r := range rs[:n] {
			if !f.closed {
				f.Host.Start(r)
			}
		}
		f.mu.Unlock()
		rs = rs[n:]
	}
}

// returned is told that the handler has returned: its slot is free.
func (f *Flow[J]) returned(r *Run[J]) {
	f.mu.Lock()
	f.leaveSlot(r)
	r.unsettled = true
	f.unsettled++
	var next [1]*Run[J] // mostly there is one, and none is to be allocated for it
	out := f.pump(next[:0])
	f.tell()
	f.mu.Unlock()
	f.send(out)
}

func (f *Flow[J]) leaveSlot(r *Run[J]) {
	if r.inSlot {
		r.inSlot = false
		f.busy--
	}
}

// disposed is told that the run's disposition is known.
func (f *Flow[J]) disposed(r *Run[J]) {
	var next [1]*Run[J]
	var back []*Run[J]
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

// moveOn moves a group on: after an ack the next of it may start; after anything else, and when the
// next one's delivery was lost while it waited, the followers go back, so that the broker keeps the
// order. Called with the lock held.
func (f *Flow[J]) moveOn(r *Run[J]) (back []*Run[J]) {
	l := r.lane
	r.lane = nil
	if r.Action == Ack && len(l.followers) > 0 && !l.followers[0].isOver() {
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
func (f *Flow[J]) link(r *Run[J]) {
	r.next = f.live
	if f.live != nil {
		f.live.prev = r
	}
	f.live = r
	f.count++
}

func (f *Flow[J]) unlink(r *Run[J]) {
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

// Gone is told that nothing is left to do for the runs.
func (f *Flow[J]) Gone(rs ...*Run[J]) {
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
func (f *Flow[J]) Wait() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.count > 0 && !f.closed {
		f.idle.Wait()
	}
}

// WaitAll returns when no delivery is left, also where the flow was abandoned.
func (f *Flow[J]) WaitAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.count > 0 {
		f.idle.Wait()
	}
}

// stop lets nothing new start and hands back at once what has not.
func (f *Flow[J]) Stop() {
	f.halt(func() {
		if !f.stopped {
			f.stopped, f.since = true, time.Since(f.epoch)
		}
	})
}

// pause is a stop that resume ends.
func (f *Flow[J]) Pause() { f.halt(func() { f.paused = true }) }

// outage is a pause because the store does not answer.
func (f *Flow[J]) outage() {
	f.storeAway.Store(true)
	f.Pause()
}

func (f *Flow[J]) halt(set func()) {
	f.mu.Lock()
	set()
	f.shut.Store(true)
	var delayed []*Run[J]
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
		f.o.Nack(r)
	}
	f.handBack(back)
}

func (f *Flow[J]) Resume() {
	f.mu.Lock()
	f.paused = false
	f.shut.Store(f.stopped)
	f.tell()
	f.mu.Unlock()
}

// isOpen tells whether a run that has not begun may still do so.
func (f *Flow[J]) isOpen() bool {
	return !f.shut.Load()
}

func (f *Flow[J]) isStopped() bool {
	stopped, _ := f.stoppedAt()
	return stopped
}

// stoppedAt tells whether the flow has stopped, and when, since its epoch.
func (f *Flow[J]) stoppedAt() (bool, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopped, f.since
}

// HandOver gives the receipt of again, a redelivery, to the job that runs for the same message, and
// reports whether there is one.
func (f *Flow[J]) HandOver(again *Run[J], give func(r, again *Run[J])) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := again.Message
	for r := f.live; r != nil; r = r.next {
		at := r.at() // before its key is read, which is written until it is claimed
		if at >= claimed && at < settling && r.Message.ID == m.ID && r.Key == again.Key {
			give(r, again)
			return true
		}
	}
	return false
}

// CutOff stops the flow and ends the handlers' contexts.
func (f *Flow[J]) CutOff() {
	f.cutAll(func(*Run[J]) error { return verdict.ErrDraining })
}

// TimeUp is cutOff at the batch's Deadline.
func (f *Flow[J]) TimeUp() { f.cutAll((*Run[J]).outOfTime) }

func (f *Flow[J]) cutAll(cause func(*Run[J]) error) {
	f.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := f.live; r != nil; r = r.next {
		r.stopHandler(cause(r))
	}
}

// Abandon gives up what has not ended: nothing of it is settled, acked or released any more, and
// its leases are left to run out. It answers those that it has ended itself.
func (f *Flow[J]) Abandon() (cut []*Run[J]) {
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
		r.ctx.End(verdict.ErrDraining) // unless it has been, which may be a moment late where there is little time between
		f.en.release(r)
	}
	for _, r := range cut {
		f.unlink(r)
	}
	f.idle.Broadcast()
	return cut
}

// untrouble is told that the store has answered a claim that it could not answer before, and
// reports whether that was the last of them.
func (f *Flow[J]) untrouble(r *Run[J]) (last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaveTrouble(r)
	f.tell()
	return f.troubled == 0
}

func (f *Flow[J]) leaveTrouble(r *Run[J]) {
	if r.troubled {
		r.troubled = false
		f.troubled--
	}
}

// crowded tells whether more than half of the places are taken by jobs whose handlers have returned
// and whose ends are not known.
func (f *Flow[J]) crowded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 2*f.unsettled > f.o.Slots
}

func (f *Flow[J]) Abandoned() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// later repeats a claim that the store could not answer. Until it is answered, nothing is received,
// where that is trouble.
func (f *Flow[J]) later(r *Run[J], d time.Duration, trouble bool) bool {
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
			f.en.claims.Add(r)
		}
	})
	return true
}

// Running is how many slots are taken.
func (f *Flow[J]) Running() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.busy
}

// SetPaused says, before anything is offered, whether the flow begins with a pause.
func (f *Flow[J]) SetPaused(paused bool) {
	f.paused = paused
	f.shut.Store(paused)
}

// Waiting is how many runs wait for a slot, and how many places the queue has that they wait in.
func (f *Flow[J]) Waiting() (n, places int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pending, cap(f.queue)
}
