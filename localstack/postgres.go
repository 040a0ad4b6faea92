package localstack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

var postgres = backend{
	name:    "postgres",
	env:     "ONCEQ_POSTGRES_URL",
	ways:    []way{{"host process", startPostgres}, {"Docker", runPostgres}},
	version: postgresVersion,
}

// durable is the variant whose server waits for the disk.
const durable = "durable"

// A PostgresDB is an empty database of the test's own.
type PostgresDB struct {
	// URL is its address, with a user who may do everything: postgres://user:password@host:port/name?sslmode=disable.
	URL string
	// Name is the database's name.
	Name string
	// Version is the server's, such as "PostgreSQL 15.18".
	Version string
}

// PostgresOptions say what server a test needs.
type PostgresOptions struct {
	// Durable asks for a server that writes to disk before it answers a commit (fsync, synchronous_commit and
	// full_page_writes are on), for measurements. The default is false: such a server loses its data with the
	// machine, and commits several times as fast.
	Durable bool
}

// Postgres returns an empty database, which is dropped when the test ends. See the package comment for the server
// it is on, and for what happens when there is none.
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
	e := postgres.get(t, variant)
	name, err := admin.create(t.Context(), e.URL, t.Name())
	if err != nil {
		t.Fatalf("localstack: postgres: creating a database: %v", err)
	}
	t.Cleanup(func() {
		if err := admin.drop(e.URL, name); err != nil {
			t.Errorf("localstack: postgres: dropping the test's database: %v", err)
		}
	})
	own, err := withDatabase(e.URL, name)
	if err != nil {
		t.Fatalf("localstack: postgres: %v", err)
	}
	return &PostgresDB{URL: own, Name: name, Version: e.Version}
}

// withDatabase returns the address of another database on the same server.
func withDatabase(addr, name string) (string, error) {
	u, err := url.Parse(addr)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		// not %w: the error would show the password
		return "", errors.New("the address is not of the form postgres://user:password@host:port/name")
	}
	u.Path = "/" + name
	return u.String(), nil
}

// postgresVersion asks the server for its version, and whether it keeps what the variant promises.
func postgresVersion(ctx context.Context, addr, variant string) (string, error) {
	if _, err := withDatabase(addr, "x"); err != nil {
		return "", err
	}
	conn, err := pgx.Connect(ctx, addr)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	var version, fsync, commit, pages string
	err = conn.QueryRow(ctx, `select current_setting('server_version'), current_setting('fsync'),
		current_setting('synchronous_commit'), current_setting('full_page_writes')`).Scan(&version, &fsync, &commit, &pages)
	if err != nil {
		return "", err
	}
	if variant == durable && (fsync != "on" || commit == "off" || pages != "on") {
		return "", fmt.Errorf("a durable server is needed, and this one has fsync=%s, synchronous_commit=%s, full_page_writes=%s",
			fsync, commit, pages)
	}
	version, _, _ = strings.Cut(version, " ")
	return "PostgreSQL " + version, nil
}

// admins are this process's connections to create and drop databases with, one per server.
type admins struct {
	sync.Mutex
	byURL map[string]*pgx.Conn
}

var admin admins

// do runs f with the server's connection, which is made anew when it has broken.
func (a *admins) do(ctx context.Context, addr string, f func(*pgx.Conn) error) error {
	a.Lock()
	defer a.Unlock()
	conn := a.byURL[addr]
	if conn == nil || conn.IsClosed() {
		var err error
		if conn, err = pgx.Connect(ctx, addr); err != nil {
			return err
		}
		if a.byURL == nil {
			a.byURL = map[string]*pgx.Conn{}
		}
		a.byURL[addr] = conn
	}
	return f(conn)
}

func (a *admins) create(ctx context.Context, addr, test string) (string, error) {
	name := databaseName(test)
	return name, a.do(ctx, addr, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "create database "+name+" template template0")
		return err
	})
}

func (a *admins) drop(addr, name string) error {
	// the test's own context has ended
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return a.do(ctx, addr, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "drop database if exists "+name+" with (force)")
		return err
	})
}

// databaseName returns a new name that tells whose the database is: it needs no quotes, and is at most 63 bytes long.
func databaseName(test string) string {
	word := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '_'
	}, test)
	return fmt.Sprintf("onceq_%s_%.30s", strings.ToLower(rand.Text())[:12], word)
}
