package limit

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/values"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns what all limiters have in common: the interface, the middleware that asks one, the
// words in which a job is given back, and the bounded table of keys. Handlers' goroutines run all
// of it; a table has a lock of its own.

// ClassLimit is the class of a job's error where its limiter panicked or failed. The job is tried
// again as after any error, and never runs without its limit.
const ClassLimit = "limit"

const (
	// MaxHold is how long a job waits in its slot at most. One that must wait for as long or longer
	// is postponed.
	MaxHold = time.Second
	// MaxWait is the longest time that a job is postponed for at once. Then it asks again.
	MaxWait = 12 * time.Hour
	// MaxKeys is for how many keys one limiter of this package keeps something at once. A key for
	// which nothing is kept is one that nobody has used for a while. Beyond MaxKeys, jobs of
	// further keys are postponed until there is room.
	MaxKeys = 100_000
)

// Ask is a job's question to a [Limiter].
type Ask struct {
	// Key is what is limited, such as a tenant; "" where the middleware was given no function.
	Key string
	// Job is the job's id.
	Job string
	// Again reports whether the job was given back before, by a limiter or otherwise. It does not
	// queue behind the jobs that came later.
	Again bool
}

// A Limiter says how long a job must wait.
type Limiter interface {
	// Reserve answers 0 where the job begins now. Below [MaxHold] it begins after that time, and
	// its start is taken already. A longer answer takes nothing: the job is postponed for as long,
	// and asks again. Many goroutines call it, while each holds a slot, so it must come back within
	// about a second. ctx ends with the job's time (JobOptions.Timeout). A job is postponed, too,
	// whose time is over before it may begin, and its start is lost: better take none. After an
	// error the job does not begin: it is tried again, with the class "limit", and the attempt
	// counts unless the error is one of onceq.Postpone.
	//
	// A method Name() string names it to operators; otherwise they see its Go type.
	Reserve(ctx context.Context, a Ask) (wait time.Duration, err error)
}

// Middleware has l asked before each job. key is what the job counts for, such as its tenant; nil =
// one limit for all jobs. key may panic: that is an error of the limiter. Where l is nil, so is the
// middleware, and NewProcessor refuses it.
//
// Put it on the types that it is for, with [onceq.Chain] around their handlers, or on all of a Mux,
// with its Use. Of two limiters the outer one is asked first, and again when the inner one has
// postponed the job. So put the one that makes jobs wait for longer inside.
func Middleware(l Limiter, key func(*onceq.Job) string) onceq.Middleware {
	if values.IsNil(l) {
		return nil
	}
	name := fmt.Sprintf("%T", l)
	if n, ok := l.(interface{ Name() string }); ok {
		name = n.Name()
	}
	return func(next onceq.Handler) onceq.Handler {
		if values.IsNil(next) {
			return nil
		}
		return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			wait, err := engine.Guard(func() (time.Duration, error) {
				class, _ := j.Last()
				a := Ask{Job: j.ID(), Again: class != "" || j.Message.Attempt > 1}
				if key != nil {
					a.Key = key(j)
				}
				return l.Reserve(ctx, a)
			})
			switch {
			case err != nil:
				return refused(name, err)
			case wait > 0 && (wait >= MaxHold || expiresIn(j) < wait || endsWithin(ctx, wait)):
				return later(j, name, wait)
			case endsWithin(ctx, 0) || !retry.Rest(ctx, wait): // a drain, mostly
				return cutOff(ctx, name)
			}
			return next.Handle(ctx, j)
		})
	}
}

// endsWithin reports whether the job's time is over after wait. Its slot would be held for nothing
// until then, and nobody would see which limiter keeps the job.
func endsWithin(ctx context.Context, wait time.Duration) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(end) <= wait
}

// expiresIn is how long the job may still begin.
func expiresIn(j *onceq.Job) time.Duration {
	if m := j.Message.Meta; m != nil && !m.Expires.IsZero() {
		return max(0, time.Until(m.Expires))
	}
	return math.MaxInt64
}

// later postpones a job, or until it expires where that is before its time: the letter says so
// then, and no sooner and no later than it would without the limiter.
func later(j *onceq.Job, name string, wait time.Duration) error {
	wait = min(wait, MaxWait, expiresIn(j))
	return refused(name, onceq.Postpone(wait, fmt.Errorf("postponed for %v", wait.Round(time.Millisecond))))
}

// refused answers for a job that did not begin. Its Timeout may strike in this moment, or a drain:
// nothing is in doubt then, and it is given back.
func refused(name string, err error) error {
	return &verdict.NotBegunError{Err: &refusal{name, fmt.Errorf("limit: %s: %w", name, err)}, IfCut: true}
}

// cutOff answers for a job whose time, or whose worker's, is over before it has begun.
func cutOff(ctx context.Context, name string) error {
	cause := cmp.Or(context.Cause(ctx), context.DeadlineExceeded)
	return &verdict.NotBegunError{Err: fmt.Errorf("limit: %s: cut off before the job began: %w", name, cause)}
}

// refusal is why a job did not begin, or was postponed after its run.
type refusal struct {
	limiter string
	err     error
}

func (e *refusal) Error() string      { return e.err.Error() }
func (e *refusal) Unwrap() error      { return e.err }
func (e *refusal) ErrorClass() string { return ClassLimit }

// LimitedBy names the limiter in cards, metrics and the log.
func (e *refusal) LimitedBy() string { return e.limiter }

// holdOf is how long a job may wait in its slot: at most for half of the time that it has, because
// one that is cut off there has begun nothing, and would take a start or a place with it.
func holdOf(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(MaxHold, time.Until(end)/2)
	}
	return MaxHold
}

// line is who waits for a key: those who came first get the earlier times. Times are nanoseconds
// since the limiter's epoch.
type line struct {
	tail  int64 // the next time for a job that comes for the first time
	again int64 // the same for one that has waited, and found its time taken
}

// told is the time of its own that a job gets. first is when a start may be free.
func (l *line) told(a Ask, now, first, every int64) (wait time.Duration) {
	t := &l.tail
	if a.Again {
		t = &l.again
	}
	at := min(max(first, *t), now+int64(MaxWait))
	*t = at + every
	return max(MaxHold, time.Duration(at-now))
}

// silence is for how long beyond its time a start may stay unused before the limiter takes those
// whom it has told one to be gone.
const silence = int64(5 * time.Second)

func (l *line) isIdle(now int64) bool { return l.tail <= now && l.again <= now }

// table keeps something for each key. A key is known by a hash with a seed of its own, so nobody
// can choose two that meet, and a long one takes no more room.
type table[S any] struct {
	seed   maphash.Seed
	epoch  time.Time
	isIdle func(s *S, now int64) bool // it may be forgotten, and nothing changes
	most   int                        // MaxKeys; a test has fewer

	mu    sync.Mutex
	m     map[uint64]S
	swept int64
}

func newTable[S any](isIdle func(*S, int64) bool) *table[S] {
	return &table[S]{seed: maphash.MakeSeed(), epoch: time.Now(), isIdle: isIdle, most: MaxKeys, m: make(map[uint64]S)}
}

func (t *table[S]) now() int64 { return int64(time.Since(t.epoch)) }

// get is what is kept under a key. It is false where there is no room for another one. The caller
// holds the lock.
func (t *table[S]) get(key string, now int64) (at uint64, s S, ok bool) {
	at = maphash.String(t.seed, key)
	s, ok = t.m[at]
	if ok || len(t.m) < t.most {
		return at, s, true
	}
	if now-t.swept < int64(time.Second) { // a sweep looks at all of them
		return at, s, false
	}
	t.swept = now
	for k, v := range t.m {
		if t.isIdle(&v, now) {
			delete(t.m, k)
		}
	}
	return at, s, len(t.m) < t.most
}

// full is how long a job waits for whose key there is no room.
func full() time.Duration { return MaxHold + rand.N(30*time.Second) }

// checkRate refuses what is no rate. fn is the function that was called.
func checkRate(fn string, n int, per time.Duration) error {
	const most, longest = 1_000_000, 31 * 24 * time.Hour
	switch {
	case n < 1 || n > most:
		return badConfig(fn+".n", "%d is not between 1 and %d", n, most)
	case durations.IsBare(per):
		return badConfig(fn+".per", "%s", durations.AskUnit(per))
	case per <= 0 || per > longest:
		return badConfig(fn+".per", "%v is not between 1 ms and %v", per, longest)
	case per/time.Duration(n) < time.Microsecond:
		return badConfig(fn+".n", "%d in %v is more than one each microsecond", n, per)
	}
	return nil
}

// checkNamed refuses what many processes cannot agree on.
func checkNamed(fn string, s dedupe.Store, name string) error {
	if values.IsNil(s) || s == onceq.NoStore {
		return badConfig(fn+".s", "it needs a store")
	}
	if name == "" || len(name) > verdict.MaxClass {
		return badConfig(fn+".name", "%q has %d bytes, not between 1 and %d", verdict.Clip(name, verdict.MaxClass), len(name), verdict.MaxClass)
	}
	if err := (dedupe.Key{Scope: "s", Key: name}).Validate(); err != nil {
		return badConfig(fn+".name", "%v", err)
	}
	return nil
}

func badConfig(field, format string, args ...any) error {
	return &onceq.ConfigError{Field: "limit." + field, Reason: fmt.Sprintf(format, args...)}
}

// away postpones a job whose limit is kept in a store that does not answer: no attempt counts.
func away(err error) error { return onceq.Postpone(2*time.Second+rand.N(8*time.Second), err) }

// callTime bounds one look at the store.
const callTime = 5 * time.Second
