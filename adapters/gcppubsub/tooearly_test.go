package gcppubsub_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/must"
)

// Where nothing is carried, a job that is due later than a subscription keeps it, or lets it be
// delivered, is not lost: it becomes a dead letter at its first receive. It can be replayed later,
// and runs once then. Pub/Sub delays a nack by ten minutes at most, so a dead-letter policy is used
// up within the hour.
func TestJobsThatOutlastTheSubscription(t *testing.T) {
	for name, c := range map[string]struct {
		due, kept  time.Duration
		deliveries int32
		why        string // of the letter; "" = the job runs
	}{
		"seven days":               {8 * day, 0, 0, "due in 8d, and the queue keeps messages for 7d"},
		"an hour":                  {2 * time.Hour, time.Hour, 0, "due in 2h, and the queue keeps messages for 1h"},
		"within":                   {50 * time.Minute, time.Hour, 0, ""},
		"five deliveries":          {2 * time.Hour, 0, 5, "due in 2h, and the queue moves a message away after 5 receives, each of which delays it by at most 10m"},
		"five deliveries, 15 min":  {15 * time.Minute, 0, 5, ""},
		"five deliveries, one hop": {5 * time.Minute, 0, 5, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inWorldOf(t, kinds[0], func(s *pubsubpb.Subscription) {
				if c.kept > 0 {
					s.MessageRetentionDuration = durationpb.New(c.kept)
				}
			}, func(w *world) {
				if c.deliveries > 0 {
					if _, err := w.srv.UpdateSubscription(w.Context(), &pubsubpb.UpdateSubscriptionRequest{
						Subscription: &pubsubpb.Subscription{Name: w.sub, DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: w.deadTopic, MaxDeliveryAttempts: c.deliveries}},
						UpdateMask:   mask("dead_letter_policy"),
					}); err != nil {
						w.Fatal(err)
					}
				}
				due := time.Now().Add(c.due).UTC()
				m := broker.Outgoing{Body: []byte("x"), Meta: &broker.Meta{Key: "A", NotBefore: due}}
				if err := onceq.SendOne(w.Context(), w.queue, &m); err != nil {
					w.Fatal(err)
				}
				var ran []time.Time
				h := func(context.Context, *onceq.Job) error { ran = append(ran, time.Now()); return nil }
				if c.why != "" {
					p := w.Work(h, nil)
					<-time.After(time.Minute)
					p.Drain()
					q := must.Get(dlq.New(w.letters, &dlq.Options{Name: "dead", Visibility: time.Minute}))
					var text string
					plan, err := q.PlanReplay(w.Context(), dlq.ReplayOptions{To: w.queue, Each: func(s dlq.Step) { text = s.Entry.Message.Meta.Dead.LastErr }})
					if err != nil || len(plan.Letters) != 0 || len(plan.Skipped) != 1 || !strings.Contains(text, c.why) {
						w.Fatalf("a plan at once: %+v, %v; the letter says %q, want %q", plan, err, text, c.why)
					}
					<-time.After(min(2*day, time.Until(due)-9*time.Minute)) // the letters are kept for a week, too
					if report, err := q.Replay(w.Context(), dlq.ReplayOptions{To: w.queue}); err != nil || report.Replayed != 1 {
						w.Fatalf("a replay at %v: %+v, %v", time.Now(), report, err)
					}
				}
				if c.why != "" {
					<-time.After(time.Until(due) - 9*time.Minute)
				}
				p := w.Work(h, nil)
				<-time.After(time.Until(due) + time.Minute)
				p.Drain()
				if len(ran) != 1 || ran[0].Before(due) {
					w.Errorf("ran at %v, want once at %v", ran, due)
				}
			})
		})
	}
}
