package sqslambda_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/sqslambda"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

const presetFIFO = membroker.SQSFIFO

// limitless is a queue whose limits cannot be.
type limitless struct{ broker.Receiver }

func (limitless) Limits() broker.Limits { return broker.Limits{} }

func TestHandlerRefuses(t *testing.T) {
	p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }),
		Store:   onceq.NoStore, Scope: "orders",
	}))
	b := must.Get(p.Batches(onceq.BatchConfig{DeadLetter: onceq.KeepInQueue}))
	for want, o := range map[string]sqslambda.Options{
		"Options.Concurrency: -1":                                {Concurrency: -1},
		"Options.Concurrency: 1001":                              {Concurrency: 1001},
		"Options.Reserve: -1s":                                   {Reserve: -time.Second},
		"Options.Reserve: 11m0s":                                 {Reserve: 11 * time.Minute},
		"Options.MinTime: -1s":                                   {MinTime: -time.Second},
		"Options.MinTime: 15m0s":                                 {MinTime: 15 * time.Minute},
		"Options.Reserve: 5ns is below 1ms; is its unit missing": {Reserve: 5},
		"Options.MinTime: 1ns is below 1ms; is its unit missing": {MinTime: 1},
		"Options.MinTime: 2562047h":                              {MinTime: math.MaxInt64},
		"Options.Reserve: 2562047h":                              {Reserve: math.MaxInt64},
		"Options.Concurrency: 92233":                             {Concurrency: math.MaxInt},
		"Options.Unwrap: 0x8":                                    {Unwrap: 8},
		"Options.TrustTopics: Options":                           {TrustTopics: []string{"arn:aws:sns:us-west-2:123456789012:T"}},
		"Options.TrustTopics: \"T\"":                             {Unwrap: sqslambda.SNS, TrustTopics: []string{"T"}},
		"Options.Queue: its Limits()":                            {Queue: limitless{}},
	} {
		if _, err := sqslambda.Handler(b, &o); err == nil || !strings.HasPrefix(err.Error(), "sqslambda: "+want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
	if _, err := sqslambda.Handler(nil, nil); err == nil || !strings.Contains(err.Error(), "Batches are nil") {
		t.Errorf("no Batches: %v", err)
	}
	for _, o := range []*sqslambda.Options{
		nil,
		{},
		{Concurrency: 1000, Reserve: 10 * time.Minute, MinTime: 14 * time.Minute, Unwrap: sqslambda.AllEnvelopes},
		{Queue: (*membroker.Broker)(nil)}, // none, as nil is
	} {
		if _, err := sqslambda.Handler(b, o); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
