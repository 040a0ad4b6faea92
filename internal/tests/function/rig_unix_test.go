//go:build unix

package function_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/internal/testserver/testsqlite"
	"github.com/onceq/onceq/localstack/lambdaruntime"
	"github.com/onceq/onceq/sqsfake"
)

// world is a function on a queue, with a ledger.
type world struct {
	*testing.T
	client     *sqs.Client
	queue, dlq string
	arn        string
	db         *sql.DB
	diary      string
	f          *lambdaruntime.Function
	out        *rig.Log
	stop       func()
}

type setup struct {
	name       string // of the queue
	visibility time.Duration
	handle     bool // Options.Queue
	failWhole  bool
	o          lambdaruntime.Options
	s          lambdaruntime.Source
}

func newWorld(t *testing.T, c setup) *world {
	t.Helper()
	server := sqsfake.Start(t, nil)
	w := &world{T: t, client: sqsClient(server.URL), out: new(rig.Log), diary: filepath.Join(t.TempDir(), "diary")}
	dead, suffix := "dead", ""
	if strings.HasSuffix(c.name, ".fifo") {
		suffix = ".fifo"
	}
	w.queue = w.create(server, c.name, c.visibility)
	w.dlq = w.create(server, dead+suffix, 30*time.Second)
	w.arn = "arn:aws:sqs:us-east-1:000000000000:" + c.name
	file := filepath.Join(t.TempDir(), "ledger.db")
	w.db, _ = testsqlite.Open(t, file, nil)
	// No unique key: a second effect would be there to be seen.
	if _, err := w.db.ExecContext(t.Context(), `CREATE TABLE ledger (n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT, grp TEXT, seq INTEGER, fence INTEGER)`); err != nil {
		t.Fatal(err)
	}
	exe := must.Get(os.Executable())
	c.o.Command = []string{exe}
	c.o.Env = []string{roleEnv + "=function", fileEnv + "=" + file, diaryEnv + "=" + w.diary, endpointEnv + "=" + server.URL, dlqEnv + "=" + w.dlq}
	if c.handle {
		c.o.Env = append(c.o.Env, queueEnv+"="+w.queue)
	}
	if c.failWhole {
		c.o.Env = append(c.o.Env, failWholeEnv+"=1")
	}
	c.o.Output = w.out
	w.f = lambdaruntime.New(t, c.o)
	c.s.Client, c.s.QueueURL, c.s.ARN = w.client, w.queue, w.arn
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var once sync.Once
	w.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	go func() { ended <- w.f.Poll(ctx, c.s) }()
	t.Cleanup(func() {
		w.stop()
		if t.Failed() {
			t.Logf("the function printed:\n%s", w.out.String())
		}
	})
	return w
}

func (w *world) create(s *sqsfake.Server, name string, visibility time.Duration) string {
	w.Helper()
	url, err := s.CreateQueue(name, map[string]string{"VisibilityTimeout": strconv.Itoa(int(visibility / time.Second))})
	if err != nil {
		w.Fatal(err)
	}
	return url
}

// send puts the orders, each under its id as the key.
func (w *world) send(os ...order) {
	w.Helper()
	b := must.Get(awssqs.New(w.client, w.queue, nil))
	ms := make([]broker.Outgoing, len(os))
	for i, o := range os {
		ms[i] = broker.Outgoing{Body: []byte(body(o)), Group: o.Group, Meta: &broker.Meta{Key: o.ID}}
	}
	if err := onceq.Send(w.Context(), b, ms); err != nil {
		w.Fatal(err)
	}
}

// patience is how long a test waits for what must come. It is longer than any queue here hides a
// message whose job is to be tried again: on a busy machine one may have to be.
const patience = 3 * time.Minute

// drained waits until the queue is empty, hidden messages included.
func (w *world) drained() {
	w.Helper()
	w.within("the queue is not empty", func() bool { return w.depth(w.queue) == 0 })
}

func (w *world) within(what string, ok func() bool) {
	w.Helper()
	end := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-end:
			w.Fatalf("after %v: %s", patience, what)
		case <-tick.C:
		}
	}
}

func (w *world) depth(url string) (n int) {
	w.Helper()
	out, err := w.client.GetQueueAttributes(w.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	if err != nil {
		w.Fatal(err)
	}
	for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"} {
		k, _ := strconv.Atoi(out.Attributes[name])
		n += k
	}
	return n
}

// ledger is how often each order has had its effect, and the order of each group's.
func (w *world) ledger() (effects map[string]int, groups map[string][]int) {
	w.Helper()
	effects, groups = map[string]int{}, map[string][]int{}
	rows, err := w.db.QueryContext(w.Context(), `SELECT id, grp, seq FROM ledger ORDER BY n`)
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, group string
		var seq int
		if err := rows.Scan(&id, &group, &seq); err != nil {
			w.Fatal(err)
		}
		effects[id]++
		groups[group] = append(groups[group], seq)
	}
	if err := rows.Err(); err != nil {
		w.Fatal(err)
	}
	return effects, groups
}

// audit checks that each order had one effect, and that the poison is a letter.
func (w *world) audit(os []order) {
	w.Helper()
	effects, _ := w.ledger()
	poison := map[string]bool{}
	for _, o := range os {
		switch n := effects[o.ID]; {
		case o.How == "poison":
			poison[o.ID] = true
			if n != 0 {
				w.Errorf("%s is poison and had %d effects", o.ID, n)
			}
		case n != 1:
			w.Errorf("%s (%s) had %d effects", o.ID, o.How, n)
		}
	}
	if n := w.depth(w.dlq); n < len(poison) {
		w.Errorf("%d letters of %d poisonous orders", n, len(poison))
	}
}

// noted is how many lines of the diary begin so.
func (w *world) noted(what string) int {
	w.Helper()
	text, err := os.ReadFile(w.diary)
	if err != nil && !os.IsNotExist(err) {
		w.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, what) {
			n++
		}
	}
	return n
}
