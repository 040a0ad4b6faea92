package onceq

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/ahead"
	"github.com/onceq/onceq/internal/batch"
	"github.com/onceq/onceq/internal/digest"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns jobs that are due later than their queue can keep them. Such a message would be
// gone before its time, and nobody would know. So it is refused at its first receive, or sent
// anew. hosts.go and intake.go ask, in the goroutine that has the run; Worker.look reads what the
// queue can keep.

// patience is what the queue does to a message that waits for its time. A batch does not know.
func (in *intake) patience() ahead.Queue {
	return ahead.Queue{
		Keeps:    time.Duration(in.foreign.keeps.Load()),
		Receives: int(in.foreign.receives.Load()),
		Hop:      in.e.LongestNack(),
	}
}

// tooFarAhead refuses a message that its queue cannot keep until due. Where it can be sent anew, it
// is not refused: there is time for that when it comes again. If it would not come again, the
// refusal says Back, too: it is sent anew now, and refused only where that cannot be done.
func (in *intake) tooFarAhead(m *broker.Message, due time.Time) *engine.Refusal {
	return in.refuseFor(in.patience(), m, due)
}

func (in *intake) refuseFor(q ahead.Queue, m *broker.Message, due time.Time) *engine.Refusal {
	if q.Keeps <= 0 && q.Receives <= 0 {
		return nil
	}
	now := time.Now()
	why := q.Refuses(due, m.Published, now, m.Attempt)
	able, step := in.carry.able(m), min(due.Sub(now), q.Step())
	if why == "" || able && q.Refuses(now.Add(step), m.Published, now, m.Attempt) == "" {
		return nil
	}
	from := q.From(due)
	no := &engine.Refusal{Class: ClassTooEarly, Err: fmt.Errorf("onceq: the job is %s; it can be sent from %s on", why, from.UTC().Format(time.RFC3339))}
	if able {
		no.Back, no.Delay = engine.Outcome(OutcomeEarly), step
	}
	return no
}

// tooLong is the handler's error. But where it postpones the job for longer than the queue can keep
// its message, and nothing carries that, the job fails, and its letter keeps it. Where the message
// comes for the last time, and can be sent anew, that is done before the job's end is recorded.
func (in *intake) tooLong(r *run, err error) error {
	if err == nil {
		return nil // before p, which errors.As moves to the heap
	}
	var p *verdict.PostponeError
	if r.Message == nil || !errors.As(err, &p) || p.After <= 0 {
		return err
	}
	q := in.patience()
	q.Keeps = cmp.Or(q.Keeps, in.keeps)
	no := in.refuseFor(q, r.Message, time.Now().Add(p.After))
	if no == nil {
		return err
	}
	if no.Back == "" {
		_ = in.refuseOutlasting(r, no)
		return Permanent(verdict.Classed(ClassTooEarly, "%w: %w", no.Err, err))
	}
	no.Err = fmt.Errorf("%w: %w", no.Err, err)
	r.SetCarryOr(no)
	return err
}

// refuseOutlasting turns a message away that its queue cannot keep, and says so in the log: at the
// first such message, and then each engine.TellAgain while they come. Of one that is to be sent
// anew it says so when that has failed.
func (in *intake) refuseOutlasting(r *run, no *engine.Refusal) *engine.Refusal {
	if no.Back != "" && r.CarryOr() == nil {
		return no
	}
	if since, tell := in.foreign.outlasting.shouldTell(); tell {
		in.log.LogAttrs(r.Flow().Terms.Base, slog.LevelError, "onceq: jobs are due later than their queue can keep them, and become dead letters. Let them wait in a queue that keeps messages, in PostgreSQL or SQLite, or send them later",
			engine.ForSo(since), slog.String("job", r.Name()), slog.Any("error", no.Err))
	}
	return no
}

// warnUnkept tells of a job that is due later than a batch's queue keeps it by default, where
// nobody has said how long that is.
func (in *intake) warnUnkept(r *run, left time.Duration) {
	if in.keeps == 0 || in.foreign.keeps.Load() > 0 || left <= in.keeps {
		return
	}
	if since, tell := in.foreign.outlasting.shouldTell(); tell {
		in.log.LogAttrs(r.Flow().Terms.Base, slog.LevelWarn, "onceq: jobs are due far ahead, and nobody has said how long their queue keeps them: it drops what is due later than that, and nobody knows. Set BatchConfig.Keeps",
			engine.ForSo(since), slog.String("job", r.Name()), slog.Duration("due_in", left.Round(time.Second)))
	}
}

// This part owns messages that wait for longer than their queue can delay them. Such a message is
// sent anew, and then acked: the copy has the queue's whole retention, and all of its receives,
// before it. workerHost asks whether a message is to be carried, in the goroutine that ends the
// run; the carrier's own goroutines (batch.Queue) call send. No lock is held.

// carrier sends messages anew.
type carrier struct {
	in         *intake
	to         broker.Sender
	drain      time.Duration                             // how long handlers run on in a drain
	keyOf      func(*broker.Message) (dedupe.Key, error) // nil = the metadata have the key
	queue      *batch.Queue[*run]
	acks, back func(...*run)
	patience   func() ahead.Queue
	told       told         // of the spell in which copies are refused
	hung       atomic.Int32 // calls that are not waited for any more
}

// able reports whether a message like m can be sent anew. One without metadata would not be its
// producer's any more.
func (c *carrier) able(m *broker.Message) bool {
	return c != nil && m.Meta != nil && !(c.in.ordered && m.Group != "")
}

// dueAt is when a message that is given back is due, and whether its job was postponed. Zero = its
// wait is no such.
func dueAt(r *run) (due time.Time, postponed bool) {
	// "" = it is carried before its end is known. Its phase may be over then, as Run gave it up.
	switch on, is := r.Due(), r.Outcome; {
	case is == engine.Postponed, is == "" && !on.IsZero():
		return on, true
	case is == engine.Outcome(OutcomeEarly), is == "":
		return time.Now().Add(early(r.Message, false)), false
	}
	return time.Time{}, false
}

// carryFirst sends a message anew that comes for the last time, before the run's end is known.
func (c *carrier) carryFirst(r *run) {
	if !c.isSame(r) {
		c.letterInstead(r, errors.New("onceq: by ProcessorConfig.Key its copy has another key"))
		return
	}
	c.queue.Add(r)
}

// letterInstead ends a run whose message comes for the last time, and cannot be sent anew.
func (c *carrier) letterInstead(r *run, err error) {
	no := r.CarryOr()
	no.Err = fmt.Errorf("%w; and it cannot be sent anew: %w", no.Err, err)
	_ = c.in.refuseOutlasting(r, no)
	c.in.e.Carried(r, false)
}

// takes reports whether the run's message is sent anew, and sees to it. It is, where its job is
// postponed for longer than one step, and where it could come only once more: then there is one
// more receive to try it again. What is given back instead comes after one step.
func (c *carrier) takes(r *run) bool {
	if r.IsCarried() {
		r.Action = engine.Ack
		c.acks(r)
		return true
	}
	m := r.Message
	due, postponed := dueAt(r)
	left := time.Until(due)
	if due.IsZero() || left <= 0 || !c.able(m) {
		return false
	}
	q := c.patience()
	step := min(left, q.Step())
	if (postponed && left > step || q.IsLast(m.Published, time.Now(), step, m.Attempt)) && c.isSame(r) {
		c.queue.Add(r)
		return true
	}
	r.Verdict.Delay = min(r.Verdict.Delay, step)
	return false
}

// isSame reports whether a copy has the key of the run's message. A Key of the user's may look at
// what a copy does not keep, as the broker's id. Then a copy would be another job.
func (c *carrier) isSame(r *run) bool {
	if c.keyOf == nil {
		return true
	}
	// A run that came too early has no key yet.
	now, err := c.keyOf(r.Message)
	if err != nil {
		return false
	}
	o := c.copyOf(r)
	then, err := c.keyOf(&broker.Message{Body: o.Body, Attributes: o.Attributes, Group: o.Group, Meta: o.Meta})
	return err == nil && then == now
}

// send sends copies of messages, and has those acked whose copy is stored. A copy in doubt is sent
// again: two messages of one key run once. What is not taken for SettleTimeout is given back, and
// carried when it comes again.
func (c *carrier) send(rs []*run) {
	letter.InParts(len(rs), func(from, to int) bool { return c.sendPart(rs[from:to]) })
}

func (c *carrier) sendPart(rs []*run) (tooMuch bool) {
	// What Run has given up is left to its queue: the program may have closed the Sender by now.
	rs = slices.DeleteFunc(slices.Clone(rs), func(r *run) bool { return r.Flow().Abandoned() })
	if len(rs) == 0 {
		return false
	}
	out := make([]broker.Outgoing, len(rs))
	for i, r := range rs {
		out[i] = c.copyOf(r)
	}
	err := c.sendTo(out, c.callFor(rs))
	if letter.IsTooMuch(err, len(rs)) {
		return true
	}
	for i, r := range rs {
		e := broker.ErrAt(err, i)
		c.tellRefused(r, e)
		switch last := r.CarryOr() != nil; {
		case e == nil && last:
			c.in.e.Carried(r, true)
		case last && r.IsOver(): // Run has ended without it
		case last && !c.triesAgain(r):
			c.letterInstead(r, e)
		case e == nil:
			r.Anew()
			r.Action = engine.Ack
			c.acks(r)
		case last || r.Repeats(c.in.c.SettleTimeout):
			pause := retry.Pause(r.Tries())
			if r.Flow().StoppedFor() > 0 {
				pause = min(pause, max(c.in.c.SettleTimeout/8, 10*time.Millisecond)) // there may be little time left
			}
			time.AfterFunc(pause, func() { c.queue.Add(r) })
		default:
			c.in.log.LogAttrs(r.Flow().Terms.Base, slog.LevelError, "onceq: a message that waits for longer than its queue keeps it could not be sent anew; it is given back, and becomes a dead letter of class too-early where it would not come again",
				slog.String("job", r.Name()), slog.Any("error", e))
			r.Anew()
			r.Verdict.Delay = min(r.Verdict.Delay, c.patience().Step())
			c.back(r)
		}
	}
	return false
}

// triesAgain reports whether a copy is tried again that must be sent before the run's end is known.
// In a drain half of SettleTimeout is left for that end, and for the letter: what Run gives up has
// none.
func (c *carrier) triesAgain(r *run) bool {
	return r.Repeats(c.in.c.SettleTimeout) && r.Flow().StoppedFor() < c.lastTry()
}

func (c *carrier) lastTry() time.Duration { return durations.Sum(c.drain, c.in.c.SettleTimeout/2) }

// callFor bounds one call, so that a Sender that hangs does not take what triesAgain leaves. Twice
// that time is waited for its answer.
func (c *carrier) callFor(rs []*run) time.Duration {
	call := c.in.c.CallTimeout
	for _, r := range rs {
		if on := r.Flow().StoppedFor(); on > 0 && r.CarryOr() != nil {
			call = min(call, max((c.lastTry()-on)/2, c.in.c.SettleTimeout/8))
		}
	}
	return call
}

// tellRefused says at the first copy that is refused what becomes of such messages. The role may
// have no right to send, and nobody would know of it for days.
func (c *carrier) tellRefused(r *run, err error) {
	if err == nil {
		return
	}
	if since, tell := c.told.shouldTell(); tell {
		c.in.log.LogAttrs(r.Flow().Terms.Base, slog.LevelWarn, "onceq: messages cannot be sent anew that wait for longer than their queue keeps them; while that lasts they are given back, and become dead letters of class too-early where they would not come again. Does the worker have the right to send to WorkerConfig.Carry?",
			engine.ForSo(since), slog.String("job", r.Name()), slog.Any("error", err))
	}
}

// errHung says of copies that nobody knows whether they are stored.
var errHung = errors.New("onceq: WorkerConfig.Carry does not end its call, although the call's context has ended")

// mostHung bounds the calls that are not waited for any more. Beyond it nothing more is sent.
const mostHung = 16

// sendTo is one call of Send. A Sender that ignores its context is not waited for: what it was
// given is given back, so that it takes no room from other jobs.
func (c *carrier) sendTo(out []broker.Outgoing, call time.Duration) error {
	if c.hung.Load() >= mostHung {
		return errHung
	}
	ctx := engine.CallContext(ahead.Carrying, call)
	answer := make(chan error, 1)
	var late atomic.Bool
	go func() {
		defer func() {
			ctx.Close()
			if !late.CompareAndSwap(false, true) {
				c.hung.Add(-1)
			}
		}()
		_, err := engine.Guard(func() ([]string, error) { return c.to.Send(ctx, out) })
		answer <- err
	}()
	end := time.NewTimer(2 * call)
	defer end.Stop()
	select {
	case err := <-answer:
		return err
	case <-end.C:
		c.hung.Add(1)
		if !late.CompareAndSwap(false, true) { // it has just ended
			c.hung.Add(-1)
		}
		return errHung
	}
}

// copyOf is the message that takes the place of the run's.
func (c *carrier) copyOf(r *run) broker.Outgoing {
	m := r.Message
	meta := m.Meta.Clone()
	due, postponed := dueAt(r)
	if far := time.Now().Add(postponedMost); postponed {
		meta.Postponed = due
		if due.After(far) {
			meta.Postponed = far
		}
	}
	// Up to a second: a rest of less would be one more receive. It must not take the copy's time.
	delay := min(time.Until(due)+time.Second-1, c.to.Limits().MaxDelay, c.patience().Step())
	o := broker.Outgoing{
		Body: m.Body, Attributes: m.Attributes, Group: m.Group, Meta: meta,
		Delay: max(0, delay).Truncate(time.Second),
	}
	if m.ID != "" {
		// A queue that leaves out what it has had takes one copy of this message, and that one
		// although it has had a message of the job's id. Another queue may have the same m.ID.
		o.DedupID = digest.Of("onceq carry 1", m.Meta.ID, m.Meta.Key, m.ID)
	}
	return o
}

// postponedMost is how far ahead a copy may say that its job goes on. What lies further ahead is
// not believed: the handler says again how long it waits.
const postponedMost = 31 * 24 * time.Hour

// early is how long a message waits for its time: its not-before, or when its job goes on that was
// postponed. No worker sends anew what a group orders, so such a message is not believed to be one.
func early(m *broker.Message, ordered bool) time.Duration {
	if m.Meta == nil || m.Meta.NotBefore.IsZero() && m.Meta.Postponed.IsZero() {
		return 0
	}
	left := time.Until(m.Meta.NotBefore)
	if on := time.Until(m.Meta.Postponed); on <= postponedMost+time.Hour && !(ordered && m.Group != "") { // clocks differ
		left = max(left, on)
	}
	return max(0, left)
}
