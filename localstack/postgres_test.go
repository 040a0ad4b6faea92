//go:build unix

package localstack_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
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

// databases lists the databases on the server of an address.
func databases(t *testing.T, addr string) (names []string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), "select datname from pg_database")
	if err != nil {
		t.Fatal(err)
	}
	if names, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestDatabasesAreDropped(t *testing.T) {
	var made []*localstack.PostgresDB
	t.Run("a test with a very long name: ÄÖÜ \"; drop database postgres --", func(t *testing.T) {
		for range 2 {
			made = append(made, localstack.Postgres(t))
		}
		if here := databases(t, made[0].URL); !slices.Contains(here, made[0].Name) || !slices.Contains(here, made[1].Name) {
			t.Errorf("%v are not among %v", made, here)
		}
		// a connection that the test forgot is no obstacle
		if _, err := pgx.Connect(t.Context(), made[1].URL); err != nil {
			t.Fatal(err)
		}
	})
	for _, name := range databases(t, localstack.Postgres(t).URL) {
		if name == made[0].Name || name == made[1].Name {
			t.Errorf("%s is still there", name)
		}
	}
}

// TestKilledProcessesDatabases: on a server from the environment nobody ends the server, so the
// next process drops what a killed one has left, and nothing else.
func TestKilledProcessesDatabases(t *testing.T) {
	t.Parallel()
	onHost(t)
	dir := tempDir(t)
	wait, _ := askWait(t)
	server := start(t, dir, []string{wait, noDocker}, own(t)...)
	a := server.asked(t)
	from := []string{wait, "ONCEQ_POSTGRES_URL=" + a.url}
	killed, alive := start(t, dir, from, own(t)...), start(t, dir, from, own(t)...)
	dead, living := killed.asked(t), alive.asked(t)
	if err := syscall.Kill(-killed.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed.end(t)
	name := func(a asked) string {
		path, _, _ := strings.Cut(a.url[strings.LastIndex(a.url, "/")+1:], "?")
		return path
	}
	if here := databases(t, a.url); !slices.Contains(here, name(dead)) {
		t.Fatalf("the killed process's database %s is not among %v", name(dead), here)
	}
	next := start(t, dir, from, own(t)...)
	mine := next.asked(t)
	here := databases(t, a.url)
	if slices.Contains(here, name(dead)) {
		t.Errorf("the killed process's database is still there: %v", here)
	}
	for _, keep := range []asked{a, living, mine} {
		if !slices.Contains(here, name(keep)) {
			t.Errorf("%s is gone", name(keep))
		}
	}
}

func TestDurable(t *testing.T) {
	type settings struct{ fsync, commit, pages string }
	read := func(o *localstack.PostgresOptions) (s settings) {
		conn, err := pgx.Connect(t.Context(), localstack.PostgresWith(t, o).URL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		err = conn.QueryRow(t.Context(), `select current_setting('fsync'), current_setting('synchronous_commit'),
			current_setting('full_page_writes')`).Scan(&s.fsync, &s.commit, &s.pages)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if got, want := read(&localstack.PostgresOptions{Durable: true}), (settings{"on", "on", "on"}); got != want {
		t.Errorf("durable: %v, want %v", got, want)
	}
	if os.Getenv("ONCEQ_POSTGRES_URL") != "" {
		return // a server that we did not start may be as durable as it likes
	}
	if got, want := read(nil), (settings{"off", "off", "off"}); got != want {
		t.Errorf("by default: %v, want %v", got, want)
	}
}

func TestDurableRefusesAServerThatIsNot(t *testing.T) {
	t.Parallel()
	onHost(t)
	dir := tempDir(t)
	wait, _ := askWait(t)
	a := start(t, dir, []string{wait, noDocker}, own(t)...).asked(t)
	exe := own(t)[0]
	code, text := start(t, dir, []string{"ONCEQ_POSTGRES_URL=" + a.url}, exe, "-test.run=^TestDurable$", "-test.v").end(t)
	if code == 0 || !strings.Contains(text, "ONCEQ_POSTGRES_URL: a durable server is needed, and this one has fsync=off") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
}
