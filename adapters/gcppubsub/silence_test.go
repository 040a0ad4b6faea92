package gcppubsub_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/dlq"
)

// TestLettersBehindSilence lists letters while pulls stall. One that had no answer is no reason to
// tell an operator that there are no letters.
func TestLettersBehindSilence(t *testing.T) {
	for _, c := range []struct {
		name   string
		fault  pubsubfake.Fault
		listed int
	}{
		{"one pull", pubsubfake.Fault{Method: "Pull", Silence: true, Count: 1}, 10},
		{"half a minute", pubsubfake.Fault{Method: "Pull", Silence: true, For: 30 * time.Second}, 10},
		{"for good", pubsubfake.Fault{Method: "Pull", Silence: true}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorldOf(t, kinds[0], nil, func(w *world) {
				p := w.Work(func(context.Context, *onceq.Job) error { return onceq.Permanent(errors.New("no")) }, nil)
				w.Put("", numbers(10)...)
				w.Until(time.Minute, "ten letters", func() bool { return w.srv.Stats(w.deadSub).Unacked() == 10 })
				p.Drain()
				w.srv.SetFaults(c.fault)
				q, err := dlq.New(w.letters, nil)
				if err != nil {
					w.Fatal(err)
				}
				listed := 0
				for _, e := range q.List(w.Context(), dlq.Filter{}) {
					if err = e; err != nil {
						break
					}
					listed++
				}
				if listed != c.listed || (err == nil) != (listed > 0) {
					w.Errorf("%d letters were listed: %v", listed, err)
				}
			})
		})
	}
}
