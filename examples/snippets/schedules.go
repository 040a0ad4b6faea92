package snippets

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/schedule"
)

// This file owns the functions that docs/schedules.md shows. The tests call them, one at a time,
// and nothing is locked.

func scheduler(ctx context.Context, store dedupe.Store, queue broker.Sender) error {
	nightly, err := schedule.Cron("30 3 * * *", "Europe/Berlin")
	if err != nil {
		return err
	}
	entries := []schedule.Entry{
		{
			Name: "invoices", Schedule: nightly, To: queue,
			CatchUp: 6 * time.Hour, // three hours late is better than never
			Message: func(at time.Time) (broker.Outgoing, error) {
				return onceq.Message("invoices", "", []byte(at.Format(time.DateOnly))), nil
			},
		},
		{
			Name: "rates", Schedule: schedule.Every(15 * time.Minute), To: queue,
			CatchUp: time.Hour, Latest: true, // of four missed ones the last will do
			Message: func(time.Time) (broker.Outgoing, error) { return onceq.Message("rates", "", nil), nil },
		},
	}
	return schedule.Run(ctx, store, func(context.Context) ([]schedule.Entry, error) { return entries, nil }, nil)
}

// A row of the table in which tenants say when they want their report.
type reportRow struct{ Tenant, Expr, Zone string }

func reports(queue broker.Sender, read func(context.Context) ([]reportRow, error)) func(context.Context) ([]schedule.Entry, error) {
	return func(ctx context.Context) ([]schedule.Entry, error) {
		rows, err := read(ctx)
		if err != nil {
			return nil, err // the last list goes on
		}
		var entries []schedule.Entry
		for _, row := range rows {
			e := schedule.Entry{Name: "report/" + row.Tenant, To: queue, Message: func(time.Time) (broker.Outgoing, error) {
				return onceq.Message("report", "", []byte(row.Tenant)), nil
			}}
			if e.Schedule, err = schedule.Cron(row.Expr, row.Zone); err == nil {
				err = e.Validate()
			}
			if err != nil { // one tenant's typing error is not the others'
				log.Printf("report of %s: %v", row.Tenant, err)
				continue
			}
			entries = append(entries, e)
		}
		return entries, nil
	}
}

func scheduledKey(m *broker.Message) (dedupe.Key, error) {
	var body struct {
		Schedule string    `json:"schedule"`
		At       time.Time `json:"at"`
	}
	if err := json.Unmarshal(m.Body, &body); err != nil {
		return dedupe.Key{}, err
	}
	return dedupe.Key{Key: schedule.Key(body.Schedule, body.At)}, nil
}

func fromCloudScheduler(queue broker.Sender) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		at, err := time.Parse(time.RFC3339, r.Header.Get("X-CloudScheduler-ScheduleTime"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		m := onceq.Message("invoices", schedule.Key(r.Header.Get("X-CloudScheduler-JobName"), at), nil)
		if err := onceq.SendOne(r.Context(), queue, &m); err != nil {
			http.Error(w, "not sent", http.StatusServiceUnavailable) // it calls again
		}
	}
}
