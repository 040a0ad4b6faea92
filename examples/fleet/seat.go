package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/examples/internal/shop"
	"github.com/onceq/onceq/internal/child"
)

// This file owns the processes: how they are started and ended, what they say, and when one is
// killed. Each seat's goroutine calls keep, and one more calls reap; both run while work waits. A
// seat's lock guards its process, which reap looks at. The plan is reap's alone then, and the
// counts are atomic.

// assignment is what a process of the fleet is told.
type assignment struct {
	place
	Name, Ledger string
	Store        storeOptions
	Visibility   time.Duration
	Bank         shop.Bank
	Attempts     int
	Mended       bool // the handler has been
	Drill        drilled

	Corrections string // for a replay
	Builtin     bool
}

// roles are what this program can be, beside the demo itself.
var roles = map[string]func(context.Context, assignment) error{"worker": work, "naive": workNaive, "replay": replay}

// play is a process of the fleet.
func play(role, text string) error {
	var a assignment
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	return roles[role](child.Follow(context.Background()), a)
}

// The first words of the lines that the processes write.
const (
	lineStarted  = "started"  // a handler
	lineReturned = "returned" // a handler
	lineEnded    = "ended"    // a delivery: outcome, beats
	lineLetter   = "letter"   // is about to be sent
	lineReport   = "report"
)

// start runs a process of the fleet.
func (d *demo) start(role string, a assignment, line func(word, rest string)) (*child.Child, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, role, string(text)) //nolint:gosec,noctx // this program; how it ends is told by child
	cmd.Stderr = d.errs
	return child.Start(cmd, func(text string) {
		word, rest, _ := strings.Cut(text, " ")
		line(word, rest)
	})
}

// seat is the place of one worker: when its process is killed, a new one takes its place after a
// short while.
type seat struct {
	n, lives int
	mu       sync.Mutex
	process  *child.Child
	running  *atomic.Int64 // handlers of that process
}

// keep keeps a worker in the seat until ctx ends. If the cause is shop.ErrEmpty, the worker drains
// then.
func (d *demo) keep(ctx context.Context, s *seat) error {
	role := "worker"
	if d.o.Naive {
		role = "naive"
	}
	for ctx.Err() == nil {
		s.lives++
		a := d.a
		a.Name = fmt.Sprintf("worker %d, life %d", s.n, s.lives)
		running := new(atomic.Int64)
		p, err := d.start(role, a, func(word, rest string) { d.counts.hear(running, word, rest) })
		if err != nil {
			return err
		}
		d.counts.processes.Add(1)
		s.mu.Lock()
		s.process, s.running = p, running
		s.mu.Unlock()
		select {
		case <-p.Done():
			if !p.Killed() {
				return fmt.Errorf("%s has ended: %w", a.Name, p.Err())
			}
		case <-ctx.Done():
			return end(ctx, p)
		}
		d.counts.cutOff.Add(running.Load())
		_ = shop.Rest(ctx, d.o.Restart) // the loop asks ctx itself
	}
	return nil
}

// end ends a process: in good order if the queue is empty, else at once.
func end(ctx context.Context, p *child.Child) error {
	if !errors.Is(context.Cause(ctx), shop.ErrEmpty) {
		p.Kill()
		<-p.Done()
		return nil
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
	defer cancel()
	if err := p.Drain(limit); err != nil && !p.Killed() {
		return err
	}
	return limit.Err()
}

const drainLimit = 30 * time.Second

// counts are what happened, seen from outside the workers.
type counts struct {
	beats, attempts, ended, alreadyDone, inProgress atomic.Int64
	processes, kills, cutOff                        atomic.Int64
}

// hear takes a worker's line.
func (n *counts) hear(running *atomic.Int64, word, rest string) {
	switch word {
	case lineStarted:
		running.Add(1)
		n.attempts.Add(1)
	case lineReturned:
		running.Add(-1)
	case lineEnded:
		n.ended.Add(1)
		outcome, beats, _ := strings.Cut(rest, " ")
		if b, err := strconv.Atoi(beats); err == nil {
			n.beats.Add(int64(b))
		}
		switch onceq.Outcome(outcome) {
		case onceq.OutcomeAlreadyDone:
			n.alreadyDone.Add(1)
		case onceq.OutcomeInProgress:
			n.inProgress.Add(1)
		}
	}
}

// kill is one that is to come: once so many deliveries have ended, and a moment later.
type kill struct {
	after int
	later time.Duration
	seat  int
}

// newPlan spreads n kills over the first nine tenths of the messages. The seed decides roughly
// when, and whom. The machine decides which instruction of the worker is hit.
func newPlan(rng *rand.Rand, n, messages, seats int) []kill {
	plan := make([]kill, n)
	for i := range plan {
		plan[i] = kill{rng.IntN(messages*9/10 + 1), rand.N(100 * time.Millisecond), rng.IntN(seats)}
	}
	slices.SortFunc(plan, func(a, b kill) int { return a.after - b.after })
	return plan
}

// reap carries out the plan, until ctx ends.
func (d *demo) reap(ctx context.Context) {
	for len(d.plan) > 0 {
		k := d.plan[0]
		for d.counts.ended.Load() < int64(k.after) {
			if shop.Rest(ctx, time.Millisecond) != nil {
				return
			}
		}
		if shop.Rest(ctx, k.later) != nil {
			return
		}
		for !d.strike(k.seat) {
			if shop.Rest(ctx, time.Millisecond) != nil {
				return
			}
		}
		d.plan = d.plan[1:]
	}
}

// strike kills the process in the seat, or in one of the next, that lives and, if there is one,
// works.
func (d *demo) strike(from int) bool {
	for _, idle := range []bool{false, true} {
		for i := range d.seats {
			s := d.seats[(from+i)%len(d.seats)]
			s.mu.Lock()
			p, running := s.process, s.running
			s.mu.Unlock()
			if p != nil && !p.Killed() && (idle || running.Load() > 0) && p.Kill() {
				d.counts.kills.Add(1)
				return true
			}
		}
	}
	return false
}
