package places

import (
	"context"
	"fmt"
	"time"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
)

// This file owns the redrive of the service's own. The package cli calls it, from one goroutine.

// A Redrive is a task of the service that moves dead letters back by itself.
type Redrive struct {
	Handle, Status, Failure string
	Moved, Total            int64
	Started                 time.Time
}

// IsRunning reports whether the task moves messages.
func (r *Redrive) IsRunning() bool { return r.Status == "RUNNING" || r.Status == "CANCELLING" }

func redriver(b broker.Broker) (*awssqs.Broker, error) {
	q, ok := broker.As[*awssqs.Broker](b)
	if !ok {
		return nil, fmt.Errorf("%w: only SQS moves dead letters back by itself", broker.ErrUnsupported)
	}
	return q, nil
}

// StartRedrive has the service move all letters back.
func StartRedrive(ctx context.Context, dead broker.Broker, perSecond int) (handle string, err error) {
	q, err := redriver(dead)
	if err != nil {
		return "", err
	}
	return q.StartRedrive(ctx, &awssqs.RedriveOptions{PerSecond: perSecond})
}

// Redrives are the newest tasks, the last one first.
func Redrives(ctx context.Context, dead broker.Broker) ([]Redrive, error) {
	q, err := redriver(dead)
	if err != nil {
		return nil, err
	}
	ts, err := q.RedriveTasks(ctx)
	var l []Redrive
	for _, t := range ts {
		l = append(l, Redrive{Handle: t.Handle, Status: t.Status, Failure: t.Failure, Moved: t.Moved, Total: t.Total, Started: t.Started})
	}
	return l, err
}

// CancelRedrive ends a task.
func CancelRedrive(ctx context.Context, dead broker.Broker, handle string) (moved int64, err error) {
	q, err := redriver(dead)
	if err != nil {
		return 0, err
	}
	return q.CancelRedrive(ctx, handle)
}
