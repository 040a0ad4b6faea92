package schedule_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/schedule"
)

// Three processes have the same entry, and each hour one of them sends its job. The example is in
// virtual time.
func ExampleRun() {
	inBubble(func() {
		store, _ := memstore.New(nil)
		queue, _ := membroker.New(nil)
		ctx, stop := context.WithCancel(context.Background())
		entry := schedule.Entry{
			Name: "rates", Schedule: schedule.Every(time.Hour), To: queue,
			Message: func(time.Time) (broker.Outgoing, error) { return onceq.Message("rates", "", nil), nil },
		}
		ended := make(chan error)
		for range 3 {
			go func() {
				ended <- schedule.Run(ctx, store, func(context.Context) ([]schedule.Entry, error) { return []schedule.Entry{entry}, nil }, nil)
			}()
		}
		<-time.After(2*time.Hour + time.Minute)
		stop()
		for range 3 {
			fmt.Println("Run:", <-ended)
		}
		ms, _ := queue.Receive(context.Background(), broker.ReceiveOptions{Max: 10})
		for _, m := range ms {
			fmt.Println(m.Meta.Type, m.Meta.Key)
		}
	})
	// Output:
	// Run: <nil>
	// Run: <nil>
	// Run: <nil>
	// rates rates@2000-01-01T01:00:00Z
	// rates rates@2000-01-01T02:00:00Z
}

// inBubble runs f in virtual time. A test needs only synctest.Test for that; an example has no
// *testing.T. The flags -v, -count and -cpu are set aside meanwhile, because they would show in the
// example's output.
func inBubble(f func()) {
	verbose := flag.Lookup("test.v").Value
	defer func(was string) { _ = verbose.Set(was) }(verbose.String())
	_ = verbose.Set("false")
	var once sync.Once
	testing.RunTests(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "example", F: func(t *testing.T) {
			t.Helper()
			once.Do(func() { synctest.Test(t, func(*testing.T) { f() }) })
		},
	}})
}

// In Berlin the clock is put forward from 02:00 to 03:00 on March 29, 2026, and back from 03:00 to
// 02:00 on October 25.
func ExampleCron() {
	s, err := schedule.Cron("30 2 * * *", "Europe/Berlin")
	if err != nil {
		fmt.Println(err) // this host has no data of zones
		return
	}
	for _, day := range []string{"2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"} {
		at, _ := time.Parse(time.RFC3339, day)
		for range 2 {
			at = s.Next(at)
			fmt.Println(at.Format("Jan 2 15:04 MST"))
		}
	}
	_, err = schedule.Cron("0 0 30 2 *", "UTC")
	fmt.Println(err)
	// Output:
	// Mar 29 03:00 CEST
	// Mar 30 02:30 CEST
	// Oct 25 02:30 CEST
	// Oct 26 02:30 CET
	// schedule: Cron: "0 0 30 2 *": the day of the month: none of these months has such a day
}

// All processes agree on the instants of an interval, whenever they were started.
func ExampleEvery() {
	at := time.Date(2026, 11, 26, 17, 28, 3, 0, time.UTC)
	fmt.Println(schedule.Every(15 * time.Minute).Next(at).Format(time.TimeOnly))
	fmt.Println(schedule.Every(time.Hour))
	// Output:
	// 17:30:00
	// every 1h0m0s
}

// A schedule's text is the schedule, so a table may keep it.
func ExampleParse() {
	s, err := schedule.Parse("30 3 * * mon-fri UTC")
	fmt.Println(s, err)
	_, err = schedule.Parse("every 5")
	fmt.Println(err)
	// Output:
	// 30 3 * * mon-fri UTC <nil>
	// schedule: Parse: time: missing unit in duration "5"
}

// What another scheduler delivers twice is one job by the key of its name and the scheduled time.
func ExampleKey() {
	at, _ := time.Parse(time.RFC3339, "2026-11-26T04:30:00+02:00") // as the scheduler tells it
	fmt.Println(schedule.Key("invoices", at))
	// Output: invoices@2026-11-26T02:30:00Z
}

// A list that others write is looked through before it is answered: Run takes a list as a whole.
func ExampleEntry_Validate() {
	queue, _ := membroker.New(nil)
	e := schedule.Entry{
		Name: "rates", Schedule: schedule.Every(time.Hour), To: queue, CatchUp: 60 * 24 * time.Hour,
		Message: func(time.Time) (broker.Outgoing, error) { return onceq.Message("rates", "", nil), nil },
	}
	fmt.Println(strings.ReplaceAll(e.Validate().Error(), ": ", ":\n"))
	// Output:
	// schedule:
	// the entry "rates":
	// CatchUp is 1440h0m0s, the limit is Retention, 744h0m0s:
	// a later message would find no key, and run again
}
