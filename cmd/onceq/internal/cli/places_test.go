package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"cloud.google.com/go/firestore"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/dedupe/firestorestore"
	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

// This file goes through the commands on back ends that differ from the rig's own: a store that
// bills what it reads, and a queue that tells no depth.

// tour is what a person does in a night, with each group of commands. depth says whether the queue
// tells its own, priced whether the store bills lists that no index answers, and price what
// reconcile says before it reads two keys.
func tour(t *testing.T, r *rig, depth, priced bool, price string) {
	t.Helper()
	for i := range 3 {
		r.died(fmt.Sprint("A-", i), "timeout", fmt.Sprintf("no answer from 10.0.0.%d:443", i))
	}
	r.died("B-1", "permanent", "402 card expired at 2026-11-22")
	parked := r.claim(charge("P-1"), time.Minute, dedupe.Park)
	r.settle(parked, dedupe.Parked, "interrupted", "w-1/1 died")
	r.seat("w-1/1", follows)
	yes := func(args string) []string {
		return append([]string{"--yes"}, append(strings.Split(args, " "), "--reason", "INC-311")...)
	}

	// queues
	var qs []queueView
	r.run("queue", "ls", "-o", "json").want(0).json(&qs)
	if len(qs) != 1 || (qs[0].Visible != nil) != depth || (qs[0].Letters != nil) != depth || *qs[0].Workers != 1 || len(qs[0].Errors) > 0 {
		t.Errorf("%+v", qs)
	}
	if !depth {
		r.run("queue", "ls").want(0, "orders        –          –        –      900ms       601   0.4%  1 (80/100)        –  ok")
		r.run("queue", "show", "orders").want(0, "depth        – (the service does not tell)").not("letters")
	}
	r.run("queue", "show", "orders").want(0, "workers      1 live, 0 dead; 80 of 100 slots busy", "p95          charge 800ms")
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, []byte(`{"cents":7}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r.run("queue", "send", "orders", "--key", "S-1", "--type", "charge", "-f", body).want(0, "sent S-1 to orders", "audit ")
	r.run("queue", "peek", "orders").want(0, "S-1", `{"cents":7}`, "received 1 of orders")
	r.run(yes("queue limit orders --slots 5 --for 1h")...).want(0, "all 1 workers follow")
	r.run(yes("queue pause orders --for 1h --force --type charge")...).want(0, "orders paused until")
	r.run("queue", "show", "orders").want(0, `pause type charge until`, "limit to 5 the queue until")
	r.run(yes("queue resume orders")...).want(0, "1 rule ended")

	// keys, workers, jobs
	r.run("key", "ls", "--status", "failed").want(0, "A-0", "B-1", "timeout").not(":worker", ":control")
	if priced {
		r.run("key", "ls", "--status", "done").want(5, "no index answers this", "--scan goes on")
	}
	r.run("key", "ls", "--status", "all", "--scan").want(0, "A-0", "P-1", "parked").not(":worker", ":control")
	r.run("key", "show", "A-1").want(0, "orders:charge A-1   FAILED", "timeout: no answer from 10.0.0.1:443")
	r.run(yes(fmt.Sprintf("key resolve P-1 --to released --no-letter --fence %d", parked.Lease.Fence))...).want(0, "P-1 is released now")
	r.run(yes(fmt.Sprintf("key forget P-1 --fence %d", r.get(charge("P-1")).Fence))...).want(0, "P-1 is none now")
	r.run("workers", "orders").want(0, "w-1/1", "800ms")
	r.run("jobs", "running", "orders").want(0, "B-12")
	r.run("jobs", "stalled", "orders").want(0, "nothing stands still")
	r.run("top").want(0, "orders", "w-1/1", "800ms", "B-12")

	// letters
	r.run("dlq", "ls", "orders").want(0, "A-0", "A-2", "B-1")
	r.run("dlq", "group", "orders").want(0, "4 letters", bank+"  timeout    charge        3", "402 card expired at #")
	r.run("dlq", "show", "orders", "A-1").want(0, "group        "+bank, `"order":"A-1"`)
	plan := filepath.Join(t.TempDir(), "plan.json")
	r.run("dlq", "replay", "orders", "--group", bank, "--dry-run", "--plan", plan).want(0, "3 letters → orders", "3 reopen their failure", "nothing was sent")
	r.run(yes("dlq replay orders --rate 100/s --plan "+plan)...).want(0, "3 sent · 0 came back so far", "audit ")
	kept := filepath.Join(t.TempDir(), "kept.ndjson")
	r.run(yes("dlq purge orders --class permanent --dry-run=false --max 9 -f "+kept)...).want(0, "1 purged")
	if b, err := os.ReadFile(kept); err != nil || !strings.Contains(string(b), `"B-1"`) {
		t.Errorf("%s %v", b, err)
	}
	r.run("dlq", "group", "orders").want(0, "no dead letter in orders")

	// a worker does what was sent, and what was replayed
	for _, m := range r.receive(4) {
		d := ""
		if m.Meta != nil && m.Meta.Dead != nil {
			d = fmt.Sprint(" of fence ", m.Meta.Dead.Fence > 0)
		}
		if got := m.Meta.Key + d; got != "S-1" && !strings.HasSuffix(got, " of fence true") {
			t.Errorf("%s came", got)
		}
	}
	// evidence
	due := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	r.typed = "key,due,type,body\nA-1," + due + ",charge,x\nE-1," + due + ",charge,x\n"
	looked := r.run("reconcile", "orders", "--expect", "-").want(1, "2 expected, 0 done once and in time, 1 missing, 1 failed")
	if price == "" {
		looked.not("reads 2 keys")
	} else {
		looked.want(1, price+"; a key without a record costs 1 unit more")
	}
	var cs []checkupView
	r.run("doctor", "orders", "-o", "json").want(1).json(&cs)
	service := map[bool]string{true: "sqs", false: "pubsub"}[depth]
	for _, c := range cs {
		if c.Error != "" && !strings.Contains(c.Error, "Options.Admin is nil") { // an emulator has no administrators
			t.Errorf("%+v", c)
		}
		if c.Check == service && c.State == "found" && c.Mend != "" {
			service = ""
		}
	}
	if service != "" {
		t.Errorf("%s has found nothing: %+v", service, cs)
	}

	r.run("audit").want(0, "send", "limit", "pause", "resume", "resolve", "forget", "replay", "purge", "sent 3", "INC-311")
	if n := len(r.audit()); n != 8 {
		t.Errorf("%d acts", n)
	}
}

// receive takes so many messages of the queue.
func (r *rig) receive(n int) (all []*broker.Message) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	for len(all) < n {
		ms, err := r.queue.Receive(ctx, broker.ReceiveOptions{Max: n - len(all), Wait: time.Second, Visibility: time.Minute})
		if err != nil {
			r.Fatalf("%d of %d came: %v", len(all), n, err)
		}
		all = append(all, ms...)
	}
	return all
}

// TestPubSubPlace: Pub/Sub tells no depth, and that is shown as not known, never as 0.
func TestPubSubPlace(t *testing.T) {
	r := newRig(t)
	srv, address := pubsubfake.Start(t, nil)
	t.Setenv("PUBSUB_EMULATOR_HOST", address)
	clients := must.Get(gcppubsub.Dial(t.Context()))
	t.Cleanup(func() { _ = clients.Close() })
	open := func(name string) broker.Broker {
		topic, sub := "projects/shop/topics/"+name, "projects/shop/subscriptions/"+name
		if _, err := srv.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}); err != nil {
			t.Fatal(err)
		}
		if _, err := srv.CreateSubscription(t.Context(), &pubsubpb.Subscription{Name: sub, Topic: topic, AckDeadlineSeconds: 60}); err != nil {
			t.Fatal(err)
		}
		b := must.Get(gcppubsub.New(clients, topic, sub, nil))
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	r.queue, r.dead = open("orders"), open("orders-dead")
	r.config(fmt.Sprintf(`profiles:
  test:
    store: %s
    queues:
      orders:
        url: gcppubsub://shop/orders?topic=orders
        dead: gcppubsub://shop/orders-dead
        scopes: [orders, "orders:charge"]
`, r.storeURL))
	tour(t, r, false, true, "")
	r.run("dlq", "redrive", "orders", "--status").want(2, "only SQS moves dead letters back by itself")
	r.run("queue", "peek", "gcppubsub://shop/gone?topic=orders").want(3, "queue not found", "subscriptions/gone").not("given back")
	r.run("queue", "ls", "gcppubsub://shop/gone?topic=orders").want(0, "–")
	r.config(strings.Replace(r.file, "        dead: gcppubsub://shop/orders-dead\n", "", 1))
	r.run("dlq", "group", "orders").want(2, "queue orders has no dead-letter queue", "give dead: in the profile")
}

// TestDynamoDBPlace: a store that bills each read.
func TestFirestorePlace(t *testing.T) {
	_, address := firestorefake.Start(t, nil)
	t.Setenv("FIRESTORE_EMULATOR_HOST", address)
	client := must.Get(firestore.NewClientWithDatabase(t.Context(), "shop", "jobs"))
	t.Cleanup(func() { _ = client.Close() })
	api := must.Get(firestorestore.NewAPI(t.Context()))
	t.Cleanup(func() { _ = api.Close() })
	store := must.Get(firestorestore.New(client, api, "onceq", nil))
	tour(t, rigOn(t, store, "'firestore://shop/jobs/onceq'"), true, true, "reads 2 keys and the audit: 258 billed reads")
}

func TestDynamoDBPlace(t *testing.T) {
	server := testaws.NewDynamoDB(t)
	t.Setenv("AWS_ACCESS_KEY_ID", server.Credentials.AccessKeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", server.Credentials.SecretAccessKey)
	t.Setenv("AWS_SESSION_TOKEN", server.Credentials.SessionToken)
	for _, index := range []string{"attention", ""} {
		name := "with an index"
		if index == "" {
			name = "without an index"
		}
		t.Run(name, func(t *testing.T) {
			table := server.TableName(t, "records")
			store := must.Get(dynamostore.New(server.Client(t), table, &dynamostore.Options{AttentionIndex: index}))
			t.Cleanup(func() { _ = store.Close() })
			url := fmt.Sprintf("dynamodb://%s?region=%s&endpoint=%s", table, server.Region, server.URL)
			if index != "" {
				url += "&index=" + index
			}
			r := rigOn(t, store, url)
			if index != "" {
				r.run("key", "ls", "--status", "failed").want(3, "non-existent table", "CreateTable makes it")
			}
			if err := store.CreateTable(t.Context()); err != nil {
				t.Fatal(err)
			}
			if index == "" {
				r.run("key", "ls", "--status", "failed").want(5, "no index answers this", "--scan goes on")
				return
			}
			tour(t, r, true, true, "reads 2 keys and the audit: 258 read units, 0.0000 $")
			r.patience = time.Minute
			r.wantOffers("orders", "workers", "") // the seats of others would be a scan
			r.wantOffers("w-1/1", "workers", "orders", "")
			r.wantOffers("charge", "queue", "pause", "orders", "--type", "")
		})
	}
}
