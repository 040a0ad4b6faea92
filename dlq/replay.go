package dlq

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/ahead"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/values"
)

// This file owns Replay: its options, and how letters are chosen, sent and removed. pass.go calls
// choose, flush and full; canary.go has the watch, and outgoing.go what is sent. All of it runs in
// the goroutine of the call, without a lock. Only the keeper's extensions run beside it.

// ReplayOptions say what a replay sends, where to, and how fast.
type ReplayOptions struct {
	// Filter chooses the letters; the zero Filter chooses all. Max is how many are sent at most.
	Filter
	// Plan, when set, names the letters: these are sent, but for those that it judges otherwise
	// ([Decision]), and no others. Of the Filter only Max may be set then. See [Queue.PlanReplay].
	Plan *Plan
	// Judge, when set, is asked for the letters of a plan's Rest, some at a time, before they are
	// sent: it sets their Decision and Why, as the holder of the plan did for those that it lists.
	// It is called in the goroutine of the call. Its error ends the replay.
	Judge func(context.Context, []Planned) error
	// To is the queue that the jobs' workers read. Required. Where several sources share a
	// dead-letter queue, choose one with Filter.Source.
	To broker.Sender
	// PerSecond is how many letters are sent a second, evenly; 0 = as fast as it goes. A fraction
	// is allowed: 0.1 is one in ten seconds. The slowest rate is one an hour.
	PerSecond float64
	// Canary, when above 0, is how many letters are sent at first. The replay then watches the
	// dead-letter queue for CanaryWait, and goes on only if none of them came back, and, where Done
	// is set, only if all of them are done. The others are held meanwhile. Without a plan, a queue
	// with more than Options.MaxHeld letters ends the replay with ErrIncomplete, because a canary
	// could come back unseen. Canary must be below Max, where that is set.
	Canary int
	// Ramp sends in batches that grow: Canary, then 10, 50, 250 and so on, each five times the one
	// before. After each the replay watches, as after the canaries. It ends with a [*CanaryError]
	// at the first letter that came back, even amid a batch. Canary is the first batch, where it is
	// set, and the next one is the first of these numbers above it.
	Ramp bool
	// CanaryWait is how long the canaries are watched, and under Ramp each batch. Default 1 min; at
	// least 1 ms. It is refused without Canary or Ramp. Where Done is not set, a job with an error
	// that is retried comes back only after its last attempt, so the window must be longer than
	// that takes.
	CanaryWait time.Duration
	// Done, when set, is asked while a batch is watched: what became of these jobs, which are the
	// batch, by now? When all are done, the watch ends early. When one has failed, or when not all
	// are done at the end of CanaryWait, the replay ends with a [*CanaryError]. A Queue knows no
	// store, so it cannot tell by itself: without Done a batch passes also if nobody runs its jobs.
	// A job that Edit gave another key or type has no Record. Done is called in the goroutine of
	// the call, three times in Options.Wait. Its error ends the replay.
	Done func(ctx context.Context, batch []Ref) (Became, error)
	// CanaryAny lets the replay go on although not all jobs of a batch are done at the end of
	// CanaryWait, and although some are to be tried again, if only no letter came back. It is for
	// jobs that take longer than anybody waits.
	CanaryAny bool
	// Watching, when set, is called while a batch is watched, whenever Done has answered, in the
	// goroutine of the call. It is told what is known by then, and answers whether the batch is
	// watched beyond the end of CanaryWait, or has passed. It means nothing without Done.
	Watching func(Progress) Watch
	// EachBatch, when set, is called when a batch has been watched, in the goroutine of the call.
	EachBatch func(Progress)
	// DryRun sends and removes nothing. Edit is called all the same, and the report says what a
	// replay would do. Canary, Ramp and PerSecond are ignored.
	DryRun bool
	// Edit, when set, changes what is sent for a letter: its body, its attributes, its metadata. It
	// is called in the goroutine of the call. An error leaves the letter where it is and becomes
	// the reason. Whatever Edit does to Meta.Dead, it is kept as it was, because its fence is the
	// permission to run the job again.
	//
	// When a replay died and is run again, Edit may be called twice for the same letter. So it must
	// not depend on anything but the letter: a key drawn at random would run the job twice.
	Edit func(*broker.Outgoing) error
	// TrustUnsigned signs the chosen letters that none of Options.LetterKeys has signed, such as
	// those from before there were keys. It is the operator's word for their bodies, so look at
	// them first. Default: they are sent without their fence, so that their claims are ordinary
	// ones. It needs Options.LetterKeys.
	TrustUnsigned bool
	// Expired sends letters of class "expired" too. It removes their Meta.Expires, so that their
	// jobs run although their time is over. The risk: what they do may do harm by now, such as a
	// reminder of yesterday's appointment. Default: they are skipped, unless Edit gives them
	// another Expires.
	Expired bool
	// Unproven sends letters of class "unproven" too. Such a message was older than
	// ProcessorConfig.Retention when a worker met it, so its record may be gone. The risk: a job
	// that was done before is done AGAIN. Look at what each of the chosen jobs has done before you
	// set it. Default: they are skipped, unless Edit gives them another key.
	Unproven bool
	// Each, when set, is called for each letter that was looked at, when its result is known, in
	// the goroutine of the call.
	Each func(Step)
	// Stop, once it is closed, ends the replay in order, with [ErrStopped]: what is being sent is
	// sent and removed, nothing more is taken, and what is held goes back. That takes as long as a
	// call of the broker, and Options.Wait. The end of the context cuts such calls off.
	Stop <-chan struct{}
}

func (o *ReplayOptions) check(q *Queue) error {
	if err := o.Filter.check("ReplayOptions"); err != nil {
		return err
	}
	if o.Plan != nil {
		if err := o.Plan.check(q, ActReplay); err != nil {
			return err
		}
	}
	switch {
	case o.Plan != nil && !o.isZero():
		return bad("ReplayOptions.Plan", "is set, and so is a filter; the plan has chosen already")
	case o.Plan != nil && o.Canary > 0 && o.Canary >= o.Plan.Count(Take):
		return bad("ReplayOptions.Canary", "%d leaves nothing to go on with: ReplayOptions.Plan sends %d", o.Canary, o.Plan.Count(Take))
	case values.IsNil(o.To):
		return bad("ReplayOptions.To", "is nil; name the queue that the jobs' workers read")
	case values.Same(o.To, q.b):
		return bad("ReplayOptions.To", "is the dead-letter queue itself")
	case o.To.Limits().SendBatch < 1:
		return bad("ReplayOptions.To", "its Limits() have SendBatch %d, want 1 or more", o.To.Limits().SendBatch)
	case o.TrustUnsigned && len(q.o.LetterKeys) == 0:
		return bad("ReplayOptions.TrustUnsigned", "is set, but Options.LetterKeys is empty")
	case o.PerSecond < 0 || math.IsNaN(o.PerSecond) || math.IsInf(o.PerSecond, 0):
		return bad("ReplayOptions.PerSecond", "%v is not a rate; 0 = no limit", o.PerSecond)
	case o.PerSecond > 0 && o.PerSecond < minRate:
		return bad("ReplayOptions.PerSecond", "%v is below %v, one an hour", o.PerSecond, minRate)
	case o.Canary < 0:
		return bad("ReplayOptions.Canary", "%d is negative", o.Canary)
	case o.CanaryWait < 0:
		return bad("ReplayOptions.CanaryWait", "%v is negative", o.CanaryWait)
	case o.CanaryWait > 0 && o.Canary == 0 && !o.Ramp:
		return bad("ReplayOptions.CanaryWait", "is %v, but ReplayOptions.Canary is 0, and Ramp is not set", o.CanaryWait)
	case durations.IsBare(o.CanaryWait):
		return bare("ReplayOptions.CanaryWait", o.CanaryWait)
	case o.Canary > 0 && o.Max > 0 && o.Canary >= o.Max:
		return bad("ReplayOptions.Canary", "%d leaves nothing to go on with: ReplayOptions.Max is %d", o.Canary, o.Max)
	}
	return nil
}

const minRate = 1.0 / 3600

// Replay sends letters back to their queue and removes them from this one. It sends each as it is,
// with its Dead. The fence of Dead lets the replay's claim reopen exactly the failure that the
// letter is of: once, however often the letter is sent. That holds for a parked job too (class
// "interrupted"): its replay is the operator's word that it may run again.
//
// A letter is acked only after it is known to have been sent. So a replay that ends early has lost
// nothing, whether it ended by an error, by its context, or because its program died. Run it again.
// A letter that was sent and not acked is then sent twice. The second one finds the job done, in
// progress, or failed anew. Two replays at once are the same case.
//
// The set is frozen. A letter stays if its job failed after the replay had begun, or after the
// replay had sent that job. Of each failure one letter is sent, and its copies are removed after
// that. What is not chosen, or cannot be sent, is held until the end, so that the replay meets it
// once. It is then handed back with delay 0.
//
// Some letters have rules of their own:
//
//   - A letter without Dead was moved by the queue's own redrive, or was too large for our
//     metadata. It is sent without Dead. Its claim is an ordinary one, and finds the failure that
//     is recorded, if any. The message that failed then becomes a letter that can be replayed.
//   - A letter with metadata that the worker could not read is sent as it had come, except for a
//     member that would reopen something.
//   - Under Options.LetterKeys a letter that no key has signed is sent without its fence, and
//     counted in Report.Unsigned; see TrustUnsigned. What is sent with a fence is signed anew, by
//     the first key.
//
// A letter has fence 0 if no claim was won for it. Its class then decides:
//
//   - "no-key", "bad-key", "no-handler", "config", "error": it is sent. The worker's configuration
//     was wrong, or its Fingerprint panicked. A worker that was mended takes it; another puts its
//     letter again.
//   - "claim-refused": it is sent, because nothing ran. Mend the key's row in the store first.
//     While the store goes on refusing its claim, the message is a letter again after a day.
//   - "too-early", "duplicate": it is sent, because nothing failed there. A duplicate is acked once
//     the job of its key is done.
//   - A job that is due later than To can keep it is skipped, whatever its class, where To tells
//     for how long it keeps messages. The reason says from when on it can be sent.
//   - "expired": it needs ReplayOptions.Expired, or another Expires, key or type from Edit.
//   - "unproven": it needs ReplayOptions.Unproven, or another key or type from Edit.
//   - "mismatch" and all others: it would be refused again, so it is skipped, unless Edit gives it
//     another key or type. Where its handler had been started, under onceq.NoStore, it is sent.
//
// Where the store has forgotten the key, the claim is an ordinary one.
//
// An error is one of these, and the report says in each case what was done:
//
//   - a mistake in o, and then nothing was done;
//   - the context's cause;
//   - a [*CanaryError];
//   - [ErrStopped];
//   - [ErrIncomplete];
//   - the broker's, after Options.RetryFor.
func (q *Queue) Replay(ctx context.Context, o ReplayOptions) (Report, error) {
	if err := o.check(q); err != nil {
		return Report{}, err
	}
	r := newReplay(ctx, q, &o)
	err := r.sendAll(ctx)
	return r.report, err
}

// CheckReplay is the error with which Replay would refuse o before it does anything; nil = none. It
// does no I/O, so a tool can ask before it writes down what it is about to do.
func (q *Queue) CheckReplay(o ReplayOptions) error { return o.check(q) }

// PlanReplay goes through the queue as a dry run of Replay does, and freezes the letters that
// o would send. Give the plan to Replay as ReplayOptions.Plan, with the same Edit, TrustUnsigned,
// Expired and Unproven. Each and Edit are called; PerSecond, Canary and Ramp mean nothing here.
//
// It needs a name of the queue, Options.Name. With an error comes no plan, unless the error is
// [ErrIncomplete]: then the plan has the letters that were seen, and no others.
func (q *Queue) PlanReplay(ctx context.Context, o ReplayOptions) (*Plan, error) {
	if err := o.check(q); err != nil {
		return nil, err
	}
	if o.Plan != nil {
		return nil, bad("ReplayOptions.Plan", "is set; PlanReplay makes one")
	}
	o.DryRun = true
	r := newReplay(ctx, q, &o)
	return r.makePlan(ActReplay, func() error { return r.sendAll(ctx) })
}

func newReplay(ctx context.Context, q *Queue, o *ReplayOptions) *replay {
	if o.CanaryWait == 0 {
		o.CanaryWait = DefaultCanaryWait
	}
	o.Max = o.Plan.most(o.Max)
	if o.DryRun {
		o.Canary, o.Ramp, o.PerSecond = 0, false, 0
	}
	r := &replay{
		pass: newPass(ctx, q, &o.Filter, o.Each, o.DryRun), o: o, limits: o.To.Limits(),
		seen: make(map[identity]*item), sent: make(map[string]uint64), bodies: make(map[identity]bool), nameless: make(map[identity]bool),
	}
	r.pass.choose, r.pass.flush, r.pass.full, r.pass.remove = r.choose, r.flush, r.full, r.discard
	r.keeps = sync.OnceValue(func() ahead.Queue { return q.keepingOf(ctx, o.To) })
	r.keepTo(o.Plan)
	r.pass.judge, r.pass.stop = o.Judge, o.Stop
	if r.quota = o.Canary; o.Ramp && r.quota == 0 {
		r.quota = ramp(0)
	}
	if r.quota > 0 {
		r.meet = r.suspect
	}
	if o.PerSecond > 0 {
		// Receive no more than is sent within a quarter of the visibility: the rest is better left
		// to others.
		r.most = within(o.PerSecond*q.o.Visibility.Seconds()/4, r.most)
	}
	return r
}

func (r *replay) sendAll(ctx context.Context) error {
	defer r.w.k.handBack() //nolint:contextcheck // it outlives the end of ctx
	err := r.through(ctx)
	if err == nil && r.o.Ramp && len(r.back) > 0 {
		err = r.cameBackError() // all are sent, and yet it is not mended
	}
	return err
}

// replay is one call of Replay.
type replay struct {
	pass
	o      *ReplayOptions
	limits broker.Limits // of where it sends

	seen    map[identity]*item // the first letter of each failure
	pending []*item            // to be sent, in order
	copied  []*item            // copies of what was sent, to be removed
	sent    map[string]uint64  // by job: the fence of the letter that was sent
	next    time.Time          // when the rate allows the next letter

	bodies, nameless map[identity]bool // of all that was sent, and of what has no jobName
	removing         []*item           // to be removed without being sent

	quota int   // how many more are sent until the next watch; 0 = nothing is watched any more
	batch []Ref // what was sent since the last watch
	count int   // how many batches were watched
	back  []Ref // letters of jobs that were sent and came back

	looked time.Time // when a letter that came back would last have been met

	keeps func() ahead.Queue // what To does to messages that wait; it asks once, where it matters
}

// full reports whether Max letters have been sent, or all of the plan dealt with.
func (r *replay) full() bool { return r.o.Max > 0 && r.report.Replayed >= r.o.Max || r.isThrough() }

// isThrough reports whether no letter of the plan is left. Without a plan nobody knows.
func (r *replay) isThrough() bool {
	return r.planned.isOver() && len(r.pending)+len(r.removing) == 0
}

// discard takes a letter whose job is done, as the plan says.
func (r *replay) discard(l *item) { r.removing = append(r.removing, l) }

// choose makes a letter ready to be sent, or says why it is not. If the failure was met before, the
// letter is a copy, and goes the way of its twin.
func (r *replay) choose(l *item) error {
	twin := r.seen[l.id]
	switch {
	case twin == nil:
	case twin.fate == 0:
		twin.copies = append(twin.copies, l)
		return nil
	case twin.fate == Replayed:
		r.copied = append(r.copied, l)
		return nil
	case twin.fate == Unchosen:
		r.tell(l, Unchosen, nil)
		return nil
	default:
		r.tell(l, Skipped, errCopyStays)
		return nil
	}
	r.seen[l.id] = l
	if r.o.Max > 0 && r.report.Replayed+len(r.pending) >= r.o.Max {
		r.tell(l, Unchosen, nil)
		return nil
	}
	out, err := replayOf(l, r.limits, r.o, r.q.o.LetterKeys)
	if err != nil {
		r.tell(l, Skipped, err)
		return nil
	}
	if fence := r.sent[jobName(out.Meta)]; fence != 0 && fenceOf(l.m.Meta) > fence {
		// The time alone does not show that, because the worker's clock may be behind ours.
		r.tell(l, Skipped, errSameJob)
		return nil
	}
	if err := notYet(out.Meta, r.keeps); err != nil {
		r.tell(l, Skipped, err)
		return nil
	}
	l.out = out
	r.pending = append(r.pending, l)
	return nil
}

// flush sends what is pending, and removes copies of what was sent.
func (r *replay) flush(ctx context.Context) error {
	if err := r.drop(ctx); err != nil {
		return err
	}
	for len(r.pending) > 0 && !r.full() {
		if err := r.lookAround(ctx); err != nil {
			return err
		}
		if r.o.DryRun {
			l := r.pending[0]
			r.pending = r.pending[1:]
			if err := r.done(ctx, []*item{l}); err != nil {
				return err
			}
			continue
		}
		if err := r.sendSome(ctx); err != nil {
			return err
		}
		if r.meet != nil && r.quota == 0 && !r.full() {
			if err := r.watch(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// lookAround asks, before letters are sent, whether they still are to be.
func (r *replay) lookAround(ctx context.Context) error {
	if r.meet != nil && r.report.Replayed > 0 && time.Since(r.looked) >= r.q.o.Wait/3 {
		r.looked = time.Now()
		if _, err := r.step(ctx, 0); err != nil {
			return err
		}
	}
	if len(r.back) > 0 {
		return r.cameBackError()
	}
	r.pending = slices.DeleteFunc(r.pending, func(l *item) bool {
		ref := refOf(l.m)
		if !r.planned.hasMoved(&ref) {
			return false
		}
		r.leave(l, Skipped, errMoved)
		return true
	})
	return nil
}

// drop removes the copies of letters that were sent, and what the plan removes.
func (r *replay) drop(ctx context.Context) error {
	if err := r.dropAs(ctx, Copied, &r.copied); err != nil {
		return err
	}
	return r.dropAs(ctx, Removed, &r.removing)
}

func (r *replay) dropAs(ctx context.Context, f Result, from *[]*item) (err error) {
	if r.stuck != nil {
		return r.stuck
	}
	ls := *from
	*from = nil
	err = r.ack(ctx, names(ls))
	for _, l := range ls {
		r.tell(l, f, nil)
	}
	return err
}

// sendSome sends a batch, as large as the rate and the canaries allow, and acks what was sent.
func (r *replay) sendSome(ctx context.Context) error {
	n := r.limits.SendBatch
	if r.o.PerSecond > 0 {
		n = within(r.o.PerSecond/10, n)
	}
	if r.quota > 0 {
		n = min(n, r.quota)
	}
	if r.o.PerSecond > 0 {
		now := time.Now()
		if r.next.After(now) {
			r.rest(ctx, r.next.Sub(now))
		}
	}
	if err := r.ended(ctx); err != nil {
		return err
	}
	batch := r.take(n)
	if r.o.PerSecond > 0 {
		r.next = time.Now().Add(time.Duration(float64(len(batch)) / r.o.PerSecond * float64(time.Second)))
	}
	return r.send(ctx, batch)
}

// take takes up to n letters off what is pending. Where groups are ordered it takes one of each
// group, because a batch may send a later entry although an earlier one failed.
func (r *replay) take(n int) (batch []*item) {
	var groups map[string]bool
	rest := r.pending[:0]
	for _, l := range r.pending {
		g := l.out.Group
		ordered := r.limits.OrderedGroups && g != ""
		if len(batch) == n || ordered && groups[g] {
			rest = append(rest, l)
			continue
		}
		if ordered {
			if groups == nil {
				groups = make(map[string]bool)
			}
			groups[g] = true
		}
		batch = append(batch, l)
	}
	clear(r.pending[len(rest):])
	r.pending = rest
	return batch
}

// send repeats each letter until it is known to have been sent, and acks it then. A letter in doubt
// is not acked. To send it once more does no harm.
func (r *replay) send(ctx context.Context, batch []*item) error {
	through := 0
	for t := (tries{}); ; {
		var done, doubt []*item
		var last, final error
		refit := false
		errs := r.sendOnce(ctx, batch)
		for i, l := range batch {
			switch err := errs[i]; {
			case err == nil:
				done = append(done, l)
			case letter.IsUnfit(err) && letter.Shrink(&l.out, l.fit+1):
				l.fit++
				refit = true
				doubt, last = append(doubt, l), err
			case letter.IsUnfit(err):
				r.leave(l, Failed, err)
				through++
			default:
				doubt, last = append(doubt, l), err
				if isFinal(err) {
					final = err
				}
			}
		}
		through += len(done)
		stuck := r.done(ctx, done)
		batch = doubt
		switch {
		case len(batch) == 0:
			return stuck
		case stuck != nil:
			final = stuck
		case refit && final == nil && ctx.Err() == nil:
			continue // a smaller letter is another message, and need not wait
		case final == nil && t.again(ctx, r.q.o.RetryFor):
			continue
		}
		for _, l := range batch {
			r.leave(l, Failed, fmt.Errorf("it may have been sent, or not: %w", last))
		}
		switch {
		case final != nil:
			return final
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case through == 0:
			return last // the queue takes nothing, so it would not take the other letters either
		}
		return nil
	}
}

// sendOnce sends the letters in one call, or in several where they are too large together, and
// answers by position.
func (r *replay) sendOnce(ctx context.Context, ls []*item) []error {
	out := make([]broker.Outgoing, len(ls))
	for i, l := range ls {
		out[i] = l.out
	}
	errs := make([]error, len(ls))
	letter.InParts(len(ls), func(from, to int) bool {
		one, cancel := r.q.ctx(ctx)
		_, err := r.o.To.Send(one, out[from:to])
		cancel()
		if letter.IsTooMuch(err, to-from) {
			return true
		}
		for i := from; i < to; i++ {
			errs[i] = broker.ErrAt(err, i-from)
		}
		return false
	})
	return errs
}

// done removes letters that were sent, and their copies.
func (r *replay) done(ctx context.Context, ls []*item) (err error) {
	for _, l := range ls {
		if l.unsigned && !r.o.TrustUnsigned {
			r.report.Unsigned++
		}
		body := identify("body", 0, string(l.out.Body))
		r.bodies[body] = true
		if name := jobName(l.out.Meta); name != "" {
			r.sent[name] = max(r.sent[name], fenceOf(l.out.Meta))
		} else {
			r.nameless[body] = true
		}
		r.copied = append(r.copied, l.copies...)
		if r.meet != nil {
			r.watchFor(l)
		}
	}
	err = r.ack(ctx, names(ls))
	for _, l := range ls {
		r.tell(l, Replayed, nil)
	}
	if err != nil {
		return err
	}
	return r.drop(ctx)
}

// leave leaves a letter and its copies where they are.
func (r *replay) leave(l *item, f Result, why error) {
	copies := l.copies
	r.tell(l, f, why)
	for _, c := range copies {
		r.tell(c, Skipped, errCopyStays)
	}
}

func names(ls []*item) []string {
	ids := make([]string, len(ls))
	for i, l := range ls {
		ids[i] = l.name
	}
	return ids
}
