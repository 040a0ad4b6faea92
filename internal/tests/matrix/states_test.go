package matrix

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
)

// This file owns what a job has saved and nobody can use, or no store can take: on each store a
// clear error, and nothing is lost.

// onEachStore runs f on the four stores, with their queues in memory.
func onEachStore(t *testing.T, f func(t *testing.T, b *backend)) {
	t.Helper()
	stores := map[string]func(*testing.T) *backend{
		"memory":   func(*testing.T) *backend { return memory() },
		"sqlite":   func(*testing.T) *backend { return sqlite() },
		"postgres": postgres,
		"dynamodb": dynamoDB,
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			t.Cleanup(b.zombies.Wait)
			f(t, b)
		})
	}
}

// plant leaves a state under the job's key, as a worker does that has saved it and then failed.
func (w *world) plant(state string) {
	w.Helper()
	token := dedupe.Token{1}
	cs, err := w.db.store().Claim(w.Context(), []dedupe.ClaimRequest{{Key: w.key(), Token: token, TTL: time.Hour, Owner: "another"}})
	if err != nil || cs[0].Outcome != dedupe.Won {
		w.Fatalf("%+v, %v", cs, err)
	}
	as, err := w.db.store().Renew(w.Context(), []dedupe.Renewal{{Key: w.key(), Token: token, TTL: time.Hour, State: []byte(state), StateNo: 7}})
	if err != nil || as[0].Err != nil {
		w.Fatal(as, err)
	}
	ss, err := w.db.store().Settle(w.Context(), []dedupe.Settlement{{Key: w.key(), Token: token, To: dedupe.Released, ErrClass: onceq.ClassError, ErrText: "failed"}})
	if err != nil || ss[0].Err != nil {
		w.Fatal(ss, err)
	}
}

// replay sends the one letter back, and answers what it said.
func (w *world) replay() broker.Letter {
	w.Helper()
	// A letter of the same millisecond counts as newer than the replay, and stays.
	failed := time.Now()
	w.until("the clock goes on", func() bool { return time.Since(failed) > 2*time.Millisecond })
	var said []broker.Letter
	var rep dlq.Report
	q, err := dlq.New(w.letters, &dlq.Options{Wait: time.Millisecond})
	if err == nil {
		rep, err = q.Replay(w.Context(), dlq.ReplayOptions{To: w.queue, Filter: dlq.Filter{Match: func(m *broker.Message) bool {
			said = append(said, *m.Meta.Dead)
			return true
		}}})
	}
	if err != nil || len(said) != 1 || rep.Replayed != 1 {
		w.Fatalf("the letters %+v were replayed (%v), %v; want one", said, rep, err)
	}
	return said[0]
}

// TestStatesThatNobodyCanRead: a state of a later version, of another library, or cut short is
// refused with its reason. The job is tried again as after any error, its letter says why, and the
// state stays as it is, for whoever can read it.
func TestStatesThatNobodyCanRead(t *testing.T) {
	cases := map[string]struct{ state, want string }{
		"later version":   {`{"v":2,"steps":[["charge","ch_1"]]}`, "its form is 2, and this one knows up to 1"},
		"another's":       {"\x08\x96\x01 protobuf", "something else has written it"},
		"cut short":       {`{"s":{"charge":{"n":1,"at":"2026-01-02T03:04:05Z","v":"ch`, "something else has written it"},
		"another's steps": {`{"v":1,"s":["charge"]}`, "its steps cannot be read"},
	}
	onEachStore(t, func(t *testing.T, b *backend) {
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b.in(t, func(t *testing.T) {
					w := newWorld(t, b, rerun, scenario{copies: 1})
					var ran, runs atomic.Int32
					var mended atomic.Bool
					w.handler = func(ctx context.Context, _ *worker, j *onceq.Job) error {
						runs.Add(1)
						if mended.Load() {
							return nil
						}
						_, err := onceq.Step(ctx, j, "charge", func(context.Context) (int, error) { ran.Add(1); return 1, nil })
						return err
					}
					w.plant(c.state)
					k := w.start("A")
					w.until("the job fails", func() bool { return w.record().Status == dedupe.Failed && w.isEmpty() })
					rec := w.record()
					if ran.Load() != 0 || runs.Load() != 5 || rec.ErrClass != onceq.ClassConfig || !strings.Contains(rec.LastErr, c.want) || string(rec.State) != c.state || rec.StateNo != 7 {
						t.Errorf("after %d runs and %d charges the record is %+v", runs.Load(), ran.Load(), rec)
					}
					mended.Store(true)
					if said := w.replay(); !strings.Contains(said.LastErr, c.want) || said.Saved != "" {
						t.Errorf("the letter says %+v", said)
					}
					w.until("the job is done", func() bool { return w.record().Status == dedupe.Done })
					k.end()
				})
			})
		}
	})
}

// TestStateThatIsTooLarge: one byte too many is a permanent error that names the step; what was
// saved before is kept, and the replay of a mended job goes on from there.
func TestStateThatIsTooLarge(t *testing.T) {
	onEachStore(t, func(t *testing.T, b *backend) {
		b.in(t, func(t *testing.T) {
			w := newWorld(t, b, rerun, scenario{copies: 1})
			most := w.db.store().Limits().MaxResult
			var charges, lists atomic.Int32
			var mended atomic.Bool
			w.handler = func(ctx context.Context, _ *worker, j *onceq.Job) error {
				_, err := onceq.Step(ctx, j, "charge", func(context.Context) (int, error) { charges.Add(1); return 1, nil })
				if err != nil {
					return err
				}
				_, err = onceq.Step(ctx, j, "list", func(context.Context) (string, error) {
					if lists.Add(1); mended.Load() {
						return "s3://lists/1", nil
					}
					return strings.Repeat("x", most), nil
				})
				return err
			}
			k := w.start("A")
			w.until("the job fails", func() bool { r := w.record(); return r != nil && r.Status == dedupe.Failed && w.isEmpty() })
			rec := w.record()
			if got := names(w, rec.State); rec.ErrClass != onceq.ClassResult || !strings.Contains(rec.LastErr, `Step "list"`) || len(got) != 1 || lists.Load() != 1 {
				t.Errorf("%d lists, steps %q, class %q: %q", lists.Load(), got, rec.ErrClass, rec.LastErr)
			}
			mended.Store(true)
			if said := w.replay(); said.Saved != "charge" || said.Class != onceq.ClassResult {
				t.Errorf("the letter says %+v", said)
			}
			w.until("the job is done", func() bool { return w.record().Status == dedupe.Done })
			k.end()
			if charges.Load() != 1 || lists.Load() != 2 {
				t.Errorf("%d charges, %d lists", charges.Load(), lists.Load())
			}
		})
	})
}

// TestStateAsLargeAsItMayBe: beside a state that is as large as the store takes there is room for
// what the job comes to. It fails with a long text, is released, and goes on; and its result, as
// large again, takes the place of the state.
func TestStateAsLargeAsItMayBe(t *testing.T) {
	onEachStore(t, func(t *testing.T, b *backend) {
		b.in(t, func(t *testing.T) {
			w := newWorld(t, b, rerun, scenario{copies: 1})
			most := w.db.store().Limits().MaxResult
			large := strings.Repeat("x", most-200) // the rest is the form's, and the step's name
			var steps, runs atomic.Int32
			w.handler = func(ctx context.Context, _ *worker, j *onceq.Job) error {
				v, err := onceq.Step(ctx, j, "list", func(context.Context) (string, error) { steps.Add(1); return large, nil })
				switch {
				case err != nil:
					return err
				case v != large:
					return onceq.Permanent(errors.New("another value"))
				case runs.Add(1) < 4:
					return errors.New(strings.Repeat("é", 5000))
				}
				return j.SetResult([]byte(large))
			}
			k := w.start("A")
			w.until("the queue is empty", w.isEmpty)
			k.end()
			if rec := w.record(); steps.Load() != 1 || runs.Load() != 4 || string(rec.Result) != large || rec.State != nil || rec.Attempt != 4 {
				t.Errorf("after %d runs of the step and %d of the job: attempt %d, a result of %d bytes, a state of %d", steps.Load(), runs.Load(), rec.Attempt, len(rec.Result), len(rec.State))
			}
			if n := len(w.dead()); n != 0 {
				t.Errorf("%d letters", n)
			}
		})
	})
}
