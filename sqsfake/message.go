package sqsfake

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"

	"github.com/onceq/onceq/internal/fakeserver"
)

type state uint8

const (
	ready   state = iota // may be received, in a FIFO queue when its group allows it
	flying               // received, and hidden until its timeout ends
	delayed              // sent, and hidden until its delay ends
	gone                 // deleted, expired or moved away
)

// content is what never changes of a message; it is read without the lock.
type content struct {
	id         string
	body       string
	bodyMD5    string
	attributes []attribute // by name
	attrsMD5   string
	trace      string // the AWSTraceHeader
	group      string
	dedupID    string
	sequence   string
	size       int64
	// source is the queue from which a redrive policy moved the message here.
	source string
}

// message is a content in a queue. All of it belongs to the server's lock.
type message struct {
	*content
	num   uint64 // of this queue: the order of arrival
	state state
	// serial counts the receives in this queue; a receipt handle holds the one it is of.
	serial uint32
	// changes counts what a caller did to the visibility, for receive attempt ids.
	changes  uint32
	receives int   // as ApproximateReceiveCount tells it: over all queues
	sent     int64 // when it was enqueued; times are nanoseconds since the server's start
	first    int64 // its first receive
	received int64 // its last receive: 12 hours are counted from here
	due      int64 // when a hidden one becomes visible

	byDue   int32                      // its place among the hidden ones, by due
	byAge   int32                      // its place among all, by sent
	inOrder fakeserver.Place[*message] // among the ready ones, or all of a group
	fifo    *group
}

// newUUID is a random version 4 UUID. It names messages and requests; nothing is secret here.
func newUUID() string {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(b[8:], rand.Uint64())
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	var s [36]byte
	hex.Encode(s[:8], b[:4])
	hex.Encode(s[9:13], b[4:6])
	hex.Encode(s[14:18], b[6:8])
	hex.Encode(s[19:23], b[8:10])
	hex.Encode(s[24:], b[10:])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}

// took is one delivery, as it is answered: what of the message may change is copied.
type took struct {
	*content
	num      uint64
	serial   uint32
	changes  uint32
	receives int
	sent     int64
	first    int64
}
