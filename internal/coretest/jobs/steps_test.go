package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/must"
)

// stepped runs a worker on one message for d of virtual time, and answers the record.
func stepped(t *testing.T, h onceq.HandlerFunc, d time.Duration, o onceq.JobOptions) *dedupe.Record {
	t.Helper()
	q := must.Get(membroker.New(nil))
	st := must.Get(memstore.New(&memstore.Options{MaxResult: 4096}))
	dead := must.Get(membroker.New(nil))
	p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{Handler: h, Store: st, Scope: "s", Logger: slog.New(slog.DiscardHandler), Defaults: o}))
	w := must.Get(p.Worker(q, onceq.WorkerConfig{DeadLetter: dead}))
	if err := onceq.SendOne(t.Context(), q, &broker.Outgoing{Body: []byte("x"), Meta: &broker.Meta{Key: "A"}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	rs, err := st.Get(t.Context(), []dedupe.Key{{Scope: "s", Key: "A"}})
	if err != nil || rs[0] == nil {
		t.Fatalf("the record is %v, %v", rs, err)
	}
	return rs[0]
}

// A step that is stored never runs again, and a postponement is no attempt.
func TestStepsAndPostponements(t *testing.T) {
	for _, postponed := range []int{0, 6, 7} {
		t.Run(fmt.Sprint(postponed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs, charges, mails := 0, 0, 0
				var last []string
				r := stepped(t, func(ctx context.Context, j *onceq.Job) error {
					runs++
					class, _ := j.Last()
					last = append(last, class)
					id, err := onceq.Step(ctx, j, "charge", func(context.Context) (string, error) { charges++; return "ch_1", nil })
					switch {
					case err != nil:
						return err
					case runs == 1:
						return errors.New("the mailer is away")
					case runs < 2+postponed:
						return onceq.Postpone(time.Hour, errors.New("429"))
					}
					if j.LastAttempt() {
						t.Error("the second of three attempts is told as the last")
					}
					_, err = onceq.Step(ctx, j, "mail", func(context.Context) (string, error) { mails++; return "to " + id, nil })
					return err
				}, 24*time.Hour, onceq.JobOptions{MaxAttempts: 3})
				if runs != 2+postponed || charges != 1 || mails != 1 || r.Status != dedupe.Done || r.Attempt != 2 {
					t.Errorf("%d runs, %d charges, %d mails, %v, attempt %d", runs, charges, mails, r.Status, r.Attempt)
				}
				if want := " error" + strings.Repeat(" postponed", postponed); strings.Join(last, " ") != want {
					t.Errorf("the attempts before were %q, want %q", strings.Join(last, " "), want)
				}
			})
		})
	}
}

// A job sleeps through any number of receives, and holds no slot.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var woke time.Duration
		r := stepped(t, func(ctx context.Context, j *onceq.Job) error {
			if err := onceq.Sleep(ctx, j, "trial", 5*24*time.Hour); err != nil {
				return err
			}
			woke = time.Since(begin)
			return nil
		}, 6*24*time.Hour, onceq.JobOptions{MaxAttempts: 1})
		if woke < 5*24*time.Hour || woke > 5*24*time.Hour+time.Minute || r.Status != dedupe.Done {
			t.Errorf("it woke after %v, and is %v", woke, r.Status)
		}
	})
}

// What a handler can get wrong is told by an error that names the step.
func TestStepMisuse(t *testing.T) {
	one := func(context.Context) (int, error) { return 1, nil }
	long := strings.Repeat("x", 5000)
	for _, c := range []struct {
		name, want string
		h          onceq.HandlerFunc
	}{
		{"no name", "the name is empty", func(ctx context.Context, j *onceq.Job) error {
			_, err := onceq.Step(ctx, j, "", one)
			return err
		}},
		{"a name twice", `Step "a": this run has had a step of that name`, func(ctx context.Context, j *onceq.Job) error {
			_, err := onceq.Step(ctx, j, "a", one)
			if err == nil {
				_, err = onceq.Step(ctx, j, "a", one)
			}
			return err
		}},
		{"a name within itself", `Step "a": a step of that name runs already`, func(ctx context.Context, j *onceq.Job) error {
			_, err := onceq.Step(ctx, j, "a", func(ctx context.Context) (int, error) { return onceq.Step(ctx, j, "a", one) })
			return err
		}},
		{"a sleep in a step of its name", `Sleep "a": a step of that name runs`, func(ctx context.Context, j *onceq.Job) error {
			_, err := onceq.Step(ctx, j, "a", func(ctx context.Context) (int, error) { return 1, onceq.Sleep(ctx, j, "a", time.Hour) })
			return err
		}},
		{"a cursor in a step of its name", `Save "a": a step of that name runs`, func(ctx context.Context, j *onceq.Job) error {
			_, err := onceq.Step(ctx, j, "a", func(ctx context.Context) (int, error) { return 1, onceq.Save(ctx, j, "a", 7) })
			return err
		}},
		{"a step that failed may run again", `the end`, func(ctx context.Context, j *onceq.Job) error {
			_, err := onceq.Step(ctx, j, "a", func(context.Context) (int, error) { return 0, errors.New("away") })
			if v, again := onceq.Step(ctx, j, "a", one); err == nil || v != 1 || again != nil {
				return fmt.Errorf("%v, then %d, %w", err, v, again)
			}
			return onceq.Permanent(errors.New("the end"))
		}},
		{"another type", `step "a": its value does not decode into string`, func(ctx context.Context, j *onceq.Job) error {
			_, err := onceq.Step(ctx, j, "a", one)
			if err == nil {
				_, _, err = onceq.Saved[string](j, "a")
			}
			return err
		}},
		{"a sleep's name", `step "a": the name is that of a Sleep`, func(ctx context.Context, j *onceq.Job) error {
			_ = onceq.Sleep(ctx, j, "a", time.Hour)
			_, err := onceq.Step(ctx, j, "a", one)
			return err
		}},
		{"a step's name", `Sleep "a": the name is that of a saved value`, func(ctx context.Context, j *onceq.Job) error {
			if err := onceq.Save(ctx, j, "a", 1); err != nil {
				return err
			}
			return onceq.Sleep(ctx, j, "a", time.Hour)
		}},
		{"no unit", `Sleep "a": `, func(ctx context.Context, j *onceq.Job) error { return onceq.Sleep(ctx, j, "a", 40) }},
		{"too large", `Step "b": `, func(ctx context.Context, j *onceq.Job) error {
			if err := onceq.Save(ctx, j, "a", "kept"); err != nil {
				return err
			}
			_, err := onceq.Step(ctx, j, "b", func(context.Context) (string, error) { return long, nil })
			if _, ok, e := onceq.Saved[string](j, "b"); ok || e != nil {
				return fmt.Errorf("the step that was refused is there: %w", e)
			}
			if v, ok, e := onceq.Saved[string](j, "a"); v != "kept" || !ok || e != nil {
				return fmt.Errorf("what was kept before is gone: %w", e)
			}
			return err
		}},
		{"does not encode", `Save "a": the value does not encode`, func(ctx context.Context, j *onceq.Job) error {
			return onceq.Save(ctx, j, "a", func() {})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := stepped(t, c.h, time.Minute, onceq.JobOptions{})
				if r.Status != dedupe.Failed || !strings.Contains(r.LastErr, c.want) {
					t.Errorf("the job is %v: %q, want %q", r.Status, r.LastErr, c.want)
				}
			})
		})
	}
}
