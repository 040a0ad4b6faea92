//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/localstack/lambdaruntime"
	"github.com/onceq/onceq/sqsfake"
)

// The binary as it is deployed, behind a runtime API, with a queue and DynamoDB: payments come
// twice, functions are killed in the middle, and each payment is booked once.
func TestFunction(t *testing.T) {
	db := localstack.DynamoDB(t)
	start := time.Now()
	binary := filepath.Join(t.TempDir(), "bootstrap")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "lambda.norpc", "-o", binary, ".")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
	t.Logf("built in %v", time.Since(start).Round(time.Millisecond))

	server := sqsfake.Start(t, nil)
	queue, err := server.CreateQueue("payments", map[string]string{"VisibilityTimeout": "5"})
	require.NoError(t, err)
	dead, err := server.CreateQueue("payments-dead", nil)
	require.NoError(t, err)

	tables := db.Client(t)
	records, book := db.TableName(t, "records"), db.TableName(t, "books")
	store, err := dynamostore.New(tables, records, nil)
	require.NoError(t, err)
	require.NoError(t, store.CreateTable(t.Context()))
	_, err = tables.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &book, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: new("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: new("id"), KeyType: types.KeyTypeHash}},
	})
	require.NoError(t, err)

	env := map[string]string{
		"QUEUE_URL": queue, "DEAD_LETTER_QUEUE_URL": dead, "RECORDS_TABLE": records, "BOOKS_TABLE": book,
		"AWS_ENDPOINT_URL_SQS": server.URL, "AWS_ENDPOINT_URL_DYNAMODB": db.URL, "AWS_REGION": db.Region,
		"AWS_ACCESS_KEY_ID": db.Credentials.AccessKeyID, "AWS_SECRET_ACCESS_KEY": db.Credentials.SecretAccessKey, "AWS_SESSION_TOKEN": db.Credentials.SessionToken,
	}
	var list []string
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	f := lambdaruntime.New(t, lambdaruntime.Options{Command: []string{binary}, Env: list, Timeout: 3 * time.Second, Sandboxes: 2, Output: output(t)})

	began := time.Now()
	client := sqs.New(sqs.Options{Region: "us-east-1", Credentials: credentials(func(string) string { return "test" }), BaseEndpoint: &server.URL})
	want := send(t, client, queue)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	killed := make(chan int)
	var once sync.Once
	source := lambdaruntime.Source{
		Client: client, QueueURL: queue, ARN: "arn:aws:sqs:us-east-1:000000000000:payments", Concurrency: 2,
		Answered: func(events.SQSEvent, lambdaruntime.Result, int) { once.Do(func() { close(killed) }) },
	}
	go func() { ended <- f.Poll(ctx, source) }()
	<-killed // the first has answered: from now on they are killed
	for kills := 0; kills < 2 && depth(t, client, queue) > 0; {
		if f.Kill() {
			kills++
		}
		<-time.After(50 * time.Millisecond)
	}
	for end := time.After(60 * time.Second); depth(t, client, queue) > 0; {
		select {
		case <-end:
			t.Fatal("the queue is not empty")
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Logf("drained after %v", time.Since(began).Round(time.Millisecond))
	stop()
	require.NoError(t, <-ended)

	got := map[string]int{}
	out, err := tables.Scan(t.Context(), &dynamodb.ScanInput{TableName: &book, ConsistentRead: new(true)})
	require.NoError(t, err)
	lines := 0
	for _, item := range out.Items {
		id := item["id"].(*types.AttributeValueMemberS).Value
		if account, ok := strings.CutPrefix(id, "account#"); ok {
			var cents int
			_, err := fmt.Sscan(item["balance"].(*types.AttributeValueMemberN).Value, &cents)
			require.NoError(t, err)
			got[account] = cents
			continue
		}
		lines++
	}
	require.Equal(t, want, got, "the balances")
	require.Equal(t, payments, lines, "the lines of the ledger")
	// Who is killed decides which of the two keys of one payment books it. If it is the second,
	// both messages of the first key are letters.
	keys := letters(t, client, dead)
	require.True(t, slices.Equal(keys, []string{"another", "nothing"}) || slices.Equal(keys, []string{"nothing", "p-00"}),
		"want the letters of a payment of nothing, and of one that another job has booked: %q", keys)
	t.Logf("%+v", f.Stats)
}

const payments = 40

// send puts the payments, each twice, one that cannot be, and one under a second key; it answers
// what the accounts must come to.
func send(t *testing.T, client *sqs.Client, queue string) map[string]int {
	t.Helper()
	b, err := awssqs.New(client, queue, nil)
	require.NoError(t, err)
	want := map[string]int{}
	var ms []broker.Outgoing
	put := func(key string, p payment) {
		text, err := json.Marshal(p)
		require.NoError(t, err)
		ms = append(ms, broker.Outgoing{Body: text, Meta: &broker.Meta{Key: key}})
	}
	for i := range payments {
		p := payment{ID: fmt.Sprintf("p-%02d", i), Account: fmt.Sprintf("a-%d", i%3), Cents: int64(100 + i)}
		want[p.Account] += int(p.Cents)
		put(p.ID, p)
		put(p.ID, p)
	}
	put("nothing", payment{ID: "nothing", Account: "a-0"})
	require.NoError(t, onceq.Send(t.Context(), b, ms))
	second := []broker.Outgoing{{Body: ms[0].Body, Meta: &broker.Meta{Key: "another"}}}
	require.NoError(t, onceq.Send(t.Context(), b, second))
	return want
}

// letters are the keys of the letters in a dead-letter queue, in order, each once.
func letters(t *testing.T, client *sqs.Client, queue string) []string {
	t.Helper()
	b, err := awssqs.New(client, queue, nil)
	require.NoError(t, err)
	keys := map[string]bool{}
	for range depth(t, client, queue) {
		ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: time.Second})
		require.NoError(t, err)
		require.Len(t, ms, 1)
		keys[ms[0].Meta.Key] = true
	}
	return slices.Sorted(maps.Keys(keys))
}

func depth(t *testing.T, client *sqs.Client, queue string) (n int) {
	t.Helper()
	out, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &queue, AttributeNames: []sqstypes.QueueAttributeName{"All"}})
	require.NoError(t, err)
	for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"} {
		var k int
		_, err := fmt.Sscan(out.Attributes[name], &k)
		require.NoError(t, err)
		n += k
	}
	return n
}

// output is a file for what the functions print, which a test that fails shows.
func output(t *testing.T) io.Writer {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "output"))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = f.Close()
		if text, err := os.ReadFile(f.Name()); err == nil && t.Failed() {
			t.Logf("the functions printed:\n%s", text)
		}
	})
	return f
}

// A function that is not set up does not start, and says why.
func TestSettings(t *testing.T) {
	good := map[string]string{
		"AWS_REGION": "us-east-1", "RECORDS_TABLE": "records", "BOOKS_TABLE": "books",
		"QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/1/q", "DEAD_LETTER_QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/1/d",
	}
	_, err := function(func(k string) string { return good[k] })
	require.NoError(t, err)
	for _, name := range []string{"RECORDS_TABLE", "BOOKS_TABLE", "QUEUE_URL", "DEAD_LETTER_QUEUE_URL"} {
		env := maps.Clone(good)
		delete(env, name)
		_, err := function(func(k string) string { return env[k] })
		require.ErrorContains(t, err, name)
	}
	good["LOG_LEVEL"] = "loud"
	_, err = function(func(k string) string { return good[k] })
	require.ErrorContains(t, err, "LOG_LEVEL")
}

// What the template promises is what the function needs.
func TestTemplate(t *testing.T) {
	text, err := os.ReadFile("template.yaml")
	require.NoError(t, err)
	for _, line := range []string{
		"FunctionResponseTypes: [ReportBatchItemFailures]", "VisibilityTimeout: 360 ", "Timeout: 60 ", "maxReceiveCount: 40",
		"AttributeName: expires_at, Enabled: true", "MaximumConcurrency", "sqs:ChangeMessageVisibility",
		"QUEUE_URL: !Ref Queue", "DEAD_LETTER_QUEUE_URL: !Ref DeadLetters", "RECORDS_TABLE: !Ref Records", "BOOKS_TABLE: !Ref Books",
	} {
		require.Contains(t, string(text), line)
	}
}
