//go:build unix

package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/adapters/sqlitebroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/internal/proof"
)

// This file owns the upgrade to steps: workers of the commit before them, built from the
// repository's history, beside workers of this tree, on one queue and one store.

// beforeSteps is the commit that the work on steps began with: the parent of the first one that has
// a Step, and the last without.
const beforeSteps = "b782fde72a2767062fa72140ee413ecaa6c31246"

// newerVariable makes the test binary a worker of this tree.
const newerVariable = "ONCEQ_CHAOS_NEWER"

// newer is what such a worker is told.
type newer struct{ Name, Database, API string }

// shelf is a queue and a store on one database.
type shelf struct {
	queue interface {
		broker.Broker
		broker.Depther
		Migrate(ctx context.Context) error
	}
	store interface {
		dedupe.Store
		Migrate(ctx context.Context) error
	}
	close func()
}

func openShelf(ctx context.Context, database string) (s shelf, err error) {
	if strings.HasPrefix(database, "postgres") {
		pool, err := pgxpool.New(ctx, database)
		if err != nil {
			return s, err
		}
		queue, err := pgbroker.New(pool, "orders", nil)
		if err != nil {
			return s, err
		}
		store, err := pgstore.New(pool, nil)
		return shelf{queue, store, pool.Close}, err
	}
	db, err := sql.Open("sqlite", sqlitestore.DSN(database))
	if err != nil {
		return s, err
	}
	store, err := sqlitestore.New(db, nil)
	if err != nil {
		return s, err
	}
	queue, err := sqlitebroker.New(store, "orders", nil)
	return shelf{queue, store, func() { _ = db.Close() }}, err
}

// workNewer is a worker process with steps. What the older one does at an error, it does at an
// error or with a postponement.
func workNewer(ctx context.Context, a newer) error {
	s, err := openShelf(ctx, a.Database)
	if err != nil {
		return err
	}
	return runWorker(ctx, onceq.ProcessorConfig{
		Scope: "beside", Owner: a.Name, Store: s.store, Logger: slog.New(slog.DiscardHandler),
		Defaults: onceq.JobOptions{MaxAttempts: -1, Backoff: func(int, error) time.Duration { return 20 * time.Millisecond }},
		Handler:  onceq.HandlerFunc(a.handle),
	}, s.queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 4})
}

var errNotYet = errors.New("not yet")

func (a *newer) handle(ctx context.Context, j *onceq.Job) error {
	for _, name := range stepNames {
		answer, err := onceq.Step(ctx, j, name, func(context.Context) (string, error) {
			return a.say(j.Key().Key, name, j.EffectKey(name)), nil
		})
		if err != nil {
			return err
		}
		// A kept answer stops the run once more, unless the run after it has gone on.
		if _, gone, err := onceq.Saved[bool](j, name+" is over"); err != nil {
			return err
		} else if gone {
			continue
		}
		if err := onceq.Save(ctx, j, name+" is over", true); err != nil {
			return err
		}
		switch answer {
		case "fail":
			return errNotYet
		case "postpone":
			return onceq.Postpone(20*time.Millisecond, errNotYet)
		}
	}
	return nil
}

func (a *newer) say(order, step, key string) string {
	res, err := http.Get(a.API + "?" + url.Values{"who": {a.Name}, "order": {order}, "step": {step}, "key": {key}}.Encode())
	if err != nil {
		os.Exit(1) // the test has ended
	}
	defer res.Body.Close()
	answer, _ := io.ReadAll(res.Body)
	return string(answer)
}

// told is one effect, as a worker told of it.
type told struct{ who, step, key string }

// tellings are all effects, by order.
type tellings struct {
	mu  sync.Mutex
	all map[string][]told
}

// ServeHTTP notes an effect. Of the first nine of an order two in three end the run that has it.
func (a *tellings) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	a.mu.Lock()
	defer a.mu.Unlock()
	order := q.Get("order")
	n := len(a.all[order])
	a.all[order] = append(a.all[order], told{q.Get("who"), q.Get("step"), q.Get("key")})
	if n < 9 {
		fmt.Fprint(w, []string{"fail", "", "postpone"}[n%3])
	}
}

// TestOlderBesideNewer: workers that know steps share a queue and a store with workers that do not,
// and each order goes from one kind to the other and back. An older worker repeats its effects, as
// it always has, under the same keys; a newer one never repeats a step that it has saved, also
// where an older one has had the job since; and each order is done once.
func TestOlderBesideNewer(t *testing.T) {
	proof.Only(t, "internal/tests/chaos: workers of the commit before steps beside newer ones")
	older := buildOlder(t, beforeSteps, "older")
	for _, store := range []string{"sqlite", "postgres"} {
		t.Run(store, func(t *testing.T) { besideNewer(t, older, database(t, store)) })
	}
}

// buildOlder builds testdata/NAME in the tree of a commit. It needs the repository's history, which
// a shallow clone or an archive of the source has not.
func buildOlder(t *testing.T, commit, name string) (program string) {
	t.Helper()
	dir := t.TempDir()
	if err := exec.Command("git", "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		t.Skipf("this copy of the source does not have the commit %s (%v): clone it with its history", commit, err)
	}
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(dir, "tree")
	source, err := os.ReadFile(filepath.Join("testdata", name, "main.go"))
	if err == nil {
		err = os.MkdirAll(filepath.Join(tree, name), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(tree, name, "main.go"), source, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, name)
	for _, c := range []*exec.Cmd{
		exec.Command("git", "-C", strings.TrimSpace(string(top)), "archive", "-o", filepath.Join(dir, "tree.tar"), commit),
		exec.Command("tar", "-xf", filepath.Join(dir, "tree.tar"), "-C", tree),
		exec.Command("go", "build", "-C", tree, "-o", program, "./"+name),
	} {
		c.Env = append(os.Environ(), "GOWORK=off")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c.Args, err, out)
		}
	}
	return program
}

func besideNewer(t *testing.T, older, database string) {
	t.Helper()
	const orders = 200
	s, err := openShelf(t.Context(), database)
	if err == nil {
		t.Cleanup(s.close)
		err = errors.Join(s.store.Migrate(t.Context()), s.queue.Migrate(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	api := &tellings{all: map[string][]told{}}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	var ms []broker.Outgoing
	for n := range orders {
		ms = append(ms, broker.Outgoing{Body: []byte("pay"), Meta: &broker.Meta{Key: fmt.Sprint("order-", n)}})
	}
	if err := onceq.Send(t.Context(), s.queue, ms); err != nil {
		t.Fatal(err)
	}
	var crew []*child.Child
	for n := range 2 {
		a := newer{fmt.Sprint("newer-", n), database, server.URL}
		crew = append(crew, begin(t, self(newerVariable, a), nil), begin(t, exec.Command(older, fmt.Sprint("older-", n), database, server.URL), nil))
	}
	for end := time.Now().Add(roundLimit); ; <-time.After(50 * time.Millisecond) {
		depth, err := s.queue.Depth(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if depth == (broker.Depth{}) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("in the queue after %v: %+v", roundLimit, depth)
		}
	}
	for _, c := range crew {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if err := c.Drain(ctx); err != nil {
			t.Error(err)
		}
		cancel()
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	turned := 0 // orders that went from a newer worker to an older one and back
	for n := range orders {
		key := fmt.Sprint("order-", n)
		rs, err := s.store.Get(t.Context(), []dedupe.Key{{Scope: "beside", Key: key}})
		if err != nil || rs[0] == nil || rs[0].Status != dedupe.Done {
			t.Errorf("%s: %+v, %v; want it done", key, rs, err)
			continue
		}
		if judge(t, key, api.all[key]) {
			turned++
		}
	}
	t.Logf("%d of %d orders went from a newer worker to an older one and back", turned, orders)
	if turned == 0 {
		t.Error("no order went from a newer worker to an older one and back: this proves nothing")
	}
}

// judge reports whether the order went from a newer worker to an older one and back.
func judge(t *testing.T, order string, all []told) (turned bool) {
	t.Helper()
	isNewer := func(e told) bool { return strings.HasPrefix(e.who, "newer") }
	if first := slices.IndexFunc(all, isNewer); first >= 0 {
		if n := slices.IndexFunc(all[first:], func(e told) bool { return !isNewer(e) }); n >= 0 {
			turned = slices.ContainsFunc(all[first+n:], isNewer)
		}
	}
	for _, step := range stepNames {
		keys, saved := map[string]bool{}, 0
		for _, e := range all {
			if e.step != step {
				continue
			}
			if keys[e.key] = true; isNewer(e) {
				saved++
			}
		}
		if len(keys) != 1 {
			t.Errorf("%s/%s has the effect keys %v, want one", order, step, keys)
		}
		if saved > 1 {
			t.Errorf("%s/%s ran %d times in newer workers: %v", order, step, saved, all)
		}
	}
	return turned
}
