package ops_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/ops"
	"github.com/onceq/onceq/schedule"
)

// TestSchedules: operators see each entry with its last job and its next instant, by a scheduler
// and a worker that run; the job's scope is the entry's, or one of the target's.
func TestSchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memstore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		queue, err := membroker.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		dead, err := membroker.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "jobs", Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			if string(j.Message.Body) == "bad" {
				return onceq.Permanent(errors.New("bad"))
			}
			return nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = w.Run(ctx) }()
		entry := func(name, scope string, s schedule.Schedule) schedule.Entry {
			return schedule.Entry{Name: name, Scope: scope, Schedule: s, To: queue, Message: func(time.Time) (broker.Outgoing, error) { return onceq.Message("", "", []byte(name)), nil }}
		}
		go func() {
			_ = schedule.Run(ctx, store, func(context.Context) ([]schedule.Entry, error) {
				return []schedule.Entry{entry("good", "jobs", schedule.Every(time.Hour)), entry("bad", "", schedule.Every(time.Hour)), entry("later", "", schedule.Every(24*time.Hour))}, nil
			}, nil)
		}()
		<-time.After(150 * time.Minute)
		o, err := ops.New([]ops.Target{{Name: "q", Queue: queue, Store: store, Scopes: []string{"jobs"}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		states, err := o.Schedules(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range states {
			status := dedupe.Status(0)
			if s.Job != nil {
				status = s.Job.Status
			}
			got = append(got, fmt.Sprintf("%s %s last %s %v next %s silent %v", s.Name, s.Spec, s.Last.Format("15:04"), status, s.Next.Format("15:04"), s.Silent))
		}
		want := []string{
			"bad every 1h0m0s last 02:00 failed next 03:00 silent false",
			"good every 1h0m0s last 02:00 done next 03:00 silent false",
			"later every 24h0m0s last 00:00 none next 00:00 silent false",
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
