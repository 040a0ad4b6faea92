package pgstore

import (
	"fmt"
	"math"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
)

// TestCompletionIsPlannedAnew: the user's connection has planned the completion for a small table
// that was just vacuumed, and nobody analyses it again. It must not read the whole of what it grows
// to.
func TestCompletionIsPlannedAnew(t *testing.T) {
	for name, finish := range map[string]func(t *testing.T, s *Store, theirs *pgxpool.Pool, ls []dedupe.Lease) error{
		"CompleteTx": func(t *testing.T, s *Store, theirs *pgxpool.Pool, ls []dedupe.Lease) error {
			return completing(t, s, theirs, ls...).Commit(t.Context())
		},
		"Commit": func(t *testing.T, s *Store, theirs *pgxpool.Pool, ls []dedupe.Lease) error {
			for _, l := range ls {
				if err := s.Commit(t.Context(), &job{Of: l}, func(pgx.Tx) (any, error) { return nil, nil }); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) { plannedAnew(t, finish) })
	}
}

func plannedAnew(t *testing.T, complete func(t *testing.T, s *Store, theirs *pgxpool.Pool, ls []dedupe.Lease) error) {
	t.Helper()
	pool := openPool(t)
	table := newTable()
	s := newStore(t, pool, table)
	exec(t, pool, "ALTER TABLE "+table+" SET (autovacuum_enabled = false)")
	theirs := poolOn(t, pool.Config().ConnString(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	on := newStore(t, theirs, table)
	claimed := 0
	claim := func(n int) (ls []dedupe.Lease) {
		t.Helper()
		qs := make([]dedupe.ClaimRequest, n)
		for i := range qs {
			claimed++
			qs[i] = request(fmt.Sprintf("%06d", claimed))
		}
		for _, c := range claimAll(t, s, qs...) {
			ls = append(ls, c.Lease)
		}
		return ls
	}
	finish := func(ls []dedupe.Lease) {
		t.Helper()
		if err := complete(t, on, theirs, ls); err != nil {
			t.Fatal(err)
		}
	}
	few := claim(20)
	exec(t, pool, "VACUUM ANALYZE "+table)
	finish(few) // from the sixth on with the plan that stays
	for claimed < 4000 {
		finish(claim(200))
	}
	pool.Close() // what a connection has counted is known when it has ended
	theirs.Close()
	fresh := poolOn(t, pool.Config().ConnString())
	var scans, rows int64
	until(t, "the count", func() bool {
		const q = "SELECT seq_scan, seq_tup_read, n_tup_ins FROM pg_stat_user_tables WHERE relname = $1"
		var inserted int64
		if err := fresh.QueryRow(t.Context(), q, table).Scan(&scans, &rows, &inserted); err != nil {
			t.Fatal(err)
		}
		return inserted == int64(claimed)
	})
	t.Logf("%d of %d completions read the table whole, %d rows", scans, claimed, rows)
	if scans > int64(claimed)/5 || rows > 200*int64(claimed) {
		t.Errorf("%d of %d completions read the table whole, %d rows", scans, claimed, rows)
	}
	if scans == 0 {
		t.Error("the small table was not read whole: the test shows nothing")
	}
}

func TestPlan(t *testing.T) {
	s := new(Store)
	const first = 1_700_000_000_000_000
	for _, c := range []struct {
		rise uint64
		want int
	}{{0, 0}, {1, 0}, {255, 0}, {256, 1}, {1023, 1}, {1024, 2}, {255, 0}, {1 << 40, 17}} {
		if got := s.plan(first + c.rise); got != c.want {
			t.Errorf("fence + %d: plan %d, want %d", c.rise, got, c.want)
		}
	}
	// Another store's job, or a sequence that was set back.
	for _, fence := range []uint64{first - 1, math.MaxUint64} {
		if got := s.plan(fence); got < 0 || got >= plans {
			t.Errorf("fence %d: plan %d of %d", fence, got, plans)
		}
	}
}
