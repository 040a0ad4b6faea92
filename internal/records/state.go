package records

import (
	"encoding/binary"
	"fmt"
	"math"
)

// stateNo is how many bytes of a stored state are its number.
const stateNo = 8

// EncodeState is a state as a column holds it: its number in 8 bytes, the highest first, so that
// the first 8 bytes of two states compare as their numbers do. nil stays nil.
func EncodeState(no int, state []byte) []byte {
	if state == nil {
		return nil
	}
	b := make([]byte, stateNo, stateNo+len(state))
	binary.BigEndian.PutUint64(b, uint64(no))
	return append(b, state...)
}

// DecodeState is the reverse of [EncodeState]. The state shares b's memory.
func DecodeState(b []byte) (no int, state []byte, err error) {
	if b == nil {
		return 0, nil, nil
	}
	if len(b) < stateNo {
		return 0, nil, fmt.Errorf("state has %d bytes, want its number in the first %d", len(b), stateNo)
	}
	n := binary.BigEndian.Uint64(b)
	if n == 0 || n > math.MaxInt {
		return 0, nil, fmt.Errorf("the number of the state is %d, want 1 to %d", n, math.MaxInt)
	}
	return int(n), b[stateNo:], nil
}
