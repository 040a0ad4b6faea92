// Package child runs worker processes that can be killed, for the demo and for tests: a process
// tells what it does by lines, drains when it is asked to, and never outlives the one that has
// started it.
//
// Standard input is the lifeline. A line on it asks the child to drain; its end without one means
// that the parent is gone, however it went, and the child exits at once. One that is stopped
// cannot: Linux and FreeBSD kill it with its parent. Elsewhere its hangup wakes it, unless its stop
// was still on its way when the parent died. A child is in a process group of its own, where there
// are such: ctrl-C in the terminal is the parent's concern.
package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
)

// orphaned is the exit status of a child whose parent is gone.
const orphaned = 3

// Child is a process that was started.
type Child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{}
	err   error // what Wait answered, when done

	mu     sync.Mutex
	killed bool
}

// Start starts cmd, whose standard input and output it takes. Each line of its output is given to
// line, one after the other, until it has ended.
func Start(cmd *exec.Cmd, line func(string)) (*Child, error) {
	tie(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c := &Child{cmd: cmd, stdin: stdin, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The system ends the child with the thread that has started it: that must last as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		defer close(c.done)
		in := bufio.NewReader(stdout)
		for {
			text, err := in.ReadString('\n')
			if err != nil {
				break // what a killed process has written of a last line says nothing
			}
			line(text[:len(text)-1])
		}
		c.err = cmd.Wait()
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// Pid is the process's number.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Done is closed when the process has ended and all its lines were given.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err tells how the process has ended: nil when with status 0. It waits for the end.
func (c *Child) Err() error {
	<-c.done
	return c.err
}

// Killed tells whether Kill was called before the process ended.
func (c *Child) Killed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed
}

// Kill ends the process at once, as kill -9 does. It answers false when it had ended before.
func (c *Child) Kill() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd.Process.Kill() != nil {
		return false
	}
	c.killed = true
	return true
}

// Signal sends the process a signal.
func (c *Child) Signal(sig os.Signal) error { return c.cmd.Process.Signal(sig) }

// Drain asks the process to end in good order, and waits for that, or for the end of ctx: then it
// is killed.
func (c *Child) Drain(ctx context.Context) error {
	if _, err := io.WriteString(c.stdin, "drain\n"); err != nil && !errors.Is(err, os.ErrClosed) {
		c.Kill()
		return fmt.Errorf("process %d does not listen (%w): %w", c.Pid(), err, c.Err())
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		c.Kill()
		<-c.done
		return fmt.Errorf("process %d does not drain: %w", c.Pid(), context.Cause(ctx))
	}
}

// Follow is called by a child. Its context ends when the parent asks it to drain. When the parent
// is gone, the process exits.
func Follow(ctx context.Context) context.Context {
	signal.Ignore(os.Interrupt)
	ctx, drain := context.WithCancel(ctx)
	go func() {
		in := bufio.NewReader(os.Stdin)
		for {
			if _, err := in.ReadString('\n'); err != nil {
				os.Exit(orphaned)
			}
			drain()
		}
	}()
	return ctx
}

// Tell writes a line to the parent. It may be called from many goroutines: a line is one write.
func Tell(format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stdout, format+"\n", args...) // a parent that is gone needs no words
}
