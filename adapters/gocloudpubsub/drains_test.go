package gocloudpubsub_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/awssnssqs"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/adapters/gocloudpubsub/internal/gocloudtest"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

// Two workers on SQS are drained and opened again every few seconds, half of the jobs are there
// twice, and a tenth fails once. Each job has its effect once, and none is lost. What gocloud
// receives while a Broker closes stays hidden for the queue's timeout, so the last jobs are late:
// the log has how late.
func TestManyDrains(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		const n, took = 800, 80 * time.Millisecond
		c := testaws.FakeClient(testaws.FakeSQS(t, nil))
		url := testaws.MakeQueue(t, c, false, map[string]string{string(types.QueueAttributeNameVisibilityTimeout): "30"})
		depth := func() string {
			out, err := c.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"All"}})
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(out.Attributes["ApproximateNumberOfMessages"], " visible, ", out.Attributes["ApproximateNumberOfMessagesNotVisible"], " hidden")
		}
		js := newJobs(t, took)
		failed := map[string]time.Time{}
		js.before = func(_ context.Context, k string, _ int) error {
			i, _ := strconv.Atoi(k)
			js.Mu.Lock()
			defer js.Mu.Unlock()
			if _, before := failed[k]; i%10 == 0 && !before {
				failed[k] = time.Now()
				return onceq.RetryAfter(50*time.Millisecond, errors.New("not yet"))
			}
			return nil
		}
		so := &awssnssqs.SubscriptionOptions{WaitTime: time.Second}
		open := func() *gocloudpubsub.Broker {
			sub := func() *pubsub.Subscription {
				return awssnssqs.OpenSubscription(t.Context(), c, url, so)
			}
			return makeBroker(t, awssnssqs.OpenSQSTopic(t.Context(), c, url, nil), sub(), gocloudpubsub.Options{
				Queue: url, Visibility: 30 * time.Second,
				Reopen: func(context.Context) (*pubsub.Subscription, error) { return sub(), nil },
			})
		}
		first := open()
		for at := 0; at < n; at += 10 {
			var ms []broker.Outgoing
			for i := at; i < at+10; i++ {
				for range 1 + i%2 {
					ms = append(ms, broker.Outgoing{Body: []byte("b"), Meta: &broker.Meta{Key: strconv.Itoa(i)}})
				}
			}
			for len(ms) > 0 {
				k := min(10, len(ms))
				if err := onceq.Send(t.Context(), first, ms[:k]); err != nil {
					t.Fatal(err)
				}
				ms = ms[k:]
			}
		}
		_ = first.Close()
		began := time.Now()
		for round := 0; js.done() < n && round < 100; round++ {
			var stops []func()
			var bs []*gocloudpubsub.Broker
			for range 2 {
				b := open()
				bs = append(bs, b)
				stops = append(stops, js.work(b, 8, 0))
			}
			<-time.After(4 * time.Second)
			left := depth()
			for _, s := range stops {
				s()
			}
			drained := depth()
			returned := int64(0)
			for _, b := range bs {
				_ = b.Close()
				returned += b.Stats().Returned
			}
			t.Logf("round %d at %v: %d done; before the drain %s; after %s; closed %s; %d returned", round, time.Since(began), js.done(), left, drained, depth(), returned)
			waits := 0
			js.Mu.Lock()
			for k := range failed {
				if js.Effects[k] == 0 {
					waits++
				}
			}
			js.Mu.Unlock()
			t.Logf("   %d failed ones are not done", waits)
		}
		js.Once(n)
		t.Logf("all are done after %v", time.Since(began))
	})
}
