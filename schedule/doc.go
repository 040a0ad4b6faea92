// Package schedule sends jobs at set times, from as many processes as there are, each instant once.
//
//	nightly, err := schedule.Cron("30 3 * * *", "Europe/Berlin")
//	err = schedule.Run(ctx, store, func(context.Context) ([]schedule.Entry, error) {
//		return []schedule.Entry{{
//			Name: "invoices", Schedule: nightly, To: queue, CatchUp: 6 * time.Hour,
//			Message: func(at time.Time) (broker.Outgoing, error) { return onceq.Message("invoices", "", nil), nil },
//		}}, nil
//	}, nil)
//
// Nobody leads. Each process that calls [Run] tries each instant that is due, and the store lets
// one of them send it ([control.RunOnce]). The job's key is made of the entry's name and the
// instant ([Key]). So a second message of the same instant, after a crash in the wrong moment, is a
// duplicate to the workers, as any other one.
//
// An instant is sent late rather than never, for as long as [Entry].CatchUp says. The page
// docs/schedules.md has what follows from each crash.
//
// Experimental: it may change in any minor version. docs/release.md says what that means.
package schedule
