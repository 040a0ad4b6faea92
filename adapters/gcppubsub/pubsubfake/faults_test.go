package pubsubfake_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/internal/must"
)

// faulty runs f in a bubble, with a topic and a subscription.
func faulty(t *testing.T, f func(r *rig, topic, sub string), set ...func(*pubsubpb.Subscription)) {
	t.Helper()
	inBubble(t, pubsubfake.Options{}, func(r *rig) {
		topic, sub := r.pair(set...)
		f(r, topic, sub)
	})
}

func TestFaultAtTheNthCall(t *testing.T) {
	faulty(t, func(r *rig, topic, sub string) {
		r.srv.SetFaults(pubsubfake.Fault{Method: "Publish", Skip: 1, Count: 2, Code: codes.ResourceExhausted})
		r.wantCode(r.tryPublish(topic, texts("1")...), codes.OK)
		r.wantCode(r.tryPublish(topic, texts("2")...), codes.ResourceExhausted)
		r.get(sub) // another method does not count
		r.wantCode(r.tryPublish(topic, texts("3")...), codes.ResourceExhausted)
		r.wantCode(r.tryPublish(topic, texts("4")...), codes.OK)
		r.pullThese(sub, "1", "4")
	})
}

func TestFaultAtARate(t *testing.T) {
	draw := func(seed uint64) (failed string) {
		inBubble(t, pubsubfake.Options{Seed: seed}, func(r *rig) {
			topic, _ := r.pair()
			r.srv.SetFaults(pubsubfake.Fault{Rate: 0.5, Code: codes.Unavailable})
			for range 400 {
				if r.tryPublish(topic, texts("a")...) != nil {
					failed += "x"
				} else {
					failed += "."
				}
			}
		})
		return failed
	}
	first := draw(7)
	if n := strings.Count(first, "x"); n < 100 || n > 300 {
		t.Errorf("%d of 400 failed", n)
	}
	if draw(7) != first {
		t.Error("the same seed drew others")
	}
	if draw(8) == first {
		t.Error("another seed drew the same")
	}
}

func TestFaultOfAResourceForAWhile(t *testing.T) {
	faulty(t, func(r *rig, topic, sub string) {
		other := r.topic("other")
		r.srv.SetFaults(pubsubfake.Fault{Resource: topic, For: 20 * time.Second, Code: codes.Unavailable})
		r.wantCode(r.tryPublish(topic, texts("a")...), codes.Unavailable)
		r.wantCode(r.tryPublish(other, texts("a")...), codes.OK)
		r.wait(19 * time.Second)
		r.wantCode(r.tryPublish(topic, texts("a")...), codes.Unavailable)
		r.wait(time.Second)
		r.wantCode(r.tryPublish(topic, texts("b")...), codes.OK)
		r.pullThese(sub, "b")
	})
}

func TestFaultWhen(t *testing.T) {
	faulty(t, func(r *rig, topic, sub string) {
		r.publish(topic, texts("a")...)
		m := r.pullOne(sub)
		r.srv.SetFaults(pubsubfake.Fault{Code: codes.Internal, When: func(q pubsubfake.Request) bool {
			return q.Method == "ModifyAckDeadline" && q.Seconds == 0 && q.Entries == 1
		}})
		r.extend(sub, 20, m)
		r.wantCode(r.tryExtend(sub, 0, m.AckId), codes.Internal)
	})
}

func TestFaultsInTheirOrder(t *testing.T) {
	faulty(t, func(r *rig, topic, _ string) {
		r.srv.SetFaults(
			pubsubfake.Fault{Method: "Publish", Count: 1, Code: codes.Unavailable},
			pubsubfake.Fault{Code: codes.PermissionDenied, Message: "not you"},
		)
		r.wantCode(r.tryPublish(topic, texts("a")...), codes.Unavailable)
		err := r.tryPublish(topic, texts("a")...)
		r.wantCode(err, codes.PermissionDenied)
		if !strings.Contains(err.Error(), "not you") {
			r.Fatal(err)
		}
	})
}

// A lost reply of an ack: it is applied, and its caller does not know.
func TestFaultLostReply(t *testing.T) {
	faulty(t, func(r *rig, topic, sub string) {
		r.publish(topic, texts("a")...)
		m := r.pullOne(sub)
		r.srv.SetFaults(pubsubfake.Fault{Method: "Acknowledge", Count: 1, Code: codes.Unavailable, Applied: true})
		r.wantCode(r.tryAck(sub, m.AckId), codes.Unavailable)
		if got := r.srv.Stats(sub); got != (pubsubfake.Stats{}) {
			r.Fatalf("the subscription has %+v", got)
		}
	})
}

// A lost reply of a pull: the messages are held, and nobody has them.
func TestFaultLostPull(t *testing.T) {
	faulty(t, func(r *rig, topic, sub string) {
		r.publish(topic, texts("a")...)
		r.srv.SetFaults(pubsubfake.Fault{Method: "Pull", Count: 1, Code: codes.Unavailable, Applied: true})
		_, err := r.pullFor(sub, 5*time.Second)
		r.wantCode(err, codes.Unavailable)
		r.pullNone(sub)
		r.wait(9 * time.Second)
		r.pullThese(sub, "a")
	})
}

// A stalled Acknowledge: applied late, so that the ack deadline passes before.
func TestFaultStall(t *testing.T) {
	faulty(t, func(r *rig, topic, sub string) {
		r.publish(topic, texts("a")...)
		m := r.pullOne(sub)
		r.srv.SetFaults(pubsubfake.Fault{Method: "Acknowledge", Count: 1, Delay: 30 * time.Second})
		began := time.Now()
		r.wantFailed(r.tryAck(sub, m.AckId), permanent, m.AckId)
		if took := time.Since(began); took != 30*time.Second {
			r.Fatalf("it took %v", took)
		}
		// Its caller gives up before: nothing is applied.
		m = r.pullOne(sub)
		r.srv.SetFaults(pubsubfake.Fault{Method: "Acknowledge", Delay: 3 * time.Second})
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		_, err := r.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: sub, AckIds: []string{m.AckId}})
		r.wantCode(err, codes.DeadlineExceeded)
		if got := r.srv.Stats(sub).Held; got != 1 {
			r.Fatalf("%d are held", got)
		}
		// A late reply: it is applied, and its caller has given up.
		r.srv.SetFaults(pubsubfake.Fault{Method: "Acknowledge", ReplyDelay: 3 * time.Second})
		ctx, cancel = context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		_, err = r.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: sub, AckIds: []string{m.AckId}})
		r.wantCode(err, codes.DeadlineExceeded)
		if got := r.srv.Stats(sub).Held; got != 0 {
			r.Fatalf("%d are held", got)
		}
	}, once)
}

func TestFaultSilence(t *testing.T) {
	faulty(t, func(r *rig, topic, sub string) {
		r.srv.SetFaults(pubsubfake.Fault{Method: "Pull", Count: 2, Silence: true})
		began := time.Now()
		_, err := r.pullFor(sub, 7*time.Second)
		r.wantCode(err, codes.DeadlineExceeded)
		if took := time.Since(began); took != 7*time.Second {
			r.Fatalf("it took %v", took)
		}
		answered := make(chan error, 1)
		go func() {
			_, err := r.Pull(r.Context(), &pubsubpb.PullRequest{Subscription: sub, MaxMessages: 1})
			answered <- err
		}()
		r.wait(time.Hour)
		r.srv.Close()
		r.wantCode(<-answered, codes.Unavailable)
	})
}

func TestFaultOfEntries(t *testing.T) {
	faulty(t, func(r *rig, topic, sub string) {
		r.publish(topic, texts("a", "b", "c")...)
		ids := ackIDs(r.pull(sub, 3))
		r.srv.SetFaults(pubsubfake.Fault{Method: "Acknowledge", Count: 1, Entries: []int{1}})
		r.wantFailed(r.tryAck(sub, ids...), "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE", ids[1])
		if got := r.srv.Stats(sub).Held; got != 1 {
			r.Fatalf("%d are held", got)
		}
		r.srv.SetFaults(pubsubfake.Fault{Method: "Acknowledge", Count: 1, Entries: []int{0}, Applied: true, EntryFailure: "TRANSIENT_FAILURE_OTHER"})
		r.wantFailed(r.tryAck(sub, ids[1]), "TRANSIENT_FAILURE_OTHER", ids[1])
		if got := r.srv.Stats(sub).Held; got != 0 {
			r.Fatalf("%d are held", got)
		}
	}, once)
	// Without exactly-once delivery nothing fails by id.
	faulty(t, func(r *rig, topic, sub string) {
		r.publish(topic, texts("a")...)
		m := r.pullOne(sub)
		r.srv.SetFaults(pubsubfake.Fault{Method: "Acknowledge", Entries: []int{0}})
		r.ack(sub, m)
		if got := r.srv.Stats(sub).Held; got != 0 {
			r.Fatalf("%d are held", got)
		}
	})
}

func TestFaultMost(t *testing.T) {
	faulty(t, func(r *rig, topic, sub string) {
		r.publish(topic, texts("a", "b", "c")...)
		r.srv.SetFaults(pubsubfake.Fault{Method: "Pull", Count: 1, Most: 2})
		got, err := r.pullFor(sub, 5*time.Second)
		if err != nil || len(got) != 2 {
			r.Fatalf("pulled %q, %v", bodies(got), err)
		}
		r.pull(sub, 1)
	})
}

func TestFaultDuplicate(t *testing.T) {
	for _, set := range [][]func(*pubsubpb.Subscription){nil, {ordered}} {
		faulty(t, func(r *rig, topic, sub string) {
			r.publish(topic, keyed("k", "a", "b")...)
			r.srv.SetFaults(pubsubfake.Fault{Method: "Pull", Count: 1, Duplicate: true})
			r.pullInOrder(sub, "a", "b")
			r.pullInOrder(sub, "a", "b")
			r.pullNone(sub)
		}, set...)
	}
	// The promise of exactly-once delivery is not broken.
	faulty(t, func(r *rig, topic, sub string) {
		r.publish(topic, texts("a")...)
		r.srv.SetFaults(pubsubfake.Fault{Duplicate: true})
		r.pullOne(sub)
		r.pullNone(sub)
	}, once)
}

func TestFaultOfAnUnknownMethod(t *testing.T) {
	s := pubsubfake.New(nil)
	defer s.Close()
	defer func() {
		if text, ok := recover().(error); !ok || !strings.Contains(text.Error(), `no method "Ack"`) {
			t.Errorf("recovered %v", text)
		}
	}()
	s.SetFaults(pubsubfake.Fault{Method: "Ack"})
}

// What happened is told: the calls, and how often each message was delivered.
func TestLog(t *testing.T) {
	inBubble(t, pubsubfake.Options{LogSize: 3}, func(r *rig) {
		topic, sub := r.pair()
		ids := r.publish(topic, texts("a", "b", "c", "d")...)
		ms := r.pull(sub, 4)
		r.nack(sub, ms[3])
		r.pullOne(sub)
		r.ack(sub, ms[:3]...)
		r.wantCode(r.tryAck("projects/p/subscriptions/other", ms[0].AckId), codes.NotFound)
		want := map[string]int{"CreateTopic": 1, "CreateSubscription": 1, "Publish": 1, "Pull": 2, "ModifyAckDeadline": 1, "Acknowledge": 2}
		if got := r.srv.Counts(); !maps.Equal(got, want) {
			r.Fatalf("counts %v, want %v", got, want)
		}
		got := r.srv.Requests()
		if len(got) != 3 || got[0].Method != "Pull" || got[0].Messages != 1 || got[1].Entries != 3 || got[1].Code != codes.OK ||
			got[2].Code != codes.NotFound || got[2].Resource != "projects/p/subscriptions/other" {
			r.Fatalf("requests %+v", got)
		}
		if got := r.srv.Deliveries(sub); !maps.Equal(got, map[string]int{ids[1]: 1, ids[2]: 1, ids[3]: 2}) {
			r.Fatalf("deliveries %v", got)
		}
		if got := r.srv.Stats(sub); got != (pubsubfake.Stats{Held: 1}) || got.Unacked() != 1 {
			r.Fatalf("stats %+v", got)
		}
		r.srv.ResetLog()
		if n := len(r.srv.Counts()) + len(r.srv.Requests()); n != 0 {
			r.Fatalf("%d are left", n)
		}
		if r.srv.Deliveries("other") != nil || r.srv.Stats("other") != (pubsubfake.Stats{}) {
			r.Fatal("another subscription tells something")
		}
	})
}

// Other processes set faults and ask through HTTP.
func TestControl(t *testing.T) {
	s := pubsubfake.New(&pubsubfake.Options{Seed: 5})
	defer s.Close()
	r := &rig{Judge: t, api: s, project: "projects/p", srv: s}
	topic, sub := r.pair()
	do := func(method, path, body string) (int, string) {
		w := httptest.NewRecorder()
		s.Control().ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		text := must.Get(io.ReadAll(w.Result().Body))
		return w.Code, strings.TrimSpace(string(text))
	}
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "/_pubsubfake/health", "", 200, `{"status":"ok","seed":"5"}`},
		{"GET", "/_pubsubfake/requests", "", 200, `{"CreateSubscription":1,"CreateTopic":1}`},
		{"PUT", "/_pubsubfake/faults", `[{"method":"Publish","count":1,"code":"UNAVAILABLE","applied":true,"delay":"1ms"}]`, 200, `{"faults":1}`},
		{"PUT", "/_pubsubfake/faults", `[{"method":"Send"}]`, 400, `pubsubfake: fault 0: Pub/Sub has no method "Send"`},
		{"PUT", "/_pubsubfake/faults", `[{"code":"NO"}]`, 400, `pubsubfake: the faults must be a JSON array: invalid code: "\"NO\""`},
		{"PUT", "/_pubsubfake/faults", `[{"what":1}]`, 400, `pubsubfake: the faults must be a JSON array: json: unknown field "what"`},
		{"GET", "/", "", 404, "pubsubfake: known are GET health, GET requests, DELETE requests and PUT faults, under /_pubsubfake/"},
	} {
		if code, text := do(c.method, c.path, c.body); code != c.code || text != c.want {
			t.Errorf("%s %s %s: %d %s, want %d %s", c.method, c.path, c.body, code, text, c.code, c.want)
		}
	}
	r.wantCode(r.tryPublish(topic, texts("a")...), codes.Unavailable)
	if got := s.Stats(sub).Ready; got != 1 {
		t.Errorf("%d are ready", got)
	}
	if code, _ := do(http.MethodDelete, "/_pubsubfake/requests", ""); code != 200 || len(s.Counts()) != 0 {
		t.Errorf("%d, %v", code, s.Counts())
	}
}

func TestStaleAckIDsAsText(t *testing.T) {
	for want, h := range map[string]pubsubfake.StaleAckIDs{
		"random": pubsubfake.StaleRandom, "work": pubsubfake.StaleWork, "ignored": pubsubfake.StaleIgnored,
	} {
		text, err := h.MarshalText()
		var back pubsubfake.StaleAckIDs
		if err != nil || string(text) != want || back.UnmarshalText(text) != nil || back != h {
			t.Errorf("%d is %q, %v, and back %d", h, text, err, back)
		}
	}
	var h pubsubfake.StaleAckIDs
	if err := h.UnmarshalText([]byte("never")); err == nil || err.Error() != `"never" is none of random, work, ignored` {
		t.Error(err)
	}
	if _, err := pubsubfake.StaleAckIDs(9).MarshalText(); err == nil {
		t.Error("9 has a word")
	}
}
