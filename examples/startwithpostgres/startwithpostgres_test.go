package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/localstack"
)

// TestMain runs the program itself where a test, or the program under test, starts it.
func TestMain(m *testing.M) {
	if os.Getenv("ONCEQ_START") != "" || len(os.Args) == 2 && os.Args[1][0] == '{' {
		main()
		return
	}
	os.Exit(m.Run())
}

// each runs the shop on the places, and wants an invoice for each order, whoever was killed.
func each(t *testing.T, database, queue, where string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	got, err := run(ctx, t.Output(), t.Output(), database, queue)
	require.NoError(t, err)
	require.True(t, got.Holds(), "%+v", got)
	require.Greater(t, got.Orders, sellers, "%+v", got)
	require.Equal(t, where, got.where)
}

func file(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "shop.db") }

func TestOnSQLite(t *testing.T) {
	t.Parallel()
	each(t, file(t), "", "sqlite")
}

func TestOnSQS(t *testing.T) {
	t.Parallel()
	each(t, file(t), "sqsfake", "aws_sqs")
}

// What is made on PostgreSQL is dropped.
func TestOnPostgres(t *testing.T) {
	t.Parallel()
	url := localstack.Postgres(t).URL
	each(t, url, "", "postgresql")
	each(t, url, "sqsfake", "aws_sqs")
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context()) //nolint:errcheck // the database goes anyway
	var schemas int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'onceq%'`).Scan(&schemas))
	require.Zero(t, schemas)
}

// What was sent in a transaction that is rolled back was never there.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, err := open(ctx, file(t), "")
	require.NoError(t, err)
	defer s.close()
	require.NoError(t, s.place(ctx, "A-1"))
	require.Error(t, s.place(ctx, "A-1"), "there is such an order")
	tx, err := s.db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, onceq.Send(ctx, s.within(tx), []broker.Outgoing{onceq.Message("invoice", "A-2", nil)}))
	require.NoError(t, tx.Rollback())
	d, err := s.queue.(broker.Depther).Depth(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, d.Visible)
}

func TestWrongPlaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ database, queue, want string }{
		{"", "", "DATABASE_URL is not set"},
		{"shop.db", "", `DATABASE_URL: it begins with "shop.db:", want postgres://`},
		{"postgres://localhost:x/", "", "DATABASE_URL: "},
		{file(t), "invoices", `QUEUE_URL: "invoices" is no URL of a queue`},
	} {
		exe, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Args = cmd.Args[:1]
		cmd.Env = append(os.Environ(), "ONCEQ_START=1", "DATABASE_URL="+c.database, "QUEUE_URL="+c.queue)
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), c.want)
	}
}
