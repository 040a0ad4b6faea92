package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns the way from a slot to a won claim: what is asked of the store, and what each
// answer means. The flow calls beginClaims; the carrier of claims (batch.Queue) calls claimBatch,
// and runs what follows from the answers. It holds no lock but r.mu, where a claim meets its beat.

// beginClaims asks the host about messages that have got a slot, and sends their claims.
func (en *Engine[J]) beginClaims(rs []*Run[J]) { en.claims.Add(en.admitted(rs)...) }

// admitted is what is left of rs when the host was asked about each of them.
func (en *Engine[J]) admitted(rs []*Run[J]) []*Run[J] {
	send := rs[:0]
	for _, r := range rs {
		if !r.advance(claiming) {
			continue // its delivery was lost just now
		}
		if r.Message == nil {
			en.finish(r, Leave, 0, NoMessage)
			continue
		}
		if no := r.f.Host.Admit(r); no != nil {
			en.turnAway(r, no)
			continue
		}
		send = append(send, r)
	}
	return send
}

// beginClaim is beginClaims for one run. With here, the caller's goroutine may make the call.
func (en *Engine[J]) beginClaim(r *Run[J], here bool) {
	one := [1]*Run[J]{r}
	if rs := en.admitted(one[:]); here && len(rs) > 0 && en.isAlone(r) {
		en.claimBatch(rs)
	} else {
		en.claims.Add(rs...)
	}
}

// claimBatch claims a batch in one call. One draw from the system's generator gives the tokens of
// the batch. A generator of our own would repeat its tokens in a process that was cloned from a
// snapshot.
func (en *Engine[J]) claimBatch(batch []*Run[J]) {
	rs := make([]*Run[J], 0, len(batch))
	var asked *Flow[J]
	starts := false
	for _, r := range batch {
		if r.f != asked {
			asked, starts = r.f, r.f.IsOpen()
		}
		if starts && !r.IsOver() {
			rs = append(rs, r)
		} else {
			r.f.handBack([]*Run[J]{r})
		}
	}
	if len(rs) == 0 {
		return
	}
	slices.SortFunc(rs, func(a, b *Run[J]) int {
		return cmp.Or(strings.Compare(a.Key.Scope, b.Key.Scope), strings.Compare(a.Key.Key, b.Key.Key))
	})
	rs, others := en.each(rs)
	draw(rs)
	answers, sent, err := en.ask(rs)
	switch {
	case err == nil:
		en.landClaims(rs, answers, sent)
	case dividable(rs, err, tried) && rs[0].f.Terms.Outage == 0: // otherwise it is given up soon
		en.claimApart(rs, err)
	default:
		for _, r := range rs {
			// An error of a call with more entries says nothing of this one, whatever it wraps.
			en.unanswered(r, err, en.aloneSince(rs, sent, err))
		}
	}
	if len(others) > 0 {
		en.claims.Add(others...)
	}
}

// landClaims acts on the answers to one call of Claim, and starts the handlers of what was won.
func (en *Engine[J]) landClaims(rs []*Run[J], answers []dedupe.Claim, sent time.Time) {
	begin, now, sound := rs[:0], time.Now(), false
	var failed error
	for i, r := range rs {
		c := &answers[i]
		if c.Err == nil {
			c.Err = sane(c, r, sent)
		}
		sound = sound || c.Err == nil
		if c.Err != nil && !refusesEver(c.Err) {
			failed = c.Err
		}
		if en.answered(r, c, sent, now) {
			begin = append(begin, r)
		}
	}
	if sound {
		en.lastClaim.Store(int64(now.Sub(en.epoch)))
		en.o.Pulse.claims.Answers(now)
	} else if failed != nil {
		en.o.Pulse.claims.Misses(failed)
	}
	launch(begin)
}

// ask makes one call of Claim.
func (en *Engine[J]) ask(rs []*Run[J]) (answers []dedupe.Claim, sent time.Time, err error) {
	reqs := make([]dedupe.ClaimRequest, len(rs))
	origins(rs, reqs)
	for i, r := range rs {
		q := &reqs[i]
		q.Key, q.Token, q.TTL = r.Key, r.Token, en.leaseFor(r)
		q.Policy = r.Opts.Policy
		q.Owner, q.Sent = en.o.Owner, sentAt(r.Message)
		if r.known != nil {
			q.Fingerprint, q.Reopen = r.known.fingerprint, r.known.reopens
		}
	}
	known := uint64(0)
	if en.o.WentBack != nil {
		known = en.o.Fences.Known()
	}
	sent = time.Now()
	ctx := context.Background()
	if !en.instant {
		call := callContextAt(sent, en.o.CallTimeout)
		defer call.Close()
		ctx = call
	}
	answers, err = Guard(func() ([]dedupe.Claim, error) { return en.o.Store.Claim(ctx, reqs) })
	if err == nil && len(answers) != len(reqs) {
		err = fmt.Errorf("onceq: the store answered %d of %d claims", len(answers), len(reqs))
	}
	switch {
	case err != nil:
		en.o.Pulse.claims.Misses(err)
	case en.o.WentBack != nil:
		en.inOrder(rs, answers, known)
	}
	for _, r := range rs {
		r.asked = true
	}
	return answers, sent, err
}

// inOrder looks at the answers to claims that were sent when known was the highest fence. A
// repeated claim may get the fence of its first try, and is left out.
func (en *Engine[J]) inOrder(rs []*Run[J], answers []dedupe.Claim, known uint64) {
	var highest, back uint64
	for i, r := range rs {
		if c := &answers[i]; c.Err == nil && c.Outcome == dedupe.Won && !r.asked {
			if f := c.Lease.Fence; f != 0 && f <= known {
				back = f
			}
			highest = max(highest, c.Lease.Fence)
		}
	}
	if back != 0 {
		en.o.WentBack(known, back)
	}
	en.o.Fences.Learn(highest)
}

// each takes the first of equal keys, because a second message with the same key would only wait
// for the first. The others go with the next batch, when the store knows what became of the first.
// rs is sorted by key.
func (en *Engine[J]) each(rs []*Run[J]) (once, others []*Run[J]) {
	once = rs[:1]
	for _, r := range rs[1:] {
		if r.Key == once[len(once)-1].Key {
			others = append(others, r)
			continue
		}
		once = append(once, r)
	}
	return once, others
}

func draw[J any](rs []*Run[J]) {
	raw := make([]byte, 16*len(rs))
	rand.Read(raw)
	for i, r := range rs {
		if r.Token == (dedupe.Token{}) {
			copy(r.Token[:], raw[16*i:])
		}
	}
}

// sane says what is wrong with an answer that no store may give; nil means nothing. sent is when
// the claim was sent.
func sane[J any](c *dedupe.Claim, r *Run[J], sent time.Time) error {
	switch c.Outcome {
	case dedupe.Won:
		if c.Lease.Key != r.Key || c.Lease.Token != r.Token {
			return fmt.Errorf("onceq: the store's lease is for key %v, want %v", c.Lease.Key, r.Key)
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

// refusesEver reports whether a claim's error is the store's word that it never takes this one.
func refusesEver(err error) bool {
	return errors.Is(err, dedupe.ErrBadKey) || errors.Is(err, dedupe.ErrBadRequest)
}

// answered acts on the answer to a claim that was sent at the time sent. It reports whether the
// handler is to run.
func (en *Engine[J]) answered(r *Run[J], c *dedupe.Claim, sent, now time.Time) bool {
	never := refusesEver(c.Err)
	if c.Err != nil && !never {
		en.unanswered(r, c.Err, &sent)
		return false
	}
	if r.tries > 0 {
		en.storeBack(r)
	}
	if never {
		r.f.Host.StoreErred(r, c.Err, false)
		en.turnAway(r, &Refusal{Class: verdict.BadKey, Err: c.Err})
		return false
	}
	r.Said, r.tries = c.Outcome, 0
	if c.Record != nil {
		k := r.ensureKnown()
		k.record, k.parked = c.Record, c.Outcome == dedupe.IsParked && c.Fresh
	}
	switch c.Outcome {
	case dedupe.Won:
		return en.won(r, c, now)
	case dedupe.InProgress:
		en.putOff(r, c)
	case dedupe.AlreadyDone:
		if c.Record != nil {
			r.ensureLater().result = c.Record.Result
		}
		en.finish(r, Ack, 0, AlreadyDone)
	case dedupe.AlreadyFailed, dedupe.IsParked:
		if c.Outcome == dedupe.AlreadyFailed && c.Record.ErrClass == verdict.Cancelled {
			en.finish(r, Ack, 0, Cancelled) // an operator's word, so nobody has to be told by a letter
			break
		}
		en.putAgain(r, c.Record)
	case dedupe.Mismatch:
		en.turnAway(r, &Refusal{Class: verdict.Mismatch, Err: errors.New("onceq: the key is taken by a message with another payload")})
	case dedupe.Stale:
		// The store has seen the token before, in a late packet of ours. The claim is sent again
		// with a new token, once.
		if r.ensureKnown().stales++; r.known.stales > 1 {
			en.finish(r, Nack, 0, Stale)
			return false
		}
		r.Token, r.Said, r.asked = dedupe.Token{}, 0, false
		en.claims.Add(r)
	}
	return false
}

func (en *Engine[J]) won(r *Run[J], c *dedupe.Claim, now time.Time) bool {
	r.Fence = c.Lease.Fence
	if c.FirstErr != "" {
		r.ensureKnown().firstErr = c.FirstErr
	}
	if c.ErrClass != "" || c.From != "" || !c.LastEnd.IsZero() || c.State != nil {
		k := r.ensureKnown()
		k.prevClass, k.from, k.deadFor, k.lastEnd = c.ErrClass, c.From, c.DeadFor, c.LastEnd
		k.state, k.stateNo = c.State, c.StateNo
	}
	r.Attempt = int32(min(c.Lease.Attempt, math.MaxInt32))
	if r.Attempt == 0 { // no store counts: the broker's count is the best there is
		r.Attempt = int32(min(max(1, r.Message.Attempt), math.MaxInt32))
	}
	if !r.advance(claimed) {
		en.disown(r)
		return false
	}
	lost := false
	if r.Fence != 0 {
		r.mu.Lock()
		r.claimHeld, lost = true, r.deliveryLost
		r.mu.Unlock()
		if r.hasOneLease() {
			r.held.Deadline = c.Lease.Deadline // no beat renews it
		} else {
			en.holdClaim(r, c.Lease.Deadline, now, lost)
		}
	} else if !r.f.Terms.Holds() && r.Opts.Timeout > 0 && !r.hasOneLease() {
		en.keepClaim(r, now.Add(en.o.Lease)) // there is nothing to renew, but the timeout needs a place
	}
	if lost && r.grouped() {
		// The message is delivered again, and the group's order goes by its deliveries.
		en.Conclude(r, verdict.Verdict{To: dedupe.Released, Uncounted: true})
		return false
	}
	if c.ErrClass == verdict.Cancelled {
		// A letter that was put while an operator cancelled has reopened the job, or a worker that
		// was about to say so died.
		en.Conclude(r, verdict.Verdict{To: dedupe.Failed, Class: verdict.Cancelled, Text: "onceq: cancelled before this message came"})
		return false
	}
	if no := en.tooOld(r.Message, c.Created, now); no != nil && !en.o.AnyAge {
		// Nothing failed, so another message with this key may run, now or later.
		en.Conclude(r, verdict.Verdict{To: dedupe.Released, Uncounted: true, Refused: true, Class: no.Class, Text: verdict.Text(no.Err)})
		return false
	}
	switch {
	case r.Opts.Most <= 0 || r.Attempt <= r.Opts.Most:
	case en.HoldsBack(r):
		if en.rests(r) {
			en.rest(r)
			return false
		}
	default:
		en.Conclude(r, verdict.Verdict{
			To: dedupe.Failed, Class: verdict.Attempts,
			Text: fmt.Sprintf("onceq: attempt %d, and MaxAttempts is %d", r.Attempt, r.Opts.Most),
		})
		return false
	}
	return true
}

// disown releases a claim that was won when Run had ended, so that the attempt does not count. It
// tries once, because the user may have closed the store.
func (en *Engine[J]) disown(r *Run[J]) {
	if r.f.Terms.Holds() && r.Fence != 0 {
		en.forgoOnce(r.Key, r.Token)
	}
}

// holdClaim keeps the claim alive from now on. There are two cases:
//
//   - The delivery is held already, and its beats come often enough for the claim. If the delivery
//     came just now, its deadline will do until the first beat. From then on the lease is the
//     claim's.
//   - The delivery is held by somebody else, or was lost while the claim was under way. Then the
//     claim alone is kept.
func (en *Engine[J]) holdClaim(r *Run[J], deadline, now time.Time, lost bool) {
	switch {
	case !r.f.Terms.Holds(), lost:
		en.keepClaim(r, deadline)
	case deadline.Before(r.held.Deadline), r.held.Deadline.Sub(now) < min(en.o.Lease, en.o.Visibility)*2/3:
		en.leases.Update(&r.held, deadline)
	}
}

func (en *Engine[J]) keepClaim(r *Run[J], deadline time.Time) {
	r.mu.Lock() // HoldAgain and loseDelivery change the lease under it, too
	defer r.mu.Unlock()
	r.held.Deadline = deadline
	en.leases.Hold(&r.held)
	if r.IsOver() { // it ended just now, and nobody would release it
		en.leases.Release(&r.held)
	}
}

// putOff gives a message back while another message of its job is worked on. That is nobody's
// failure. How long the message waits depends on the owner of the claim:
//
//   - While the owner lives: as long as the job has taken so far, so that the receives stay few
//     however long it takes. Where the rest of the lease is longer, the message waits for that.
//   - When the owner has gone silent: until its lease is over.
//
// A random part is added, up to an eighth of the wait and a second. The message is left alone where
// the host lets the running job take over its receipt.
func (en *Engine[J]) putOff(r *Run[J], c *dedupe.Claim) {
	r.Said = dedupe.InProgress
	if r.f.Host.Takeover(r, c) {
		en.finish(r, Leave, 0, HandedOver)
		return
	}
	wait := max(0, c.Left, c.Age) // a store may answer anything
	if en.silent(c) {
		wait = c.Left
	}
	en.finish(r, Nack, durations.Sum(wait, mrand.N(wait/8+time.Second)), InProgress)
}

// silent reports whether the owner of a claim in progress is dead, or stands still. An owner that
// lives renews its claim at a third of its lease or of the delivery's visibility, whichever is
// shorter. The workers of one queue agree on the visibility, if not on Lease. A lease that is over
// and cannot be taken is locked by the owner's transaction. Then the owner lives.
func (en *Engine[J]) silent(c *dedupe.Claim) bool {
	term := cmp.Or(c.Term, en.o.Lease)
	return c.Left > 0 && term-c.Left >= min(term, en.o.Visibility)/2
}

// unanswered repeats a claim that the store could not answer. The token stays the same, so that the
// store recognises a claim whose answer was lost. sent is when the claim was sent; nil where the
// whole call has failed.
//
// The store may err on this entry alone, as on a record that something else has written. Then the
// others must go on:
//
//   - After SettleTimeout the claim keeps nobody from receiving.
//   - The message is given back after SettleTimeout, when the store has also answered another
//     claim. That answer must have come after the first of these errors, and before this claim was
//     sent again.
func (en *Engine[J]) unanswered(r *Run[J], err error, sent *time.Time) {
	// A store that is full or locked says nothing about the entry. Somebody who waits has a bound
	// of their own.
	alone := sent != nil && !r.f.Terms.Waits && !errors.Is(err, dedupe.ErrFull) && !errors.Is(err, dedupe.ErrBusy)
	r.f.Host.StoreErred(r, err, true)
	bound := r.f.Terms.Outage
	goesOn := true
	if bound > 0 {
		goesOn = r.Repeats(bound)
	} else {
		r.tries++
	}
	waited := r.erringAlone(alone)
	if alone && waited >= en.o.SettleTimeout && bound == 0 && r.f.IsOpen() {
		en.probe(r.Key.Scope)
	}
	if alone && en.answersOthers(r, time.Since(en.epoch)-waited, sent.Sub(en.epoch)) && waited >= en.o.SettleTimeout && !r.IsOver() {
		if r.refusedLong() {
			en.storeBack(r)
			en.turnAway(r, &Refusal{Class: verdict.ClaimRefused, Err: err})
			return
		}
		en.o.Logger.LogAttrs(r.f.Terms.Base, slog.LevelError, "onceq: the store refuses a claim and answers others; its message is given back",
			slog.String("job", r.Name()), slog.String("key", r.Key.String()), slog.Any("error", err))
		en.giveBack(r, en.refusedClaimFor(r, err), ClaimRefused)
		return
	}
	en.storeFails(r, partClaims, r.tries >= 2, err)
	if r.IsOver() || !goesOn || !r.f.later(r, retry.Pause(int(r.tries)), waited < en.o.SettleTimeout) {
		en.unreachable(r)
	}
	if !goesOn {
		r.f.outage()
	}
}

// answersOthers reports whether the store has answered another claim after from, when it first
// erred on this one, and before sent, when this one was sent again. On a busy worker the last
// answer is mostly later than sent. So each error notes the answer that it finds, and the next
// error sees it.
func (en *Engine[J]) answersOthers(r *Run[J], from, sent time.Duration) bool {
	l, last := r.ensureLater(), time.Duration(en.lastClaim.Load())
	was := l.others
	l.others = last
	return from < was && was < sent || from < last && last < sent
}

// refusedClaimFor is how long a message is given back whose claim the store has answered with err,
// and not those of others. A store that did not answer in time has refused nothing, and may be well
// in a minute. Then the message comes again after a lease, because a claim that was won after all
// ends by then. Each receive doubles that.
func (en *Engine[J]) refusedClaimFor(r *Run[J], err error) time.Duration {
	if n := r.Message.Attempt; errors.Is(err, context.DeadlineExceeded) && n > 0 && n < 10 {
		return min(refusedFor, en.o.Lease<<(n-1))
	}
	return refusedFor
}

// A claim that is refused for a day is given up. Otherwise the queue would drop its message in the
// end, and nobody would know. Where the queue counts receives, there must also have been as many as
// fit into a third of a day, at one each refusedFor. A message that has only waited is not to
// blame.
const (
	refusedMost     = 24 * time.Hour
	refusedReceives = 100
)

// refusedLong reports whether the message of a refused claim becomes a letter.
func (r *Run[J]) refusedLong() bool {
	from := r.Message.Published
	if r.Message.Meta != nil {
		from = latest(latest(from, r.Message.Meta.NotBefore), r.Message.Meta.Postponed)
	}
	return !from.IsZero() && time.Since(from) >= refusedMost && (r.Message.Attempt == 0 || r.Message.Attempt >= refusedReceives)
}

// giveUnanswered hands back a run that the store gave no answer to. Where the host bounds the wait
// for the store (Terms.Outage), the message does not come again at once, because the queue counts
// each receive.
func (en *Engine[J]) giveUnanswered(r *Run[J]) {
	var d time.Duration
	if r.f.Terms.Outage > 0 {
		d = en.o.Lease/2 + mrand.N(en.o.Lease/2+1)
	}
	en.giveBack(r, d, StoreUnreachable)
}

// giveUnbegun hands back a run that has not begun. A claim whose answer is not known may have been
// won. It is released by its token, so that the attempt does not count and the key need not wait
// for a lease to run out. The message waits for that, SettleTimeout at the longest. Where somebody
// waits (Terms.Waits), the host does the same when that one has gone.
func (en *Engine[J]) giveUnbegun(r *Run[J], d time.Duration, outcome Outcome) {
	if r.at() != claiming || r.Token == (dedupe.Token{}) || r.f.Terms.Waits {
		en.finish(r, Nack, d, outcome)
		return
	}
	r.Outcome = outcome
	en.Conclude(r, verdict.Verdict{To: dedupe.Released, Uncounted: true, Delay: d})
}

// storeBack is told that the store has answered a claim that it could not answer before.
func (en *Engine[J]) storeBack(r *Run[J]) {
	if r.f.untrouble(r) {
		en.storeAgain(r.f.Terms.Base, partClaims)
	}
}
