package pgstore

import (
	"context"

	"github.com/onceq/onceq/dedupe"
)

var _ dedupe.Sweeper = (*Store)(nil)

// sweepRows names the statuses although the others have no expiry: a row that was mended by hand
// must not lose its claim. The clock stands in a subquery, which the index can be searched for.
const sweepRows = `WITH old AS MATERIALIZED (
	SELECT ` + placed + ` FROM {table} t
	WHERE expires {<=} (SELECT pg_catalog.clock_timestamp()) AND (status {=} 'done' OR status {=} 'failed' OR status {=} 'released')
	ORDER BY expires LIMIT $1::bigint FOR UPDATE SKIP LOCKED
)
DELETE FROM {table} t USING old g WHERE ` + atPlace

// sweepBatch keeps each transaction of a sweep short.
const sweepBatch = 1000

// Sweep deletes records whose retention has ended, the oldest first and at most limit of them; 0 or
// less means all. It returns how many. It works in transactions of 1,000 rows and waits for no row,
// so that any number of workers may sweep at once. After an error the number is that of the
// transactions before it. Only the size of the table depends on it, because an expired record
// counts as absent.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	total := 0
	for limit <= 0 || total < limit {
		if err := s.ready(ctx, 0); err != nil {
			return total, err
		}
		n := sweepBatch
		if limit > 0 {
			n = min(n, limit-total)
		}
		var gone int64
		p := newPipeline()
		p.Count(&gone, s.sql().sweep, n)
		if err := p.Run(ctx, s.db); err != nil {
			return total, s.explain(ctx, "Sweep", err)
		}
		total += int(gone)
		if int(gone) < n {
			break
		}
	}
	return total, nil
}
