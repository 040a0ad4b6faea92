package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/onceq/onceq/internal/must"
)

// TestMain is the command itself where a test runs it as a process.
func TestMain(m *testing.M) {
	if os.Getenv("ONCEQ_TEST_COMMAND") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command is the command as a process, with nothing of this one's configuration.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], args...)
	c.Dir = t.TempDir()
	c.Env = []string{"ONCEQ_TEST_COMMAND=1", "HOME=" + c.Dir}
	return c
}

func ends(t *testing.T, err error, want int) {
	t.Helper()
	code := 0
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		code = e.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if code != want {
		t.Errorf("exit %d, want %d", code, want)
	}
}

// TestProcessExit: the process ends with the codes of the page.
func TestProcessExit(t *testing.T) {
	t.Parallel()
	for want, args := range map[int][]string{
		0: {"version"},
		2: {"queue", "ls"},
		3: {"queue", "show", "sqs+http://127.0.0.1:1/orders", "--timeout", "20s"},
	} {
		var errs bytes.Buffer
		c := command(t, args...)
		c.Stderr = &errs
		ends(t, c.Run(), want)
		if said := errs.Len() > 0; said != (want != 0) {
			t.Errorf("%v: %s", args, errs.String())
		}
	}
}

// TestProcessHead: a reader that is gone ends it quietly, with 0.
func TestProcessHead(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"--help"}, {"help", "json"}, {"completion", "bash"}} {
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = in.Close()
		var errs bytes.Buffer
		c := command(t, args...)
		c.Stdout, c.Stderr = out, &errs
		ends(t, c.Run(), 0)
		_ = out.Close()
		if errs.Len() > 0 {
			t.Errorf("%v: %s", args, errs.String())
		}
	}
}

// TestProcessInterrupt: ctrl-C while a queue does not answer ends it at once, with 130.
func TestProcessInterrupt(t *testing.T) {
	t.Parallel()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0")) // takes a call, and never answers
	defer func() { _ = l.Close() }()
	c := command(t, "queue", "show", "sqs+http://"+l.Addr().String()+"/orders", "--timeout", "5m")
	var errs bytes.Buffer
	c.Stdout, c.Stderr = io.Discard, &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	call, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = call.Close() }()
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	ends(t, c.Wait(), 130)
	if errs.String() != "onceq: interrupted\n" {
		t.Errorf("%q", errs.String())
	}
}

// TestTags: a build without a driver has nothing of it.
func TestTags(t *testing.T) {
	t.Parallel()
	const (
		sqlite, grpc      = "modernc.org/sqlite", "google.golang.org/grpc"
		pubsub, firestore = "github.com/onceq/onceq/adapters/gcppubsub", "github.com/onceq/onceq/dedupe/firestorestore"
	)
	for tags, has := range map[string]map[string]bool{
		"":                              {sqlite: true, pubsub: true, firestore: true, grpc: true},
		"nosqlite":                      {sqlite: false, pubsub: true, firestore: true},
		"nopubsub":                      {sqlite: true, pubsub: false, firestore: true},
		"nofirestore":                   {sqlite: true, pubsub: true, firestore: false},
		"nosqlite,nopubsub,nofirestore": {sqlite: false, pubsub: false, firestore: false, grpc: false},
	} {
		list, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", tags, ".").Output()
		if err != nil {
			t.Fatal(tags, err)
		}
		packages := strings.Fields(string(list))
		for name, want := range has {
			if slices.Contains(packages, name) != want {
				t.Errorf("tags %q: %s is there: %v", tags, name, !want)
			}
		}
	}
}
