package awssqs_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/broker/brokertest"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/internal/testserver"
	"github.com/onceq/onceq/internal/testserver/testaws"
	"github.com/onceq/onceq/sqsfake"
)

// TestConformanceServer checks the driver on LocalStack, in real time. Where there is none but
// sqsfake, the test below has said it all. The run's seed draws which kind of queue has which
// transport; make proof plays all four.
func TestConformanceServer(t *testing.T) {
	server(t)
	drawn := proof.Seed(t) % 2
	if !proof.Asked() {
		proof.Leave(t, "awssqs on LocalStack: each kind of queue over the other transport")
	}
	for _, c := range []struct {
		name string
		fifo bool
		over awssqs.Transport
		draw uint64
	}{
		{"standard", false, awssqs.TransportSDK, 0},
		{"standard-lean", false, awssqs.TransportLean, 1},
		{"fifo", true, awssqs.TransportSDK, 1},
		{"fifo-lean", true, awssqs.TransportLean, 0},
	} {
		if c.draw != drawn && !proof.Asked() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // they wait for timeouts
			h := harness(c.fifo, c.over, func(t testing.TB) *sqs.Client { return server(t).Client(t) })
			h.Visibility = 6 * time.Second // a busy LocalStack looks for lapsed timeouts every few seconds
			brokertest.Run(t, h)
		})
	}
}

// server is the one that the harness finds, if it is another than the strict one.
func server(t testing.TB) *testaws.SQS {
	t.Helper()
	s := testaws.NewSQS(t)
	if s.Kind == "sqsfake" {
		t.Skip("the other tests are run on sqsfake")
	}
	return s
}

// TestMain lets more tests wait at a time than there are processors: in real time they wait for
// timeouts.
func TestMain(m *testing.M) {
	if err := testserver.Together(64); err != nil {
		panic(err)
	}
	m.Run()
}

// TestConformance checks the driver on the strict server, in virtual time, with both habits that
// AWS has.
func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name  string
		fifo  bool
		stale sqsfake.StaleHandles
		over  awssqs.Transport
		// throttled is how, by entries with a code or by whole calls.
		throttled sqsfake.Fault
	}{
		{"standard", false, sqsfake.StaleWork, awssqs.TransportSDK, sqsfake.Fault{Code: "RequestThrottled"}},
		{"standard-lean", false, sqsfake.StaleWork, awssqs.TransportLean, sqsfake.Fault{Code: "ThrottlingException", Entries: everyEntry}},
		{"standard-void", false, sqsfake.StaleIgnored, awssqs.TransportSDK, sqsfake.Fault{Code: "RequestThrottled", Entries: everyEntry}},
		{"fifo", true, sqsfake.StaleRandom, awssqs.TransportSDK, sqsfake.Fault{Code: "ThrottlingException", Entries: everyEntry}},
		{"fifo-lean", true, sqsfake.StaleRandom, awssqs.TransportLean, sqsfake.Fault{Code: "ThrottlingException"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := sqsfake.Options{StaleHandles: c.stale}
			h := harness(c.fifo, c.over, func(t testing.TB) *sqs.Client { return fakeClient(fake(t, &o)) })
			h.Open = func(t testing.TB, asked brokertest.QueueOptions) brokertest.Queue {
				s := fake(t, &o)
				q := openQueue(t, fakeClient(s), c.fifo, c.over, asked)
				q.Throttle = throttle(s, c.throttled)
				return q
			}
			h.Virtual = true
			// SQS counts in whole seconds, and what is asked for is rounded up.
			h.Slack = time.Second + time.Millisecond
			h.StaleReceiptsVoid = c.stale != sqsfake.StaleWork
			brokertest.Run(t, h)
		})
	}
}

// everyEntry are the places of a full batch.
var everyEntry = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}

// throttle has s throttle every call as f says. A receive has no entries, so it fails whole.
func throttle(s *sqsfake.Server, f sqsfake.Fault) func(on bool) {
	return func(on bool) {
		if on {
			s.SetFaults(sqsfake.Fault{Action: "ReceiveMessage", Code: f.Code}, f)
			return
		}
		s.SetFaults()
	}
}

func harness(fifo bool, over awssqs.Transport, client func(testing.TB) *sqs.Client) brokertest.Harness {
	h := brokertest.Harness{
		Open: func(t testing.TB, o brokertest.QueueOptions) brokertest.Queue {
			return openQueue(t, client(t), fifo, over, o)
		},
		Missing: func(t testing.TB) broker.Broker {
			c := client(t)
			url := makeQueue(t, c, fifo, nil)
			if _, err := c.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
				t.Fatal(err)
			}
			// A visibility, for the first call to be the receive itself.
			return makeBroker(t, c, url, &awssqs.Options{Visibility: time.Second, Transport: over})
		},
	}
	if fifo {
		h.DedupWindow = 5 * time.Minute
	}
	return h
}

func openQueue(t testing.TB, c *sqs.Client, fifo bool, over awssqs.Transport, o brokertest.QueueOptions) brokertest.Queue {
	as := map[string]string{string(types.QueueAttributeNameVisibilityTimeout): inSeconds(o.Visibility)}
	var q brokertest.Queue
	if o.MaxReceives > 0 {
		url := makeQueue(t, c, fifo, as)
		q.DeadLetters = makeBroker(t, c, url, &awssqs.Options{Transport: over})
		as["RedrivePolicy"] = testaws.Redrives(t, c, url, o.MaxReceives)
	}
	url := makeQueue(t, c, fifo, as)
	b := makeBroker(t, c, url, &awssqs.Options{Transport: over})
	q.Broker, q.Close = b, b.Close
	q.SendRaw = testaws.RawSends(c, url)
	return q
}
