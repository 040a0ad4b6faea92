package pgtest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Plan is the plan that stays of a statement, for any arguments, behind these settings of its
// transaction.
func Plan(t *testing.T, pool *pgxpool.Pool, sql string, settings ...string) string {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	args := strings.Repeat(", NULL", len(slices.Compact(slices.Sorted(slices.Values(argument.FindAllString(sql, -1))))))
	if args != "" {
		args = "(" + args[2:] + ")"
	}
	for _, set := range settings {
		Exec(t, tx, set)
	}
	Exec(t, tx, "PREPARE looked AS "+sql)
	rows, err := tx.Query(t.Context(), "EXPLAIN (COSTS OFF) EXECUTE looked"+args, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	Exec(t, tx, "DEALLOCATE looked")
	return strings.Join(lines, "\n")
}

var argument = regexp.MustCompile(`\$\d+`)
