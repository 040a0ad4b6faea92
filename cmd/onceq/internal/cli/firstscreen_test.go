package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/must"
)

// crowd fills the rig with queues, and workers at each.
func (r *rig) crowd(queues, workers int) {
	r.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "profiles:\n  test:\n    store: %s\n    queues:\n", r.storeURL)
	for q := range queues {
		name := fmt.Sprint("queue-", q)
		r.open(name+"-dead", nil)
		r.open(name, map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:` + name + `-dead","maxReceiveCount":40}`})
		fmt.Fprintf(&b, "      %s: sqs+%s/%s\n", name, r.server.URL, name)
		for w := range workers {
			s := must.Get(controlstore.NewSeat(r.store, controlstore.SeatOptions{Queue: name, Owner: fmt.Sprintf("w-%d/%d", q, w)}))
			r.beat(s, nil)
		}
	}
	r.config(b.String())
}

// TestFirstScreenCalls: a frame of five queues asks for each queue and its dead-letter queue where
// they are, which is the dead-letter queue, and how deep both are.
func TestFirstScreenCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crowd(5, 3)
	r.server.ResetLog()
	r.run("top").want(0, "queue-4", "w-4/2")
	if n := r.server.Counts(); n["GetQueueUrl"] != 10 || n["GetQueueAttributes"] != 15 || len(n) != 2 {
		t.Errorf("%v", n)
	}
}
