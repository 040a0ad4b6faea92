// Package proof says how much a run of the tests plays. make test plays every test, but leaves out
// what repeats at length what it has played already; make proof plays everything. What is left out
// is listed in CONTRIBUTING.md with its reason, and internal/arch holds that list to the calls of
// this package.
//
// Where a part is drawn by chance, the draw comes from the run's seed, which the run prints.
package proof

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/onceq/onceq/internal/rundir"
)

const (
	// Env asks for everything when it is 1. make proof sets it.
	Env = "ONCEQ_PROOF"
	// SeedEnv holds the run's seed, a number above 0. make test draws one where it is not set.
	SeedEnv = "ONCEQ_SEED"
	// WorldsEnv says how many random worlds a test plays, from the seed on. make soak sets it.
	WorldsEnv = "ONCEQ_WORLDS"
)

// Asked reports whether everything is to be played.
func Asked() bool { return os.Getenv(Env) == "1" }

// Only ends a test that make proof alone plays. What names it as CONTRIBUTING.md does.
func Only(t testing.TB, what string) {
	t.Helper()
	if !Asked() {
		Leave(t, what)
		t.Skipf("left to make proof: %s", what)
	}
}

// Leave tells that the test goes on without a part that make proof plays. What names the part as
// CONTRIBUTING.md does. The line stands at the end of make test.
func Leave(t testing.TB, what string) {
	t.Helper()
	t.Logf("left to make proof: %s", what)
	if dir := os.Getenv(rundir.Env); dir != "" {
		if err := rundir.Open(dir).Say("left to make proof: " + what); err != nil {
			t.Error(err)
		}
	}
}

// Seed is the run's seed; without a run one is drawn for the process. The test's log has it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, err := read(os.Getenv(SeedEnv))
	if err != nil {
		t.Fatal(err)
	}
	if seed == 0 {
		seed = drawn()
	}
	t.Logf("%s=%d", SeedEnv, seed)
	return seed
}

// Seeds are those of the random worlds that a test plays: the run's, and under make soak as many
// after it as WorldsEnv says.
func Seeds(t testing.TB) []uint64 {
	t.Helper()
	n, err := read(os.Getenv(WorldsEnv))
	if err != nil {
		t.Fatal(err)
	}
	first := Seed(t)
	seeds := make([]uint64, max(1, n))
	for i := range seeds {
		seeds[i] = first + uint64(i)
	}
	return seeds
}

var drawn = sync.OnceValue(Draw)

// Draw draws a seed.
func Draw() uint64 { return 1 + rand.Uint64N(1<<32) }

// read returns the seed that a variable holds; 0 = none.
func read(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	seed, err := strconv.ParseUint(s, 10, 64)
	if err != nil || seed == 0 {
		return 0, fmt.Errorf("%s=%s: want a number above 0", SeedEnv, s)
	}
	return seed, nil
}
