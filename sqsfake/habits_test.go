package sqsfake_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/sqsfake"
)

// TestShortPollsAreSampled: who does not wait gets a part, in any order; who waits gets all.
func TestShortPollsAreSampled(t *testing.T) {
	inBubbleOf(t, &sqsfake.Options{Seed: 3}, func(r *rig) {
		q, f := r.queue("q"), r.queue("f.fifo")
		for _, body := range []string{"0", "1", "2", "3"} {
			r.send(q, body)
			r.sendTo(f, "g", body)
		}
		came := map[string]int{}
		for range 200 {
			ms := r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, MaxNumberOfMessages: 3})
			came[fmt.Sprint(len(ms))]++
			if !slices.IsSorted(bodies(ms)) {
				came["out of order"]++
			}
			for _, m := range ms {
				r.wantCode(r.change(q, m, 0), "")
			}
		}
		for _, what := range []string{"0", "1", "2", "3", "out of order"} {
			if came[what] < 10 {
				r.Fatalf("of 200 short polls: %v", came)
			}
		}
		if came["4"] > 0 {
			r.Fatalf("more than asked for: %v", came)
		}
		if ms := r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, MaxNumberOfMessages: 10, WaitTimeSeconds: 1}); len(ms) != 4 {
			r.Fatalf("a long poll brought %q", bodies(ms))
		}
		r.wantBodies(r.receive(f), "0", "1", "2", "3")
		// The oldest is not the first.
		first := map[string]int{}
		for i := range 40 {
			q := r.queue(fmt.Sprint("fresh-", i))
			for _, body := range []string{"0", "1", "2", "3"} {
				r.send(q, body)
			}
			if ms := r.receive(q); len(ms) > 0 {
				first[*ms[0].Body]++
			}
		}
		if len(first) != 4 {
			r.Fatalf("the first messages of fresh queues: %v", first)
		}
	})
}

// TestShortPollsReachEveryMessage: what one leaves another brings, also behind those that one sees
// at a time.
func TestShortPollsReachEveryMessage(t *testing.T) {
	inBubbleOf(t, nil, func(r *rig) {
		dlq := r.queue("dlq")
		q := r.queue("q", "RedrivePolicy", r.policy(dlq, 1))
		const n = 100
		for i := range n {
			r.send(q, fmt.Sprint(i))
		}
		seen := map[string]bool{}
		for polls := 0; len(seen) < n; polls++ {
			if polls == 10*n {
				r.Fatalf("after %d polls %d of %d came", polls, len(seen), n)
			}
			for _, m := range r.receive(q) {
				if seen[*m.Body] {
					r.Fatalf("%s came twice", *m.Body)
				}
				seen[*m.Body] = true
			}
		}
		after(30 * time.Second)
		// The next receive of each takes it to the dead-letter queue.
		for polls := 0; r.attribute(dlq, "ApproximateNumberOfMessages") != fmt.Sprint(n); polls++ {
			if polls == 10*n {
				r.Fatal("they do not become dead letters")
			}
			r.wantBodies(r.receive(q))
		}
	})
}

// TestStaleHandlesAtRandom: unless told otherwise, an old handle works sometimes, for each kind of
// call.
func TestStaleHandlesAtRandom(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		worked := map[string]int{}
		const tries = 60
		for i := range tries {
			q := r.queue(fmt.Sprint("q", i))
			first, _ := r.twice(q)
			r.wantCode(r.change(q, first, 0), "")
			if len(r.receive(q)) > 0 {
				worked["show"]++
			}
			r.wantCode(r.remove(q, first), "")
			if r.attribute(q, "ApproximateNumberOfMessagesNotVisible") == "0" {
				worked["delete"]++
			}
		}
		for _, what := range []string{"show", "delete"} {
			if n := worked[what]; n < tries/6 || n > tries*5/6 {
				r.Fatalf("of %d: %v", tries, worked)
			}
		}
	})
}

// TestSeed: what is random plays again by the seed, and one queue's choices are none of another's.
func TestSeed(t *testing.T) {
	play := func(seed uint64, beside bool) (story string) {
		inBubbleOf(t, &sqsfake.Options{Seed: seed}, func(r *rig) {
			var b strings.Builder
			q, other := r.queue("q"), r.queue("other")
			r.srv.SetFaults(sqsfake.Fault{Action: "SetQueueAttributes", Rate: 0.5, Code: "Throttling"})
			for i := range 20 {
				if beside {
					r.send(other, "a")
					r.receive(other)
				}
				out, err := r.sendBatch(q, entryOf("0", fmt.Sprint(i)), entryOf("1", "b"), entryOf("2", "c"))
				r.wantCode(err, "")
				for _, e := range out.Successful {
					fmt.Fprint(&b, *e.Id)
				}
				ms := r.receive(q)
				fmt.Fprint(&b, bodies(ms), codeOf(r.setAttributes(q, "DelaySeconds", "0")))
				for _, m := range ms {
					r.wantCode(r.change(q, m, 0), "")
				}
				again := r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, MaxNumberOfMessages: 10, WaitTimeSeconds: 1})
				var in sqs.DeleteMessageBatchInput
				for j, m := range ms {
					in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: new(fmt.Sprint(j)), ReceiptHandle: m.ReceiptHandle})
				}
				if in.QueueUrl = q; len(ms) > 0 {
					out, err := r.api.DeleteMessageBatch(r.Context(), &in)
					r.wantCode(err, "")
					for _, e := range out.Successful {
						fmt.Fprint(&b, *e.Id)
					}
				}
				for _, m := range again {
					_ = r.change(q, m, 0) // it may be deleted
				}
				fmt.Fprintln(&b, r.attribute(q, "ApproximateNumberOfMessages"))
			}
			if got := r.srv.Seed(); got != seed {
				r.Fatalf("seed %d", got)
			}
			story = b.String()
		})
		return story
	}
	first := play(7, false)
	if again := play(7, false); again != first {
		t.Errorf("the same seed tells\n%s\nthen\n%s", first, again)
	}
	if beside := play(7, true); beside != first {
		t.Errorf("with another queue beside it the same seed tells\n%s\nand not\n%s", beside, first)
	}
	if other := play(8, false); other == first {
		t.Errorf("another seed tells the same\n%s", first)
	}
	if a, b := sqsfake.New(nil).Seed(), sqsfake.New(nil).Seed(); a == 0 || a == b {
		t.Errorf("seeds are drawn: %d, %d", a, b)
	}
}

// The words of the habits are those of the command's flags.
func TestHabitsAsWords(t *testing.T) {
	for _, h := range []sqsfake.StaleHandles{sqsfake.StaleRandom, sqsfake.StaleWork, sqsfake.StaleIgnored} {
		text, err := h.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back sqsfake.StaleHandles
		if err := back.UnmarshalText(text); err != nil || back != h {
			t.Errorf("%s came back as %d, %v", text, back, err)
		}
	}
	for _, p := range []sqsfake.ShortPolls{sqsfake.ShortPollsSampled, sqsfake.ShortPollsWhole} {
		text, err := p.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back sqsfake.ShortPolls
		if err := back.UnmarshalText(text); err != nil || back != p {
			t.Errorf("%s came back as %d, %v", text, back, err)
		}
	}
	var h sqsfake.StaleHandles
	if err := h.UnmarshalText([]byte("often")); err == nil {
		t.Error("a word that is none was read")
	}
	if _, err := sqsfake.ShortPolls(7).MarshalText(); err == nil {
		t.Error("a value that is none has a word")
	}
}
