package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/values"
)

// This file owns what New makes: the targets with their names, and the options. Tools call the
// methods of an Ops from many goroutines; nothing of it changes after New, so it has no lock.

// A Target is a queue with what belongs to it. Fields that are empty limit what the methods can
// tell: without a Store there are no keys, no workers and no pauses.
type Target struct {
	// Name is how the tool's people call the queue. Required where Queue is set, and unique.
	Name string
	// Known is the queue's name as its workers have it (ProcessorConfig.Queue), in rules and cards.
	// Default: the Queue's own, else Name.
	Known string
	// Queue is the queue; nil where only keys are looked at.
	Queue broker.Broker
	// DeadLetters is the dead-letter queue. Letters reads it; default: made of DeadLetters, with
	// dlq's defaults.
	DeadLetters broker.Broker
	Letters     *dlq.Queue
	// Store is the one that the queue's workers share.
	Store dedupe.Store
	// Scopes are those of the jobs' records. Default: those of the workers' cards.
	Scopes []string
	// MaxAttempts and Retention are the workers'. 0 = not known; MaxAttempts is then that of the
	// cards.
	MaxAttempts int
	Retention   time.Duration
}

// Options set up an Ops. The zero value, and nil, mean the defaults.
type Options struct {
	// Logger gets a line for each act. Default: nothing is logged.
	Logger *slog.Logger
	// By is who acts, at most 256 bytes. Required for acts, unless the act names somebody itself.
	By string
	// Links are templates of addresses for people, such as https://logs.example/?q={key}. A
	// [TimeLine] has them filled in.
	Links map[string]string
	// Redact changes a message before anybody sees it. It gets a copy. Default: nothing is hidden.
	Redact func(*broker.Message)
	// NoAudit lets acts go on where the store takes no audit record.
	NoAudit bool
}

// Ops sees and steers the targets. Its methods may be called from many goroutines.
type Ops struct {
	ts   []*target
	o    Options
	hear hooks // of an act in the background
}

// hooks hear of an act on its way. Each may be nil.
type hooks struct {
	mayUse func(context.Context, *target, *dlq.Plan) error           // in its turn at the letters
	began  func(audit string)                                        // before anything is done
	ended  func(result map[string]string, err error) (instead error) // before the audit has it
}

// A target is a Target with its defaults.
type target struct {
	Target
	known string
	deaf  [allParts]atomic.Int32 // calls that go on although they were told to end
}

// Errors of this package. Others are those of the queue, the store, and package dlq.
var (
	// ErrUnknownQueue: no Target has that name.
	ErrUnknownQueue = errors.New("ops: no such queue")
	// ErrMissing: the Target has no Store, no Queue or no dead-letter queue, which the call needs.
	ErrMissing = errors.New("ops: the target lacks what this needs")
	// ErrNoKey: the store has no record of the key.
	ErrNoKey = errors.New("ops: no such key")
	// ErrNoAudit: the store takes no audit record, so nothing was done.
	ErrNoAudit = errors.New("ops: no audit record could be written, so nothing was done")
	// ErrRefused: what was asked for would do harm. The error says which, and what to do instead.
	ErrRefused = errors.New("ops: refused")
)

// maxText is what a rule and an audit record take of a name or a reason.
const maxText = 256

// New makes an Ops of its targets. It does no I/O. Closing the brokers and stores is the caller's.
func New(ts []Target, o *Options) (*Ops, error) {
	x := &Ops{}
	if o != nil {
		x.o = *o
	}
	if len(x.o.By) > maxText {
		return nil, fmt.Errorf("ops: Options.By has %d bytes, the limit is %d", len(x.o.By), maxText)
	}
	if len(ts) == 0 {
		return nil, errors.New("ops: New: there is no Target")
	}
	seen := map[string]bool{}
	for i, t := range ts {
		if values.IsNil(t.Queue) {
			t.Queue = nil
		}
		if values.IsNil(t.DeadLetters) {
			t.DeadLetters = nil
		}
		if values.IsNil(t.Store) {
			t.Store = nil
		}
		switch {
		case t.Name == "" && t.Queue != nil:
			return nil, fmt.Errorf("ops: New: Target %d has a Queue and no Name", i)
		case seen[t.Name]:
			return nil, fmt.Errorf("ops: New: two Targets are named %q", t.Name)
		case t.MaxAttempts < 0:
			return nil, fmt.Errorf("ops: New: Target %q: MaxAttempts is %d, want 0 or more", t.Name, t.MaxAttempts)
		case t.Retention < 0:
			return nil, fmt.Errorf("ops: New: Target %q: Retention is %v, want 0 or more", t.Name, t.Retention)
		}
		seen[t.Name] = true
		if t.Letters == nil && t.DeadLetters != nil {
			l, err := dlq.New(t.DeadLetters, nil)
			if err != nil {
				return nil, fmt.Errorf("ops: New: Target %q: %w", t.Name, err)
			}
			t.Letters = l
		}
		x.ts = append(x.ts, &target{Target: t, known: cmp.Or(t.Known, ownName(t.Queue), t.Name)})
	}
	return x, nil
}

// As is o for the acts of another person, such as the one who is logged in at a page: its acts have
// that name where they name nobody themselves. It shares everything else with o, and costs nothing.
// A name of more than 256 bytes is refused by the act.
func (o *Ops) As(by string) *Ops {
	x := *o
	x.o.By = by
	return &x
}

// ownName is what a queue says of itself.
func ownName(b broker.Broker) string {
	if d, ok := broker.As[broker.Describer](b); ok {
		return d.Describe().Name
	}
	return ""
}

// Names are those of the targets, in their order.
func (o *Ops) Names() []string {
	l := make([]string, len(o.ts))
	for i, t := range o.ts {
		l[i] = t.Name
	}
	return l
}

// Target is the target of that name, with the defaults of New. An empty name is the only one.
func (o *Ops) Target(name string) (Target, error) {
	t, err := o.target(name)
	if err != nil {
		return Target{}, err
	}
	c := t.Target
	c.Known = t.known
	return c, nil
}

func (o *Ops) target(name string) (*target, error) {
	if name == "" && len(o.ts) == 1 {
		return o.ts[0], nil
	}
	for _, of := range [...]func(*target) string{func(t *target) string { return t.Name }, func(t *target) string { return t.known }} {
		for _, t := range o.ts {
			if of(t) == name {
				return t, nil
			}
		}
	}
	return nil, fmt.Errorf("%w: %q; there is %s", ErrUnknownQueue, name, strings.Join(o.Names(), ", "))
}

// store is a target's store.
func (t *target) store() (dedupe.Store, error) {
	if t.Store == nil {
		return nil, fmt.Errorf("%w: %s has no Store", ErrMissing, t.label())
	}
	return t.Store, nil
}

func (t *target) queue() (broker.Broker, error) {
	if t.Queue == nil {
		return nil, fmt.Errorf("%w: %s has no Queue", ErrMissing, t.label())
	}
	return t.Queue, nil
}

func (t *target) letters() (*dlq.Queue, error) {
	if t.Letters == nil {
		return nil, fmt.Errorf("%w: %s has no dead-letter queue", ErrMissing, t.label())
	}
	return t.Letters, nil
}

func (t *target) label() string { return cmp.Or(t.Name, "the target") }

// stores are the targets' stores, each once.
func (o *Ops) stores() (all []dedupe.Store) {
	for _, t := range o.ts {
		if t.Store != nil && !hasStore(all, t.Store) {
			all = append(all, t.Store)
		}
	}
	return all
}

func hasStore(all []dedupe.Store, s dedupe.Store) bool {
	for _, x := range all {
		if values.Same(x, s) {
			return true
		}
	}
	return false
}

// get reads one record; nil where there is none.
func get(ctx context.Context, s dedupe.Store, k dedupe.Key) (*dedupe.Record, error) {
	rs, err := s.Get(ctx, []dedupe.Key{k})
	switch {
	case err != nil:
		return nil, err
	case len(rs) != 1:
		return nil, fmt.Errorf("ops: the store answered %d of 1 keys", len(rs))
	}
	return rs[0], nil
}
