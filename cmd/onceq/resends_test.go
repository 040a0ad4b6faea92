package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/sqlitebroker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testsqlite"
)

// TestResendsOfTwoProcesses: two operators resend at once, each with a command of his own, while a
// worker runs. Each missing job and each lost failure is done once.
func TestResendsOfTwoProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "jobs.db")
	_, store := testsqlite.Open(t, path, nil)
	open := func(name string) *sqlitebroker.Queue {
		q, err := sqlitebroker.New(store, name, nil)
		if err == nil {
			err = q.Migrate(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	queue, dead := open("orders"), open("orders-dead")

	const missing, lost = 40, 10
	due := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	var list strings.Builder
	list.WriteString("key,due,body\n")
	for i := range missing + lost {
		fmt.Fprintf(&list, "A-%d,%s,x\n", i, due)
	}
	for i := range lost {
		fail(t, store, fmt.Sprint("A-", i))
	}
	expect, config := filepath.Join(dir, "expect.csv"), filepath.Join(dir, "onceq.yaml")
	file := filepath.ToSlash(path)
	profile := fmt.Sprintf("profiles:\n  p:\n    store: \"sqlite://%[1]s\"\n    queues:\n      orders:\n        url: \"sqlite-queue://%[1]s/orders\"\n        dead: \"sqlite-queue://%[1]s/orders-dead\"\n        scopes: [orders]\n", file)
	for name, text := range map[string]string{expect: list.String(), config: profile} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	var mu sync.Mutex
	ran := map[string]int{}
	all := make(chan struct{})
	p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{Scope: "orders", Store: store, Handler: onceq.HandlerFunc(func(_ context.Context, job *onceq.Job) error {
		mu.Lock()
		defer mu.Unlock()
		if ran[job.Key().Key]++; len(ran) == missing+lost && ran[job.Key().Key] == 1 {
			close(all)
		}
		return nil
	})}))
	// One at a time: a copy beside its running job would wait for the rest of the lease.
	w := must.Get(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, Concurrency: 1}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)

	var out [2]string
	var sends sync.WaitGroup
	for i := range out {
		sends.Go(func() {
			// In batches of 20, so that the two send beside each other.
			c := command(t, "reconcile", "orders", "--expect", expect, "--letters", "--send-lost", "--grace", "1ms", "--resend", "--rate", "20/s", "--max", "100", "--reason", "INC-320", "--yes", "--by", fmt.Sprint("operator-", i))
			c.Env = append(c.Env, "ONCEQ_CONFIG="+config)
			b, _ := c.CombinedOutput()
			out[i] = string(b)
		})
	}
	go func() { ended <- w.Run(ctx) }()
	sends.Wait()
	for i := range out {
		if !strings.Contains(out[i], "jobs sent") {
			t.Errorf("operator %d: %s", i, out[i])
		}
	}
	<-all
	for { // until what came twice is settled, too
		d, err := queue.Depth(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d.Visible+d.InFlight+d.Delayed == 0 {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for k, n := range ran {
		if n != 1 {
			t.Errorf("%s was done %d times", k, n)
		}
	}
	for letter, err := range dead.Peek(t.Context(), 10) {
		t.Errorf("a letter: %+v %v", letter, err)
	}
}

// fail leaves a failed key without a letter.
func fail(t *testing.T, s dedupe.Store, key string) {
	t.Helper()
	var token dedupe.Token
	_, _ = rand.Read(token[:])
	cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{{Key: dedupe.Key{Scope: "orders", Key: key}, Token: token, TTL: time.Minute}})
	if err != nil || cs[0].Outcome != dedupe.Won {
		t.Fatal(cs, err)
	}
	as, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: cs[0].Lease.Key, Token: token, To: dedupe.Failed, ErrClass: "timeout"}})
	if err != nil || as[0].Err != nil {
		t.Fatal(as, err)
	}
}
