// Soak plays random worlds for a time, each from a seed of its own:
//
//	go run ./internal/soak -seconds 600            what make soak does
//	go run ./internal/soak -seed 77 -only outages  one kind, from a seed on
//
// A world is a test of the packages in kinds, in virtual time: workers, functions and relays, calls
// of Do, parents and children, schedulers, with jobs of all forms, while calls fail, hang and lose
// their answers, hosts crash, stand still, are drained and have wrong clocks, and operators cancel,
// replay, pause and limit; on queues and stores in memory, in SQLite and on our own servers of SQS
// and Pub/Sub. Between them histories of 100,000 calls of a store must have an order, in real time.
// make test plays one or a few seeds of each, and shorter histories. A seed that fails is printed
// with what its test says, the time lines of its keys among it, and with the command that plays it
// again. The exit code is 1 then.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/onceq/onceq/internal/proof"
)

// This file owns a soak: which kinds of worlds there are, who plays them, and what is told. One
// goroutine a processor plays; report has the lock.

// A kind is a test that plays random worlds, as many a run as worlds says: what takes a few
// seconds.
type kind struct {
	name, folder, test string
	worlds             int
	args               []string
}

var kinds = []kind{
	{"outages", "internal/coretest/outages", "TestSoak", 40, nil},
	{"places", "internal/tests/worlds", "TestSoak", 4, nil},
	{"doing", "internal/coretest/doing", "TestDoSoak", 40, nil},
	{"fan", "fan", "TestSoak", 4, nil},
	{"schedule", "schedule", "TestKilledAtRandom", 4, nil},
	{"linear", "internal/tests/linear", "TestLinear/(memory|sqlite)", 1, []string{"-ops", "100000"}},
}

func main() {
	seconds := flag.Int("seconds", 600, "how long to play")
	seed := flag.Uint64("seed", 0, "the first seed; 0 = drawn")
	only := flag.String("only", "", "one kind alone")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *seed == 0 {
		*seed = proof.Draw()
	}
	if err := soak(ctx, time.Duration(*seconds)*time.Second, *seed, *only); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// report is what was played.
type report struct {
	mu     sync.Mutex
	played map[string]int
	next   uint64
	turn   int
	failed []string
	busy   time.Duration // of the processors, which others may need, too
}

func soak(ctx context.Context, length time.Duration, seed uint64, only string) (err error) {
	dir, err := os.MkdirTemp("", "onceq-soak-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var all []kind
	for _, k := range kinds {
		if only != "" && only != k.name {
			continue
		}
		out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-o", filepath.Join(dir, k.name), "./"+k.folder).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s does not build: %w\n%s", k.folder, err, out)
		}
		all = append(all, k)
	}
	if len(all) == 0 {
		return fmt.Errorf("there is no kind %q", only)
	}
	fmt.Printf("from seed %d on, for %v\n", seed, length)
	began := time.Now()
	r := &report{played: make(map[string]int), next: seed}
	var players sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		players.Go(func() {
			for ctx.Err() == nil && time.Since(began) < length {
				r.play(ctx, dir, all)
			}
		})
	}
	players.Wait()
	r.tell(all, time.Since(began))
	switch {
	case len(r.failed) > 0:
		return fmt.Errorf("%d worlds failed", len(r.failed))
	case r.next == seed:
		return errors.New("no world was played")
	}
	return nil
}

// play runs the next kind on the next seeds.
func (r *report) play(ctx context.Context, dir string, all []kind) {
	r.mu.Lock()
	k, seed := all[r.turn%len(all)], r.next
	r.turn++
	r.next += uint64(k.worlds)
	r.mu.Unlock()
	out, busy, err := run(ctx, dir, k, seed, k.worlds)
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.played[k.name] += k.worlds
	r.busy += busy
	if err == nil {
		return
	}
	for _, bad := range failedWorlds(out, k, seed) {
		alone, _, err := run(ctx, dir, k, bad, 1)
		if err == nil {
			alone = out // it fails among others only
		}
		again := strings.TrimSpace(fmt.Sprintf("%s=%d go test -count=1 -v -run '^%s$' ./%s %s", proof.SeedEnv, bad, k.test, k.folder, strings.Join(k.args, " ")))
		r.failed = append(r.failed, fmt.Sprintf("%s: %s", k.name, again))
		fmt.Printf("==== %s, seed %d: %v\n%s\n==== again: %s\n", k.name, bad, err, alone, again)
	}
}

func run(ctx context.Context, dir string, k kind, seed uint64, worlds int) (out []byte, busy time.Duration, err error) {
	args := append([]string{"-test.run", "^" + k.test + "$", "-test.count=1", "-test.timeout=10m", "-test.v"}, k.args...)
	cmd := exec.CommandContext(ctx, filepath.Join(dir, k.name), args...)
	cmd.Dir = k.folder
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", proof.SeedEnv, seed), fmt.Sprintf("%s=%d", proof.WorldsEnv, worlds))
	out, err = cmd.CombinedOutput()
	if p := cmd.ProcessState; p != nil {
		busy = p.UserTime() + p.SystemTime()
	}
	if name, _, _ := strings.Cut(k.test, "/"); err == nil && !bytes.Contains(out, []byte("--- PASS: "+name)) {
		err = errors.New("the test was not played")
	}
	return out, busy, err
}

var (
	failure = regexp.MustCompile(`(?m)^\s+--- FAIL: \S*?(\d+) \(`)
	begun   = regexp.MustCompile(`(?m)^=== RUN +\S*?(\d+)$`)
)

// failedWorlds are the seeds that a run names; one that ended otherwise has failed in its last.
func failedWorlds(out []byte, k kind, seed uint64) (seeds []uint64) {
	named := failure.FindAllSubmatch(out, -1)
	if all := begun.FindAllSubmatch(out, -1); len(named) == 0 && len(all) > 0 {
		named = all[len(all)-1:]
	}
	for _, m := range named {
		n, err := strconv.ParseUint(string(m[1]), 10, 64)
		if err == nil && n >= seed && n < seed+uint64(k.worlds) {
			seeds = append(seeds, n)
		}
	}
	if len(seeds) == 0 {
		seeds = []uint64{seed}
	}
	return seeds
}

// tell prints the table.
func (r *report) tell(all []kind, took time.Duration) {
	sum := 0
	for _, k := range all {
		n := r.played[k.name]
		sum += n
		fmt.Printf("%-10s %7d worlds\n", k.name, n)
	}
	fmt.Printf("%-10s %7d worlds in %v, %.0f an hour; %v of a processor's time, %.0f an hour of it; %d failed\n", "all", sum,
		took.Round(time.Second), float64(sum)/took.Hours(), r.busy.Round(time.Second), float64(sum)/r.busy.Hours(), len(r.failed))
	for _, f := range r.failed {
		fmt.Println("failed:", f)
	}
}
