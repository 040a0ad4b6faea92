package ops

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
)

// This file owns Doctor: what it asks, and how a call that hangs ends only its own part. Tools call
// it. Each question has a goroutine of its own, which writes one answer and closes it. The checks
// of doctorchecks.go run in the caller's goroutine, and read the answers.

// CheckState is how a check came out.
type CheckState string

// The states of a [Checkup].
const (
	CheckOK       CheckState = "ok"
	CheckFound    CheckState = "found"     // there is something to mend
	CheckNotAsked CheckState = "not asked" // Checkup.Err or Text says why
)

// Checkup is what one check of [Ops.Doctor] has seen. A check that finds several things has one for
// each.
type Checkup struct {
	// Check is its name, such as "retention". Names never change.
	Check string
	State CheckState
	// Text is what was seen; of a finding it is the cause, and what follows from it.
	Text string
	// Mend is the command or the setting that mends a finding.
	Mend string
	// Err is why the check could not be asked. nil where nobody refused: it was not asked for, or
	// nothing here tells.
	Err error
}

// DoctorOptions say what is checked. The zero value changes nothing anywhere.
type DoctorOptions struct {
	// Card is that of a deployment that is not there yet. Its settings are checked against the
	// queue, the dead-letter queue, the store and the workers that live. Default: those workers'
	// own cards.
	Card *control.WorkerStatus
	// NotBefore is the longest time that a job of this queue waits for its Meta.NotBefore. 0 = it
	// is not checked.
	NotBefore time.Duration
	// Letters looks at the dead letters where that is no mere look: each gets one receive more.
	Letters bool
	// Write asks for the right to write, too: it claims, finishes and removes one key of onceq's
	// own in the store.
	Write bool
	// Patience is how long one question may take. Default 5 s. A look at dead letters may take two
	// minutes.
	Patience time.Duration
	// Services are the checks of the services' own, such as those of awssqs and gcppubsub.
	Services []ServiceCheck
}

// ServiceCheck is a check of a service's own.
type ServiceCheck struct {
	// Check is the check's name.
	Check string
	// Ask answers what is wrong. It must change nothing.
	Ask func(ctx context.Context) ([]dedupe.Fault, error)
}

const (
	patience = 5 * time.Second
	// lettersPatience is for a look at all dead letters.
	lettersPatience = 2 * time.Minute
)

// Doctor checks a queue with all that belongs to it, and says of each finding what mends it: see
// docs/doctor.md for the checks. It changes nothing, unless DoctorOptions.Write, and costs about
// twelve reads. A call that hangs or is refused ends its own check alone, which then says so in
// Checkup.Err. The sequence's error is that of the name, or the context's.
func (o *Ops) Doctor(ctx context.Context, queue string, do *DoctorOptions) iter.Seq2[Checkup, error] {
	return func(yield func(Checkup, error) bool) {
		t, err := o.target(queue)
		if err != nil {
			yield(Checkup{}, err)
			return
		}
		p := &patient{o: o, t: t}
		if do != nil {
			p.do = *do
		}
		if p.do.Patience <= 0 {
			p.do.Patience = patience
		}
		p.ask(ctx)
		all := slices.Clone(checks)
		for i, c := range p.services {
			all = append(all, check{p.do.Services[i].Check, func(_ *patient, r *report) { r.tell(c) }})
		}
		for _, c := range all {
			r := &report{name: c.name}
			if c.look(p, r); len(r.found) == 0 {
				r.ok("nothing found")
			}
			for _, found := range r.found {
				if !yield(found, nil) {
					return
				}
			}
		}
		if err := context.Cause(ctx); err != nil {
			yield(Checkup{}, err)
		}
	}
}

// A report is what one check says.
type report struct {
	name  string
	found []Checkup
}

func (r *report) ok(format string, args ...any) {
	r.found = append(r.found, Checkup{Check: r.name, State: CheckOK, Text: fmt.Sprintf(format, args...)})
}

func (r *report) find(mend, format string, args ...any) {
	r.found = append(r.found, Checkup{Check: r.name, State: CheckFound, Text: fmt.Sprintf(format, args...), Mend: mend})
}

func (r *report) skip(format string, args ...any) {
	r.found = append(r.found, Checkup{Check: r.name, State: CheckNotAsked, Text: fmt.Sprintf(format, args...)})
}

// tell tells what a service, or the store, has said.
func (r *report) tell(of *answer[[]dedupe.Fault]) {
	fs, err := of.get()
	if !r.asked(err) {
		return
	}
	for _, f := range fs {
		r.find(f.Mend, "%s", f.Text)
	}
}

// asked reports whether a question was answered, and says so if it was not.
func (r *report) asked(err error) bool {
	switch {
	case err == nil:
		return true
	case errors.Is(err, broker.ErrUnsupported):
		r.skip("it does not tell")
	case errors.Is(err, ErrMissing):
		r.skip("%v", err)
	default:
		r.found = append(r.found, Checkup{Check: r.name, State: CheckNotAsked, Text: "it could not be asked", Err: err})
	}
	return false
}

// A patient is a queue that is looked at, with what was asked of it.
type patient struct {
	o  *Ops
	t  *target
	do DoctorOptions

	depth, dead        *answer[time.Duration] // how long the answer took
	policy, deadPolicy *answer[broker.RedrivePolicy]
	clock              *answer[time.Duration] // how far the store's is ahead of this host's
	seats              *answer[[]WorkerState]
	held               *answer[[]time.Duration] // how long the leases of running jobs last
	rules              *answer[QueueState]
	table              *answer[[]dedupe.Fault]
	failed             *answer[[]*dedupe.Record]
	letters            *answer[lettersSeen]
	obsolete           *answer[[]dedupe.Key]
	renew, write       *answer[struct{}]
	services           []*answer[[]dedupe.Fault]
}

// An answer comes once. Who asks for it waits no longer than it may take.
type answer[T any] struct {
	ctx  context.Context
	done chan struct{}
	v    T
	err  error
}

var errSilent = errors.New("no answer")

// question asks in a goroutine, which a driver that ignores its context keeps for ever.
func question[T any](ctx context.Context, within time.Duration, f func(context.Context) (T, error)) *answer[T] {
	a := &answer[T]{done: make(chan struct{})}
	var cancel context.CancelFunc
	a.ctx, cancel = context.WithTimeoutCause(ctx, within, fmt.Errorf("%w in %v", errSilent, within))
	go func() {
		defer cancel()
		defer close(a.done)
		a.v, a.err = f(a.ctx)
	}()
	return a
}

func (a *answer[T]) get() (v T, err error) {
	<-a.ctx.Done() // also after an answer
	select {
	case <-a.done:
	default:
		return v, context.Cause(a.ctx)
	}
	if cause := context.Cause(a.ctx); errors.Is(a.err, context.DeadlineExceeded) && errors.Is(cause, errSilent) {
		return v, cause
	}
	return a.v, a.err
}

// ask asks all questions at once.
func (p *patient) ask(ctx context.Context) {
	t, within := p.t, p.do.Patience
	p.depth = question(ctx, within, func(ctx context.Context) (time.Duration, error) { return reach(ctx, t.Queue) })
	p.dead = question(ctx, within, func(ctx context.Context) (time.Duration, error) { return reach(ctx, t.DeadLetters) })
	p.policy = question(ctx, within, func(ctx context.Context) (broker.RedrivePolicy, error) { return redrive(ctx, t.Queue) })
	p.deadPolicy = question(ctx, within, func(ctx context.Context) (broker.RedrivePolicy, error) { return redrive(ctx, t.DeadLetters) })
	p.clock = question(ctx, within, of(t, aheadBy))
	p.seats = question(ctx, within, t.seats)
	p.held = question(ctx, 2*within, of(t, p.leases))
	p.rules = question(ctx, within, of(t, func(ctx context.Context, _ dedupe.Store) (q QueueState, err error) {
		q.rules(ctx, t)
		return q, q.RulesErr
	}))
	p.table = question(ctx, within, of(t, checkTable))
	p.letters = question(ctx, lettersPatience, p.lookAtLetters)
	p.failed = question(ctx, lettersPatience+within, of(t, p.askFailed)) // which waits for the letters
	p.obsolete = question(ctx, lettersPatience+within, of(t, p.doneOf))
	p.renew = question(ctx, within, of(t, mayRenew))
	p.write = question(ctx, within, of(t, func(ctx context.Context, s dedupe.Store) (struct{}, error) {
		if !p.do.Write {
			return struct{}{}, broker.ErrUnsupported
		}
		return struct{}{}, mayWrite(ctx, s)
	}))
	for _, c := range p.do.Services {
		p.services = append(p.services, question(ctx, within, c.Ask))
	}
}

// of is a question to the target's store.
func of[T any](t *target, f func(context.Context, dedupe.Store) (T, error)) func(context.Context) (T, error) {
	return func(ctx context.Context) (v T, err error) {
		s, err := t.store()
		if err != nil {
			return v, err
		}
		return f(ctx, s)
	}
}

// reach is how long a queue takes to answer.
func reach(ctx context.Context, b broker.Broker) (time.Duration, error) {
	if b == nil {
		return 0, fmt.Errorf("%w: there is no such queue", ErrMissing)
	}
	began, err := time.Now(), error(nil)
	if d, ok := broker.As[broker.Depther](b); ok {
		_, err = d.Depth(ctx)
	} else {
		_, err = redrive(ctx, b)
	}
	return time.Since(began), err
}

// redrive is a queue's policy; of none, and of one that does not tell, the error says so.
func redrive(ctx context.Context, b broker.Broker) (broker.RedrivePolicy, error) {
	r, ok := broker.As[broker.Redriver](b)
	if b == nil || !ok {
		return broker.RedrivePolicy{}, broker.ErrUnsupported
	}
	return r.Redrive(ctx)
}

// aheadBy is how far the store's clock is ahead of this host's.
func aheadBy(ctx context.Context, s dedupe.Store) (time.Duration, error) {
	began := time.Now()
	c, ok := broker.As[dedupe.Clock](s)
	if !ok {
		_, err := s.Get(ctx, []dedupe.Key{nobody})
		return 0, err
	}
	now, err := c.Now(ctx)
	if err != nil {
		return 0, err
	}
	return now.Sub(began.Add(time.Since(began) / 2)), nil
}

// nobody is a key of onceq's own that no record has.
var nobody = dedupe.Key{Scope: ":doctor", Key: "nobody"}

// lettersSeen are dead letters by their records, with the fences of their failures.
type lettersSeen struct {
	n     int
	of    map[dedupe.Key]uint64
	other int  // of class mismatch
	asked bool // else nobody has looked, because a look counts as a receive
}

// mostPeeked bounds how many letters are looked at without a receive.
const mostPeeked = 100_000

func (p *patient) lookAtLetters(ctx context.Context) (seen lettersSeen, err error) {
	q, err := p.t.letters()
	if err != nil {
		return seen, err
	}
	seen.of = map[dedupe.Key]uint64{}
	note := func(m *broker.Message) bool {
		seen.n++
		if m.Meta != nil && m.Meta.Dead != nil && m.Meta.Dead.Class == onceq.ClassMismatch {
			seen.other++
		}
		if f, ok := failureOf(m); ok { // without a fence a letter is of no failure
			seen.of[f.Key] = max(seen.of[f.Key], f.Fence)
		}
		return false
	}
	if peeker, ok := broker.As[broker.Peeker](p.t.DeadLetters); ok {
		seen.asked = true
		for m, err := range peeker.Peek(ctx, mostPeeked) {
			if err != nil {
				return seen, err
			}
			note(m)
		}
		if seen.n == mostPeeked {
			return seen, dlq.ErrIncomplete
		}
		return seen, nil
	}
	if seen.asked = p.do.Letters; !seen.asked {
		return seen, nil
	}
	for _, err := range q.List(ctx, dlq.Filter{Max: mostPeeked, Match: note}) {
		return seen, err
	}
	return seen, nil
}

// checkTable asks the store for what is wrong with its table.
func checkTable(ctx context.Context, s dedupe.Store) ([]dedupe.Fault, error) {
	c, ok := broker.As[dedupe.Checker](s)
	if !ok {
		return nil, broker.ErrUnsupported
	}
	return c.Check(ctx)
}

const (
	// sampled is how many failed keys, and letters, are looked at.
	sampled = 500
	// settling is for how long a failure may be without its letter, which is put after it.
	settling = 5 * time.Minute
)

// askFailed is some failed records of the queue's scopes, of failures from before anybody looked at
// the letters. It reads them after the letters were seen: a job that was replayed meanwhile is not
// failed any more, and its letter was still there.
func (p *patient) askFailed(ctx context.Context, s dedupe.Store) (rs []*dedupe.Record, err error) {
	scopes, err := p.o.Scopes(ctx, p.t.Name)
	if err != nil {
		return nil, err
	}
	if len(scopes) == 0 {
		return nil, fmt.Errorf("%w: no scope of it is known: no worker has said one", ErrMissing)
	}
	now := clock(ctx, s)
	_, _ = p.letters.get()
	for _, scope := range scopes {
		q := dedupe.Query{Scope: scope, Status: dedupe.Failed, Limit: sampled - len(rs)}
		if err := priced(ctx, s, &q); err != nil || q.Limit <= 0 {
			return rs, err
		}
		for r, err := range s.List(ctx, q) {
			if err != nil {
				return nil, err
			}
			if now.Sub(r.Finished) > settling && !IsCancelled(r) { // which has no letter
				rs = append(rs, r)
			}
		}
	}
	return rs, nil
}

// doneOf are letters whose jobs are done.
func (p *patient) doneOf(ctx context.Context, s dedupe.Store) (done []dedupe.Key, err error) {
	seen, err := p.letters.get()
	if err != nil && !errors.Is(err, dlq.ErrIncomplete) {
		return nil, err
	}
	ks := make([]dedupe.Key, 0, min(len(seen.of), sampled))
	for k := range seen.of {
		if len(ks) < sampled && k.Validate() == nil {
			ks = append(ks, k)
		}
	}
	for part := range slices.Chunk(ks, max(1, s.Limits().MaxBatch)) {
		rs, err := s.Get(ctx, part)
		if err != nil {
			return nil, err
		}
		for _, r := range rs {
			if r != nil && r.Status == dedupe.Done {
				done = append(done, r.Key)
			}
		}
	}
	slices.SortFunc(done, func(a, b dedupe.Key) int { return cmp.Compare(a.String(), b.String()) })
	return done, nil
}

// leases is for how long the claims last that the cards of live workers name.
func (p *patient) leases(ctx context.Context, s dedupe.Store) (left []time.Duration, err error) {
	seats, err := p.seats.get()
	if err != nil {
		return nil, err
	}
	var ks []dedupe.Key
	fences := map[uint64]bool{}
	for i := range seats {
		if x := &seats[i]; x.Alive() && x.Status != nil {
			ks = append(ks, jobKeys(x)...)
			for _, j := range x.Status.Jobs {
				fences[j.Fence] = true
			}
		}
	}
	if ks = ks[:min(len(ks), max(1, s.Limits().MaxBatch))]; len(ks) == 0 {
		return nil, nil
	}
	rs, err := s.Get(ctx, ks)
	now := clock(ctx, s)
	for _, r := range rs {
		if r != nil && r.Status == dedupe.Claimed && fences[r.Fence] {
			left = append(left, r.LeaseUntil.Sub(now))
		}
	}
	return left, err
}

// mayRenew asks for a change that nobody can have: the right to write shows, and nothing changes.
func mayRenew(ctx context.Context, s dedupe.Store) (struct{}, error) {
	n := dedupe.Renewal{Key: nobody, TTL: time.Second}
	_, _ = rand.Read(n.Token[:])
	as, err := s.Renew(ctx, []dedupe.Renewal{n})
	if err == nil && len(as) == 1 && !errors.Is(as[0].Err, dedupe.ErrLeaseLost) {
		err = as[0].Err
	}
	return struct{}{}, err
}

// mayWrite claims a key of onceq's own, finishes it and removes it.
func mayWrite(ctx context.Context, s dedupe.Store) error {
	var token dedupe.Token
	_, _ = rand.Read(token[:])
	k := dedupe.Key{Scope: nobody.Scope, Key: fmt.Sprintf("%x", token[:8])}
	cs, err := s.Claim(ctx, []dedupe.ClaimRequest{{Key: k, Token: token, TTL: time.Minute, Owner: "doctor"}})
	if err = cmp.Or(err, one(cs, func(c dedupe.Claim) error { return c.Err })); err != nil {
		return fmt.Errorf("a claim: %w", err)
	}
	as, err := s.Settle(ctx, []dedupe.Settlement{{Key: k, Token: token, To: dedupe.Done, Retain: time.Minute}})
	if err = cmp.Or(err, one(as, func(a dedupe.Settled) error { return a.Err })); err != nil {
		return fmt.Errorf("a settlement: %w", err)
	}
	errs, err := s.Forget(ctx, []dedupe.Forgotten{{Key: k, Fence: cs[0].Lease.Fence}})
	if err = cmp.Or(err, one(errs, func(err error) error { return err })); err != nil {
		return fmt.Errorf("a removal: %w", err)
	}
	return nil
}

// one is the error of a batch of one entry.
func one[A any](as []A, of func(A) error) error {
	if len(as) != 1 {
		return fmt.Errorf("ops: the store answered %d of 1 entries", len(as))
	}
	return of(as[0])
}
