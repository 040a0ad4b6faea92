package gcppubsub_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"

	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/broker/brokertest"
	"github.com/onceq/onceq/internal/testserver"
	"github.com/onceq/onceq/internal/testserver/testgcp"
)

// TestMain lets more tests wait at a time than there are processors: in real time they wait for
// timeouts.
func TestMain(m *testing.M) {
	if err := testserver.Together(256); err != nil {
		panic(err)
	}
	m.Run()
}

// kind is how a subscription was made.
type kind struct {
	name           string
	ordered, exact bool
}

var kinds = []kind{{name: "plain"}, {name: "exactly-once", exact: true}, {name: "ordered", ordered: true}, {name: "ordered-exactly-once", ordered: true, exact: true}}

func (k *kind) set(s *pubsubpb.Subscription) {
	s.EnableMessageOrdering, s.EnableExactlyOnceDelivery = k.ordered, k.exact
}

// TestConformance checks the driver on the strict server, in virtual time, with both habits that
// the service has.
func TestConformance(t *testing.T) {
	for _, k := range kinds {
		for _, stale := range []pubsubfake.StaleAckIDs{pubsubfake.StaleWork, pubsubfake.StaleIgnored} {
			name := k.name
			if stale == pubsubfake.StaleIgnored {
				if k.exact {
					continue // ids of earlier deliveries are refused there
				}
				name += "-void"
			}
			t.Run(name, func(t *testing.T) {
				h := harness(k, project, func(t testing.TB) admin { return fake(t, pubsubfake.Options{StaleAckIDs: stale}) })
				h.Virtual = true
				// Pub/Sub counts in whole seconds, and what is asked for is rounded up.
				h.Slack = time.Second + time.Millisecond
				h.StaleReceiptsVoid = k.exact || stale == pubsubfake.StaleIgnored
				brokertest.Run(t, h)
			})
		}
	}
}

// throttle has s throttle every call.
func throttle(s *pubsubfake.Server) func(on bool) {
	return func(on bool) {
		if on {
			s.SetFaults(pubsubfake.Fault{Code: codes.ResourceExhausted, Message: "Quota exceeded for quota metric"})
			return
		}
		s.SetFaults()
	}
}

// oneOfAKey is what Pub/Sub does otherwise than the contract says. The worker can live with it,
// because it hands the followers of a failed head back.
const oneOfAKey = "Pub/Sub delivers nothing of an ordering key while any of its messages is held"

// TestConformanceServer checks the driver on Google's emulator, in real time. The kinds run at the
// same time, because their cases mostly wait.
func TestConformanceServer(t *testing.T) {
	server := testgcp.NewPubSub(t)
	for _, k := range kinds {
		if k.ordered && k.exact {
			// The emulator then wants the acks of all messages in the order of their deliveries,
			// also without a key, and answers any other one that it failed for now.
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			a, project := dial(t, server)
			h := harness(k, project, func(testing.TB) admin { return a })
			h.Visibility = 10 * time.Second
			if server.Kind == "emulator" {
				maps.Copy(h.Known, emulatorDiffers)
				if k.ordered {
					maps.Copy(h.Known, emulatorOrderDiffers)
					h.Unsteady = emulatorOrderUnsteady
				}
			}
			brokertest.Run(t, h)
		})
	}
}

// What Google's emulator does otherwise than the service is documented to do.
var (
	emulatorDiffers = map[string]string{
		"late-extension-never-hides": "the emulator lets an extension that comes after the deadline hide the message",
	}
	emulatorOrderDiffers = map[string]string{
		"settled-stays-settled": "where messages are ordered, the emulator brings an acked one again after a nack",
		"native-redrive":        "where messages are ordered, the emulator dead-letters a message only at another pull, after its ack deadline",
	}
	emulatorOrderUnsteady = map[string]string{
		"concurrent-use": "where messages are ordered, the emulator brings acked ones again when a message before them runs out, as on a busy machine",
	}
)

// dial is a project of the test's own on a server.
func dial(t testing.TB, server *testgcp.PubSub) (a admin, project string) {
	t.Helper()
	return dialled{dialAt(t, server.Addr)}, "projects/" + server.Project(t)
}

func harness(k kind, project string, open func(testing.TB) admin) brokertest.Harness {
	known := map[string]string{}
	if k.ordered {
		known["hidden-message-blocks-later-ones-only"] = oneOfAKey
	}
	return brokertest.Harness{
		Known: known,
		Open: func(t testing.TB, o brokertest.QueueOptions) brokertest.Queue {
			a := open(t)
			q := openQueue(t, a, k, project, o)
			if s, ok := a.(*pubsubfake.Server); ok {
				q.Throttle = throttle(s)
			}
			return q
		},
		Missing: func(t testing.TB) broker.Broker {
			// A visibility, for the first call to be the pull itself.
			return makeBroker(t, open(t), project+"/topics/"+newName("t-"), project+"/subscriptions/"+newName("s-"),
				&gcppubsub.Options{Visibility: 10 * time.Second})
		},
	}
}

func openQueue(t testing.TB, a admin, k kind, project string, o brokertest.QueueOptions) brokertest.Queue {
	topic := makeTopic(t, a, project)
	options := &gcppubsub.Options{Ordered: k.ordered, Attempts: o.MaxReceives > 0}
	var q brokertest.Queue
	deadLetter := ""
	if o.MaxReceives > 0 {
		deadLetter = makeTopic(t, a, project)
		q.DeadLetters = makeBroker(t, a, "", makeSubscription(t, a, project, deadLetter, nil), nil)
	}
	subscription := makeSubscription(t, a, project, topic, func(s *pubsubpb.Subscription) {
		k.set(s)
		s.AckDeadlineSeconds = inSeconds(o.Visibility)
		if deadLetter != "" {
			s.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{DeadLetterTopic: deadLetter, MaxDeliveryAttempts: int32(o.MaxReceives)}
		}
	})
	b := makeBroker(t, a, topic, subscription, options)
	q.Broker, q.Close = b, b.Close
	q.SendRaw = func(ctx context.Context, body []byte, attributes map[string]string) error {
		_, err := a.Publish(ctx, &pubsubpb.PublishRequest{Topic: topic, Messages: []*pubsubpb.PubsubMessage{{Data: body, Attributes: attributes}}})
		return err
	}
	return q
}
