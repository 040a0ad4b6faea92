// Package testpg gives a test an empty database of its own on the PostgreSQL that
// internal/testserver finds.
//
// The stores' tests call it, and so does localstack, which brings the ways to start a server.
// All databases of a process are made and dropped over one connection to each server (admins,
// under its lock).
package testpg

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceq/onceq/internal/testserver"
)

// Backend is PostgreSQL, for programs that start none.
var Backend = testserver.Backend{Name: "postgres", Version: version}

// Durable is the variant whose server waits for the disk before it answers a commit.
const Durable = "durable"

// A Database is an empty database of the test's own.
type Database struct {
	// URL is its address, with a user who may do everything.
	URL string
	// Name is the database's name.
	Name string
	// Version is the server's, such as "PostgreSQL 15.18".
	Version string
}

// New returns an empty database, which is dropped when the test ends.
func New(t testing.TB) *Database {
	t.Helper()
	return On(t, &Backend, "")
}

// NewDurable is New on a server that waits for the disk, for measurements.
func NewDurable(t testing.TB) *Database {
	t.Helper()
	return On(t, &Backend, Durable)
}

// On is New on a server of the variant that the back end b finds.
func On(t testing.TB, b *testserver.Backend, variant string) *Database {
	t.Helper()
	e := b.Get(t, variant)
	name, err := admin.create(t.Context(), e.URL, t.Name())
	if err != nil {
		t.Fatalf("backend postgres: creating a database: %v", err)
	}
	t.Cleanup(func() {
		if err := admin.drop(e.URL, name); err != nil {
			t.Errorf("backend postgres: dropping the test's database: %v", err)
		}
	})
	own, err := withDatabase(e.URL, name)
	if err != nil {
		t.Fatalf("backend postgres: %v", err)
	}
	return &Database{URL: own, Name: name, Version: e.Version}
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

// version asks the server for its version, and whether it keeps what the variant promises.
func version(ctx context.Context, addr, variant string) (string, error) {
	if _, err := withDatabase(addr, "x"); err != nil {
		return "", err
	}
	conn, err := connectAdmin(ctx, addr)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	var release, fsync, commit, pages string
	err = conn.QueryRow(ctx, `select current_setting('server_version'), current_setting('fsync'),
		current_setting('synchronous_commit'), current_setting('full_page_writes')`).Scan(&release, &fsync, &commit, &pages)
	if err != nil {
		return "", err
	}
	if variant == Durable && (fsync != "on" || commit == "off" || pages != "on") {
		return "", fmt.Errorf("a durable server is needed, and this one has fsync=%s, synchronous_commit=%s, full_page_writes=%s",
			fsync, commit, pages)
	}
	release, _, _ = strings.Cut(release, " ")
	return "PostgreSQL " + release, nil
}

// admins are this process's connections to create and drop databases with, one per server. A
// connection holds an advisory lock on the process's number as long as the process lives:
// databases that have the number of nobody are a killed process's. Such locks are a database's,
// not the server's, so names begin with the database that the connection is to.
type admins struct {
	sync.Mutex
	byURL map[string]*pgx.Conn
}

var admin admins

// processNumber is part of the names of this process's databases.
var processNumber = sync.OnceValue(func() int64 {
	var b [8]byte
	rand.Read(b[:])
	return int64(binary.BigEndian.Uint64(b[:]) >> 1)
})

// do runs f with the server's connection, which is made anew when it has broken.
func (a *admins) do(ctx context.Context, addr string, f func(*pgx.Conn) error) error {
	a.Lock()
	defer a.Unlock()
	conn := a.byURL[addr]
	if conn == nil || conn.IsClosed() {
		var err error
		if conn, err = connectAdmin(ctx, addr); err != nil {
			return err
		}
		if _, err = conn.Exec(ctx, "select pg_advisory_lock_shared($1)", processNumber()); err == nil && a.byURL[addr] == nil {
			err = sweep(ctx, conn)
		}
		if err != nil {
			return errors.Join(err, conn.Close(ctx))
		}
		if a.byURL == nil {
			a.byURL = map[string]*pgx.Conn{}
		}
		a.byURL[addr] = conn
	}
	return f(conn)
}

// connectAdmin connects as one who may do everything, perhaps to a server that is not ours:
// what others have made in its schemas must not take the place of PostgreSQL's own functions.
func connectAdmin(ctx context.Context, addr string) (*pgx.Conn, error) {
	c, err := pgx.ParseConfig(addr)
	if err != nil {
		return nil, err
	}
	c.RuntimeParams["search_path"] = "pg_catalog, pg_temp"
	return pgx.ConnectConfig(ctx, c)
}

// databasePrefix begins the names of all databases that are made over the connection.
func databasePrefix(ctx context.Context, conn *pgx.Conn) (prefix string, err error) {
	var oid uint32
	err = conn.QueryRow(ctx, "select oid from pg_database where datname = current_database()").Scan(&oid)
	return fmt.Sprintf("onceq_%08x_", oid), err
}

// sweep drops the databases of processes that are gone.
func sweep(ctx context.Context, conn *pgx.Conn) error {
	prefix, err := databasePrefix(ctx, conn)
	if err != nil {
		return err
	}
	rows, err := conn.Query(ctx, "select datname from pg_database where datname ~ $1", "^"+prefix+"[0-9a-f]{16}_[a-z0-9_]*$")
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		number, err := strconv.ParseInt(name[len(prefix):][:16], 16, 64)
		if err != nil || number == processNumber() {
			continue
		}
		var dead bool
		if err := conn.QueryRow(ctx, "select pg_try_advisory_lock($1)", number).Scan(&dead); err != nil {
			return err
		}
		if !dead {
			continue
		}
		// Not with force: somebody may be looking at it.
		_, err = conn.Exec(ctx, "drop database if exists "+name)
		if state := (*pgconn.PgError)(nil); errors.As(err, &state) && state.Code == objectInUse {
			err = nil
		}
		if _, unlockErr := conn.Exec(ctx, "select pg_advisory_unlock($1)", number); err != nil || unlockErr != nil {
			return fmt.Errorf("dropping what a killed process has left: %w", errors.Join(err, unlockErr))
		}
	}
	return nil
}

const objectInUse = "55006"

func (a *admins) create(ctx context.Context, addr, test string) (name string, err error) {
	return name, a.do(ctx, addr, func(conn *pgx.Conn) error {
		prefix, err := databasePrefix(ctx, conn)
		if err != nil {
			return err
		}
		name = prefix + databaseName(test)
		_, err = conn.Exec(ctx, "create database "+name+" template template0")
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

// databaseName returns a new name, without its prefix, that tells whose the database is: with
// it it is at most 63 bytes long, and needs no quotes.
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
	return fmt.Sprintf("%016x_%s_%.22s", processNumber(), strings.ToLower(rand.Text())[:8], word)
}
