package dlq

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/ahead"
)

// longestHop is the longest delay of a message where its queue can delay no nack: the worker holds
// the message for that long.
const longestHop = 12 * time.Hour

// keepingOf is what a queue does to messages that wait for their time. The zero Queue stands for
// one that does not tell; its worker decides then.
func (q *Queue) keepingOf(ctx context.Context, to broker.Sender) ahead.Queue {
	p, ok := broker.As[broker.Redriver](to)
	if !ok {
		return ahead.Queue{}
	}
	one, cancel := q.ctx(ctx)
	defer cancel()
	policy, err := p.Redrive(one)
	if err != nil {
		return ahead.Queue{}
	}
	return ahead.Queue{Keeps: policy.Retention, Receives: policy.MaxReceives, Hop: cmp.Or(to.Limits().MaxNack, longestHop)}
}

// notYet says why a job is not sent now, because the queue would not keep it until it is due; nil
// = it is sent. Its worker would refuse it once more.
func notYet(m *broker.Meta, keeps func() ahead.Queue) error {
	if m == nil || m.NotBefore.IsZero() {
		return nil
	}
	now := time.Now()
	if !m.NotBefore.After(now) {
		return nil
	}
	q := keeps()
	why := q.Refuses(m.NotBefore, now, now, 1)
	if why == "" {
		return nil
	}
	return fmt.Errorf("%s: replay it from %s on, or Edit gives it another NotBefore", why, q.From(m.NotBefore).UTC().Format(time.RFC3339))
}
