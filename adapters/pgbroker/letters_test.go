package pgbroker

import (
	"fmt"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/must"
)

// Of 40,000 letters any number can be replayed: those that the plan lists, and no others, although
// the queue hands out what was given back after everything else.
func TestReplayOfFewOfManyLetters(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	dead, orders := newQueue(t, pool, newName(), nil), newQueue(t, pool, newName(), nil)
	const n, most = 40_000, 5000
	at := time.Now().Add(-time.Hour)
	for from := 0; from < n; from += 1000 {
		ls := make([]broker.Outgoing, 1000)
		for i := range ls {
			key := fmt.Sprintf("A-%d", from+i)
			ls[i] = broker.Outgoing{Body: []byte(key), Meta: &broker.Meta{ID: "j-" + key, Key: key, Type: "charge", Dead: &broker.Letter{
				Fence: uint64(from + i + 1), Class: "timeout", LastErr: "the bank did not answer", Attempts: 3, Source: "orders", At: at,
			}}}
		}
		if _, err := dead.Send(t.Context(), ls); err != nil {
			t.Fatal(err)
		}
	}
	letters := must.Get(dlq.New(dead, &dlq.Options{Name: "orders-dead"}))
	plan, err := letters.PlanReplay(t.Context(), dlq.ReplayOptions{To: orders, Filter: dlq.Filter{Max: most}})
	if err != nil || len(plan.Letters) != most {
		t.Fatal(err)
	}
	rep, err := letters.Replay(t.Context(), dlq.ReplayOptions{To: orders, Plan: plan})
	if err != nil || rep.Replayed != most || rep.Missing != 0 {
		t.Errorf("%v, %v", err, rep)
	}
	d, err := dead.Depth(t.Context())
	if err != nil || d.Visible+d.InFlight != n-most {
		t.Errorf("%+v, %v", d, err)
	}
	planned := plan.Letters[0].Key
	if found, err := letters.Get(t.Context(), planned); err == nil {
		t.Errorf("%s is still there: %v", planned, found)
	}
}
