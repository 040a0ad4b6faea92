package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	_ "modernc.org/sqlite"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testaws"
	"github.com/onceq/onceq/internal/testserver/testsqlite"
	"github.com/onceq/onceq/sqsfake"
)

// This file kills the command amid a replay, as an operator's closed laptop does, and has a second
// operator go on. The front sees each call of the process, in the goroutines of its HTTP server.

// front stands before an SQS server: it keeps the handles of what the process receives, and may
// keep an answer back.
type front struct {
	*sqsfake.Server
	mu      sync.Mutex
	handles []string
	deletes int
	cut     chan struct{} // closed when the second removal has come, which gets no answer
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, call, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	f.mu.Lock()
	if call == "DeleteMessageBatch" && f.cut != nil {
		if f.deletes++; f.deletes == 2 {
			close(f.cut)
		}
		if f.deletes > 1 {
			f.mu.Unlock()
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		}
	}
	f.mu.Unlock()
	answer := httptest.NewRecorder()
	f.Server.ServeHTTP(answer, r)
	if call == "ReceiveMessage" {
		var got struct {
			Messages []struct{ ReceiptHandle string }
		}
		_ = json.Unmarshal(answer.Body.Bytes(), &got)
		f.mu.Lock()
		for _, m := range got.Messages {
			f.handles = append(f.handles, m.ReceiptHandle)
		}
		f.mu.Unlock()
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = io.Copy(w, answer.Body)
}

// place is a queue with its letters, a store in a file, and the configuration of both.
type place struct {
	*testing.T
	front       *front
	client      *sqs.Client
	orders      *awssqs.Broker
	dead        *awssqs.Broker
	deadURL     string
	db          *sql.DB
	store       *sqlitestore.Store
	dir, config string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{T: t, dir: t.TempDir(), front: &front{Server: sqsfake.New(&sqsfake.Options{ShortPolls: sqsfake.ShortPollsWhole})}}
	server := httptest.NewServer(p.front)
	t.Cleanup(func() {
		p.front.Close()
		server.CloseClientConnections()
		server.Close()
	})
	p.client = testaws.ClientOf(p.front.URL, func(o *sqs.Options) { o.HTTPClient = p.front.Client() })
	open := func(name string) (*awssqs.Broker, string) {
		url, err := p.front.CreateQueue(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := must.Get(awssqs.New(p.client, url, nil))
		return b, url
	}
	p.orders, _ = open("orders")
	p.dead, p.deadURL = open("orders-dead")
	path := filepath.Join(p.dir, "keys.db")
	p.db, p.store = testsqlite.Open(t, path, nil)
	p.config = filepath.Join(p.dir, "onceq.yaml")
	text := fmt.Sprintf("profiles:\n  p:\n    store: sqlite://%s\n    queues:\n      orders: {url: 'sqs+%s/orders', dead: 'sqs+%s/orders-dead'}\n", filepath.ToSlash(path), server.URL, server.URL)
	if err := os.WriteFile(p.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// died fails jobs, and puts their letters.
func (p *place) died(n int) {
	p.Helper()
	for i := range n {
		k := dedupe.Key{Scope: "shop:charge", Key: fmt.Sprint("A-", i)}
		token := dedupe.Token{1, byte(i), byte(i >> 8)}
		cs, err := p.store.Claim(p.Context(), []dedupe.ClaimRequest{{Key: k, Token: token, TTL: time.Minute, Owner: "w"}})
		if err != nil || cs[0].Outcome != dedupe.Won {
			p.Fatal(err, cs)
		}
		if _, err := p.store.Settle(p.Context(), []dedupe.Settlement{{Key: k, Token: token, To: dedupe.Failed, ErrClass: "timeout"}}); err != nil {
			p.Fatal(err)
		}
		m := broker.Outgoing{Body: []byte(k.Key), Meta: &broker.Meta{ID: "j" + k.Key, Key: k.Key, Type: "charge", Dead: &broker.Letter{
			Fence: cs[0].Lease.Fence, Class: "timeout", LastErr: "no answer", Attempts: 3, Source: "orders", Scope: k.Scope, Key: k.Key, At: time.Now(),
		}}}
		if _, err := p.dead.Send(p.Context(), []broker.Outgoing{m}); err != nil {
			p.Fatal(err)
		}
	}
}

func (p *place) depth(b *awssqs.Broker) int64 {
	p.Helper()
	d, err := b.Depth(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	return d.Visible + d.InFlight
}

// run runs the command to its end, and answers what it printed.
func (p *place) run(code int, args ...string) string {
	p.Helper()
	var said bytes.Buffer
	c := command(p.T, args...)
	c.Env = append(c.Env, "ONCEQ_CONFIG="+p.config)
	c.Stdout, c.Stderr = &said, &said
	ends(p.T, c.Run(), code)
	if p.Failed() {
		p.Fatalf("%v:\n%s", args, said.String())
	}
	return said.String()
}

// work runs the jobs of the queue until it is empty, and counts the runs by key.
func (p *place) work() map[string]int {
	p.Helper()
	var mu sync.Mutex
	ran := map[string]int{}
	proc := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{Store: p.store, Scope: "shop", Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
		mu.Lock()
		defer mu.Unlock()
		ran[j.Key().Key]++
		return nil
	})}))
	w := must.Get(proc.Worker(p.orders, onceq.WorkerConfig{DeadLetter: p.dead}))
	ctx, stop := context.WithCancel(p.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for p.depth(p.orders) > 0 {
		<-tick.C
	}
	stop()
	if err := <-ended; err != nil {
		p.Error(err)
	}
	return ran
}

// TestKilledReplay: the process of a replay is killed when it has sent letters and has not removed
// them. The next operator is told who was at it, goes on with the same plan when that is known to
// be dead, and each job runs once.
func TestKilledReplay(t *testing.T) {
	t.Parallel()
	const n = 40
	p := newPlace(t)
	p.died(n)
	letters := must.Get(dlq.New(p.dead, &dlq.Options{Wait: 50 * time.Millisecond}))
	plan, err := letters.PlanReplay(t.Context(), dlq.ReplayOptions{To: p.orders})
	if err != nil || len(plan.Letters) != n {
		t.Fatal(plan, err)
	}
	text := must.Get(json.Marshal(plan))
	file := filepath.Join(p.dir, "plan.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--yes", "dlq", "replay", "orders", "--plan", file, "--reason", "the bank is back", "--by"}

	p.front.mu.Lock()
	p.front.cut = make(chan struct{})
	cut := p.front.cut
	p.front.mu.Unlock()
	first := command(t, append(args, "eve")...)
	first.Env = append(first.Env, "ONCEQ_CONFIG="+p.config)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	<-cut
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	p.front.mu.Lock()
	p.front.cut = nil
	handles := p.front.handles
	p.front.handles = nil
	p.front.mu.Unlock()
	sent, left := p.depth(p.orders), p.depth(p.dead)
	if sent <= n-left || left == 0 {
		t.Fatalf("%d sent and %d letters left of %d: it was killed too late", sent, left, n)
	}

	if said := p.run(5, append(args, "ana")...); !strings.Contains(said, "eve began a replay of the letters of orders") || !strings.Contains(said, "--beside goes on at once") {
		t.Errorf("%s", said)
	}
	// What time does: her claim ends after half a minute, and what she held is seen after a minute.
	if _, err := p.db.ExecContext(t.Context(), "UPDATE onceq_dedupe SET lease_until = '2026-01-01T00:00:00.000000Z' WHERE scope = ':once'"); err != nil {
		t.Fatal(err)
	}
	for _, h := range handles {
		// those that were removed answer with an error
		_, _ = p.client.ChangeMessageVisibility(t.Context(), &sqs.ChangeMessageVisibilityInput{QueueUrl: &p.deadURL, ReceiptHandle: &h})
	}
	said := p.run(0, append(args, "ana")...)
	if want := fmt.Sprintf("%d sent, %d of the plan gone", left, n-left); !strings.Contains(said, want) {
		t.Errorf("no %q in\n%s", want, said)
	}
	if again := p.run(0, append(args, "ana")...); !strings.Contains(again, fmt.Sprintf("0 sent, %d of the plan gone", n)) {
		t.Errorf("%s", again)
	}
	if said := p.run(0, "audit"); !strings.Contains(said, "its end is not known") {
		t.Errorf("%s", said)
	}
	ran := p.work()
	for k, times := range ran {
		if times != 1 {
			t.Errorf("%s ran %d times", k, times)
		}
	}
	if len(ran) != n || p.depth(p.dead) != 0 {
		t.Errorf("%d of %d jobs ran, %d letters", len(ran), n, p.depth(p.dead))
	}
}
