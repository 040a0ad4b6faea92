package doing

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// lasts works for d, or until its context ends, and answers why.
func lasts(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A handler is not cut off after its transaction has committed. Its claim is settled then, and
// cannot be lost.
func TestWorkAfterTheCommit(t *testing.T) {
	for _, group := range []string{"", "g/"} {
		var r *rig.Rig
		var cut error
		h := func(ctx context.Context, j *onceq.Job) error {
			j.Join()
			commit(t, &r, j)
			cut = lasts(ctx, 5*time.Minute)
			return nil
		}
		rig.Bubble(t, h, func(made *rig.Rig) {
			r = made
			r.Send(group + "a")
			r.RunFor(10 * time.Minute)
			if cut != nil {
				t.Errorf("it was cut off: %v", cut)
			}
			r.WantOutcomes("a", "done")
			if rec := r.Seen.Of("a")[0]; rec.ErrClass != "" || rec.Err != "" {
				t.Errorf("the job report tells of a failure: %+v", rec)
			}
			if n := r.Q.Received("a"); n != 1 || r.Q.Acked("a") != 1 {
				t.Errorf("%d receives, %d acks", n, r.Q.Acked("a"))
			}
			if n := r.Store.Renews.Load(); n > 1 {
				t.Errorf("%d renewals of a claim that is settled", n)
			}
		})
	}
}

func TestDoGoesOnAfterItsCommit(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		v, err := d.Do("a", nil, func(ctx context.Context, j *onceq.Job) (int, error) {
			j.Join()
			commit(t, &d.Rig, j)
			return 7, lasts(ctx, 5*time.Minute)
		})
		d.Wants("the call", v, err, 7, nil)
		d.WantOutcomes("a", "done")
	})
}

// A transaction that has not committed does not keep the claim. Where the claim is lost, the
// handler is cut off.
func TestJoinedAndLost(t *testing.T) {
	lose := func(t *testing.T, d *rig.Doer) { d.Store.Steal(t, "a") }
	for name, c := range map[string]struct {
		lost     func(t *testing.T, d *rig.Doer, l dedupe.Lease)
		unjoined bool // and nothing is read
	}{
		"claimed": {lost: func(t *testing.T, d *rig.Doer, _ dedupe.Lease) { lose(t, d) }},
		"done": {lost: func(t *testing.T, d *rig.Doer, _ dedupe.Lease) {
			lose(t, d)
			d.Store.EndClaim(t, dedupe.ClaimRequest{Key: rig.Key("a"), Token: dedupe.Token{1}}, dedupe.Settlement{To: dedupe.Done})
		}},
		"parked": {lost: func(t *testing.T, d *rig.Doer, l dedupe.Lease) {
			d.Store.EndClaim(t, dedupe.ClaimRequest{Key: l.Key, Token: l.Token}, dedupe.Settlement{To: dedupe.Parked})
		}},
		"no record": {lost: func(t *testing.T, d *rig.Doer, l dedupe.Lease) {
			if errs, err := d.Store.Forget(t.Context(), []dedupe.Forgotten{{Key: l.Key, Fence: l.Fence, Force: true}}); err != nil || errs[0] != nil {
				t.Fatal(errs, err)
			}
		}},
		"not joined": {lost: func(t *testing.T, d *rig.Doer, _ dedupe.Lease) { lose(t, d) }, unjoined: true},
	} {
		t.Run(name, func(t *testing.T) {
			rig.BubbleDo(t, func(d *rig.Doer) {
				if c.unjoined {
					d.P = d.Processor(unreadable{d.Store})
				}
				begin := time.Now()
				_, err := d.Do("a", nil, func(ctx context.Context, j *onceq.Job) (int, error) {
					if !c.unjoined {
						j.Join()
					}
					rig.Takes(time.Second)
					c.lost(d.T, d, j.Lease())
					cut := lasts(ctx, 5*time.Minute)
					if !errors.Is(cut, onceq.ErrLeaseLost) || time.Since(begin) > onceq.DefaultLease/2 {
						t.Errorf("%v after %v", cut, time.Since(begin))
					}
					return 7, nil
				})
				d.Wants("the call", 7, err, 7, &onceq.UnsettledError{})
			})
		})
	}
}

// The store does not answer whether the transaction has committed. The worker asks again until the
// lease's end.
func TestWorkAfterTheCommitUnread(t *testing.T) {
	for i, fails := range []int{1, 1000, 1} {
		rig.BubbleDo(t, func(d *rig.Doer) {
			st := &unreadableAtFirst{Store: d.Store, left: fails, err: errUnread}
			if i == 2 {
				st.err = nil // it answers of fewer keys than it was asked
			}
			d.P = d.Processor(st)
			var cut error
			v, err := d.Do("a", nil, func(ctx context.Context, j *onceq.Job) (int, error) {
				j.Join()
				commit(t, &d.Rig, j)
				cut = lasts(ctx, 5*time.Minute)
				return 7, nil
			})
			d.Wants("the call", v, err, 7, nil) // the settlement tells
			if (cut != nil) != (fails > 1) || cut != nil && !errors.Is(cut, onceq.ErrLeaseLost) {
				t.Errorf("with %d failures it was cut off by %v", fails, cut)
			}
		})
	}
}

type unreadableAtFirst struct {
	dedupe.Store
	left int
	err  error
}

func (u *unreadableAtFirst) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	if u.left--; u.left >= 0 {
		return nil, u.err
	}
	return u.Store.Get(ctx, ks)
}
