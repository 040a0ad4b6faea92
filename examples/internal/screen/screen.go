// Package screen shows on a terminal how deliveries end, and ends an example when the last has.
package screen

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/onceq/onceq"
)

// A Screen is an observer of a worker.
type Screen struct {
	// Out gets a line for each delivery.
	Out io.Writer
	// Line is what to print, "" for nothing. Deliveries come one at a time.
	Line func(context.Context, *onceq.JobReport) string
	// Ends reports whether the delivery is the job's last. nil = it is, unless the job is retried.
	Ends func(*onceq.JobReport) bool
	// Left is how many jobs are to end, and Last is called when they have.
	Left int
	Last func()

	mu sync.Mutex
}

// JobStarted adds nothing to the context.
func (s *Screen) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }

// JobEnded prints a line.
func (s *Screen) JobEnded(ctx context.Context, r *onceq.JobReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// the delivery's context has mostly ended by now
	if line := s.Line(context.WithoutCancel(ctx), r); line != "" {
		fmt.Fprintln(s.Out, line)
	}
	ends := r.Outcome != onceq.OutcomeRetried
	if s.Ends != nil {
		ends = s.Ends(r)
	}
	if !ends {
		return
	}
	if s.Left--; s.Left == 0 {
		s.Last()
	}
}
