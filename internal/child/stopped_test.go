//go:build unix

package child

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// TestStoppedOrphan: a child that is stopped ends when its parent is killed.
func TestStoppedOrphan(t *testing.T) {
	pid, errs, parent := family(t)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ends(t, errs)
	if t.Failed() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
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
