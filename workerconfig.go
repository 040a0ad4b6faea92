package onceq

import (
	"cmp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/values"
)

// This file owns WorkerConfig: its defaults, its bounds, and what it refuses of a queue's limits.
// Processor.Worker calls complete and check, once, and nothing changes a configuration after that,
// so there is no lock. BatchConfig shares checkLetters.

// WorkerConfig says how the jobs of one queue are received, and where its dead letters go. Only
// DeadLetter is required.
type WorkerConfig struct {
	// DeadLetter takes the dead letters. Required; KeepInQueue leaves them to the queue's own
	// redrive. Several workers may share one.
	DeadLetter broker.Sender
	// Name tells the queue apart from the Processor's others, in logs and in dead letters. The
	// Source of a letter is the Processor's Scope or, with a Name, "Scope:Name". Name does not keep
	// keys apart: all that a Processor serves shares its Scope. Workers on one queue have the same
	// Name. At most 255 bytes of UTF-8, without control characters. Default: none, which only one
	// queue of a Processor may have.
	Name string
	// HoldGroup keeps a message that would be a dead letter at the head of its group, so that no
	// later message of the group overtakes it. The job is released, and the message stays in the
	// queue: it is given back for an hour at a time, or for the broker's longest delay. A redrive
	// of the queue's own would take it away, so set none, or the highest number of receives.
	// Default: the message becomes a dead letter, and the group goes on.
	//
	// The head waits until its cause is mended. Each time that it comes its handler starts, also
	// when MaxAttempts are used up or the error is permanent, and an ERROR says so. Where the
	// queue's retention is known, another ERROR tells from its half on when the queue will drop
	// the message, without a letter.
	//
	// Queues that share keys should all set it, or none. Where a job comes through a queue without
	// it, too, that queue may record it as failed and put its letter. The group here then stands
	// still until that letter is replayed, also after the cause was mended.
	HoldGroup bool
	// Carry is where a message is sent anew that waits for longer than its queue can keep it, or
	// can delay it: one whose Meta.NotBefore lies far ahead, or whose handler has called [Postpone]
	// or [Sleep]. Mostly it is the queue itself. The copy has the same body, attributes and
	// metadata, and the first message is acked when the copy is stored. Default: nil, and a job
	// that is due later than its queue keeps it becomes a dead letter of class "too-early"; its
	// saved steps are kept.
	//
	// The worker needs the right to send to it. Give the Sender that the job's producer has: one
	// that encrypts, where bodies are encrypted. What it sends must come to this queue's workers
	// alone. A topic with other subscriptions would give them the copy, too. Where a copy cannot
	// be sent, an ERROR says so, and the message is given back. It becomes a letter where it comes
	// for the last time, and still cannot be sent for SettleTimeout. Messages of an ordered group,
	// and those without onceq's metadata, are never sent anew.
	//
	// Experimental: it may change in any minor version. docs/release.md says what that means.
	Carry broker.Sender
	// Concurrency is how many handlers run at once. Default 10; 1 to 100,000.
	Concurrency int
	// Prefetch is how many messages are held, unclaimed, beyond Concurrency. 0 = one receive batch,
	// and at most Concurrency; < 0 = none; at most 100,000. Where groups are ordered, a message
	// that waits for another of its group does not count. Of these, up to Concurrency + Prefetch
	// receive batches are held.
	Prefetch int
	// Pollers is how many receives go on at once. Default: one for each two receive batches of
	// Concurrency, or for each 250 of Concurrency where that makes more and the broker bills
	// requests; 1 to 16. At most 64.
	//
	// Where the broker bills requests, Pollers is a maximum. The worker starts with one. It adds
	// one after a receive that brings five messages or more. With a PollPause, it does so only
	// after receives of five or more for a whole PollPause. It removes one after a receive that
	// brings fewer than two.
	//
	// With two or more, a receive that takes 2 s longer than the broker's longest wait is replaced
	// by another one. As many acks are in flight at once as there are Pollers, and at least four.
	Pollers int
	// AckLinger is how long an ack may wait for others to share its request. 0 = 200 ms where
	// requests are billed and groups are not ordered, else none; at least 1 ms, and at most a third
	// of Visibility; < 0 = none.
	AckLinger time.Duration
	// PollPause is a pause after a receive that came back part-full. It trades latency for requests
	// at low load. Queues may give less than they have, so there is no pause from the fourth
	// receive in a row on that brings five messages or more, but is part-full. Default 0, else at
	// least 1 ms.
	PollPause time.Duration
	// Visibility is how long a received message stays hidden without a heartbeat. Default 30 s;
	// at least 100 ms, and within the broker's limits. The workers of one queue, and the queues of
	// one Processor, should agree on it: a worker that finds a job in progress takes its owner for
	// dead when the owner has not renewed the claim for half as long, and looks again when the
	// lease is over.
	Visibility time.Duration
	// SweepEvery is how often records whose retention has ended are removed, where the store is a
	// dedupe.Sweeper. The workers of one store take turns, whatever their queues, so it counts for
	// all of them together. A turn removes 20,000 records at most, in calls of 1,000. Where more
	// are left, the next turn comes a second later. Default 10 min; at least 1 s. < 0 = never: call
	// the store's Sweep from elsewhere then, because a table that nobody sweeps only grows.
	SweepEvery time.Duration
	// DrainTimeout is how long handlers run on after the context of Run has ended, before their own
	// contexts are cancelled. Default 20 s; at least 1 ms; < 0 = no time at all; the longest
	// Duration means for ever. The hard end is DrainTimeout + SettleTimeout.
	DrainTimeout time.Duration
}

// slotsPerPoller is how much of Concurrency gives a worker one more poller by default, whatever a
// receive may bring: a round trip of Pub/Sub takes as long for a few messages as for a thousand,
// and one poller alone brings nothing while its answer is handed out.
const slotsPerPoller = 250

// complete fills in the defaults that suit a queue with these limits.
func (c WorkerConfig) complete(l broker.Limits) WorkerConfig {
	c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency)
	c.Visibility = cmp.Or(c.Visibility, DefaultVisibility)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.SweepEvery = cmp.Or(c.SweepEvery, defaultSweepEvery)
	if c.Prefetch == 0 {
		c.Prefetch = min(l.ReceiveBatch, c.Concurrency)
	}
	if c.Pollers == 0 {
		each := 2 * max(1, l.ReceiveBatch)
		if l.PerRequestCost { // a quiet queue has one poller all the same
			each = min(each, slotsPerPoller)
		}
		c.Pollers = min(16, max(1, c.Concurrency/each))
	}
	if c.AckLinger == 0 && l.PerRequestCost && !l.OrderedGroups {
		c.AckLinger = defaultAckLinger
	}
	c.Prefetch, c.AckLinger, c.DrainTimeout = max(0, c.Prefetch), max(0, c.AckLinger), max(0, c.DrainTimeout)
	return c
}

// check refuses what cannot be, in a configuration that complete has filled in. The queue has the
// limits l, and jobs are run as p says.
func (c *WorkerConfig) check(queue broker.Receiver, l broker.Limits, p *ProcessorConfig) error {
	if err := checkLetters("WorkerConfig", c.DeadLetter, c.Name); err != nil {
		return err
	}
	switch {
	case l.ReceiveBatch < 1 || l.SettleBatch < 1:
		return badConfig("Processor.Worker", "the queue's Limits() have ReceiveBatch %d and SettleBatch %d, want 1 or more", l.ReceiveBatch, l.SettleBatch)
	case c.Concurrency < 1 || c.Concurrency > maxConcurrency:
		return badConfig("WorkerConfig.Concurrency", "%d is not within 1 and %d", c.Concurrency, maxConcurrency)
	case c.Pollers < 1 || c.Pollers > maxPollers:
		return badConfig("WorkerConfig.Pollers", "%d is not within 1 and %d", c.Pollers, maxPollers)
	case c.Prefetch > maxConcurrency:
		return badConfig("WorkerConfig.Prefetch", "%d is above %d", c.Prefetch, maxConcurrency)
	case values.Same(c.DeadLetter, queue):
		return badConfig("WorkerConfig.DeadLetter", "is the queue itself, where a letter would reopen its own failure at once, for ever")
	case isNoStore(p.Store) && !l.Attempts && p.Defaults.MaxAttempts > 0:
		return badConfig("ProcessorConfig.Defaults.MaxAttempts", "%d never ends a job: without a Store the broker must count deliveries, and this one does not; -1 says that jobs are retried for ever", p.Defaults.MaxAttempts)
	case c.Carry != nil && values.IsNil(c.Carry):
		return badConfig("WorkerConfig.Carry", "is a nil pointer")
	case c.Carry != nil && c.Carry.Limits().RequireGroup:
		return badConfig("WorkerConfig.Carry", "requires a group for each message, and messages of a group are never sent anew")
	case c.Carry != nil && c.Carry.Limits().SendBatch < 1:
		return badConfig("WorkerConfig.Carry", "its Limits() have SendBatch %d, want 1 or more", c.Carry.Limits().SendBatch)
	case c.Carry != nil && values.Same(c.Carry, c.DeadLetter):
		return badConfig("WorkerConfig.Carry", "is the DeadLetter, which nobody receives from")
	case c.HoldGroup && !l.OrderedGroups:
		return badConfig("WorkerConfig.HoldGroup", "the broker does not order groups")
	case c.SweepEvery > 0 && c.SweepEvery < time.Second:
		return badConfig("WorkerConfig.SweepEvery", "%s", durations.Below(c.SweepEvery, time.Second))
	case c.PollPause < 0:
		return badConfig("WorkerConfig.PollPause", "%v is negative", c.PollPause)
	case durations.IsBare(c.PollPause):
		return badConfig("WorkerConfig.PollPause", "%s", durations.AskUnit(c.PollPause))
	case c.Visibility < minLease:
		return badConfig("WorkerConfig.Visibility", "%v is below %v", c.Visibility, minLease)
	case l.MinHold > 0 && c.Visibility < l.MinHold:
		return badConfig("WorkerConfig.Visibility", "%v is below the broker's shortest extension, %v", c.Visibility, l.MinHold)
	case l.MaxHold > 0 && c.Visibility > l.MaxHold:
		return badConfig("WorkerConfig.Visibility", "%v is above the broker's longest extension, %v", c.Visibility, l.MaxHold)
	case durations.IsBare(c.AckLinger):
		return badConfig("WorkerConfig.AckLinger", "%s", durations.AskUnit(c.AckLinger))
	case durations.IsBare(c.DrainTimeout):
		return badConfig("WorkerConfig.DrainTimeout", "%s", durations.AskUnit(c.DrainTimeout))
	case c.AckLinger > c.Visibility/3:
		return badConfig("WorkerConfig.AckLinger", "%v is above a third of Visibility, %v", c.AckLinger, c.Visibility/3)
	}
	return nil
}

// checkLetters refuses what cannot be, in the fields that WorkerConfig and BatchConfig share.
func checkLetters(of string, to broker.Sender, name string) error {
	if values.IsNil(to) {
		return badConfig(of+".DeadLetter", "is nil; to leave dead letters to the queue's own redrive, say KeepInQueue")
	}
	return checkLabel(of+".Name", name)
}

// checkLabel refuses a name that a letter, a card or a metric could not carry unchanged.
func checkLabel(field, name string) error {
	switch {
	case len(name) > maxScope:
		return badConfig(field, "has %d bytes, the limit is %d", len(name), maxScope)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return badConfig(field, "%q is not UTF-8, or holds a control character: a letter must carry it unchanged", name)
	}
	return nil
}
