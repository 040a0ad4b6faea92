//go:build unix

package localstack_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/rundir"
)

const (
	ask = "ONCEQ_TEST_ASK=1"
	// noDocker: the tests of what happens without a server are not to find one there.
	noDocker = "DOCKER_HOST=unix:///nonexistent"
)

// askWait makes TestAsk wait for the file whose name comes with it.
func askWait(t *testing.T) (setting, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "go on")
	return "ONCEQ_TEST_ASK=" + file, file
}

// nothing are settings in which no server can be found or started.
func nothing(t *testing.T) []string {
	t.Helper()
	return []string{"ONCEQ_POSTGRES_BIN=" + t.TempDir(), noDocker}
}

func goOn(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	onHost(t)
	dir := tempDir(t)
	p := start(t, dir, []string{ask, noDocker}, own(t)...)
	a := p.asked(t)
	if code, text := p.end(t); code != 0 {
		t.Fatal(text)
	}
	gone(t, dir, a)
}

func TestEndsWithAKilledProcess(t *testing.T) {
	t.Parallel()
	onHost(t)
	dir := tempDir(t)
	wait, _ := askWait(t)
	p := start(t, dir, []string{wait, noDocker}, own(t)...)
	a := p.asked(t)
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.end(t)
	gone(t, dir, a)
}

// TestTemporaryFilesOfOurOwn: the server runs as another user where we are root, so a folder that
// only we may enter is no place for its data.
func TestTemporaryFilesOfOurOwn(t *testing.T) {
	t.Parallel()
	onHost(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	code, text := start(t, dir, []string{noDocker, "ONCEQ_BACKENDS=all"}, own(t)[0], "-test.run=^TestDurable$").end(t)
	if code != 0 {
		t.Error(text)
	}
	gone(t, dir)
}

// TestEndsWhenKilledEarly kills the process at many points of the server's start.
func TestEndsWhenKilledEarly(t *testing.T) {
	t.Parallel()
	onHost(t)
	memory, _ := filepath.Glob("/dev/shm/onceq-*")
	for after := time.Millisecond; after < time.Second; after *= 5 {
		dir := tempDir(t)
		wait, _ := askWait(t)
		p := start(t, dir, []string{wait, noDocker}, own(t)...)
		time.Sleep(after)
		if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.end(t)
		gone(t, dir)
	}
	// other runs may come and go beside this one: what stays is ours
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		after, _ := filepath.Glob("/dev/shm/onceq-*")
		if len(after) <= len(memory) {
			break
		}
		if time.Now().After(end) {
			t.Errorf("in memory before: %v; after: %v", memory, after)
			break
		}
	}
}

// twice is a shell that runs TestAsk in two processes, one after the other.
func twice(t *testing.T) []string {
	t.Helper()
	one := strings.Join(own(t), " ")
	return []string{"sh", "-c", one + " && cd / && " + one}
}

func TestTwoProcessesShareOneServer(t *testing.T) {
	t.Parallel()
	onHost(t)
	dir := tempDir(t)
	p := start(t, dir, []string{ask, noDocker}, append([]string{runner(t)}, twice(t)...)...)
	a, b := p.asked(t), p.asked(t)
	if a.pid == b.pid || a.data != b.data {
		t.Errorf("got %+v and %+v, want two processes with one server", a, b)
	}
	if a.url == b.url {
		t.Errorf("both have the database %s", a.url)
	}
	code, text := p.end(t)
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	// the same test in two packages
	last(t, text, "backend postgres: PostgreSQL ", " (host process), 2 tests")
	// the runner waits for it
	if left := whatIsLeft(dir, []asked{a, b}); left != "" {
		t.Error("left behind:", left)
	}
}

func TestTwoProcessesStartOneServer(t *testing.T) {
	t.Parallel()
	onHost(t)
	dir := tempDir(t)
	one := strings.Join(own(t), " ")
	p := start(t, dir, []string{ask, noDocker}, runner(t), "sh", "-c", one+" & "+one+"; wait")
	a, b := p.asked(t), p.asked(t)
	if a.pid == b.pid || a.data != b.data {
		t.Errorf("got %+v and %+v, want two processes with one server", a, b)
	}
	_, text := p.end(t)
	last(t, text, "backend postgres: PostgreSQL ", ", 1 test")
	gone(t, dir, a, b)
}

func TestEndsWithAKilledRun(t *testing.T) {
	t.Parallel()
	onHost(t)
	run := runner(t)
	for _, c := range []struct {
		name string
		sig  syscall.Signal
		says string
	}{
		{"killed", syscall.SIGKILL, ""},
		{"interrupted", syscall.SIGINT, "backend postgres: PostgreSQL "},
		{"terminated", syscall.SIGTERM, "backend postgres: PostgreSQL "},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tempDir(t)
			wait, _ := askWait(t)
			p := start(t, dir, []string{wait, noDocker}, append([]string{run}, own(t)...)...)
			a := p.asked(t)
			// the runner alone, not its group
			if err := p.cmd.Process.Signal(c.sig); err != nil {
				t.Fatal(err)
			}
			if c.sig == syscall.SIGKILL {
				gone(t, dir, a)
				syscall.Kill(a.pid, syscall.SIGKILL)
			}
			code, text := p.end(t)
			if code == 0 {
				t.Error("exit code 0")
			}
			if !strings.Contains(text, c.says) {
				t.Errorf("it does not say %q:\n%s", c.says, text)
			}
			gone(t, dir, a)
			if c.sig != syscall.SIGKILL && syscall.Kill(a.pid, 0) == nil {
				t.Errorf("the test process %d is still there", a.pid)
			}
		})
	}
}

// TestEndsWithARunWithoutServers kills a runner before any test asked for anything.
func TestEndsWithARunWithoutServers(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	p := start(t, dir, nil, runner(t), "sh", "-c", "echo asked 1 $ONCEQ_RUN -; while test -d $ONCEQ_RUN; do sleep 0.1; done")
	a := p.asked(t)
	if _, err := os.Stat(a.url); err != nil {
		t.Fatal(err)
	}
	// all that a terminal or a CI system knows of: what removes the folder is elsewhere
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, dir)
}

// last fails the test unless the text ends with one line for each back end, and the one of begin's
// begins and ends so.
func last(t *testing.T, text, begin, end string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	lines = lines[max(0, len(lines)-len(rundir.Names)):]
	for i, line := range lines {
		name := "backend " + rundir.Names[i] + ": "
		if !strings.HasPrefix(line, name) || strings.HasPrefix(begin, name) && (!strings.HasPrefix(line, begin) || !strings.HasSuffix(line, end)) {
			t.Errorf("a last line is %q, want one of %q, and %q…%q; all:\n%s", line, name, begin, end, text)
		}
	}
}

func TestNoBackend(t *testing.T) {
	t.Parallel()
	run := runner(t)
	none := "backend postgres: none (host process: ONCEQ_POSTGRES_BIN="
	for _, c := range []struct {
		name, require string
		code          int
		test, end     string
	}{
		{"skipped", "", 0, "--- SKIP: TestAsk", ", 0 of 1 tests"},
		{"skipped when others are required", ",", 0, "--- SKIP: TestAsk", ", 0 of 1 tests"},
		{"required", "all", 1, "--- FAIL: TestAsk", ", 0 of 1 tests"},
		{"required by name", " postgres ,", 1, "--- FAIL: TestAsk", ", 0 of 1 tests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tempDir(t)
			env := append(nothing(t), ask, "ONCEQ_BACKENDS="+c.require)
			code, text := start(t, dir, env, append([]string{run}, own(t)...)...).end(t)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if !strings.Contains(text, c.test) || !strings.Contains(text, "none (host process: ") {
				t.Errorf("want %q and the reason:\n%s", c.test, text)
			}
			last(t, strings.ReplaceAll(text, "\ntestrun: exit status 1", ""), none, c.end)
			if !strings.Contains(text, "; Docker: ") {
				t.Errorf("no reason for Docker:\n%s", text)
			}
			gone(t, dir)
		})
	}
}

// TestRequiredAndSkipped: a command that hides the failure of its tests does not hide a missing
// back end.
func TestRequiredAndSkipped(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	one := strings.Join(own(t), " ")
	env := append(nothing(t), ask, "ONCEQ_BACKENDS=all")
	code, text := start(t, dir, env, runner(t), "sh", "-c", one+"; true").end(t)
	if code != 1 || !strings.Contains(text, "ONCEQ_BACKENDS=all, and a back end is missing") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
}

func TestBadNames(t *testing.T) {
	dir := tempDir(t)
	want := `ONCEQ_BACKENDS=postgers: there is no back end "postgers"`
	for name, args := range map[string][]string{"runner": append([]string{runner(t)}, own(t)...), "test": own(t)} {
		code, text := start(t, dir, []string{ask, "ONCEQ_BACKENDS=postgers"}, args...).end(t)
		if code == 0 || !strings.Contains(text, want) {
			t.Errorf("%s: exit code %d, want a failure with %q:\n%s", name, code, want, text)
		}
	}
}

func TestExitCode(t *testing.T) {
	code, text := start(t, tempDir(t), nil, runner(t), "sh", "-c", "exit 7").end(t)
	if code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	last(t, text, "backend postgres: not asked for, 0 tests", "")
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	onHost(t)
	dir := tempDir(t)
	wait, file := askWait(t)
	server := start(t, dir, []string{wait, noDocker}, own(t)...)
	a := server.asked(t)
	p := start(t, dir, append(nothing(t), ask, "ONCEQ_POSTGRES_URL="+a.url), append([]string{runner(t)}, own(t)...)...)
	b := p.asked(t)
	_, text := p.end(t)
	last(t, text, "backend postgres: PostgreSQL ", " (environment), 1 test")
	if a.data != b.data || a.url == b.url {
		t.Errorf("got %+v, want a database of its own on the server of %+v", b, a)
	}
	// somebody named it, so its tests are not skipped, required or not
	bad := strings.Replace(a.url, "/onceq_", "/none_", 1)
	code, text := start(t, dir, []string{ask, "ONCEQ_POSTGRES_URL=" + bad}, append([]string{runner(t)}, own(t)...)...).end(t)
	if code != 1 || !strings.Contains(text, "--- FAIL") {
		t.Errorf("exit code %d for an address without a database:\n%s", code, text)
	}
	last(t, text, "backend postgres: none (ONCEQ_POSTGRES_URL: ", ", 0 of 1 tests")
	goOn(t, file)
	if code, text := server.end(t); code != 0 {
		t.Error(text)
	}
	gone(t, dir, a)
}

func TestDocker(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		sig  syscall.Signal
	}{{"ended", 0}, {"killed", syscall.SIGKILL}} {
		t.Run(c.name, func(t *testing.T) {
			dir := tempDir(t)
			wait, file := askWait(t)
			p := start(t, dir, []string{wait, "ONCEQ_POSTGRES_BIN=" + t.TempDir()}, append([]string{runner(t)}, own(t)...)...)
			a, ok := p.tryAsked()
			if !ok {
				_, text := p.end(t)
				if !strings.Contains(text, "--- SKIP: TestAsk") {
					t.Fatal(text)
				}
				t.Skip("no Docker with an image of PostgreSQL here:\n" + text)
			}
			if a.data != inContainer {
				t.Errorf("the data is in %s, so the server is in no container", a.data)
			}
			if c.sig == 0 {
				goOn(t, file)
			} else if err := p.cmd.Process.Signal(c.sig); err != nil {
				t.Fatal(err)
			}
			gone(t, dir, a)
			if c.sig != 0 {
				syscall.Kill(a.pid, syscall.SIGKILL)
			}
			if _, text := p.end(t); c.sig == 0 {
				last(t, text, "backend postgres: PostgreSQL ", " (Docker), 1 test")
			}
		})
	}
}
