package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns a Flow: its slots, its groups, the hard end, and each run's place in it. halt.go
// has pause and drain. Hosts call its exported methods, the steps of a run the others. f.mu guards
// everything but shut, storeAway and limit. What follows from a change (claims, hand-backs) is
// called when the lock has been let go. The flow knows the steps only by the Engine's function
// values and its queue of claims.

// Flow is the way of deliveries through the slots. There is one for each Worker.Run, each batch,
// and each try of a call of Do. It knows which may be claimed now, which wait, and which hold their
// group.
type Flow[J any] struct {
	en    *Engine[J]
	Host  Host[J]
	Terms Terms
	o     SlotOptions[J]
	epoch time.Time // from which its runs count their times

	shut      atomic.Bool  // stopped or paused, to be asked without the lock
	storeAway atomic.Bool  // paused because the store does not answer
	limit     atomic.Int32 // of its slots, from outside; 0 = none; written under the lock

	mu        sync.Mutex
	room      sync.Cond // Reserve waits for it
	idle      sync.Cond // Wait and WaitAll wait for it
	asking    int       // goroutines in Reserve
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
	since     time.Duration // when it stopped, since the epoch
	paused    Pauses        // why it has paused; as stopped, until each reason is resumed
	turned    time.Duration // when it last began or ended to be paused, since the epoch
	watchers  []Watcher     // of what it lets run
	closed    bool          // hard end: nobody acts on what still happens
	ends      Tally         // how its runs have ended
	endsRoom  [2]Ended      // room for the first of them, because many flows have one run
	seen      handlers      // the last look at them
}

// SlotOptions bound what a Flow holds.
type SlotOptions[J any] struct {
	Slots    int // handlers at once
	Capacity int // held at once, before their handlers have returned
	// Live is how many are held at once, with those that wait for their ack or nack. Nothing is
	// received at this number.
	Live   int
	Follow int           // followers held at once, beside these; 0 = all that come
	Nack   func(*Run[J]) // nacks a run when the delay that was waited for here is over
}

// lane is a group: one of its deliveries is on its way, the others wait behind it. These need no
// slot before that one has ended, so they take no room from other groups. The broker brings no more
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

// Unreserve gives back room that was reserved for a receive which is overdue. What that receive may
// still bring is taken in beyond the room.
func (f *Flow[J]) Unreserve(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reserved -= n
	f.tell()
}

// Limit lets at most n handlers run at once, from now on; 0 and more than the flow's slots mean
// these. Handlers that run go on. What is held and finds no slot waits for one. The limit holds
// from when Limit returns. The caller then calls start, holding no lock: what now has a slot
// begins.
func (f *Flow[J]) Limit(n int) (start func()) {
	limit := int32(max(0, min(n, f.o.Slots)))
	f.mu.Lock()
	defer f.mu.Unlock()
	var watchers []Watcher
	if f.limit.Swap(limit) != limit {
		watchers = slices.Clone(f.watchers)
	}
	out := f.pump(nil)
	f.tell()
	return func() {
		f.send(out)
		tellWatchers(watchers)
	}
}

// slots is how many handlers may run at once.
func (f *Flow[J]) slots() int {
	if limit := int(f.limit.Load()); limit > 0 {
		return limit
	}
	return f.o.Slots
}

// capacity is how much is held at once. What waits beyond the slots stays the same under a limit.
func (f *Flow[J]) capacity() int { return f.o.Capacity - f.o.Slots + f.slots() }

func (f *Flow[J]) free() int { return f.capacity() - f.reserved - f.pending - f.busy }

func (f *Flow[J]) hasRoom() bool {
	return f.paused == 0 && f.troubled == 0 && f.unsettled < f.o.Slots && f.count-f.followers < f.o.Live && f.free() >= min(f.few, f.capacity())
}

// tell wakes the pollers if there is something for them to do. The caller holds the lock.
func (f *Flow[J]) tell() {
	if f.asking > 0 && (f.stopped || f.hasRoom()) {
		f.room.Broadcast()
	}
}

// Offer takes deliveries in, and answers how many it has kept. n is the room that was reserved for
// them. The manager gets them under the lock, because it may find one lost at once, and a run's end
// must come after its beginning.
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
	if len(out) == 1 {
		f.en.beginOne(out[0], true)
	} else {
		f.send(out)
	}
	f.handBack(back)
	return len(rs) - len(tooMany)
}

func (f *Flow[J]) behind(r *Run[J]) {
	r.follows = true
	f.followers++
}

// leaveLane undoes behind.
func (f *Flow[J]) leaveLane(r *Run[J]) {
	r.follows = false
	f.followers--
}

// ahead is the lane in which r must wait; nil = none. Where r has a group and need not wait, r is
// now the one of its group that is on its way.
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

// pump takes what may start from the queue. The caller holds the lock, and hands the answer to send
// when it has let the lock go.
func (f *Flow[J]) pump(out []*Run[J]) []*Run[J] {
	for f.first < len(f.queue) && f.busy < f.slots() && f.unsettled < f.o.Slots && !f.stopped && f.paused == 0 {
		r := f.queue[f.first]
		f.queue[f.first] = nil
		f.first++
		if r.IsOver() {
			continue // its delivery was lost while it waited
		}
		f.pending--
		f.busy++
		r.inSlot = true
		out = append(out, r)
	}
	if f.first >= len(f.queue)-f.first { // a queue that is never empty must not grow; each is moved once on average
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

// sendFew is send for what is mostly one run. It allocates nothing then, because rs stays on the
// caller's stack. With here, the caller's goroutine may make the claim.
func (f *Flow[J]) sendFew(rs []*Run[J], here bool) {
	switch len(rs) {
	case 0:
	case 1:
		f.en.beginOne(rs[0], here)
	default:
		f.en.begin(slices.Clone(rs))
	}
}

// unstarted empties the queue and the lanes when the flow has stopped or paused, and answers what
// was in them. The caller holds the lock.
func (f *Flow[J]) unstarted() []*Run[J] {
	if !f.stopped && f.paused == 0 {
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
	var next [1]*Run[J] // mostly there is one, and nothing is allocated for it
	out := f.pump(next[:0])
	f.tell()
	f.mu.Unlock()
	f.sendFew(out, false) // r is to be settled first
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
	f.ends.note(r.Outcome, 1)
	f.leaveTrouble(r)
	if r.lane != nil {
		back = f.moveOn(r)
	}
	out := f.pump(next[:0])
	f.tell()
	f.mu.Unlock()
	switch {
	case r.Token != (dedupe.Token{}):
		f.sendFew(out, r.Ran) // otherwise one duplicate would be found from within the other, without a bound
	case len(out) > 0:
		// r was turned away before its claim, and so may these be: those of a paused type, one from
		// within the other. They may be thousands.
		go f.send(slices.Clone(out))
	}
	f.handBack(back)
}

// moveOn moves a group on. After an ack the next delivery of the group may start. The followers go
// back after anything else, and when the next one's delivery was lost while it waited, so that the
// broker keeps the order. The caller holds the lock.
func (f *Flow[J]) moveOn(r *Run[J]) (back []*Run[J]) {
	l := r.lane
	r.lane = nil
	if r.Action == Ack && len(l.followers) > 0 && !l.followers[0].IsOver() {
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

// link and unlink keep the list of all runs that are not gone. The caller holds the lock.
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

// Wait returns when no delivery is left, or the flow was abandoned.
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

// HandOver gives the receipt of again, a redelivery, to the job that runs for the same message. It
// reports whether there is one. give is called under the flow's lock.
func (f *Flow[J]) HandOver(again *Run[J], give func(r, again *Run[J])) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := again.Message
	for r := f.live; r != nil; r = r.next {
		at := r.at() // read before the key, which is written until the run is claimed
		if at >= claimed && at < settling && r.Message.ID == m.ID && r.Key == again.Key {
			give(r, again)
			return true
		}
	}
	return false
}

// Abandon gives up what has not ended. Nothing of it is settled, acked or released any more, and
// its leases are left to run out. It answers the runs that it has ended itself.
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
		// It may have ended already, as by CutOff, which comes a moment late where there is little
		// time between.
		r.ctx.End(verdict.ErrDraining)
		f.en.release(r)
	}
	for _, r := range cut {
		f.unlink(r)
	}
	if len(cut) > 0 {
		f.ends.note(Abandoned, uint64(len(cut)))
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

// crowded reports whether more than half of the places are taken by jobs whose handlers have
// returned but whose ends are not known.
func (f *Flow[J]) crowded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 2*f.unsettled > f.o.Slots
}

// isFull reports whether such jobs take all places, so that nothing starts.
func (f *Flow[J]) isFull() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unsettled >= f.o.Slots
}

// Abandoned reports whether the flow was given up.
func (f *Flow[J]) Abandoned() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// later repeats a claim after d, because the store could not answer it. With trouble, nothing is
// received until the claim is answered. It is false when the flow has stopped, is paused or
// abandoned.
func (f *Flow[J]) later(r *Run[J], d time.Duration, trouble bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || f.paused != 0 || f.closed {
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

// Slots is how many handlers run at once where nothing limits them.
func (f *Flow[J]) Slots() int { return f.o.Slots }

// SlotsNow is how many may run at once now. It takes no lock.
func (f *Flow[J]) SlotsNow() int { return f.slots() }

// Waiting is how many runs wait for a slot, and how many places their queue has.
func (f *Flow[J]) Waiting() (n, places int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pending, cap(f.queue)
}
