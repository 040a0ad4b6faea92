//go:build unix

package child

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStoppedOrphan: a child that is stopped ends when its parent is killed. A stop takes effect
// later than it is sent, on a busy machine often after the parent's death.
func TestStoppedOrphan(t *testing.T) {
	pid, errs, parent := family(t)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "linux" && runtime.GOOS != "freebsd" { // there the parent's death must come after the stop
		for state := ""; !strings.Contains(state, "T"); <-time.After(time.Millisecond) {
			out, err := exec.CommandContext(t.Context(), "ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
			if err != nil {
				t.Fatal(err)
			}
			state = string(out)
		}
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ends(t, errs)
	if t.Failed() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// TestThread: the end of the thread that asked for a child is not the parent's.
func TestThread(t *testing.T) {
	started := make(chan *Child)
	ready := make(chan string, 10)
	go func() {
		runtime.LockOSThread() // and never unlocked: so the thread ends with the goroutine
		c, err := Start(command(t.Context(), "worker"), func(text string) { ready <- text })
		if err != nil {
			t.Error(err)
		}
		started <- c
	}()
	c := <-started
	if c == nil {
		return
	}
	t.Cleanup(func() { c.Kill() })
	select {
	case <-ready:
	case <-c.Done():
		t.Fatalf("it ended: %v", c.Err())
	}
	// The thread's end is not told to anybody; a child that is tied to it dies long before this one
	// has come and gone.
	other, _ := begin(t, "worker")
	if err := errors.Join(other.Drain(t.Context()), c.Drain(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestInterrupt: ctrl-C is the parent's concern.
func TestInterrupt(t *testing.T) {
	c, lines := begin(t, "worker")
	if err := c.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Done():
		t.Fatalf("it ended: %v", c.Err())
	case <-time.After(100 * time.Millisecond):
	}
	if err := c.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	for range lines { // to the end
	}
	if group, err := syscall.Getpgid(os.Getpid()); err != nil || group == c.Pid() {
		t.Errorf("the test is in the group %d, the child is %d: %v", group, c.Pid(), err)
	}
}
