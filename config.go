package onceq

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/safelog"
	"github.com/onceq/onceq/internal/values"
)

// This file owns ProcessorConfig: the defaults, the bounds, and what is refused. NewProcessor calls
// withDefaults and check, once. Nothing changes a configuration after that, so there is no lock.

// The defaults. Each may be set in [ProcessorConfig], [WorkerConfig] or [JobOptions].
const (
	DefaultMaxAttempts   = 10
	DefaultVisibility    = 30 * time.Second
	DefaultLease         = 30 * time.Second // beats go out at a third of the shorter of Visibility and Lease
	DefaultDrainTimeout  = 20 * time.Second
	DefaultSettleTimeout = 5 * time.Second
	DefaultCallTimeout   = 5 * time.Second
	DefaultConcurrency   = 10
	DefaultRetention     = dedupe.DefaultRetention
)

// Defaults whose numbers stand in the comments of their fields.
const (
	defaultBackoffMin   = time.Second            // after the first failure, then doubled
	defaultBackoffMax   = 15 * time.Minute       // before jitter
	defaultAckLinger    = 200 * time.Millisecond // where requests are billed and groups are not ordered, else 0
	defaultSweepEvery   = 10 * time.Minute
	defaultMostAttempts = 100            // how far a job's Meta may raise MaxAttempts
	defaultMostTimeout  = 24 * time.Hour // how far it may raise Timeout
)

// Bounds of what a configuration may ask for.
const (
	minLease       = engine.MinLease
	maxLease       = engine.MaxLease
	maxConcurrency = 100_000
	maxScope       = dedupe.MaxScope
	maxPollers     = 64
)

// ProcessorConfig says what is done with jobs, and how. Store and Scope are required, and Handler
// where there are deliveries. Where jobs come from is said in [WorkerConfig] and [BatchConfig].
type ProcessorConfig struct {
	// Handler is a *Mux, what Chain makes of one, or one handler for all messages. Required by
	// Worker and Batches; Do needs none.
	Handler Handler
	// Store records the idempotency keys. Required; NoStore says aloud that there is none.
	Store dedupe.Store
	// Scope separates the keys of this kind of work from all others in the store. Required; at most
	// 255 bytes, without ':'. Workers on one queue must agree on it.
	Scope string
	// Queue is the name of the queue, for people, rules and metrics. Default: the broker's
	// Describe().Name, else Scope, or "Scope:Name" where the WorkerConfig or BatchConfig has a
	// Name. Where a Processor has several queues, leave it empty, because it holds for all. At most
	// 255 bytes of UTF-8, without control characters.
	Queue string
	// LetterKeys sign the dead letters whose replay may run a failed or parked job again. With
	// keys, only a letter that one of them has signed reopens its failure. Default: none, and any
	// message does that names the number of a failure, its fence: whoever may send messages and
	// knows that number can run the job again.
	//
	// The first key signs, all verify. Each is 32 random bytes or more. Give dlq.Options the same
	// keys. Letters from before there were keys need dlq.ReplayOptions.TrustUnsigned.
	LetterKeys dlq.Keys
	// Key finds a message's idempotency key. An empty Scope in its answer means the default. A
	// Scope that begins with a ':' is onceq's own, and makes the message a dead letter of class
	// "bad-key". An error makes the message a dead letter of class "no-key".
	//
	// All who may send to a scope share its keys, so that one of them can take another's key. Where
	// that matters, make the key of two things: who sent the message, as far as the queue vouches
	// for it, and the sender's own key.
	//
	// Default: Meta.Key, else Meta.ID. A message of a foreign producer has neither, and needs this
	// function. Without it, such a message becomes a dead letter of class "no-key" too, but not at
	// once, so that a first start on a queue that exists already moves nothing away:
	//
	//   - Until its Worker has met a message with a key of ours, the message is given back for
	//     5 min to 1 h at a time, with the outcome "kept". An ERROR is logged, then each 5 min.
	//   - It becomes a letter when half of the queue's retention is over (a day, where the broker
	//     does not tell it), or at the last receive before the queue's own redrive.
	Key func(*broker.Message) (dedupe.Key, error)
	// Fingerprint, when set, makes a digest of the payload. A message becomes a dead letter of
	// class "mismatch" when its key is known with another fingerprint. Opt in with care, because a
	// cosmetic difference would dead-letter an honest duplicate. Set it where producers that need
	// not trust each other share a scope. nil = not compared.
	Fingerprint func(*broker.Message) []byte
	// Defaults hold for jobs that say nothing else.
	Defaults JobOptions
	// Retention is how long the record of a finished job is kept. Default 31 days; at least 1 m.
	// It must be as long as a message may spend in the queue and the dead-letter queue together:
	// Run refuses less, where the brokers tell these times (broker.Redriver). The longest
	// Duration means for ever.
	Retention time.Duration
	// Lease is how long a claim holds without a heartbeat. Default 30 s; 100 ms to 12 h. Run warns
	// below twice CallTimeout, because one slow call of the store may use such a claim up.
	Lease time.Duration
	// SettleTimeout bounds how long the writing of a job's end is repeated, in two cases: when Do's
	// caller waits, and when the store answers and refuses it. Default 5 s.
	//
	// A store that does not answer is asked without a bound, and nothing new starts meanwhile. The
	// exceptions: while a Worker drains, it is asked until the hard end; in a batch whose
	// deliveries have no Until, for SettleTimeout once ctx has ended.
	SettleTimeout time.Duration
	// CallTimeout bounds one call of the store or the broker. Default 5 s.
	CallTimeout time.Duration
	// Owner names this worker in the store's records, for people. Default: host name and process
	// id.
	Owner string
	// Control says how the Processor obeys operators, and shows itself to them. The zero value does
	// so where the store is durable: it reads their rules and writes the Workers' cards, each 10 s.
	Control ControlOptions
	// Observer is told of each job's start and end. nil = none.
	Observer Observer
	// Logger gets one record per job and what a person should look at. nil = slog.Default, as it is
	// when the Processor is made, for warnings and errors alone. slog.New(slog.DiscardHandler)
	// silences these, too. A Logger that blocks holds up jobs. One that panics loses its line.
	Logger *slog.Logger
}

func (c ProcessorConfig) withDefaults() ProcessorConfig {
	if relayIn(c.Handler) != nil {
		c.Defaults = c.Defaults.ofRelay()
	}
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
		c.Logger = slog.New(warnings{slog.Default().Handler()})
	}
	c.Logger = safelog.New(c.Logger)
	return c
}

func (c *ProcessorConfig) check() error {
	switch {
	case values.IsNil(c.Store):
		return badConfig("ProcessorConfig.Store", "is nil; to run without one, say NoStore")
	case c.Scope == "":
		return badConfig("ProcessorConfig.Scope", "is empty")
	case strings.Contains(c.Scope, ":"):
		return badConfig("ProcessorConfig.Scope", "%q holds a ':', which separates a scope from a type", c.Scope)
	case c.Retention < time.Minute:
		return badConfig("ProcessorConfig.Retention", "%v is below 1m0s", c.Retention)
	case c.Lease < minLease || c.Lease > maxLease:
		return badConfig("ProcessorConfig.Lease", "%v is not within %v and %v", c.Lease, minLease, maxLease)
	case c.SettleTimeout < durations.Least:
		return badConfig("ProcessorConfig.SettleTimeout", "%s", durations.AskUnit(c.SettleTimeout))
	case c.CallTimeout < durations.Least:
		return badConfig("ProcessorConfig.CallTimeout", "%s", durations.AskUnit(c.CallTimeout))
	case len(c.Owner) > maxScope:
		return badConfig("ProcessorConfig.Owner", "has %d bytes, the limit is %d", len(c.Owner), maxScope)
	}
	if err := checkLabel("ProcessorConfig.Queue", c.Queue); err != nil {
		return err
	}
	if err := checkScope("ProcessorConfig.Scope", c.Scope); err != nil {
		return err
	}
	if err := c.Defaults.check("ProcessorConfig.Defaults", &c.Defaults); err != nil {
		return err
	}
	if err := c.LetterKeys.Check(); err != nil {
		return badConfig("ProcessorConfig.LetterKeys", "%v", err)
	}
	if err := c.Control.check(); err != nil {
		return err
	}
	if l := c.Store.Limits(); l.MaxBatch < 1 {
		return badConfig("ProcessorConfig.Store", "its Limits().MaxBatch is %d, want 1 or more", l.MaxBatch)
	}
	if isNoStore(c.Store) && c.Defaults.Interrupted == dedupe.Park {
		return badConfig("ProcessorConfig.Defaults.Interrupted", "Park needs a Store: without one, nobody knows that a job was interrupted")
	}
	if m := muxIn(c.Handler); m != nil {
		return m.check(c.scopes(), isNoStore(c.Store), &c.Defaults)
	}
	if k := knownIn(c.Handler); k != nil && k.mistake() != nil {
		return k.mistake()
	}
	return c.checkRelay()
}

// checkRelay refuses what a Forward would lose messages by.
func (c *ProcessorConfig) checkRelay() error {
	switch {
	case relayIn(c.Handler) == nil:
		return nil
	case !isNoStore(c.Store):
		return badConfig("ProcessorConfig.Store", "a Forward needs NoStore: a record that a message was sent on would tell the destination's workers that its job is done")
	case c.Defaults.MaxAttempts > 0:
		return badConfig("ProcessorConfig.Defaults.MaxAttempts", "%d: a message that was not sent after so many tries would never be; a Forward needs -1, unlimited", c.Defaults.MaxAttempts)
	}
	return nil
}

// defaultBackoff doubles from defaultBackoffMin to defaultBackoffMax and takes a random part of it.
func defaultBackoff(attempt int, _ error) time.Duration {
	d := defaultBackoffMax
	if shift := max(0, attempt-1); shift < 20 {
		d = min(d, defaultBackoffMin<<shift)
	}
	return rand.N(d + 1)
}

func (c *ProcessorConfig) scopes() scopes { return scopes{c.Scope, cmp.Or(c.Defaults.Scope, c.Scope)} }

// Bounds and defaults of [ControlOptions].
const (
	defaultControlEvery = 10 * time.Second
	minControlEvery     = 2 * time.Second
	maxControlEvery     = time.Minute
	defaultControlJobs  = 8
	maxControlJobs      = 100
)

// ControlOptions say how a Processor obeys operators and shows itself to them, through its Store:
// see package control. The zero value is on where the store is durable, because a control that had
// to be configured before the emergency is not there in it. Each Worker then costs the store one
// small write and one small read each Every, and looks at the others' seats at the start, two
// minutes later, and each hour.
type ControlOptions struct {
	// Every is how often a Worker reads the rules and writes its card. 0 = 10 s, where the store is
	// durable, else never; 2 s to 1 min, with any store; < 0 = no seat, no rules. Batches and Do
	// read the rules before a call, where that was as long ago.
	Every time.Duration
	// Jobs is how many running jobs, the oldest first, the card names. Default 8; at most 100; < 0
	// = none. With 8 a card is one write unit of DynamoDB.
	Jobs int
	// NoKeys leaves the jobs' keys out of the card, where keys are personal data. Their ids stay.
	NoKeys bool
	// Required keeps jobs from starting as long as the rules were never read, however long the
	// store refuses that. Default: a Worker waits while the store does not answer at all. Where the
	// store answers other calls and refuses this one for 30 s, the Worker starts without rules, and
	// says so.
	Required bool
	// Strict has Run refuse to start, with [ErrWorkersDiffer], while another live worker of the
	// queue has another Scope, Retention or Defaults.Interrupted, or has the keys of the same jobs
	// in another scope (JobOptions.Was), because a deploy with the wrong scope does each job twice.
	// A deploy that changes one of these on purpose then has to stop the old workers first; one
	// that died counts as live until its seat's lease is over, 30 s by default. Default: the worker
	// starts, and logs an ERROR. It looks at the start, two minutes later, and each hour.
	Strict bool

	asked bool // they were not switched off
}

// unsteered is a store whose calls a test counts: nothing is read or written beside its jobs,
// unless ControlOptions.Every says so.
type unsteered interface{ Unsteered() }

// controlOn fills in the defaults for a store.
func controlOn(s dedupe.Store, o ControlOptions) ControlOptions {
	o.asked = o.Every >= 0
	if o.Every == 0 {
		o.Every = -1
		if _, quiet := broker.As[unsteered](s); s.Limits().Durable && !quiet {
			o.Every = defaultControlEvery
		}
	}
	if isNoStore(s) {
		o.Every = -1
	}
	o.Jobs = max(0, cmp.Or(o.Jobs, defaultControlJobs))
	return o
}

// check refuses what cannot be, in options as they were given.
func (o *ControlOptions) check() error {
	switch {
	case o.Every > 0 && o.Every < minControlEvery:
		return badConfig("ProcessorConfig.Control.Every", "%s", durations.Below(o.Every, minControlEvery))
	case o.Every > maxControlEvery:
		return badConfig("ProcessorConfig.Control.Every", "%v is above %v", o.Every, maxControlEvery)
	case o.Jobs > maxControlJobs:
		return badConfig("ProcessorConfig.Control.Jobs", "%d is above %d", o.Jobs, maxControlJobs)
	case o.Strict && o.Every < 0:
		return badConfig("ProcessorConfig.Control.Strict", "is set, and Every says that the worker has no seat")
	case o.Required && o.Every < 0:
		return badConfig("ProcessorConfig.Control.Required", "is set, and Every says that no rules are read")
	}
	return nil
}

// isOn reports whether rules are read.
func (o *ControlOptions) isOn() bool { return o.Every > 0 }

// NoStore runs jobs without dedupe: at least once. Every claim wins, with fence 0. The broker
// counts the attempts. EffectKey works. What needs a record fails: Do, Result, CompleteTx.
// It is a [dedupe.Store]; a constant, so that nobody can change it.
const NoStore noStore = 0

type noStore uint8

// isNoStore also finds a NoStore that is decorated, and one that a test has wrapped so that its
// faults befall the calls: that wrapper has no Unwrap, and says Storeless.
func isNoStore(s dedupe.Store) bool {
	n, ok := values.As[interface{ Storeless() bool }](s)
	return ok && n.Storeless()
}

func (noStore) Claim(_ context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	cs := make([]dedupe.Claim, len(rs))
	for i, r := range rs {
		cs[i] = dedupe.Claim{Outcome: dedupe.Won, Lease: dedupe.Lease{Key: r.Key, Token: r.Token}}
	}
	return cs, nil
}

func (noStore) Renew(_ context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	return make([]dedupe.Renewed, len(rs)), nil
}

func (noStore) Settle(_ context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	as := make([]dedupe.Settled, len(ss))
	for i, s := range ss {
		as[i].Status = s.To
	}
	return as, nil
}

func (noStore) Get(_ context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	return nil, ErrNoStore
}

func (noStore) List(context.Context, dedupe.Query) iter.Seq2[*dedupe.Record, error] {
	return func(yield func(*dedupe.Record, error) bool) { yield(nil, ErrNoStore) }
}

func (noStore) Forget(_ context.Context, fs []dedupe.Forgotten) ([]error, error) {
	return nil, ErrNoStore
}

// Storeless tells who knows NoStore by more than its value: see [isNoStore].
func (noStore) Storeless() bool { return true }

func (noStore) Limits() dedupe.Limits {
	return dedupe.Limits{MaxBatch: engine.MaxStoreBatch, Durable: true}
}

// KeepInQueue takes the place of a DeadLetter, and leaves dead letters to the queue's own redrive.
// A job that would become one is released and logged, and its message given back: for an hour, or
// for the broker's longest delay where that is shorter. It is never acked, so the redrive takes it
// in the end. The queue must keep messages for longer than an hour for each receive, or the message
// is gone before.
//
// Until then the handler starts each time that the message comes, once an hour, also when
// MaxAttempts are used up or the error is permanent: the cause may be mended. So does a message
// that an operator redrives from the queue's own dead-letter queue, whatever the job's record says
// of its attempts. A job whose last attempt died, as by a process that was killed, waits for an
// hour first. A parked job does not start: its key is to be resolved.
// It is a [broker.Sender]; a constant, so that nobody can change it.
const KeepInQueue keepInQueue = 0

type keepInQueue uint8

func (keepInQueue) Send(context.Context, []broker.Outgoing) ([]string, error) {
	return nil, broker.ErrUnsupported
}
func (keepInQueue) Limits() broker.Limits { return broker.Limits{SendBatch: 1} }

// warnings is the log of a Processor without a Logger: what a person should look at, and no jobs
// that went well.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

func (w warnings) WithAttrs(as []slog.Attr) slog.Handler { return warnings{w.Handler.WithAttrs(as)} }

func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
