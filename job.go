package onceq

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/values"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns what a job is to its handler: Job, its options, and Kind, which ties a type of job
// to its Go type. The handler's goroutine has the Job; options are made complete once, before the
// first receive, and nobody changes them later.

// Job is one delivery, or one call of [Do], whose key is claimed. A handler gets it as an argument,
// and must not use it after it has returned. What came with the delivery are fields; what its claim
// says, such as the key, is told by methods.
type Job struct {
	// Message is the delivery. It is a copy for the user's code, with its Meta and Attributes. What
	// ProcessorConfig.Key, ProcessorConfig.Fingerprint, a middleware or a handler changes in it,
	// the next of them sees, but a dead letter does not show it. Only the bytes of Body are shared
	// with the letter: give Body other bytes, and leave those that came as they are. The message of
	// a call of Do has nothing but the key, in its Meta.
	Message *broker.Message
	// Attempt is how often this job has been claimed for a run, this run included, as the store
	// counts.
	Attempt int

	r *engine.Run[Job]
}

var _ dedupe.Owned = (*Job)(nil)

// A run is the engine's; the Job in it is what its host keeps there.
type (
	run  = engine.Run[Job]
	flow = engine.Flow[Job]
)

// ID is the job's id: Meta.ID, or the broker's message id for a foreign producer.
func (j *Job) ID() string {
	return engine.IDOf(j.received())
}

// Type is Meta.Type; empty for a foreign producer.
func (j *Job) Type() string { return engine.TypeOf(j.received()) }

// received is the message as it came. In a test that made the Job itself it is Message.
func (j *Job) received() *broker.Message {
	if j.r == nil {
		return j.Message
	}
	return j.r.Message
}

// Queue is the name of the queue that the job came from, as JobReport.Queue has it.
func (j *Job) Queue() string { return j.owner().queue() }

// Key is the idempotency key under which the job is claimed.
func (j *Job) Key() dedupe.Key { return j.r.Key }

// Fence is the number of this claim. It is higher than that of every claim of the key before. Where
// the effect's own database can do that, store the fence with the effect, and refuse lower ones. 0
// = there is no store.
func (j *Job) Fence() uint64 { return j.r.Fence }

// Lease is the claim, for stores that complete a job in the user's transaction. Its Deadline is
// zero, because the worker renews the claim, and ends the handler's context when it is lost.
func (j *Job) Lease() dedupe.Lease {
	return dedupe.Lease{Key: j.r.Key, Token: j.r.Token, Fence: j.r.Fence, Attempt: j.Attempt}
}

// Retain is how long the job's record is to be kept.
func (j *Job) Retain() time.Duration { return j.owner().retention() }

// Join tells the worker that a transaction may complete the job. A store's CompleteTx calls it.
// From then on the worker never writes done itself.
func (j *Job) Join() { j.r.Joined.Store(true) }

// EffectKey is an idempotency key for an effect of this job elsewhere, such as a payment API's. It
// has 32 hexadecimal digits. It is equal over attempts and replays of the job, and different for
// other jobs and steps. step may be empty where there is one effect.
//
// Many APIs keep the answer of a key, a decline included, and give it again for a day or longer.
// When the job of a declined card is replayed, it gets the old decline then. Put into step what may
// have changed since, such as the card or the amended amount: EffectKey("charge " + card). Never
// put j.Fence() or j.Attempt there, because each run would then have an effect of its own.
func (j *Job) EffectKey(step string) string { return EffectKey(j.r.Key, step) }

// EffectKey is what [Job.EffectKey] answers for the key k. Its value for given arguments never
// changes.
func EffectKey(k dedupe.Key, step string) string {
	return engine.EffectKey(k, step)
}

// SetResult sets what is kept with the key when the job is done, for those who ask later. b belongs
// to the job from then on. A result larger than the store's limit is refused at once, with
// [dedupe.ErrResultSize]. Without a store it is dropped.
func (j *Job) SetResult(b []byte) error {
	if most := j.owner().mostResult(); most > 0 && len(b) > most {
		return fmt.Errorf("%w: %d bytes, the store's limit is %d", dedupe.ErrResultSize, len(b), most)
	}
	j.r.SetResult(b)
	return nil
}

// owner is what a Job asks of whoever runs it. Every host of runs answers.
type owner interface {
	retention() time.Duration
	mostResult() int // in bytes; 0 = any
	queue() string
}

func (j *Job) owner() owner { return j.r.Flow().Host.(owner) }

// JobOptions say how a job is run. A type's options win over the Processor's Defaults. A job's Meta
// may lower them. It may raise them only as far as the Ceilings allow, because whoever may send a
// message writes its Meta.
type JobOptions struct {
	// MaxAttempts is how often the handler may start. 0 = the default, 10; 1 = never retried; < 0 =
	// unlimited. Without a Store, and with a broker that does not count deliveries, it must be set
	// to unlimited, because nobody counts. Under a [Forward] 0 is unlimited, too.
	//
	// Where the queue keeps what cannot be done ([KeepInQueue], WorkerConfig.HoldGroup), no dead
	// letter could bring the job back. So MaxAttempts is then how often the handler starts before
	// the job counts as one that cannot be done. From then on it starts once each time that its
	// message comes, which is once an hour. Where a second start would do harm, set Interrupted to
	// Park.
	MaxAttempts int
	// Timeout bounds one run of the handler. 0 = none, else at least 1 ms. At its end the handler's
	// context is cancelled with the cause [ErrTimeout]. A handler that ignores its context runs on,
	// with its leases kept.
	Timeout time.Duration
	// Interrupted says what becomes of a job when its worker died, or was cut off, after the
	// handler had begun: dedupe.Rerun (the default) or dedupe.Park. Under Park a panic parks the
	// job too, and so does any error after the handler's context has ended, because nobody knows
	// whether its effect happened. Park wins: where the Defaults say Park, a type cannot undo it.
	// It needs a Store.
	Interrupted dedupe.Policy
	// Backoff is how long to wait after the given attempt (from 1) failed with err. Default: 1 s,
	// doubled with each attempt up to 15 min. Of that a random part is taken (full jitter). Under a
	// [Forward] the default goes up to 1 min.
	Backoff func(attempt int, err error) time.Duration
	// Ceilings bound what a job's Meta may ask for. A type's win, one by one.
	Ceilings Ceilings
	// Scope is the scope of the keys; it has no ':'. Default: the Processor's Scope and, under a
	// Mux, a ':' and the type behind it. Types that have one Scope share their keys: a job of one
	// is acked as done when another's with its key is. A WARN tells of it.
	Scope string
	// Was says that the type of a Mux takes the place of something, and goes on with its keys: what
	// was done there is done, and is not done again. It is the name that the type had before, or
	// [OneHandler]. Claims are made under the former scope alone, so that old and new workers may
	// run side by side. Messages that still have the former name get the type's handler. Default:
	// the type is a new one. Not together with Scope.
	Was string
}

// Ceilings bound what a job's Meta may ask for. The zero value has the defaults.
type Ceilings struct {
	// Attempts is the highest MaxAttempts that a job's Meta may ask for. A higher one counts as
	// this. 0 = 100, or MaxAttempts where that is higher or unlimited; < 0 = any, unlimited too.
	// Not below MaxAttempts.
	Attempts int
	// Timeout is the longest Timeout that a job's Meta may ask for. A longer one counts as this.
	// 0 = 24 h, or JobOptions.Timeout where that is longer, and any where it is none; < 0 = any.
	// Not below JobOptions.Timeout.
	Timeout time.Duration
	// NotBefore is how far ahead a message's Meta.NotBefore may lie when it is received. A message
	// beyond that becomes a dead letter of class "too-early". 0 = 31 days, or Retention where that
	// is longer; < 0 = any; else at least 1 ms. What the queue can keep is a bound of its own: see
	// [broker.Meta].NotBefore.
	NotBefore time.Duration
}

// OneHandler as JobOptions.Was says that the type takes the place of the one handler that the
// Processor had before it had a Mux. That handler's keys lie in the Processor's Defaults.Scope,
// else its Scope, without a type.
const OneHandler = ":one handler"

// check refuses what cannot be in o. d are the Defaults beside which o stands; they may be o
// itself.
func (o *JobOptions) check(field string, d *JobOptions) error {
	attempts, most := cmp.Or(o.MaxAttempts, d.MaxAttempts), cmp.Or(o.Ceilings.Attempts, d.Ceilings.Attempts)
	timeout, longest := cmp.Or(o.Timeout, d.Timeout), cmp.Or(o.Ceilings.Timeout, d.Ceilings.Timeout)
	switch {
	case most > 0 && (attempts < 0 || attempts > most):
		return badConfig(field+".Ceilings.Attempts", "%d is below MaxAttempts, %d; < 0 is unlimited", most, attempts)
	case durations.IsBare(longest):
		return badConfig(field+".Ceilings.Timeout", "%s", durations.AskUnit(longest))
	case longest > 0 && timeout > longest:
		return badConfig(field+".Ceilings.Timeout", "%v is below Timeout, %v", longest, timeout)
	case o.Timeout < 0:
		return badConfig(field+".Timeout", "%v is negative", o.Timeout)
	case durations.IsBare(o.Timeout):
		return badConfig(field+".Timeout", "%s", durations.AskUnit(o.Timeout))
	case durations.IsBare(o.Ceilings.NotBefore):
		return badConfig(field+".Ceilings.NotBefore", "%s", durations.AskUnit(o.Ceilings.NotBefore))
	case o.Interrupted > dedupe.Park:
		return badConfig(field+".Interrupted", "%v is neither Rerun nor Park", o.Interrupted)
	case strings.Contains(o.Scope, ":"):
		return badConfig(field+".Scope", "%q holds a ':', which separates a scope from a type", o.Scope)
	case o.Scope != "" && o.Was != "":
		return badConfig(field+".Was", "%q is set beside Scope, and the keys are in one scope", verdict.Clip(o.Was, verdict.MaxClass))
	case o.Was != "" && o == d:
		return badConfig(field+".Was", "is of a type of a Mux; it has no meaning for all jobs")
	case o.Scope != "":
		return checkScope(field+".Scope", o.Scope)
	}
	return nil
}

// scopes are the scopes of a Processor from which those of its types are made: its own, and that of
// a single handler.
type scopes struct{ whole, bare string }

// scopeOf is the scope of a type's keys. whole is that of the Processor itself, and bare that of a
// single handler.
func (o *JobOptions) scopeOf(whole, bare, typ string) string {
	switch {
	case o.Scope != "":
		return o.Scope
	case o.Was == OneHandler:
		return bare
	}
	return whole + ":" + cmp.Or(o.Was, typ)
}

// ofRelay are the defaults of a relay, which gives nothing up, and does not wait for long.
func (o JobOptions) ofRelay() JobOptions {
	o.MaxAttempts = cmp.Or(o.MaxAttempts, -1)
	if o.Backoff == nil {
		o.Backoff = func(attempt int, _ error) time.Duration {
			return rand.N(min(time.Minute, time.Second<<min(max(0, attempt-1), 6)) + 1)
		}
	}
	return o
}

// Kind declares a kind of job in one place: its type, its payload T, which travels as JSON, its key
// and its options. Producers send with it, and workers handle with it, so that the two cannot
// disagree:
//
//	var Mail = onceq.Kind[mail]{Type: "mail", Key: func(m mail) string { return m.ID }}
//
//	err := Mail.Send(ctx, queue, mail{ID: "7", To: "ada@example.com"}) // the producer
//
//	var mux onceq.Mux // the worker
//	Mail.On(&mux, func(ctx context.Context, j *onceq.Job, m mail) error { … })
//
// A Kind is a value without state: it may be copied, and used by many goroutines.
type Kind[T any] struct {
	// Type is the name of the kind. It travels as Meta.Type, and picks the handler. Required; at
	// most some 190 bytes, because the scope of its keys is the worker's Scope, a ':' and Type, and
	// a scope has at most 255 bytes.
	Type string
	// Key makes the idempotency key of a payload: what the job is about, such as an order's number.
	// Payloads with one key are one job, whoever sends them and how often. At most 512 bytes of
	// UTF-8, and not empty. nil = each message is a job of its own; [Kind.Send] refuses that.
	Key func(v T) string
	// Options say how jobs of this kind are run. The zero value = the worker's Defaults. A kind
	// that takes the place of a single handler, or of a type with another name, needs Options.Was,
	// or its jobs may be done again: see [Mux].
	Options JobOptions
}

// Message makes the message of one job, with all that [Send] would fill in. Send it with [Send], or
// store it in an outbox. Sent once more, it is the same job. What the Kind does not say may be set
// in it: Group, Delay, Attributes, Meta.NotBefore, Meta.Expires. Message fails where Type is empty,
// where Key answers no key or one that no store takes, and where v does not encode.
func (k Kind[T]) Message(v T) (broker.Outgoing, error) {
	m, err := k.message(v)
	if err != nil {
		return m, err
	}
	one := [1]broker.Outgoing{m}
	if err := Fill(one[:]); err != nil {
		return broker.Outgoing{}, fmt.Errorf("%w (of Kind %q)", err, k.Type)
	}
	return one[0], nil
}

func (k Kind[T]) message(v T) (m broker.Outgoing, err error) {
	if k.Type == "" {
		return m, badConfig("Kind.Type", "is empty")
	}
	key := ""
	if k.Key != nil {
		if key = k.Key(v); key == "" {
			return m, badConfig("Kind.Key", "answers no key for a payload of kind %q; where each message is a job of its own, leave it nil, and send with Kind.Message and Send", k.Type)
		}
	}
	body, err := json.Marshal(v)
	if err != nil {
		return m, fmt.Errorf("onceq: a payload of kind %q does not encode: %w", k.Type, err)
	}
	return Message(k.Type, key, body), nil
}

// Send sends a job for each payload, as the function [Send] does. Its error answers by position, as
// a [*broker.BatchError]. After any other error nothing was sent: that one tells of a mistake in
// the Kind or in a payload.
//
// Send needs Key, so that the same payloads, sent again after an error, are the same jobs. Without
// Key they would be new jobs. Make messages with [Kind.Message] then, and send the same messages
// again.
func (k Kind[T]) Send(ctx context.Context, s broker.Sender, vs ...T) error {
	return k.SendAt(ctx, s, time.Time{}, vs...)
}

// SendAt is Send for jobs that may not start before a time: their Meta.NotBefore. The zero time is
// at once. Not every queue can keep a job for as long as one likes: see [broker.Meta].NotBefore. A
// second SendAt with another time sends the same jobs, because their keys are the same. The one
// that is received first when it is due runs.
func (k Kind[T]) SendAt(ctx context.Context, s broker.Sender, at time.Time, vs ...T) error {
	if k.Key == nil {
		return badConfig("Kind.Key", "is nil: a second Send after an error would send other jobs; set it, or use Kind.Message and Send")
	}
	ms := make([]broker.Outgoing, len(vs))
	for i, v := range vs {
		var err error
		if ms[i], err = k.message(v); err != nil {
			return fmt.Errorf("%w (payload %d)", err, i)
		}
		if at.IsZero() || values.IsNil(s) {
			continue
		}
		ms[i].Meta.NotBefore = at
		// What the queue hides by itself costs no receive.
		ms[i].Delay = max(0, min(time.Until(at), s.Limits().MaxDelay, plainDelay))
	}
	return Send(ctx, s, ms)
}

// On makes f the Mux's handler of this kind, with Options. f is called as the function of a [JSON]
// handler is: a body that does not decode into a T fails the job for good, class "decode".
// NewProcessor answers mistakes, as it does those of [Mux.On].
//
// For a handler whose result is to be kept, use Mux.On(k.Type, JSONResult(f), &k.Options).
func (k Kind[T]) On(m *Mux, f func(ctx context.Context, j *Job, v T) error) {
	o := k.Options
	m.On(k.Type, JSON(f), &o)
}
