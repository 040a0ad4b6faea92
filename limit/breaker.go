package limit

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns Breaker. Handlers' goroutines and one timer run it. b.mu guards what stands below
// it, and is not held while a worker is told to pause or to go on, because that tells an Observer.

// BreakerOptions say when a breaker opens. The zero value has the defaults.
type BreakerOptions struct {
	// Name names it in cards, metrics and the log; 1 to 64 bytes. Default "breaker".
	Name string
	// Classes are those of the errors that tell of an outage, see [onceq.ClassOf]. Other errors,
	// and jobs that are done, tell that there is none. Default: "error" and "timeout".
	Classes []string
	// Runs is how many runs are looked at: the last ones. Default 20; 1 to 1,000.
	Runs int
	// Share is the part of them that must have failed. Default 0.5; above 0, to 1.
	Share float64
	// Window is the time in which they must have ended, unless all of them have failed. Default
	// 30 s; 1 ms to 1 h.
	Window time.Duration
	// OpenFor is for how long it opens, doubled each time that a probe fails. Default 5 s; 1 ms
	// to MaxOpen.
	OpenFor time.Duration
	// MaxOpen bounds that. Default 5 min; at most 24 h.
	MaxOpen time.Duration
}

// A Breaker stops workers while what their jobs need is away: a payment API, a mail server. It is
// of this process. Make one for each thing that may be away, and one worker for each such thing,
// because a worker is paused as a whole.
//
//	b, err := limit.NewBreaker(nil)
//	…
//	handler := onceq.Chain(charge, b.Middleware()) // tells b how runs end
//	b.Watch(worker)                                // b pauses it
//
// It opens when, of the last 20 runs and within 30 s, a half has failed, or all of them, however
// long that took. Its workers are then paused for the reason [onceq.ReasonBreaker], so nothing is
// received. After 5 s it lets one job run, as a probe. If that fails, it waits twice as long, up to
// 5 minutes; else all goes on.
//
// A run that fails while the breaker is open, as a probe or because it had begun before, is
// postponed: it is no attempt. Its error stays what it is where the handler says Permanent, says
// Unknown under Park, or where it was the job's last attempt. So an outage of hours costs each
// process at most Runs attempts, however many jobs wait, and besides the last one of a job that has
// but one left and is the probe. Where jobs have one attempt, each probe costs a job.
//
// All methods may be called from any goroutine.
type Breaker struct {
	o BreakerOptions

	mu       sync.Mutex
	state    BreakerState
	since    time.Time // the state
	runs     []run     // the last ones, the oldest first
	wait     time.Duration
	probe    time.Time // since when one runs; zero = none does
	running  int       // what has entered
	hung     int       // of it, what had entered before the last spell
	spell    int       // goes up when no probe has ended for MaxOpen
	sets     []func(n int)
	said     []int // to each of sets
	speaking bool  // somebody tells them
}

type run struct {
	at     time.Time
	failed bool
}

// BreakerState is what a breaker does.
type BreakerState string

// The states of a breaker.
const (
	StateClosed   BreakerState = "closed"    // all goes on
	StateOpen     BreakerState = "open"      // nothing begins
	StateHalfOpen BreakerState = "half-open" // one job runs, as a probe
)

// NewBreaker makes a breaker; nil means the defaults.
func NewBreaker(o *BreakerOptions) (*Breaker, error) {
	b := &Breaker{state: StateClosed, since: time.Now()}
	if o != nil {
		b.o = *o
	}
	c := &b.o
	c.Name, c.Runs, c.Share = cmp.Or(c.Name, "breaker"), cmp.Or(c.Runs, 20), cmp.Or(c.Share, 0.5)
	c.Window, c.OpenFor = cmp.Or(c.Window, 30*time.Second), cmp.Or(c.OpenFor, 5*time.Second)
	c.MaxOpen = cmp.Or(c.MaxOpen, max(c.OpenFor, 5*time.Minute))
	if c.Classes = slices.Clone(c.Classes); len(c.Classes) == 0 {
		c.Classes = []string{onceq.ClassError, onceq.ClassTimeout}
	}
	for _, d := range []struct {
		field         string
		is, from, top time.Duration
	}{{"Window", c.Window, durations.Least, time.Hour}, {"MaxOpen", c.MaxOpen, durations.Least, 24 * time.Hour}, {"OpenFor", c.OpenFor, durations.Least, c.MaxOpen}} {
		if d.is < d.from || d.is > d.top {
			return nil, badConfig("BreakerOptions."+d.field, "%v is not between %v and %v", d.is, d.from, d.top)
		}
	}
	switch {
	case len(c.Name) > verdict.MaxClass:
		return nil, badConfig("BreakerOptions.Name", "it has %d bytes, more than %d", len(c.Name), verdict.MaxClass)
	case slices.Contains(c.Classes, ""):
		return nil, badConfig("BreakerOptions.Classes", "one is empty")
	case c.Runs < 1 || c.Runs > 1000:
		return nil, badConfig("BreakerOptions.Runs", "%d is not between 1 and 1000", c.Runs)
	case !(c.Share > 0 && c.Share <= 1):
		return nil, badConfig("BreakerOptions.Share", "%v is not above 0 and at most 1", c.Share)
	}
	return b, nil
}

// State is [StateClosed], [StateOpen] or [StateHalfOpen], and since when.
func (b *Breaker) State() (state BreakerState, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state, b.since
}

// Watch has the breaker pause the workers while it is open. A worker that a breaker does not watch
// goes on receiving; its jobs are postponed, each at the price of a claim. So it is in a batch.
func (b *Breaker) Watch(ws ...*onceq.Worker) {
	b.mu.Lock()
	for _, w := range ws {
		b.sets, b.said = append(b.sets, w.Brake()), append(b.said, -1)
	}
	b.mu.Unlock()
	b.speak()
}

// Middleware tells the breaker how jobs end, and holds them back while it is open.
func (b *Breaker) Middleware() onceq.Middleware {
	return func(next onceq.Handler) onceq.Handler {
		if next == nil {
			return nil
		}
		return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) (err error) {
			probe, spell, wait := b.enter()
			if wait > 0 {
				return later(j, b.o.Name, wait)
			}
			ended := false
			defer func() { // also where the handler panics
				class := ""
				switch {
				case !ended:
					class = onceq.ClassPanic
				case err != nil && errors.Is(context.Cause(ctx), onceq.ErrTimeout):
					class = onceq.ClassTimeout
				default:
					class = onceq.ClassOf(err)
				}
				left, failed := b.ended(probe, spell, class, isNeutral(ctx, err, ended))
				if failed && left > 0 && ended && !isFinal(j, err) {
					err = onceq.Postpone(left, &refusal{b.o.Name, err})
				}
			}()
			err = next.Handle(ctx, j)
			ended = true
			return err
		})
	}
}

// isNeutral reports whether a run tells nothing of an outage: it was given back, or cut off.
func isNeutral(ctx context.Context, err error, ended bool) bool {
	cause := context.Cause(ctx)
	var notBegun *verdict.NotBegunError
	return ended && err != nil && (errors.As(err, new(*verdict.PostponeError)) || errors.As(err, &notBegun) && notBegun.Holds(cause) ||
		cause != nil && !errors.Is(cause, onceq.ErrTimeout))
}

// isFinal reports whether an error says what is to become of its job whatever is away. A handler
// that knows its attempt for the last one has undone what it did. Where the error is of Unknown, a
// Postpone around it parks the job under Park, as it would by itself.
func isFinal(j *onceq.Job, err error) bool {
	return errors.As(err, new(*verdict.PermanentError)) || j.LastAttempt()
}

// enter is asked before a run. wait is how long it must not begin.
func (b *Breaker) enter() (probe bool, spell int, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.state {
	case StateOpen:
		return false, 0, max(durations.Least, time.Until(b.since.Add(b.wait)))
	case StateHalfOpen:
		if !b.probe.IsZero() && time.Since(b.probe) < b.o.MaxOpen { // a probe may hang for ever
			return false, 0, max(MaxHold, b.o.OpenFor)
		}
		b.probe, probe = time.Now(), true
	}
	b.running++
	return probe, b.spell, 0
}

// ended is told how a run ended. left is for how long the breaker stays open now.
func (b *Breaker) ended(probe bool, spell int, class string, neutral bool) (left time.Duration, failed bool) {
	failed = !neutral && slices.Contains(b.o.Classes, class)
	defer b.speak()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running--; spell < b.spell {
		b.hung--
	}
	now := time.Now()
	switch {
	case neutral:
		if probe && b.state == StateHalfOpen {
			b.probe = time.Time{}
		}
	case b.state == StateClosed:
		if len(b.runs) == b.o.Runs {
			b.runs = b.runs[:copy(b.runs, b.runs[1:])]
		}
		b.runs = append(b.runs, run{now, failed})
		if failed && b.isOutage(now) {
			if now.Sub(b.since) > b.o.MaxOpen { // it was closed for long: this is another outage
				b.wait = 0
			}
			b.open(now)
		}
	case probe && b.state == StateHalfOpen && failed:
		b.open(now)
	case probe && b.state == StateHalfOpen:
		b.state, b.since, b.runs = StateClosed, now, b.runs[:0]
	}
	if b.state == StateClosed {
		return 0, failed
	}
	return max(durations.Least, b.since.Add(b.wait).Sub(now)), failed
}

func (b *Breaker) isOutage(now time.Time) bool {
	failed := 0
	for _, r := range b.runs {
		if r.failed {
			failed++
		}
	}
	// Where jobs are few, all that is known is that none has succeeded.
	return failed == b.o.Runs || len(b.runs) == b.o.Runs && float64(failed) >= b.o.Share*float64(b.o.Runs) && now.Sub(b.runs[0].at) <= b.o.Window
}

// open is called under the lock.
func (b *Breaker) open(now time.Time) {
	b.wait = min(b.o.MaxOpen, max(b.o.OpenFor, 2*b.wait))
	b.state, b.since, b.probe = StateOpen, now, time.Time{}
	// A fleet that opened as one does not probe as one.
	time.AfterFunc(b.wait-rand.N(b.wait/10+1), func() {
		b.mu.Lock()
		b.state, b.since = StateHalfOpen, time.Now()
		since := b.since
		b.mu.Unlock()
		b.speak()
		b.seeProbe(since)
	})
}

// seeProbe looks after a breaker that is half-open since then. Where no probe has ended for
// MaxOpen, what runs may hang for ever, also what had begun before. Then it holds no slot against a
// probe.
func (b *Breaker) seeProbe(since time.Time) {
	b.mu.Lock()
	if b.state != StateHalfOpen || !b.since.Equal(since) {
		b.mu.Unlock()
		return
	}
	left := b.o.MaxOpen - min(time.Since(b.since), time.Since(b.probe))
	if left <= 0 {
		b.spell, b.hung, left = b.spell+1, b.running, b.o.MaxOpen
	}
	b.mu.Unlock()
	time.AfterFunc(left, func() { b.seeProbe(since) })
	b.speak()
}

// speak tells the workers what holds, until all of them know. One goroutine does so at a time.
func (b *Breaker) speak() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.speaking {
		return
	}
	b.speaking = true
	defer func() { b.speaking = false }()
	for i := 0; i < len(b.sets); i++ {
		n := map[BreakerState]int{StateClosed: -1, StateOpen: 0, StateHalfOpen: 1 + b.hung}[b.state]
		if b.said[i] == n {
			continue
		}
		b.said[i] = n
		set := b.sets[i]
		b.mu.Unlock()
		set(n)
		b.mu.Lock()
		i = -1 // the state may have changed meanwhile
	}
}
