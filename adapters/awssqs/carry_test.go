package awssqs_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/proof"
)

// A job that waits for longer than SQS keeps a message runs once, in its time: its message is sent
// anew. It does not matter whether the producer said so, or the handler sleeps.
func TestLongWaitsAreCarried(t *testing.T) {
	for name, c := range map[string]struct {
		due, kept time.Duration
		receives  string
		sleeps    bool
		copies    int // at most
	}{
		"not before 20 days, kept for 4":   {20 * day, 4 * day, "10", false, 20},
		"not before 25 days, 3 receives":   {25 * day, 14 * day, "3", false, 60},
		"asleep for 40 days, 10 receives":  {40 * day, 14 * day, "10", true, 20},
		"asleep for 20 hours, 10 receives": {20 * time.Hour, 4 * day, "10", true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := fake(t, nil)
				client := fakeClient(srv)
				letters := makeQueue(t, client, false, map[string]string{"MessageRetentionPeriod": inSeconds(14 * day)})
				arn := "arn:aws:sqs:us-east-1:000000000000:" + letters[strings.LastIndexByte(letters, '/')+1:]
				url := makeQueue(t, client, false, map[string]string{
					"MessageRetentionPeriod": inSeconds(c.kept),
					"RedrivePolicy":          `{"deadLetterTargetArn":"` + arn + `","maxReceiveCount":"` + c.receives + `"}`,
				})
				o := &awssqs.Options{LongPoll: 20 * time.Second}
				queue, dead := makeBroker(t, client, url, o), makeBroker(t, client, letters, o)
				store, err := memstore.New(nil)
				if err != nil {
					t.Fatal(err)
				}
				var ran []time.Time
				begun, most := 0, 0
				p, err := onceq.NewProcessor(onceq.ProcessorConfig{
					Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
						most = max(most, j.Attempt)
						if begun++; c.sleeps {
							if err := onceq.Sleep(ctx, j, "until it is due", c.due); err != nil {
								return err
							}
						}
						ran = append(ran, time.Now())
						return nil
					}),
					Store: store, Scope: "s", Logger: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, Pollers: 1, Carry: queue})
				if err != nil {
					t.Fatal(err)
				}
				due := time.Now().Add(c.due)
				m := broker.Outgoing{Body: []byte("x"), Meta: &broker.Meta{Key: "A"}}
				if !c.sleeps {
					m.Meta.NotBefore = due
				}
				if err := onceq.SendOne(t.Context(), queue, &m); err != nil {
					t.Fatal(err)
				}
				// A worker each hour is as good as one that polls all the time.
				for time.Until(due) > -time.Hour {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					if err := w.Run(ctx); err != nil {
						t.Fatalf("Run: %v", err)
					}
					cancel()
					<-time.After(time.Hour - time.Minute)
				}
				if len(ran) != 1 || ran[0].Before(due) || ran[0].After(due.Add(2*time.Hour)) {
					t.Errorf("ran at %v, want once at %v", ran, due)
				}
				if begun > 3 || most != 1 {
					t.Errorf("the handler was started %d times, attempt %d at most", begun, most)
				}
				copies := srv.Counts()["SendMessage"] + srv.Counts()["SendMessageBatch"] - 1
				nacks := srv.Counts()["ChangeMessageVisibility"] + srv.Counts()["ChangeMessageVisibilityBatch"]
				if copies > c.copies || nacks > 100 {
					t.Errorf("%d copies and %d nacks, want %d and 100 at most", copies, nacks, c.copies)
				}
				if ms, err := dead.Receive(t.Context(), broker.ReceiveOptions{Max: 10, Wait: -1}); err != nil || len(ms) > 0 {
					t.Errorf("there are letters: %v, %v", ms, err)
				}
			})
		})
	}
}

// TestPostponedOnSQS: with three attempts, an error and seven postponements are nine runs with the
// one that ends well, and two attempts. Each part of the job is done once. The queue moves a
// message away after five receives, so copies follow each other within SQS's five minutes of
// deduplication: none is left out.
func TestPostponedOnSQS(t *testing.T) {
	play := func(t *testing.T, client *sqs.Client) {
		letters := makeQueue(t, client, false, nil)
		arn := "arn:aws:sqs:us-east-1:000000000000:" + letters[strings.LastIndexByte(letters, '/')+1:]
		queue := makeBroker(t, client, makeQueue(t, client, false, map[string]string{
			"RedrivePolicy": `{"deadLetterTargetArn":"` + arn + `","maxReceiveCount":"5"}`,
		}), &awssqs.Options{LongPoll: time.Second}) // LocalStack's receive does not see what becomes visible meanwhile
		store, err := memstore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		runs, charges, mails, attempt := 0, 0, 0, 0
		p, err := onceq.NewProcessor(onceq.ProcessorConfig{
			Store: store, Scope: "s", Logger: slog.New(slog.DiscardHandler),
			Defaults: onceq.JobOptions{MaxAttempts: 3, Backoff: func(int, error) time.Duration { return time.Second }},
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				runs++
				attempt = j.Attempt
				_, err := onceq.Step(ctx, j, "charge", func(context.Context) (int, error) { charges++; return 1, nil })
				switch {
				case err != nil:
					return err
				case runs == 3:
					return errors.New("the mailer is away")
				case runs < 9:
					return onceq.Postpone(time.Second, nil)
				}
				_, err = onceq.Step(ctx, j, "mail", func(context.Context) (int, error) { mails++; return 1, nil })
				time.AfterFunc(2*time.Second, stop)
				return err
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		sent := &counting{Sender: queue}
		w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: makeBroker(t, client, letters, nil), Carry: sent})
		if err != nil {
			t.Fatal(err)
		}
		if err := onceq.SendOne(t.Context(), queue, &broker.Outgoing{Body: []byte("x"), Meta: &broker.Meta{Key: "A"}}); err != nil {
			t.Fatal(err)
		}
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if runs != 9 || charges != 1 || mails != 1 || attempt != 2 || sent.n.Load() < 1 {
			t.Errorf("%d runs, attempt %d, %d charges, %d mails, %d copies; want 9, 2, 1, 1, and a copy", runs, attempt, charges, mails, sent.n.Load())
		}
	}
	t.Run("sqsfake", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { play(t, fakeClient(fake(t, nil))) })
	})
	t.Run("LocalStack", func(t *testing.T) {
		proof.Only(t, "awssqs on LocalStack: a job that is postponed and sent anew")
		play(t, server(t).Client(t))
	})
}

type counting struct {
	broker.Sender
	n atomic.Int32
}

func (c *counting) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	c.n.Add(int32(len(ms)))
	return c.Sender.Send(ctx, ms)
}

// A FIFO queue orders all that it has, so nothing is sent anew there, and the configuration says
// so.
func TestCarryToAFIFOQueue(t *testing.T) {
	client := fakeClient(fake(t, nil))
	fifo := makeBroker(t, client, makeQueue(t, client, true, nil), nil)
	plain, dead := makeBroker(t, client, makeQueue(t, client, false, nil), nil), makeBroker(t, client, makeQueue(t, client, false, nil), nil)
	store, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }), Store: store, Scope: "s"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Worker(plain, onceq.WorkerConfig{DeadLetter: dead, Carry: fifo}); err == nil || !strings.Contains(err.Error(), "WorkerConfig.Carry") || !strings.Contains(err.Error(), "requires a group") {
		t.Errorf("it says %v", err)
	}
}
