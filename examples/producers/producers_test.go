package producers

import (
	"context"
	"database/sql"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/adapters/sqlitebroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/sqsfake"
)

const (
	topic        = "projects/acme/topics/orders"
	subscription = "projects/acme/subscriptions/orders"
)

const left = "examples/producers: TypeScript, and the Python client that the machine has not"

// Each program sends one order twice, as a producer does whose first try timed out, and another
// one once. The worker does each once, and it reads what the program wrote.
func TestProducers(t *testing.T) {
	server := sqsfake.Start(t, nil)
	pubsub, address := pubsubfake.Start(t, nil)
	_, err := pubsub.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic})
	require.NoError(t, err)
	_, err = pubsub.CreateSubscription(t.Context(), &pubsubpb.Subscription{Name: subscription, Topic: topic, AckDeadlineSeconds: 60})
	require.NoError(t, err)
	env := append(os.Environ(), "AWS_REGION=eu-north-1", "AWS_DEFAULT_REGION=eu-north-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"AWS_ENDPOINT_URL_SQS="+server.URL, "PUBSUB_EMULATOR_HOST="+address, "GOOGLE_CLOUD_PROJECT=acme")

	for _, c := range []struct {
		program string
		run     func(t *testing.T) (command []string, dir string, env []string)
	}{
		{"sqs_producer.py", python("boto3", "boto3")},
		{"sqlite_producer.py", python("sqlite3", "sqlite3, which Python has unless it was built without it")},
		{"pubsub_producer.py", python("google.cloud.pubsub_v1", "google-cloud-pubsub")},
		{"sqs_producer.ts", typescript("@aws-sdk/client-sqs")},
		{"pubsub_producer.ts", typescript("@google-cloud/pubsub")},
	} {
		t.Run(c.program, func(t *testing.T) {
			command, dir, more := c.run(t)
			to, b := topic, broker.Broker(nil)
			switch {
			case strings.HasPrefix(c.program, "sqlite"):
				file := filepath.Join(t.TempDir(), "jobs.db")
				db, err := sql.Open("sqlite", sqlitestore.DSN(file))
				require.NoError(t, err)
				store, err := sqlitestore.New(db, nil)
				require.NoError(t, err)
				t.Cleanup(func() {
					require.NoError(t, store.Close())
					require.NoError(t, db.Close())
				})
				queue, err := sqlitebroker.New(store, "orders", nil)
				require.NoError(t, err)
				require.NoError(t, queue.Migrate(t.Context()))
				b, to = queue, file+":orders"
			case strings.HasPrefix(c.program, "sqs"):
				url, err := server.CreateQueue(strings.ReplaceAll(c.program, ".", "-"), nil)
				require.NoError(t, err)
				b, err = awssqs.New(sqs.New(sqs.Options{BaseEndpoint: &server.URL, Region: "eu-north-1", Credentials: aws.AnonymousCredentials{}}), url, nil)
				require.NoError(t, err)
				to = url
			default:
				b, err = gcppubsub.New(pubsub, topic, subscription, nil)
				require.NoError(t, err)
			}
			var all []*exec.Cmd
			for _, key := range []string{"order-7", "order-7", "order-8"} {
				args := append(slices.Clone(command[1:]), filepath.Join(dir, c.program), to, key, `{"größe": "`+key+`"}`, "order")
				cmd := exec.CommandContext(t.Context(), command[0], args...)
				cmd.Dir, cmd.Env, cmd.Stderr = dir, append(slices.Clone(env), more...), os.Stderr
				require.NoError(t, cmd.Start())
				all = append(all, cmd)
			}
			for _, cmd := range all {
				require.NoError(t, cmd.Wait())
			}
			require.Equal(t, map[string]string{"order-7": `{"größe": "order-7"}`, "order-8": `{"größe": "order-8"}`}, work(t, b))
		})
	}
}

// work does what is in the queue, and answers the bodies by key.
func work(t *testing.T, b broker.Broker) map[string]string {
	t.Helper()
	store, err := memstore.New(nil)
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var mu sync.Mutex
	did, ran, reports := make(map[string]string), 0, 0
	mux := new(onceq.Mux)
	mux.On("order", onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
		mu.Lock()
		defer mu.Unlock()
		did[j.Key().Key] = string(j.Message.Body)
		ran++
		return nil
	}), nil)
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Store: store, Scope: "orders", Handler: mux,
		Observer: ended(func() {
			mu.Lock()
			defer mu.Unlock()
			if reports++; reports == 3 {
				stop()
			}
		}),
	})
	require.NoError(t, err)
	w, err := p.Worker(b, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 1})
	require.NoError(t, err)
	require.NoError(t, w.Run(ctx))
	require.Equal(t, 2, ran)
	require.Equal(t, 3, reports, "two orders and a duplicate have an end each")
	return did
}

// ended is an Observer that is told of each end.
type ended func()

func (ended) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }

func (f ended) JobEnded(context.Context, *onceq.JobReport) { f() }

// python runs a program with the module, if the machine has it. make proof installs it.
func python(module, from string) func(*testing.T) ([]string, string, []string) {
	return func(t *testing.T) ([]string, string, []string) {
		t.Helper()
		dir, err := os.Getwd()
		require.NoError(t, err)
		if exec.CommandContext(t.Context(), "python3", "-c", "import "+module).Run() == nil {
			return []string{"python3"}, dir, []string{"PYTHONDONTWRITEBYTECODE=1"}
		}
		to := filepath.Join(cache(t), "python")
		env := []string{"PYTHONPATH=" + to, "PYTHONDONTWRITEBYTECODE=1"}
		check := exec.CommandContext(t.Context(), "python3", "-c", "import "+module)
		check.Env = append(os.Environ(), env...)
		if check.Run() != nil {
			install(t, from, exec.CommandContext(t.Context(), "python3", "-m", "pip", "install", "-q", "--target", to, "-r", "requirements.txt"))
		}
		return []string{"python3"}, dir, env
	}
}

// typescript is the same for a program on Node.js. It runs from a folder that has the modules.
func typescript(module string) func(*testing.T) ([]string, string, []string) {
	return func(t *testing.T) ([]string, string, []string) {
		t.Helper()
		proof.Only(t, left) // Node.js takes seconds to begin
		to := cache(t)
		modules := filepath.Join(to, "node_modules")
		if _, err := os.Stat(filepath.Join(modules, module)); err != nil {
			install(t, module, exec.CommandContext(t.Context(), "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts=false", "--no-package-lock", "--prefix", to))
		}
		dir := t.TempDir()
		require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
		files, err := filepath.Glob("*.ts")
		require.NoError(t, err)
		for _, name := range append(files, "package.json") {
			b, err := os.ReadFile(name)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		}
		return []string{"node", "--import", "tsx"}, dir, nil
	}
}

// cache is where make proof keeps the clients between its runs.
func cache(t *testing.T) string {
	t.Helper()
	base, err := os.UserCacheDir()
	require.NoError(t, err)
	dir := filepath.Join(base, "onceq-producers")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	return dir
}

// install gets the clients, or ends the test where it may not, and says so.
func install(t *testing.T, what string, cmd *exec.Cmd) {
	t.Helper()
	proof.Only(t, left)
	if _, err := exec.LookPath(cmd.Args[0]); err != nil {
		t.Skipf("%s: no %s", what, cmd.Args[0])
	}
	if cmd.Args[0] == "npm" {
		b, err := os.ReadFile("package.json")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(cache(t), "package.json"), b, 0o600))
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// The Python program writes what docs/vectors says, letter for letter, where both have the same
// order of members.
func TestMetadata(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "vectors", "metadata.json"))
	require.NoError(t, err)
	var all []struct {
		Name string
		Meta struct{ ID, Type, Key string }
	}
	require.NoError(t, json.Unmarshal(b, &all))
	seen := 0
	for _, v := range all {
		if v.Meta.Key == "" || v.Meta.ID == "" {
			continue
		}
		seen++
		cmd := exec.CommandContext(t.Context(), "python3", "-c", "import sys, sqs_producer; print(sqs_producer.metadata(*sys.argv[1:]), end='')", v.Meta.Key, v.Meta.Type, v.Meta.ID)
		cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		m, err := broker.DecodeMeta(string(out))
		require.NoError(t, err, v.Name)
		require.Equal(t, []string{v.Meta.ID, v.Meta.Type, v.Meta.Key}, []string{m.ID, m.Type, m.Key}, v.Name)
		require.WithinDuration(t, time.Now(), m.Created, time.Minute)
	}
	require.Positive(t, seen)
}
