package memstore

import (
	"context"
	"fmt"
	"time"

	"github.com/onceq/onceq/dedupe"
)

var _ dedupe.Sweeper = (*Store)(nil)

// Sweep drops at most limit records that have expired (0 or less: all), and returns how many. A
// store that is full drops them by itself, for each new key. A sweep gives the memory back before
// that. It locks one shard at a time, and drops few records under one lock, so others wait for
// microseconds.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	total := 0
	for i := range s.shards {
		sh := &s.shards[i]
		for limit <= 0 || total < limit {
			if err := ctx.Err(); err != nil {
				return total, fmt.Errorf("memstore: Sweep: %w", err)
			}
			n := sweepBatch
			if limit > 0 {
				n = min(n, limit-total)
			}
			sh.mu.Lock()
			gone := sh.dropExpired(time.Now(), n)
			sh.mu.Unlock()
			s.count.Add(-int64(gone))
			total += gone
			if gone < n {
				break
			}
		}
	}
	return total, nil
}

// sweepBatch is how many records are dropped under one lock.
const sweepBatch = 100
