package gocloudpubsub

import (
	"context"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/broker"
)

// service settles and extends past gocloud. Its calls answer by position.
type service struct {
	// hold hides each delivery for its time. Where nacks is set, 0 shows it at once.
	hold  func(ctx context.Context, ds []*delivery, times []time.Duration) error
	nacks bool
	// ack ends the deliveries; nil = gocloud does it.
	ack func(ctx context.Context, ds []*delivery) error
	// visibility is the queue's own timeout; nil = the Options have it.
	visibility func(ctx context.Context) (time.Duration, error)
}

// extendEach makes a call for each different time.
func (x *Extender) extendEach(ctx context.Context, ds []*delivery, times []time.Duration) error {
	return byTime(times, func(d time.Duration, at []int) error {
		ms := make([]*pubsub.Message, len(at))
		for n, i := range at {
			ms[n] = ds[i].m
		}
		return x.Extend(ctx, ms, d)
	})
}

// byTime calls do for the entries of each time.
func byTime(times []time.Duration, do func(d time.Duration, at []int) error) error {
	var order []time.Duration
	at := make(map[time.Duration][]int)
	for i, d := range times {
		if at[d] == nil {
			order = append(order, d)
		}
		at[d] = append(at[d], i)
	}
	errs := make([]error, len(times))
	for _, d := range order {
		err := do(d, at[d])
		for n, i := range at[d] {
			errs[i] = broker.ErrAt(err, n)
		}
	}
	return broker.JoinEntries(errs)
}

func receivedOf(m *pubsub.Message) *pubsubpb.ReceivedMessage {
	var r *pubsubpb.ReceivedMessage
	if !m.As(&r) {
		return nil
	}
	return r
}

// seconds rounds up: what a service is asked for is never shorter than what was promised.
func seconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }
