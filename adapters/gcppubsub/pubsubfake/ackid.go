package pubsubfake

import (
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
)

// An ack id is opaque to its holder. It names the subscription, the message and the delivery, so
// that an old one is told from a valid one without a table, and ends with a checksum.
const ackIDSize = 8 + 8 + 4 + 4

func newAckID(nonce, num uint64, serial uint32) string {
	b := make([]byte, 0, ackIDSize)
	b = binary.BigEndian.AppendUint64(b, nonce)
	b = binary.BigEndian.AppendUint64(b, num^nonce)
	b = binary.BigEndian.AppendUint32(b, serial)
	b = binary.BigEndian.AppendUint32(b, checksum(b))
	return base64.URLEncoding.EncodeToString(b)
}

func checksum(b []byte) uint32 {
	h := fnv.New32a()
	_, _ = h.Write(b)
	return h.Sum32()
}

// ackID is an ack id as it was read.
type ackID struct {
	nonce, num uint64
	serial     uint32
}

// readAckID reads an ack id of any subscription; ok is false for what is none.
func readAckID(id string) (a ackID, ok bool) {
	var b [ackIDSize]byte
	if base64.URLEncoding.DecodedLen(len(id)) != ackIDSize {
		return a, false
	}
	n, err := base64.URLEncoding.Decode(b[:], []byte(id))
	if err != nil || n != ackIDSize || checksum(b[:ackIDSize-4]) != binary.BigEndian.Uint32(b[ackIDSize-4:]) {
		return a, false
	}
	a.nonce = binary.BigEndian.Uint64(b[:])
	a.num = binary.BigEndian.Uint64(b[8:]) ^ a.nonce
	a.serial = binary.BigEndian.Uint32(b[16:])
	return a, true
}
