package main

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq/localstack"
)

// TestMain runs the program itself where a test, or the program under test, starts it.
func TestMain(m *testing.M) {
	if os.Getenv("ONCEQ_OUTBOX") != "" || len(os.Args) == 2 && os.Args[1][0] == '{' {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestProgramWithoutDatabase(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Args = cmd.Args[:1]
	cmd.Env = append(os.Environ(), "ONCEQ_OUTBOX=1", "DATABASE_URL=")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "DATABASE_URL is not set")
}

// Wherever kill -9 hits who sells, relays and ships: with the outbox each committed order is
// shipped once and no other is; without it orders are lost. Nothing is left behind.
func TestEachOrderIsShippedOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	url := localstack.Postgres(t).URL
	before, with, err := run(ctx, t.Output(), t.Output(), url)
	require.NoError(t, err)
	require.Positive(t, before.Lost, "the trap is gone: %+v", before)
	require.True(t, with.Holds(), "%+v", with)
	require.Greater(t, with.Orders, sellers, "%+v", with)

	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer conn.Close(ctx) //nolint:errcheck // the database goes anyway
	var schemas int
	require.NoError(t, conn.QueryRow(ctx, `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'onceq%'`).Scan(&schemas))
	require.Zero(t, schemas)
}
