package dynamostore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/records"
)

// renewTries bound the writes of a renewal. The second is for a longer lease, the third for a newer
// state. The others are for a host that has slept.
const renewTries = 5

// Renew prolongs leases, each with one write, all at once. A record that a transaction holds for
// longer than some tens of milliseconds is [dedupe.ErrBusy].
func (s *Store) Renew(ctx context.Context, ns []dedupe.Renewal) ([]dedupe.Renewed, error) {
	return answers(ctx, s, ns, func(n *dedupe.Renewal) (dedupe.Renewed, error) {
		var end time.Time
		err := candid(ctx, "Renew", func(ctx context.Context) (err error) {
			end, err = s.renew(ctx, n)
			return err
		})
		return dedupe.Renewed{Deadline: end, Err: err}, err
	})
}

func (s *Store) renew(ctx context.Context, n *dedupe.Renewal) (time.Time, error) {
	if err := cmp.Or(n.Validate(), records.CheckSize("Renewal.State", n.State, maxResult)); err != nil {
		return time.Time{}, fmt.Errorf("dynamostore: %w", err)
	}
	// A lease is never shortened. It is rare that one lives longer than what is asked for. Then a
	// second write leaves it as it is.
	longer, saves, tight := false, n.State != nil, false
	var at reading
	for range renewTries {
		if !longer { // else it is longer than what was asked for then
			var err error
			if at, err = s.sure(ctx, n.Key, n.Token, false); err != nil {
				return time.Time{}, s.explain(ctx, "Renew", err)
			}
		}
		w := s.write("renew")
		w.set(attrUpdated, moment(at.now))
		w.add(attrVersion, 1)
		if n.Started {
			w.set(attrStarted, truth(true))
		}
		if saves {
			w.set(attrState, blob(n.State))
			w.set(attrStateNo, number(n.StateNo))
		}
		if longer {
			w.kind = "renew a longer lease"
			w.own(n.Token, &stillClaimed)
		} else {
			w.set(attrLease, moment(at.now.Add(s.kept(n.TTL, true))))
			w.own(n.Token, &stillClaimed, &notLonger)
		}
		if saves {
			w.when(&olderState)
		}
		if tight {
			w.drop(attrPast)
		}
		_, no, err := w.update(ctx, n.Key, false, types.ReturnValueNone)
		switch {
		case isTooLarge(err) && !tight:
			tight = true // the steps are worth more than the history
			continue
		case err != nil:
			return time.Time{}, s.explain(ctx, "Renew", err)
		case no == nil && s.clock.isMisled(at):
			longer = false // to others the lease may end early, or have ended
			continue
		case no == nil:
			return at.sent.Add(n.TTL), nil
		}
		found, err := s.decode(no.item)
		if err != nil {
			return time.Time{}, foreign("Renew", err)
		}
		var r dedupe.Record
		if found != nil {
			r = found.rec
		}
		before := r.StateNo
		if err := machine.ApplyRenew(&r, n, at.now); err != nil {
			return time.Time{}, fmt.Errorf("dynamostore: Renew: %w", err)
		}
		if saves && before >= n.StateNo {
			saves = false // it came late
		} else {
			longer = true
		}
	}
	return time.Time{}, fmt.Errorf("dynamostore: Renew: %w", dedupe.ErrBusy)
}
