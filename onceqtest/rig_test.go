package onceqtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/onceqtest"
)

// counted is a configuration whose handler counts its runs and returns what f says.
func counted(runs *int, f func(*onceq.Job) error) onceq.ProcessorConfig {
	return onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			*runs++
			if f == nil {
				return nil
			}
			return f(j)
		}),
	}
}

func one(body string) broker.Outgoing { return broker.Outgoing{Body: []byte(body)} }

// SendBare leaves the key to ProcessorConfig.Key, as a producer does that does not use onceq. Send
// would have given the message a key.
func TestSendBare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		jobs := counted(&runs, func(j *onceq.Job) error {
			if j.Message.Meta != nil || j.Key().Key != "A-1" {
				t.Errorf("%+v under %v", j.Message, j.Key())
			}
			return nil
		})
		jobs.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: string(m.Body)}, nil }
		rig := onceqtest.New(t, jobs, nil)
		rig.SendBare("A-1", "A-1")
		if a, b := rig.Deliver(), rig.Deliver(); a.Outcome != onceq.OutcomeDone || b.Outcome != onceq.OutcomeAlreadyDone || runs != 1 {
			t.Errorf("%s, %s, %d runs", a.Outcome, b.Outcome, runs)
		}
	})
}

func TestDeliverAndRedeliver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		rig := onceqtest.New(t, counted(&runs, func(j *onceq.Job) error { return j.SetResult([]byte("7")) }), nil)
		rig.Send(one("a"))
		got := rig.Deliver()
		if got.Outcome != "done" || got.Action != onceq.Ack || got.Attempt != 1 || runs != 1 {
			t.Errorf("first delivery: %+v after %d runs", got, runs)
		}
		if got.Stored == nil || got.Stored.Status != dedupe.Done || string(got.Stored.Result) != "7" {
			t.Errorf("stored: %+v", got.Stored)
		}
		again := rig.Redeliver()
		if again.Outcome != "already-done" || again.Action != onceq.Ack || runs != 1 {
			t.Errorf("second delivery: %+v after %d runs", again, runs)
		}
	})
}

func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		fail := onceq.RetryAfter(time.Minute, errors.New("not yet"))
		rig := onceqtest.New(t, counted(&runs, func(*onceq.Job) error { return fail }), nil)
		rig.Send(one("a"))
		got := rig.Deliver()
		if got.Outcome != "retried" || got.Action != onceq.Nack || got.Delay != time.Minute || got.Err != "not yet" {
			t.Errorf("retried: %+v", got)
		}
		rig.Advance(time.Minute)
		fail = onceq.Permanent(errors.New("never"))
		got = rig.Deliver()
		if got.Outcome != "failed" || got.Action != onceq.Ack || got.Attempt != 2 {
			t.Errorf("failed: %+v", got)
		}
		if len(got.Letters) != 1 || got.Letters[0].Meta.Dead.LastErr != "never" || got.Letters[0].Meta.Dead.FirstErr != "not yet" {
			t.Errorf("letters: %+v", got.Letters)
		}
		if again := rig.Redeliver(); len(again.Letters) != 1 || again.Outcome != "already-failed" {
			t.Errorf("a redelivery must put the letter again: %+v", again)
		}
	})
}

// TestCrashPoints lets a worker die at every point, another one take over, and looks at the number
// of runs.
func TestCrashPoints(t *testing.T) {
	permanent := func(*onceq.Job) error { return onceq.Permanent(errors.New("never")) }
	for _, c := range []struct {
		at      onceqtest.Fault
		handler func(*onceq.Job) error
		park    dedupe.Policy
		runs    int
		outcome onceq.Outcome // of the second delivery
	}{
		{at: onceqtest.Fault{Op: onceqtest.Claim, Kind: onceqtest.CrashBefore}, runs: 1, outcome: "done"},
		{at: onceqtest.Fault{Op: onceqtest.Claim, Kind: onceqtest.CrashAfter}, runs: 1, outcome: "done"},
		{at: onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore}, runs: 2, outcome: "done"},
		{at: onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.CrashAfter}, runs: 1, outcome: "already-done"},
		{at: onceqtest.Fault{Op: onceqtest.Ack, Kind: onceqtest.CrashBefore}, runs: 1, outcome: "already-done"},
		{at: onceqtest.Fault{Op: onceqtest.Start, Kind: onceqtest.CrashBefore}, park: dedupe.Park, runs: 1, outcome: "done"},
		{at: onceqtest.Fault{Op: onceqtest.Start, Kind: onceqtest.CrashAfter}, park: dedupe.Park, runs: 0, outcome: "parked"},
		{at: onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore}, park: dedupe.Park, runs: 1, outcome: "parked"},
		{at: onceqtest.Fault{Op: onceqtest.Letter, Kind: onceqtest.CrashBefore}, handler: permanent, runs: 1, outcome: "already-failed"},
		{at: onceqtest.Fault{Op: onceqtest.Letter, Kind: onceqtest.CrashAfter}, handler: permanent, runs: 1, outcome: "already-failed"},
	} {
		t.Run(c.at.String()+" under "+c.park.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs int
				config := counted(&runs, c.handler)
				config.Defaults.Interrupted = c.park
				rig := onceqtest.New(t, config, nil)
				rig.At(c.at)
				rig.Send(one("a"))
				if got := rig.Deliver(); !got.Crashed || got.Outcome != "crashed" {
					t.Fatalf("the worker did not crash: %+v", got)
				}
				rig.Advance(5 * time.Minute)
				got := rig.Deliver()
				if got.Crashed || got.Outcome != c.outcome || runs != c.runs {
					t.Errorf("second delivery %q after %d runs, want %q after %d", got.Outcome, runs, c.outcome, c.runs)
				}
			})
		})
	}
}

func TestAfterAckNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		rig := onceqtest.New(t, counted(&runs, nil), nil)
		rig.At(onceqtest.Fault{Op: onceqtest.Ack, Kind: onceqtest.CrashAfter})
		rig.Send(one("a"))
		if got := rig.Deliver(); !got.Crashed || got.Action != 0 && got.Action != onceq.Ack {
			t.Errorf("%+v", got)
		}
		if d, err := rig.Queue.Depth(t.Context()); err != nil || d != (broker.Depth{}) {
			t.Errorf("the queue holds %+v, %v", d, err)
		}
	})
}

func TestKillInHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		var rig *onceqtest.Rig
		rig = onceqtest.New(t, counted(&runs, func(*onceq.Job) error {
			if runs == 1 {
				rig.Kill()
			}
			return nil
		}), nil)
		rig.Send(one("a"))
		if got := rig.Deliver(); !got.Crashed || got.Stored == nil || got.Stored.Status != dedupe.Claimed {
			t.Errorf("%+v, stored %+v", got, got.Stored)
		}
		rig.Advance(time.Minute)
		if got := rig.Deliver(); got.Outcome != "done" || got.Attempt != 2 || runs != 2 {
			t.Errorf("%+v after %d runs", got, runs)
		}
	})
}

func TestLongJobBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		rig := onceqtest.New(t, counted(&runs, func(*onceq.Job) error { <-time.After(5 * time.Minute); return nil }), nil)
		rig.Send(one("a"))
		if got := rig.Deliver(); got.Outcome != "done" || got.Beats < 15 || got.Process != 5*time.Minute || runs != 1 {
			t.Errorf("%+v after %d runs", got, runs)
		}
	})
}
