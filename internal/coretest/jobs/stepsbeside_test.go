package jobs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// What goes on beside a save: goroutines of the handler, its return, a drain.

// A goroutine may save while another sets the result, or while the handler returns. The race
// detector holds it; without it, the carrier of saves met a nil pointer.
func TestSaveBesideOthers(t *testing.T) {
	const jobs = 100
	names := make([]string, jobs)
	for i := range names {
		names[i] = "k" + strings.Repeat("x", i)
	}
	var left sync.WaitGroup
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		var all sync.WaitGroup
		all.Go(func() {
			if err := onceq.Save(ctx, j, "cursor", 1); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() { _ = j.SetResult([]byte("r")) })
		all.Wait()
		left.Go(func() { _ = onceq.Save(ctx, j, "late", 1) })
		if class, _ := j.Last(); class == "" && len(j.Key().Key)%2 == 0 {
			return onceq.Postpone(time.Second, nil)
		}
		return nil
	}, func(r *rig.Rig) {
		r.Send(names...)
		r.RunFor(time.Minute)
		left.Wait()
	}, rig.Warnings)
}

// While one goroutine of a handler saves, and the store is slow, the others read what was kept
// before. One that saves as well waits for no longer than its own context.
func TestReadBesideASave(t *testing.T) {
	var read, refused time.Duration
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		if err := onceq.Save(ctx, j, "row", 1); err != nil {
			return err
		}
		var save sync.WaitGroup
		save.Go(func() {
			if err := onceq.Save(ctx, j, "row", 2); err != nil {
				t.Error(err)
			}
		})
		rig.Takes(time.Second)
		began := time.Now()
		v, ok, err := onceq.Saved[int](j, "row")
		if v != 1 || !ok || err != nil {
			t.Errorf("beside the save the row is %d, %v, %v", v, ok, err)
		}
		if class, _ := j.Last(); class != "" {
			t.Errorf("class %q", class)
		}
		read = time.Since(began)
		hasty, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		if err := onceq.Save(hasty, j, "other", 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a save that may wait for a second says %v", err)
		}
		refused = time.Since(began)
		save.Wait()
		if v, _, err := onceq.Saved[int](j, "row"); v != 2 || err != nil {
			t.Errorf("after the save the row is %d, %v", v, err)
		}
		if _, ok, _ := onceq.Saved[int](j, "other"); ok {
			t.Error("what was refused is kept")
		}
		return nil
	}, func(r *rig.Rig) {
		seen := 0
		r.Store.SetFault(func(c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Renew {
				if seen++; seen == 2 {
					return faulty.SlowReply(4 * time.Second)
				}
			}
			return nil
		})
		r.Send("a")
		r.RunFor(time.Minute)
		r.WantStatus("a", dedupe.Done)
		if read > 0 || refused != time.Second {
			r.Errorf("a read took %v, and a save that may wait for 1s took %v", read, refused)
		}
	})
}

// TestLast: what an attempt is told of the one before, whatever came before that.
func TestLast(t *testing.T) {
	for name, c := range map[string]struct {
		runs []string // how each run ends
		want []string // what each is told
	}{
		"errors":                      {[]string{"error", "permanent later", "done"}, []string{"", "error", "error"}},
		"a postponement":              {[]string{"error", "postpone", "done"}, []string{"", "error", "postponed"}},
		"a crash":                     {[]string{"die", "done"}, []string{"", "interrupted"}},
		"a crash after postponements": {[]string{"postpone", "postpone", "die", "done"}, []string{"", "postponed", "postponed", "interrupted"}},
		"a crash, then an error":      {[]string{"die", "error", "done"}, []string{"", "interrupted", "error"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []string
				var r *onceqtest.Rig
				r = onceqtest.New(t, onceq.ProcessorConfig{Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
					class, at := j.Last()
					if at.IsZero() != (class == "") {
						t.Errorf("run %d: class %q at %v", len(told)+1, class, at)
					}
					told = append(told, class)
					switch c.runs[len(told)-1] {
					case "postpone":
						return onceq.Postpone(time.Second, nil)
					case "die":
						r.Kill()
						return nil
					case "done":
						return nil
					}
					return errors.New("no")
				})}, nil)
				r.Send(broker.Outgoing{Body: []byte("x")})
				for range c.runs {
					r.Deliver()
					r.Advance(time.Hour)
				}
				if !slices.Equal(told, c.want) {
					t.Errorf("the runs were told %q, want %q", told, c.want)
				}
			})
		})
	}
}

// A save that comes when its handler has returned says that it did nothing.
func TestSaveAfterTheReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan error, 1)
		r := stepped(t, func(ctx context.Context, j *onceq.Job) error {
			go func() {
				<-time.After(time.Second)
				got <- onceq.Save(ctx, j, "cursor", 1)
			}()
			return onceq.Permanent(errors.New("no"))
		}, time.Minute, onceq.JobOptions{})
		if err := <-got; err == nil || !strings.Contains(err.Error(), "the handler has returned") || r.State != nil {
			t.Errorf("Save says %v, and the record has state %q", err, r.State)
		}
	})
}

// An attempt that a drain cuts off is not the last one: its job goes on elsewhere. One that fails
// of itself while its worker drains is, and may undo what its steps have done.
func TestLastAttemptInADrain(t *testing.T) {
	for name, c := range map[string]struct {
		cut  bool
		want string
		ends dedupe.Status
	}{
		"cut off":         {true, "charge", dedupe.Released},
		"fails of itself": {false, "charge refund", dedupe.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var did []string
				step := func(ctx context.Context, j *onceq.Job, what string) error {
					_, err := onceq.Step(ctx, j, what, func(context.Context) (int, error) { did = append(did, what); return 1, nil })
					return err
				}
				r := stepped(t, func(ctx context.Context, j *onceq.Job) error {
					if err := step(ctx, j, "charge"); err != nil {
						return err
					}
					if c.cut {
						<-ctx.Done()
					} else {
						<-time.After(3 * time.Second)
					}
					if j.LastAttempt() {
						if err := step(ctx, j, "refund"); err != nil {
							return err
						}
					}
					return errors.New("the shipper says no")
				}, time.Second, onceq.JobOptions{MaxAttempts: 1})
				if got := strings.Join(did, " "); got != c.want || r.Status != c.ends {
					t.Errorf("it did %q, and is %v; want %q, %v", got, r.Status, c.want, c.ends)
				}
			})
		})
	}
}

// The letter names the step that was saved last, also where its last attempt has not asked for one.
func TestLetterNamesTheStepOfAnEarlierAttempt(t *testing.T) {
	runs := 0
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		if runs++; runs == 1 {
			if _, err := onceq.Step(ctx, j, "charge", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return err
			}
			return errors.New("the shipper says no")
		}
		return onceq.Permanent(errors.New("no such customer"))
	}, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Minute)
		if m := r.Letter(onceq.ClassPermanent); m.Meta.Dead.Saved != "charge" {
			r.Errorf("the letter says that %q was saved last", m.Meta.Dead.Saved)
		}
	}, rig.Warnings)
}
