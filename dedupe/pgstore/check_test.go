package pgstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
)

// TestCheck: what Migrate would make, rows that nobody sweeps, and rights that a worker's role
// lacks are faults with what mends them. A whole table has none.
func TestCheck(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, newTable())
	check := func(s *Store, want ...string) {
		t.Helper()
		fs, err := s.Check(t.Context())
		if err != nil || len(fs) != len(want) {
			t.Fatal(fs, err)
		}
		for i, f := range fs {
			if !strings.Contains(f.Text, want[i]) || f.Mend == "" {
				t.Errorf("%+v, want %s", f, want[i])
			}
		}
	}
	check(s)
	c := claimOne(t, s, request("b"))
	settleOne(t, s, c, dedupe.Done)
	k := c.Key
	check(s)
	age(t, pool, s, k, dedupe.DefaultRetention+2*time.Hour)
	check(s, "1 records or more")
	exec(t, pool, "DROP INDEX "+s.table+"_expires")
	check(s, "no valid index of expiries")
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, "ALTER TABLE "+s.table+" DROP COLUMN past")
	check(s, "of version 1")
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sweep(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for grant, want := range map[string][]string{
		"SELECT":                         nil,
		"SELECT, INSERT, UPDATE":         {"no DELETE on table"},
		"SELECT, INSERT, UPDATE, DELETE": {"sequence of fences"},
	} {
		role := fmt.Sprintf("checker_%d", time.Now().UnixNano())
		exec(t, pool, "CREATE ROLE "+role+"; GRANT USAGE ON SCHEMA public TO "+role+"; GRANT "+grant+" ON "+s.table+" TO "+role)
		as := poolOn(t, pool.Config().ConnString(), func(c *pgxpool.Config) {
			c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, "SET ROLE "+role)
				return err
			}
		})
		other := must.Get(New(as, &Options{Table: s.table}))
		check(other, want...)
		exec(t, pool, "DROP OWNED BY "+role+"; DROP ROLE "+role)
	}
	absent := must.Get(New(pool, &Options{Table: newTable()}))
	check(absent, "there is no table")
}
