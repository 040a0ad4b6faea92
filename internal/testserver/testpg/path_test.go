package testpg

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestAdminPath: on a server that others use too, their functions do not take the place of
// PostgreSQL's own.
func TestAdminPath(t *testing.T) {
	db := New(t)
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `CREATE FUNCTION public.pg_advisory_lock_shared(integer) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'hijacked'; END $$`)
	if err != nil {
		t.Fatal(err)
	}
	own, err := connectAdmin(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close(t.Context())
	const call = "SELECT pg_advisory_lock_shared(1)"
	if _, err := conn.Exec(t.Context(), call); err == nil {
		t.Error("the twin does not take the call: this test shows nothing")
	}
	if _, err := own.Exec(t.Context(), call); err != nil {
		t.Error(err)
	}
}
