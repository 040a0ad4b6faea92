package onceq

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/values"
)

// The defaults, all of them. Each may be set in [Config], [ProcessorConfig] or [JobOptions].
const (
	DefaultMaxAttempts   = 10
	DefaultBackoffMin    = time.Second      // after the first failure, then doubled
	DefaultBackoffMax    = 15 * time.Minute // before jitter
	DefaultVisibility    = 30 * time.Second
	DefaultLease         = 30 * time.Second // beats go out at a third of the shorter of these two
	DefaultDrainTimeout  = 20 * time.Second
	DefaultSettleTimeout = 5 * time.Second
	DefaultCallTimeout   = 5 * time.Second
	DefaultConcurrency   = 10
	DefaultRetention     = dedupe.DefaultRetention
	DefaultAckLinger     = 200 * time.Millisecond // where requests are billed and groups are not ordered, else 0
	DefaultSweepEvery    = 10 * time.Minute
	DefaultMostAttempts  = 100            // what a job's Meta may raise MaxAttempts to
	DefaultMostTimeout   = 24 * time.Hour // and a Timeout
)

// Bounds of what a configuration may ask for.
const (
	minLease       = engine.MinLease
	maxLease       = engine.MaxLease
	minJobTimeout  = time.Millisecond
	minTimeout     = time.Millisecond
	maxConcurrency = 100_000
	maxScope       = dedupe.MaxScope
	maxPollers     = 64
)

// JobOptions say how a job is run. A type's options win over the Processor's Defaults. A job's Meta
// may lower them, and raise them as far as MostAttempts and MostTimeout let it: whoever may send a
// message writes its Meta.
type JobOptions struct {
	// MaxAttempts is how often the handler may start: 0 = the default, 10; 1 = never retried; < 0 =
	// unlimited, which must be said where there is neither a Store nor a broker that counts
	// deliveries.
	MaxAttempts int
	// Timeout bounds one run of the handler; 0 = none, else at least 1 ms. At its end the handler's
	// context is cancelled with the cause ErrTimeout. A handler that ignores its context runs on,
	// with its leases kept.
	Timeout time.Duration
	// Interrupted says what becomes of a job whose worker died, or was cut off, after the handler
	// had begun: dedupe.Rerun (the default) or dedupe.Park. Under Park a panic, and any error after
	// the handler's context has ended, park the job too, for whether its effect happened is not
	// known. Park wins: where the Defaults say Park, a type cannot undo it. It needs a Store.
	Interrupted dedupe.Policy
	// Backoff is how long to wait after the given attempt (from 1) failed with err. Default: 1 s
	// doubled with each attempt up to 15 min, of which a random part is taken (full jitter).
	Backoff func(attempt int, err error) time.Duration
	// MostAttempts is the highest MaxAttempts that a job's Meta may ask for; what is above counts
	// as this. 0 = 100, or MaxAttempts where that is higher or unlimited; < 0 = any, unlimited too.
	// Not below MaxAttempts.
	MostAttempts int
	// MostTimeout is the longest Timeout that a job's Meta may ask for; what is above counts as
	// this. 0 = 24 h, or Timeout where that is longer, and any where Timeout is none; < 0 = any.
	// Not below Timeout.
	MostTimeout time.Duration
	// MostNotBefore is how far ahead a message's Meta.NotBefore may lie when it is received; one
	// beyond becomes a dead letter of class "too-early". 0 = 31 days, or Retention where that is
	// longer; < 0 = any.
	MostNotBefore time.Duration
	// Scope is the scope of the keys; it has no ':'. Default: the Processor's Scope, and under a
	// Mux that, a ':' and the type.
	Scope string
}

// check looks at o, which stands beside the defaults d, or is them.
func (o *JobOptions) check(field string, d *JobOptions) error {
	attempts, most := cmp.Or(o.MaxAttempts, d.MaxAttempts), cmp.Or(o.MostAttempts, d.MostAttempts)
	timeout, longest := cmp.Or(o.Timeout, d.Timeout), cmp.Or(o.MostTimeout, d.MostTimeout)
	switch {
	case most > 0 && (attempts < 0 || attempts > most):
		return badConfig(field+".MostAttempts", "%d is below MaxAttempts, %d; < 0 is unlimited", most, attempts)
	case longest > 0 && longest < minJobTimeout:
		return badConfig(field+".MostTimeout", "%v is below %v; is its unit missing?", longest, minJobTimeout)
	case longest > 0 && timeout > longest:
		return badConfig(field+".MostTimeout", "%v is below Timeout, %v", longest, timeout)
	case o.Timeout < 0:
		return badConfig(field+".Timeout", "%v is negative", o.Timeout)
	case o.Timeout > 0 && o.Timeout < minJobTimeout:
		return badConfig(field+".Timeout", "%v is below %v; is its unit missing?", o.Timeout, minJobTimeout)
	case o.Interrupted > dedupe.Park:
		return badConfig(field+".Interrupted", "%v is neither Rerun nor Park", o.Interrupted)
	case strings.Contains(o.Scope, ":"):
		return badConfig(field+".Scope", "%q holds a ':', which separates a scope from a type", o.Scope)
	case o.Scope != "":
		return checkScope(field+".Scope", o.Scope)
	}
	return nil
}

func (o *JobOptions) scopeOf(scope, typ string) string {
	if o.Scope != "" {
		return o.Scope
	}
	return scope + ":" + typ
}

func checkScope(field, s string) error {
	if err := (dedupe.Key{Scope: s, Key: "k"}).Validate(); err != nil {
		return badConfig(field, "%v", err)
	}
	return nil
}

// ProcessorConfig is everything that does not depend on how messages arrive.
type ProcessorConfig struct {
	// Handler is a *Mux, what Chain makes of one, or one handler for all messages. Required, except
	// in a Processor that is for Do only.
	Handler Handler
	// Store records the idempotency keys. Required; NoStore says aloud that there is none.
	Store dedupe.Store
	// Scope separates the keys of this kind of work from all others in the store. Required; at most
	// 255 bytes, without ':'. Workers on one queue must agree on it.
	Scope string
	// LetterKeys sign the dead letters whose replay may run a failed or parked job again, and with
	// them only a letter that one of them has signed does: without, whoever may send messages and
	// knows the number of a failure, its fence, may. The first key signs, all verify. Each is 32
	// random bytes or more; give dlq.Options the same. Letters from before there were keys need
	// dlq.ReplayOptions.Vouch. Default: none, and each letter reopens its failure.
	LetterKeys dlq.Keys
	// DeadLetter takes the dead letters. Required where Handler is; KeepInQueue leaves them to the
	// queue's own redrive.
	DeadLetter broker.Sender
	// Key finds a message's idempotency key. All who may send to a scope share its keys, so that
	// each can take another's: where that matters, make the key of who sent the message, as far as
	// the queue vouches for it, and the sender's own. An empty Scope in its answer means the
	// default; one that begins with a ':' is onceq's own, and makes the message a dead letter of
	// class "bad-key". An error makes it one of class "no-key".
	//
	// Default: Meta.Key, else Meta.ID. A message of a foreign producer has neither and needs this
	// function. Without it such a message becomes a dead letter of class "no-key" too, but not at
	// once: until this Processor has met a message with a key of ours, it is given back for 5 min
	// to 1 h at a time, with the outcome "kept", and an ERROR is logged, again each 5 min. So a
	// first start on a queue that exists already moves nothing away. It becomes a letter when half
	// of the queue's retention is over (a day, where the broker does not tell it), or at the last
	// receive before the queue's own redrive.
	Key func(*broker.Message) (dedupe.Key, error)
	// Fingerprint, when set, makes a digest of the payload. A message whose key is known with
	// another fingerprint becomes a dead letter of class "mismatch". Opt in with care: a cosmetic
	// difference would dead-letter an honest duplicate. Set it where producers that need not trust
	// each other share a scope.
	Fingerprint func(*broker.Message) []byte
	// Defaults hold for jobs that say nothing else.
	Defaults JobOptions
	// Retention is how long the record of a finished job is kept. Default 31 days; at least 1 m,
	// and at least the longest time that a message may spend in the queue and the dead-letter queue
	// together: Run refuses less, where the brokers tell these (broker.RedrivePolicy). The longest
	// Duration means for ever.
	Retention time.Duration
	// Lease is how long a claim holds without a heartbeat. Default 30 s; 100 ms to 12 h. Below
	// twice CallTimeout Run warns: one slow call of the store may use such a claim up.
	Lease time.Duration
	// SettleTimeout bounds how long the writing of a job's end is repeated when Do's caller waits,
	// or when the store answers and refuses it. A store that does not answer is asked without a
	// bound, and while a Worker drains until the hard end; nothing new starts meanwhile. In a batch
	// whose deliveries have no Until it is asked for SettleTimeout once ctx has ended. Default 5 s.
	SettleTimeout time.Duration
	// CallTimeout bounds one call of the store or the broker. Default 5 s.
	CallTimeout time.Duration
	// HoldGroup keeps a message that would be a dead letter at the head of its group: it is
	// released, given back for an hour at a time (or the broker's longest delay) and stays in the
	// queue, so that no later message of the group overtakes it. A redrive of the queue's own would
	// take it away: set none, or the highest number of receives. Default: it becomes a dead letter
	// and the group goes on.
	HoldGroup bool
	// Owner names this worker in the store's records, for people. Default: host name and process
	// id.
	Owner string
	// Observer is told of each job's start and end. nil = none.
	Observer Observer
	// Logger gets one record per job and what a person should look at. nil = no logs.
	Logger *slog.Logger
}

// Config is a Worker's.
type Config struct {
	ProcessorConfig
	// Broker is the queue. Required.
	Broker broker.Receiver
	// Concurrency is how many handlers run at once. Default 10; 1 to 100,000.
	Concurrency int
	// Prefetch is how many messages are held, unclaimed, beyond Concurrency. 0 = one receive batch,
	// and at most Concurrency; < 0 = none. Where groups are ordered, messages that wait for another
	// of their group do not count: of them up to Concurrency + Prefetch receive batches are held.
	Prefetch int
	// Pollers is how many receives go on at once. Default: one for each two receive batches of
	// Concurrency, 1 to 16. At most 64.
	//
	// Where the broker bills requests, Pollers is a maximum. The worker starts with one. It adds
	// one after a receive that brings five messages or more (with a PollPause, when that has gone
	// on for as long), and removes one after a receive that brings fewer than two.
	//
	// With two or more, a receive that takes 2 s longer than the broker's longest wait is replaced
	// by another one. As many acks are in flight at once as there are Pollers, and at least four.
	Pollers int
	// AckLinger is how long an ack may wait for others to share its request. 0 = 200 ms where
	// requests are billed and groups are not ordered, else none; < 0 = none.
	AckLinger time.Duration
	// PollPause is a pause after a receive that came back part-full: it trades latency for requests
	// at low load. Queues may give less than they have, so there is none after the fourth such
	// receive in a row that brings five messages or more. Default 0.
	PollPause time.Duration
	// Visibility is how long a received message stays hidden without a heartbeat. Default 30 s;
	// within the broker's limits. The workers of one queue should agree on it: who finds a job in
	// progress takes its owner for dead when that has not renewed its claim for half as long.
	Visibility time.Duration
	// SweepEvery is how often records whose retention has ended are removed, where the store is a
	// dedupe.Sweeper. The workers of one store take turns, whatever their queues, so it counts for
	// all of them together. A turn removes 20,000 records at most, in calls of 1,000; where more
	// are left, the next comes a second later. Default 10 min; at least 1 s; < 0 = never, then call
	// the store's Sweep from elsewhere: a table that nobody sweeps only grows.
	SweepEvery time.Duration
	// DrainTimeout is how long handlers run on after the context of Run has ended, before theirs is
	// cancelled. Default 20 s; < 0 = no time at all; the longest Duration means for ever. The hard
	// end is DrainTimeout + SettleTimeout.
	DrainTimeout time.Duration
}

func (c ProcessorConfig) withDefaults() ProcessorConfig {
	c.Defaults.MaxAttempts = cmp.Or(c.Defaults.MaxAttempts, DefaultMaxAttempts)
	if c.Defaults.Backoff == nil {
		c.Defaults.Backoff = defaultBackoff
	}
	c.Retention = cmp.Or(c.Retention, DefaultRetention)
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.SettleTimeout = cmp.Or(c.SettleTimeout, DefaultSettleTimeout)
	c.CallTimeout = cmp.Or(c.CallTimeout, DefaultCallTimeout)
	if c.Owner == "" {
		c.Owner = processName()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c *ProcessorConfig) check() error {
	switch {
	case values.IsNil(c.Handler):
		return badConfig("Config.Handler", "is nil; give a *Mux or a Handler")
	case values.IsNil(c.Store):
		return badConfig("Config.Store", "is nil; to run without one, say NoStore")
	case values.IsNil(c.DeadLetter):
		return badConfig("Config.DeadLetter", "is nil; to leave dead letters to the queue's own redrive, say KeepInQueue")
	case c.Scope == "":
		return badConfig("Config.Scope", "is empty")
	case strings.Contains(c.Scope, ":"):
		return badConfig("Config.Scope", "%q holds a ':', which separates a scope from a type", c.Scope)
	case c.Retention < time.Minute:
		return badConfig("Config.Retention", "%v is below 1m0s", c.Retention)
	case c.Lease < minLease || c.Lease > maxLease:
		return badConfig("Config.Lease", "%v is not within %v and %v", c.Lease, minLease, maxLease)
	case c.SettleTimeout < minTimeout:
		return badConfig("Config.SettleTimeout", "%v is below %v; is its unit missing?", c.SettleTimeout, minTimeout)
	case c.CallTimeout < minTimeout:
		return badConfig("Config.CallTimeout", "%v is below %v; is its unit missing?", c.CallTimeout, minTimeout)
	case len(c.Owner) > maxScope:
		return badConfig("Config.Owner", "has %d bytes, the limit is %d", len(c.Owner), maxScope)
	}
	if err := checkScope("Config.Scope", c.Scope); err != nil {
		return err
	}
	if err := c.Defaults.check("Config.Defaults", &c.Defaults); err != nil {
		return err
	}
	if err := c.LetterKeys.Check(); err != nil {
		return badConfig("Config.LetterKeys", "%v", err)
	}
	if l := c.Store.Limits(); l.MaxBatch < 1 {
		return badConfig("Config.Store", "its Limits().MaxBatch is %d, want 1 or more", l.MaxBatch)
	}
	if c.Store == NoStore && c.Defaults.Interrupted == dedupe.Park {
		return badConfig("Config.Defaults.Interrupted", "Park needs a Store: without one, nobody knows that a job was interrupted")
	}
	if m := muxIn(c.Handler); m != nil {
		return m.check(c.Scope, c.Store == NoStore, &c.Defaults)
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.ProcessorConfig = c.ProcessorConfig.withDefaults()
	c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency)
	c.Visibility = cmp.Or(c.Visibility, DefaultVisibility)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.SweepEvery = cmp.Or(c.SweepEvery, DefaultSweepEvery)
	if values.IsNil(c.Broker) {
		return c
	}
	l := c.Broker.Limits()
	if c.Prefetch == 0 {
		c.Prefetch = min(l.ReceiveBatch, c.Concurrency)
	}
	if c.Pollers == 0 {
		c.Pollers = min(16, max(1, c.Concurrency/(2*max(1, l.ReceiveBatch))))
	}
	if c.AckLinger == 0 && l.PerRequestCost && !l.OrderedGroups {
		c.AckLinger = DefaultAckLinger
	}
	c.Prefetch, c.AckLinger, c.DrainTimeout = max(0, c.Prefetch), max(0, c.AckLinger), max(0, c.DrainTimeout)
	return c
}

func (c *Config) check() error {
	if err := c.ProcessorConfig.check(); err != nil {
		return err
	}
	if values.IsNil(c.Broker) {
		return badConfig("Config.Broker", "is nil")
	}
	l := c.Broker.Limits()
	switch {
	case l.ReceiveBatch < 1 || l.SettleBatch < 1:
		return badConfig("Config.Broker", "its Limits() have ReceiveBatch %d and SettleBatch %d, want 1 or more", l.ReceiveBatch, l.SettleBatch)
	case c.Concurrency < 1 || c.Concurrency > maxConcurrency:
		return badConfig("Config.Concurrency", "%d is not within 1 and %d", c.Concurrency, maxConcurrency)
	case c.Pollers < 1 || c.Pollers > maxPollers:
		return badConfig("Config.Pollers", "%d is not within 1 and %d", c.Pollers, maxPollers)
	case c.Prefetch > maxConcurrency:
		return badConfig("Config.Prefetch", "%d is above %d", c.Prefetch, maxConcurrency)
	case values.Same(c.DeadLetter, c.Broker):
		return badConfig("Config.DeadLetter", "is the queue itself, where a letter would reopen its own failure at once, for ever")
	case c.Store == NoStore && !l.Attempts && c.Defaults.MaxAttempts > 0:
		return badConfig("Config.Defaults.MaxAttempts", "%d never ends a job: without a Store the broker must count deliveries, and this one does not; -1 says that jobs are retried for ever", c.Defaults.MaxAttempts)
	case c.HoldGroup && !l.OrderedGroups:
		return badConfig("Config.HoldGroup", "the broker does not order groups")
	case c.SweepEvery > 0 && c.SweepEvery < time.Second:
		return badConfig("Config.SweepEvery", "%v is below %v; is its unit missing?", c.SweepEvery, time.Second)
	case c.PollPause < 0:
		return badConfig("Config.PollPause", "%v is negative", c.PollPause)
	case c.Visibility < minLease:
		return badConfig("Config.Visibility", "%v is below %v", c.Visibility, minLease)
	case l.MinHold > 0 && c.Visibility < l.MinHold:
		return badConfig("Config.Visibility", "%v is below the broker's shortest extension, %v", c.Visibility, l.MinHold)
	case l.MaxHold > 0 && c.Visibility > l.MaxHold:
		return badConfig("Config.Visibility", "%v is above the broker's longest extension, %v", c.Visibility, l.MaxHold)
	case c.AckLinger > c.Visibility/3:
		return badConfig("Config.AckLinger", "%v is above a third of Visibility, %v", c.AckLinger, c.Visibility/3)
	}
	return nil
}

// defaultBackoff doubles from DefaultBackoffMin to DefaultBackoffMax and takes a random part of it.
func defaultBackoff(attempt int, _ error) time.Duration {
	d := DefaultBackoffMax
	if shift := max(0, attempt-1); shift < 20 {
		d = min(d, DefaultBackoffMin<<shift)
	}
	return rand.N(d + 1)
}
