package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/sqsfake"
)

// TestMain runs the program itself when a test asks for it, so that the tests need no go command.
func TestMain(m *testing.M) {
	if os.Getenv("ONCEQ_CONTAINER") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is the program under a test's hands.
type process struct {
	t   *testing.T
	cmd *exec.Cmd

	mu     sync.Mutex
	out    strings.Builder
	ended  chan struct{}
	health string
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// start runs the program in this environment alone.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	p := &process{t: t, cmd: exec.Command(exe, args...), ended: make(chan struct{})}
	p.cmd.Env = append([]string{"ONCEQ_CONTAINER=1", "TMPDIR=" + t.TempDir(), "HTTP_ADDR=127.0.0.1:0"}, env...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

// until waits for the condition.
func until(t *testing.T, p *process, what string, met func() bool) {
	t.Helper()
	end := time.After(60 * time.Second)
	for !met() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-end:
			t.Fatalf("not in time: %s\n%s", what, p.log())
		}
	}
}

var address = regexp.MustCompile(`"health":"([^"]+)"`)

// working waits until the process says where its health is asked for.
func (p *process) working() {
	p.t.Helper()
	until(p.t, p, "it works", func() bool { return address.MatchString(p.log()) })
	p.health = "http://" + address.FindStringSubmatch(p.log())[1]
}

// ask answers what a health endpoint does; "" where nobody answers.
func (p *process) ask(path string) string {
	p.t.Helper()
	res, err := http.Get(p.health + path)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return fmt.Sprint(res.StatusCode, " ", strings.TrimSpace(string(text)))
}

func (p *process) signal() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
}

// exit waits for the end and answers the exit code.
func (p *process) exit() int {
	p.t.Helper()
	until(p.t, p, "it ends", func() bool {
		select {
		case <-p.ended:
			return true
		default:
			return false
		}
	})
	return p.cmd.ProcessState.ExitCode()
}

// bankTest is a bank that counts.
type bankTest struct {
	bank *httptest.Server
	hold chan struct{} // order-hold is charged when this is closed

	mu      sync.Mutex
	charges map[string]int // by the idempotency key
	calls   int
}

func newBank(t *testing.T) *bankTest {
	t.Helper()
	w := &bankTest{hold: make(chan struct{}), charges: make(map[string]int)}
	w.bank = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		w.calls++
		w.mu.Unlock()
		wait := time.After(100 * time.Millisecond)
		if strings.Contains(string(body), "order-hold") {
			wait = nil
		}
		select {
		case <-wait:
		case <-w.hold:
		case <-r.Context().Done():
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.charges[r.Header.Get("Idempotency-Key")]++
	}))
	t.Cleanup(w.bank.Close)
	return w
}

// once asks that so many keys were charged, each once.
func (w *bankTest) once(t *testing.T, keys int, log string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Len(t, w.charges, keys)
	for key, n := range w.charges {
		require.Equal(t, 1, n, "%s\n%s", key, log)
	}
}

// town is a server of SQS, its two queues, and a bank.
type town struct {
	*sqsfake.Server
	*bankTest
	t             *testing.T
	client        *sqs.Client
	queue, letter string
}

func newTown(t *testing.T) *town {
	t.Helper()
	w := &town{Server: sqsfake.Start(t, nil), bankTest: newBank(t), t: t}
	var err error
	w.client, err = newClient(t.Context(), settings{region: "us-east-1", endpoint: &w.URL, anyKeys: true})
	require.NoError(t, err)
	w.queue, err = w.CreateQueue("orders", nil)
	require.NoError(t, err)
	w.letter, err = w.CreateQueue("orders-dead", nil)
	require.NoError(t, err)
	return w
}

func (w *town) env(more ...string) []string {
	return append([]string{
		"QUEUE_URL=" + w.queue, "DEAD_LETTER_QUEUE_URL=" + w.letter, "AWS_REGION=us-east-1",
		"AWS_ENDPOINT_URL_SQS=" + w.URL, "BANK_URL=" + w.bank.URL, "CONCURRENCY=5", "LONG_POLL=1s",
	}, more...)
}

func (w *town) file() string { return "DATABASE_FILE=" + filepath.Join(w.t.TempDir(), "keys.db") }

func (w *town) send(ids ...string) {
	w.t.Helper()
	b, err := awssqs.New(w.client, w.queue, nil)
	require.NoError(w.t, err)
	require.NoError(w.t, onceq.Send(w.t.Context(), b, orders(ids...)))
}

func orders(ids ...string) (ms []broker.Outgoing) {
	for _, id := range ids {
		ms = append(ms, broker.Outgoing{Body: fmt.Appendf(nil, `{"order": %q}`, id), Meta: &broker.Meta{Key: id}})
	}
	return ms
}

func (w *bankTest) charged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.charges)
}

func (w *bankTest) called() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls
}

func (w *town) depth(url string) broker.Depth {
	w.t.Helper()
	b, err := awssqs.New(w.client, url, nil)
	require.NoError(w.t, err)
	d, err := b.Depth(context.WithoutCancel(w.t.Context()))
	require.NoError(w.t, err)
	return d
}

// A deploy in the middle of forty orders, of which each comes twice: what runs is finished, what
// does not is handed back at once, and the next worker does the rest.
func TestDeploy(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]func(*testing.T, *town) string{
		"file":     func(_ *testing.T, w *town) string { return w.file() },
		"postgres": func(t *testing.T, _ *town) string { return "DATABASE_URL=" + localstack.Postgres(t).URL },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTown(t)
			env := w.env(database(t, w))
			ids := []string{"order-hold"}
			for n := range 39 {
				ids = append(ids, fmt.Sprint("order-", n))
			}
			w.send(append(ids, ids...)...)

			old := start(t, env)
			old.working()
			require.Equal(t, "200 ok", old.ask("/livez"))
			until(t, old, "the first polls are answered", func() bool { return old.ask("/readyz") == "200 ok" })
			until(t, old, "ten orders are charged", func() bool { return w.charged() >= 10 })
			old.signal()
			until(t, old, "it drains", func() bool { return old.ask("/readyz") == "503 draining" })
			require.Equal(t, "200 ok", old.ask("/livez"), "a worker that drains must not be killed for it")
			close(w.hold)
			require.Equal(t, 0, old.exit(), "%s", old.log())
			require.Contains(t, old.log(), `"msg":"drained"`)
			require.Regexp(t, `"outcome":"done","scope":"orders","key":"order-hold"`, old.log(), "what ran was let run on")
			require.Less(t, w.charged(), 40, "the deploy came too late to show anything")
			require.Zero(t, w.depth(w.queue).InFlight, "what was not started is visible for the next worker")

			next := start(t, env)
			until(t, next, "all is charged", func() bool { return w.charged() == 40 })
			until(t, next, "the duplicates are acked", func() bool { return w.depth(w.queue) == broker.Depth{} })
			next.signal()
			require.Equal(t, 0, next.exit(), "%s", next.log())
			w.once(t, 40, old.log()+"\n"+next.log())
			require.Equal(t, broker.Depth{}, w.depth(w.letter))
		})
	}
}

// A charge that takes longer than the drain is cut off, and its order handed back: the exit is a
// clean one.
func TestGraceIsOver(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	w.send("order-hold")
	p := start(t, w.env(w.file(), "STOP_GRACE=8s"))
	until(t, p, "the bank is called", func() bool { return w.called() == 1 })
	began := time.Now()
	p.signal()
	require.Equal(t, 0, p.exit(), "%s", p.log())
	require.Less(t, time.Since(began), 8*time.Second)
	require.Contains(t, p.log(), `"outcome":"handed-back"`)
	require.Equal(t, int64(1), w.depth(w.queue).Visible, "it is visible at once")
}

func TestSecondSignal(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	w.send("order-hold")
	p := start(t, w.env(w.file(), "STOP_GRACE=1h"))
	until(t, p, "the bank is called", func() bool { return w.called() == 1 })
	p.signal()
	until(t, p, "it drains", func() bool { return strings.Contains(p.log(), `"msg":"draining"`) })
	p.signal()
	require.Equal(t, 1, p.exit())
	require.Contains(t, p.log(), "ending at once")
}

// The queue refuses: not ready, but alive; when it is back, ready.
func TestUnready(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	p := start(t, w.env(w.file(), "UNREADY_AFTER=100ms"))
	p.working()
	until(t, p, "ready", func() bool { return p.ask("/readyz") == "200 ok" })
	w.SetFaults(sqsfake.Fault{Action: "ReceiveMessage", Code: "AccessDenied"})
	until(t, p, "unready", func() bool { return strings.HasPrefix(p.ask("/readyz"), "503 the queue has failed for") })
	require.NotContains(t, p.ask("/readyz"), "AccessDenied", "whoever asks need not know")
	until(t, p, "the log says why", func() bool { return strings.Contains(p.log(), "AccessDenied") })
	require.Equal(t, "200 ok", p.ask("/livez"))
	w.SetFaults()
	until(t, p, "ready again", func() bool { return p.ask("/readyz") == "200 ok" })
	p.signal()
	require.Equal(t, 0, p.exit(), "%s", p.log())
}

// A worker that may not poll never gets ready, so that a rollout stops.
func TestNeverReady(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	w.SetFaults(sqsfake.Fault{Action: "ReceiveMessage", Code: "AccessDenied"})
	p := start(t, w.env(w.file()))
	p.working()
	until(t, p, "three polls", func() bool { return w.Counts()["ReceiveMessage"] >= 3 })
	require.Equal(t, "503 starting: no poll was answered yet", p.ask("/readyz"))
	p.signal()
	require.Equal(t, 0, p.exit(), "%s", p.log())
}

func TestNoQueue(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	w.queue += "-that-is-not-there"
	p := start(t, w.env(w.file()))
	require.Equal(t, 1, p.exit())
	require.Contains(t, p.log(), `"msg":"ended"`)
}

// The image asks itself whether it is alive.
func TestProbe(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	p := start(t, w.env(w.file()))
	p.working()
	addr := "HTTP_ADDR=" + strings.TrimPrefix(p.health, "http://")
	require.Equal(t, 0, start(t, []string{addr}, "-health").exit())
	p.signal()
	require.Equal(t, 0, p.exit())
	require.Equal(t, 1, start(t, []string{addr}, "-health").exit())
}

// The operator's page is looked at, and nobody acts through it. No manifest has it in a Service.
func TestAdmin(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	p := start(t, append(w.env(w.file()), "ADMIN_ADDR=127.0.0.1:0"))
	p.working()
	p.health = "http://" + regexp.MustCompile(`"admin":"([^"]+)"`).FindStringSubmatch(p.log())[1]
	screen := p.ask("/q/orders")
	require.Contains(t, screen, "200 <!doctype html>")
	require.NotContains(t, screen, `method="post" action="/q/orders/pause"`)
	res, err := http.PostForm(p.health+"/q/orders/pause", url.Values{"reason": {"x"}, "for": {"1h"}})
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusForbidden, res.StatusCode)
	p.signal()
	require.Equal(t, 0, p.exit(), "%s", p.log())
	for _, name := range []string{"kubernetes.yaml", "gke.yaml", "ecs-task.json", "worker-pool.sh", "Dockerfile"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NotContains(t, string(text), "8081", name)
	}
}

// Without an environment the program brings its own.
func TestDemo(t *testing.T) {
	t.Parallel()
	p := start(t, []string{"LONG_POLL=1s"})
	p.working()
	until(t, p, "all orders are done", func() bool { return strings.Count(p.log(), `"outcome":"done"`) == 20 })
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.Equal(t, 0, p.exit(), "%s", p.log())
	require.Equal(t, 20, strings.Count(p.log(), "the bank charges once"), "%s", p.log())
}

// The files beside the program say what the program needs: the same grace twice, and names that it
// reads.
func TestManifests(t *testing.T) {
	for _, name := range []string{"kubernetes.yaml", "gke.yaml"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		grace := regexp.MustCompile(`terminationGracePeriodSeconds: (\d+)`).FindStringSubmatch(string(text))
		require.NotNil(t, grace)
		s := manifest(t, regexp.MustCompile(`\{name: ([A-Z_]+), value: "?([^"}]+)"?\}`).FindAllStringSubmatch(string(text), -1))
		require.Equal(t, grace[1]+"s", fmt.Sprint(s.grace.Seconds(), "s"))
		require.Equal(t, 20, s.concurrency)
		require.Equal(t, name == "gke.yaml", s.subscription != "")
	}
	text, err := os.ReadFile("worker-pool.sh")
	require.NoError(t, err)
	s := manifest(t, regexp.MustCompile(`[=,]([A-Z_]+)=([^,\s]+)`).FindAllStringSubmatch(string(text), -1))
	require.Equal(t, 10*time.Second, s.grace, "what Cloud Run gives")
	require.NotEmpty(t, s.subscription)

	text, err = os.ReadFile("ecs-task.json")
	require.NoError(t, err)
	var task struct {
		ContainerDefinitions []struct {
			StopTimeout int
			Environment []struct{ Name, Value string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &task))
	c := task.ContainerDefinitions[0]
	env := map[string]string{"DATABASE_URL": "postgres://from-the-secret"}
	for _, e := range c.Environment {
		env[e.Name] = e.Value
	}
	s, err = fromEnvironment(func(name string) string { return env[name] })
	require.NoError(t, err)
	require.Equal(t, time.Duration(c.StopTimeout)*time.Second, s.grace)
}

// A probe that waits behind handlers that compute has time, or a busy worker is restarted. The
// manifests say what the page and the package say.
func TestProbesOfTheManifests(t *testing.T) {
	page, err := os.ReadFile("../../docs/health.md")
	require.NoError(t, err)
	doc, err := os.ReadFile("../../adapters/healthonceq/doc.go")
	require.NoError(t, err)
	for _, probe := range []string{"livenessProbe", "readinessProbe"} {
		for _, setting := range []string{"periodSeconds", "timeoutSeconds", "failureThreshold"} {
			find := regexp.MustCompile(`(?s)` + probe + `.*?` + setting + `: (\d+)`)
			of := func(text []byte) string {
				m := find.FindSubmatch(text)
				require.NotNil(t, m, "%s has no %s", probe, setting)
				return string(m[1])
			}
			want := of(doc)
			require.Equal(t, want, of(page), "%s of %s", setting, probe)
			for _, name := range []string{"kubernetes.yaml", "gke.yaml"} {
				text, err := os.ReadFile(name)
				require.NoError(t, err)
				require.Equal(t, want, of(text), "%s: %s of %s", name, setting, probe)
			}
		}
	}
}

// manifest are the settings of an environment whose names and values are the matches' groups.
func manifest(t *testing.T, matches [][]string) settings {
	t.Helper()
	env := make(map[string]string)
	for _, m := range matches {
		env[m[1]] = m[2]
	}
	if env["SUBSCRIPTION"] == "" {
		env["DATABASE_URL"] = "postgres://from-the-secret"
	}
	s, err := fromEnvironment(func(name string) string { return env[name] })
	require.NoError(t, err)
	require.Empty(t, s.admin, "the page is off unless somebody asks for it")
	return s
}
