package matrix

import (
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/internal/rundir"
	"github.com/onceq/onceq/internal/testserver"
	"github.com/onceq/onceq/onceqtest"
)

func TestMain(m *testing.M) {
	err := testserver.Together(32) // cells wait more than they work
	if err == nil {
		err = part(os.Getenv(partVariable))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(2)
	}
	code := m.Run()
	for _, s := range sums {
		fmt.Println("matrix:", s)
	}
	os.Exit(code)
}

// lives are the worlds whose time is real.
var lives = []string{"postgres", "postgres-queue", "dynamodb", "firestore-emulator"}

// partVariable is set by make test, which plays each cell in virtual time once.
const partVariable = "ONCEQ_MATRIX"

// What partVariable asks for. make proof asks for nothing, and plays all cells under the race
// detector.
const (
	racedPart = "raced" // what make test plays under the race detector: a part of what is in virtual time
	restPart  = "rest"  // the others, without it: it makes calls in real time late, and others five times as dear
)

// asked is the part that is asked for; empty = all.
var asked string

// overGRPC is the world in virtual time whose calls go through gRPC: the race detector would watch
// that, for as long as all the rest.
const overGRPC = "firestore"

// racedOf: under the race detector are one call, or episode, in racedOf, drawn by the run's seed.
const racedOf = 10

// part asks for a part.
func part(which string) error {
	switch asked = which; which {
	case "", restPart:
		return nil
	case racedPart:
		return flag.Set("test.skip", fmt.Sprintf("^Test/^(%s|%s)$|^TestPostgresCutsTheDead$", strings.Join(lives, "|"), overGRPC))
	}
	return fmt.Errorf("%s=%s: want %s or %s", partVariable, which, racedPart, restPart)
}

// TestMatrix is the crash matrix: see the package's comment.
func TestMatrix(t *testing.T) {
	if asked == racedPart {
		proof.Leave(t, "internal/tests/matrix: nine of ten cells in virtual time, under the race detector")
		proof.Leave(t, "internal/tests/matrix: Firestore's cells, under the race detector")
	}
	// On PostgreSQL and DynamoDB cells wait, in real time, and go first: the others compute, and a
	// beat would come late beside them.
	var real sync.WaitGroup
	live := func(name string, open func(*testing.T) *backend) {
		if !slices.Contains(lives, name) {
			t.Fatalf("%s is not among the worlds whose time is real", name)
		}
		t.Run(name, func(t *testing.T) {
			real.Add(1)
			t.Cleanup(real.Done)
			t.Parallel()
			open(t).matrix(t)
		})
	}
	// Where the effect is made does not change the calls of a queue: SQS alone shows each way.
	kindred := func(b *backend) *backend {
		b.only = []mode{rerun, park}
		return b
	}
	inBubbles := func(t *testing.T, name string, open func() *backend) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			real.Wait()
			open().matrix(t)
		})
	}
	live("postgres", postgres)
	live("postgres-queue", postgresQueue)
	live("dynamodb", dynamoDB)
	live("firestore-emulator", firestoreEmulator)
	inBubbles(t, "memory", memory)
	inBubbles(t, "sqlite", sqlite)
	inBubbles(t, "sqlite-queue", sqliteQueue)
	inBubbles(t, overGRPC, firestoreFake)
	// SQS, too, in bubbles. What the memory store lacks there is SQLite's to show.
	t.Run("sqs", func(t *testing.T) {
		t.Parallel()
		inBubbles(t, "memory", func() *backend { return memory().onSQS(false) })
		inBubbles(t, "sqlite", func() *backend {
			b := sqlite().onSQS(false)
			b.only = []mode{completeTx}
			return b
		})
	})
	t.Run("sqs-fifo", func(t *testing.T) {
		t.Parallel()
		inBubbles(t, "memory", func() *backend { return kindred(memory().onSQS(true)) })
	})
	t.Run("gocloud", func(t *testing.T) {
		t.Parallel()
		inBubbles(t, "memory", func() *backend { return kindred(memory().onGocloud(false)) })
		inBubbles(t, "alone", func() *backend { return kindred(memory().onGocloud(true)) })
	})
	t.Run("pubsub", func(t *testing.T) {
		t.Parallel()
		inBubbles(t, "plain", func() *backend { return kindred(memory().onPubSub(gcppubsub.Options{}, false)) })
		inBubbles(t, "exactly-once", func() *backend { return kindred(memory().onPubSub(gcppubsub.Options{}, true)) })
		inBubbles(t, "ordered", func() *backend { return kindred(memory().onPubSub(gcppubsub.Options{Ordered: true}, false)) })
	})
}

// matrix runs all cells of a store.
func (b *backend) matrix(t *testing.T) {
	sum := &sum{name: b.name, absent: make(map[string]int)}
	t.Cleanup(func() { sum.end(t, b) })
	t.Cleanup(b.zombies.Wait)
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			if why := b.missing(m); why != "" {
				t.Logf("no cells: %s", why)
				return
			}
			for _, s := range scenarios {
				if b.skips(m, s) {
					continue
				}
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					b.scenario(t, m, s, sum)
				})
			}
		})
	}
}

// missing is why the backend has no cells in the mode; "" = it has.
func (b *backend) missing(m mode) string {
	switch {
	case m == completeTx && !b.transactions:
		return "the store has no transaction that the user could join"
	case b.only != nil && !slices.Contains(b.only, m):
		return "with another store, or another kind of this queue: the calls are the same"
	}
	return ""
}

// scenario finds the calls of a scenario and lets each go wrong.
func (b *backend) scenario(t *testing.T, m mode, s scenario, sum *sum) {
	// Where time is real, a busy machine may answer a call too late: then what the worker made
	// instead is no part of the scenario.
	var plain outcome
	for try := 1; ; try++ {
		b.in(t, func(t *testing.T) { plain = play(t, b, m, s, nil, 0) })
		if t.Failed() {
			return
		}
		wrong := plain.wentWrong(m)
		if wrong == nil {
			break
		}
		if b.virtual || try == 5 {
			t.Fatalf("of %d runs without a fault none was without an error: %v", try, wrong)
		}
	}
	sum.found(m, s, plain.ops())
	left := b.leftOut(t)
	for i, c := range plain.calls {
		if left(i) {
			continue
		}
		// What comes late comes into what the scenario has made of the job meanwhile.
		onlyLate := b.elsewhere(c, s) != ""
		if onlyLate && (c.Op != onceqtest.Claim || !s.retried && !s.steps) {
			continue
		}
		t.Run(fmt.Sprintf("%s-%d", c.Op, c.N), func(t *testing.T) {
			t.Parallel()
			for _, w := range b.wrongs() {
				if onlyLate && w.fault.Kind != onceqtest.Late {
					continue
				}
				if why := w.cannot(b, c.Op, m); why != "" {
					sum.no(why)
					continue
				}
				if s.saves() > 0 && b.leaves(t, fmt.Sprint(m, c.Op, c.N, w.name)) {
					sum.no("left to make proof")
					continue
				}
				t.Run(w.name, func(t *testing.T) {
					t.Parallel()
					defer func() { sum.cell(t.Failed()) }()
					fault := w.fault
					fault.Op, fault.N = c.Op, c.N
					b.cell(t, m, s, &fault, plain.took, sum)
				})
			}
		})
	}
}

// leftOut reports whether the call at a place is not played, because the seed draws it for the
// other part.
func (b *backend) leftOut(t *testing.T) func(i int) bool {
	t.Helper()
	raced := asked == racedPart
	if asked == "" || !b.virtual || b.name == overGRPC {
		return func(int) bool { return raced }
	}
	h := fnv.New64a()
	h.Write([]byte(t.Name()))
	first := int((h.Sum64() ^ proof.Seed(t)) % racedOf)
	return func(i int) bool { return (i%racedOf == first) != raced }
}

// TestParts: what the race detector does not watch in a run of make test is played without it, and
// nothing twice.
func TestParts(t *testing.T) {
	whole := asked
	t.Cleanup(func() { asked = whole })
	for _, b := range []*backend{memory(), firestoreFake(), {name: "live"}} {
		asked = racedPart
		raced := b.leftOut(t)
		asked = restPart
		rest := b.leftOut(t)
		watched := 0
		for i := range 2 * racedOf {
			if raced(i) == rest(i) {
				t.Errorf("%s: call %d is played by both parts, or by none", b.name, i)
			}
			if !raced(i) {
				watched++
			}
		}
		want := 0
		if b.name == "memory" {
			want = 2
		}
		if watched != want {
			t.Errorf("%s: the race detector watches %d of %d calls, want %d", b.name, watched, 2*racedOf, want)
		}
	}
}

// cell lets fault happen. A worker that lost its lease because the machine was slow waits for its
// claim to end, as it should; it then tells nothing about the fault, and the cell is played again.
// One that waits for itself always takes long, so six times are enough to tell. In virtual time no
// machine is slow, and nothing is played again.
//
// Only that verdict is put off. A broken promise, an error of Run, a job that is lost or has two
// effects fails the cell at once, whatever the try. And it is put off only where a call that has no
// fault took long by itself, in that very run. So what this can hide is a worker that waits for
// itself now and then, and only beside a slow call; the bubbles play the same faults on the other
// stores, without. The sum says how many were played again.
func (b *backend) cell(t *testing.T, m mode, s scenario, fault *onceqtest.Fault, plain time.Duration, sum *sum) {
	for try := 1; ; try++ {
		var o outcome
		b.in(t, func(t *testing.T) { o = play(t, b, m, s, fault, plain) })
		if t.Failed() || !o.waited {
			return
		}
		slow := o.slow(b)
		if b.virtual || slow == nil || try == 6 {
			t.Errorf("the live worker took %v, %v without the fault: it has waited for itself (the lease is %v)", o.took, plain, b.lease)
			return
		}
		sum.replay()
		t.Logf("played again, because the machine is slow: %v took %v", slow, slow.Took)
	}
}

var (
	sumsMu sync.Mutex
	sums   []string
)

// sum counts the cells of a store.
type sum struct {
	name string

	mu           sync.Mutex
	held, failed int
	again        int            // times that a cell was played again
	absent       map[string]int // that do not exist, by reason
	ops          map[mode]map[string][]onceqtest.Op
}

func (s *sum) cell(failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if failed {
		s.failed++
		return
	}
	s.held++
}

func (s *sum) replay() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.again++
}

func (s *sum) no(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.absent[why]++
}

func (s *sum) found(m mode, sc scenario, ops []onceqtest.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ops == nil {
		s.ops = make(map[mode]map[string][]onceqtest.Op)
	}
	if s.ops[m] == nil {
		s.ops[m] = make(map[string][]onceqtest.Op)
	}
	s.ops[m][sc.name] = ops
}

// end accounts for the cells that do not exist: of every call that any scenario makes, for every
// scenario that does not make it.
func (s *sum) end(t *testing.T, b *backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []onceqtest.Op{effect, complete, commit, onceqtest.Send}
	for _, byScenario := range s.ops {
		for _, ops := range byScenario {
			for _, op := range ops {
				if !slices.Contains(all, op) {
					all = append(all, op)
				}
			}
		}
	}
	for _, m := range modes {
		for _, sc := range scenarios {
			ops, ran := s.ops[m][sc.name]
			if none := b.missing(m); none != "" {
				for _, op := range all {
					if b.absent(m, sc, op) == "" {
						s.absent[none] += len(b.wrongs())
					}
				}
				continue
			}
			for _, op := range all {
				why := b.absent(m, sc, op)
				if slices.Contains(ops, op) || !ran && !b.skips(m, sc) {
					continue // it has its cells, or -run has left it out
				}
				if why == "" {
					t.Errorf("%s under %s makes no call %q, and nobody knows why", sc.name, m, op)
				}
				s.absent[why] += len(b.wrongs())
			}
		}
	}
	sumsMu.Lock()
	sums = append(sums, s.String())
	sumsMu.Unlock()
	t.Log(s.String())
	if dir := os.Getenv(rundir.Env); dir != "" {
		counts, _, _ := strings.Cut(s.String(), "\n")
		if err := rundir.Open(dir).Say("matrix " + counts); err != nil {
			t.Error(err)
		}
	}
}

func (s *sum) String() string {
	var b strings.Builder
	n := 0
	for _, k := range s.absent {
		n += k
	}
	fmt.Fprintf(&b, "%s: %d cells held, %d failed, %d do not exist", s.name, s.held, s.failed, n)
	if s.again > 0 {
		fmt.Fprintf(&b, "; the machine was slow %d times, and a cell was played again", s.again)
	}
	for _, why := range slices.Sorted(maps.Keys(s.absent)) {
		fmt.Fprintf(&b, "\n    %4d: %s", s.absent[why], why)
	}
	return b.String()
}
