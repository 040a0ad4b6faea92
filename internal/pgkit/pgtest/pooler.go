package pgtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

// poolerEnv names the program pgbouncer, of which make compat knows where it is.
const poolerEnv = "ONCEQ_PGBOUNCER"

// Pooler runs PgBouncer in transaction mode before the server of db, and answers the address of db
// through it, and whether its version takes prepared statements. Without a PgBouncer the test is
// skipped.
func Pooler(t *testing.T, db *testpg.Database) (addr string, prepares bool) {
	t.Helper()
	program := os.Getenv(poolerEnv)
	if program == "" {
		t.Skip(poolerEnv + " names no pgbouncer; make compat does where there is one")
	}
	out, err := exec.Command(program, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(out), "PgBouncer %d.%d", &major, &minor); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	prepares = major > 1 || minor >= 21
	if !prepares {
		t.Logf("PgBouncer %d.%d takes no prepared statements", major, minor)
	}
	u := must.Get(url.Parse(db.URL))
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	// t.TempDir will not do: the account that PgBouncer runs as must be able to go there.
	dir, err := os.MkdirTemp("", "onceq-pgbouncer-") //nolint:usetesting // for that reason
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	extra := ""
	if prepares {
		extra = "max_prepared_statements = 200\n"
	}
	for name, text := range map[string]string{
		"users": fmt.Sprintf("%q %q\n", u.User.Username(), password),
		"ini": fmt.Sprintf("[databases]\n* = host=%s port=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = plain\nauth_file = %s\n"+
			"pool_mode = transaction\ndefault_pool_size = 8\nmax_client_conn = 200\n%s",
			u.Hostname(), u.Port(), port, filepath.Join(dir, "users"), extra),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{filepath.Join(dir, "ini")}
	if os.Geteuid() == 0 { // it does not run as root
		args = append([]string{"-u", "nobody"}, args...)
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid := must.Get(strconv.Atoi(nobody.Uid))
		for _, name := range []string{"users", "ini", ""} {
			if err := os.Chown(filepath.Join(dir, name), uid, -1); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, args...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() { cancel(); _ = cmd.Wait() }
	t.Cleanup(end)
	u.Host = fmt.Sprintf("127.0.0.1:%d", port)
	q := u.Query()
	q.Del("require_auth") // this pooler asks its clients in its own way
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	Until(t, "the pooler's first answer", func() bool {
		conn, err := pgx.Connect(t.Context(), u.String()+"&default_query_exec_mode=exec")
		if err == nil {
			err = conn.Close(t.Context())
		}
		if err != nil && !errors.As(err, new(*net.OpError)) {
			end()
			t.Fatalf("%v\n%s", err, log.String())
		}
		return err == nil
	})
	return u.String(), prepares
}

// Connect makes n connections of a pool, so that nobody waits for them later.
func Connect(tb testing.TB, pool *pgxpool.Pool, n int) {
	tb.Helper()
	for range n {
		defer must.Get(pool.Acquire(tb.Context())).Release()
	}
}

// MeetsPrepared has all connections of a pool but the first meet a statement of the name that pgx
// gives sql, as behind a pooler that hands one connection's prepared statements to another.
func MeetsPrepared(sql string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		var connections atomic.Int64
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			if connections.Add(1) < 2 {
				return nil
			}
			sum := sha256.Sum256([]byte(sql))
			_, err := conn.Exec(ctx, fmt.Sprintf("PREPARE stmtcache_%x AS SELECT 1", sum[:24]))
			return err
		}
	}
}
