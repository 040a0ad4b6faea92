package watermillonceq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/values"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns the middleware: its options, and what becomes of one delivery of a message. The
// Router's goroutines call it, one for each message. The decorator (decorator.go) goes the same
// way. What NewMiddleware makes never changes, so nothing is locked.

// DefaultWait is how long a delivery waits for another run of its key, where Options do not say.
const DefaultWait = 15 * time.Second

// Options say how messages are told apart, and how a handler runs. The zero value, and nil, mean
// the defaults.
type Options struct {
	// Key finds a message's idempotency key. An error is final, of class "no-key", and the handler
	// does not run. Default: [KeyFromMetadata].
	Key KeyFunc
	// Fingerprint is a digest of the message. A message whose key is known with another one is
	// answered with a final *[onceq.MismatchError]. Default nil: not compared.
	Fingerprint func(*message.Message) []byte
	// Wait is how long a delivery waits while another run holds its key, before it is nacked. Then
	// most Pub/Subs deliver it again at once. 0 = DefaultWait; else at least 1 ms. It must be
	// shorter than the Pub/Sub waits for an ack.
	Wait time.Duration
	// Timeout bounds one run of the handler, whose context ends then. 0 = the Processor's
	// Defaults.Timeout; else at least 1 ms.
	Timeout time.Duration
	// MaxAttempts is how often the handler may start for a key. The error of the last one is
	// final. So is the end of a process that died in the last one. 0 = without a limit; 1 = never
	// again.
	MaxAttempts int
	// Interrupted says what becomes of a message whose process died while its handler ran. With
	// dedupe.Rerun (the default), the next delivery runs. With dedupe.Park, later ones get a final
	// *[onceq.ParkedError]. Under Park, a handler that was cut off and answers an error is parked,
	// too. The Router's Close, a Timeout and a panic cut it off.
	Interrupted dedupe.Policy
	// Reopen names the failure that a delivery may run again, as DoOptions.Reopen; 0 = none. It is
	// an operator's word. Default nil: none. See [ReopenFromMetadata].
	Reopen func(*message.Message) uint64
	// OnFinal is called in place of the answer when a message gets a *[FinalError], in the
	// goroutine of its delivery. Where it returns nil, the message counts as dealt with, and is
	// acked. Its error is answered as it is. Default nil: the middleware answers the *FinalError,
	// and a decorator nacks.
	OnFinal func(*message.Message, *FinalError) error
	// Logger is told by a decorator what a Router would be told by an error. Default: none.
	Logger watermill.LoggerAdapter
}

func (o Options) withDefaults() Options {
	if o.Key == nil {
		o.Key = KeyFromMetadata
	}
	if values.IsNil(o.Logger) {
		o.Logger = watermill.NopLogger{}
	}
	o.Wait = cmp.Or(o.Wait, DefaultWait)
	return o
}

func (o *Options) check() error {
	switch {
	case o.Wait < 0:
		return fmt.Errorf("watermillonceq: Options.Wait: %v is negative", o.Wait)
	case durations.IsBare(o.Wait):
		return fmt.Errorf("watermillonceq: Options.Wait: %s", durations.AskUnit(o.Wait))
	case o.Timeout < 0:
		return fmt.Errorf("watermillonceq: Options.Timeout: %v is negative", o.Timeout)
	case durations.IsBare(o.Timeout):
		return fmt.Errorf("watermillonceq: Options.Timeout: %s", durations.AskUnit(o.Timeout))
	case o.MaxAttempts < 0:
		return fmt.Errorf("watermillonceq: Options.MaxAttempts: %d is negative; 0 means without a limit", o.MaxAttempts)
	}
	return nil
}

// NewMiddleware makes the middleware. It may be given to a Router, or to any number of handlers.
// The Processor needs a store; one that is for [onceq.Do] only will do. NewMiddleware reports
// mistakes in o, and does no I/O.
func NewMiddleware(p *onceq.Processor, o *Options) (message.HandlerMiddleware, error) {
	g, err := newGuard(p, o)
	if err != nil {
		return nil, err
	}
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) { return g.handle(msg, h) }
	}, nil
}

// guard is what NewMiddleware and NewDecorator make.
type guard struct {
	p     *onceq.Processor
	o     Options
	scope string // the Processor's
}

func newGuard(p *onceq.Processor, o *Options) (*guard, error) {
	if p == nil {
		return nil, errors.New("watermillonceq: the Processor is nil")
	}
	if o == nil {
		o = &Options{}
	}
	full := o.withDefaults()
	if err := full.check(); err != nil {
		return nil, err
	}
	g := &guard{p: p, o: full}
	return g, g.probe()
}

// probe finds what Do would refuse for each message, and the scope that Do takes. Its context has
// ended, so it asks nothing of the store.
func (g *guard) probe() error {
	ctx, end := context.WithCancel(context.Background())
	end()
	o := g.do(nil)
	_, err := onceq.Do(ctx, g.p, dedupe.Key{Key: "probe"}, o, func(context.Context, *onceq.Job) (int, error) { return 0, nil })
	var notRun *onceq.NotRunError
	if errors.As(err, &notRun) {
		g.scope = notRun.Key.Scope
		return nil
	}
	if errors.Is(err, onceq.ErrNoStore) {
		return fmt.Errorf("watermillonceq: the Processor's ProcessorConfig.Store is NoStore, and a claim needs a store: %w", err)
	}
	return fmt.Errorf("watermillonceq: %w", err)
}

func (g *guard) do(msg *message.Message) *onceq.DoOptions {
	o := &onceq.DoOptions{Wait: g.o.Wait, Timeout: g.o.Timeout, Interrupted: g.o.Interrupted}
	if msg != nil && g.o.Fingerprint != nil {
		o.Fingerprint = g.o.Fingerprint(msg)
	}
	if msg != nil && g.o.Reopen != nil {
		o.Reopen = g.o.Reopen(msg)
	}
	return o
}

type jobKey struct{}

// Job is the job of a message that the middleware or the decorator has let through, from the
// message's context; nil where there is none.
func Job(ctx context.Context) *onceq.Job {
	j, _ := ctx.Value(jobKey{}).(*onceq.Job)
	return j
}

// key is the message's, with its scope.
func (g *guard) key(msg *message.Message) (dedupe.Key, error) {
	k, err := g.o.Key(msg)
	if err != nil {
		return dedupe.Key{}, noKey(err)
	}
	if k.Key == "" { // with the handler's name, all such messages would be one job
		return dedupe.Key{}, ErrNoKey
	}
	if k.Scope == "" {
		k.Scope = g.scope
		if handler := message.HandlerNameFromCtx(msg.Context()); handler != "" {
			k.Key = strconv.Quote(handler) + k.Key // quoted, so that no handler's key is another's
		}
	}
	return k, nil
}

// handle is the middleware.
func (g *guard) handle(msg *message.Message, h message.HandlerFunc) ([]*message.Message, error) {
	from := message.Metadata{} // before the handler writes into the message
	for _, name := range []string{KeyMetadata, broker.MetaAttribute} {
		from.Set(name, msg.Metadata.Get(name))
	}
	k, ms, err := g.once(msg.Context(), msg, func(ctx context.Context) (Produced, error) {
		before := msg.Context()
		msg.SetContext(ctx)
		defer msg.SetContext(before) // a middleware outside may run the handler again
		return h(msg)
	})
	if err != nil {
		return ms, err
	}
	return ms.withKeys(k, from), nil
}

// once is one delivery: one claim and its run, or what is known of another.
func (g *guard) once(ctx context.Context, msg *message.Message, f func(context.Context) (Produced, error)) (dedupe.Key, Produced, error) {
	k, err := g.key(msg)
	if err != nil {
		return k, nil, g.end(msg, &FinalError{Err: err})
	}
	var fence uint64 // of this delivery's own run
	whole := false   // it has succeeded
	ms, err := onceq.Do(ctx, g.p, k, g.do(msg), func(ctx context.Context, j *onceq.Job) (Produced, error) {
		fence = j.Fence()
		most := g.o.MaxAttempts
		if most > 0 && j.Attempt > most {
			return nil, onceq.Permanent(&attemptsError{most, errors.New("the last run was cut off")})
		}
		ms, err := f(context.WithValue(ctx, jobKey{}, j))
		var notBegun *verdict.NotBegunError
		if err != nil && most > 0 && j.Attempt >= most && !errors.As(err, &notBegun) {
			return ms, onceq.Permanent(&attemptsError{most, err})
		}
		whole = err == nil
		return ms, err
	})
	if err == nil {
		return k, ms, nil
	}
	if e := final(k, fence, err); e != nil {
		if whole && onceq.ClassOf(err) == onceq.ClassResult {
			return k, ms, nil // they cannot be kept, and publishing them once is better than never
		}
		return k, nil, g.end(msg, e)
	}
	return k, ms, err
}

// end is the answer to a message that will never run.
func (g *guard) end(msg *message.Message, e *FinalError) error {
	mark(msg, e)
	if g.o.OnFinal != nil {
		return g.o.OnFinal(msg, e)
	}
	return e
}

// attemptsError is the end of a key that had all its attempts.
type attemptsError struct {
	most int
	err  error
}

func (e *attemptsError) Error() string {
	return fmt.Sprintf("the last of %d attempts: %v", e.most, e.err)
}

func (e *attemptsError) Unwrap() error { return e.err }

func (e *attemptsError) ErrorClass() string { return onceq.ClassAttempts }
