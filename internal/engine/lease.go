package engine

import (
	"time"

	"github.com/onceq/onceq/internal/durations"
)

// leaseFor is how long a claim is asked for. Where the delivery ends at a known time, the lease
// ends soon after that: SettleTimeout is added, so that the end can be written.
func (en *Engine[J]) leaseFor(r *Run[J]) time.Duration {
	if !r.ends() {
		return en.o.Lease
	}
	most := en.o.Lease
	if r.hasOneLease() {
		most = MaxLease
	}
	return min(most, max(MinLease, durations.Sum(time.Until(r.known.until), en.o.SettleTimeout)))
}

// hasOneLease reports whether the run's claim is to last as long as its delivery, and so is not
// renewed.
func (r *Run[J]) hasOneLease() bool {
	return r.f.Terms.OneLease && r.ends()
}

// ends reports whether the delivery ends at a known time.
func (r *Run[J]) ends() bool { return r.known != nil && !r.known.until.IsZero() }
