package awssqs_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/ahead"
	"github.com/onceq/onceq/internal/must"
)

const day = 24 * time.Hour

// Where nothing is carried, a job that is due later than SQS keeps it, or lets it be received, is
// not lost: it becomes a dead
// letter at its first receive, which says why, and from when on it can be sent. Replayed then, it
// runs once.
func TestJobsThatOutlastTheQueue(t *testing.T) {
	for name, c := range map[string]struct {
		due      time.Duration
		kept     time.Duration
		receives string
		fifo     bool
		why      string // of the letter; "" = the job runs
	}{
		"retention of 4 days":        {5 * day, 0, "", false, "due in 5d, and the queue keeps messages for 4d"},
		"retention of 14 days":       {15 * day, 14 * day, "", false, "due in 15d, and the queue keeps messages for 14d"},
		"at the head of a group":     {5 * day, 0, "", true, "due in 5d"},
		"five receives":              {3 * day, 0, "5", false, "due in 3d, and the queue moves a message away after 5 receives, each of which delays it by at most 11h59m"},
		"five receives, and 2 hours": {2 * time.Hour, 0, "5", false, ""},
		"3 days":                     {3 * day, 0, "", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := fake(t, nil)
				client := fakeClient(srv)
				long := map[string]string{"MessageRetentionPeriod": inSeconds(14 * day)}
				letters := makeQueue(t, client, c.fifo, long)
				attributes := map[string]string{}
				if c.kept > 0 {
					attributes["MessageRetentionPeriod"] = inSeconds(c.kept)
				}
				if c.receives != "" {
					arn := "arn:aws:sqs:us-east-1:000000000000:" + letters[strings.LastIndexByte(letters, '/')+1:]
					attributes["RedrivePolicy"] = `{"deadLetterTargetArn":"` + arn + `","maxReceiveCount":"` + c.receives + `"}`
				}
				url := makeQueue(t, client, c.fifo, attributes)
				o := &awssqs.Options{LongPoll: 20 * time.Second}
				queue, dead := makeBroker(t, client, url, o), makeBroker(t, client, letters, o)
				store := must.Get(memstore.New(nil))
				var ran []time.Time
				var log bytes.Buffer
				p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
					Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { ran = append(ran, time.Now()); return nil }),
					Store:   store, Scope: "s", Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})),
				}))
				w := must.Get(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, Pollers: 1}))
				run := func(d time.Duration) {
					t.Helper()
					ctx, cancel := context.WithTimeout(t.Context(), d)
					defer cancel()
					if err := w.Run(ctx); err != nil {
						t.Fatalf("Run: %v", err)
					}
				}
				runUntil := func(due time.Time) { // a worker each six hours is as good as one that polls all the time
					t.Helper()
					for time.Until(due) > 0 {
						run(time.Minute)
						<-time.After(min(6*time.Hour, time.Until(due)-time.Minute/2))
					}
					run(time.Minute)
				}
				due := time.Now().Add(c.due).UTC()
				m := broker.Outgoing{Body: []byte("x"), Meta: &broker.Meta{Key: "A", NotBefore: due}}
				if c.fifo {
					m.Group = "g"
				}
				if err := onceq.SendOne(t.Context(), queue, &m); err != nil {
					t.Fatal(err)
				}
				if c.why == "" {
					runUntil(due)
					wantOne(t, ran, due)
					return
				}
				run(time.Minute)
				q := must.Get(dlq.New(dead, &dlq.Options{Visibility: time.Minute}))
				policy, err := queue.Redrive(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				from := ahead.Queue{Keeps: policy.Retention, Receives: policy.MaxReceives, Hop: queue.Limits().MaxNack}.From(due)
				sentence := c.why
				if got := log.String(); !strings.Contains(got, sentence) || !strings.Contains(got, "due later than their queue can keep them") {
					t.Errorf("the log has not %q: %s", sentence, got)
				}
				var text, why string
				report, err := q.Replay(t.Context(), dlq.ReplayOptions{To: queue, Each: func(e dlq.Step) {
					text, why = e.Entry.Message.Meta.Dead.Class+" "+e.Entry.Message.Meta.Dead.LastErr, e.Reason
				}})
				if err != nil || len(report.Skipped) != 1 || report.Replayed != 0 {
					t.Fatalf("a replay at once: %+v, %v", report, err)
				}
				if !strings.Contains(text, onceq.ClassTooEarly+" onceq: the job is "+sentence) || !strings.Contains(text, from.Format(time.RFC3339)) {
					t.Errorf("the letter says %q, want %q, %v", text, sentence, from.Format(time.RFC3339))
				}
				if !strings.Contains(why, "keeps messages for") && !strings.Contains(why, "moves a message away") || !strings.Contains(why, "replay it from "+from.Format(time.RFC3339)) {
					t.Errorf("the replay says %q, want %v", why, from.Format(time.RFC3339))
				}
				<-time.After(time.Until(from) + time.Second)
				if report, err := q.Replay(t.Context(), dlq.ReplayOptions{To: queue}); err != nil || report.Replayed != 1 {
					t.Fatalf("a replay at %v: %+v, %v", time.Now(), report, err)
				}
				runUntil(due)
				wantOne(t, ran, due)
			})
		})
	}
}

func wantOne(t *testing.T, ran []time.Time, due time.Time) {
	t.Helper()
	if len(ran) != 1 || ran[0].Before(due) || ran[0].After(due.Add(time.Minute)) {
		t.Errorf("ran at %v, want once at %v", ran, due)
	}
}
