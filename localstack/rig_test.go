//go:build unix

package localstack_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/localstack"
)

// TestAsk is what the tests of the harness run in other processes: it asks for a database and says
// where it is. Where ONCEQ_TEST_ASK is the path of a file, it goes on when that is there.
func TestAsk(t *testing.T) {
	what := os.Getenv("ONCEQ_TEST_ASK")
	if what == "" {
		t.Skip("run by other tests, in processes of their own")
	}
	db := localstack.Postgres(t)
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	var data string
	if err := conn.QueryRow(t.Context(), "show data_directory").Scan(&data); err != nil {
		t.Fatal(err)
	}
	// from here on nothing but its name says that the database is in use
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("asked %d %s %s\n", os.Getpid(), db.URL, data)
	for end := time.Now().Add(time.Minute); filepath.IsAbs(what) && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(what); err == nil {
			break
		}
	}
}

// inContainer is the data's place when Docker runs the server.
const inContainer = "/onceq"

// An asked is what TestAsk said.
type asked struct {
	pid       int
	url, data string
}

// A proc is a command of a test.
type proc struct {
	cmd  *exec.Cmd
	out  *bufio.Reader
	text strings.Builder
}

// start runs a command with temporary files in dir and the settings env.
func start(t *testing.T, dir string, env []string, args ...string) *proc {
	t.Helper()
	p := &proc{cmd: exec.Command(args[0], args[1:]...)}
	// what this run is told does not reach the one that is under test
	p.cmd.Env = append(os.Environ(), "TMPDIR="+dir, "ONCEQ_RUN=", "ONCEQ_BACKENDS=", "ONCEQ_POSTGRES_URL=", "ONCEQ_SQS_URL=", "ONCEQ_DYNAMODB_URL=", "PUBSUB_EMULATOR_HOST=")
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p.cmd.Stdout
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(stdout)
	t.Cleanup(func() { syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) })
	return p
}

// asked waits for the next word of a TestAsk.
func (p *proc) asked(t *testing.T) asked {
	t.Helper()
	a, ok := p.tryAsked()
	if !ok {
		t.Fatalf("%s: no database\n%s", p.cmd, p.text.String())
	}
	return a
}

func (p *proc) tryAsked() (a asked, ok bool) {
	for {
		line, err := p.out.ReadString('\n')
		p.text.WriteString(line)
		if _, err := fmt.Sscanf(line, "asked %d %s %s", &a.pid, &a.url, &a.data); err == nil {
			return a, true
		}
		if err != nil {
			return a, false
		}
	}
}

// end waits for the command's end.
func (p *proc) end(t *testing.T) (code int, text string) {
	t.Helper()
	rest := must.Get(io.ReadAll(p.out))
	p.text.Write(rest)
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode(), p.text.String()
}

// tempDir is a folder that another user may pass through; those of testing are below one that only
// we may.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "onceq-test-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// own is a command that runs TestAsk once.
func own(t *testing.T) []string {
	t.Helper()
	exe := must.Get(os.Executable())
	return []string{exe, "-test.run=^TestAsk$", "-test.v"}
}

// buildDir holds the runner, which is built once.
var buildDir string

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(buildDir)
	os.Exit(code)
}

// runner builds the program that make test uses.
func runner(t *testing.T) string {
	t.Helper()
	exe, err := buildRunner()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

var buildRunner = sync.OnceValues(func() (exe string, err error) {
	if buildDir, err = os.MkdirTemp("", "onceq-build-"); err != nil {
		return "", err
	}
	exe = filepath.Join(buildDir, "testrun")
	if out, err := exec.Command("go", "build", "-o", exe, "./internal/testrun").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return exe, nil
})

// gone fails the test if anything of what TestAsk was given is still there after a time in which it
// should have ended.
func gone(t *testing.T, dir string, as ...asked) {
	t.Helper()
	var left string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if left = whatIsLeft(dir, as); left == "" {
			return
		}
	}
	t.Error("left behind:", left)
}

func whatIsLeft(dir string, as []asked) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err.Error()
	}
	for _, e := range entries {
		return filepath.Join(dir, e.Name())
	}
	for _, a := range as {
		// the data, and the folder that holds it; a container's are not ours to see
		if a.data != inContainer {
			if _, err := os.Stat(filepath.Dir(a.data)); !errors.Is(err, os.ErrNotExist) {
				return a.data
			}
			if processWith(a.data) {
				return "a process that names " + a.data
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		conn, err := pgx.Connect(ctx, a.url)
		cancel()
		if err == nil {
			conn.Close(context.Background())
			return "a server at " + a.url
		}
	}
	return ""
}

// processWith tells whether a command line has the text in it, where the system shows them.
func processWith(text string) bool {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		if line, err := os.ReadFile(name); err == nil && strings.Contains(string(line), text) {
			return true
		}
	}
	return false
}

// onHost skips the test where the server that it needs cannot be started here as a process of this
// machine.
func onHost(t *testing.T) {
	t.Helper()
	if why := noHost(); why != "" {
		if os.Getenv("ONCEQ_BACKENDS") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
}

// noHost tells why not.
var noHost = sync.OnceValue(func() string {
	exe, err := os.Executable()
	if err != nil {
		return err.Error()
	}
	cmd := exec.Command(exe, "-test.run=^TestAsk$", "-test.v")
	cmd.Env = append(os.Environ(), ask, noDocker, "ONCEQ_RUN=", "ONCEQ_BACKENDS=all", "ONCEQ_POSTGRES_URL=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Sprintf("no server on this machine: %v\n%s", err, out)
	}
	return ""
})
