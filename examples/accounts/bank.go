package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/examples/internal/screen"
)

const moveTime = 200 * time.Millisecond

// bank keeps the accounts. A real one keeps them in a database, and completes the job in the same
// transaction.
type bank struct {
	out   io.Writer
	began time.Time

	mu      sync.Mutex
	balance map[string]int
	moved   map[string][]int // the numbers of the transfers, as they were done
	down    map[string]int   // how many calls for this transfer find nobody
	closed  map[string]bool
	running map[string]int // by account
	at      map[string]time.Duration
	most    int  // accounts at once
	mixed   bool // two of an account at once
}

func newBank(out io.Writer) *bank {
	return &bank{
		out: out, began: time.Now(), balance: map[string]int{}, moved: map[string][]int{}, down: map[string]int{},
		closed: map[string]bool{}, running: map[string]int{}, at: map[string]time.Duration{},
	}
}

var (
	errDown   = errors.New("the bank does not answer")
	errClosed = errors.New("the account is closed")
)

type overdrawnError struct{ by int }

func (e overdrawnError) Error() string { return fmt.Sprintf("overdrawn by %d cents", e.by) }

// move is the handler.
func (b *bank) move(ctx context.Context, _ *onceq.Job, t transfer) error {
	b.enter(t.Account)
	defer b.leave(t.Account)
	select {
	case <-time.After(moveTime):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch balance := b.balance[t.Account] + t.Cents; {
	case b.down[t.key()] > 0:
		b.down[t.key()]--
		return onceq.RetryAfter(time.Second, errDown) // a receipt's visibility: FIFO queues have no other delay
	case b.closed[t.key()]:
		return onceq.Permanent(errClosed)
	case balance < 0:
		return onceq.Permanent(overdrawnError{-balance})
	default:
		b.balance[t.Account] = balance
	}
	b.moved[t.Account] = append(b.moved[t.Account], t.No)
	b.at[t.Account] = time.Since(b.began)
	return nil
}

func (b *bank) enter(account string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running[account]++
	b.mixed = b.mixed || b.running[account] > 1
	b.most = max(b.most, len(b.running))
}

func (b *bank) leave(account string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running[account]--; b.running[account] == 0 {
		delete(b.running, account)
	}
}

func (b *bank) say(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(b.out, "  %4.1f s  "+format+"\n", append([]any{time.Since(b.began).Seconds()}, args...)...)
}

func (b *bank) report() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range accounts {
		order := "in order"
		if !inOrder(b.moved[a]) {
			order = "NOT IN ORDER"
		}
		fmt.Fprintf(b.out, "          %-5s did %s, %s, the last after %.1f s; %d cents\n", a, numbers(b.moved[a]), order, b.at[a].Seconds(), b.balance[a])
	}
}

// newScreen tells what did not go smoothly, and stops the worker when so many transfers have ended.
// A transfer that holds its account has ended, too: nothing but an operator goes on with it.
func newScreen(b *bank, ends int, last func()) *screen.Screen {
	return &screen.Screen{
		Out: b.out, Left: ends, Last: last,
		Line: func(_ context.Context, r *onceq.JobReport) string {
			switch {
			case r.Outcome == onceq.OutcomeFailed:
				b.say("%s becomes a dead letter: %s", r.Key.Key, r.Err)
			case r.ErrClass == onceq.ClassPermanent:
				b.say("%s holds its account: %s", r.Key.Key, r.Err)
			case r.Outcome == onceq.OutcomeRetried:
				b.say("%s is tried again in a second: %s", r.Key.Key, r.Err)
			}
			return ""
		},
		Ends: func(r *onceq.JobReport) bool {
			return r.Outcome == onceq.OutcomeFailed || r.Outcome == onceq.OutcomeDone || r.ErrClass == onceq.ClassPermanent
		},
	}
}
