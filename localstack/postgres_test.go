package localstack_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/localstack"
)

func TestPostgres(t *testing.T) {
	db := localstack.Postgres(t)
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var name string
	if err := conn.QueryRow(t.Context(), "select current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	if name != db.Name {
		t.Errorf("the address leads to the database %q, want %q", name, db.Name)
	}
}
