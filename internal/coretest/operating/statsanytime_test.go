package operating

import (
	"context"
	"sync"
	"testing"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
)

// TestLooksAtAnyTime: many goroutines look at a Worker and its Processor, and pause it, while it
// starts, works, drains and starts again, beside batches and calls of Do.
func TestLooksAtAnyTime(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		rig.Takes(3 * sec)
		return nil
	}, func(r *rig.Rig) {
		p, err := onceq.NewProcessor(r.Cfg.ProcessorConfig)
		if err != nil {
			t.Fatal(err)
		}
		if r.W, err = p.Worker(r.Q, r.Cfg.WorkerConfig); err != nil {
			t.Fatal(err)
		}
		b := must.Get(p.Batches(onceq.BatchConfig{DeadLetter: r.DLQ, Name: "pushed"}))
		over := make(chan struct{})
		var all sync.WaitGroup
		for n := range 4 {
			all.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-over:
						return
					default:
					}
					h := r.W.Health()
					for _, s := range []onceq.Stats{r.W.Stats(), p.Stats()} {
						if s.Busy < 0 || s.Held < 0 || s.Unsettled < 0 || s.Leases < 0 || s.Busy > s.Slots || h.Live(nil) != nil {
							t.Errorf("%+v, %+v", s, h)
						}
					}
					if n == 0 && i%10 == 0 {
						r.W.Pause()
						r.W.Resume()
					}
					rig.Takes(sec / 7)
				}
			})
		}
		for run := range 5 {
			r.Send(rig.Numbered(string(rune('a'+run)), 20)...)
			r.Start()
			all.Go(func() {
				b.Process(r.Context(), rig.Lasting(sec*60, rig.Numbered(string(rune('p'+run)), 5)...), nil, func(int, onceq.Disposition) {})
			})
			all.Go(func() {
				_, _ = onceq.Do(r.Context(), p, rig.Key("d"), nil, func(context.Context, *onceq.Job) (int, error) { rig.Takes(sec); return 0, nil })
			})
			rig.Pass(5 * sec)
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
		}
		rig.Pass(20 * sec)
		close(over)
		all.Wait()
		wantSlots(r, p.Stats(), slotsOf{})
	})
}
