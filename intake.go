package onceq

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/values"
)

// intake is one way by which jobs come to a Processor: a Worker, a Batches, or all calls of Do.
// Each has an engine of its own, because queues differ in what they can do, and in where their
// letters go. Nothing here changes after newIntake except foreign, which has its own lock.
type intake struct {
	*Processor
	e       *engine.Engine[Job]
	log     *slog.Logger // names the queue
	letters broker.Sender
	foreign foreign
	// queueName is TimingRecord.Queue.
	queueName string
	past      watchman
	begun     time.Time
	took      sketches // of a Worker that writes cards; else nil
	// carries says that what waits for longer than the queue keeps it is sent anew, but for the
	// messages of groups where these are ordered.
	carries, ordered bool
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
	carries    bool          // messages that wait for too long are sent anew
}

func (p *Processor) newIntake(d deliveries) (*intake, error) {
	c, source, log := &p.c, p.c.Scope, p.c.Logger
	if d.name != "" {
		source += ":" + d.name
		log = log.With(slog.String("queue", d.name))
	}
	in := &intake{Processor: p, log: log, letters: d.letters, begun: time.Now(), queueName: cmp.Or(c.Queue, describe(d.queue).Name, source), carries: d.carries, ordered: d.limits.OrderedGroups}
	in.past = watchman{fences: &p.fences, store: c.Store, queue: in.queueName, timeout: c.CallTimeout, log: log, tell: in.tellEvent}
	if c.Control.isOn() && d.slots+len(d.name) > 0 {
		in.past.rules = p.book.store
	}
	o := engine.Options{
		Store: c.Store, StoreOutage: &p.storeOut, Pulse: &p.storePulse, Tell: in.tellOutage, AskedUnit: &p.asked.retryAfter,
		DeadLetter: d.letters, LetterKeys: c.LetterKeys,
		Source: source, Owner: c.Owner, Retention: c.Retention, Lease: c.Lease,
		SettleTimeout: c.SettleTimeout, CallTimeout: c.CallTimeout, HoldGroup: d.holdGroup,
		QueueKeeps: func() time.Duration { return time.Duration(in.foreign.keeps.Load()) }, AnyAge: relayIn(c.Handler) != nil,
		Logger: log, Backoff: defaultBackoff,
		Visibility: d.visibility, Limits: d.limits, Slots: d.slots, Outlasts: in.outlasts,
	}
	if c.Store.Limits().OrderedFences {
		o.Fences, o.WentBack = &p.fences, in.past.fenceBack
	}
	e, err := engine.New[Job](o, &p.all)
	if err != nil {
		return nil, err
	}
	in.e = e
	return in, nil
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

func (in *intake) observerPanicked(v any) {
	in.log.LogAttrs(context.Background(), slog.LevelError, "onceq: the Observer panicked", slog.Any("panic", v))
}
