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
)

// quick are options for a small file: two hundred orders, four slow, one poison of each sort.
func quick(t *testing.T, seed uint64) options {
	dir := t.TempDir()
	orders, corrections := filepath.Join(dir, "orders.csv"), filepath.Join(dir, "corrections.csv")
	rows, fixes := generate(200)
	require.NoError(t, os.WriteFile(orders, rows, 0o600))
	require.NoError(t, os.WriteFile(corrections, fixes, 0o600))
	return options{
		orders: orders, corrections: corrections, ledger: filepath.Join(dir, "sub", "ledger.db"), seed: seed,
		crashes: len(allPoints), workers: 3,
		visibility: 500 * time.Millisecond, bank: 5 * time.Millisecond, slowBank: 1200 * time.Millisecond,
		restart: 50 * time.Millisecond,
	}
}

// demonstrate runs the demo as it is, and answers its report too.
func demonstrate(t *testing.T, o options) (*result, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out strings.Builder
	r, err := run(ctx, o, &screen{out: &out})
	require.NoError(t, err)
	r.print(&out)
	return r, out.String()
}

// Whatever the seed, each good order is charged once, poison ends in the dead-letter queue, by class, and is charged
// once when it is mended, though its replay is killed; a second run charges nobody.
func TestEachOrderIsChargedOnce(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			o := quick(t, seed)
			r, out := demonstrate(t, o)
			require.True(t, r.after.holds(), "%s", out)
			require.Equal(t, 196, r.after.good)
			require.Equal(t, 4, r.after.mended)
			require.Equal(t, 200, r.after.charges)
			require.Zero(t, r.after.surplus)
			require.True(t, r.mending.killed, "%s", out)
			require.NotEmpty(t, r.mending.first.Failed, "%s", out)
			// Those in doubt went twice, and so did those of which a copy was left.
			require.GreaterOrEqual(t, r.mending.first.Replayed+r.mending.again.Replayed, 4, "%s", out)
			require.Equal(t, 4, r.mending.sent, "%s", out)
			require.Empty(t, r.left, "%s", out)
			require.Equal(t, map[string]int{"bad-amount": 1, "unknown-currency": 1, "decode": 1, "panic": 1}, tallied(slices.Collect(maps.Values(r.classes))))
			require.Contains(t, out, "Each good order was charged exactly once")
			require.NotContains(t, out, "FAILED")
			require.Greater(t, len(r.d.plan.crashes()), len(allPoints)/2, "%s", out)
			require.Positive(t, r.d.counts.beats.Load())

			r, out = demonstrate(t, o)
			require.True(t, r.after.holds(), "%s", out)
			require.Equal(t, 200, r.before.charges)
			require.Zero(t, r.newCharges())
			require.Zero(t, r.d.counts.attempts.Load(), "a handler ran for an order that had ended before")
			require.Contains(t, out, "All 200 orders had been charged before; nobody was charged again.")
		})
	}
}

// Without the library the same run charges twice: at the least what was sent twice, and what is slow.
func TestThePlainLoopChargesTwice(t *testing.T) {
	t.Parallel()
	o := quick(t, 1)
	o.naive = true
	r, out := demonstrate(t, o)
	require.False(t, r.after.holds())
	twice := 0
	for _, row := range r.d.rows {
		if row.kind == slow || row.kind == good && row.times > 1 {
			twice++
		}
	}
	require.GreaterOrEqual(t, r.after.doubled, twice, "%s", out)
	require.Zero(t, r.after.poisonLost, "%s", out)
	require.Contains(t, out, "charges too many")
}

// Each of the audit's questions finds what it asks for.
func TestTheAuditFindsWhatIsWrong(t *testing.T) {
	const paid = `INSERT INTO charges VALUES (?, 'x', ?, ?, 1, 'w', 'now')`
	rows := []row{
		{id: "1", cents: "100", currency: "EUR", kind: good},
		{id: "2", cents: "200", currency: "USD", kind: slow},
		{id: "3", cents: "n/a", currency: "EUR", kind: poison},
	}
	for _, c := range []struct {
		name   string
		change string
		ids    []string // of the dead letters
		want   func(*audit) int
	}{
		{"nothing", ``, []string{"3"}, nil},
		{"a missing charge", `DELETE FROM charges WHERE order_id = '2'`, []string{"3"}, func(a *audit) int { return a.missing }},
		{"a double charge", `INSERT INTO charges SELECT * FROM charges WHERE order_id = '1'`, []string{"3"}, func(a *audit) int { return a.doubled }},
		{"another amount", `UPDATE charges SET cents = 101 WHERE order_id = '1'`, []string{"3"}, func(a *audit) int { return a.amounts }},
		{"another currency", `UPDATE charges SET currency = 'CHF' WHERE order_id = '2'`, []string{"3"}, func(a *audit) int { return a.amounts }},
		{"poison paid", `INSERT INTO charges VALUES ('3', 'x', 'n/a', 'EUR', 1, 'w', 'now')`, []string{"3"}, func(a *audit) int { return a.poisonPaid }},
		{"poison lost", ``, nil, func(a *audit) int { return a.poisonLost }},
		{"a good dead letter", ``, []string{"1", "3"}, func(a *audit) int { return a.goodDead }},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger.db")
			require.NoError(t, makeLedger(t.Context(), path, false))
			change(t, path, paid, "1", 100, "EUR")
			change(t, path, paid, "2", 200, "USD")
			if c.change != "" {
				change(t, path, c.change)
			}
			letters := make(map[string]string)
			for _, id := range c.ids {
				letters[id] = "class"
			}
			a, err := auditLedger(t.Context(), path, rows, letters)
			require.NoError(t, err)
			require.Equal(t, c.want == nil, a.holds(), "%+v", a)
			if c.want != nil {
				require.Equal(t, 1, c.want(a), "%+v", a)
			}
		})
	}
}

// The exit status says whether the proof held.
func TestExitStatus(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	orders, ledger := filepath.Join(dir, "o.csv"), filepath.Join(dir, "l.db")
	require.NoError(t, os.WriteFile(orders, []byte(strings.Join(columns, ",")+"\nA,x,100,EUR,1,2,good\nB,y,-1,EUR,1,1,poison\n"), 0o600))
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

func TestBadOrders(t *testing.T) {
	head := strings.Join(columns, ",") + "\n"
	for _, c := range []struct{ file, want string }{
		{"", "line 1: want id,customer"},
		{"a,b,c,d,e,f,g\n", "line 1: want id,customer"},
		{head + "A,x,1,EUR,1,1\n", "wrong number of fields"},
		{head + ",x,1,EUR,1,1,good\n", `order 1: the id ""`},
		{head + "A,x,1,EUR,1,1,good\nA,x,1,EUR,1,1,good\n", `order 2: the id "A"`},
		{head + "A,x,1,EUR,1,0,good\n", `order A: sent_times is "0"`},
		{head + "A,x,1,EUR,1,often,good\n", `order A: sent_times is "often"`},
		{head + "A,x,1,EUR,1,1,fine\n", `order A: the kind "fine"`},
	} {
		_, err := readOrders(strings.NewReader(c.file))
		require.ErrorContains(t, err, c.want)
	}
}

func change(t *testing.T, path, query string, args ...any) {
	t.Helper()
	db, err := openLedger(path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), query, args...)
	require.NoError(t, err)
}
