package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// claimApart claims each entry of a batch alone.
func (en *Engine[J]) claimApart(rs []*Run[J], err error) {
	errs, some := apart(rs, err, func(i int) error {
		r := rs[i]
		if r.IsOver() || !r.f.IsOpen() { // the calls before it may have taken long
			r.f.handBack([]*Run[J]{r})
			return nil
		}
		answers, sent, err := en.ask(rs[i : i+1])
		if err == nil {
			en.landClaims([]*Run[J]{r}, answers, sent)
		}
		return err
	})
	now := time.Now()
	for i, r := range rs {
		switch {
		case errs[i] == nil:
		case some:
			en.unanswered(r, errs[i], &now)
		default:
			en.unanswered(r, errs[i], nil)
		}
	}
}

// aloneSince answers sent, the time at which the failed claim was sent, where the error is the
// entry's own; otherwise nil. The error is the entry's own when the call had no other entry and the
// store has answered others since the first such failure.
//
// Where no other claim comes, aloneSince asks the store for something else (writes). An answer to
// that lets other messages be received. But only the answer to a claim lets this message be given
// back.
func (en *Engine[J]) aloneSince(rs []*Run[J], sent time.Time, err error) *time.Time {
	r := rs[0]
	if len(rs) > 1 || r.f.Terms.Waits || r.f.Terms.Outage > 0 {
		return nil
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded): // a store that hangs says nothing of the entry
		return nil
	case r.outlived(&en.lastClaim, sent), !r.later.Load().alone.IsZero():
	case r.tries < wholeFailures, !en.writes(r.Key.Scope):
		return nil
	}
	return &sent
}

// writes asks the store to renew a claim that nobody has, and reports whether the store refuses it
// as lost. A store that can write does so, and changes nothing.
func (en *Engine[J]) writes(scope string) bool {
	var token dedupe.Token
	rand.Read(token[:])
	ctx := CallContext(context.Background(), en.o.CallTimeout)
	defer ctx.Close()
	as, err := en.askRenewal(ctx, []dedupe.Renewal{{Key: dedupe.Key{Scope: scope, Key: hex.EncodeToString(token[:])}, Token: token, TTL: en.o.Lease}})
	return err == nil && errors.Is(as[0].Err, dedupe.ErrLeaseLost)
}
