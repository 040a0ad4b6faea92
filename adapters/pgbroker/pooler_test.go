package pgbroker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	osexec "os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/broker/brokertest"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

// poolerEnv names the program pgbouncer, of which make compat knows where it is.
const poolerEnv = "ONCEQ_PGBOUNCER"

// TestPooler runs the suite through PgBouncer in transaction mode, with fewer connections to the
// server than callers, and every call in the modes of pgx that each version takes.
func TestPooler(t *testing.T) {
	program := os.Getenv(poolerEnv)
	if program == "" {
		t.Skip(poolerEnv + " names no pgbouncer; make compat does where there is one")
	}
	addr := pooler(t, program, testpg.New(t))
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		pool := poolOn(t, addr, func(c *pgxpool.Config) {
			c.MaxConns = 40
			c.ConnConfig.DefaultQueryExecMode = mode
		})
		if err := wholeLife(t.Context(), pool, mode.String()); err != nil {
			t.Errorf("%v: %v", mode, err)
		}
		if mode == pgx.QueryExecModeCacheDescribe {
			t.Run(mode.String(), func(t *testing.T) {
				brokertest.Run(t, harness(func(testing.TB) *pgxpool.Pool { return pool }))
			})
		}
	}
}

// pooler runs PgBouncer before the server of db, and answers the address of db through it.
func pooler(t *testing.T, program string, db *testpg.Database) string {
	t.Helper()
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
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
	for name, text := range map[string]string{
		"users": fmt.Sprintf("%q %q\n", u.User.Username(), password),
		"ini": fmt.Sprintf("[databases]\n* = host=%s port=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = plain\nauth_file = %s\n"+
			"pool_mode = transaction\ndefault_pool_size = 8\nmax_client_conn = 200\n",
			u.Hostname(), u.Port(), port, filepath.Join(dir, "users")),
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
		uid, err := strconv.Atoi(nobody.Uid)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"users", "ini", ""} {
			if err := os.Chown(filepath.Join(dir, name), uid, -1); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := osexec.CommandContext(ctx, program, args...)
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
	until(t, "the pooler's first answer", func() bool {
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
	return u.String()
}
