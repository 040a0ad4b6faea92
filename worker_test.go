package onceq_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
)

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := membroker.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		d, _ := membroker.New(nil)
		st, err := memstore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		var n atomic.Int64
		w, err := onceq.New(onceq.Config{
			ProcessorConfig: onceq.ProcessorConfig{
				Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
					n.Add(1)
					if string(j.Message.Body) == "7" {
						return onceq.Permanent(fmt.Errorf("seven"))
					}
					if string(j.Message.Body) == "8" {
						<-time.After(5 * time.Minute)
					}
					return nil
				}),
				Store: st, Scope: "test", DeadLetter: d,
			},
			Broker: q,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		var ms []broker.Outgoing
		for i := range 100 {
			ms = append(ms, broker.Outgoing{Body: fmt.Appendf(nil, "%d", i)})
		}
		if err := onceq.Send(t.Context(), q, ms); err != nil {
			t.Fatal(err)
		}
		<-time.After(6 * time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		fmt.Println(n.Load())
		fmt.Println(q.Depth(t.Context()))
		fmt.Println(d.Depth(t.Context()))
	})
}
