package ops

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/retry"
)

// CancelSpec names a job that shall not run, or not run on.
type CancelSpec struct {
	// Queue is a Target's name; empty = the first one. Key is the job's record, which need not be
	// there yet: the job's message then finds itself cancelled.
	Queue string
	Key   dedupe.Key
	// Keep is how long the record says so, from now on. Default [CancelKept]. It must outlast the
	// job's messages: one that comes later runs.
	Keep time.Duration
	// Reason is why. Required.
	Reason string
}

// CancelKept is how long a cancelled key is kept unless CancelSpec says more: the 31 days that a
// job may be due ahead unless Ceilings says more, and DefaultRetention.
const CancelKept = 31*24*time.Hour + dedupe.DefaultRetention

// Cancel records a job as failed, of class [onceq.ClassCancelled], and answers nil when that is in
// the record. From then on nothing completes the job in the store's own database, and no message
// starts it: each is acked, without a dead letter. The context of a handler that runs it ends at
// the next heartbeat, with [onceq.ErrLeaseLost] as its cause, and what the handler has done
// elsewhere stays.
//
// A job that is done, or parked, is refused, with an error that wraps [ErrRefused]. So is a record
// that goes on changing under several tries, whose error is the store's. What failed before is
// cancelled under a new fence, so that the letters it has reopen nothing. A repeat is nil. The id
// is that of the act in the audit.
func (o *Ops) Cancel(ctx context.Context, spec CancelSpec) (audit string, err error) {
	s, err := o.storeOf(spec.Queue)
	if err != nil {
		return "", err
	}
	if err := own(spec.Key); err != nil {
		return "", err
	}
	switch {
	case spec.Keep < 0:
		return "", fmt.Errorf("%w: CancelSpec.Keep is %v, want 0 or more", ErrRefused, spec.Keep)
	case durations.IsBare(spec.Keep): // the job would run as soon as the answer is there
		return "", fmt.Errorf("%w: CancelSpec.Keep: %s", ErrRefused, durations.AskUnit(spec.Keep))
	}
	spec.Keep = cmp.Or(spec.Keep, CancelKept)
	e := AuditEntry{Act: "cancel", Reason: spec.Reason, Object: spec.Key.String(), Detail: map[string]string{"keep": spec.Keep.String()}}
	return o.act(ctx, s, e, func(ctx context.Context) (map[string]string, error) {
		was := map[string]string{}
		for n := 1; ; n++ {
			done, err := o.cancel(ctx, s, &spec, was)
			if done || n == cancelTries || !retry.Rest(ctx, retry.Within(50*time.Millisecond, time.Second, n)) {
				return was, err
			}
		}
	})
}

const (
	// cancelTries bounds the looks at one record. Each rival that comes between costs one.
	cancelTries = 8
	// cancelLease is that of the claim by which a job is cancelled that nobody runs.
	cancelLease = 30 * time.Second
)

// errMoved says that a try has written, or that somebody else has: the next look tells.
var errMoved = errors.New("ops: the record goes on changing; give the command again")

// cancel is one look at the record, and what it asks for. A live claim is ended by its own token,
// in one write: to forget it first would let a rival start the job a second time, also where its
// policy is Park. What nobody runs is claimed first, so that the fence rises. It is done when the
// record says so, or says that it cannot be.
func (o *Ops) cancel(ctx context.Context, s dedupe.Store, spec *CancelSpec, was map[string]string) (done bool, err error) {
	r, err := get(ctx, s, spec.Key)
	if err != nil {
		return false, err
	}
	if r == nil {
		r = &dedupe.Record{}
	}
	if was["was"] == "" {
		was["was"] = r.Status.String()
		if r.Status == dedupe.Claimed { // else the owner is a former one
			was["owner"], was["started"] = r.Owner, strconv.FormatBool(r.Started)
		}
	}
	token := r.Token
	switch {
	case r.Status == dedupe.Done:
		return true, fmt.Errorf("%w: %v is done since %s", ErrRefused, spec.Key, stamp(r.Finished))
	case r.Status == dedupe.Parked:
		return true, fmt.Errorf("%w: %v is parked: look whether its effect happened, and resolve it to done or failed", ErrRefused, spec.Key)
	case IsCancelled(r):
		was["fence"] = strconv.FormatUint(r.Fence, 10)
		return true, nil
	case r.Status != dedupe.Claimed:
		q := dedupe.ClaimRequest{Key: spec.Key, TTL: cancelLease, Policy: r.Policy, Owner: "cancelled by " + o.o.By}
		if r.Status == dedupe.Failed {
			q.Reopen = r.Fence
		}
		rand.Read(q.Token[:])
		cs, err := s.Claim(ctx, []dedupe.ClaimRequest{q})
		switch {
		case err != nil:
			return false, err
		case len(cs) != 1:
			return false, fmt.Errorf("ops: the store answered %d of 1 claims", len(cs))
		case cs[0].Err != nil || cs[0].Outcome != dedupe.Won:
			return false, cmp.Or(cs[0].Err, errMoved)
		}
		token = q.Token
	}
	as, err := s.Settle(ctx, []dedupe.Settlement{{
		Key: spec.Key, Token: token, To: dedupe.Failed, ErrClass: onceq.ClassCancelled, ErrText: "cancelled by " + o.o.By + ": " + spec.Reason,
		Retain: max(spec.Keep, r.Expires.Sub(r.Updated)), // what its handler put off may sleep for longer
	}})
	if err == nil && len(as) == 1 && as[0].Err != nil && !errors.Is(as[0].Err, dedupe.ErrLeaseLost) {
		err = as[0].Err
	}
	return false, cmp.Or(err, errMoved)
}

// IsCancelled reports whether an operator has cancelled the record's job ([Ops.Cancel]).
func IsCancelled(r *dedupe.Record) bool {
	return r != nil && r.Status == dedupe.Failed && r.ErrClass == onceq.ClassCancelled
}
