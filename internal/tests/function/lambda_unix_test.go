//go:build unix

package function_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/localstack/lambdaruntime"
)

// many are orders with all that can happen to them, each twice: the second message is a producer's
// retry.
func many(n int) (os []order) {
	for i := range n {
		o := order{ID: fmt.Sprintf("o-%03d", i)}
		switch i % 10 {
		case 3:
			o.How = "fails"
		case 5:
			o.How = "slow"
		case 7:
			o.How = "poison"
		}
		os = append(os, o)
	}
	for _, i := range rand.Perm(n) {
		os = append(os, os[i])
	}
	return os
}

// Functions are killed, and frozen until they time out, in the middle of what they do: each order
// has one effect.
func TestKilledFunctions(t *testing.T) {
	t.Parallel()
	for _, handle := range []bool{false, true} {
		t.Run(map[bool]string{false: "by the visibility timeout", true: "with the queue"}[handle], func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{
				name: "orders", visibility: 2 * time.Second, handle: handle,
				o: lambdaruntime.Options{Timeout: 2 * time.Second, Sandboxes: 3},
				s: lambdaruntime.Source{Concurrency: 3, BatchSize: 7},
			})
			os := many(60)
			w.send(os...)
			kills := 0
			tick := time.NewTicker(60 * time.Millisecond)
			defer tick.Stop()
			for end := time.After(20 * time.Second); kills < 14; {
				select {
				case <-tick.C:
					if rand.IntN(3) > 0 {
						continue
					}
					kind := w.f.Kill
					if kills%4 == 3 {
						kind = w.f.Freeze
					}
					if kind() {
						kills++
					}
					if effects, _ := w.ledger(); len(effects) >= 52 {
						kills = 14
					}
				case <-end:
					t.Fatal("nothing runs that could be killed")
				}
			}
			w.drained()
			w.stop()
			w.audit(os)
			s := w.f.Stats
			t.Logf("%d invocations: %d killed, %d timed out; %d processes started; the handler began %d times", s.Invocations, s.Exits, s.Timeouts, s.Starts, w.noted("start"))
			if s.Exits == 0 {
				t.Error("no function was killed")
			}
			if n := w.noted("start"); n <= 54 {
				t.Errorf("the handlers began %d times: nothing was interrupted", n)
			}
		})
	}
}

// On a FIFO queue a group's orders have their effects in their order, whatever is killed.
func TestKilledFunctionsKeepTheOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{
		name: "orders.fifo", visibility: 2 * time.Second, handle: true,
		o: lambdaruntime.Options{Timeout: 2 * time.Second, Sandboxes: 3}, s: lambdaruntime.Source{Concurrency: 3},
	})
	var os []order
	for seq := range 12 {
		for g := range 3 {
			o := order{ID: fmt.Sprintf("g%d-%02d", g, seq), Group: fmt.Sprintf("g%d", g), Seq: seq}
			switch seq {
			case 3:
				o.How = "fails"
			case 5:
				o.How = "slow"
			case 8:
				o.How = "poison"
			}
			os = append(os, o)
		}
	}
	w.send(os...)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for kills := 0; kills < 4; {
		<-tick.C
		if w.f.Kill() {
			kills++
		}
		if effects, _ := w.ledger(); len(effects) > 28 {
			break
		}
	}
	w.drained()
	w.stop()
	w.audit(os)
	_, groups := w.ledger()
	for g, seqs := range groups {
		if !slices.IsSorted(seqs) {
			t.Errorf("the effects of %s came in the order %v", g, seqs)
		}
	}
	t.Logf("%+v", w.f.Stats)
}

// A function that was frozen in the middle, beyond its leases, and goes on after somebody else has
// done its work, changes nothing.
func TestZombie(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{
		name: "orders", visibility: 2 * time.Second,
		o: lambdaruntime.Options{Timeout: 2 * time.Second, Sandboxes: 2, KeepTimedOut: true}, s: lambdaruntime.Source{Concurrency: 1},
	})
	os := []order{{ID: "o-1", How: "held"}}
	w.send(os...)
	w.within("it has not begun", func() bool { return w.noted("start") == 1 })
	if !w.f.Freeze() {
		t.Fatal("nothing runs")
	}
	w.drained() // by another process
	if n := w.noted("booked"); n != 1 {
		t.Fatalf("%d processes have booked it", n)
	}
	if n := w.f.Thaw(); n != 1 {
		t.Fatalf("%d frozen functions, want 1", n)
	}
	w.within("the zombie has not tried", func() bool { return w.noted("refused") == 1 })
	w.stop()
	w.audit(os)
}

// Between invocations a sandbox is frozen, and serves the next one.
func TestFrozenBetweenInvocations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{name: "orders", visibility: 12 * time.Second, o: lambdaruntime.Options{Timeout: 2 * time.Second}})
	for n := range 3 {
		o := order{ID: fmt.Sprintf("o-%d", n)}
		w.send(o)
		w.drained()
		if effects, _ := w.ledger(); effects[o.ID] != 1 {
			t.Errorf("%s had %d effects", o.ID, effects[o.ID])
		}
		for _, pid := range w.f.PIDs() {
			// A stop takes effect later than it is sent: on a busy machine after the answer.
			w.within("the process is not stopped between invocations", func() bool { return stateOf(t, pid) == "T" })
		}
	}
	w.stop()
	if s := w.f.Stats; s.Starts != 1 || s.Errors+s.Exits+s.Timeouts != 0 {
		t.Errorf("one sandbox was to serve all: %+v", s)
	}
}

// stateOf is the letter of a process's state; T where that cannot be seen.
func stateOf(t *testing.T, pid int) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		return "T"
	}
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[:1]
}

// A handler that ignores its context costs its own record the invocation, and not the others.
func TestDeafHandler(t *testing.T) {
	t.Parallel()
	answers := make(chan lambdaruntime.Result, 100)
	deleted := make(chan int, 100)
	w := newWorld(t, setup{
		name: "orders", visibility: 3 * time.Second, o: lambdaruntime.Options{Timeout: 2 * time.Second},
		s: lambdaruntime.Source{Answered: func(_ events.SQSEvent, r lambdaruntime.Result, n int) { answers <- r; deleted <- n }},
	})
	os := []order{{ID: "o-1"}, {ID: "o-2", How: "deaf"}, {ID: "o-3"}}
	w.send(os...)
	w.drained()
	w.stop()
	if r := <-answers; r.Err != nil {
		t.Errorf("the first invocation ended in %v", r.Err)
	}
	if n := <-deleted; n != 2 {
		t.Errorf("the first invocation's answer deleted %d of 3", n)
	}
	w.audit(os)
	if w.f.Stats.Timeouts != 0 {
		t.Errorf("%d invocations timed out: the answer came too late", w.f.Stats.Timeouts)
	}
}

// Without ReportBatchItemFailures what failed is lost, which nothing in the function can see; with
// FailWhole it is not.
func TestWithoutReportBatchItemFailures(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{false, true} {
		w := newWorld(t, setup{
			name: "orders", visibility: 2 * time.Second, failWhole: whole, handle: whole,
			o: lambdaruntime.Options{Timeout: 2 * time.Second}, s: lambdaruntime.Source{IgnoreAnswer: true},
		})
		os := []order{{ID: "o-1"}, {ID: "o-2", How: "fails"}, {ID: "o-3"}}
		w.send(os...)
		w.drained()
		w.stop()
		effects, _ := w.ledger()
		if whole {
			w.audit(os)
		} else if effects["o-2"] != 0 || effects["o-1"] != 1 {
			t.Errorf("the effects are %v; the documentation says that o-2 is lost", effects)
		}
	}
}

// What the runtime itself does: errors, ends, a function that does not start.
func TestInvoke(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{name: "orders", visibility: 12 * time.Second, o: lambdaruntime.Options{Timeout: 2 * time.Second}})
	res := w.f.Invoke(t.Context(), []byte(`{"Records":[]}`))
	if !errors.Is(res.Err, lambdaruntime.ErrFunction) || !strings.Contains(res.Err.Error(), "no records") {
		t.Errorf("an event without records ended in %v", res.Err)
	}
	if res = w.f.Invoke(t.Context(), []byte(`{`)); !errors.Is(res.Err, lambdaruntime.ErrFunction) {
		t.Errorf("what is no event ended in %v", res.Err)
	}
	// A panic is answered as an error, and ends the process; the next invocation gets another one,
	// and does not notice.
	starts := w.f.Stats.Starts
	if res = w.f.Invoke(t.Context(), []byte(`{"Records":[{"messageId":"1","body":"`+bodyThatPanics+`"}]}`)); !errors.Is(res.Err, lambdaruntime.ErrFunction) {
		t.Errorf("a panic ended in %v", res.Err)
	}
	if res = w.f.Invoke(t.Context(), []byte(`{"Records":[{"messageId":"1","body":"{}"}]}`)); res.Err != nil || w.f.Stats.Starts != starts+1 {
		t.Errorf("after a panic the next one ended in %v, %+v", res.Err, w.f.Stats)
	}
	broken := lambdaruntime.New(t, lambdaruntime.Options{Command: []string{"false"}})
	if res := broken.Invoke(context.Background(), nil); !errors.Is(res.Err, lambdaruntime.ErrExited) {
		t.Errorf("a function that ends ended in %v", res.Err)
	}
	if res := lambdaruntime.New(t, lambdaruntime.Options{Command: []string{"./nothing"}}).Invoke(context.Background(), nil); res.Err == nil {
		t.Error("a function that is not there ran")
	}
}

// What the event source makes of an answer: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html. An id that is none fails
// the batch without a word there; Rejected tells.
func TestAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{name: "orders", visibility: time.Hour, o: lambdaruntime.Options{Timeout: 2 * time.Second}})
	w.stop()
	for _, c := range []struct {
		text     string
		deleted  int
		rejected string
	}{
		{`{"batchItemFailures":[]}`, 1, ""},
		{`{"batchItemFailures":null}`, 1, ""},
		{`{}`, 1, ""},
		{`null`, 1, ""},
		{`"done"`, 0, "not of the form"},
		{`[]`, 0, "not of the form"},
		{`{"batchItemFailures":[{"itemIdentifier":""}]}`, 0, `"" as failed, which is no message`},
		{`{"batchItemFailures":[{"itemIdentifier":null}]}`, 0, `"" as failed`},
		{`{"batchItemFailures":[{"id":"x"}]}`, 0, `"" as failed`},
		{`{"batchItemFailures":[{"itemIdentifier":"no-such-message"}]}`, 0, `"no-such-message" as failed`},
	} {
		if _, err := w.client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &w.queue, MessageBody: new(bodyThatAnswers + c.text)}); err != nil {
			t.Fatal(err)
		}
		before := w.depth(w.queue)
		deleted, rejected := w.pollOnce(lambdaruntime.Source{})
		if deleted != c.deleted || w.depth(w.queue) != before-c.deleted {
			t.Errorf("%s: deleted %d of 1, want %d", c.text, deleted, c.deleted)
		}
		if (rejected != nil) != (c.rejected != "") || rejected != nil && !strings.Contains(rejected.Error(), c.rejected) {
			t.Errorf("%s: rejected because of %v, want %q", c.text, rejected, c.rejected)
		}
	}
}
