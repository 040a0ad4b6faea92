//go:build unix

package function_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/localstack/lambdaruntime"
)

// starts is how many processes of each function are started. Before them come others that are not
// measured: each kind of request makes DynamoDB Local, a Java program, compile what answers it, and
// the two functions' requests are of different kinds.
const starts, warmUps = 30, 100

// BenchmarkColdStart compares functions on onceq and by hand: the size of the binaries, and the
// times from the start of a process to its first request and to the answer to its first record, by
// the medians of starts that take turns. The first is the program's own; the second holds the two
// writes of both.
func BenchmarkColdStart(b *testing.B) {
	db := localstack.DynamoDB(b)
	table := db.TableName(b, "records")
	store := must.Get(dynamostore.New(db.Client(b), table, nil))
	if err := store.CreateTable(b.Context()); err != nil {
		b.Fatal(err)
	}
	var first atomic.Int64 // request of a process, in ns since the Unix epoch
	target := must.Get(url.Parse(db.URL))
	pass := httputil.NewSingleHostReverseProxy(target)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first.CompareAndSwap(0, time.Now().UnixNano())
		pass.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	env := []string{
		"AWS_REGION=" + db.Region, "AWS_ACCESS_KEY_ID=" + db.Credentials.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + db.Credentials.SecretAccessKey,
		"AWS_ENDPOINT_URL_DYNAMODB=" + proxy.URL, "RECORDS_TABLE=" + table,
	}
	names := []string{"onceq", "raw"}
	binaries, sizes := map[string]string{}, map[string]int64{}
	for _, name := range names {
		binaries[name], sizes[name] = build(b, name)
	}
	for range warmUps {
		for _, name := range names {
			coldStart(b, binaries[name], env)
		}
	}
	asked, took := map[string][]time.Duration{}, map[string][]time.Duration{}
	for n := range b.N * starts {
		for i := range names {
			name := names[(n+i)%len(names)] // nobody is always first
			first.Store(0)
			begin := time.Now()
			took[name] = append(took[name], coldStart(b, binaries[name], env))
			asked[name] = append(asked[name], time.Duration(first.Load()-begin.UnixNano()))
		}
	}
	for _, name := range names {
		b.Logf("%-6s %5.1f MB, first request after %v, first answer after %v", name, float64(sizes[name])/1e6, median(asked[name]), median(took[name]))
		b.ReportMetric(float64(median(took[name]))/1e6, name+"-ms")
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(sizes["onceq"])/float64(sizes["raw"]), "size-ratio")
	b.ReportMetric(float64(median(asked["onceq"]))/float64(median(asked["raw"])), "start-ratio")
	b.ReportMetric(float64(median(took["onceq"]))/float64(median(took["raw"])), "answer-ratio")
}

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}

// build builds a function as one is deployed.
func build(b *testing.B, name string) (binary string, size int64) {
	b.Helper()
	binary = filepath.Join(b.TempDir(), name)
	c := exec.CommandContext(b.Context(), "go", "build", "-tags", "lambda.norpc", "-trimpath", "-ldflags", "-s -w", "-o", binary, "./coldstart/"+name)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := c.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, text)
	}
	info, err := os.Stat(binary)
	if err != nil {
		b.Fatal(err)
	}
	return binary, info.Size()
}

// coldStart is the time from the start of a process to the answer to its first record.
func coldStart(b *testing.B, binary string, env []string) time.Duration {
	b.Helper()
	f := lambdaruntime.New(b, lambdaruntime.Options{Command: []string{binary}, Env: env, Timeout: time.Minute})
	id := rand.Text()
	payload := must.Get(json.Marshal(events.SQSEvent{Records: []events.SQSMessage{{
		MessageId: id, Body: fmt.Sprintf(`{"ID":%q}`, id), EventSource: "aws:sqs", EventSourceARN: "arn:aws:sqs:us-east-1:000000000000:orders",
	}}}))
	begin := time.Now()
	res := f.Invoke(b.Context(), payload)
	took := time.Since(begin)
	if res.Err != nil || string(res.Payload) != `{"batchItemFailures":[]}` {
		b.Fatalf("the first record ended in %s, %v", res.Payload, res.Err)
	}
	f.Close()
	return took
}
