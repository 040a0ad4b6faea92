//go:build unix

package lambdaruntime

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// This file owns a Function: which of its sandboxes are idle, busy or kept. Tests call Invoke,
// Kill, Freeze and Thaw from many goroutines, and so does Poll. f.mu guards the lists and Stats; it
// is not held while a process starts or an invocation runs. room bounds the invocations.
// sandbox_unix.go has a single process.

// Options say what to run.
type Options struct {
	// Command is the function's binary, and its arguments. Required.
	Command []string
	// Env is added to the environment that Lambda gives: "NAME=value".
	Env []string
	// Name is the function's. Default "function".
	Name string
	// Timeout is how long an invocation may take. Default 3 s, as Lambda's.
	Timeout time.Duration
	// Sandboxes is how many invocations there may be at once, each in a process of its own. Default
	// 1.
	Sandboxes int
	// KeepTimedOut freezes a sandbox at its timeout, in the middle of what it does, instead of
	// killing it. Thaw lets it go on. Lambda does not do that: KeepTimedOut makes the zombie that a
	// test wants.
	KeepTimedOut bool
	// Output gets what the processes print. nil = nobody.
	Output io.Writer
}

// Function is a function on this machine. Its methods may be called from many goroutines.
type Function struct {
	o     Options
	room  chan struct{}
	count atomic.Int64

	mu      sync.Mutex
	idle    []*sandbox
	busy    map[*sandbox]bool
	zombies []*sandbox
	closed  bool
	Stats   Stats // read it when nothing runs
}

// Stats count what happened.
type Stats struct {
	Starts, Invocations, Errors, Timeouts, Exits int
}

// Result is how an invocation ended.
type Result struct {
	RequestID string
	Payload   []byte
	// Err is ErrFunction, ErrExited, ErrTimeout or ErrTooLarge; nil = it answered.
	Err error
	// Rejected says why an event source took the answer for the failure of the whole batch, which
	// Lambda tells nobody; nil = it did not.
	Rejected error
}

// New makes a function. Its processes are started as they are needed, and killed when the test
// ends.
func New(t testing.TB, o Options) *Function {
	t.Helper()
	if len(o.Command) == 0 {
		t.Fatal("lambdaruntime: Options.Command is empty")
	}
	if o.Timeout <= 0 {
		o.Timeout = 3 * time.Second
	}
	if o.Name == "" {
		o.Name = "function"
	}
	f := &Function{o: o, room: make(chan struct{}, max(1, o.Sandboxes)), busy: map[*sandbox]bool{}}
	t.Cleanup(f.Close)
	return f
}

// Invoke runs the function once, and waits for a sandbox if it has to. Event and answer have at
// most 6 MB.
func (f *Function) Invoke(ctx context.Context, payload []byte) (res Result) {
	if len(payload) > payloadMost {
		return Result{Err: fmt.Errorf("%w: %d bytes; at most %d", ErrTooLarge, len(payload), payloadMost)}
	}
	select {
	case f.room <- struct{}{}:
		defer func() { <-f.room }()
	case <-ctx.Done():
		return Result{Err: ctx.Err()}
	}
	id := fmt.Sprintf("%08d", f.count.Add(1))
	for {
		s, err := f.take() // a sandbox outlives the invocation that it is started for
		if err != nil {
			return Result{Err: err}
		}
		res, alive := s.invoke(ctx, id, payload)
		if is(res.Err, errEnded) { // as Lambda does, another process is started for the invocation
			f.mu.Lock()
			delete(f.busy, s)
			f.mu.Unlock()
			continue
		}
		f.give(s, res, alive)
		return res
	}
}

func (f *Function) take() (*sandbox, error) {
	f.mu.Lock()
	if n := len(f.idle); n > 0 {
		s := f.idle[n-1]
		f.idle = f.idle[:n-1]
		f.busy[s] = true
		f.mu.Unlock()
		return s, nil
	}
	f.Stats.Starts++
	f.mu.Unlock()
	s, err := f.start()
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		s.kill()
		return nil, context.Canceled
	}
	f.busy[s] = true
	return s, nil
}

func (f *Function) give(s *sandbox, res Result, alive bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.busy, s)
	f.Stats.Invocations++
	switch err := res.Err; {
	case err == nil:
	case is(err, ErrTimeout):
		f.Stats.Timeouts++
	case is(err, ErrExited):
		f.Stats.Exits++
	default:
		f.Stats.Errors++
	}
	switch {
	case f.closed:
		s.kill()
	case alive:
		s.used = true
		f.idle = append(f.idle, s)
	case is(res.Err, ErrTimeout) && f.o.KeepTimedOut:
		f.zombies = append(f.zombies, s)
	}
}

// Kill kills one of the sandboxes that run an invocation (SIGKILL), and reports whether there was
// one.
func (f *Function) Kill() bool { return f.signal(syscall.SIGKILL) }

// Freeze stops one of the sandboxes that run an invocation in the middle of it (SIGSTOP). It
// reaches its timeout like that.
func (f *Function) Freeze() bool { return f.signal(syscall.SIGSTOP) }

func (f *Function) signal(sig syscall.Signal) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	skip := 0
	if len(f.busy) > 1 {
		skip = rand.IntN(len(f.busy))
	}
	for s := range f.busy {
		if skip--; skip < 0 {
			s.signal(sig)
			return true
		}
	}
	return false
}

// Thaw lets the sandboxes go on that KeepTimedOut has kept, and returns how many there were. They
// get no invocation any more.
func (f *Function) Thaw() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.zombies {
		s.signal(syscall.SIGCONT)
	}
	return len(f.zombies)
}

// PIDs are the processes that are there, frozen or not.
func (f *Function) PIDs() (pids []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.idle {
		pids = append(pids, s.pid)
	}
	for s := range f.busy {
		pids = append(pids, s.pid)
	}
	return pids
}

// Close kills what is there. New has the test do it at its end.
func (f *Function) Close() {
	f.mu.Lock()
	f.closed = true
	all := append(f.idle, f.zombies...)
	for s := range f.busy {
		all = append(all, s)
	}
	f.mu.Unlock()
	for _, s := range all {
		s.kill()
	}
}
