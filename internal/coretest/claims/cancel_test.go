package claims

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/ops"
)

// cancel is an operator's word on the job of a message.
func cancel(t *testing.T, r *rig.Rig, key string) error {
	t.Helper()
	o, err := ops.New([]ops.Target{{Name: "q", Store: r.Store}}, &ops.Options{By: "ana"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = o.Cancel(r.Context(), ops.CancelSpec{Key: dedupe.Key{Scope: rig.Scope, Key: key}, Reason: "withdrawn"})
	return err
}

// TestCancelledIsAcked: a message whose job was cancelled is acked without a letter, whichever of
// the job's messages it is, also where the queue keeps what fails, and in an ordered group.
func TestCancelledIsAcked(t *testing.T) {
	for name, o := range map[string]rig.Option{
		"letters": rig.With(func(*rig.Setup) {}),
		"kept":    rig.With(func(c *rig.Setup) { c.DeadLetter = onceq.KeepInQueue }),
		"hold group": func(r *rig.Rig) {
			rig.Preset(membroker.SQSFIFO)(r)
			r.Cfg.HoldGroup = true
		},
	} {
		t.Run(name, func(t *testing.T) {
			rig.BothWays(t, rig.Returns(nil), func(r *rig.Rig) {
				if err := cancel(t, r, "a"); err != nil {
					t.Fatal(err)
				}
				for _, key := range []string{"a", "a", "b"} {
					m := rig.Message(key)
					if name == "hold group" {
						m.Group = "g"
					}
					r.Put(m)
				}
				r.RunFor(time.Minute)
				r.WantOutcomes("a", "cancelled", "cancelled")
				r.WantOutcomes("b", "done")
				r.WantQueue(0)
				r.NoLetters()
				if got := r.Seen.Of("a")[0]; got.Ran || got.ErrClass != "" {
					t.Errorf("a cancelled job counts as a failure: %+v", got)
				}
			}, o)
		})
	}
}

// TestCancelWhileItRuns: the handler's context ends at the next beat, and its cause says why. What
// it then returns changes nothing, and the message's next delivery is acked. Where the store does
// not say why, the context ends a quarter of a second later all the same.
func TestCancelWhileItRuns(t *testing.T) {
	for name, c := range map[string]struct {
		end   error
		hangs bool
		cause string
	}{
		"nil":             {cause: "the job was cancelled"},
		"an error":        {end: errors.New("cut off"), cause: "the job was cancelled"},
		"the store hangs": {hangs: true, cause: "claimed by another"},
	} {
		t.Run(name, func(t *testing.T) {
			var took time.Duration
			var cause error
			h := func(ctx context.Context, _ *onceq.Job) error {
				began := time.Now()
				<-ctx.Done()
				took, cause = time.Since(began), context.Cause(ctx)
				return c.end
			}
			rig.BothWays(t, h, func(r *rig.Rig) {
				stuck := make(chan struct{})
				r.Send("a")
				r.Start()
				rig.Pass(time.Second)
				if err := cancel(t, r, "a"); err != nil {
					t.Fatal(err)
				}
				if c.hangs {
					r.Store.FailsAs(func(op onceqtest.Op) error {
						if op == onceqtest.Get {
							<-stuck // whatever its context says
						}
						return nil
					})
				}
				rig.Pass(5 * time.Minute)
				r.Store.Heals()
				close(stuck)
				if err := r.Stop(); err != nil {
					t.Error(err)
				}
				if took > 12*time.Second || !errors.Is(cause, onceq.ErrLeaseLost) || !strings.Contains(cause.Error(), c.cause) {
					t.Errorf("the context ended after %v by %v", took, cause)
				}
				r.WantOutcomes("a", "lease-lost", "cancelled")
				r.WantStatus("a", dedupe.Failed)
				r.WantQueue(0)
				r.NoLetters()
			})
		})
	}
}

// TestNobodyIsReadThatHasEnded: the store is not asked why a claim was lost when its job has ended
// meanwhile, because whoever ran it may have closed the store.
func TestNobodyIsReadThatHasEnded(t *testing.T) {
	rig.Bubble(t, rig.WhenCut(nil), func(r *rig.Rig) {
		r.Start()
		for _, key := range []string{"a", "b"} {
			r.Send(key)
			rig.Pass(2 * time.Second)
			r.Store.Steal(t, key)
		}
		stuck := make(chan struct{})
		reads := 0
		r.Store.FailsAs(func(op onceqtest.Op) error {
			if op == onceqtest.Get {
				reads++
				<-stuck
			}
			return nil
		})
		rig.Pass(20 * time.Second)
		r.WantOutcomes("b", "lease-lost")
		close(stuck)
		rig.Pass(time.Second)
		if reads != 1 {
			t.Errorf("%d reads, want that of a, for which b's waited", reads)
		}
	})
}

// TestCancelInTheEnd: a handler that ends between the cancel and the beat is told by its
// settlement. Its message is left, and the next delivery is acked; only a failure of its own has a
// letter.
func TestCancelInTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end     error
		letters int
		want    []string
	}{
		"nil":       {nil, 0, []string{"lease-lost", "cancelled"}},
		"retried":   {errors.New("again"), 0, []string{"lease-lost", "cancelled"}},
		"postponed": {onceq.Postpone(time.Minute, errors.New("later")), 0, []string{"lease-lost", "cancelled"}},
		"permanent": {onceq.Permanent(errors.New("never")), 1, []string{"failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			rig.BothWays(t, func(context.Context, *onceq.Job) error { <-time.After(2 * time.Second); return c.end }, func(r *rig.Rig) {
				r.Send("a")
				r.Start()
				rig.Pass(time.Second)
				if err := cancel(t, r, "a"); err != nil {
					t.Fatal(err)
				}
				rig.Pass(5 * time.Minute)
				if err := r.Stop(); err != nil {
					t.Error(err)
				}
				r.WantOutcomes("a", c.want...)
				if rec := r.Record("a"); !ops.IsCancelled(&rec) {
					t.Errorf("the record is %v %s", rec.Status, rec.ErrClass)
				}
				if got := len(r.Letters()); got != c.letters {
					t.Errorf("%d letters, want %d", got, c.letters)
				}
				r.WantQueue(0)
			})
		})
	}
}

// TestCancelledLetterReopensNothing: a handler fails for good while its job is cancelled, so the
// letter has the fence of the cancelled record. Its replay runs nothing, also where the worker that
// has claimed it dies, and the job stays cancelled.
func TestCancelledLetterReopensNothing(t *testing.T) {
	for name, dies := range map[string]bool{"replayed": false, "and the worker dies": true} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			h := func(context.Context, *onceq.Job) error {
				runs++
				<-time.After(2 * time.Second)
				return onceq.Permanent(errors.New("never"))
			}
			rig.Bubble(t, h, func(r *rig.Rig) {
				r.Send("a")
				r.Start()
				rig.Pass(time.Second)
				if err := cancel(t, r, "a"); err != nil {
					t.Fatal(err)
				}
				rig.Pass(time.Minute)
				if err := r.Stop(); err != nil {
					t.Error(err)
				}
				r.Replay(r.Letter("permanent"))
				if dies {
					// As the worker leaves it that dies between its claim and its word.
					q := dedupe.ClaimRequest{Key: dedupe.Key{Scope: rig.Scope, Key: "a"}, Token: dedupe.Token{9}, TTL: time.Second, Reopen: r.Record("a").Fence}
					if cs, err := r.Store.Claim(r.Context(), []dedupe.ClaimRequest{q}); err != nil || cs[0].Outcome != dedupe.Won {
						t.Fatal(cs, err)
					}
				}
				r.RunFor(time.Minute)
				if runs != 1 {
					t.Errorf("the job ran %d times", runs)
				}
				if rec := r.Record("a"); !ops.IsCancelled(&rec) {
					t.Errorf("the record is %v %s", rec.Status, rec.ErrClass)
				}
				r.NoLetters()
				r.WantQueue(0)
			})
		})
	}
}

// TestCancelledSleeper: a job that is asleep between two steps for longer than records are kept is
// still cancelled when it wakes.
func TestCancelledSleeper(t *testing.T) {
	const sleep = 100 * 24 * time.Hour
	h := func(ctx context.Context, j *onceq.Job) error { return onceq.Sleep(ctx, j, "nap", sleep) }
	rig.BothWays(t, h, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		r.WantOutcomes("a", "postponed")
		if err := cancel(t, r, "a"); err != nil {
			t.Fatal(err)
		}
		rig.Pass(sleep)
		if rec := r.Record("a"); !ops.IsCancelled(&rec) || rec.Expires.Before(time.Now().Add(24*time.Hour)) {
			t.Errorf("when it wakes its record is %v until %v", rec.Status, rec.Expires)
		}
	})
}

// TestCancelledByClass: no handler cancels a job by the class of its error, because a message that
// finds its key cancelled gets no letter.
func TestCancelledByClass(t *testing.T) {
	rig.Bubble(t, rig.Returns(onceq.Permanent(classed("cancelled"))), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		r.WantOutcomes("a", "failed")
		r.Letter(onceq.ClassPermanent)
	})
}

type classed string

func (c classed) Error() string      { return string(c) }
func (c classed) ErrorClass() string { return string(c) }

// TestCancelledElsewhere: a batch acks a cancelled message, as on Lambda and by push, and a caller
// of Do is told by a FailedError.
func TestCancelledElsewhere(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		if err := cancel(t, r, "a"); err != nil {
			t.Fatal(err)
		}
		got := r.Process(r.Context(), rig.Deliveries("a")...)
		if d := got[0]; d.Action != onceq.Ack || !slices.Equal(r.Seen.Outcomes("a"), []string{"cancelled"}) {
			t.Errorf("%+v, %v", d, r.Seen.Outcomes("a"))
		}
		r.NoLetters()
	})
	rig.BubbleDo(t, func(d *rig.Doer) {
		if err := cancel(d.T, d.Rig, "a"); err != nil {
			d.Fatal(err)
		}
		_, err := d.Do("a", nil, d.MustNot)
		var failed *onceq.FailedError
		if !errors.As(err, &failed) || failed.Class != onceq.ClassCancelled || failed.Text != "cancelled by ana: withdrawn" {
			d.Errorf("Do answered %v", err)
		}
	})
}
