package onceq

import (
	"fmt"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
)

// Job is one delivery, or one call of [Do], whose key is claimed. A handler gets it as an argument,
// and must not use it after it has returned.
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

// Queue is the name of the queue that the job came from, as TimingRecord.Queue has it.
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
