package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq/examples/internal/shop"
)

// quick are settings for a small file: two hundred orders, four slow, one poison of each sort.
func quick(t *testing.T, seed uint64) *shop.Settings {
	dir := t.TempDir()
	orders, corrections := filepath.Join(dir, "orders.csv"), filepath.Join(dir, "corrections.csv")
	rows, fixes := shop.Generate(200)
	require.NoError(t, os.WriteFile(orders, rows, 0o600))
	require.NoError(t, os.WriteFile(corrections, fixes, 0o600))
	return &shop.Settings{
		Orders: orders, Corrections: corrections, Ledger: filepath.Join(dir, "sub", "ledger.db"), Seed: seed,
		Crashes: len(allPoints), Workers: 3,
		Visibility: 500 * time.Millisecond, Bank: shop.Bank{Usual: 5 * time.Millisecond, Slow: 1200 * time.Millisecond},
		Restart: 50 * time.Millisecond,
	}
}

// demonstrate runs the demo as it is, and answers its report too.
func demonstrate(t *testing.T, o *shop.Settings) (*demo, *shop.Result, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out strings.Builder
	d, r, err := run(ctx, o, shop.NewScreen(&out))
	require.NoError(t, err)
	r.Print(&out)
	return d, r, out.String()
}

// Whatever the seed, each good order is charged once, poison ends in the dead-letter queue, by class, and is charged
// once when it is mended, though its replay is killed; a second run charges nobody.
func TestEachOrderIsChargedOnce(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			o := quick(t, seed)
			d, r, out := demonstrate(t, o)
			require.True(t, r.After.Holds(), "%s", out)
			require.Equal(t, 196, r.After.Good)
			require.Equal(t, 4, r.After.Mended)
			require.Equal(t, 200, r.After.Charges)
			require.Zero(t, r.After.Surplus)
			require.True(t, r.Mending.Killed, "%s", out)
			require.NotZero(t, r.Mending.InDoubt, "%s", out)
			// Those in doubt went twice, and so did those of which a copy was left.
			require.GreaterOrEqual(t, r.Mending.First+r.Mending.Again, 4, "%s", out)
			require.Equal(t, 4, r.Mending.Sent, "%s", out)
			require.Empty(t, r.Left, "%s", out)
			require.Equal(t, map[string]int{"bad-amount": 1, "unknown-currency": 1, "decode": 1, "panic": 1}, shop.Tallied(slices.Collect(maps.Values(r.Classes))))
			require.Contains(t, out, "Each good order was charged exactly once")
			require.NotContains(t, out, "FAILED")
			require.Greater(t, len(d.plan.crashes()), len(allPoints)/2, "%s", out)
			require.Positive(t, r.Beats)

			_, r, out = demonstrate(t, o)
			require.True(t, r.After.Holds(), "%s", out)
			require.Equal(t, 200, r.Before.Charges)
			require.Zero(t, r.NewCharges())
			require.Zero(t, r.Attempts, "a handler ran for an order that had ended before")
			require.Contains(t, out, "All 200 orders had been charged before; nobody was charged again.")
		})
	}
}

// Without the library the same run charges twice: at the least what was sent twice, and what is slow.
func TestThePlainLoopChargesTwice(t *testing.T) {
	t.Parallel()
	o := quick(t, 1)
	o.Naive = true
	d, r, out := demonstrate(t, o)
	require.False(t, r.After.Holds())
	twice := 0
	for _, row := range d.rows {
		if row.Kind == shop.Slow || row.Kind == shop.Good && row.Times > 1 {
			twice++
		}
	}
	require.GreaterOrEqual(t, r.After.Doubled, twice, "%s", out)
	require.Zero(t, r.After.PoisonLost, "%s", out)
	require.Contains(t, out, "charges too many")
}

// The exit status says whether the proof held.
func TestExitStatus(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	orders, ledger := filepath.Join(dir, "o.csv"), filepath.Join(dir, "l.db")
	require.NoError(t, os.WriteFile(orders, []byte(strings.Join(shop.Columns, ",")+"\nA,x,100,EUR,1,2,good\nB,y,-1,EUR,1,1,poison\n"), 0o600))
	command := func(args ...string) (int, string) {
		var out bytes.Buffer
		return command(t.Context(), append([]string{"-orders", orders, "-ledger", ledger, "-crashes", "0"}, args...), &out, &out), out.String()
	}
	code, out := command()
	require.Zero(t, code, "%s", out)
	require.Contains(t, out, "left in the queue                1   nobody knows what the customer has ordered")
	require.Contains(t, out, "beyond mending                   1")
	change(t, ledger, `INSERT INTO charges SELECT * FROM charges`)
	code, out = command()
	require.Equal(t, 1, code, "%s", out)
	require.Contains(t, out, "charged more than once           1   FAILED")
	require.Contains(t, out, "The promise was broken")
	code, out = command("-fresh")
	require.Zero(t, code, "%s", out)

	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-h"}, 0, "-no-onceq"},
		{[]string{"-crashes", "-1"}, 2, "0 or more crashes"},
		{[]string{"-workers", "0"}, 2, "1 worker or more"},
		{[]string{"more"}, 2, "no arguments"},
		{[]string{"-seed", "x"}, 2, "invalid value"},
		{[]string{"-orders", filepath.Join(dir, "none.csv")}, 1, "none.csv"},
		{[]string{"-corrections", orders}, 1, "reading the corrections: "},
		{[]string{"-corrections", filepath.Join(dir, "none.csv")}, 1, "none.csv"},
		{[]string{"-ledger", dir}, 1, "orders: "},
		{[]string{"-ledger", orders}, 1, "making the ledger " + orders},
	} {
		code, out := command(c.args...)
		require.Equal(t, c.code, code, "%v: %s", c.args, out)
		require.Contains(t, out, c.want)
	}
}

func change(t *testing.T, path, query string, args ...any) {
	t.Helper()
	db, err := shop.OpenLedger(path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), query, args...)
	require.NoError(t, err)
}
