package gcppubsub_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/rig"
)

// TestFarDelays compares what docs/backend-pubsub.md says of delays with what a worker does.
func TestFarDelays(t *testing.T) {
	inWorld(t, func(w *world) {
		begun := time.Now()
		if err := onceq.Send(w.Context(), w.queue, []broker.Outgoing{
			{Body: []byte("x"), Group: "a", Meta: &broker.Meta{Key: "not before", NotBefore: begun.Add(3 * time.Hour)}},
			{Body: []byte("x"), Group: "b", Meta: &broker.Meta{Key: "retried"}},
		}); err != nil {
			w.Fatal(err)
		}
		at := map[string]time.Duration{}
		p := w.Work(func(_ context.Context, j *onceq.Job) error {
			if j.Key().Key == "retried" && j.Attempt == 1 {
				return onceq.RetryAfter(3*time.Hour, errors.New("not now"))
			}
			w.Mu.Lock()
			defer w.Mu.Unlock()
			at[j.Key().Key] = time.Since(begun)
			return nil
		}, nil)
		w.Until(4*time.Hour, "both done", w.AllDone(2))
		p.Drain()
		if at["not before"] != 3*time.Hour || at["retried"] != 10*time.Minute {
			w.Errorf("they ran after %v", at)
		}
		w.once(2)
	})
}

// movesAwayAfter gives the subscription a dead-letter policy.
func (w *world) movesAwayAfter(deliveries int32) {
	w.Helper()
	must.Get(w.srv.UpdateSubscription(w.Context(), &pubsubpb.UpdateSubscriptionRequest{
		Subscription: &pubsubpb.Subscription{Name: w.sub, DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: w.deadTopic, MaxDeliveryAttempts: deliveries}},
		UpdateMask:   mask("dead_letter_policy"),
	}))
}

// TestPolicyBoundsANotBefore has jobs at this side of the policy's attempts and beyond. The worker
// refuses the latter, so that the policy moves nothing away that nobody has tried.
func TestPolicyBoundsANotBefore(t *testing.T) {
	inWorldOf(t, kinds[0], nil, func(w *world) {
		w.movesAwayAfter(6)
		for key, ahead := range map[string]time.Duration{"near": 25 * time.Minute, "far": 50 * time.Minute} {
			m := broker.Outgoing{Body: []byte("x"), Meta: &broker.Meta{Key: key, NotBefore: time.Now().Add(ahead)}}
			if err := onceq.SendOne(w.Context(), w.queue, &m); err != nil {
				w.Fatal(err)
			}
		}
		p := w.Work(rig.Works(time.Second), nil)
		<-time.After(2 * time.Hour)
		p.Drain()
		if w.Effects["near"] != 1 || w.Effects["far"] != 0 {
			w.Errorf("effects: %v", w.Effects)
		}
		ls, err := w.letters.Receive(w.Context(), broker.ReceiveOptions{Max: 10})
		if err != nil || len(ls) != 1 || ls[0].Meta.Dead == nil || ls[0].Meta.Dead.Class != onceq.ClassTooEarly {
			w.Errorf("the dead-letter subscription has %+v, %v", ls, err)
		}
	})
}

// TestPolicyIsNoBoundWhereMessagesAreCarried: a wait of two hours takes more deliveries than the
// policy allows, so the message is sent anew, and runs once.
func TestPolicyIsNoBoundWhereMessagesAreCarried(t *testing.T) {
	inWorldOf(t, kinds[0], nil, func(w *world) {
		w.movesAwayAfter(5)
		begun := time.Now()
		m := broker.Outgoing{Body: []byte("x"), Meta: &broker.Meta{Key: "far", NotBefore: begun.Add(2 * time.Hour)}}
		if err := onceq.SendOne(w.Context(), w.queue, &m); err != nil {
			w.Fatal(err)
		}
		var at []time.Duration
		p := w.Work(func(context.Context, *onceq.Job) error { at = append(at, time.Since(begun)); return nil }, func(c *rig.Config) { c.Carry = w.queue })
		w.Until(3*time.Hour, "done", w.AllDone(1))
		p.Drain()
		if len(at) != 1 || at[0] < 2*time.Hour || at[0] > 2*time.Hour+time.Minute {
			w.Errorf("it ran after %v, want once after 2h", at)
		}
		w.once(1)
	})
}

// TestPostponedOnPubSub: with three attempts, an error and seven postponements are nine runs with
// the one that ends well, and two attempts. Each part of the job is done once, also where the
// subscription's policy allows five deliveries of a message.
func TestPostponedOnPubSub(t *testing.T) {
	inWorldOf(t, kinds[0], nil, func(w *world) {
		w.movesAwayAfter(5)
		if err := onceq.SendOne(w.Context(), w.queue, &broker.Outgoing{Body: []byte("x"), Meta: &broker.Meta{Key: "A"}}); err != nil {
			w.Fatal(err)
		}
		runs, charges, mails, attempt := 0, 0, 0, 0
		p := w.Work(func(ctx context.Context, j *onceq.Job) error {
			runs++
			attempt = j.Attempt
			_, err := onceq.Step(ctx, j, "charge", func(context.Context) (int, error) { charges++; return 1, nil })
			switch {
			case err != nil:
				return err
			case runs == 3:
				return errors.New("the mailer is away")
			case runs < 9:
				return onceq.Postpone(time.Minute, nil)
			}
			_, err = onceq.Step(ctx, j, "mail", func(context.Context) (int, error) { mails++; return 1, nil })
			return err
		}, func(c *rig.Config) { c.Carry, c.Defaults.MaxAttempts = w.queue, 3 })
		w.Until(3*time.Hour, "done", w.AllDone(1))
		p.Drain()
		if runs != 9 || attempt != 2 || charges != 1 || mails != 1 {
			w.Errorf("%d runs, attempt %d, %d charges, %d mails; want 9, 2, 1, 1", runs, attempt, charges, mails)
		}
	})
}
