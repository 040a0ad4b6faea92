package doing

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// commit does what a store's CompleteTx does when the user's transaction commits.
func commit(t *testing.T, r **rig.Rig, j *onceq.Job) {
	t.Helper()
	l := j.Lease()
	as, err := (*r).Store.Store.Settle(context.Background(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Done, Retain: j.Retain(), Result: []byte("tx")}})
	if err != nil || as[0].Err != nil || as[0].Status != dedupe.Done {
		t.Errorf("commit: %+v, %v", as, err)
	}
}

func TestJoined(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		panics  bool
		commits bool
		status  dedupe.Status
		class   string
		letter  bool
	}{
		{name: "nil, committed", commits: true, status: dedupe.Done},
		{name: "nil, not committed", status: dedupe.Released, class: onceq.ClassTxNotCommitted},
		{name: "error, committed", err: rig.ErrBoom, commits: true, status: dedupe.Done},
		{name: "error, not committed", err: rig.ErrBoom, status: dedupe.Released, class: onceq.ClassError},
		{name: "permanent, committed", err: onceq.Permanent(rig.ErrBoom), commits: true, status: dedupe.Done},
		{name: "permanent, not committed", err: onceq.Permanent(rig.ErrBoom), status: dedupe.Failed, class: onceq.ClassPermanent, letter: true},
		{name: "panic, committed", panics: true, commits: true, status: dedupe.Done},
		{name: "panic, not committed", panics: true, status: dedupe.Released, class: onceq.ClassPanic},
	} {
		for _, park := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				var r *rig.Rig
				h := func(_ context.Context, j *onceq.Job) error {
					j.Join()
					if c.commits {
						commit(t, &r, j)
					}
					if c.panics {
						panic("boom")
					}
					return c.err
				}
				rig.Bubble(t, h, func(made *rig.Rig) {
					r = made
					if park {
						r.Cfg.Defaults.Interrupted = dedupe.Park
						r.W = r.Worker(nil)
					}
					r.Send("a")
					r.RunFor(time.Second)
					rec, status := r.Record("a"), c.status
					if park && c.panics && !c.commits {
						status, c.class, c.letter = dedupe.Parked, onceq.ClassInterrupted, true
					}
					if park && c.err == nil && !c.panics && !c.commits {
						status, c.letter = dedupe.Parked, true // what happened elsewhere must not happen again
					}
					if rec.Status != status || rec.ErrClass != c.class {
						t.Errorf("the record is %v, class %q, want %v, %q", rec.Status, rec.ErrClass, status, c.class)
					}
					if c.commits && (string(rec.Result) != "tx" || r.Q.Acked("a") != 1) {
						t.Errorf("result %q, %d acks", rec.Result, r.Q.Acked("a"))
					}
					if c.letter {
						r.Letter(c.class)
					}
					r.NoLetters()
				}, rig.With(func(c *rig.Setup) { c.Defaults.Backoff = func(int, error) time.Duration { return time.Hour } }))
			})
		}
	}
}

// The last attempt fails as any other does.
func TestJoinedAtMaxAttempts(t *testing.T) {
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error { j.Join(); return nil }, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		r.Letter(onceq.ClassTxNotCommitted)
		r.WantStatus("a", dedupe.Failed)
	}, rig.Most(1))
}

// The worker's settlement waits for the user's transaction, by itself: others are not held up.
func TestJoinedWaitsAlone(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		if string(j.Message.Body) == "joined" {
			j.Join()
		}
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		var sizes []int
		r.Store.Set(func(s *rig.Store) {
			s.OnSettle = func(ss []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled {
				if ss[0].Joined {
					sizes = append(sizes, len(ss))
					if ss[0].To == dedupe.Done {
						t.Error("a joined job was settled done by the worker")
					}
					if len(sizes) <= 3 {
						return []dedupe.Settled{{Err: dedupe.ErrBusy}}
					}
				}
				return as
			}
		})
		r.Send("joined", "joined", "a", "b")
		r.RunFor(3 * time.Second)
		if slices.ContainsFunc(sizes, func(n int) bool { return n != 1 }) || len(sizes) < 4 {
			t.Errorf("the joined settlements went in batches of %v", sizes)
		}
		r.WantStatus("a", dedupe.Done)
		r.WantStatus("b", dedupe.Done)
	})
}

// busy answers every renewal as a store does whose record is locked by a transaction.
func busy(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
	for i := range as {
		as[i] = dedupe.Renewed{Err: dedupe.ErrBusy}
	}
	return as
}

func TestBusyRenewalsWhileJoined(t *testing.T) {
	for _, joins := range []bool{true, false} {
		var r *rig.Rig
		var cause error
		h := func(ctx context.Context, j *onceq.Job) error {
			if joins {
				j.Join()
			}
			select {
			case <-ctx.Done():
				cause = context.Cause(ctx)
				return cause
			case <-time.After(5 * time.Minute):
			}
			if joins {
				commit(t, &r, j)
			}
			return nil
		}
		rig.Bubble(t, h, func(made *rig.Rig) {
			r = made
			r.Store.Set(func(s *rig.Store) { s.OnRenew = busy })
			r.Send("a")
			r.Start()
			rig.Pass(5*time.Minute + time.Second)
			switch {
			case joins && (cause != nil || r.Record("a").Status != dedupe.Done):
				t.Errorf("the row's lock is the lease, and yet the handler was cancelled: %v", cause)
			case !joins && cause == nil:
				t.Error("a claim that cannot be renewed did not cancel the handler")
			}
			if n := r.Q.Received("a"); joins && n != 1 {
				t.Errorf("%d receives", n)
			}
		}, rig.Most(1))
	}
}

// A locked record keeps the lease of a job with a transaction only while the claim is its own.
// Where that transaction has ended, it is a successor's transaction that holds the lock.
func TestBusyRenewalsOfASuccessor(t *testing.T) {
	for name, c := range map[string]struct {
		onGet  func() error
		taken  bool
		within time.Duration // that the handler is cut off; 0 = it goes on
	}{
		"its own":                  {},
		"its own, reads wait, too": {onGet: func() error { return dedupe.ErrBusy }},
		"its own, reads fail":      {onGet: func() error { return rig.ErrBoom }, within: 30 * time.Second},
		"the successor's":          {taken: true, within: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var cause error
			var cut time.Time
			h := func(ctx context.Context, j *onceq.Job) error {
				j.Join()
				select {
				case <-ctx.Done():
					if cause == nil {
						cause, cut = context.Cause(ctx), time.Now()
					}
				case <-time.After(5 * time.Minute):
				}
				return rig.ErrBoom
			}
			rig.Bubble(t, h, func(r *rig.Rig) {
				r.Store.Set(func(s *rig.Store) { s.OnRenew = busy })
				r.Send("a")
				r.Start()
				rig.Pass(time.Minute)
				if cause != nil {
					t.Fatalf("cut off under its own lock: %v", cause)
				}
				from := time.Now()
				r.Store.Set(func(s *rig.Store) { s.OnGet = c.onGet })
				if c.taken {
					r.Store.Steal(t, "a")
				}
				rig.Pass(time.Minute)
				switch {
				case c.within == 0 && cause != nil:
					t.Errorf("cut off: %v", cause)
				case c.within > 0 && (!errors.Is(cause, onceq.ErrLeaseLost) || cut.Sub(from) > c.within):
					t.Errorf("cut off after %v, with %v", cut.Sub(from), cause)
				}
				if got := r.Seen.Outcomes("a"); c.taken && (len(got) == 0 || got[0] != "lease-lost") {
					t.Errorf("it ended as %q", got)
				}
				r.Store.Set(func(s *rig.Store) { s.OnRenew, s.OnGet = nil, nil })
				rig.Pass(5 * time.Minute)
			})
		})
	}
}
