package otelonceq_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/otelonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/must"
)

// away is a store that does not answer while it is told to.
type away struct {
	dedupe.Store
	err atomic.Pointer[error]
}

func (a *away) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	if err := a.err.Load(); err != nil {
		return nil, *err
	}
	return a.Store.Get(ctx, ks)
}

func TestSeatsAndRules(t *testing.T) {
	bubble(t, rigOptions{noTraces: true}, func(t *testing.T, r *rig) {
		d := &depth{get: func(context.Context) (broker.Depth, error) { return broker.Depth{}, nil }}
		s := &away{Store: r.bare}
		stop, err := r.tel.Queues(otelonceq.QueueOptions{}, otelonceq.Queue{Name: "orders", Broker: d, Store: s})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		<-time.After(time.Second)
		r.want(r.scrape(), 0, "worker_seats", "queue=orders")
		r.seat("orders")
		r.seat("orders")
		r.seat("mails")
		// A worker that died: it is not counted once its seat is over.
		died := must.Get(controlstore.NewSeat(r.bare, controlstore.SeatOptions{Queue: "orders", Owner: "w-9"}))
		if err := died.Beat(t.Context(), &control.WorkerStatus{}); err != nil {
			t.Fatal(err)
		}
		<-time.After(34 * time.Second)
		r.addPause(control.Rule{Do: control.Pause, Queue: "orders", Scope: "orders:refund"})
		r.addPause(control.Rule{Do: control.Pause, Type: "mail"})
		r.addPause(control.Rule{Do: control.Pause, Queue: "mails"})
		r.addPause(control.Rule{Do: control.Limit, Queue: "orders", Slots: 3})
		rules, err := controlstore.Read(t.Context(), r.bare)
		if err != nil || len(rules.Rules) != 4 {
			t.Fatal(rules, err)
		}
		made := func(i int) float64 { return float64(rules.Rules[i].Made.UnixMilli()) / 1000 }
		<-time.After(2 * time.Minute)
		fs := r.scrape()
		r.want(fs, 2, "worker_seats", "queue=orders")
		r.want(fs, made(0), "pause_since_seconds", "queue=orders", "scope=orders:refund", "type=")
		r.want(fs, made(1), "pause_since_seconds", "queue=orders", "scope=", "type=mail")
		if n := len(fs["pause_since_seconds"].GetMetric()); n != 2 {
			t.Errorf("%d pauses: %v", n, fs["pause_since_seconds"])
		}
		// Rules end; a store that does not answer hides the seats, and is told of once.
		if _, err := controlstore.Change(t.Context(), r.bare, func(rs *controlstore.Rules) error { rs.Rules = nil; return nil }); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		if _, there := r.scrape()["pause_since_seconds"]; there {
			t.Error("a rule that was removed is shown")
		}
		r.addPause(control.Rule{Do: control.Pause, Queue: "orders"})
		<-time.After(time.Minute)
		s.err.Store(&errBoom)
		<-time.After(time.Minute)
		if n := len(r.scrape()["pause_since_seconds"].GetMetric()); n != 1 {
			t.Errorf("a minute later %d pauses are shown", n)
		}
		<-time.After(4 * time.Minute)
		fs = r.scrape()
		for _, old := range []string{"worker_seats", "pause_since_seconds"} {
			if _, there := fs[old]; there {
				t.Errorf("%s that nobody could read for five minutes is shown", old)
			}
		}
		if got := r.log.Lines("seats of a queue cannot be read"); len(got) != 1 {
			t.Errorf("%d log lines", len(got))
		}
		// The depth is read all the same.
		r.want(r.scrape(), 0, "queue_depth", "queue=orders", "state=visible")
	})
}
