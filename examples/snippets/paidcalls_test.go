package snippets

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/onceqtest"
)

// paid is a model, a bank and a post office that note what they are asked for, and under which key.
type paid struct {
	answers     []string
	keys, said  []string
	acted       []string
	sent, found int
	lose        bool // the next letter's answer
}

func (p *paid) Complete(_ context.Context, key, prompt string) (string, error) {
	p.keys, p.said = append(p.keys, key), append(p.said, prompt)
	answer := p.answers[0]
	p.answers = p.answers[1:]
	return answer, nil
}

func (p *paid) Run(_ context.Context, key, call string) (string, error) {
	p.keys, p.acted = append(p.keys, key), append(p.acted, call)
	return "did " + call, nil
}

func (p *paid) Charge(_ context.Context, key string, _ int) (string, error) {
	p.keys = append(p.keys, key)
	return "ch_1", nil
}

func (p *paid) Send(context.Context, string) (string, error) {
	p.sent++
	if p.lose {
		return "", errors.New("no answer")
	}
	return "letter-1", nil
}

func (p *paid) Find(context.Context, string) (string, bool, error) {
	p.found++
	return "letter-1", p.sent > 0, nil
}

func rigOf(t *testing.T, o onceq.JobOptions, h onceq.HandlerFunc) *onceqtest.Rig {
	t.Helper()
	rig := onceqtest.New(t, onceq.ProcessorConfig{Handler: h, Defaults: o}, nil)
	rig.Send(onceq.Message("", "job", nil))
	return rig
}

// A crash between two calls repeats neither, whatever day it is by then, and the loop goes on with
// the answers that were saved.
func TestPaidCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &paid{answers: []string{"refund", "look", "write", "done"}}
		rig := rigOf(t, onceq.JobOptions{}, func(ctx context.Context, j *onceq.Job) error {
			if _, err := dated(ctx, j, p, "Refund?"); err != nil {
				return err
			}
			_, err := looped(ctx, j, p, p)
			return err
		})
		for _, save := range []int{2, 3} { // of the answer to Refund?, and of the second answer after
			rig.At(onceqtest.Fault{Op: onceqtest.Renew, N: save, Kind: onceqtest.CrashAfter})
			if got := rig.Deliver(); !got.Crashed {
				t.Fatalf("%+v", got)
			}
			rig.Advance(24 * time.Hour)
		}
		if got := rig.Deliver(); got.Outcome != onceq.OutcomeDone {
			t.Fatalf("%+v", got)
		}
		if !slices.Equal(p.acted, []string{"look", "write"}) || len(p.said) != 4 || p.said[0] != "It is 2000-01-01. Refund?" {
			t.Errorf("acted %q, said %q", p.acted, p.said)
		}
		if n := len(p.keys); n != 6 || len(slices.Compact(slices.Sorted(slices.Values(p.keys)))) != n {
			t.Errorf("%d keys: %q", n, p.keys)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := &paid{answers: []string{"refund"}}
		rig := rigOf(t, onceq.JobOptions{}, func(ctx context.Context, j *onceq.Job) error {
			return refunded(ctx, j, p, p, "It broke")
		})
		p.answers = append(p.answers, "refund") // the answer that was not saved is asked for again
		rig.At(onceqtest.Fault{Op: onceqtest.Renew, N: 1, Kind: onceqtest.CrashBefore})
		rig.Deliver()
		rig.Advance(time.Minute)
		if got := rig.Deliver(); got.Outcome != onceq.OutcomeDone || len(p.keys) != 3 || p.keys[0] != p.keys[1] {
			t.Errorf("%v, keys %q", got.Outcome, p.keys)
		}
	})
}

func TestAnswered(t *testing.T) {
	for code, want := range map[int]onceq.Outcome{
		200: onceq.OutcomeDone, 429: onceq.OutcomePostponed, 409: onceq.OutcomePostponed,
		408: onceq.OutcomeRetried, 503: onceq.OutcomeRetried, 400: onceq.OutcomeFailed,
	} {
		synctest.Test(t, func(t *testing.T) {
			rig := rigOf(t, onceq.JobOptions{}, func(context.Context, *onceq.Job) error {
				return answered(&http.Response{StatusCode: code, Status: http.StatusText(code)})
			})
			if got := rig.Deliver(); got.Outcome != want {
				t.Errorf("%d: %v, want %v", code, got.Outcome, want)
			}
		})
	}
}

// Whoever takes no key is asked first: the letter whose answer was lost is not sent again, and one
// that was never sent is.
func TestPosted(t *testing.T) {
	for name, c := range map[string]struct {
		fault onceqtest.Fault
		lose  bool
	}{
		"answer lost":                 {lose: true},
		"crash before the first save": {fault: onceqtest.Fault{Op: onceqtest.Renew, N: 1, Kind: onceqtest.CrashBefore}},
		"crash before it is sent":     {fault: onceqtest.Fault{Op: onceqtest.Renew, N: 1, Kind: onceqtest.CrashAfter}},
		"crash after it was sent":     {fault: onceqtest.Fault{Op: onceqtest.Renew, N: 2, Kind: onceqtest.CrashBefore}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &paid{lose: c.lose}
				rig := rigOf(t, onceq.JobOptions{}, func(ctx context.Context, j *onceq.Job) error { return posted(ctx, j, p) })
				if c.fault.Kind != 0 {
					rig.At(c.fault)
				}
				rig.Deliver()
				rig.Advance(time.Minute)
				got := rig.Deliver()
				if c.fault.N == 1 && c.fault.Kind == onceqtest.CrashBefore {
					if got.Outcome != onceq.OutcomeDone || p.sent != 1 {
						t.Errorf("%v, %d sent", got.Outcome, p.sent)
					}
					return
				}
				if got.Outcome != onceq.OutcomePostponed {
					t.Errorf("%v while the letter may be under way", got.Outcome)
				}
				p.lose = false
				rig.Advance(time.Hour)
				if got := rig.Deliver(); got.Outcome != onceq.OutcomeDone || p.sent != 1 || p.found != 1 {
					t.Errorf("%v, %d sent, %d searches", got.Outcome, p.sent, p.found)
				}
			})
		})
	}
}

// A text message of which nobody knows parks the job, and one that was refused is tried again.
func TestTexted(t *testing.T) {
	for err, want := range map[error]onceq.Outcome{
		nil: onceq.OutcomeDone, errRefused: onceq.OutcomeRetried, errors.New("no answer"): onceq.OutcomeParked,
	} {
		synctest.Test(t, func(t *testing.T) {
			rig := rigOf(t, onceq.JobOptions{Interrupted: dedupe.Park}, func(ctx context.Context, _ *onceq.Job) error {
				return texted(ctx, func(context.Context) error { return err })
			})
			if got := rig.Deliver(); got.Outcome != want {
				t.Errorf("%v: %v, want %v", err, got.Outcome, want)
			}
		})
	}
}

// inn notes what it does, and does not answer all bookings.
type inn struct {
	did     []string
	answers []error
}

func (i *inn) Book(_ context.Context, key string) (string, error) {
	i.did = append(i.did, "book "+key)
	err := i.answers[0]
	i.answers = i.answers[1:]
	return "", err
}

func (i *inn) Cancel(_ context.Context, key string) error {
	i.did = append(i.did, "cancel "+key)
	return nil
}

// What may have been booked is cancelled by the last attempt, and by no other. Who is told to come
// back at the last attempt has not failed.
func TestBooked(t *testing.T) {
	lost, busy := errors.New("no answer"), onceq.Postpone(time.Second, errBusy)
	for name, c := range map[string]struct {
		answers []error
		want    onceq.Outcome
		cancels int
	}{
		"answers lost":          {[]error{lost, lost}, onceq.OutcomeFailed, 1},
		"busy at the end":       {[]error{lost, busy, busy, nil}, onceq.OutcomeDone, 0},
		"busy, and then silent": {[]error{busy, lost, busy, lost}, onceq.OutcomeFailed, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := &inn{answers: slices.Clone(c.answers)}
				rig := rigOf(t, onceq.JobOptions{MaxAttempts: 2}, func(ctx context.Context, j *onceq.Job) error { return booked(ctx, j, i) })
				var got onceqtest.Result
				for range c.answers {
					got = rig.Deliver()
					rig.Advance(time.Minute)
				}
				if got.Outcome != c.want || len(i.did) != len(c.answers)+c.cancels {
					t.Errorf("%v, %q", got.Outcome, i.did)
				}
			})
		})
	}
}
