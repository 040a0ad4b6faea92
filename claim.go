package onceq

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	mrand "math/rand/v2"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/verdict"
)

// begin looks at messages that have got a slot and sends their claims, each key once: a second message
// with a key of the same batch would only wait for the first.
func (p *Processor) begin(rs []*run) {
	send := rs[:0]
	for _, r := range rs {
		if !r.advance(claiming) {
			continue // its delivery was lost just now
		}
		if r.message == nil {
			p.finish(r, Disposition{Action: Leave}, OutcomeNoMessage)
			continue
		}
		if no := r.f.host.admit(r); no != nil {
			p.turnAway(r, no)
			continue
		}
		send = append(send, r)
	}
	p.claims.Add(send...)
}

// turnAway dead-letters a message for which no claim was won, or gives it back.
func (p *Processor) turnAway(r *run, no *refusal) {
	switch {
	case no.back != "":
		p.finish(r, Disposition{Action: Nack, Delay: no.delay}, no.back)
	case p.holdForeign(r, no):
	default:
		p.letter(r, no.class, verdict.Text(no.err), 0, 0, time.Now())
	}
}

// claimBatch claims a batch in one call. Tokens come from the system's generator, drawn at once for the
// batch: a process cloned from a snapshot would repeat those of a generator of its own.
func (p *Processor) claimBatch(batch []*run) {
	rs := make([]*run, 0, len(batch))
	var asked *flow
	starts := false
	for _, r := range batch {
		if r.f != asked {
			asked, starts = r.f, r.f.isOpen()
		}
		if starts && !r.isOver() {
			rs = append(rs, r)
		} else {
			r.f.handBack([]*run{r})
		}
	}
	if len(rs) == 0 {
		return
	}
	slices.SortFunc(rs, func(a, b *run) int {
		return cmp.Or(strings.Compare(a.key.Scope, b.key.Scope), strings.Compare(a.key.Key, b.key.Key))
	})
	rs, others := p.each(rs)
	draw(rs)
	answers, sent, err := p.ask(rs)
	switch {
	case err == nil:
		p.landClaims(rs, answers, sent)
	case dividable(rs, err, tried) && rs[0].f.t.outage == 0: // else it is given up soon
		p.claimApart(rs, err)
	default:
		for _, r := range rs {
			p.unanswered(r, err, p.aloneSince(rs, sent, err)) // where there are more, it says nothing of this entry, whatever it wraps
		}
	}
	if len(others) > 0 {
		p.claims.Add(others...)
	}
}

// landClaims acts on the answers to one call of Claim, and starts the handlers of what was won.
func (p *Processor) landClaims(rs []*run, answers []dedupe.Claim, sent time.Time) {
	begin, now, sound := rs[:0], time.Now(), false
	for i, r := range rs {
		c := &answers[i]
		if c.Err == nil {
			c.Err = sane(c, r, sent)
		}
		sound = sound || c.Err == nil
		if p.answered(r, c, sent, now) {
			begin = append(begin, r)
		}
	}
	if sound {
		p.lastClaim.Store(int64(now.Sub(p.epoch)))
	}
	launch(begin)
}

// ask makes one call of Claim.
func (p *Processor) ask(rs []*run) (answers []dedupe.Claim, sent time.Time, err error) {
	reqs := make([]dedupe.ClaimRequest, len(rs))
	origins(rs, reqs)
	for i, r := range rs {
		q := &reqs[i]
		q.Key, q.Token, q.TTL = r.key, r.token, p.leaseFor(r)
		q.Policy = r.opts.policy
		q.Owner = p.c.Owner
		if r.known != nil {
			q.Fingerprint, q.Reopen = r.known.fingerprint, r.known.reopens
		}
	}
	sent = time.Now()
	ctx := callContext(context.Background(), p.c.CallTimeout)
	answers, err = guard2(func() ([]dedupe.Claim, error) { return p.c.Store.Claim(ctx, reqs) })
	ctx.close()
	if err == nil && len(answers) != len(reqs) {
		err = fmt.Errorf("onceq: the store answered %d of %d claims", len(answers), len(reqs))
	}
	return answers, sent, err
}

// each takes the first of equal keys; the others go with the next batch, where the store knows what became of it. rs is sorted by
// key.
func (p *Processor) each(rs []*run) (once, others []*run) {
	once = rs[:1]
	for _, r := range rs[1:] {
		if r.key == once[len(once)-1].key {
			others = append(others, r)
			continue
		}
		once = append(once, r)
	}
	return once, others
}

func draw(rs []*run) {
	raw := make([]byte, 16*len(rs))
	rand.Read(raw)
	for i, r := range rs {
		if r.token == (dedupe.Token{}) {
			copy(r.token[:], raw[16*i:])
		}
	}
}

// leaseFor is how long a claim is asked for: where the delivery ends at a known time, so does the lease,
// with a little grace for the end to be written.
func (p *Processor) leaseFor(r *run) time.Duration {
	if !r.ends() {
		return p.c.Lease
	}
	most := p.c.Lease
	if r.hasOneLease() {
		most = maxLease
	}
	return min(most, max(minLease, durations.Sum(time.Until(r.known.until), p.c.SettleTimeout)))
}

// hasOneLease tells whether the run's claim is to last, and so is not renewed.
func (r *run) hasOneLease() bool {
	return r.f.t.oneLease && r.ends()
}

// ends tells whether the delivery ends at a known time.
func (r *run) ends() bool { return r.known != nil && !r.known.until.IsZero() }

// sane tells what is wrong with an answer, to a claim that was sent at that time, which no store may give.
func sane(c *dedupe.Claim, r *run, sent time.Time) error {
	switch c.Outcome {
	case dedupe.Won:
		if c.Lease.Key != r.key || c.Lease.Token != r.token {
			return fmt.Errorf("onceq: the store's lease is for key %v, want %v", c.Lease.Key, r.key)
		}
		if c.Lease.Fence != 0 && !c.Lease.Deadline.After(sent) { // it would be given back at once, and claimed again
			return fmt.Errorf("onceq: the store's lease ended at %v, before it was asked for", c.Lease.Deadline)
		}
	case dedupe.AlreadyFailed, dedupe.IsParked:
		if c.Record == nil {
			return fmt.Errorf("onceq: the store answered %v without a record", c.Outcome)
		}
	case dedupe.InProgress, dedupe.AlreadyDone, dedupe.Mismatch, dedupe.Stale:
	default:
		return fmt.Errorf("onceq: the store answered the unknown outcome %v", c.Outcome)
	}
	return nil
}

// answered acts on the answer to a claim that was sent at that time. It is true when the handler is to run.
func (p *Processor) answered(r *run, c *dedupe.Claim, sent, now time.Time) bool {
	never := errors.Is(c.Err, dedupe.ErrBadKey) || errors.Is(c.Err, dedupe.ErrBadRequest)
	if c.Err != nil && !never {
		p.unanswered(r, c.Err, &sent)
		return false
	}
	if r.tries > 0 {
		r.f.untrouble(r)
	}
	if never {
		r.f.host.storeErred(r, c.Err, false)
		p.turnAway(r, &refusal{class: ClassBadKey, err: c.Err})
		return false
	}
	r.said, r.tries = c.Outcome, 0
	if c.Record != nil {
		r.knows().record = c.Record
	}
	switch c.Outcome {
	case dedupe.Won:
		return p.won(r, c, now)
	case dedupe.InProgress:
		p.putOff(r, c)
	case dedupe.AlreadyDone:
		if c.Record != nil {
			r.makes().result = c.Record.Result
		}
		p.finish(r, Disposition{Action: Ack}, OutcomeAlreadyDone)
	case dedupe.AlreadyFailed, dedupe.IsParked:
		p.putAgain(r, c.Record)
	case dedupe.Mismatch:
		p.turnAway(r, &refusal{class: ClassMismatch, err: errors.New("onceq: the key is taken by a message with another payload")})
	case dedupe.Stale:
		// The token was seen before: a late packet of ours. A new token, once.
		if r.knows().stales++; r.known.stales > 1 {
			p.finish(r, Disposition{Action: Nack}, OutcomeStale)
			return false
		}
		r.token, r.said = dedupe.Token{}, 0
		p.claims.Add(r)
	}
	return false
}

func (p *Processor) won(r *run, c *dedupe.Claim, now time.Time) bool {
	r.fence = c.Lease.Fence
	if c.FirstErr != "" {
		r.knows().firstErr = c.FirstErr
	}
	r.job.Attempt = c.Lease.Attempt
	if r.job.Attempt == 0 { // no store counts: the broker's count is the best there is
		r.job.Attempt = max(1, r.message.Attempt)
	}
	if !r.advance(claimed) {
		p.disown(r)
		return false
	}
	lost := false
	if r.fence != 0 {
		r.mu.Lock()
		r.claimHeld, lost = true, r.deliveryLost
		r.mu.Unlock()
		if r.hasOneLease() {
			r.held.Deadline = c.Lease.Deadline // nobody beats it
		} else {
			p.holdClaim(r, c.Lease.Deadline, now, lost)
		}
	} else if !r.f.t.holds() && r.opts.timeout > 0 && !r.hasOneLease() {
		p.keepClaim(r, now.Add(p.c.Lease)) // there is nothing to renew, but the timeout needs a place
	}
	if lost && r.grouped() {
		// The message is delivered again, and the group's order goes by its deliveries.
		p.conclude(r, verdict.Verdict{To: dedupe.Released, Uncounted: true})
		return false
	}
	if no := p.tooOld(r.message, c.Created, now); no != nil {
		// Nothing failed: what has the key beside it, or gets it later, may run.
		p.conclude(r, verdict.Verdict{To: dedupe.Released, Uncounted: true, Refused: true, Class: no.class, Text: verdict.Text(no.err)})
		return false
	}
	if r.opts.most > 0 && r.job.Attempt > int(r.opts.most) {
		p.conclude(r, verdict.Verdict{
			To: dedupe.Failed, Class: ClassAttempts,
			Text: fmt.Sprintf("onceq: attempt %d, and MaxAttempts is %d", r.job.Attempt, r.opts.most),
		})
		return false
	}
	return true
}

// disown releases a claim that was won when Run had ended, so that the attempt does not count. It is tried once: the user may have
// closed the store.
func (p *Processor) disown(r *run) {
	if r.f.t.holds() && r.fence != 0 {
		p.forgoOnce(r.key, r.token)
	}
}

// holdClaim keeps the claim alive from now on. A delivery that was held already beats often enough for it, and when it came just
// now, its deadline will do until the first beat; from then on the lease is the claim's. Where the delivery was lost while
// the claim was under way, the claim alone is kept.
func (p *Processor) holdClaim(r *run, deadline, now time.Time, lost bool) {
	switch {
	case !r.f.t.holds(), lost:
		p.keepClaim(r, deadline)
	case deadline.Before(r.held.Deadline), r.held.Deadline.Sub(now) < min(p.c.Lease, p.visibility)*2/3:
		p.leases.Update(&r.held, deadline)
	}
}

func (p *Processor) keepClaim(r *run, deadline time.Time) {
	r.mu.Lock() // for lost may do the same
	defer r.mu.Unlock()
	r.held.Deadline = deadline
	p.leases.Hold(&r.held)
	if r.isOver() { // it ended just now, and nobody would release it
		p.leases.Release(&r.held)
	}
}

// putOff gives a message back while another of its job is worked on. While the owner lives, for as long as that has taken, so
// that the receives stay few however long it takes; when it has gone silent, until its lease is over. It is nobody's failure.
func (p *Processor) putOff(r *run, c *dedupe.Claim) {
	r.said = dedupe.InProgress
	if r.f.host.takeover(r, c) {
		p.finish(r, Disposition{Action: Leave}, OutcomeHandedOver)
		return
	}
	wait := max(0, c.Left, c.Age) // a store may answer anything
	if p.silent(c) {
		wait = c.Left
	}
	p.finish(r, Disposition{Action: Nack, Delay: durations.Sum(wait, mrand.N(wait/8+time.Second))}, OutcomeInProgress)
}

// silent tells whether the owner of a claim in progress is dead, or stands still. One that lives renews it at a third of its lease or of
// the delivery's visibility, whichever is shorter; the workers of one queue agree on that, if not on Lease. A lease that is over and
// cannot be taken is locked by the owner's transaction, which lives.
func (p *Processor) silent(c *dedupe.Claim) bool {
	term := cmp.Or(c.Term, p.c.Lease)
	return c.Left > 0 && term-c.Left >= min(term, p.visibility)/2
}

// unanswered repeats a claim that the store could not answer. The token stays, so that a claim whose
// answer was lost is recognised. Where the store errs on this entry alone, as on a record that something else has written, the
// others must go on: after SettleTimeout it keeps nobody from receiving, and when the store has answered another claim
// since then, before this one was sent again, it is given back. sent is nil where the whole call has failed.
func (p *Processor) unanswered(r *run, err error, sent *time.Time) {
	// A store that is full or locked says nothing of the entry, and who waits has a bound of his own.
	alone := sent != nil && !r.f.t.waits && !errors.Is(err, dedupe.ErrFull) && !errors.Is(err, dedupe.ErrBusy)
	r.f.host.storeErred(r, err, true)
	bound := r.f.t.outage
	goesOn := true
	if bound > 0 {
		goesOn = r.repeats(bound)
	} else {
		r.tries++
	}
	waited := r.errsAlone(alone)
	if alone && waited >= p.c.SettleTimeout && bound == 0 && r.f.isOpen() {
		p.probe(r.key.Scope)
	}
	other := time.Duration(p.lastClaim.Load())
	if alone && waited >= p.c.SettleTimeout && other > time.Since(p.epoch)-waited && other < sent.Sub(p.epoch) && !r.isOver() {
		if r.refusedLong() {
			r.f.untrouble(r)
			p.turnAway(r, &refusal{class: ClassClaimRefused, err: err})
			return
		}
		p.c.Logger.LogAttrs(r.f.t.base, slog.LevelError, "onceq: the store refuses a claim and answers others; its message is given back",
			slog.String("job", r.name()), slog.String("key", r.key.String()), slog.Any("error", err))
		p.giveBack(r, refusedFor, OutcomeClaimRefused)
		return
	}
	p.storeFails(r, partClaims, r.tries >= 2, err)
	if r.isOver() || !goesOn || !r.f.later(r, retry.Pause(int(r.tries)), waited < p.c.SettleTimeout) {
		p.unreachable(r)
	}
	if !goesOn {
		r.f.outage()
	}
}

// refusedFor is how long a message is given back for whose claim the store refuses: somebody has to look at its record first, and the
// queue counts each receive.
const refusedFor = 5 * time.Minute

// A claim that is refused for a day is given up: the queue would drop its message in the end, and nobody would know. Where the queue
// counts receives, there are to be as many as there may be in a third of a day: a message that has only waited is not to blame.
const (
	refusedMost     = 24 * time.Hour
	refusedReceives = 100
)

// refusedLong tells whether the message of a refused claim becomes a letter.
func (r *run) refusedLong() bool {
	from := r.message.Published
	if r.message.Meta != nil {
		from = latest(from, r.message.Meta.NotBefore)
	}
	return !from.IsZero() && time.Since(from) >= refusedMost && (r.message.Attempt == 0 || r.message.Attempt >= refusedReceives)
}

// unreachable hands back a run that the store gave no answer to. In a batch that does not wait for the store it does not come again
// at once: the queue counts each receive.
func (p *Processor) unreachable(r *run) {
	var d time.Duration
	if r.f.t.outage > 0 {
		d = p.c.Lease/2 + mrand.N(p.c.Lease/2+1)
	}
	p.giveBack(r, d, OutcomeStoreUnreachable)
}

// giveBack hands a run back that has not begun. A claim whose answer is not known may have been won; it is released by its token, so
// that neither the attempt counts nor the key waits for a lease to run out. For that the message waits SettleTimeout at the longest.
// Where somebody waits, the host does the same when that one has gone.
func (p *Processor) giveBack(r *run, d time.Duration, outcome Outcome) {
	if r.at() != claiming || r.token == (dedupe.Token{}) || r.f.t.waits {
		p.finish(r, Disposition{Action: Nack, Delay: d}, outcome)
		return
	}
	r.outcome = outcome
	p.conclude(r, verdict.Verdict{To: dedupe.Released, Uncounted: true, Delay: d})
}

// inDoubt tells whether the run is given back without an answer to its claim.
func (r *run) inDoubt() bool { return r.said == 0 && r.outcome != "" }
