package awssqs_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/rig"
)

// documented are the JSON blocks of the package's documentation that begin so.
func documented(t *testing.T, begin string) (blocks []string) {
	t.Helper()
	text := must.Get(os.ReadFile("doc.go"))
	var block []string
	for line := range strings.SplitSeq(string(text), "\n") {
		code, ok := strings.CutPrefix(line, "//\t")
		switch {
		case ok && (len(block) > 0 || strings.HasPrefix(code, begin)):
			block = append(block, code)
		case len(block) > 0:
			blocks = append(blocks, strings.Join(block, "\n"))
			block = nil
		}
	}
	return blocks
}

// ofQueue tells a queue's policy from an identity's.
func ofQueue(policy string) bool { return strings.Contains(policy, `"Principal"`) }

// The documented policies are what a worker, a producer and an operator need: each call that they
// make is allowed, and nothing is that nobody makes.
func TestDocumentedPolicies(t *testing.T) {
	blocks := slices.DeleteFunc(documented(t, `{"Version"`), ofQueue)
	if len(blocks) != 3 {
		t.Fatalf("%d policies, want a worker's, a producer's and an operator's", len(blocks))
	}
	allowed := make([][]string, 3) // "orders sqs:SendMessage"
	for i, b := range blocks {
		var policy struct {
			Statement []struct {
				Effect, Resource string
				Action           []string
			}
		}
		if err := json.Unmarshal([]byte(b), &policy); err != nil {
			t.Fatalf("policy %d: %v\n%s", i+1, err, b)
		}
		for _, s := range policy.Statement {
			for _, a := range s.Action {
				allowed[i] = append(allowed[i], s.Resource[strings.LastIndexByte(s.Resource, ':')+1:]+" "+a)
			}
		}
		slices.Sort(allowed[i])
	}
	inWorld(t, false, func(w *world) {
		client, names := fakeClient(w.srv), []string{"orders", "orders-dead"}
		for _, name := range names {
			if _, err := w.srv.CreateQueue(name, nil); err != nil {
				w.Fatal(err)
			}
		}
		find := func() (orders, letters *awssqs.Broker) {
			return open(w.Context(), client, names[0], nil), open(w.Context(), client, names[1], nil)
		}
		needed := func(i int, who string, extra ...string) {
			w.Helper()
			asked := slices.Clone(extra)
			for _, r := range w.srv.Requests() {
				if strings.Contains(r.Action, "MessageMoveTask") { // they name an ARN, or a handle
					r.Queue = names[1]
				}
				asked = append(asked, r.Queue+" sqs:"+strings.TrimSuffix(r.Action, "Batch"))
			}
			w.srv.ResetLog()
			slices.Sort(asked)
			if asked = slices.Compact(asked); !slices.Equal(asked, allowed[i]) {
				w.Errorf("%s asks for\n%q\nand its policy allows\n%q", who, asked, allowed[i])
			}
		}
		point := func(url string) {
			w.Helper()
			arn := w.attributes(url)["QueueArn"]
			if _, err := client.SetQueueAttributes(w.Context(), redriveTo(arn)); err != nil {
				w.Fatal(err)
			}
			w.srv.ResetLog()
		}

		_, letters := find()
		point(letters.URL())

		orders := open(w.Context(), client, names[0], nil)
		if err := onceq.Send(w.Context(), orders, []broker.Outgoing{
			{Body: []byte("good"), Meta: &broker.Meta{Key: "good"}}, {Body: []byte("bad"), Meta: &broker.Meta{Key: "bad"}},
		}); err != nil {
			w.Fatal(err)
		}
		needed(1, "a producer")

		orders, letters = find()
		w.letter, w.queue = letters, orders
		if _, _, err := orders.Check(w.Context(), awssqs.CheckOptions{}); err != nil {
			w.Fatal(err)
		}
		p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
			Store: w.Store, Scope: "orders",
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				if j.Key().Key == "bad" {
					return onceq.Permanent(errors.New("bad"))
				}
				return rig.Busy(ctx, time.Minute)
			}),
		}))
		worker := must.Get(p.Worker(orders, onceq.WorkerConfig{DeadLetter: letters}))
		ctx, stop := context.WithTimeout(w.Context(), 2*time.Minute)
		defer stop()
		if err := worker.Run(ctx); err != nil {
			w.Fatal(err)
		}
		needed(0, "a worker")

		orders, letters = find()
		q := must.Get(dlq.New(letters, nil))
		for _, err := range q.List(w.Context(), dlq.Filter{}) {
			if err != nil {
				w.Error(err)
			}
		}
		if r, err := q.Replay(w.Context(), dlq.ReplayOptions{To: orders}); err != nil || r.Replayed != 1 {
			w.Errorf("replay: %v, %v", r, err)
		}
		if _, err := q.Purge(w.Context(), dlq.PurgeOptions{Filter: dlq.Filter{Class: "none"}, Export: dlq.ExportJSON(io.Discard)}); err != nil {
			w.Error(err)
		}
		if _, err := letters.Depth(w.Context()); err != nil {
			w.Error(err)
		}
		if _, err := letters.StartRedrive(w.Context(), nil); err != nil {
			w.Error(err)
		}
		if _, err := letters.RedriveTasks(w.Context()); err != nil {
			w.Error(err)
		}
		_, _ = letters.CancelRedrive(w.Context(), "over")
		needed(2, "an operator")
	})
}

// redriveTo points the queue orders at its dead-letter queue.
func redriveTo(arn string) *sqs.SetQueueAttributesInput {
	return &sqs.SetQueueAttributesInput{
		QueueUrl:   new("http://sqsfake.test/000000000000/orders"),
		Attributes: map[string]string{"RedrivePolicy": `{"deadLetterTargetArn": "` + arn + `", "maxReceiveCount": 40}`},
	}
}

// The documented settings are such that Check has nothing to say.
func TestDocumentedSettings(t *testing.T) {
	blocks := documented(t, "aws sqs create-queue")
	if len(blocks) != 1 {
		t.Fatalf("%d blocks of settings", len(blocks))
	}
	s := fake(t, nil)
	for _, c := range strings.Split(blocks[0], "aws sqs create-queue --queue-name ")[1:] {
		name, rest, _ := strings.Cut(c, " --attributes '")
		text, _, closed := strings.Cut(rest, "'")
		text = strings.NewReplacer("REGION", region, "ACCOUNT", "000000000000").Replace(text)
		var as map[string]string
		if err := json.Unmarshal([]byte(text), &as); err != nil || !closed {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		if _, err := s.CreateQueue(name, as); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	orders := open(t.Context(), fakeClient(s), "orders", nil)
	set, problems, err := orders.Check(t.Context(), awssqs.CheckOptions{MaxAttempts: onceq.DefaultMaxAttempts, Retention: onceq.DefaultRetention})
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %q", err, problems)
	}
	if set.Retention != 4*24*time.Hour || set.DeadLetterRetention != 14*24*time.Hour || set.MaxReceives != 40 {
		t.Errorf("%+v", set)
	}
}
