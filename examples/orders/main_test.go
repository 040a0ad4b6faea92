package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/sqsfake"
)

// TestMain runs the program itself when the test asks for it, so that it needs no go command.
func TestMain(m *testing.M) {
	if os.Getenv("ONCEQ_ORDERS") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The producer sends an order twice, one that the stock has not enough for, and one without a
// number.
func TestProgram(t *testing.T) {
	pg := localstack.Postgres(t)
	pool, err := pgxpool.New(t.Context(), pg.URL)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), "CREATE TABLE stock (sku text PRIMARY KEY, n integer NOT NULL); INSERT INTO stock VALUES ('bolt', 20)")
	require.NoError(t, err)

	server := sqsfake.Start(t, nil)
	queue, err := server.CreateQueue("orders", nil)
	require.NoError(t, err)
	dead, err := server.CreateQueue("orders-dead", nil)
	require.NoError(t, err)
	client := sqs.New(sqs.Options{BaseEndpoint: &server.URL, Region: "eu-north-1", Credentials: aws.AnonymousCredentials{}})
	for _, body := range []string{
		`{"order_id": "A-1", "sku": "bolt", "pieces": 3}`,
		`{"order_id": "A-1", "sku": "bolt", "pieces": 3}`,
		`{"order_id": "B-2", "sku": "bolt", "pieces": 30}`,
	} {
		_, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &queue, MessageBody: &body})
		require.NoError(t, err)
	}

	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), "ONCEQ_ORDERS=1", "HTTP_ADDR=127.0.0.1:0", "DATABASE_URL="+pg.URL,
		"QUEUE_URL="+queue, "DEAD_LETTER_QUEUE_URL="+dead,
		"AWS_REGION=eu-north-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_ENDPOINT_URL_SQS="+server.URL)
	var out strings.Builder
	cmd.Stderr = &out
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		var done, failed int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE status = 'done'), count(*) FILTER (WHERE status = 'failed')
			FROM onceq_dedupe WHERE key IN ('A-1', 'B-2')`).Scan(&done, &failed)
		return err == nil && done == 1 && failed == 1
	}, time.Minute, 20*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "%s", &out)
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT n FROM stock").Scan(&n))
	require.Equal(t, 17, n)
	require.Contains(t, out.String(), `"class":"permanent"`)
}

// A key is the order's number; a body without one has none.
func TestOrderKey(t *testing.T) {
	key, err := orderKey(&broker.Message{Body: []byte(`{"order_id": "A-1"}`)})
	require.NoError(t, err)
	require.Equal(t, "A-1", key.Key)
	for _, body := range []string{`{}`, `<order/>`} {
		_, err := orderKey(&broker.Message{Body: []byte(body)})
		require.Error(t, err)
	}
}
