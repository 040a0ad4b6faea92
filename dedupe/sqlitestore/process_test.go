package sqlitestore

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
)

// The test binary runs itself as further processes on the same file, told what to do by these.
const (
	roleVariable = "SQLITESTORE_TEST_ROLE"
	fileVariable = "SQLITESTORE_TEST_FILE"

	processKeys    = 400
	processCallers = 8
)

func TestMain(m *testing.M) {
	roles := map[string]func(*Store, io.Writer) error{"rivals": claimAll, "endless": claimForEver, "operator": editForEver}
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(roles[role]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func play(role func(*Store, io.Writer) error) error {
	db, err := sql.Open("sqlite", DSN(os.Getenv(fileVariable)))
	if err != nil {
		return err
	}
	defer db.Close()
	s, err := New(db, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Migrate(context.Background()); err != nil {
		return err
	}
	return role(s, os.Stdout)
}

// claimAll tries to claim every key, from several goroutines in orders of their own, settles what
// it won and prints it.
func claimAll(s *Store, out io.Writer) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make([]error, processCallers)
	w := bufio.NewWriter(out)
	for c := range processCallers {
		wg.Go(func() {
			for _, n := range rand.Perm(processKeys) {
				won, err := runOnce(s, strconv.Itoa(n))
				if err != nil {
					errs[c] = err
					return
				}
				if won {
					mu.Lock()
					fmt.Fprintln(w, n)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, w.Flush())...)
}

// claimForEver claims and settles keys of its own until it is killed. A line is printed when the
// key is known to be done.
func claimForEver(s *Store, out io.Writer) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make(chan error, processCallers)
	for c := range processCallers {
		wg.Go(func() {
			for n := 0; ; n++ {
				name := fmt.Sprintf("%d-%d-%d", os.Getpid(), c, n)
				if _, err := runOnce(s, name); err != nil {
					errs <- err
					return
				}
				mu.Lock()
				fmt.Fprintln(out, name)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return <-errs
}

// editForEver edits the rules until it is killed, and prints each version that it has made.
func editForEver(s *Store, out io.Writer) error {
	for n := 0; ; n++ {
		r, err := controlstore.Change(context.Background(), s, func(rs *controlstore.Rules) error {
			id := strconv.Itoa(os.Getpid())
			rs.Remove(id)
			rs.Rules = append(rs.Rules, control.Rule{
				ID: id, Do: control.Pause, Queue: "q", Until: time.Now().Add(time.Hour), By: "ana", Reason: strconv.Itoa(n),
			})
			return nil
		})
		if err != nil {
			return err
		}
		fmt.Fprintln(out, r.Version)
	}
}

// runOnce claims key and settles it done if it was won. Busy answers are repeated.
func runOnce(s *Store, key string) (won bool, err error) {
	q := request(key)
	for {
		cs, err := s.Claim(context.Background(), []dedupe.ClaimRequest{q})
		if err != nil {
			return false, err
		}
		if errors.Is(cs[0].Err, dedupe.ErrBusy) {
			continue
		}
		if cs[0].Outcome != dedupe.Won {
			return false, cs[0].Err
		}
		break
	}
	for {
		as, err := s.Settle(context.Background(), []dedupe.Settlement{{Key: q.Key, Token: q.Token, To: dedupe.Done, Result: []byte("1")}})
		if err != nil || !errors.Is(as[0].Err, dedupe.ErrBusy) {
			return true, errors.Join(err, as[0].Err)
		}
	}
}

// process is one run of the test binary.
type process struct {
	*exec.Cmd
	out *bufio.Scanner
}

func start(tb testing.TB, role, path string) *process {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), roleVariable+"="+role, fileVariable+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	return &process{cmd, bufio.NewScanner(out)}
}

// TestRivalProcesses: three processes on one file, each wanting every key: each key has one winner.
// They make the tables themselves, all at once.
func TestRivalProcesses(t *testing.T) {
	path := tempFile(t)
	began := time.Now()
	var ps []*process
	for range 3 {
		ps = append(ps, start(t, "rivals", path))
	}
	winners := map[string]int{}
	for i, p := range ps {
		mine := 0
		for p.out.Scan() {
			winners[p.out.Text()]++
			mine++
		}
		if err := p.Wait(); err != nil {
			t.Fatal(err)
		}
		t.Logf("process %d won %d keys", i, mine)
	}
	took := time.Since(began)
	for n := range processKeys {
		if w := winners[strconv.Itoa(n)]; w != 1 {
			t.Errorf("key %d has %d winners", n, w)
		}
	}
	calls := 3*processCallers*processKeys + processKeys
	t.Logf("%d claims and settlements in %v: %.0f a second", calls, took.Round(time.Millisecond), float64(calls)/took.Seconds())
	s, db := newStore(t, path, nil)
	checkIntegrity(t, db)
	for r, err := range s.List(t.Context(), dedupe.Query{}) {
		if err != nil || r.Status != dedupe.Done || r.Attempt != 1 {
			t.Fatalf("record %+v, %v", r, err)
		}
	}
}

// TestKilledProcess: a process is killed in the middle of its work. What it was told is done stays
// so, and the file goes on.
func TestKilledProcess(t *testing.T) {
	path := tempFile(t)
	s, db := newStore(t, path, nil)
	for range 3 {
		p := start(t, "endless", path)
		var done []string
		for len(done) < 300 && p.out.Scan() {
			done = append(done, p.out.Text())
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.Wait()
		if len(done) < 300 {
			t.Fatalf("the process ended by itself after %d jobs", len(done))
		}
		checkIntegrity(t, db)
		for _, k := range done {
			if r := get(t, s, dedupe.Key{Scope: "orders", Key: k}); r.Status != dedupe.Done || string(r.Result) != "1" {
				t.Fatalf("it was told that %s is done; the record is %+v", k, r)
			}
		}
		claim(t, s, request(strconv.Itoa(p.Process.Pid)))
	}
}

// TestKilledOperators: operators are killed in the middle of their edits. The rules are whole, what
// an operator was told is kept, and the next edit works.
func TestKilledOperators(t *testing.T) {
	path := tempFile(t)
	s, _ := newStore(t, path, nil)
	for round := range 10 {
		p := start(t, "operator", path)
		last := ""
		for n := 0; n < 20+round && p.out.Scan(); n++ {
			last = p.out.Text()
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.Wait()
		told, _ := strconv.Atoi(last)
		got, err := controlstore.Read(t.Context(), s)
		if err != nil || told == 0 || got.Version < uint64(told) || got.Find(strconv.Itoa(p.Process.Pid)) == nil {
			t.Fatalf("it was told of version %q; the rules are %+v, %v", last, got, err)
		}
		next, err := controlstore.Change(t.Context(), s, func(rs *controlstore.Rules) error { return nil })
		if err != nil || next.Version <= got.Version || len(next.Rules) != len(got.Rules) {
			t.Fatalf("the next edit: %+v, %v", next, err)
		}
	}
}

func checkIntegrity(t *testing.T, db *sql.DB) {
	t.Helper()
	var answer string
	if err := db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&answer); err != nil || answer != "ok" {
		t.Errorf("integrity_check: %s, %v", answer, err)
	}
}
