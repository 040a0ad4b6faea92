package onceqtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onceq/onceq/internal/retry"
)

// This file owns what goes wrong with one call: the kinds of faults, and request, which makes a
// call with its fault. wrap.go and Process.Call make requests, in the goroutine of the caller.
// There is no lock here; the plan and the trace are the Process's.

// ErrFault answers a call that was made to fail, unless the [Fault] names another error.
var ErrFault = errors.New("onceqtest: fault")

// FaultKind is what goes wrong with a call.
type FaultKind uint8

// The kinds of faults. Each says whether the call is applied, because its caller cannot know that.
const (
	// CrashBefore: the process dies, and the call is not applied.
	CrashBefore FaultKind = iota + 1
	// CrashAfter: the call is applied, and the process dies before the answer.
	CrashAfter
	// Fail: the call is not applied, and its answer is an error.
	Fail
	// LoseReply: the call is applied, and its answer is an error. What a receive brought is in
	// flight, and nobody has it.
	LoseReply
	// Cancel: the call's context ends, at once or after Delay. What was called decides what it
	// makes of that. It mostly refuses a context that has ended before the call. A context that
	// ends while the call is under way leaves open whether the call is applied.
	Cancel
	// Slow: the call is applied after Delay, unless its context or the process ends before.
	Slow
	// Late: the call's request is under way for Delay, and is applied then. It is applied whatever
	// has become of its caller, and even when the process is dead. The caller waits until its
	// context ends, at the longest.
	Late
	// Stall: the process stands still for Delay. This call goes on only then, and so do all that
	// begin meanwhile, with what is left of their contexts. The answers that arrive meanwhile are
	// seen only then. Such a process was paused for longer than its leases, and does not know it.
	Stall
	// SlowReply: the call is applied at once, and its answer comes after Delay. Where its context
	// ends before, the answer is the context's error, unless a receive has brought something.
	SlowReply
)

// String is the kind in lower case with hyphens.
func (k FaultKind) String() string {
	names := [...]string{"none", "crash-before", "crash-after", "fail", "lose-reply", "cancel", "slow", "late", "stall", "slow-reply"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("FaultKind(%d)", uint8(k))
}

// Fault is what goes wrong with one call of a [Process], or with some calls in a row.
type Fault struct {
	// Op is the call; "" = any.
	Op Op
	// N says which: the N-th call of Op that the process makes, from 1. 0 = the next one.
	N int
	// Times is how many calls of Op it befalls, from the N-th on. 0 = 1; < 0 = all.
	Times int
	// For makes the fault an episode: it befalls all calls of Op that begin within this time,
	// counted from the [Process.At] that sets it. N and Times are ignored then. 0 = N and Times
	// decide.
	For time.Duration
	// Kind is what goes wrong. Required.
	Kind FaultKind
	// Entries lets Fail and LoseReply befall only these entries of a batch, by position from 0. The
	// others are applied, and answered as they are. A position that the batch does not have names
	// nothing. A call fails as a whole if it has no entries, or if its entries have no answers of
	// their own (a receive, a get, a list). Nil = the whole call.
	Entries []int
	// Err is the answer of Fail and LoseReply. Default [ErrFault].
	Err error
	// Delay is how long Slow, SlowReply, Late and Stall take, which need it, and how long after its
	// call a Cancel comes.
	Delay time.Duration
}

// check says what makes the fault one that changes nothing. A test with such a fault would pass
// whatever the tested code does.
func (f Fault) check() error {
	switch f.Kind {
	case 0:
		return fmt.Errorf("onceqtest: the Fault %q has no Kind, so nothing would go wrong", f)
	case Slow, SlowReply, Late, Stall:
		if f.Delay <= 0 {
			return fmt.Errorf("onceqtest: the Fault %q needs a Delay above 0; it has %v", f, f.Delay)
		}
	case CrashBefore, CrashAfter, Fail, LoseReply, Cancel:
	default:
		return fmt.Errorf("onceqtest: the Fault %q has a Kind that there is not", f)
	}
	return nil
}

// String is the fault in words, such as "lose-reply of claim 2".
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.Kind.String())
	switch len(f.Entries) {
	case 0:
	case 1:
		fmt.Fprintf(&b, " of entry %d", f.Entries[0])
	default:
		fmt.Fprintf(&b, " of entries %v", f.Entries)
	}
	if f.Op == "" {
		b.WriteString(" of call")
	} else {
		b.WriteString(" of " + string(f.Op))
	}
	if f.N > 0 && f.For <= 0 {
		fmt.Fprintf(&b, " %d", f.N)
	}
	switch {
	case f.For > 0:
		fmt.Fprintf(&b, " for %v", f.For)
	case f.Times < 0:
		b.WriteString(" and all after it")
	case f.Times > 1:
		fmt.Fprintf(&b, " and the %d after it", f.Times-1)
	}
	return b.String()
}

// Call is one call that a process has made.
type Call struct {
	Op Op
	// N numbers the calls of this Op from 1.
	N int
	// Entries is how many entries the batch has or, for a receive, how many messages came.
	Entries int
	// Fault is what went wrong with it because a [Fault] said so; 0 = nothing did.
	Fault FaultKind
	// Begun is when it began, and Took how long it took.
	Begun time.Time
	Took  time.Duration
	// Ended reports whether its answer was seen. It was not if the process died before.
	Ended bool
	// Err is the answer: the call's error, or those of its entries.
	Err error
}

// String is the call in words, such as "claim 1, 1 entry: lose-reply: onceqtest: fault".
func (c Call) String() string {
	s := fmt.Sprintf("%s %d", c.Op, c.N)
	switch c.Entries {
	case 0:
	case 1:
		s += ", 1 entry"
	default:
		s += fmt.Sprintf(", %d entries", c.Entries)
	}
	if c.Fault != 0 {
		s += ": " + c.Fault.String()
	}
	switch {
	case !c.Ended:
		return s + ": no answer"
	case c.Err != nil:
		return s + ": " + c.Err.Error()
	}
	return s + ": ok"
}

// planned is a fault that a process waits for.
type planned struct {
	Fault
	hit   bool
	until time.Time // of an episode
}

// befalls reports whether the fault is for the call: the n-th of op, and the total-th of all.
func (f *planned) befalls(op Op, n, total int) bool {
	switch {
	case f.Op == "":
		n = total
	case f.Op != op:
		return false
	}
	if f.For > 0 {
		return time.Now().Before(f.until)
	}
	return n >= f.N && (f.Times < 0 || n < f.N+max(1, f.Times))
}

// request is one call on its way. T is its answer.
type request[T any] struct {
	p  *Process
	op Op
	n  int // entries
	do func(context.Context) (T, error)

	// rest and spoil are for a batch with entries that have answers of their own; else nil. Both
	// answer err for the entries that are hit. rest makes the call for the others only, spoil for
	// all of them.
	rest, spoil func(ctx context.Context, hit []int, err error) (T, error)
	// seen finds the errors of the entries, and count the number of what came. Either may be nil.
	seen  func(T) error
	count func(T) int
}

// run makes the call.
func (r *request[T]) run(ctx context.Context) (T, error) {
	var none T
	p := r.p
	c, f := p.begin(r.op, r.n)
	if c == nil {
		return none, ErrDead
	}
	if f.Kind == CrashBefore {
		p.Kill()
		return none, ErrDead
	}
	if !p.wait() {
		return none, ErrDead
	}
	v, err := r.apply(ctx, &f)
	if f.Kind != CrashAfter && !p.wait() {
		return none, ErrDead
	}
	entries := r.n
	if r.count != nil && err == nil {
		entries = r.count(v)
	}
	answer := err
	if r.seen != nil && err == nil {
		answer = r.seen(v)
	}
	if f.Kind == CrashAfter {
		p.Kill()
	}
	if !p.end(c, entries, answer) {
		return none, ErrDead
	}
	return v, err
}

// apply does what the fault leaves of the call.
func (r *request[T]) apply(ctx context.Context, f *Fault) (T, error) {
	var none T
	answer := f.Err
	if answer == nil {
		answer = fmt.Errorf("%w: %v", ErrFault, f)
	}
	switch f.Kind {
	case Fail:
		if len(f.Entries) > 0 && r.rest != nil {
			return r.rest(ctx, f.Entries, answer)
		}
		return none, answer
	case LoseReply:
		if len(f.Entries) > 0 && r.spoil != nil {
			return r.spoil(ctx, f.Entries, answer)
		}
		_, _ = r.do(ctx) // whatever it says, the answer is lost
		return none, answer
	case Cancel:
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if f.Delay <= 0 {
			cancel()
		} else {
			defer time.AfterFunc(f.Delay, cancel).Stop()
		}
		return r.do(ctx)
	case Slow:
		if err := r.p.pause(ctx, f.Delay); err != nil {
			return none, err
		}
	case SlowReply:
		v, err := r.do(ctx)
		end := r.p.pause(ctx, f.Delay)
		if end != nil && (r.count == nil || r.count(v) == 0) {
			return none, end
		}
		return v, err
	case Late:
		return r.late(ctx, f.Delay)
	case CrashBefore, CrashAfter, Stall: // they befall the process, not the call
	}
	return r.do(ctx)
}

// late lets the request travel by itself, so that it outlives its caller.
func (r *request[T]) late(ctx context.Context, d time.Duration) (T, error) {
	type reply struct {
		v   T
		err error
	}
	replies := make(chan reply, 1)
	go func() { //nolint:gosec // it outlives ctx, as the request does
		retry.Rest(context.Background(), d) //nolint:contextcheck // the same
		v, err := r.do(context.WithoutCancel(ctx))
		replies <- reply{v, err}
	}()
	select {
	case a := <-replies:
		return a.v, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	case <-r.p.Dead():
		var none T
		return none, ErrDead
	}
}
