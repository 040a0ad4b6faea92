package awssqs_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/fan"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/storetest"
)

// TestFanOnSQS: a parent whose queue moves messages away after 5 receives, and keeps them for 4
// days, waits for 6 days: its message is sent anew in time. Without Carry it becomes a letter
// within seconds, and the replay of that goes on.
func TestFanOnSQS(t *testing.T) {
	const takes = 6 * day
	for _, carried := range []bool{true, false} {
		t.Run(fmt.Sprint("carried: ", carried), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := fake(t, nil)
				client := fakeClient(srv)
				letters := makeQueue(t, client, false, map[string]string{"MessageRetentionPeriod": inSeconds(14 * day)})
				arn := "arn:aws:sqs:us-east-1:000000000000:" + letters[strings.LastIndexByte(letters, '/')+1:]
				o := &awssqs.Options{LongPoll: 20 * time.Second}
				queue, dead := makeBroker(t, client, makeQueue(t, client, false, map[string]string{
					"MessageRetentionPeriod": inSeconds(4 * day),
					"RedrivePolicy":          `{"deadLetterTargetArn":"` + arn + `","maxReceiveCount":"5"}`,
				}), o), makeBroker(t, client, letters, o)
				children := makeBroker(t, client, makeQueue(t, client, false, nil), nil)
				store := must.Get(memstore.New(nil))
				looks, done, isDone := 0, 0, func() {}
				p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
					Store: store, Scope: "parents", Logger: slog.New(slog.DiscardHandler),
					Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
						looks++
						err := fan.Out(ctx, j, store, "parts", fan.Children{To: children, Scope: "children", N: 3, Message: func(i int) (broker.Outgoing, error) {
							return onceq.Message("", "", []byte{'a' + byte(i)}), nil
						}})
						if err == nil {
							done++
							isDone()
						}
						return err
					}),
				}))
				c := onceq.WorkerConfig{DeadLetter: dead, Pollers: 1}
				if carried {
					c.Carry = queue
				}
				w := must.Get(p.Worker(queue, c))
				runs := func(d time.Duration) {
					ctx, cancel := context.WithTimeout(t.Context(), d)
					defer cancel()
					if err := w.Run(ctx); err != nil {
						t.Fatalf("Run: %v", err)
					}
				}
				if err := onceq.SendOne(t.Context(), queue, &broker.Outgoing{Body: []byte("x"), Meta: &broker.Meta{Key: "P"}}); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				runs(10 * time.Minute)
				ms, err := dead.Receive(t.Context(), broker.ReceiveOptions{Max: 10, Wait: -1})
				if err != nil || (len(ms) == 0) != carried {
					t.Fatalf("%d letters, %v", len(ms), err)
				}
				if !carried {
					if dead := ms[0].Meta.Dead; dead.Class != onceq.ClassTooEarly || !strings.Contains(dead.LastErr, "after 5 receives") {
						t.Errorf("the letter says %s: %s", dead.Class, dead.LastErr)
					}
					end(t, store, 3)
					if _, err := queue.Send(t.Context(), []broker.Outgoing{{Body: ms[0].Body, Attributes: ms[0].Attributes, Meta: ms[0].Meta}}); err != nil {
						t.Fatal(err)
					}
					runs(time.Minute)
				}
				if carried { // a worker that stops with a poll under way uses up receives, so it goes on
					ctx, cancel := context.WithTimeout(t.Context(), takes+day)
					isDone = cancel
					time.AfterFunc(takes-time.Since(began), func() { end(t, store, 3) })
					if err := w.Run(ctx); err != nil {
						t.Fatalf("Run: %v", err)
					}
					cancel()
				}
				copies := srv.Counts()["SendMessage"] + srv.Counts()["SendMessageBatch"] - 2
				if carried {
					t.Logf("done after %v, %d looks, %d copies", time.Since(began), looks, copies)
				}
				if took := time.Since(began); done != 1 || took > takes+11*time.Hour || looks > 150 || copies > 80 {
					t.Errorf("done %d times after %v, %d looks, %d copies", done, took, looks, copies)
				}
			})
		})
	}
}

// end lets the children be done, as their worker does.
func end(t *testing.T, store dedupe.Store, n int) {
	t.Helper()
	for i := range n {
		k := dedupe.Key{Scope: "children", Key: fan.Key(dedupe.Key{Scope: "parents", Key: "P"}, "parts", i)}
		q := dedupe.ClaimRequest{Key: k, Token: storetest.Token(), TTL: time.Minute}
		if _, err := store.Claim(t.Context(), []dedupe.ClaimRequest{q}); err != nil {
			t.Fatal(err)
		}
		_, _ = store.Settle(t.Context(), []dedupe.Settlement{{Key: k, Token: q.Token, To: dedupe.Done}})
	}
}
