package main

import (
	"fmt"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
)

const (
	orderTopic   = "projects/p/topics/orders"
	orderSub     = "projects/p/subscriptions/orders"
	letterTopic  = "projects/p/topics/orders-dead"
	letterReader = "projects/p/subscriptions/orders-dead"
)

// pubsubTown is a server of Pub/Sub, its topics and subscriptions, and a bank.
type pubsubTown struct {
	*pubsubfake.Server
	*bankTest
	t   *testing.T
	env []string
}

func newPubSubTown(t *testing.T) *pubsubTown {
	t.Helper()
	server, address := pubsubfake.Start(t, nil)
	_, keys := firestorefake.Start(t, nil)
	w := &pubsubTown{Server: server, bankTest: newBank(t), t: t}
	for topic, sub := range map[string]string{orderTopic: orderSub, letterTopic: letterReader} {
		_, err := server.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic})
		require.NoError(t, err)
		_, err = server.CreateSubscription(t.Context(), &pubsubpb.Subscription{Name: sub, Topic: topic, AckDeadlineSeconds: 60})
		require.NoError(t, err)
	}
	w.env = []string{
		"SUBSCRIPTION=" + orderSub, "DEAD_LETTER_TOPIC=" + letterTopic, "PUBSUB_EMULATOR_HOST=" + address, "BANK_URL=" + w.bank.URL,
		"CONCURRENCY=5", "LONG_POLL=1s", "FIRESTORE_EMULATOR_HOST=" + keys,
	}
	return w
}

func (w *pubsubTown) send(ids ...string) {
	w.t.Helper()
	b, err := gcppubsub.New(w.Server, orderTopic, "", nil)
	require.NoError(w.t, err)
	require.NoError(w.t, onceq.Send(w.t.Context(), b, orders(ids...)))
}

// A deploy in the middle of forty orders on Pub/Sub, as in TestDeploy.
func TestDeployOnPubSub(t *testing.T) {
	t.Parallel()
	w := newPubSubTown(t)
	ids := []string{"order-hold"}
	for n := range 39 {
		ids = append(ids, fmt.Sprint("order-", n))
	}
	w.send(append(ids, ids...)...)

	old := start(t, w.env)
	old.working()
	until(t, old, "the first polls are answered", func() bool { return old.ask("/readyz") == "200 ok" })
	until(t, old, "ten orders are charged", func() bool { return w.charged() >= 10 })
	old.signal()
	until(t, old, "it drains", func() bool { return old.ask("/readyz") == "503 draining" })
	require.Equal(t, "200 ok", old.ask("/livez"))
	close(w.hold)
	require.Equal(t, 0, old.exit(), "%s", old.log())
	require.Contains(t, old.log(), `"msg":"drained"`)
	require.Less(t, w.charged(), 40, "the deploy came too late to show anything")
	require.Zero(t, w.Stats(orderSub).Held, "what was not started is there for the next worker: %s", old.log())

	next := start(t, w.env)
	until(t, next, "all is charged", func() bool { return w.charged() == 40 })
	until(t, next, "the duplicates are acked", func() bool { return w.Stats(orderSub).Unacked() == 0 })
	next.signal()
	require.Equal(t, 0, next.exit(), "%s", next.log())
	w.once(t, 40, old.log()+"\n"+next.log())
	require.Zero(t, w.Stats(letterReader).Unacked())
}

// The settings that would lose messages are told at the start; a permission that is taken away
// makes the worker unready, and alive.
func TestUnreadyOnPubSub(t *testing.T) {
	t.Parallel()
	w := newPubSubTown(t)
	p := start(t, append(w.env, "UNREADY_AFTER=100ms"))
	p.working()
	require.Contains(t, p.log(), `"msg":"queue","problem":"`)
	until(t, p, "ready", func() bool { return p.ask("/readyz") == "200 ok" })
	w.SetFaults(pubsubfake.Fault{Method: "Pull", Code: codes.PermissionDenied})
	until(t, p, "unready", func() bool { return strings.HasPrefix(p.ask("/readyz"), "503 the queue has failed for") })
	require.Equal(t, "200 ok", p.ask("/livez"))
	w.SetFaults()
	until(t, p, "ready again", func() bool { return p.ask("/readyz") == "200 ok" })
	p.signal()
	require.Equal(t, 0, p.exit(), "%s", p.log())
}
