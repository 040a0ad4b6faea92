package shop

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each of the audit's questions finds what it asks for.
func TestTheAuditFindsWhatIsWrong(t *testing.T) {
	const paid = `INSERT INTO charges VALUES (?, 'x', ?, ?, 1, 'w', 'now')`
	rows := []Row{
		{ID: "1", Cents: "100", Currency: "EUR", Kind: Good},
		{ID: "2", Cents: "200", Currency: "USD", Kind: Slow},
		{ID: "3", Cents: "n/a", Currency: "EUR", Kind: Poison},
	}
	for _, c := range []struct {
		name   string
		change string
		ids    []string // of the dead letters
		want   func(*Audit) int
	}{
		{"nothing", ``, []string{"3"}, nil},
		{"a missing charge", `DELETE FROM charges WHERE order_id = '2'`, []string{"3"}, func(a *Audit) int { return a.Missing }},
		{"a double charge", `INSERT INTO charges SELECT * FROM charges WHERE order_id = '1'`, []string{"3"}, func(a *Audit) int { return a.Doubled }},
		{"another amount", `UPDATE charges SET cents = 101 WHERE order_id = '1'`, []string{"3"}, func(a *Audit) int { return a.Amounts }},
		{"another currency", `UPDATE charges SET currency = 'CHF' WHERE order_id = '2'`, []string{"3"}, func(a *Audit) int { return a.Amounts }},
		{"poison paid", `INSERT INTO charges VALUES ('3', 'x', 'n/a', 'EUR', 1, 'w', 'now')`, []string{"3"}, func(a *Audit) int { return a.PoisonPaid }},
		{"poison lost", ``, nil, func(a *Audit) int { return a.PoisonLost }},
		{"a good dead letter", ``, []string{"1", "3"}, func(a *Audit) int { return a.GoodDead }},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger.db")
			require.NoError(t, MakeLedger(t.Context(), path, false))
			change(t, path, paid, "1", 100, "EUR")
			change(t, path, paid, "2", 200, "USD")
			if c.change != "" {
				change(t, path, c.change)
			}
			letters := make(map[string]string)
			for _, id := range c.ids {
				letters[id] = "class"
			}
			a, err := AuditLedger(t.Context(), path, rows, letters)
			require.NoError(t, err)
			require.Equal(t, c.want == nil, a.Holds(), "%+v", a)
			if c.want != nil {
				require.Equal(t, 1, c.want(a), "%+v", a)
			}
		})
	}
}

func TestBadOrders(t *testing.T) {
	head := strings.Join(Columns, ",") + "\n"
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
		_, err := ReadOrders(strings.NewReader(c.file))
		require.ErrorContains(t, err, c.want)
	}
}

func change(t *testing.T, path, query string, args ...any) {
	t.Helper()
	db, err := OpenLedger(path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), query, args...)
	require.NoError(t, err)
}
