package doing

import (
	"errors"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// What the store refuses for good is named in the error, so that nobody repeats it for ever. There
// is nothing to give back.
func TestDoRefusedByTheStore(t *testing.T) {
	for _, why := range []error{dedupe.ErrBadKey, dedupe.ErrBadRequest} {
		rig.BubbleDo(t, func(d *rig.Doer) {
			d.Store.Set(func(s *rig.Store) {
				s.OnClaim = func([]dedupe.ClaimRequest, []dedupe.Claim) []dedupe.Claim {
					return []dedupe.Claim{{Err: why}}
				}
			})
			before := d.Store.Settles.Load()
			_, err := d.Do("a", nil, d.MustNot)
			d.Wants("the call", 0, err, 0, &onceq.NotRunError{})
			if !errors.Is(err, why) {
				t.Errorf("the error is %v", err)
			}
			rig.Pass(time.Minute)
			if n := d.Store.Settles.Load() - before; n != 0 {
				t.Errorf("%d settlements", n)
			}
		})
	}
}
