package onceq_test

import (
	"errors"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
)

// What the store refuses for good is named in the error, so that nobody repeats it for ever. There
// is nothing to give back.
func TestDoRefusedByTheStore(t *testing.T) {
	for _, why := range []error{dedupe.ErrBadKey, dedupe.ErrBadRequest} {
		bubbleDo(t, func(d *doer) {
			d.store.set(func(s *store) {
				s.onClaim = func([]dedupe.ClaimRequest, []dedupe.Claim) []dedupe.Claim {
					return []dedupe.Claim{{Err: why}}
				}
			})
			before := d.store.settles.Load()
			_, err := d.do("a", nil, d.mustNot)
			d.wants("the call", 0, err, 0, &onceq.NotRunError{})
			if !errors.Is(err, why) {
				t.Errorf("the error is %v", err)
			}
			pass(time.Minute)
			if n := d.store.settles.Load() - before; n != 0 {
				t.Errorf("%d settlements", n)
			}
		})
	}
}
