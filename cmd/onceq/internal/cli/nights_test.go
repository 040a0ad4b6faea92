package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/runbook"
	"github.com/onceq/onceq/sqsfake"
)

// This file owns the nights of docs/runbook.md: for each the scene, with workers that are real, and
// what a person does in it outside of the terminal. A night's test plays the page's own commands,
// one after the other, and compares what they print with what the page says.

const runbookPage = "../../../../docs/runbook.md"

// night is a scene with what happened in it.
type night struct {
	*rig
	do map[string]func()
	// worksOn opens the queue for a worker.
	worksOn func() broker.Broker

	mu      sync.Mutex
	effects []effect // in the order in which they happened
}

type effect struct {
	key string
	at  time.Time
}

// shift is a worker that runs.
type shift struct {
	stop func()
	w    *onceq.Worker
}

// work starts a worker on the night's queue, and waits until it receives. Its jobs are of the type
// charge, and each that handle lets through is an effect.
func (n *night) work(name string, handle func(ctx context.Context, key string) error, change func(*onceq.ProcessorConfig, *onceq.WorkerConfig)) *shift {
	n.Helper()
	var m onceq.Mux
	m.On("charge", onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
		if handle != nil {
			if err := handle(ctx, j.Key().Key); err != nil {
				return err
			}
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.effects = append(n.effects, effect{j.Key().Key, time.Now()})
		return nil
	}), nil)
	pc := onceq.ProcessorConfig{
		Handler: &m, Store: n.store, Scope: "orders", Queue: "orders", Owner: name, SettleTimeout: time.Second,
		Control:  onceq.ControlOptions{Every: 2 * time.Second},
		Defaults: onceq.JobOptions{MaxAttempts: 10, Backoff: func(int, error) time.Duration { return 0 }},
	}
	wc := onceq.WorkerConfig{DeadLetter: n.dead, Concurrency: 4, DrainTimeout: 100 * time.Millisecond}
	if change != nil {
		change(&pc, &wc)
	}
	p := must.Get(onceq.NewProcessor(pc))
	w := must.Get(p.Worker(n.worksOn(), wc))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx)
	}()
	stop := sync.OnceFunc(func() { cancel(); <-ended })
	n.Cleanup(stop)
	n.until(func() bool { return w.Health().Seat != "" })
	return &shift{stop, w}
}

// brief is for a night that waits for what a worker leaves behind. On a machine that stands still
// for as long, a delivery lapses between its letter and its ack, and there is a second copy of the
// letter: no other night may count on so little.
func brief(pc *onceq.ProcessorConfig, wc *onceq.WorkerConfig) {
	pc.Lease, wc.Visibility = 3*time.Second, 3*time.Second
}

// until waits for what workers bring about.
func (n *night) until(holds func() bool) {
	n.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !holds(); <-tick.C {
		if time.Since(began) > 2*time.Minute {
			n.Fatal("it never came")
		}
	}
}

// depth is how many messages lie in a queue.
func (n *night) depth(b broker.Broker) int64 {
	n.Helper()
	tells, _ := broker.As[broker.Depther](b)
	d, err := tells.Depth(n.Context())
	if err != nil {
		n.Fatal(err)
	}
	return d.Visible + d.InFlight + d.Delayed
}

// idle waits until no message is left in the queue.
func (n *night) idle() { n.Helper(); n.until(func() bool { return n.depth(n.queue) == 0 }) }

// due writes what should have run, with and without what a resend needs.
func (n *night) due(keys ...string) {
	n.Helper()
	due, orders := []string{"key,due,type,body"}, []string{"key,type"}
	for _, k := range keys {
		due = append(due, k+","+time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)+`,charge,"{""order"":""`+k+`""}"`)
		orders = append(orders, k+",charge")
	}
	n.file("due.csv", strings.Join(due, "\n")+"\n")
	n.file("orders.csv", strings.Join(orders, "\n")+"\n")
	n.ledger()
}

// ledger writes what has happened.
func (n *night) ledger() {
	n.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := []string{"key,id,at,type"}
	for i, e := range n.effects {
		lines = append(lines, fmt.Sprintf("%s,pay-%d,%s,charge", e.key, i, e.at.UTC().Format(time.RFC3339Nano)))
	}
	n.file("ledger.csv", strings.Join(lines, "\n")+"\n")
}

func (n *night) file(name, text string) {
	n.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o600); err != nil {
		n.Fatal(err)
	}
}

// keys are names of orders.
func keys(prefix string, from, to int) (ks []string) {
	for i := from; i <= to; i++ {
		ks = append(ks, fmt.Sprint(prefix, i))
	}
	return ks
}

var nights = map[string]func(n *night){
	"A. A poison deploy": func(n *night) {
		all := keys("A-", 1, 12)
		n.due(all...)
		bad := func(_ context.Context, key string) error {
			switch key {
			case "A-10", "A-11", "A-12":
				return onceq.Permanent(errors.New(`unknown currency "XXX"`))
			case "A-7", "A-8":
				return onceq.Permanent(errors.New("amount -500 is negative"))
			}
			return nil
		}
		s := n.work("w-1", bad, nil)
		n.send(all...)
		n.idle()
		// A machine that stood still looks like an outage.
		n.until(func() bool { return strings.Contains(n.run("queue", "ls").out, " ok") })
		n.do["deploy the mended handler"] = func() { s.stop(); n.work("w-2", nil, nil) }
		n.do["wait until the queue is empty"] = n.quiet
	},
	"B. A dependency hangs": func(n *night) {
		hang := make(chan struct{})
		s := n.work("w-1", func(context.Context, string) error { <-hang; return nil }, brief) // deaf to its context
		n.send(keys("B-", 1, 6)...)
		n.until(func() bool { return strings.Contains(n.run("queue", "ls").out, "(4/4)") })
		n.due(keys("B-", 1, 6)...)
		n.do["restart the workers, and wait for the dependency"] = func() {
			go s.stop()
			n.until(func() bool { return s.w.Health().State == onceq.StateStopped })
			n.work("w-2", nil, nil)
		}
		n.do["wait until the queue is empty"] = n.quiet
		n.Cleanup(func() { close(hang) })
	},
	"C. Was this order charged twice?": func(n *night) {
		n.send("A-400017")
		n.claim(charge("A-400017"), 50*time.Millisecond, dedupe.Rerun) // its worker stands still
		n.effects = append(n.effects, effect{"A-400017", time.Now()})
		n.lapsed(charge("A-400017"))
		n.work("w-1", nil, nil)
		n.idle()
		n.due("A-400017")
		n.do["pay one charge back, and take it out of ledger.csv"] = func() { n.effects = n.effects[:1]; n.ledger() }
	},
	"D. Parked refunds": func(n *night) {
		n.send(keys("R-", 1, 3)...)
		n.due(keys("R-", 1, 3)...)
		interrupted := true // the first time, amid the call of the bank
		n.work("w-1", func(context.Context, string) error {
			if interrupted {
				panic("the connection was cut off")
			}
			return nil
		}, func(pc *onceq.ProcessorConfig, _ *onceq.WorkerConfig) { pc.Defaults.Interrupted = dedupe.Park })
		n.until(func() bool { return n.depth(n.dead) == 3 && n.depth(n.queue) == 0 })
		interrupted = false
		n.do["divide parked.ndjson: bank-has-it.ndjson, bank-has-it-not.ndjson"] = func() {
			text := must.Get(os.ReadFile(filepath.Join(n.dir, "parked.ndjson")))
			lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
			if len(lines) != 3 {
				n.Fatalf("%s", text)
			}
			n.file("bank-has-it.ndjson", lines[0]+lines[1])
			n.file("bank-has-it-not.ndjson", lines[2])
		}
		n.do["wait until the queue is empty"] = n.quiet
	},
	"E. A worker was killed": func(n *night) {
		n.send("S-1")
		n.due("S-1")
		c := n.claim(charge("S-1"), 50*time.Millisecond, dedupe.Rerun)
		n.lapsed(charge("S-1"))
		s := must.Get(controlstore.NewSeat(n.store, controlstore.SeatOptions{Queue: "orders", Owner: "w-9", TTL: time.Second}))
		n.beat(s, func(k *control.WorkerStatus) {
			k.Jobs = []control.RunningJob{{Key: "S-1", Type: "charge", At: time.Now(), Attempt: 1, Fence: c.Lease.Fence}}
		})
		<-time.After(1100 * time.Millisecond) // its lease, by the store's own clock
		n.do["start another worker, if none is left"] = func() { n.work("w-10", nil, nil) }
		n.do["wait until the queue is empty"] = n.quiet
	},
	"F. A queue that is too hot": func(n *night) {
		n.work("w-1", nil, nil)
		n.send(keys("F-", 1, 5)...)
		n.idle()
	},
	"G. Jobs that should have run": func(n *night) {
		n.send("G-1", "G-2") // the producer's others were rolled back
		n.due(keys("G-", 1, 4)...)
		n.work("w-1", nil, nil)
		n.quiet()
		n.do["wait until the queue is empty"] = n.quiet
	},
	"H. The store was restored": func(n *night) {
		n.due(keys("H-", 1, 5)...)
		b := copied(n.T, n.db)
		s := n.work("w-1", nil, nil)
		n.send("H-1", "H-2")
		n.idle()
		s.stop()
		b.dump()
		s = n.work("w-2", nil, nil)
		n.send("H-3", "H-4")
		n.quiet()
		b.restore()
		n.until(func() bool { return s.w.Health().State == onceq.StatePaused })
		n.do["wait until the queue is empty"] = n.quiet
	},
	"J. The retention is too short": func(n *night) {
		// The workers may not ask for the queue's settings, so none of them refuses to start.
		s := n.work("w-1", nil, func(pc *onceq.ProcessorConfig, wc *onceq.WorkerConfig) { pc.Retention = time.Hour; n.blind() })
		n.server.SetFaults()
		n.file("orders.json", `{"scope": "orders", "retention": 3600, "max_attempts": 10, "drain_timeout": 20}`)
		n.do["set Retention to 31 days in orders.json and in the program, and deploy"] = func() {
			n.file("orders.json", `{"scope": "orders", "retention": 2678400, "max_attempts": 10, "drain_timeout": 20}`)
			s.stop()
			n.work("w-2", nil, nil)
		}
	},
	"K. A queue was purged": func(n *night) {
		n.send(keys("K-", 1, 5)...)
		n.due(keys("K-", 1, 7)...) // two were purged by the console
		n.do["start the workers"] = func() { n.work("w-1", nil, nil) }
		n.do["wait until the queue is empty"] = n.quiet
	},
	"L. The queue takes messages away too soon": func(n *night) {
		n.setReceives(2)
		n.send(keys("L-", 1, 4)...)
		n.due(keys("L-", 1, 4)...)
		n.do["write redrive.json"] = func() {
			n.file("redrive.json", `{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:orders-dead\",\"maxReceiveCount\":40}"}`)
		}
		n.work("w-1", n.failsFirst(3), nil)
		n.until(func() bool { return n.depth(n.dead) == 4 })
		n.do["wait until the queue is empty"] = n.quiet
	},
	"M. One order, several amounts": func(n *night) {
		n.due(keys("M-", 1, 3)...)
		n.do["stop the producer, and ask which amount is right"] = n.ledger
		n.send(keys("M-", 1, 3)...)
		n.work("w-1", nil, func(pc *onceq.ProcessorConfig, _ *onceq.WorkerConfig) {
			pc.Fingerprint = func(m *broker.Message) []byte { return m.Body }
		})
		n.quiet()
		for range 3 {
			n.send(keys("M-", 1, 3)...)
		}
		for _, k := range keys("M-", 1, 3) {
			m := onceq.Message("charge", k, []byte(`{"order":"`+k+`","cents":1}`))
			if err := onceq.SendOne(n.Context(), n.queue, &m); err != nil {
				n.Fatal(err)
			}
		}
		n.quiet()
	},
	"I. Two scopes": func(n *night) {
		n.work("w-1", nil, brief)
		wrong := n.work("w-8", nil, func(pc *onceq.ProcessorConfig, wc *onceq.WorkerConfig) { brief(pc, wc); pc.Scope = "order" })
		// Each of two messages of one order finds a worker of its own, whoever is asked first.
		n.send("I-1")
		n.due("I-1")
		n.until(func() bool {
			n.send("I-1")
			n.idle()
			return n.charges()["I-1"] == 2
		})
		n.ledger()
		n.do["take the wrong version away"] = wrong.stop
	},
}

// failsFirst fails each job so often.
func (n *night) failsFirst(times int) func(context.Context, string) error {
	var mu sync.Mutex
	failed := map[string]int{}
	return func(_ context.Context, key string) error {
		mu.Lock()
		defer mu.Unlock()
		if failed[key]++; failed[key] <= times {
			return errors.New("the bank answers 503")
		}
		return nil
	}
}

// blind takes the right away to ask for the settings of queues.
func (n *night) blind() {
	n.server.SetFaults(sqsfake.Fault{Action: "GetQueueAttributes", Status: 403, Code: "AccessDenied", Message: "no"})
}

// setReceives sets the queue's maxReceiveCount.
func (n *night) setReceives(times int) {
	n.Helper()
	n.set("orders", "RedrivePolicy", fmt.Sprintf(`{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:orders-dead","maxReceiveCount":%d}`, times))
}

func (n *night) set(queue, name, value string) {
	n.Helper()
	_, err := n.client().SetQueueAttributes(n.Context(), &sqs.SetQueueAttributesInput{
		QueueUrl: new(n.server.URL + "/000000000000/" + queue), Attributes: map[string]string{name: value},
	})
	if err != nil {
		n.Fatal(err)
	}
}

// quiet waits until nothing is left to do, and writes the ledger.
func (n *night) quiet() { n.Helper(); n.idle(); n.ledger() }

// TestNights plays the nights of the page, each in its scene, and docs/restore.md.
func TestNights(t *testing.T) {
	t.Parallel()
	all, err := runbook.Read(runbookPage)
	if err != nil {
		t.Fatal(err)
	}
	played := map[string]bool{}
	var begun sync.WaitGroup
	defer begun.Wait()
	for _, of := range all {
		played[of.Title] = true
		// All at once: they wait for each other's polls and beats, and compute little.
		begun.Go(func() {
			t.Run(of.Title, func(t *testing.T) {
				scene := nights[of.Title]
				if scene == nil {
					t.Fatal("the page has a night without a scene")
				}
				n := &night{rig: newRig(t), do: map[string]func(){}}
				n.worksOn = func() broker.Broker { return n.openWith("orders", nil, &awssqs.Options{LongPoll: time.Second}) }
				n.set("orders-dead", "MessageRetentionPeriod", "1209600")
				scene(n)
				n.T = t
				p := runbook.Player{Dir: n.dir, Do: n.do, Run: n.types, Vars: map[string]string{"QUEUE_URL": n.server.URL + "/000000000000/orders"}, Said: func(s *runbook.Step, output string) {
					t.Logf("$ %s\n%s", s.Line, output)
				}}
				parts := map[string]bool{}
				for i := range of.Steps {
					parts[of.Steps[i].Part] = true
					if err := p.Play(&of.Steps[i]); err != nil {
						t.Fatalf("%s: %v", of.Steps[i].Part, err)
					}
				}
				for _, part := range runbook.Parts {
					if !parts[part] {
						t.Errorf("it has no %s", part)
					}
				}
			})
		})
	}
	for on, restore := range restores {
		begun.Go(func() { t.Run("restore.md on "+on, restore) })
	}
	for title := range nights {
		if !played[title] {
			t.Errorf("the page has no night %q", title)
		}
	}
}

// types runs a command of the page. Its files are in the night's folder.
func (n *night) types(words []string) (code int, out, errs string) {
	for i, w := range words {
		if slices.Contains([]string{".csv", ".json", ".ndjson", ".md"}, filepath.Ext(w)) && words[0] == "onceq" {
			words[i] = filepath.Join(n.dir, w)
		}
	}
	if words[0] == "aws" {
		if err := n.aws(words[1:]); err != nil {
			return 254, "", err.Error()
		}
		return 0, "", ""
	}
	a := n.run(words[1:]...)
	return a.code, a.out, a.err
}

// aws is what the page needs of Amazon's own command.
func (n *night) aws(words []string) error {
	if len(words) != 6 || strings.Join(words[:3], " ") != "sqs set-queue-attributes --queue-url" || words[4] != "--attributes" {
		return fmt.Errorf("aws: %q is not known here", words)
	}
	text, err := os.ReadFile(filepath.Join(n.dir, strings.TrimPrefix(words[5], "file://")))
	if err != nil {
		return err
	}
	var attributes map[string]string
	if err := json.Unmarshal(text, &attributes); err != nil {
		return err
	}
	_, err = n.client().SetQueueAttributes(n.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &words[3], Attributes: attributes})
	return err
}
