package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/examples/internal/shop"
)

// This file owns one run of the demo, from the orders to the audit. main and the tests call run,
// whose goroutine has the demo's fields. The seats and the reaper (seat.go) run beside it only
// while work waits for them. What they share are the counts, which are atomic, and the seats, which
// have a lock each.

// demo is one run.
type demo struct {
	o           *shop.Settings
	errs        io.Writer // of the processes
	rows        []shop.Row
	corrections shop.Corrections
	a           assignment
	queue, dead counted
	till        till
	seats       []*seat
	plan        []kill
	sent        int
	counts      counts
	began       time.Time
}

// run sends the orders, lets the workers charge them and be killed, and asks the ledger what came
// of it.
func run(ctx context.Context, o *shop.Settings, on kind, store storeOptions, s *shop.Screen, errs io.Writer) (*demo, *shop.Result, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	d := &demo{o: o, errs: errs, began: time.Now()}
	d.a.Store = store
	r := &shop.Result{Settings: o, Crashes: d.reportCrashes}
	queues, err := on.serve(ctx)
	if err != nil {
		return nil, nil, err
	}
	err = d.run(ctx, queues, s, r)
	n := &d.counts
	r.Orders, r.Sent, r.Receives, r.Beats = len(d.rows), d.sent, d.received(queues), int(n.beats.Load())
	r.Attempts, r.AlreadyDone, r.InProgress = int(n.attempts.Load()), int(n.alreadyDone.Load()), int(n.inProgress.Load())
	return d, r, err
}

func (d *demo) run(ctx context.Context, on service, s *shop.Screen, r *shop.Result) error {
	o := d.o
	var err error
	if d.rows, err = shop.LoadOrders(o.Orders); err != nil {
		return err
	}
	if d.till, err = openTill(o.Ledger, d.a.Store); err != nil {
		return err
	}
	defer d.till.close()
	if err := d.till.make(ctx, o.Fresh); err != nil {
		return err
	}
	if r.Before, err = d.till.audit(ctx, d.rows, nil); err != nil {
		return err
	}
	if d.corrections, err = shop.LoadCorrections(o.Corrections, o.Orders == ""); err != nil {
		return err
	}
	if err := d.makeQueues(ctx, on); err != nil {
		return err
	}
	if err := d.send(ctx); err != nil {
		return err
	}
	s.Start(o, len(d.rows), d.sent, [2]string{"queue", on.name()}, [2]string{"ledger", d.till.where()},
		[2]string{"workers", fmt.Sprintf("%d processes; kill -9 hits one of them %d times (-seed %d)", o.Workers, o.Crashes, o.Seed)})
	if err := d.work(ctx, s); err != nil {
		return err
	}
	if o.Naive {
		if r.Classes, r.Letters, err = shop.EmptyLetters(ctx, d.dead); err != nil {
			return err
		}
		r.Took = time.Since(d.began)
		r.After, err = d.till.audit(ctx, d.rows, r.Classes)
		return err
	}
	s.Note("reading the dead-letter queue")
	if r.Classes, r.Letters, err = shop.ListLetters(ctx, d.dead, len(d.rows)+1); err != nil {
		return err
	}
	if r.Mending, err = d.mend(ctx, s, r.Letters); err != nil {
		return err
	}
	r.Took = time.Since(d.began)
	s.Note("reading what is left in the dead-letter queue")
	defer s.Clear()
	if r.Left, _, err = shop.ListLetters(ctx, d.dead, len(d.rows)+1); err != nil {
		return err
	}
	r.After, err = d.till.audit(ctx, shop.Expected(d.rows, d.corrections), r.Left)
	return err
}

// received is how many messages were given away. A table of messages does not tell: there it is how
// many the workers have begun with.
func (d *demo) received(on service) int {
	if c, ok := on.(counting); ok {
		return c.received()
	}
	return int(d.counts.ended.Load() + d.counts.cutOff.Load())
}

// reportCrashes writes the report's lines about the kills.
func (d *demo) reportCrashes(t shop.Table) {
	remark := fmt.Sprintf("of %d worker processes", d.counts.processes.Load())
	if left := len(d.plan); left > 0 {
		remark += fmt.Sprintf("; for %d more the work was over too soon", left)
	}
	t.Line("kill -9", int(d.counts.kills.Load()), "%s", remark)
	t.Line("  handlers cut off", int(d.counts.cutOff.Load()), "")
}

// makeQueues makes the queue and its dead-letter queue.
func (d *demo) makeQueues(ctx context.Context, on service) error {
	p, err := on.make(ctx, d.o)
	if err != nil {
		return err
	}
	d.a = assignment{
		place: p, Store: d.a.Store, Ledger: d.o.Ledger, Visibility: d.o.Visibility, Bank: d.o.Bank,
		Attempts: d.o.Attempts(), Corrections: d.o.Corrections, Builtin: d.o.Orders == "",
	}
	d.queue, d.dead, err = on.queues(ctx, p, d.till)
	return err
}

// send fills the queue. The seed shuffles the messages and plans the kills.
func (d *demo) send(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(d.o.Seed, 0))
	ms, err := shop.Messages(d.rows, rng)
	if err != nil {
		return err
	}
	d.sent = len(ms)
	d.plan = newPlan(rng, d.o.Crashes, len(ms), d.o.Workers)
	for n := range d.o.Workers {
		d.seats = append(d.seats, &seat{n: n + 1})
	}
	return onceq.Send(ctx, d.queue, ms)
}

// work runs the workers until the queue is empty: no message waits, is held, or will come back.
func (d *demo) work(ctx context.Context, s *shop.Screen) error {
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	for _, seat := range d.seats {
		all.Go(func() {
			if err := d.keep(working, seat); err != nil {
				stop(err)
			}
		})
	}
	all.Go(func() { d.reap(working) })
	shop.UntilEmpty(working, stop, d.queue, 100*time.Millisecond, func(depth broker.Depth) {
		s.Progress(depth, d.sent, int(d.counts.kills.Load()), d.began)
	})
	all.Wait()
	s.Clear()
	if err := context.Cause(working); !errors.Is(err, shop.ErrEmpty) {
		return err
	}
	return nil
}

// mend looks at what has died, replays it with corrections, and kills that replay half-way. The
// second one sends some letters once more. Then the workers are started with a handler that is
// mended.
func (d *demo) mend(ctx context.Context, s *shop.Screen, all int) (*shop.Mending, error) {
	letters, err := shop.OpenLetters(d.dead)
	if err != nil {
		return nil, err
	}
	m := &shop.Mending{}
	found, err := letters.Group(ctx, dlq.Filter{})
	if m.Groups = shop.Groups(found); err != nil || len(found) == 0 {
		return m, err
	}
	s.Note("mending what is in the dead-letter queue")
	report, killed, err := d.replay(ctx, m.Groups.Letters()/3)
	if err != nil {
		return nil, err
	}
	m.First = report.Sent
	if m.Killed = killed; killed {
		// The one that was killed has told nobody what it has sent: it is in the queue, which
		// nobody reads.
		depth, err := d.queue.Depth(ctx)
		if err != nil {
			return nil, err
		}
		m.First = int(depth.Visible)
		hidden := shop.LetterVisibility(d.dead)
		s.Note(fmt.Sprintf("the replay was killed; waiting %v for the letters that it held", hidden))
		if err := shop.Rest(ctx, hidden+hidden/5); err != nil {
			return nil, err
		}
		s.Note("replaying them once more")
		if report, _, err = d.replay(ctx, -1); err != nil {
			return nil, err
		}
		m.Again = report.Sent
	}
	m.Sent, m.Why, m.Copies = m.Groups.Letters()-report.Skipped, report.Why, all-m.Groups.Letters()
	d.a.Mended = true
	return m, d.work(ctx, s)
}

// replay runs a replay as a process. It kills the process when that is about to send its letter
// number last. With a negative number the process lives.
func (d *demo) replay(ctx context.Context, last int) (r replayed, killed bool, err error) {
	reached := make(chan struct{})
	sent := 0
	var unread error // the lines are another goroutine's until the process is done
	p, err := d.start("replay", d.a, func(word, rest string) {
		switch word {
		case lineLetter:
			if sent++; sent == last {
				close(reached)
			}
		case lineReport:
			unread = json.Unmarshal([]byte(rest), &r)
		}
	})
	if err != nil {
		return r, false, err
	}
	select {
	case <-p.Done():
	case <-reached:
		p.Kill()
	case <-ctx.Done():
		p.Kill()
		<-p.Done()
		return r, false, ctx.Err()
	}
	if ended := p.Err(); ended != nil && !p.Killed() {
		return r, false, fmt.Errorf("the replay has ended: %w", ended)
	}
	return r, p.Killed(), unread
}
