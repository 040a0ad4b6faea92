package dedupetest

import (
	"context"
	"time"

	"github.com/onceq/onceq/dedupe"
)

var _ dedupe.Sweeper = (*shop)(nil)

// Sweep removes expired records.
func (s *shop) Sweep(ctx context.Context, limit int) (n int, err error) {
	if s.fault != "sweep goes on" {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, r := range s.records {
		if limit > 0 && n == limit && s.fault != "sweep without a limit" {
			break
		}
		old := r.Expired(time.Now())
		if s.fault == "sweep takes parked records" {
			old = old || r.Status == dedupe.Parked
		}
		if s.fault == "sweep takes what is done" {
			old = old || r.Status == dedupe.Done
		}
		if old {
			delete(s.records, k)
			n++
		}
	}
	return n, nil
}
