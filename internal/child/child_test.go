package child

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/must"
)

const roleVariable = "CHILD_TEST_ROLE"

// TestMain plays a child where a test starts one.
func TestMain(m *testing.M) {
	roles := map[string]func() int{"worker": worker, "deaf": deaf, "parent": parent}
	if role := roles[os.Getenv(roleVariable)]; role != nil {
		os.Exit(role())
	}
	os.Exit(m.Run())
}

// worker says that it is there, drains when it is asked, and says that, too.
func worker() int {
	ctx := Follow(context.Background())
	Tell("ready %d", os.Getpid())
	fmt.Fprint(os.Stdout, "half a ")
	<-ctx.Done()
	Tell("line")
	Tell("drained")
	return 0
}

// deaf does not look at its context.
func deaf() int {
	Follow(context.Background())
	Tell("ready %d", os.Getpid())
	select {}
}

// parent starts a worker and goes on for ever.
func parent() int {
	if _, err := Start(command(context.Background(), "worker"), func(text string) {
		if strings.HasPrefix(text, "ready") {
			fmt.Fprintln(os.Stdout, text)
		}
	}); err != nil {
		return 1
	}
	select {}
}

func command(ctx context.Context, role string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

// begin starts a child and waits until it is ready. Its lines come through the channel, which ends
// with it.
func begin(t *testing.T, role string) (*Child, chan string) {
	t.Helper()
	lines := make(chan string, 10)
	c, err := Start(command(t.Context(), role), func(text string) { lines <- text })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Kill() })
	go func() {
		<-c.Done()
		close(lines)
	}()
	if text := <-lines; text != "ready "+strconv.Itoa(c.Pid()) {
		t.Fatalf("the first line of %d is %q", c.Pid(), text)
	}
	return c, lines
}

func TestDrain(t *testing.T) {
	c, lines := begin(t, "worker")
	if err := c.Drain(t.Context()); err != nil || c.Err() != nil || c.Killed() {
		t.Errorf("drained: %v; ended: %v; killed: %v", err, c.Err(), c.Killed())
	}
	if a, b := <-lines, <-lines; a != "half a line" || b != "drained" {
		t.Errorf("it said %q and %q", a, b)
	}
	if c.Kill() || c.Killed() {
		t.Error("a process was killed that had ended")
	}
}

// TestKill: of a process that was killed no half line is told.
func TestKill(t *testing.T) {
	c, lines := begin(t, "worker")
	if !c.Kill() {
		t.Error("it was not killed")
	}
	if text, ok := <-lines; ok {
		t.Errorf("it said %q", text)
	}
	if c.Err() == nil || !c.Killed() {
		t.Errorf("ended: %v, killed: %v", c.Err(), c.Killed())
	}
	if err := c.Drain(t.Context()); err == nil {
		t.Error("a dead process drains")
	}
}

func TestDrainIsBounded(t *testing.T) {
	c, _ := begin(t, "deaf")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Drain(ctx); err == nil || !strings.Contains(err.Error(), "does not drain") {
		t.Errorf("drained: %v", err)
	}
	if !c.Killed() {
		t.Error("it goes on")
	}
}

// TestOrphan: a child ends when its parent is killed.
func TestOrphan(t *testing.T) {
	_, out, parent := family(t)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ends(t, out)
}

// TestLifeline: the end of its standard input ends a child, also where the system does not.
func TestLifeline(t *testing.T) {
	cmd := command(t.Context(), "worker")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Error(err)
	}
	if err := stdin.Close(); err != nil {
		t.Error(err)
	}
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != orphaned {
		t.Errorf("it ended with %s", cmd.ProcessState)
	}
}

// family starts a parent with its child, and answers the child's number, and the pipe on which both
// write errors: it ends with the last of them.
func family(t *testing.T) (pid int, errs io.Reader, parent *exec.Cmd) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	cmd := command(t.Context(), "parent")
	cmd.Stderr = w
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	text := must.Get(bufio.NewReader(out).ReadString('\n'))
	if pid, err = strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(text, "ready "))); err != nil {
		t.Fatal(err)
	}
	return pid, r, cmd
}

// ends waits until nobody has the pipe open for writing.
func ends(t *testing.T, errs io.Reader) {
	t.Helper()
	done := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(errs)
		done <- string(text)
	}()
	select {
	case text := <-done:
		if text != "" {
			t.Error(text)
		}
	case <-time.After(20 * time.Second):
		t.Error("a process is left")
	}
}
