package membroker

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/onceq/onceq/broker"
)

// A receipt is the broker's nonce, the slot and the delivery's serial, in hexadecimal. So a look-up
// is an index into an array, and no serial is ever used twice.
const (
	receiptBytes = 4 + 4 + 8
	receiptLen   = 2 * receiptBytes
)

func (b *Broker) appendReceipt(dst []byte, e *entry) []byte {
	var raw [receiptBytes]byte
	binary.BigEndian.PutUint32(raw[0:], b.nonce)
	binary.BigEndian.PutUint32(raw[4:], e.slot)
	binary.BigEndian.PutUint64(raw[8:], e.serial)
	return hex.AppendEncode(dst, raw[:])
}

// standing is what has become of the delivery that a receipt names.
type standing uint8

const (
	alien   standing = iota // this broker never gave it out
	current                 // in flight
	lapsed                  // expired or given back, and not delivered again
	old                     // the message has been delivered again
	gone                    // the message has left the queue
)

// find looks up a receipt. The entry is there when it is current, lapsed or old.
func (b *Broker) find(r broker.Receipt) (*entry, standing) {
	var raw [receiptBytes]byte
	if len(r) != receiptLen {
		return nil, alien
	}
	if _, err := hex.Decode(raw[:], []byte(r)); err != nil {
		return nil, alien
	}
	serial := binary.BigEndian.Uint64(raw[8:])
	if binary.BigEndian.Uint32(raw[0:]) != b.nonce || serial == 0 || serial > b.queue.serial {
		return nil, alien
	}
	e := b.queue.at(binary.BigEndian.Uint32(raw[4:]))
	switch {
	case e == nil || e.state == free || serial < e.born:
		return nil, gone
	case serial < e.serial:
		return e, old
	case serial > e.serial:
		return nil, alien
	case e.state == inFlight:
		return e, current
	}
	return e, lapsed
}
