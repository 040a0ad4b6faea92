package pubsubpush

import (
	"context"
	"fmt"
	"time"
)

// Subscription tells how a subscription is set, as the driver of Pub/Sub does.
type Subscription interface {
	// AckDeadline asks for the acknowledgement deadline.
	AckDeadline(ctx context.Context) (time.Duration, error)
}

// Check compares Options.AckDeadline with the subscription's, for a program's start. It is an error
// where the subscription's is shorter: Pub/Sub would give up requests that are still worked on, and
// send their messages again.
func (h *Handler) Check(ctx context.Context, s Subscription) error {
	d, err := s.AckDeadline(ctx)
	if err != nil {
		return fmt.Errorf("pubsubpush: asking for the subscription's acknowledgement deadline: %w", err)
	}
	if d < h.o.AckDeadline {
		return fmt.Errorf("pubsubpush: the subscription's acknowledgement deadline is %v, and Options.AckDeadline %v: Pub/Sub gives a request up before its job may end",
			d, h.o.AckDeadline)
	}
	return nil
}
