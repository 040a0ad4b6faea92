package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/onceqtest"
)

func TestProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		without, with, deployed := run(t.Context(), &out)

		_, twice, _ := without.count()
		require.Equal(t, pages, twice, "the trap is gone: %s", &out)

		total, twice, missing := with.count()
		require.Equal(t, []int{pages, 0, 0}, []int{total, twice, missing}, "%s", &out)
		require.Len(t, with.records, 1)
		r := with.records[0]
		require.Equal(t, onceq.OutcomeDone, r.Outcome)
		require.Equal(t, pages*pageTime, r.Process)
		require.True(t, r.Heartbeat)
		require.GreaterOrEqual(t, r.Beats, int(r.Process/visibility), "%s", &out)
		require.Equal(t, 1, r.Receives, "the message was never visible")

		total, twice, missing = deployed.count()
		require.Equal(t, []int{pages, 0, 0}, []int{total, twice, missing}, "%s", &out)
		require.Len(t, deployed.records, 2)
		require.Equal(t, onceq.OutcomeHandedBack, deployed.records[0].Outcome)
		require.Equal(t, onceq.OutcomeDone, deployed.records[1].Outcome)
		require.Equal(t, 1, deployed.records[1].Attempt, "a deploy is nobody's failure")
		require.Contains(t, out.String(), "the worker stops: bookmark before page 8")
	})
}

// worker runs the report in a process of its own, until it is done or the process is dead. It
// answers when the handler last returned.
func work(t *testing.T, process *onceqtest.Process, p *press, queue, dead *membroker.Broker, store *memstore.Store) (returned time.Time) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	p.stop = stop
	c := p.jobs(process.Store(store))
	c.Handler = onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
		err := p.print(ctx, j)
		returned = time.Now()
		select {
		case <-process.Dead():
			stop() // the test need not wait for what a dead worker tries in vain
		default:
		}
		return err
	})
	w, err := worker(c, process.Receiver(queue), process.Sender(dead))
	require.NoError(t, err)
	_ = w.Run(ctx) // a dead one's end is not looked at
	return returned
}

// The worker dies in the middle. Its handler stops before the lease has run out, so that it never
// prints beside the next one; that one goes on at the bookmark.
func TestKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, dead, store := must(membroker.New(nil)), must(membroker.New(nil)), must(memstore.New(nil))
		check(onceq.SendOne(t.Context(), queue, &broker.Outgoing{Meta: &broker.Meta{Key: "report-7"}}))
		var out strings.Builder
		p := newPress(&out)
		var killed time.Time
		process := new(onceqtest.Process)
		p.onPage = func(page int) {
			if page == 5 {
				killed = time.Now()
				process.Kill()
			}
		}
		returned := work(t, process, p, queue, dead, store)
		require.WithinRange(t, returned, killed, killed.Add(visibility), "the handler stops within its lease")
		require.Contains(t, out.String(), "somebody else may have the job now")
		total, _, _ := p.count()
		require.Less(t, total, pages)

		p.onPage = func(int) {}
		work(t, new(onceqtest.Process), p, queue, dead, store)
		total, twice, missing := p.count()
		require.Equal(t, []int{pages, 0, 0}, []int{total, twice, missing}, "%s", &out)
		last := p.records[len(p.records)-1]
		require.Equal(t, onceq.OutcomeDone, last.Outcome)
		require.Equal(t, 2, last.Attempt, "a death counts")
	})
}

// The message comes a second time while the first is worked on: one report.
func TestDuplicateWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, dead, store := must(membroker.New(nil)), must(membroker.New(nil)), must(memstore.New(nil))
		p := newPress(io.Discard)
		m := broker.Outgoing{Meta: &broker.Meta{Key: "report-7"}}
		check(onceq.SendOne(t.Context(), queue, &m))
		p.onPage = func(page int) {
			if page == 2 {
				check(onceq.SendOne(t.Context(), queue, &m))
			}
		}
		work(t, new(onceqtest.Process), p, queue, dead, store)
		p.onPage = func(int) {}
		w, err := worker(p.jobs(store), queue, dead)
		require.NoError(t, err)
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		require.NoError(t, w.Run(ctx))
		total, twice, missing := p.count()
		require.Equal(t, []int{pages, 0, 0}, []int{total, twice, missing})
		d, err := queue.Depth(t.Context())
		require.NoError(t, err)
		require.Equal(t, broker.Depth{}, d)
	})
}
