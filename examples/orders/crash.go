package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
)

// point is a place where a worker can be killed.
type point string

// The points, in the order in which an order passes them.
const (
	afterReceive point = "after a receive"
	beforeClaim  point = "before a claim"
	afterClaim   point = "after a claim"
	afterBank    point = "after the bank's answer"
	beforeInsert point = "before the insert"
	afterInsert  point = "after the insert"
	beforeCommit point = "before the commit"
	afterCommit  point = "after the commit"
	beforeSettle point = "before a settlement"
	afterSettle  point = "after a settlement"
	beforeLetter point = "before a dead letter"
	afterLetter  point = "after a dead letter"
	beforeAck    point = "before an ack"
	afterAck     point = "after an ack"
	nowhere      point = ""
)

var (
	// simplePoints are those that a loop without the library has, too.
	simplePoints = []point{afterReceive, afterBank, beforeInsert, afterInsert, beforeCommit, afterCommit, beforeAck, afterAck}
	allPoints    = append([]point{beforeClaim, afterClaim, beforeSettle, afterSettle, beforeLetter, afterLetter}, simplePoints...)
)

// plan says who dies where: drawn from the seed at the start, so that a run can be repeated. Which order it
// hits is up to the scheduler.
type plan struct {
	mu    sync.Mutex
	acked int // messages
	left  []crash
	past  []point
}

// crash kills the first worker that comes to the point, once so many messages are acked.
type crash struct {
	at    point
	after int
}

// newPlan spreads n crashes over all points, and over the first nine tenths of the messages: later a point may
// not be passed any more.
func newPlan(rng *rand.Rand, n, messages int, points []point) *plan {
	p := &plan{}
	order := rng.Perm(len(points))
	for i := range n {
		p.left = append(p.left, crash{points[order[i%len(points)]], rng.IntN(messages*9/10 + 1)})
	}
	return p
}

// progress moves the plan on.
func (p *plan) progress(acked int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acked += acked
}

// strikes tells whether a crash is due at the point, and takes it off the plan.
func (p *plan) strikes(at point) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.left, func(c crash) bool { return c.at == at && c.after <= p.acked })
	if i < 0 {
		return false
	}
	p.left = slices.Delete(p.left, i, i+1)
	p.past = append(p.past, at)
	return true
}

// crashes are the points where workers have died so far.
func (p *plan) crashes() []point {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.past)
}

var errKilled = errors.New("the worker was killed")

// process stands for an operating-system process that can be killed: from that instant, none of its calls to
// the queue, the store and the ledger begins any more, its open transactions roll back, and nothing is handed back.
type process struct {
	name string
	plan *plan
	life context.Context // ends with the process
	kill context.CancelFunc
	mu   sync.Mutex
}

func newProcess(name string, p *plan) *process {
	life, kill := context.WithCancel(context.Background())
	return &process{name: name, plan: p, life: life, kill: kill}
}

func (p *process) isDead() bool { return p.life.Err() != nil }

// survives is asked at each point. Here is where a process dies.
func (p *process) survives(at point) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isDead() {
		return false
	}
	if at != nowhere && p.plan.strikes(at) {
		p.kill()
		return false
	}
	return true
}

// pass is survives for a goroutine that would not look: it ends there, as in a process that is killed.
func (p *process) pass(at point) {
	if !p.survives(at) {
		runtime.Goexit()
	}
}

// alive is ctx until the process dies.
func (p *process) alive(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// through makes a call that the process may not live to begin, or not live to hear the answer of.
func through[T any](p *process, before, after point, call func() (T, error)) (T, error) {
	var none T
	if !p.survives(before) {
		return none, errKilled
	}
	answer, err := call()
	if !p.survives(after) {
		return none, errKilled
	}
	return answer, err
}
