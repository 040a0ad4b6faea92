package records

import (
	"fmt"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/values"
)

// Join joins a job to the transaction that will complete it, and is the job's lease. It refuses
// what cannot be completed. The job is joined even where the caller fails after that, because a
// worker that went on alone would write done for effects that were never written.
func Join(job dedupe.Owned) (dedupe.Lease, error) {
	if values.IsNil(job) {
		return dedupe.Lease{}, fmt.Errorf("%w: job is nil", dedupe.ErrBadRequest)
	}
	lease := job.Lease()
	if lease.Fence == 0 {
		return lease, fmt.Errorf("%w: the job was not claimed in a store", dedupe.ErrBadRequest)
	}
	job.Join()
	return lease, nil
}
