package onceq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/steering"
	"github.com/onceq/onceq/internal/values"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns the intake of a Processor's messages: what each queue's intake knows, what is read
// of a message before its claim, what a message may bring about beyond its own job, and what the
// Processor cannot take. The goroutine that has a run calls admit; what many write is atomic.

// intake is one way by which jobs come to a Processor: a Worker, a Batches, or all calls of Do.
// Each has an engine of its own, because queues differ in what they can do, and in where their
// letters go. Nothing here changes after newIntake except foreign, which has its own lock.
type intake struct {
	*Processor
	e       *engine.Engine[Job]
	log     *slog.Logger // names the queue
	letters broker.Sender
	foreign foreign
	// queueName is JobReport.Queue.
	queueName string
	past      steering.Watchman
	begun     time.Time
	took      steering.Sketches // of a Worker that writes cards; else nil
	carry     *carrier          // of a Worker that sends anew what waits for too long; else nil
	ordered   bool              // the queue orders groups
	keeps     time.Duration     // how long it keeps a message, where a configuration says so; 0 = unknown
	isBusy    func(error) bool  // the store's word on a handler's error; nil = it has none
	limiters  limiters          // what they have postponed
}

// deliveries is what a Processor's intakes differ in.
type deliveries struct {
	letters    broker.Sender
	name       string // of the queue, as its configuration has it
	queue      any    // it, where it is ours to call; nil = it is not
	holdGroup  bool
	visibility time.Duration // for which a delivery is extended
	limits     broker.Limits // of the queue; zero = it is not ours to call
	slots      int           // how many handlers run at once; 0 = not known
	keeps      time.Duration // how long the queue keeps a message, as far as somebody says
}

func (p *Processor) newIntake(d deliveries) (*intake, error) {
	c, source, log := &p.c, p.c.Scope, p.c.Logger
	if d.name != "" {
		source += ":" + d.name
		log = log.With(slog.String("queue", d.name))
	}
	in := &intake{Processor: p, log: log, letters: d.letters, begun: time.Now(), queueName: cmp.Or(c.Queue, describe(d.queue).Name, source), ordered: d.limits.OrderedGroups, keeps: d.keeps, isBusy: busyTeller(c.Store)}
	in.past = steering.Watchman{Fences: &p.fences, Store: c.Store, Queue: in.queueName, CallTimeout: c.CallTimeout, Logger: log, Tell: in.tellSteering}
	if c.Control.isOn() && d.slots+len(d.name) > 0 {
		in.past.Rules = p.book.Store()
	}
	o := engine.Options{
		Store: c.Store, StoreOutage: &p.storeOut, Pulse: &p.storePulse, Tell: in.tellOutage, AskedUnit: &p.asked.retryAfter,
		DeadLetter: d.letters, LetterKeys: c.LetterKeys,
		Source: source, Owner: c.Owner, Retention: c.Retention, Lease: c.Lease,
		SettleTimeout: c.SettleTimeout, CallTimeout: c.CallTimeout, HoldGroup: d.holdGroup,
		QueueKeeps: func() time.Duration { return time.Duration(in.foreign.keeps.Load()) }, AnyAge: relayIn(c.Handler) != nil,
		Logger: log, Backoff: defaultBackoff,
		Visibility: d.visibility, Limits: d.limits, Slots: d.slots, Limited: in.limiters.count,
	}
	if c.Store.Limits().OrderedFences {
		o.Fences, o.WentBack = &p.fences, in.past.FenceBack
	}
	e, err := engine.New[Job](o, &p.all)
	if err != nil {
		return nil, err
	}
	in.e = e
	return in, nil
}

// busyTeller is how the store tells a busy database; nil = it does not.
func busyTeller(s dedupe.Store) func(error) bool {
	if t, ok := broker.As[dedupe.BusyTeller](s); ok {
		return t.IsBusy
	}
	return nil
}

func (in *intake) queue() string { return in.queueName }

// describe asks a queue for its name, if it has one.
func describe(queue any) broker.Description {
	if d, ok := broker.As[broker.Describer](queue); ok {
		return d.Describe()
	}
	return broker.Description{}
}

// lettersTo is where letters go, as far as the configuration says.
func (in *intake) lettersTo() engine.LetterTo {
	if values.Same(in.letters, KeepInQueue) {
		return engine.ToNobody
	}
	return engine.ToQueue
}

// tellEvent tells the Observer. No lock may be held.
func (in *intake) tellEvent(ctx context.Context, e WorkerEvent) {
	if in.events == nil {
		return
	}
	e.Queue = in.queueName
	if e.Since.IsZero() {
		e.Since = time.Now()
	}
	defer func() {
		if v := recover(); v != nil {
			in.observerPanicked(v)
		}
	}()
	in.events.WorkerEvent(ctx, &e)
}

// tellOutage is told by the engine that something is away, or there again.
func (in *intake) tellOutage(ctx context.Context, n engine.Notice) {
	e := WorkerEvent{Kind: EventOutage, Reason: ReasonStore, Err: n.Err, Since: n.Since}
	if n.Over {
		e.Kind = EventOutageOver
	}
	if n.What == engine.TheLetters {
		e.Reason = ReasonLetters
	}
	in.tellEvent(ctx, e)
}

// tellSteering is told by what obeys operators, and by what finds that a store went back in time.
func (in *intake) tellSteering(ctx context.Context, what steering.Event, why error) {
	e := WorkerEvent{Err: why}
	switch what {
	case steering.RulesRefused:
		e.Kind = EventRuleRefused
	case steering.SeatLost:
		e.Kind = EventSeatLost
	case steering.StoreWentBack:
		e.Kind, e.Reason = EventStoreWentBack, ReasonStore
	}
	in.tellEvent(ctx, e)
}

func (in *intake) observerPanicked(v any) {
	in.log.LogAttrs(context.Background(), slog.LevelError, "onceq: the Observer panicked", slog.Any("panic", v))
}

// This part owns what is read out of a message before its claim: its key, its scope, its options,
// its fingerprint, and why there may be none. deliveryHost.Admit calls it, in the goroutine that
// has put the run into a slot. It holds no lock; what foreign keeps has its own.

// admit finds out what a message asks for. A refused message becomes a dead letter with fence 0,
// because no claim was won that its replay could reopen.
func (in *intake) admit(r *run) *engine.Refusal {
	m := r.Message
	if m.MetaErr != nil {
		return &engine.Refusal{Class: ClassBadMeta, Err: m.MetaErr}
	}
	give(r)
	if no := in.untyped(m); no != nil {
		return no
	}
	opts, scope := in.optionsFor(m)
	r.Opts = opts
	key, err := in.keyOf(r.Job.Message)
	if err != nil {
		return &engine.Refusal{Class: ClassNoKey, Err: err}
	}
	key.Scope = cmp.Or(key.Scope, scope)
	if err := checkKey(key); err != nil {
		return &engine.Refusal{Class: ClassBadKey, Err: err}
	}
	r.Key = key
	r.SetReopens(in.fenceToReopen(r))
	if in.c.Fingerprint != nil {
		b, err := in.fingerprintOf(r.Job.Message)
		if err != nil {
			return &engine.Refusal{Class: ClassError, Err: err}
		}
		r.SetFingerprint(b)
	}
	return nil
}

func (p *Processor) optionsFor(m *broker.Message) (engine.JobOptions, string) {
	d := &p.c.Defaults
	o := engine.JobOptions{Most: bounded(d.MaxAttempts), Timeout: d.Timeout, Policy: d.Interrupted, Backoff: d.Backoff}
	most, timeout := d.Ceilings.Attempts, d.Ceilings.Timeout
	scope := cmp.Or(d.Scope, p.c.Scope)
	o.StartsLater = startsLater(p.c.Handler)
	if t := p.types[engine.TypeOf(m)]; t != nil {
		o.Most = cmp.Or(bounded(t.options.MaxAttempts), o.Most)
		o.Timeout = cmp.Or(t.options.Timeout, o.Timeout)
		o.Policy = max(t.options.Interrupted, o.Policy)
		if t.options.Backoff != nil {
			o.Backoff = t.options.Backoff
		}
		o.StartsLater = t.startsLater
		most, timeout = cmp.Or(t.options.Ceilings.Attempts, most), cmp.Or(t.options.Ceilings.Timeout, timeout)
		scope = t.scope
	} else if p.types != nil && m.Meta != nil && !p.oneScope {
		// A type that nobody knows here has its keys in a scope of its own. The worker that knows
		// the type finds their attempts there.
		scope = new(JobOptions).scopeOf(p.c.Scope, "", m.Meta.Type)
	}
	if m.Meta != nil {
		lower(&o, m.Meta, most, timeout)
	}
	return o, scope
}

// bounded makes any MaxAttempts fit. Beyond two thousand million there is no difference.
func bounded(attempts int) int32 { return int32(max(-1, min(attempts, math.MaxInt32))) }

// keyOf is the key of a message. It is never the broker's message id, because a producer's retry
// and a redrive change that.
func (in *intake) keyOf(m *broker.Message) (k dedupe.Key, err error) {
	if in.c.Key != nil {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("onceq: ProcessorConfig.Key panicked: %v", v)
			}
		}()
		return in.c.Key(m)
	}
	if m.Meta == nil {
		return k, fmt.Errorf("onceq: message %s has no metadata, and ProcessorConfig.Key is not set", m.ID)
	}
	k.Key = cmp.Or(m.Meta.Key, m.Meta.ID)
	if k.Key == "" {
		return k, fmt.Errorf("onceq: message %s has neither Meta.Key nor Meta.ID, and ProcessorConfig.Key is not set", m.ID)
	}
	return k, nil
}

func (p *Processor) fingerprintOf(m *broker.Message) (b []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("onceq: ProcessorConfig.Fingerprint panicked: %v", v)
		}
	}()
	return p.c.Fingerprint(m), nil
}

// admitRelayed is what a relay asks for: neither what the job's metadata ask of its own worker, nor
// a key, where the message has none.
func (in *intake) admitRelayed(r *run, to *relay) *engine.Refusal {
	m, d := r.Message, &in.c.Defaults
	if m.MetaErr != nil {
		return &engine.Refusal{Class: ClassBadMeta, Err: m.MetaErr}
	}
	left, late := early(m, in.ordered)-max(0, to.limits.MaxDelay), (*engine.Refusal)(nil)
	if left > 0 {
		if late = in.tooFarAhead(m, time.Now().Add(left)); late == nil {
			return &engine.Refusal{Back: engine.Outcome(OutcomeEarly), Delay: left}
		}
	}
	give(r)
	r.Opts = engine.JobOptions{Most: -1, Timeout: d.Timeout, Policy: d.Interrupted, Backoff: d.Backoff}
	key := dedupe.Key{Key: m.ID}
	if in.c.Key != nil || hasKey(m.Meta) {
		var err error
		if key, err = in.keyOf(r.Job.Message); err != nil {
			return &engine.Refusal{Class: ClassNoKey, Err: err}
		}
	}
	key.Scope = cmp.Or(key.Scope, d.Scope, in.c.Scope)
	if err := checkKey(key); err != nil {
		return &engine.Refusal{Class: ClassBadKey, Err: err}
	}
	r.Key = key
	if late != nil {
		return in.refuseOutlasting(r, late)
	}
	return nil
}

func hasKey(m *broker.Meta) bool { return m != nil && (m.Key != "" || m.ID != "") }

// This part owns what a message may bring about beyond its own job. There are bounds, because
// whoever may send a message may write all of its metadata.

// lower lets a job's Meta lower what its worker has set. It lets the Meta raise that no further
// than the operator's ceilings.
func lower(o *engine.JobOptions, m *broker.Meta, most int, timeout time.Duration) {
	if asked := bounded(m.MaxAttempts); asked != 0 {
		ceiling := bounded(most)
		if most == 0 && o.Most > 0 {
			ceiling = max(defaultMostAttempts, o.Most)
		}
		if ceiling > 0 && (asked < 0 || asked > ceiling) {
			asked = ceiling
		}
		o.Most = asked
	}
	if asked := m.Timeout; asked > 0 {
		if timeout == 0 && o.Timeout > 0 {
			timeout = max(defaultMostTimeout, o.Timeout)
		}
		if timeout > 0 {
			asked = min(asked, timeout)
		}
		o.Timeout = asked
	}
}

// tooEarly refuses a message when its not-before lies further ahead than its type allows, or than
// its queue can keep it. Such a message would be given back again and again, and hold its group
// meanwhile.
func (in *intake) tooEarly(r *run, left time.Duration) *engine.Refusal {
	most := in.c.Defaults.Ceilings.NotBefore
	if t := in.types[r.Type()]; t != nil {
		most = cmp.Or(t.options.Ceilings.NotBefore, most)
	}
	most = cmp.Or(most, max(in.c.Retention, DefaultRetention))
	far := most >= 0 && time.Until(r.Message.Meta.NotBefore) > most
	no := in.tooFarAhead(r.Message, time.Now().Add(left))
	if !far && no == nil {
		in.warnUnkept(r, left)
		return nil
	}
	if no := in.admit(r); no != nil { // its letter needs the key
		return no
	}
	if far {
		return &engine.Refusal{Class: ClassTooEarly, Err: fmt.Errorf("onceq: the job's not-before, %s, is more than %v ahead",
			r.Message.Meta.NotBefore.UTC().Format(time.RFC3339), most)}
	}
	return in.refuseOutlasting(r, no)
}

// fenceToReopen is the fence of the failure that the message may reopen; 0 = none. Where there are
// LetterKeys, only a signed letter of this scope may reopen one.
func (in *intake) fenceToReopen(r *run) uint64 {
	m := r.Message
	if m.Meta == nil || m.Meta.Dead == nil {
		return 0
	}
	d := m.Meta.Dead
	if d.Fence == 0 || len(in.c.LetterKeys) == 0 || scopeOf(d.Source) == in.c.Scope && in.c.LetterKeys.Signed(m) {
		return d.Fence
	}
	in.log.LogAttrs(r.Flow().Terms.Base, slog.LevelWarn, "onceq: a message names a failure, but none of ProcessorConfig.LetterKeys has signed it; it reopens nothing",
		slog.String("job", r.Name()), slog.String("key", r.Key.String()))
	return 0
}

// scopeOf is the scope in the Source of a letter. The rest of the Source does not count, because a
// replay may go to another queue of the scope, or find its own queue under another Name.
func scopeOf(source string) string {
	scope, _, _ := strings.Cut(source, ":")
	return scope
}

// This part owns messages that the Processor cannot take because of its own configuration. They are
// held back: given back unclaimed, with an ERROR that says what to set. Otherwise the first start
// on a queue that exists already would empty it into the dead-letter queue. There are three causes:
//
//   - The producer knows nothing of onceq, and ProcessorConfig.Key is missing.
//   - The producer gives no type, and the Handler is a Mux, which goes by the type.
//   - The Handler hides a Mux, so that the scopes and options of its types are unknown.
//
// admit asks for each message, in the goroutine that has its run. A lock in told guards the times
// at which the log was told; the other fields are atomic.

// foreign is what one intake knows of its producers. The Worker tells it what the queue keeps.
type foreign struct {
	met      atomic.Bool  // a message with a key of ours has come, so one without is the exception
	typed    atomic.Bool  // the same of a type
	keeps    atomic.Int64 // the queue's retention, as a Duration; 0 = unknown
	receives atomic.Int64 // after so many the queue moves a message away; 0 = never, or unknown

	told       told
	outlasting told // of the messages that the queue cannot keep
	crowded    told // of the jobs whose transactions found their database busy
}

// told is when the log was told of something that goes on.
type told struct {
	mu          sync.Mutex
	first, last time.Time
}

// How long a message without a key is held back. In all, it is at most half of the time for which
// the queue keeps messages, or foreignMost where that time is not known. Each time it is given back
// for foreignLeast. Where the queue counts its receives, they are spread over the time there is,
// but by no more than foreignLongest each, so that whoever has mended the configuration need not
// wait longer.
const (
	foreignMost    = 24 * time.Hour
	foreignLeast   = 5 * time.Minute
	foreignLongest = engine.KeptFor
)

// left is for how much longer the message may be held back.
//
// Where its age is not known, it is at least as old as the intake. That is not enough, because each
// deploy makes a new intake. So its receives count, too: each but the last stands for the time for
// which such a message is given back. Receives before onceq came count as well. Therefore they make
// no letter until the intake is foreignLongest old, and somebody can have read the ERROR.
func (f *foreign) left(m *broker.Message, begun time.Time, least time.Duration) time.Duration {
	most := foreignMost
	if keeps := time.Duration(f.keeps.Load()); keeps > 0 {
		most = keeps / 2
	}
	if !m.Published.IsZero() {
		return most - time.Since(m.Published)
	}
	up := time.Since(begun)
	each, _ := f.wait(1, most, least)
	held := time.Duration(min(m.Attempt-1, 1<<20)) * each // within a Duration's range
	return most - max(up, min(held, up+most-foreignLongest))
}

// wait is for how long a message is given back after its receive of that number: left is spread
// over the receives that the queue will allow yet. ok = false: it allows no more.
func (f *foreign) wait(receive int, left, least time.Duration) (d time.Duration, ok bool) {
	receives := int(f.receives.Load())
	if receives <= 0 || receive <= 0 { // no limit, or nobody counts
		return least, true
	}
	if receive >= receives {
		return 0, false
	}
	return min(max(least, left/time.Duration(receives-receive)), foreignLongest), true
}

// shouldTell reports whether it is time to log: at the first such message, and then each
// engine.TellAgain while they come. since is how long ago the first one came.
func (t *told) shouldTell() (since time.Duration, tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.first.IsZero() {
		t.first = now
	}
	if !t.last.IsZero() && now.Sub(t.last) < engine.TellAgain {
		return 0, false
	}
	t.last = now
	return now.Sub(t.first), true
}

// meet is told of each message as it comes in. What waits behind a foreign one of its group counts,
// too.
func (f *foreign) meet(m *broker.Message) {
	if m == nil || m.Meta == nil {
		return
	}
	// A store for every message would be shared by all processors.
	if (m.Meta.Key != "" || m.Meta.ID != "") && !f.met.Load() {
		f.met.Store(true)
	}
	if m.Meta.Type != "" && !f.typed.Load() {
		f.typed.Store(true)
	}
}

// untyped refuses what the Handler cannot tell apart: a message without a type under a Mux, where
// none with a type has come, and every message under a Handler that hides a Mux. Where the Handler
// has done other jobs, those that it gives to the Mux fail one by one.
func (in *intake) untyped(m *broker.Message) *engine.Refusal {
	switch {
	case in.hidesMux.Load() && !in.handled.Load():
		return &engine.Refusal{Class: ClassConfig, Err: errHiddenMux}
	case in.types != nil && engine.TypeOf(m) == "" && in.types[""] == nil && !in.foreign.typed.Load():
		return &engine.Refusal{Class: ClassNoHandler, Err: errNoType}
	}
	return nil
}

var errNoType = errors.New("onceq: the message has no type, and the Handler is a Mux, which goes by Meta.Type")

// whatToSet says what is wrong with the configuration where a message was refused for that, and
// what to do; "" = it is the message's own fault.
func (in *intake) whatToSet(class string) string {
	switch {
	case class == ClassNoKey && in.c.Key == nil && !in.foreign.met.Load():
		return "onceq: messages have no key, because their producer does not use onceq; they are held back. Set ProcessorConfig.Key, which finds the key of such a message"
	case class == ClassNoHandler:
		return "onceq: messages have no type, because their producer does not use onceq, and the Handler is a Mux; they are held back. Say of which type they are by Mux.Untyped, or give their queue a Processor with one Handler for all of them"
	case class == ClassConfig:
		return "onceq: the Handler wraps a Mux, whose scopes and options are then unknown; messages are held back. Wrap the Mux with Chain, or give the middleware to Mux.Use"
	}
	return ""
}

// holdForeign is what becomes of a message that was refused: where the configuration is at fault,
// it is given back.
func (in *intake) holdForeign(r *run, no *engine.Refusal) *engine.Refusal {
	f, toSet := &in.foreign, in.whatToSet(no.Class)
	if toSet == "" {
		return no
	}
	least := foreignLeast
	if in.e.HoldsBack(r) {
		least = engine.KeptFor // it stays in the queue in the end, too
	}
	left := f.left(r.Message, in.begun, least)
	wait, ok := f.wait(r.Message.Attempt, left, least)
	if left <= 0 || !ok { // the queue would drop it, or move it away, and nobody would know why
		return no
	}
	if since, tell := f.told.shouldTell(); tell {
		in.log.LogAttrs(r.Flow().Terms.Base, slog.LevelError, toSet,
			engine.ForSo(since), slog.String("job", r.Name()), slog.Duration("hidden_for", min(wait, left).Round(time.Second)), slog.Duration("letter_in", left.Round(time.Second)))
	}
	r.Verdict.Class, r.Verdict.Text = no.Class, verdict.Text(no.Err)
	return &engine.Refusal{Back: engine.Kept, Delay: min(wait, left)}
}
