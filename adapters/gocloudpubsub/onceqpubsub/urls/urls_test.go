package urls_test

import (
	"context"
	"fmt"
	"log"
	"net/url"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"gocloud.dev/gcerrors"
	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub/urls"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testaws"
	"github.com/onceq/onceq/sqsfake"
)

func openMux(t *testing.T) (mux *pubsub.URLMux, queueURL string) {
	t.Helper()
	server := sqsfake.New(nil)
	t.Cleanup(server.Close)
	client := testaws.FakeClient(server)
	out, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: new("orders")})
	if err != nil {
		t.Fatal(err)
	}
	google := pubsubfake.New(nil)
	t.Cleanup(google.Close)
	const topic = "projects/shop/topics/orders"
	if _, err := google.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}); err != nil {
		t.Fatal(err)
	}
	if _, err := google.CreateSubscription(t.Context(), &pubsubpb.Subscription{Name: "projects/shop/subscriptions/orders", Topic: topic}); err != nil {
		t.Fatal(err)
	}
	mux = new(pubsub.URLMux)
	(&urls.SQS{Client: client}).RegisterWith(mux)
	(&urls.PubSub{API: google}).RegisterWith(mux)
	(&urls.Memory{}).RegisterWith(mux)
	return mux, *out.QueueUrl
}

// Each scheme opens both ends of one queue, with what the URL says.
func TestOpen(t *testing.T) {
	mux, queueURL := openMux(t)
	sqsURL := "onceq+sqs" + strings.TrimPrefix(queueURL, "http")
	for _, c := range []struct{ topic, sub string }{
		{sqsURL + "?insecure=true", sqsURL + "?insecure=true&visibility=2m&maxhold=3h&wait=2s&nackdelay=5s"},
		{sqsURL + "?insecure=1&gocloudsqs=true", sqsURL + "?insecure=1&gocloudsqs=true"},
		{"onceq+gcppubsub://projects/shop/topics/orders", "onceq+gcppubsub://projects/shop/subscriptions/orders?visibility=20s"},
		{"onceq+mem://orders", "onceq+mem://orders?visibility=5s"},
		{"onceq+mem://eu/orders", "onceq+mem://eu/orders"},
	} {
		topic := must.Get(mux.OpenTopic(t.Context(), c.topic))
		sub := must.Get(mux.OpenSubscription(t.Context(), c.sub))
		if err := topic.Send(t.Context(), &pubsub.Message{Body: []byte(c.sub), Metadata: map[string]string{"a b": "50%"}}); err != nil {
			t.Fatal(err)
		}
		m, err := sub.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ours *broker.Message
		if string(m.Body) != c.sub || m.Metadata["a b"] != "50%" || !m.As(&ours) {
			t.Errorf("%s: got %s with %q", c.sub, m.Body, m.Metadata)
		}
		if wire := ours.Attributes["a__0x20__b"]; strings.Contains(c.topic, "gocloudsqs") && wire != "50%25" {
			t.Errorf("gocloudsqs: it travels as %q", ours.Attributes)
		}
		m.Ack()
		var r broker.Receiver
		sub.As(&r)
		if err := sub.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := topic.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		_, err = r.Receive(t.Context(), broker.ReceiveOptions{Max: 1})
		if closed := err != nil; closed != !strings.HasPrefix(c.sub, "onceq+mem") {
			t.Errorf("%s: after Shutdown its receiver answers %v", c.sub, err)
		}
	}
}

func TestVisibilityOfURL(t *testing.T) {
	mux, _ := openMux(t)
	sub := must.Get(mux.OpenSubscription(t.Context(), "onceq+gcppubsub://projects/shop/subscriptions/gone?visibility=20s"))
	if _, err := sub.Receive(t.Context()); gcerrors.Code(err) != gcerrors.NotFound {
		t.Errorf("got %v", err)
	}
	if err := sub.Shutdown(t.Context()); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	mux, _ := openMux(t)
	bare := new(pubsub.URLMux)
	(&urls.SQS{}).RegisterWith(bare)
	(&urls.PubSub{}).RegisterWith(bare)
	for _, c := range []struct {
		mux                 *pubsub.URLMux
		url, topic, reading string // the errors; "" = it opens
	}{
		{mux, "onceq+sqs://h/1/q?visibilty=3s", `query parameter "visibilty" is unknown; known are gocloudsqs, insecure`, `query parameter "visibilty" is unknown; known are gocloudsqs, insecure, maxhold, nackdelay, visibility, wait`},
		{mux, "onceq+sqs://h/1/q?visibility=3", `query parameter "visibility" is unknown`, `query parameter "visibility" is "3", want a time such as 30s`},
		{mux, "onceq+sqs://h/1/q?wait=1s&wait=2s", `query parameter "wait" is unknown`, `query parameter "wait" comes 2 times`},
		{mux, "onceq+sqs://h/1/q?wait=1m", `"wait" is unknown`, "SubscriptionOptions.Wait: 1m0s is above"},
		{mux, "onceq+sqs://h/1/q?insecure=perhaps", `query parameter "insecure" is "perhaps", want true or false`, `query parameter "insecure" is "perhaps", want true or false`},
		{mux, "onceq+sqs://h/1/q?gocloudsqs=", `query parameter "gocloudsqs" is ""`, `query parameter "gocloudsqs" is ""`},
		{mux, "onceq+sqs://h", "want onceq+sqs://HOST/ACCOUNT/NAME", "want onceq+sqs://HOST/ACCOUNT/NAME"},
		{mux, "onceq+sqs:orders", "// is missing", "// is missing"},
		{mux, "onceq+sqs://key:secret@h/1/q", "it has a user", "it has a user"},
		{mux, "onceq+sqs://h/1/q#part", `it has a fragment, "part"`, `it has a fragment, "part"`},
		{mux, "onceq+sqs://h/1/q?%zz", "its query", "its query"},
		{mux, "onceq+gcppubsub://projects/shop/topics/orders?gocloudsqs=true", `"gocloudsqs" is unknown; there are none here`, `"gocloudsqs" is unknown; known are maxhold`},
		{mux, "onceq+gcppubsub://p/t", "want onceq+gcppubsub://projects/PROJECT/topics/NAME", "want onceq+gcppubsub://projects/PROJECT/subscriptions/NAME"},
		{mux, "onceq+gcppubsub://projects/shop/topics/orders", "", "want onceq+gcppubsub://projects/PROJECT/subscriptions/NAME"},
		{mux, "onceq+mem://", "want onceq+mem://NAME", "want onceq+mem://NAME"},
		{mux, "onceq+mem://q?gocloudsqs=true", `"gocloudsqs" is unknown`, `"gocloudsqs" is unknown`},
		{bare, "onceq+sqs://h/1/q", "SQS.Client is nil", "SQS.Client is nil"},
		{bare, "onceq+gcppubsub://projects/shop/topics/orders", "PubSub.API is nil", "PubSub.API is nil"},
	} {
		check := func(what string, err error, want string) {
			t.Helper()
			if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "urls: open "+what)) {
				t.Errorf("%s %s: got %v, want %q", what, c.url, err, want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error tells the password: %v", err)
			}
		}
		topic, err := c.mux.OpenTopic(t.Context(), c.url)
		if check("topic", err, c.topic); err == nil {
			topic.Shutdown(t.Context())
		}
		sub, err := c.mux.OpenSubscription(t.Context(), c.url)
		if check("subscription", err, c.reading); err == nil {
			sub.Shutdown(t.Context())
		}
	}
}

// The opener's fields hold where the URL says nothing, and never change.
func TestFields(t *testing.T) {
	o := &urls.Memory{}
	o.SubscriptionOptions.Wait = -1
	for raw, want := range map[string]string{"onceq+mem://q": "Wait: -1ns is negative", "onceq+mem://q?wait=2ms": ""} {
		u := must.Get(url.Parse(raw))
		sub, err := o.OpenSubscriptionURL(t.Context(), u)
		if want == "" && err == nil {
			sub.Shutdown(t.Context())
			continue
		}
		if err == nil || want == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", raw, err)
		}
	}
	if o.SubscriptionOptions.Wait != -1 {
		t.Error("a URL has changed the opener")
	}
}

func ExampleMemory() {
	ctx := context.Background()
	queues := new(urls.Memory)
	mux := new(pubsub.URLMux)
	queues.RegisterWith(mux)
	topic := must.Get(mux.OpenTopic(ctx, "onceq+mem://orders"))
	defer topic.Shutdown(ctx)
	orders := must.Get(mux.OpenSubscription(ctx, "onceq+mem://orders?visibility=1m&maxhold=2h"))
	defer orders.Shutdown(ctx)
	if err := topic.Send(ctx, &pubsub.Message{Body: []byte("ship")}); err != nil {
		log.Fatal(err)
	}
	m, err := orders.Receive(ctx)
	if err != nil {
		log.Fatal(err)
	}
	m.Ack()
	fmt.Println(string(m.Body))
	_, err = mux.OpenSubscription(ctx, "onceq+mem://orders?visibilty=1m")
	fmt.Println(err)
	// Output:
	// ship
	// urls: open subscription onceq+mem://orders?visibilty=1m: query parameter "visibilty" is unknown; known are maxhold, nackdelay, visibility, wait
}
