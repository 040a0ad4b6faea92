package pubsubfake_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
)

// The driver's calls, and gRPC's, are methods of the server.
var (
	_ pubsubpb.PublisherServer  = (*pubsubfake.Server)(nil)
	_ pubsubpb.SubscriberServer = (*pubsubfake.Server)(nil)
	_ iampb.IAMPolicyServer     = (*pubsubfake.Server)(nil)
)

// Close and Drain answer what waits, also pulls that nobody waits for. The bubble would tell of a
// goroutine that is left.
func TestCloseEndsWhatWaits(t *testing.T) {
	for name, end := range map[string]func(*pubsubfake.Server){"Close": (*pubsubfake.Server).Close, "Drain": (*pubsubfake.Server).Drain} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, pubsubfake.Options{StrandCancelled: true}, func(r *rig) {
				topic, sub := r.pair()
				ctx, cancel := context.WithCancel(r.Context())
				answers := make(chan error, 2)
				for _, ctx := range []context.Context{ctx, r.Context()} {
					go func() {
						_, err := r.Pull(ctx, &pubsubpb.PullRequest{Subscription: sub, MaxMessages: 1})
						answers <- err
					}()
				}
				synctest.Wait()
				cancel()
				r.wantCode(<-answers, codes.Canceled)
				end(r.srv)
				end(r.srv) // again does nothing
				r.wantCode(<-answers, codes.OK)
				synctest.Wait()
				// What does not wait goes on.
				r.publish(topic, texts("a")...)
				r.pullThese(sub, "a")
				began := time.Now()
				r.pullNone(sub)
				if took := time.Since(began); took != 0 {
					r.Fatalf("a pull waited %v", took)
				}
			})
		})
	}
}

// A message belongs to who publishes it and to who pulls it: neither sees what the other changes.
func TestMessagesAreCopied(t *testing.T) {
	inBubble(t, pubsubfake.Options{}, func(r *rig) {
		topic, sub := r.pair()
		other := r.sub(topic, "other")
		m := &pubsubpb.PubsubMessage{Data: []byte("a"), Attributes: map[string]string{"k": "v"}}
		r.publish(topic, m)
		if m.MessageId != "" || m.PublishTime != nil {
			r.Fatalf("the publisher's message became %v", m)
		}
		m.Data[0], m.Attributes["k"] = 'x', "x"
		for range 2 {
			got := r.pullOne(sub)
			if string(got.Message.Data) != "a" || got.Message.Attributes["k"] != "v" {
				r.Fatalf("pulled %v", got)
			}
			got.Message.Data[0], got.Message.Attributes["k"] = 'y', "y"
			r.nack(sub, got)
		}
		if got := r.pullOne(other); string(got.Message.Data) != "a" || got.Message.Attributes["k"] != "v" {
			r.Fatalf("the other subscription has %v", got)
		}
		s := r.get(sub)
		s.AckDeadlineSeconds = 77
		if got := r.get(sub).AckDeadlineSeconds; got != 10 {
			r.Fatalf("the ack deadline became %d", got)
		}
	})
}

// Many publish, pull and ack at a time: each message is acked once, and none is left.
func TestManyAtATime(t *testing.T) {
	inBubble(t, pubsubfake.Options{}, func(r *rig) {
		topic, sub := r.pair(once, ordered)
		var wg sync.WaitGroup
		const publishers, each = 4, 100
		for p := range publishers {
			wg.Go(func() {
				for i := range each {
					if err := r.tryPublish(topic, keyed("k"+strconv.Itoa((p+i)%7), strconv.Itoa(i))...); err != nil {
						t.Error(err)
					}
				}
			})
		}
		var mu sync.Mutex
		acked := 0
		for range 4 {
			wg.Go(func() {
				for {
					got, err := r.pullFor(sub, 5*time.Second)
					if err != nil {
						t.Error(err)
						return
					}
					if len(got) == 0 {
						return
					}
					if err := r.tryAck(sub, ackIDs(got)...); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					acked += len(got)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if got := r.srv.Stats(sub); acked != publishers*each || got != (pubsubfake.Stats{}) {
			r.Fatalf("acked %d of %d, left %+v", acked, publishers*each, got)
		}
		for id, n := range r.srv.Deliveries(sub) {
			if n != 1 {
				r.Fatalf("%s was delivered %d times", id, n)
			}
		}
	})
}

// The longest wait of a pull is bounded by its deadline: a tenth, a second at most, before it.
func TestPullEndsBeforeItsDeadline(t *testing.T) {
	for _, c := range []struct{ deadline, want time.Duration }{
		{100 * time.Millisecond, 90 * time.Millisecond},
		{5 * time.Second, 4500 * time.Millisecond},
		{30 * time.Second, 29 * time.Second},
		{time.Hour, 90 * time.Second},
	} {
		inBubble(t, pubsubfake.Options{}, func(r *rig) {
			_, sub := r.pair()
			began := time.Now()
			got, err := r.pullFor(sub, c.deadline)
			if took := time.Since(began); err != nil || len(got) > 0 || took != c.want {
				r.Fatalf("with a deadline of %v it brought %q, %v, after %v, want %v", c.deadline, bodies(got), err, took, c.want)
			}
		})
	}
}

// A hold that is shortened wakes a pull that waits already.
func TestPullWaitsForAShorterHold(t *testing.T) {
	inBubble(t, pubsubfake.Options{}, func(r *rig) {
		topic, sub := r.pair(func(s *pubsubpb.Subscription) { s.AckDeadlineSeconds = 60 })
		r.publish(topic, texts("a", "b")...)
		ms := r.pullInOrder(sub, "a", "b")
		began := time.Now()
		time.AfterFunc(time.Second, func() { _ = r.tryExtend(sub, 4, ms[1].AckId) })
		got, err := r.pullFor(sub, 30*time.Second)
		if took := time.Since(began); err != nil || len(got) != 1 || string(got[0].Message.Data) != "b" || took != 5*time.Second {
			r.Fatalf("pulled %q, %v, after %v", bodies(got), err, took)
		}
	})
}

// What is not there says so.
func TestNotImplemented(t *testing.T) {
	inBubble(t, pubsubfake.Options{}, func(r *rig) {
		topic, sub := r.pair()
		for name, set := range map[string]func(*pubsubpb.Subscription){
			"a push":        func(s *pubsubpb.Subscription) { s.PushConfig = &pubsubpb.PushConfig{PushEndpoint: "https://x"} },
			"an export":     func(s *pubsubpb.Subscription) { s.BigqueryConfig = &pubsubpb.BigQueryConfig{} },
			"another":       func(s *pubsubpb.Subscription) { s.CloudStorageConfig = &pubsubpb.CloudStorageConfig{} },
			"a transform":   func(s *pubsubpb.Subscription) { s.MessageTransforms = []*pubsubpb.MessageTransform{{}} },
			"the last kind": func(s *pubsubpb.Subscription) { s.BigtableConfig = &pubsubpb.BigtableConfig{} },
		} {
			if err := r.trySub(topic, "other", set); err == nil {
				r.Fatalf("%s was taken", name)
			} else {
				r.wantCode(err, codes.Unimplemented)
			}
		}
		for _, in := range []*pubsubpb.Topic{
			{SchemaSettings: &pubsubpb.SchemaSettings{}},
			{MessageRetentionDuration: seconds(600)},
			{IngestionDataSourceSettings: &pubsubpb.IngestionDataSourceSettings{}},
			{MessageTransforms: []*pubsubpb.MessageTransform{{}}},
		} {
			in.Name = r.name("topics", "other")
			_, err := r.CreateTopic(r.Context(), in)
			r.wantCode(err, codes.Unimplemented)
		}
		ctx, s := r.Context(), r.srv
		for name, call := range map[string]func() error{
			"ListTopicSnapshots": func() error {
				_, err := s.ListTopicSnapshots(ctx, &pubsubpb.ListTopicSnapshotsRequest{Topic: topic})
				return err
			},
			"GetSnapshot":    func() error { _, err := s.GetSnapshot(ctx, &pubsubpb.GetSnapshotRequest{}); return err },
			"ListSnapshots":  func() error { _, err := s.ListSnapshots(ctx, &pubsubpb.ListSnapshotsRequest{}); return err },
			"CreateSnapshot": func() error { _, err := s.CreateSnapshot(ctx, &pubsubpb.CreateSnapshotRequest{}); return err },
			"UpdateSnapshot": func() error { _, err := s.UpdateSnapshot(ctx, &pubsubpb.UpdateSnapshotRequest{}); return err },
			"DeleteSnapshot": func() error { _, err := s.DeleteSnapshot(ctx, &pubsubpb.DeleteSnapshotRequest{}); return err },
			"Seek": func() error {
				_, err := s.Seek(ctx, &pubsubpb.SeekRequest{Subscription: sub, Target: &pubsubpb.SeekRequest_Snapshot{Snapshot: "x"}})
				return err
			},
			"ModifyPushConfig": func() error {
				_, err := s.ModifyPushConfig(ctx, &pubsubpb.ModifyPushConfigRequest{Subscription: sub, PushConfig: &pubsubpb.PushConfig{PushEndpoint: "https://x"}})
				return err
			},
		} {
			if got := call(); got == nil {
				r.Fatalf("%s succeeded", name)
			} else {
				r.wantCode(got, codes.Unimplemented)
			}
		}
		out, err := s.ModifyPushConfig(ctx, &pubsubpb.ModifyPushConfigRequest{Subscription: sub})
		if err != nil || out == (*emptypb.Empty)(nil) {
			r.Fatalf("an empty push config: %v, %v", out, err)
		}
		allowed, err := s.TestIamPermissions(ctx, &iampb.TestIamPermissionsRequest{Resource: sub, Permissions: []string{"pubsub.subscriptions.consume"}})
		if err != nil || len(allowed.Permissions) != 1 {
			r.Fatalf("allowed %v, %v", allowed, err)
		}
	})
}

// The language of filters, beside what the service answered in its documentation.
func TestFilters(t *testing.T) {
	for _, c := range []struct {
		filter string
		as     map[string]string
		want   bool
	}{
		{`attributes:k`, map[string]string{"k": ""}, true},
		{`attributes:k`, map[string]string{"K": "v"}, false},
		{`attributes:"odd key"`, map[string]string{"odd key": "v"}, true},
		{`NOT attributes:k`, nil, true},
		{`-attributes:k`, map[string]string{"k": "v"}, false},
		{`attributes.k = "v"`, map[string]string{"k": "v"}, true},
		{`attributes.k="v"`, map[string]string{"k": "V"}, false},
		{`attributes.k = ""`, nil, false},
		{`attributes.k != "v"`, map[string]string{"k": "w"}, true},
		{`attributes.k != "v"`, map[string]string{"k": "v"}, false},
		{`attributes.k != "v"`, nil, true},
		{`attributes."odd key" = "\"\\"`, map[string]string{"odd key": `"\`}, true},
		{`attributes.iana-lang_tag = "en"`, map[string]string{"iana-lang_tag": "en"}, true},
		{`hasPrefix(attributes.k, "v")`, map[string]string{"k": "vw"}, true},
		{`hasPrefix(attributes.k, "v")`, map[string]string{"k": "wv"}, false},
		{`hasPrefix(attributes.k, "")`, nil, false},
		{`NOT hasPrefix ( attributes . k , "v" )`, nil, true},
		{`attributes:a AND attributes:b`, map[string]string{"a": "", "b": ""}, true},
		{`attributes:a AND attributes:b`, map[string]string{"a": ""}, false},
		{`attributes:a OR attributes:b OR attributes:c`, map[string]string{"c": ""}, true},
		{`attributes:a AND (attributes:b OR NOT attributes:c)`, map[string]string{"a": ""}, true},
		{`attributes:a AND (attributes:b OR NOT attributes:c)`, map[string]string{"a": "", "c": ""}, false},
		{`NOT (attributes:a OR attributes:b)`, map[string]string{"b": ""}, false},
	} {
		inBubble(t, pubsubfake.Options{}, func(r *rig) {
			topic, sub := r.pair(filters(c.filter))
			r.publish(topic, &pubsubpb.PubsubMessage{Data: []byte("a"), Attributes: c.as})
			if got := r.srv.Stats(sub).Ready == 1; got != c.want {
				r.Fatalf("%s matches %v: %v, want %v", c.filter, c.as, got, c.want)
			}
		})
	}
	for _, filter := range []string{
		"attributes", "attributes.", `attributes.k`, `attributes.k =`, `attributes.k = v`, `attributes.k "v"`, `attributes.k ! "v"`,
		`attributes.k = "v`, `attributes.k = "v\`, `attributes:`, `attributes:"`, `k = "v"`, `attributes:k attributes:l`, `(attributes:k`, `attributes:k)`,
		`attributes:k AND`, `OR attributes:k`, `NOT`, `()`, `attributes:a AND attributes:b OR attributes:c`, `hasPrefix(attributes:k, "v")`,
		`hasPrefix(attributes.k)`, `hasPrefix(attributes.k, v)`, `hasPrefix(attributes.k, "v"`, `attributes:=`, `attributes.k == "v"`, `"attributes":k`,
	} {
		inBubble(t, pubsubfake.Options{}, func(r *rig) {
			err := r.trySub(r.topic("orders"), "worker", filters(filter))
			if err == nil {
				r.Fatalf("the filter %s was taken", filter)
			}
			r.wantRefused(err, "filter")
		})
	}
}

// No filter and no ack id makes the server panic.
func FuzzTexts(f *testing.F) {
	for _, seed := range []string{`attributes:k`, `attributes.k = "v"`, `NOT hasPrefix(attributes.k, "\"")`, "AAAAAAAAAAEAAAAAAAAAAAAAAAGD6kjF", "\\\"(", "-"} {
		f.Add(seed)
	}
	s := pubsubfake.New(&pubsubfake.Options{LogSize: -1})
	f.Cleanup(s.Close)
	const topic, sub, filtered = "projects/p/topics/orders", "projects/p/subscriptions/worker", "projects/p/subscriptions/filtered"
	ctx := context.Background()
	if _, err := s.CreateTopic(ctx, &pubsubpb.Topic{Name: topic}); err != nil {
		f.Fatal(err)
	}
	if _, err := s.CreateSubscription(ctx, &pubsubpb.Subscription{Name: sub, Topic: topic}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = s.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: sub, AckIds: []string{text}})
		if _, err := s.CreateSubscription(ctx, &pubsubpb.Subscription{Name: filtered, Topic: topic, Filter: text}); err != nil {
			return
		}
		_, err := s.Publish(ctx, &pubsubpb.PublishRequest{Topic: topic, Messages: []*pubsubpb.PubsubMessage{{Data: []byte("a"), Attributes: map[string]string{"k": "v"}}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.DeleteSubscription(ctx, &pubsubpb.DeleteSubscriptionRequest{Subscription: filtered}); err != nil {
			t.Fatal(err)
		}
	})
}

// A test that fails tells the seed.
func TestStart(t *testing.T) {
	var srv *pubsubfake.Server
	var address string
	t.Run("serving", func(t *testing.T) {
		srv, address = pubsubfake.Start(t, &pubsubfake.Options{Seed: 4})
		conn, err := dial(address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		r := &rig{Judge: t, api: clients(conn), project: "projects/p"}
		topic, sub := r.pair()
		r.publish(topic, texts("a")...)
		r.pullThese(sub, "a")
		if srv.Seed() != 4 || !strings.HasPrefix(address, "127.0.0.1:") {
			t.Errorf("seed %d, address %s", srv.Seed(), address)
		}
	})
	conn, err := dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = clients(conn).GetTopic(t.Context(), &pubsubpb.GetTopicRequest{Topic: "projects/p/topics/orders"})
	if err == nil {
		t.Error("it serves after the test")
	}
}
