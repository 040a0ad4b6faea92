package awssqs_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/rig"
)

// entries counts what is written into a store: each entry of a batch is a write of its own where
// writes are billed.
type entries struct {
	dedupe.Store
	n atomic.Int64
}

func (e *entries) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	e.n.Add(int64(len(rs)))
	return e.Store.Claim(ctx, rs)
}

func (e *entries) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	e.n.Add(int64(len(rs)))
	return e.Store.Renew(ctx, rs)
}

func (e *entries) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	e.n.Add(int64(len(ss)))
	return e.Store.Settle(ctx, ss)
}

// TestMillionJobs: the table in docs/production.md says what a million jobs cost. Its requests, and
// the writes of a store, are counted again here, and its dollars follow from them.
func TestMillionJobs(t *testing.T) {
	page := must.Get(os.ReadFile("../../docs/production.md"))
	told := func(row string) (counted, dollars float64) {
		t.Helper()
		m := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(row) + ` \| ([\d.]+) [^|]*\| ([\d.]+) \|`).FindSubmatch(page)
		if m == nil {
			t.Fatalf("docs/production.md has no row %q", row)
		}
		counted, _ = strconv.ParseFloat(string(m[1]), 64)
		dollars, _ = strconv.ParseFloat(string(m[2]), 64)
		return counted, dollars
	}
	const perRequest, perUnit = 0.40, 0.625
	for _, c := range []struct {
		row   string
		alone bool
		sends float64
	}{
		{"SQS, standard, busy", false, 0.1},
		{"SQS, standard, each sent alone, 100 a second, `PollPause` 500 ms", true, 1},
	} {
		inWorld(t, false, func(w *world) {
			const jobs = 2000
			store := &entries{Store: w.Store}
			work := func() *rig.Worker {
				return w.Work(rig.Works(0), func(c2 *rig.Config) {
					c2.Store, c2.Concurrency, c2.SweepEvery = store, 64, -1
					c2.Control.Every = -1
					if c.alone {
						c2.PollPause, c2.Pollers = 500*time.Millisecond, 16
					}
				})
			}
			var p *rig.Worker
			if c.alone {
				p = work()
			}
			for i := 0; i < jobs; i += 10 {
				for j := range 10 {
					if c.alone {
						w.Put("", fmt.Sprint(i+j))
						<-time.After(10 * time.Millisecond)
					}
				}
				if !c.alone {
					var keys []string
					for j := range 10 {
						keys = append(keys, fmt.Sprint(i+j))
					}
					w.Put("", keys...)
				}
			}
			if !c.alone {
				p = work()
			}
			w.Until(time.Minute, "every job done", w.AllDone(jobs))
			<-time.After(time.Second)
			requests := p.Queue.(*awssqs.Broker).Stats().PerMessage() + c.sends
			p.Drain()
			counted, dollars := told(c.row)
			if math.Abs(requests-counted) > 0.02 || math.Abs(counted*perRequest-dollars) > 0.006 {
				w.Errorf("%s: %.3f requests a job; the page says %v, and %v $", c.row, requests, counted, dollars)
			}
			writes := float64(store.n.Load()) / jobs
			units, dollars := told("DynamoDB")
			if writes != units || math.Abs(units*perUnit-dollars) > 0.006 {
				w.Errorf("%v writes a job; the page says %v, and %v $", writes, units, dollars)
			}
		})
	}
}
