package cli

import (
	"database/sql"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"modernc.org/sqlite"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/adapters/sqlitebroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testpg"
	"github.com/onceq/onceq/internal/testserver/testsqlite"
)

// This file plays docs/restore.md: a database that holds the keys, and mostly the queue, is
// restored from a backup while workers run. What the worker, the doctor and reconcile say of it is
// compared with what happened, and the charges are counted, which no restore takes back.

// backedUp is a database with a backup.
type backedUp struct{ dump, restore func() }

// copied is a SQLite file's backup: a copy that is made beside those who write.
func copied(t *testing.T, db *sql.DB) backedUp {
	t.Helper()
	copyAt := filepath.Join(t.TempDir(), "backup.db")
	return backedUp{
		dump: func() {
			if _, err := db.ExecContext(t.Context(), "VACUUM INTO ?", copyAt); err != nil {
				t.Fatal(err)
			}
		},
		restore: func() {
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			err = conn.Raw(func(c any) error {
				b, err := c.(interface {
					NewRestore(string) (*sqlite.Backup, error)
				}).NewRestore(copyAt)
				if err != nil {
					return err
				}
				for more := true; more && err == nil; {
					more, err = b.Step(-1)
				}
				if finished := b.Finish(); err == nil {
					err = finished
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		},
	}
}

// dumped is a database's backup by PostgreSQL's own programs.
func dumped(t *testing.T, address string) backedUp {
	t.Helper()
	at := must.Get(url.Parse(address))
	query := at.Query()
	query.Del("require_auth") // pgx knows it, and older programs do not
	at.RawQuery = query.Encode()
	database := at.String()
	program := func(name string) string {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
		all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
		if len(all) == 0 {
			t.Skipf("%s is not installed, so no PostgreSQL is restored here", name)
		}
		return slices.Max(all)
	}
	run := func(name string, args ...string) {
		out, err := exec.CommandContext(t.Context(), program(name), args...).CombinedOutput() //nolint:gosec // the server's own
		if err != nil {
			if strings.Contains(string(out), "server version mismatch") {
				t.Skipf("%s is older than the server, so no PostgreSQL is restored here: %s", name, out)
			}
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	file := filepath.Join(t.TempDir(), "backup.dump")
	return backedUp{
		dump: func() { run("pg_dump", "-Fc", "-f", file, database) },
		restore: func() {
			run("pg_restore", "--clean", "--if-exists", "--single-transaction", "--no-owner", "-d", database, file)
		},
	}
}

// restores play the page: what a restore has forgotten is told, and only what has neither key nor
// effect is sent. TestNights runs them.
var restores = map[string]func(t *testing.T){
	"sqlite": func(t *testing.T) {
		path := testsqlite.Path(t)
		// On a busy machine a writer may wait long for its turn.
		db, store := testsqlite.Open(t, path, &sqlitestore.Options{BusyTimeout: 10 * time.Second})
		r := rigOn(t, store, "sqlite://"+filepath.ToSlash(path))
		restored(t, r, copied(t, db), "sqlite-queue://"+filepath.ToSlash(path)+"/%s", func(name string) (broker.Broker, error) {
			q, err := sqlitebroker.New(store, name, nil)
			if err == nil {
				err = q.Migrate(t.Context())
			}
			return q, err
		})
	},
	"postgres": func(t *testing.T) {
		database := testpg.New(t).URL
		pool := must.Get(pgxpool.New(t.Context(), database))
		t.Cleanup(pool.Close)
		store := must.Get(pgstore.New(pool, nil))
		if err := store.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		before, query, _ := strings.Cut(database, "?")
		_, before, _ = strings.Cut(before, "://")
		r := rigOn(t, store, "'"+database+"'")
		restored(t, r, dumped(t, database), "postgres-queue://"+before+"/%s?"+query, func(name string) (broker.Broker, error) {
			q, err := pgbroker.New(pool, name, nil)
			if err == nil {
				err = q.Migrate(t.Context())
			}
			return q, err
		})
	},
}

// restored plays the page on a database that has the queue, too.
func restored(t *testing.T, r *rig, b backedUp, queueURL string, open func(name string) (broker.Broker, error)) {
	t.Helper()
	n := &night{rig: r}
	n.T = t
	var err error
	if r.queue, err = open("orders"); err != nil {
		t.Fatal(err)
	}
	if r.dead, err = open("orders-dead"); err != nil {
		t.Fatal(err)
	}
	n.worksOn = func() broker.Broker { return r.queue }
	r.config(fmt.Sprintf("profiles:\n  p:\n    store: %s\n    queues:\n      orders:\n        url: %q\n        dead: %q\n        scopes: [\"orders:charge\"]\n",
		r.storeURL, fmt.Sprintf(queueURL, "orders"), fmt.Sprintf(queueURL, "orders-dead")))
	all := keys("A-", 1, 8)
	n.due(all...)

	before := n.work("w-1", nil, brief)
	r.send(all[:2]...)
	n.idle()
	before.stop()
	r.send("A-3") // waits in the backup, and is done after it
	b.dump()
	s := n.work("w-2", nil, brief)
	r.send(all[3:6]...)
	n.idle()
	for _, k := range all[6:] { // wait in the queue when it is restored, which knows nothing of them
		m := onceq.Message("charge", k, []byte(`{"order":"`+k+`"}`))
		m.Delay = time.Hour
		if _, err := r.queue.Send(t.Context(), []broker.Outgoing{m}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int{"A-1": 1, "A-2": 1, "A-3": 1, "A-4": 1, "A-5": 1, "A-6": 1}
	n.charged(want)
	b.restore()

	// The worker notices, by its seat or by the next claim, and pauses the queue.
	n.until(func() bool {
		return s.w.Health().State == onceq.StatePaused && strings.Contains(n.run("workers", "orders").out, "paused")
	})
	n.run("queue", "ls").want(0, "PAUSED", `by onceq: "the store went back in time`)
	n.run("audit").want(0, "onceq", "pause", "the store went back in time")
	n.ledger()
	twice := n.charges()["A-3"] - 1 // its message came back with the queue, perhaps before the pause
	n.run("doctor", "orders").want(1, "pauses     FOUND", "paused by onceq at", "the store went back in time", "reconcile orders --expect FILE --effects LEDGER")

	args := []string{"reconcile", "orders", "--expect", filepath.Join(r.dir, "due.csv")}
	n.run(append(args, "--resend", "--yes", "--max", "9", "--reason", "x")...).want(5, "went back in time", "give a ledger of the effects")
	args = append(args, "--effects", filepath.Join(r.dir, "ledger.csv"))
	var v evidenceView
	n.run(append(args, "-o", "json")...).want(1).json(&v)
	if v.Counts["missing"] != 2 || v.Counts["duplicate"] != twice || v.Counts["effect without a key"] != 4-twice || v.ToSend != 2 {
		t.Errorf("%d twice so far, and the findings are %v", twice, v.Counts)
	}
	n.run(append(args, "--resend", "--yes", "--max", "9", "--reason", "INC-316: forgotten by the restore")...).want(1, "2 jobs sent")
	n.run(append(args, "--resend", "--yes", "--max", "9", "--reason", "once more")...) // by a colleague
	n.run("--yes", "queue", "resume", "orders", "--reason", "INC-316: compared with the bank").want(0, "1 rule ended")
	n.idle()
	// What had an effect was sent to nobody; A-3 is the page's price of a queue that comes back.
	want["A-3"], want["A-7"], want["A-8"] = 2, 1, 1
	n.charged(want)
	n.ledger()
	v = evidenceView{}
	n.run(append(args, "-o", "json")...).want(1).json(&v)
	if v.Counts["missing"] != 0 || v.Counts["duplicate"] != 1 || v.Counts["effect without a key"] != 3 || v.ToSend != 0 {
		t.Errorf("after the resend the findings are %v", v.Counts)
	}
}

// charges counts the effects of each key.
func (n *night) charges() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	got := map[string]int{}
	for _, e := range n.effects {
		got[e.key]++
	}
	return got
}

func (n *night) charged(want map[string]int) {
	n.Helper()
	if got := n.charges(); fmt.Sprint(got) != fmt.Sprint(want) {
		n.Fatalf("charged %v, want %v", got, want)
	}
}
