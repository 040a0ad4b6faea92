package onceq_test

import (
	"context"
	"sync"
	"testing"

	"github.com/onceq/onceq"
)

// TestLooksAtAnyTime: many goroutines look at a Worker and its Processor, and pause it, while it
// starts, works, drains and starts again, beside batches and calls of Do.
func TestLooksAtAnyTime(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error {
		takes(3 * sec)
		return nil
	}, func(r *rig) {
		p, err := onceq.NewProcessor(r.cfg.ProcessorConfig)
		if err != nil {
			t.Fatal(err)
		}
		if r.w, err = p.Worker(r.q, r.cfg.WorkerConfig); err != nil {
			t.Fatal(err)
		}
		b, err := p.Batches(onceq.BatchConfig{DeadLetter: r.dlq, Name: "pushed"})
		if err != nil {
			t.Fatal(err)
		}
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
					h := r.w.Health()
					for _, s := range []onceq.Stats{r.w.Stats(), p.Stats()} {
						if s.Busy < 0 || s.Held < 0 || s.Unsettled < 0 || s.Leases < 0 || s.Busy > s.Slots || h.Live(nil) != nil {
							t.Errorf("%+v, %+v", s, h)
						}
					}
					if n == 0 && i%10 == 0 {
						r.w.Pause()
						r.w.Resume()
					}
					takes(sec / 7)
				}
			})
		}
		for run := range 5 {
			r.send(numbered(string(rune('a'+run)), 20)...)
			r.start()
			all.Go(func() {
				b.Process(r.Context(), lasting(sec*60, numbered(string(rune('p'+run)), 5)...), nil, func(int, onceq.Disposition) {})
			})
			all.Go(func() {
				_, _ = onceq.Do(r.Context(), p, key("d"), nil, func(context.Context, *onceq.Job) (int, error) { takes(sec); return 0, nil })
			})
			pass(5 * sec)
			if err := r.stop(); err != nil {
				t.Error(err)
			}
		}
		pass(20 * sec)
		close(over)
		all.Wait()
		r.wantSlots(p.Stats(), slotsOf{})
	})
}
