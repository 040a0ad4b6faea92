package localstack

import (
	"testing"

	"github.com/onceq/onceq/internal/testserver/testpg"
)

var postgres = backend{
	Backend: testpg.Backend,
	ways:    []way{{how: "host process", start: startPostgres}, {how: "Docker", start: runPostgres}},
}

// durable is the variant whose server waits for the disk.
const durable = testpg.Durable

// A PostgresDB is an empty database of the test's own.
type PostgresDB struct {
	// URL is its address, with a user who may do everything:
	// postgres://user:password@host:port/name?sslmode=disable. That of a server of ours has
	// require_auth=scram-sha-256 as well: so no other is believed that has taken the port.
	URL string
	// Name is the database's name.
	Name string
	// Version is the server's, such as "PostgreSQL 15.18".
	Version string
}

// PostgresOptions say what server a test needs.
type PostgresOptions struct {
	// Durable asks for a server that writes to disk before it answers a commit (fsync,
	// synchronous_commit and full_page_writes are on), for measurements. The default is false:
	// such a server loses its data with the machine, and commits several times as fast.
	Durable bool
}

// Postgres returns an empty database, which is dropped when the test ends. See the package
// comment for the server it is on, and for what happens when there is none.
func Postgres(t testing.TB) *PostgresDB {
	t.Helper()
	return PostgresWith(t, nil)
}

// PostgresWith is Postgres with options; nil means their defaults.
func PostgresWith(t testing.TB, o *PostgresOptions) *PostgresDB {
	t.Helper()
	variant := ""
	if o != nil && o.Durable {
		variant = durable
	}
	db := testpg.On(t, postgres.asked(), variant)
	return &PostgresDB{URL: db.URL, Name: db.Name, Version: db.Version}
}
