package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
	"github.com/onceq/onceq/localstack"
)

// TestMain runs the program itself when a test asks for it, so that the tests need no go command.
func TestMain(m *testing.M) {
	if os.Getenv("ONCEQ_CLOUDRUN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is the program under a test's hands.
type process struct {
	*exec.Cmd
	mu    sync.Mutex
	text  strings.Builder
	said  chan struct{}
	ended chan error
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.said <- struct{}{}:
	default:
	}
	return p.text.Write(b)
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// start runs the program in this environment alone.
func start(t *testing.T, env ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	p := &process{Cmd: exec.Command(exe), said: make(chan struct{}, 1), ended: make(chan error, 1)}
	p.Env = append([]string{"ONCEQ_CLOUDRUN=1", "PORT=0"}, env...)
	p.Stdout, p.Stderr = p, p
	require.NoError(t, p.Start())
	go func() { p.ended <- p.Wait() }()
	t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// waitForLine waits until the program has said so.
func (p *process) waitForLine(t *testing.T, pattern string) []string {
	t.Helper()
	end := time.After(time.Minute)
	for {
		if m := regexp.MustCompile(pattern).FindStringSubmatch(p.log()); m != nil {
			return m
		}
		select {
		case <-p.said:
		case <-end:
			require.Fail(t, "it does not say "+pattern, p.log())
		}
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	res, err := http.Get(url)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(text)
}

// Each order is charged once, although each is pushed twice at once; the probes answer; and a
// SIGTERM lets the push in flight end.
func TestDemo(t *testing.T) {
	p := start(t)
	addr := "http://" + p.waitForLine(t, `"addr":"([^"]+)"`)[1]
	answers := p.waitForLine(t, `20 pushes were answered: (.*)`)[1]
	require.Equal(t, strings.TrimSpace(strings.Repeat("204 ", 2*orders)), answers)
	require.Equal(t, orders, strings.Count(p.log(), "the bank charges once"))
	for _, probe := range []string{"/livez", "/readyz"} {
		status, text := get(t, addr+probe)
		require.Equal(t, http.StatusOK, status, text)
	}
	status, _ := get(t, addr+"/push")
	require.Equal(t, http.StatusMethodNotAllowed, status)

	// a connection that nobody has asked anything on, as balancers and clients keep them
	idle, err := net.Dial("tcp", strings.TrimPrefix(addr, "http://"))
	require.NoError(t, err)
	defer idle.Close()
	last := make(chan string, 1)
	go func() { last <- push(addr+"/push", "order-last") }()
	p.waitForCount(t, "the bank is asked", orders+1)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Equal(t, "204", <-last)
	select {
	case err := <-p.ended:
		require.NoError(t, err, p.log())
	case <-time.After(10 * time.Second):
		require.Fail(t, "Cloud Run would have killed it", p.log())
	}
	require.Equal(t, orders+1, strings.Count(p.log(), "the bank charges once"))
	require.Contains(t, p.log(), `"msg":"drained","error":null`)
}

// waitForCount waits until the program has said so n times.
func (p *process) waitForCount(t *testing.T, text string, n int) {
	t.Helper()
	end := time.After(time.Minute)
	for strings.Count(p.log(), text) < n {
		select {
		case <-p.said:
		case <-end:
			require.Fail(t, "it does not say again "+text, p.log())
		}
	}
}

// With all settings named it wants a token, and ends at once when nothing is in flight: on
// Firestore, and on PostgreSQL.
func TestWithSettings(t *testing.T) {
	t.Run("Firestore", func(t *testing.T) {
		_, address := firestorefake.Start(t, nil)
		testWithSettings(t, "FIRESTORE_EMULATOR_HOST="+address)
	})
	t.Run("PostgreSQL", func(t *testing.T) { testWithSettings(t, "DATABASE_URL="+localstack.Postgres(t).URL) })
}

func testWithSettings(t *testing.T, store string) {
	t.Helper()
	p := start(t, "DEAD_LETTER_TOPIC=projects/p/topics/orders-dead", store, "BANK_URL=http://127.0.0.1:1",
		"PUSH_AUDIENCE=https://orders.example/push", "PUSH_ACCOUNT=pusher@p.iam.gserviceaccount.com", "PUBSUB_EMULATOR_HOST=127.0.0.1:1")
	addr := "http://" + p.waitForLine(t, `"addr":"([^"]+)"`)[1]
	addr = strings.Replace(addr, "[::]", "127.0.0.1", 1)
	require.Equal(t, "401", push(addr+"/push", "order-1"))
	p.waitForLine(t, `"reason":"the request has no token"`)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NoError(t, <-p.ended, p.log())
}

// With a topic named, all else must be there.
func TestSettings(t *testing.T) {
	p := start(t, "DEAD_LETTER_TOPIC=projects/p/topics/orders-dead")
	require.Error(t, <-p.ended)
	for _, name := range []string{"BANK_URL", "PUSH_AUDIENCE", "PUSH_ACCOUNT"} {
		require.Contains(t, p.log(), name+" is not set")
	}
}
