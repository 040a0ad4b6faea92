//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/internal/proof"
)

var (
	rounds = flag.Int("rounds", 0, "how many rounds there are, over all modes (default: 16, and 24 in make proof)")
	seed   = flag.Uint64("seed", 0, "decides whom a round hits, and when (default: ONCEQ_SEED, or random)")
)

// planned is how many rounds there are: without a word two for each mode, whose first stops a
// process, and whose second kills one.
func planned(t *testing.T) int {
	switch {
	case *rounds > 0:
		return *rounds
	case proof.Asked():
		return 24
	}
	proof.Leave(t, "internal/tests/chaos: 8 of the 24 rounds")
	return 2 * len(modes)
}

// drawn is the seed of what a round hits.
func drawn(t *testing.T) uint64 {
	if *seed != 0 {
		return *seed
	}
	return proof.Seed(t)
}

// roleVariable makes the test binary a worker.
const roleVariable = "ONCEQ_CHAOS_WORKER"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(roleVariable) != "":
		play(roleVariable, work)
	case os.Getenv(limitedVariable) != "":
		play(limitedVariable, keepLimits)
	case os.Getenv(pausedVariable) != "":
		play(pausedVariable, obey)
	case os.Getenv(outboxVariable) != "":
		play(outboxVariable, serveOutbox)
	case os.Getenv(stepsVariable) != "":
		play(stepsVariable, workSteps)
	case os.Getenv(fanVariable) != "":
		play(fanVariable, workFan)
	case os.Getenv(newerVariable) != "":
		play(newerVariable, workNewer)
	case os.Getenv(cancelVariable) != "":
		play(cancelVariable, cancelOne)
	case os.Getenv(scheduleVariable) != "":
		play(scheduleVariable, keepSchedule)
	case os.Getenv(tablesVariable) != "":
		play(tablesVariable, relayTables)
	default:
		os.Exit(m.Run())
	}
}

// play is what a process does that has a role.
func play[A any](variable string, role func(context.Context, A) error) {
	var a A
	err := json.Unmarshal([]byte(os.Getenv(variable)), &a)
	if err == nil {
		err = role(child.Follow(context.Background()), a)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// self is this program in a role.
func self(variable string, role any) *exec.Cmd {
	text, err := json.Marshal(role)
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	cmd.Stderr = os.Stderr
	return cmd
}

// begin starts a process that ends with the test. line is given each line that it prints.
func begin(t *testing.T, cmd *exec.Cmd, line func(string)) *child.Child {
	t.Helper()
	cmd.Stderr = os.Stderr
	if line == nil {
		line = func(string) {}
	}
	c, err := child.Start(cmd, line)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Kill()
		<-c.Done()
	})
	return c
}

// effect is where the effect happens and what the owner has chosen: a row of the promise's table.
type effect string

const (
	inTx   effect = "tx"    // in the store's own database, in one transaction with the completion
	byKey  effect = "key"   // at an API that takes an idempotency key
	rerun  effect = "rerun" // at an API that does not
	parked effect = "park"  // the same, and interrupted jobs are parked
)

// mode is a store, an effect, and where the queue is.
type mode struct {
	store  string
	effect effect
	queue  service
}

func (m mode) String() string {
	if m.queue == onSQS {
		return fmt.Sprintf("%s-%s", m.store, m.effect)
	}
	return fmt.Sprintf("%s-%s-%s", m.store, m.effect, m.queue)
}

var modes = []mode{
	{"sqlite", inTx, onSQS},
	{"postgres", inTx, onSQS},
	{"sqlite", byKey, onSQS},
	{"sqlite", rerun, onSQS},
	{"sqlite", parked, onSQS},
	{"dynamodb", inTx, onSQS},
	{"sqlite", byKey, onPubSub},
	{"firestore", inTx, onPubSub},
}

func TestChaos(t *testing.T) {
	from, rounds := drawn(t), planned(t)
	t.Logf("-seed %d", from)
	// All at once, whatever -parallel says: most of the time they wait for leases to end.
	var all sync.WaitGroup
	for i, m := range modes {
		share := (rounds + len(modes) - 1 - i) / len(modes)
		all.Go(func() {
			t.Run(m.String(), func(t *testing.T) {
				s := newScene(t, m, rand.New(rand.NewPCG(from, uint64(i))), rand.New(rand.NewPCG(from, 3000+uint64(i))))
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("-seed %d", from)
					}
				})
				s.run(share)
			})
		})
	}
	if !allSteps() {
		proof.Leave(t, "internal/tests/chaos: two of three traps of the mode steps")
	}
	for i, store := range []string{"sqlite", "postgres", "dynamodb", "firestore"} {
		all.Go(func() {
			t.Run("steps-"+store, func(t *testing.T) {
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("-seed %d", from)
					}
				})
				walkSteps(t, store, rand.New(rand.NewPCG(from, 1000+uint64(i))))
			})
		})
		if left := uint64(1+i)%3 != from%3; i > 0 && left && !allSteps() {
			proof.Leave(t, "internal/tests/chaos: two of four stores under a fan")
			continue
		}
		all.Go(func() {
			t.Run("fan-"+store, func(t *testing.T) {
				walkFan(t, store, rand.New(rand.NewPCG(from, 2000+uint64(i))))
			})
		})
	}
	for i, store := range []string{"sqlite", "postgres", "dynamodb", "firestore"} {
		if drawn := 1 + from%3; i > 0 && uint64(i) != drawn && !allSteps() {
			proof.Leave(t, "internal/tests/chaos: two of four stores under cancels and schedulers that are killed")
			continue
		}
		jobs, dies := 4, 1
		if allSteps() {
			jobs, dies = 12, 2
		}
		draw := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(from, n+uint64(i))) }
		all.Go(func() {
			t.Run("cancel-"+store, func(t *testing.T) {
				for _, wrong := range walkCancels(t, mode{store, inTx, onSQS}, jobs, draw(4000), draw(5000)) {
					t.Error(wrong)
				}
			})
		})
		all.Go(func() {
			t.Run("schedule-"+store, func(t *testing.T) {
				for _, wrong := range walkSchedule(t, store, dies, false, draw(6000)) {
					t.Error(wrong)
				}
			})
		})
		if !allSteps() {
			continue
		}
		// What the rounds above look for is found where it is.
		all.Go(func() {
			t.Run("cancel-planted-"+store, func(t *testing.T) {
				if len(walkCancels(t, mode{store, rerun, onSQS}, jobs, draw(4000), draw(5000))) == 0 {
					t.Error("effects outside of the transaction were not found")
				}
			})
		})
		all.Go(func() {
			t.Run("schedule-planted-"+store, func(t *testing.T) {
				if len(walkSchedule(t, store, dies, true, draw(6000))) == 0 {
					t.Error("what ran twice was not found")
				}
			})
		})
	}
	all.Wait()
}
