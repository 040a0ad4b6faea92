package snippets

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// screen tells each browser what is on the board, as it changes. Fifty browsers cost the queues
// what one does.
func screen(board *ops.Board, acts *ops.Running) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			seen, acted := board.Changed(), acts.Changed() // before the looks, so that no change is missed
			s, err := board.Look(r.Context())
			if err != nil {
				return // the browser has gone, or the board was closed
			}
			event := map[string]any{"at": s.At, "acts": len(acts.Acts())}
			for _, q := range s.Queues {
				event[q.Queue] = q.Samples[len(q.Samples)-1]
			}
			b, err := json.Marshal(event)
			if err != nil {
				return
			}
			if _, err = w.Write([]byte("data: " + string(b) + "\n\n")); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case <-seen:
			case <-acted:
			case <-r.Context().Done():
				return
			}
		}
	})
}

// begin plans a replay of one kind of failure, and begins it: five letters, then more as long as
// all of their jobs are done. It goes on when the request has ended.
func begin(ctx context.Context, board *ops.Board, acts *ops.Running, o *ops.Ops, queue, group string) (id string, err error) {
	spec := ops.ReplaySpec{Queue: queue, Reason: "the bank is back", ReplayOptions: dlq.ReplayOptions{
		Filter: dlq.Filter{Group: group}, Canary: 5, Ramp: true, PerSecond: 50,
	}}
	err = board.WithLetters(ctx, queue, func(ctx context.Context) error {
		plan, err := o.PlanReplay(ctx, spec)
		if err != nil {
			return err
		}
		id, err = acts.Replay(ctx, o, plan)
		return err
	})
	return id, err
}
