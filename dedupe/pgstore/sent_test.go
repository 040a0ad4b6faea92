package pgstore

import (
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// TestSentOutOfRange: a time that no database holds fails nobody's claim.
func TestSentOutOfRange(t *testing.T) {
	s := newStore(t, openPool(t), "records")
	for _, at := range []time.Time{time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-10_000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1<<55, 0)} {
		qs := []dedupe.ClaimRequest{request("good"), request("odd")}
		for i := range qs {
			qs[i].Key.Key += at.String()
		}
		qs[1].Sent = at
		cs, err := s.Claim(t.Context(), qs)
		if err != nil || cs[0].Outcome != dedupe.Won || cs[1].Outcome != dedupe.Won {
			t.Errorf("%v: %+v, %v", at, cs, err)
		}
	}
}
