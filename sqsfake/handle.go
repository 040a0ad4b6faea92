package sqsfake

import (
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
)

// A receipt handle is opaque to its holder. It names the queue, the message and the receive,
// so that a stale one is told from a valid one without a table, and ends with a checksum.
const handleSize = 3 + 8 + 8 + 4 + 4

func newHandle(nonce, num uint64, serial uint32) string {
	b := append(make([]byte, 0, handleSize), 1, 1, 1) // AQEB, as AWS's handles begin
	b = binary.BigEndian.AppendUint64(b, nonce)
	b = binary.BigEndian.AppendUint64(b, num^nonce)
	b = binary.BigEndian.AppendUint32(b, serial)
	b = binary.BigEndian.AppendUint32(b, checksum(b))
	return base64.StdEncoding.EncodeToString(b)
}

func checksum(b []byte) uint32 {
	h := fnv.New32a()
	h.Write(b)
	return h.Sum32()
}

// find reads a receipt handle. The message is nil when it has left the queue; current says
// whether the handle is of its last receive.
func (q *queue) find(e *entry) (m *message, current bool, err *apiError) {
	b, wrong := base64.StdEncoding.DecodeString(e.receipt)
	if wrong != nil || len(b) != handleSize || checksum(b[:handleSize-4]) != binary.BigEndian.Uint32(b[handleSize-4:]) ||
		binary.BigEndian.Uint64(b[3:]) != q.nonce {
		return nil, false, errHandle.withf("The input receipt handle %q is not a valid receipt handle.", e.receipt)
	}
	m = q.messages[binary.BigEndian.Uint64(b[11:])^q.nonce]
	if m == nil {
		return nil, false, nil
	}
	return m, m.serial == binary.BigEndian.Uint32(b[19:]) && !e.spoiled, nil
}
