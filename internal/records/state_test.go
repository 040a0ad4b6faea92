package records

import (
	"bytes"
	"math"
	"testing"
)

func TestState(t *testing.T) {
	for _, state := range [][]byte{nil, {}, []byte("step 1"), make([]byte, 9)} {
		var last []byte
		for _, no := range []int{1, 2, 255, 256, math.MaxInt} {
			b := EncodeState(no, state)
			if state == nil {
				no = 0
			}
			n, s, err := DecodeState(b)
			if n != no || !bytes.Equal(s, state) || (s == nil) != (state == nil) || err != nil {
				t.Errorf("state %d %q came back as %d %q, %v", no, state, n, s, err)
			}
			if state != nil && bytes.Compare(last, b[:8]) >= 0 {
				t.Errorf("%d does not stand above the number before it", no)
			}
			last = b
		}
	}
	for _, b := range [][]byte{{}, []byte("step 1"), make([]byte, 8), bytes.Repeat([]byte{0xff}, 9)} {
		if n, s, err := DecodeState(b); err == nil {
			t.Errorf("%q was read as %d %q", b, n, s)
		}
	}
}
