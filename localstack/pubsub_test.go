//go:build unix

package localstack_test

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/onceq/onceq/localstack"
)

func TestPubSub(t *testing.T) {
	s := localstack.PubSub(t)
	if _, _, err := net.SplitHostPort(s.Addr); err != nil {
		t.Error(err)
	}
	if emulator := strings.HasPrefix(s.Version, "Pub/Sub emulator"); emulator != (s.Kind == "emulator") {
		t.Errorf("%s is of the kind %q", s.Version, s.Kind)
	}
	if a, b := s.Project(t), s.Project(t); a == b || !strings.HasPrefix(a, "onceq-") {
		t.Errorf("two projects are %q and %q", a, b)
	}
}

// TestAskPubSub is what the tests below run in other processes: it asks for a server and says
// where it is. Where ONCEQ_TEST_ASK is the path of a file, it has the server until the test that
// runs this one is done.
func TestAskPubSub(t *testing.T) {
	what := os.Getenv("ONCEQ_TEST_ASK")
	if what == "" {
		t.Skip("run by other tests, in processes of their own")
	}
	s := localstack.PubSub(t)
	s.Project(t) // whose end asks the server
	os.Stdout.WriteString("asked " + s.Addr + " " + s.Version + "\n")
	if filepath.IsAbs(what) {
		<-t.Context().Done()
	}
}

// ownPubSub is a command that runs TestAskPubSub once.
func ownPubSub(t *testing.T) []string {
	t.Helper()
	return []string{own(t)[0], "-test.run=^TestAskPubSub$", "-test.v"}
}

const noGcloud = "ONCEQ_GCLOUD=/nonexistent"

// TestNoPubSub: "all" does not ask for it, its own name does.
func TestNoPubSub(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, require string
		code          int
		test          string
	}{
		{"skipped", "", 0, "--- SKIP: TestAskPubSub"},
		{"skipped when all others are required", "all", 0, "--- SKIP: TestAskPubSub"},
		{"required by name", "all, pubsub", 1, "--- FAIL: TestAskPubSub"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			env := []string{ask, noDocker, noGcloud, "ONCEQ_BACKENDS=" + c.require}
			code, text := start(t, dir, env, append([]string{runner(t)}, ownPubSub(t)...)...).end(t)
			if code != c.code || !strings.Contains(text, c.test) {
				t.Errorf("exit code %d, want %d with %q:\n%s", code, c.code, c.test, text)
			}
			text = strings.ReplaceAll(text, "\ntestrun: exit status 1", "")
			last(t, text, "backend pubsub: none (Docker: ", "; host process: no Google Cloud CLI /nonexistent), 0 of 1 tests")
			gone(t, dir)
		})
	}
}

func TestPubSubEnvironment(t *testing.T) {
	t.Parallel()
	s := localstack.PubSub(t)
	dir := tempDir(t)
	run := append([]string{runner(t)}, ownPubSub(t)...)
	code, text := start(t, dir, []string{ask, noDocker, noGcloud, "PUBSUB_EMULATOR_HOST=" + s.Addr}, run...).end(t)
	if code != 0 || !strings.Contains(text, "asked "+s.Addr+" ") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	name := s.Version
	if s.Kind == "emulator" {
		name = "Pub/Sub emulator" // it does not tell its version
	}
	last(t, text, "backend pubsub: "+name+" (environment), 1 test", "")
	// somebody named it, so its tests are not skipped, required or not
	for _, bad := range []string{"127.0.0.1:1", "http://" + s.Addr} {
		code, text = start(t, dir, []string{ask, "PUBSUB_EMULATOR_HOST=" + bad}, run...).end(t)
		if code != 1 || !strings.Contains(text, "--- FAIL") {
			t.Errorf("exit code %d for %s:\n%s", code, bad, text)
		}
		last(t, text, "backend pubsub: none (PUBSUB_EMULATOR_HOST: ", ", 0 of 1 tests")
	}
}

// TestPubSubEmulator: it comes up as a process of this machine, on the loopback address alone, two
// processes of a run share it, and it leaves nothing behind, killed or not.
func TestPubSubEmulator(t *testing.T) {
	t.Parallel()
	if s := localstack.PubSub(t); s.Kind != "emulator" {
		t.Skip("no emulator of Google's here, see above")
	}
	dir := tempDir(t)
	one := strings.Join(ownPubSub(t), " ")
	code, text := start(t, dir, []string{ask, noDocker}, runner(t), "sh", "-c", one+" && cd / && "+one).end(t)
	if code != 0 {
		t.Fatal(text)
	}
	if !strings.Contains(text, "backend pubsub: Pub/Sub emulator ") {
		t.Skip("the emulator does not run as a process of this machine:\n" + text)
	}
	last(t, text, "backend pubsub: Pub/Sub emulator 0.", " (host process), 2 tests")
	if urls := askedServer.FindAllStringSubmatch(text, -1); len(urls) != 2 || urls[0][1] != urls[1][1] {
		t.Errorf("two processes did not share one server:\n%s", text)
	}
	gone(t, dir)

	wait, _ := askWait(t)
	p := start(t, dir, []string{wait, noDocker}, ownPubSub(t)...)
	addr := p.askedURL(t)
	onLoopbackOnly(t, &url.URL{Host: addr})
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.end(t)
	gone(t, dir)
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Errorf("it still answers at %s", addr)
	}
	if processWith(dir) {
		t.Error("a process that names " + dir + " is left")
	}
}
