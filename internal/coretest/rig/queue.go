package rig

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/faulty"
)

// PutRaw sends without what Send would refuse.
func (r *Rig) PutRaw(ms ...broker.Outgoing) []string {
	r.Helper()
	ids, err := r.Q.Send(r.Context(), ms)
	if err != nil {
		r.Fatal(err)
	}
	return ids
}

// Config is one that is taken.
func Config(t *testing.T) Setup {
	t.Helper()
	return Setup{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: Returns(nil), Store: NewStore(t), Scope: Scope,
		},
		WorkerConfig: onceq.WorkerConfig{DeadLetter: NewBroker(t, membroker.Options{})},
		Broker:       NewBroker(t, membroker.Options{}),
	}
}

// Limited is a broker with other limits.
type Limited struct {
	*membroker.Broker
	L broker.Limits
}

func (b Limited) Limits() broker.Limits { return b.L }

// SendForeign puts messages as a producer does that does not use onceq.
func (r *Rig) SendForeign(bodies ...string) {
	r.Helper()
	for _, b := range bodies {
		if err := r.Q.SendRaw(r.Context(), []byte(b), nil); err != nil {
			r.Fatal(err)
		}
	}
}

func Grouped(groups, each int) (texts []string) {
	for i := range each {
		for g := range groups {
			texts = append(texts, fmt.Sprintf("%c/%c%02d", 'a'+g, 'a'+g, i))
		}
	}
	return texts
}

var Ordered = []membroker.Preset{membroker.Memory, membroker.SQSFIFO, membroker.PubSub}

// picky is a dead-letter queue that does not take everything.
type picky struct {
	*faulty.Broker
	refuse func(o *broker.Outgoing) error
}

func (p *picky) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	ids, errs := make([]string, len(ms)), make([]error, len(ms))
	for i := range ms {
		if errs[i] = p.refuse(&ms[i]); errs[i] == nil {
			if _, err := p.Broker.Send(ctx, ms[i:i+1]); err != nil {
				return nil, err
			}
		}
	}
	return ids, broker.JoinEntries(errs)
}

func Refusing(refuse func(o *broker.Outgoing) error) Option {
	return func(r *Rig) { r.Cfg.DeadLetter = &picky{r.DLQ, refuse} }
}

// Keeping is a queue that tells how long it keeps messages.
type Keeping struct {
	broker.Broker
	Kept time.Duration
	Err  error
}

func (k Keeping) Redrive(context.Context) (broker.RedrivePolicy, error) {
	return broker.RedrivePolicy{Retention: k.Kept}, k.Err
}
