package model

import (
	"github.com/onceq/onceq/dedupe"
)

// This file owns what the world looks like at one instant, and which instants count as the same.
// The steps copy a state and change the copy; the search keeps it by value. So nothing is shared
// and nothing is locked. worker.go, handler.go and environment.go have the steps.

const (
	workers  = 2
	maxItems = 6
)

// fence is a fence, relabelled: what matters is whether it is the record's.
type fence uint8

const (
	noFence  fence = iota // the message names no failure
	oldFence              // lower than the record's, or of a record that was forgotten
	curFence              // the record's
	newFence              // of the claim that is being won; it becomes curFence
)

// token is a claim's token, relabelled by who can still use it. 1 and 2 are the workers'.
type token uint8

const (
	nobodys token = 0
	packets token = workers + 1 // of the late packet, and of no worker any more
)

// record is the store's record. A zero status means that there is none.
type record struct {
	status  dedupe.Status
	token   token
	attempt uint8
	payload uint8
	policy  dedupe.Policy
	started bool
	dead    bool // the lease has run out
	expired bool // the retention has ended
	fresh   bool // the claim made the record; kept where retention ends only
	reborn  bool // made after an earlier record of the key expired

	saved uint8 // steps; it is the number of the state, too
	class bool  // the last attempt has left one

	cancelled bool // failed by an operator's word
}

// txPhase is how far a transaction that completes the job has come. While there is one, it locks
// the record.
type txPhase uint8

const (
	noTx       txPhase = iota
	txOpen             // its handler works in it
	txInFlight         // COMMIT was sent, and the handler no longer waits for the answer
	txOrphan           // its worker died; the database will roll it back
	txEmpty            // as txOpen, but it writes the effect alone
)

type tx struct {
	phase txPhase
	owner uint8 // the worker, while txOpen or txEmpty
}

// pc is where a worker is.
type pc uint8

const (
	idle      pc = iota
	claiming     // has a message, and asks for its key
	starting     // Park: has the claim, and records that it will start
	running      // the handler runs
	settling     // writes the end
	lettering    // puts the dead letter
	acking
	carrying // sends its message anew
)

type worker struct {
	pc      pc
	reopens fence // while claiming: what the message's dead letter names
	fence   fence // of its claim; while lettering, the letter's
	payload uint8
	attempt uint8
	to      dedupe.Status // while settling
	old     bool          // its message, while claiming, or its letter is older than the retention
	word    bool          // of its message, while claiming, or its letter: see item
	refused bool          // while settling: its message was too old to be believed, and gets a letter

	uncounted bool  // while settling
	unstarted bool  // while settling: the handler was not started
	joined    bool  // a transaction may have completed the job
	acted     bool  // the external effect has happened in this run
	let       bool  // its limiter has let the job begin
	postponed bool  // while settling
	last      bool  // its queue brings its message for the last time: a copy is sent before anything else
	carried   bool  // while settling: that copy is stored
	saved     uint8 // the steps that the worker knows to be saved
	did       uint8 // the steps that it has run since
	owes      bool  // steps that a left-out rule has put into the wrong order are still to come

	// What the checks need to know of a run: that the job was reopened since, and how many effects
	// there had been by then.
	overtaken bool
	effects   uint8
	seen      uint8 // how many steps were stored when its claim was won
}

// place is where a message is.
type place uint8

const (
	nowhere place = iota
	unsent        // its producer will send it later
	inQueue
	inDLQ
)

// item is a message, or a dead letter.
type item struct {
	place   place
	fence   fence // of the failure whose dead letter it is
	payload uint8
	hands   uint8 // the workers that hold a receipt for it
	sent    bool  // in the DLQ: a replay has sent it, and may remove it
	old     bool  // older than the retention
	word    bool  // of a message that was refused: its replay is the operator's word that the job may run
}

// packetKind is what a packet asks for.
type packetKind uint8

const (
	noPacket packetKind = iota
	claimPacket
	startPacket
	settlePacket
	savePacket
	letterPacket
	carryPacket
)

// packet is a request that its sender believes lost, and that will arrive after all.
type packet struct {
	kind      packetKind
	token     token
	fence     fence
	payload   uint8
	policy    dedupe.Policy
	to        dedupe.Status
	uncounted bool
	unstarted bool
	joined    bool
	postponed bool
	saved     uint8
	word      bool
}

// ghost is what nobody in the system knows, and the checks must.
type ghost struct {
	effects   uint8 // external ones that count, since the job was last reopened
	txEffects uint8
	acted     bool  // an effect has happened
	begun     bool  // a limiter has let the job begin
	done      uint8 // the payloads that have been done, as bits
	forgotten bool  // an operator has removed the record, and no claim has come since
	stored    uint8 // the steps that were stored in the record
	of        uint8 // the payload whose steps these are
	cancelled bool  // an operator has cancelled the job, and no letter has reopened it
	failed    bool  // ... and its own handler had failed for good, so it has a letter
}

// state is the world at one instant. It is comparable, and every field is a byte.
type state struct {
	rec   record
	tx    tx
	w     [workers]worker
	late  packet
	ghost ghost
	items [maxItems]item
}

func ownToken(w int) token { return token(w + 1) }
func hand(w int) uint8     { return 1 << w }

// held is the item for which w has a receipt; nil when that is gone.
func (s *state) held(w int) *item {
	for i := range s.items {
		if s.items[i].hands&hand(w) != 0 {
			return &s.items[i]
		}
	}
	return nil
}

// add puts an item. One that is equal to an untouched one changes nothing: whatever could be done
// with the second can be done with the first. It is false when there is no room.
func (s *state) add(it item) bool {
	free := -1
	for i, have := range s.items {
		if have == it {
			return true
		}
		if have.place == nowhere {
			free = i
		}
	}
	if free < 0 {
		return false
	}
	s.items[free] = it
	return true
}

// mayReplay bounds how many messages there are: there is always one on its way, or room for one.
func (s *state) mayReplay(limit int) bool {
	used, waiting := 0, false
	for _, it := range s.items {
		if it.place != nowhere {
			used++
		}
		waiting = waiting || it.place == inQueue
	}
	return used < limit || used < maxItems && !waiting
}

// remains reports whether a message or letter with the payload is anywhere.
func (s *state) remains(payload uint8) bool {
	for i := range s.items {
		if s.items[i].place != nowhere && s.items[i].payload == payload {
			return true
		}
	}
	return false
}

// comes reports whether anything is left but letters that tell how the record's claim has ended.
func (s *state) comes() bool {
	for i := range s.items {
		if it := &s.items[i]; it.place != nowhere && (it.place != inDLQ || it.fence != curFence) {
			return true
		}
	}
	return false
}

// leave ends what worker w was doing; the queue delivers the message again.
func (s *state) leave(w int) {
	s.dropToken(w)
	if it := s.held(w); it != nil {
		it.hands &^= hand(w)
	}
	if s.tx.owner == ownOwner(w) {
		s.tx = tx{phase: txOrphan}
	}
	s.w[w] = worker{}
}

func ownOwner(w int) uint8 { return uint8(w + 1) }

// dropToken relabels the token that worker w will not use again.
func (s *state) dropToken(w int) {
	left := nobodys
	if s.late.token == ownToken(w) {
		s.late.token, left = packets, packets
	}
	if s.rec.token == ownToken(w) {
		s.rec.token = left
	}
}

// dropPacket forgets the late packet.
func (s *state) dropPacket() {
	if s.late.token == packets && s.rec.token == packets {
		s.rec.token = nobodys
	}
	s.late = packet{}
}

// age makes every fence that is not the record's any more an old one.
func (s *state) age() {
	lower := func(f *fence) {
		switch *f {
		case curFence:
			*f = oldFence
		case newFence:
			*f = curFence
		case noFence, oldFence: // they stay what they are
		}
	}
	for i := range s.items {
		lower(&s.items[i].fence)
	}
	for i := range s.w {
		lower(&s.w[i].fence)
		lower(&s.w[i].reopens)
	}
	lower(&s.late.fence)
}

// canonical is the representative of all states that differ only in what nothing depends on:
//
//   - the order of items,
//   - which worker is which, if they are alike,
//   - whether a message names an older failure or none, unless the world can tell (olds).
func (s state) canonical(alike, olds bool) state {
	if !olds {
		s.forgetOld()
	}
	s.sortItems()
	s.merge()
	s.sortItems()
	if alike && s.w[0].code() < s.w[1].code() {
		s.swap()
		s.sortItems()
	}
	return s
}

func (s *state) forgetOld() {
	for i := range s.items {
		if s.items[i].fence == oldFence {
			s.items[i].fence = noFence
		}
	}
	for i := range s.w {
		w := &s.w[i]
		if w.reopens == oldFence {
			w.reopens = noFence
		}
		if w.fence == oldFence {
			w.fence = noFence
		}
	}
	if s.late.fence == oldFence {
		s.late.fence = noFence
	}
}

func (s *state) sortItems() {
	var codes [maxItems]uint16 // a search sorts more often than it does anything else
	for i := range s.items {
		codes[i] = s.items[i].code()
		for k := i; k > 0 && codes[k] < codes[k-1]; k-- {
			codes[k], codes[k-1] = codes[k-1], codes[k]
			s.items[k], s.items[k-1] = s.items[k-1], s.items[k]
		}
	}
}

// merge drops items that are equal to others and in nobody's hands.
func (s *state) merge() {
	for i := 1; i < maxItems; i++ {
		if s.items[i] == s.items[i-1] && s.items[i].hands == 0 {
			s.items[i-1] = item{}
		}
	}
}

func (s *state) swap() {
	other := [...]uint8{0, 2, 1, 3}
	s.w[0], s.w[1] = s.w[1], s.w[0]
	s.rec.token = token(other[s.rec.token])
	s.late.token = token(other[s.late.token])
	s.tx.owner = other[s.tx.owner]
	for i := range s.items {
		s.items[i].hands = other[s.items[i].hands]
	}
}

// code is different for different items.
func (i *item) code() uint16 {
	return uint16(i.place)<<8 | uint16(i.fence)<<6 | uint16(i.payload)<<5 | uint16(i.hands)<<3 |
		uint16(bit(i.sent))<<2 | uint16(bit(i.old))<<1 | uint16(bit(i.word))
}

// code is different for different workers, but for what only the checks know.
func (w *worker) code() uint64 {
	return pack(uint8(w.pc), 3, uint8(w.reopens), 2, uint8(w.fence), 2, w.payload, 1, w.attempt, 3, uint8(w.to), 3,
		bit(w.old), 1, bit(w.uncounted), 1, bit(w.joined), 1, bit(w.acted), 1, bit(w.owes), 1, bit(w.overtaken), 1, w.effects, 2, bit(w.word), 1, bit(w.refused), 1, bit(w.unstarted), 1,
		bit(w.postponed), 1, bit(w.let), 1, w.saved, 2, w.did, 2, w.seen, 2)
}

// pack puts numbers side by side, each followed by its width in bits.
func pack(parts ...uint8) (n uint64) {
	for i := 0; i < len(parts); i += 2 {
		n = n<<parts[i+1] | uint64(parts[i])
	}
	return n
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
