package snippets

import (
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/limit"
)

func perTenant(h onceq.Handler) (onceq.Handler, error) {
	l, err := limit.Rate(10, time.Second)
	if err != nil {
		return nil, err
	}
	tenant := func(j *onceq.Job) string { return j.Message.Attributes["tenant"] }
	return onceq.Chain(h, limit.Middleware(l, tenant)), nil
}

func perTenantInTheFleet(h onceq.Handler, store dedupe.Store) (onceq.Handler, error) {
	l, err := limit.Shared(store, "calls", 5, time.Second) // a second at least
	if err != nil {
		return nil, err
	}
	tenant := func(j *onceq.Job) string { return j.Message.Attributes["tenant"] }
	return onceq.Chain(h, limit.Middleware(l, tenant)), nil
}

func asTheAPIAllows(h onceq.Handler, store dedupe.Store) (onceq.Handler, error) {
	rate, err := limit.Shared(store, "bank", 600, time.Minute)
	if err != nil {
		return nil, err
	}
	places, err := limit.Slots(store, "bank", 8)
	if err != nil {
		return nil, err
	}
	return onceq.Chain(h, places, limit.Middleware(rate, nil)), nil
}

func charging(charge onceq.Handler, c onceq.ProcessorConfig, queue broker.Receiver, dead broker.Sender) (*onceq.Worker, error) {
	b, err := limit.NewBreaker(&limit.BreakerOptions{Name: "bank", Classes: []string{"bank-away", onceq.ClassTimeout}})
	if err != nil {
		return nil, err
	}
	c.Handler = onceq.Chain(charge, b.Middleware())
	p, err := onceq.NewProcessor(c)
	if err != nil {
		return nil, err
	}
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead})
	if err == nil {
		b.Watch(w)
	}
	return w, err
}
