package sqsfake

import (
	"crypto/md5" // the checksum that SQS answers and SDKs check
	"encoding/binary"
	"encoding/hex"
)

// md5Text is the checksum of a body.
func md5Text(s string) string {
	sum := md5.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

// md5Attributes is the checksum of message attributes: of each, ordered by name, the name,
// the type, one byte for the kind of the value, and the value, all with their lengths. No
// attributes have none.
func md5Attributes(as []attribute) string {
	if len(as) == 0 {
		return ""
	}
	b := make([]byte, 0, 256)
	text := func(s string) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	for i := range as {
		a := &as[i]
		text(a.name)
		text(a.dataType)
		if a.isBinary() {
			b = append(b, 2)
			text(string(a.binary))
			continue
		}
		b = append(b, 1)
		text(a.text)
	}
	sum := md5.Sum(b)
	return hex.EncodeToString(sum[:])
}
